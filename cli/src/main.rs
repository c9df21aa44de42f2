//! The `keeplog` command: looks into Kafka partition directories, checks, mends and compacts them.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod csv;
mod door;
mod ends;
mod failure;
mod glob;
mod key_shares;
mod metered;
mod opened;
mod output;
mod owned;
mod pass;
mod picture;
mod progress;
mod shadow;
mod signals;
mod survey;
mod target;
mod when;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;

use crate::door::Storage;
use crate::door::storage::RealStorage;

/// How a command ended that could do its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Status {
    /// Nothing is wrong.
    Fine,
    /// Something is wrong with the data.
    Damage,
}

/// Exit status of a command that could not do its work.
const COULD_NOT_RUN: u8 = 2;

fn main() -> ExitCode {
    let cli = match args::Cli::try_parse() {
        Ok(cli) => cli,
        Err(usage) => {
            // Help and version count as asked for; a closed pipe is no reason to complain about either.
            let _ = usage.print();
            return if usage.use_stderr() { ExitCode::from(COULD_NOT_RUN) } else { ExitCode::SUCCESS };
        }
    };
    signals::survive_the_file_size_limit();
    let storage: Arc<dyn Storage> = Arc::new(RealStorage::new());
    match commands::run(cli.command, &storage) {
        Ok(Status::Fine) => ExitCode::SUCCESS,
        Ok(Status::Damage) => ExitCode::from(1),
        Err(failure) if failure.is_broken_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            complain(&failure.to_string());
            ExitCode::from(COULD_NOT_RUN)
        }
    }
}

/// Says something on stderr that is not part of the result.
pub(crate) fn complain(text: &str) {
    // With stderr closed there is nobody left to tell.
    let _ = writeln!(io::stderr().lock(), "keeplog: {text}");
}
