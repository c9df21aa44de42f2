//! The built binary, run on what a real Kafka wrote and on what nobody should hand it.
#![allow(clippy::disallowed_methods, reason = "tests set up their directories directly")]

mod bad_input;
mod bench;
mod change_offsets;
mod compact;
mod demo;
mod dump;
mod explain;
mod groups;
mod harness;
mod import_offsets;
mod inspect;
mod mangled;
mod offsets;
mod partition_count;
mod recover;
mod usage;
mod verify;
