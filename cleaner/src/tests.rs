//! Whole passes over logs in memory.
#![allow(clippy::disallowed_methods, reason = "fixture directories are read directly")]

mod kafka;
mod memory;
