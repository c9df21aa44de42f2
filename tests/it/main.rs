//! Tests of the facade, in one binary.
#![allow(clippy::disallowed_methods)] // they look at files behind the back of the engine

mod disk;
mod field_gauges;
mod field_names;
mod field_offsets;
mod field_positions;
mod field_rates;
mod field_recovery;
mod field_reports;
mod field_snapshots;
mod field_starts;
mod field_store;
mod field_threads;
mod guard;
mod kill;
mod many_logs;
mod offset_model;
mod offset_store;
mod pauses;
mod settings;
#[path = "../../engine/tests/it/shim.rs"]
mod shim;
mod store;
