//! Whole-run measurements.
#![forbid(unsafe_code)]
fn main() {}
