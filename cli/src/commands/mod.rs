//! One file per command: its arguments become a plan, the plan is carried out, and what came of it is printed.

mod bench;
mod compact;
mod demo;
mod dump;
mod explain;
mod groups;
mod inspect;
mod offsets;
mod recover;
mod verify;

use std::sync::Arc;

use crate::Status;
use crate::args::Command;
use crate::door::Storage;
use crate::failure::Failure;

/// Runs `command`.
pub(crate) fn run(command: Command, storage: &Arc<dyn Storage>) -> Result<Status, Failure> {
    match command {
        Command::Dump(args) => dump::run(&args, &**storage),
        Command::Inspect(args) => inspect::run(&args, &**storage),
        Command::Offsets(command) => offsets::run(command, storage),
        Command::Groups(command) => groups::run(command, storage),
        Command::Bench(command) => bench::run(&command, storage),
        Command::Demo(args) => demo::run(&args, storage),
        Command::Compact(args) => compact::run(&args, storage),
        Command::Explain(args) => explain::run(&args, storage),
        Command::Recover(args) => recover::run(&args, storage),
        Command::Verify(args) => verify::run(&args, &**storage),
    }
}
