//! The indexes as their callers see them.
#![allow(missing_docs)]

mod fixtures;
mod interval;
mod offset;
mod time;
mod txn;
