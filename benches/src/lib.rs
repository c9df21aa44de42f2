//! What the benches share: logs of a given shape, and figures over several runs.
#![forbid(unsafe_code)]

mod figures;
mod java;
mod shape;

pub use figures::{Figures, Run, median};
pub use shape::{Generator, Shape, T0, key, key_number};
