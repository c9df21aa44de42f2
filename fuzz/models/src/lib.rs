//! Models of what threads do to a log at the same time, run under a scheduler that explores interleavings.
#![forbid(unsafe_code)]

pub mod disk;
mod models;
pub mod run;
pub mod world;

pub use models::{ALL, LYING};

/// The model of that name.
#[must_use]
pub fn find(name: &str) -> Option<run::Model> {
    ALL.iter().find(|model| model.name == name).copied()
}
