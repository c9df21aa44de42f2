//! Figures over several runs.

use serde_json::{Value, json};

/// One figure over all runs, and what it counts.
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) seconds: Vec<f64>,
    pub(crate) bytes: u64,
    pub(crate) records: u64,
    /// Anything else worth saying.
    pub(crate) note: String,
}

impl Figure {
    pub(crate) fn median_seconds(&self) -> f64 {
        let mut sorted = self.seconds.clone();
        sorted.sort_by(f64::total_cmp);
        let half = sorted.len() / 2;
        if sorted.len() % 2 == 1 { sorted[half] } else { f64::midpoint(sorted[half - 1], sorted[half]) }
    }

    pub(crate) fn mb_per_second(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.median_seconds()
    }

    fn records_per_second(&self) -> f64 {
        self.records as f64 / self.median_seconds()
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name, "runs": self.seconds.len(), "seconds": self.median_seconds(), "bytes": self.bytes, "records": self.records,
            "mb_per_s": self.mb_per_second(), "records_per_s": self.records_per_second(), "note": self.note,
        })
    }
}

/// Prints a Markdown table, or a JSON line a figure.
pub(crate) fn print(figures: &[Figure], as_json: bool) {
    if as_json {
        figures.iter().for_each(|f| println!("{}", f.json()));
        return;
    }
    println!("| what | runs | median s | MB/s | records/s | |\n|---|--:|--:|--:|--:|---|");
    for f in figures {
        let (seconds, rate, records) = (f.median_seconds(), f.mb_per_second(), f.records_per_second());
        println!("| {} | {} | {seconds:.3} | {rate:.0} | {records:.0} | {} |", f.name, f.seconds.len(), f.note);
    }
}
