//! Whole passes over logs in memory.
#![allow(clippy::disallowed_methods, reason = "fixture directories are read directly")]

pub(crate) mod build;
mod damage;
mod explain;
mod field;
mod field_indexes;
mod field_maps;
mod field_passes;
mod hollow;
mod kafka;
mod keys;
mod liveness;
pub(crate) mod memory;
mod producers;
mod real;
mod room;
