//! The `keeplog` command.
#![forbid(unsafe_code)]
fn main() {}
