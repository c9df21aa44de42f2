//! What was judged, and what differed.

use std::time::Instant;

use anyhow::{Result, ensure};

/// Differences of one case that are shown; the rest is counted.
const SHOWN_MAX: usize = 8;

/// Counts the cases of one run. Differences are printed as they are found.
#[derive(Debug)]
pub(crate) struct Tally {
    what: &'static str,
    judged: u64,
    differing: u64,
    began: Instant,
}

impl Tally {
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what, judged: 0, differing: 0, began: Instant::now() }
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

    /// The summary line; an error if anything differed, or if nothing was judged.
    pub(crate) fn finish(self, cases: &str) -> Result<()> {
        let seconds = self.began.elapsed().as_secs_f64();
        println!("{}: {} {cases}, {} differ ({seconds:.0} s)", self.what, self.judged, self.differing);
        ensure!(self.judged > 0, "{}: nothing was judged", self.what);
        ensure!(self.differing == 0, "{}: {} of {} differ", self.what, self.differing, self.judged);
        Ok(())
    }
}
