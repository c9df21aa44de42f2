//! Tests of whole logs, in one binary.
#![allow(clippy::disallowed_methods)] // they damage files behind the back of the engine

mod appending;
mod durability;
mod field_concurrency;
mod field_counters;
mod field_indexes;
mod field_input;
mod field_recovery;
mod field_rewrites;
mod field_side_files;
mod field_syncs;
mod pieces;
mod reading;
mod recovering;
mod shim;
mod support;
mod swapping;
mod trimming;
mod upkeep;
