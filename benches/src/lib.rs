//! What the benches share: logs of a given shape, figures over several runs, and reports of them.
#![forbid(unsafe_code)]

mod figures;
mod java;
pub mod report;
mod shape;
pub mod suite;

pub use figures::{Figures, Run, median};
pub use shape::{Generator, Shape, T0, key, key_number};
