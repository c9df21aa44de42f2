//! Record batches, segments and logs in Apache Kafka's directory format.
//!
//! This crate knows bytes, files and crash recovery. It does not know that keys mean anything, that a
//! cleaner, a consumer group or a command line exist, and it starts no thread.
#![deny(unsafe_code)] // one exception: mapping sealed files, in storage/real.rs

pub mod checkpoint;
pub mod data_dir;
mod error;
pub mod names;
pub mod record;
pub mod scan;
pub mod storage;

pub use error::{Error, ErrorKind, Result};
