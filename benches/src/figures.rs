//! Figures over several runs: the median counts, and every run is shown.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

/// One run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// How long it took.
    pub time: Duration,
    /// Bytes that went in.
    pub bytes: u64,
    /// Records that went in.
    pub records: u64,
}

impl Run {
    /// Megabytes (10^6) a second.
    #[must_use]
    pub fn mb_per_s(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.time.as_secs_f64()
    }

    /// Records a second.
    #[must_use]
    pub fn records_per_s(&self) -> f64 {
        self.records as f64 / self.time.as_secs_f64()
    }
}

/// All runs of one measurement.
#[derive(Clone, Debug)]
pub struct Figures {
    /// What was measured.
    pub name: String,
    /// The runs, in order.
    pub runs: Vec<Run>,
    /// What else there is to say, for the JSON result.
    pub more: Value,
}

impl Figures {
    /// The runs of `name`.
    #[must_use]
    pub fn new(name: impl Into<String>, runs: Vec<Run>) -> Self {
        Self { name: name.into(), runs, more: json!({}) }
    }

    /// Adds to the JSON result.
    #[must_use]
    pub fn with(mut self, more: Value) -> Self {
        self.more = more;
        self
    }

    /// Median of megabytes a second.
    #[must_use]
    pub fn mb_per_s(&self) -> f64 {
        median(self.runs.iter().map(Run::mb_per_s))
    }

    /// Median of records a second.
    #[must_use]
    pub fn records_per_s(&self) -> f64 {
        median(self.runs.iter().map(Run::records_per_s))
    }

    /// Median of seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        median(self.runs.iter().map(|run| run.time.as_secs_f64()))
    }

    /// Medians and all runs.
    #[must_use]
    pub fn json(&self) -> Value {
        let runs: Vec<Value> = self
            .runs
            .iter()
            .map(|run| json!({"seconds": run.time.as_secs_f64(), "bytes": run.bytes, "records": run.records, "mb_per_s": run.mb_per_s()}))
            .collect();
        json!({
            "name": self.name,
            "seconds": self.seconds(),
            "mb_per_s": self.mb_per_s(),
            "records_per_s": self.records_per_s(),
            "runs": runs,
            "more": self.more,
        })
    }

    /// The head of a table whose lines are displayed figures.
    #[must_use]
    pub fn header() -> String {
        format!("{:<28} {:>10} {:>10} {:>14}  {}", "", "seconds", "MB/s", "records/s", "MB/s of each run")
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<28} {:>10.3} {:>10.1} {:>14.0} ", self.name, self.seconds(), self.mb_per_s(), self.records_per_s())?;
        self.runs.iter().try_for_each(|run| write!(f, " {:.1}", run.mb_per_s()))
    }
}

/// The middle of `values`, or the mean of the two in the middle; NaN of none.
#[must_use]
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()).to_bits(), 2.0_f64.to_bits());
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()).to_bits(), 2.5_f64.to_bits());
        assert!(median(std::iter::empty()).is_nan());
    }
}
