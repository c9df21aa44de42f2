//! Whole-run measurements: append, clean, reload.
//!
//! ```text
//! cargo run --release -p keeplog-benches -- append [--records N] [--runs N]
//! cargo run --release -p keeplog-benches -- clean  [--mib N] [--keys N] [--records-per-batch N] [--value-bytes N]
//!                                                  [--codec none|lz4|zstd] [--segment-mib N] [--runs N] [--beside ORACLE]
//! cargo run --release -p keeplog-benches -- reload [--keys N] [--commits N] [--runs N]
//! ```
//! All take `--dir D` (default: a temporary directory) and `--json`. Figures are medians over the runs.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::disallowed_methods)] // a program that measures, outside of what it measures

mod append;
mod clean;
mod options;
mod reload;
mod report;

use std::process::ExitCode;

fn main() -> ExitCode {
    let options = match options::Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(usage) => {
            println!("{usage}");
            return ExitCode::from(2);
        }
    };
    let result = match options.what.as_str() {
        "append" => append::run(&options),
        "clean" => clean::run(&options),
        _ => reload::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("could not measure: {error}");
            ExitCode::FAILURE
        }
    }
}
