//! What was judged, and what differed.

use std::fmt;
use std::time::Instant;

use anyhow::{Result, ensure};

/// Differences of one case that are shown; the rest is counted.
const SHOWN_MAX: usize = 8;

/// Counts the cases of one run. Differences are printed as they are found.
#[derive(Debug)]
pub(crate) struct Tally {
    what: &'static str,
    logs: u64,
    judged: u64,
    differing: u64,
    excused: u64,
    began: Instant,
}

impl Tally {
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what, logs: 0, judged: 0, differing: 0, excused: 0, began: Instant::now() }
    }

    /// Counts a log, of which there may be several cases.
    pub(crate) fn count_log(&mut self) {
        self.logs += 1;
    }

    /// Counts a case that differs where it may.
    pub(crate) fn count_excused(&mut self, excused: bool) {
        self.excused += u64::from(excused);
    }

    /// Counts one case. Returns whether it came out as it should.
    pub(crate) fn judge(&mut self, case: &str, differences: &[String]) -> bool {
        self.judged += 1;
        for difference in differences.iter().take(SHOWN_MAX) {
            println!("{} {case}: {difference}", self.what);
        }
        if differences.len() > SHOWN_MAX {
            println!("{} {case}: and {} more", self.what, differences.len() - SHOWN_MAX);
        }
        self.differing += u64::from(!differences.is_empty());
        differences.is_empty()
    }

    /// The line of the table; `cases` says what was counted.
    pub(crate) fn finish(self, cases: &str) -> Row {
        let seconds = self.began.elapsed().as_secs_f64();
        let Self { what, logs, judged, differing, excused, .. } = self;
        Row { what, logs, judged, differing, excused, seconds, cases: cases.to_owned() }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} cases, {} differ", self.what, self.judged, self.differing)
    }
}

/// What one judgement came to.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    what: &'static str,
    logs: u64,
    judged: u64,
    differing: u64,
    excused: u64,
    seconds: f64,
    cases: String,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, logs, judged, differing, excused, seconds, cases } = self;
        let rate = *logs as f64 / seconds;
        write!(
            f,
            "{what:<9} {logs:>6} logs {judged:>7} judged {differing:>4} differ {excused:>3} may {seconds:>6.0} s {rate:>5.1} logs/s  {cases}"
        )
    }
}

/// Prints the table.
///
/// # Errors
/// If anything differed, or nothing was judged.
pub(crate) fn conclude(rows: &[Row]) -> Result<()> {
    for row in rows {
        println!("{row}");
    }
    for row in rows {
        ensure!(row.judged > 0, "{}: nothing was judged", row.what);
        ensure!(row.differing == 0, "{}: {} of {} differ", row.what, row.differing, row.judged);
    }
    Ok(())
}
