//! Log compaction.
#![forbid(unsafe_code)]

mod chunk;
mod cuts;
mod decide;
mod dedup;
mod emit;
mod end;
mod hash;
mod options;
mod pass;
mod plan;
mod source;
mod transactions;
mod walk;

#[cfg(test)]
mod tests;
