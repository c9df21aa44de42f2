//! What a measurement found: tables, charts, every single run, and where and when it was taken. Kept as JSON; the page and
//! the picture are made from that, at any time.

mod markdown;
mod svg;
mod taken;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use taken::Taken;

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What its files are called.
    pub name: String,
    /// The heading of the page.
    pub title: String,
    /// What was done, in a paragraph.
    pub about: String,
    /// When and where.
    pub taken: Taken,
    /// What a reader must know to read the figures right.
    pub notes: Vec<String>,
    /// The figures.
    pub tables: Vec<Table>,
    /// Some of them as pictures.
    pub charts: Vec<Chart>,
    /// Every single run.
    pub runs: Vec<Value>,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// What it shows; empty if the page's heading says it.
    pub title: String,
    /// What its columns show.
    pub columns: Vec<Column>,
    /// A cell for each column.
    pub rows: Vec<Vec<Cell>>,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// What it shows, with the unit.
    pub title: String,
    /// Digits behind the point; none for a column of text.
    pub digits: Option<usize>,
}

impl Column {
    /// A column of text.
    #[must_use]
    pub fn text(title: impl Into<String>) -> Self {
        Self { title: title.into(), digits: None }
    }

    /// A column of numbers.
    #[must_use]
    pub fn number(title: impl Into<String>, digits: usize) -> Self {
        Self { title: title.into(), digits: Some(digits) }
    }
}

/// A cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// A figure.
    Number(f64),
    /// Words.
    Text(String),
    /// Was not measured.
    Missing,
}

impl From<Option<f64>> for Cell {
    fn from(number: Option<f64>) -> Self {
        number.filter(|number| number.is_finite()).map_or(Self::Missing, Self::Number)
    }
}

/// A picture of some figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    /// What it shows, with the unit of the values.
    pub title: String,
    /// Where the values stand.
    pub places: Places,
    /// The values.
    pub series: Vec<Series>,
}

/// Where the values of a chart stand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Places {
    /// Bars in groups, each with a label.
    Groups(Vec<String>),
    /// Points of lines, on logarithmic axes: a straight line that rises like the dashed one is linear growth.
    Along {
        /// What the axis shows, with the unit.
        axis: String,
        /// The places on it, rising, above 0.
        at: Vec<f64>,
    },
}

/// The values of one kind in a chart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// What they are of.
    pub name: String,
    /// One for each place; none where it was not measured.
    pub values: Vec<Option<f64>>,
}

impl Report {
    /// A report without figures.
    #[must_use]
    pub fn new(name: &str, title: &str, about: &str, taken: Taken) -> Self {
        Self {
            name: name.to_owned(),
            title: title.to_owned(),
            about: about.to_owned(),
            taken,
            notes: Vec::new(),
            tables: Vec::new(),
            charts: Vec::new(),
            runs: Vec::new(),
        }
    }

    /// Its tables and what goes with them, to be printed.
    #[must_use]
    pub fn text(&self) -> String {
        markdown::text(self)
    }

    /// Its page: the text, the picture, and where the rest is. It lies beside its other files.
    #[must_use]
    pub fn page(&self) -> String {
        markdown::page(self)
    }

    /// Its charts, one below the other, as a picture for light and dark pages; none if it has no charts.
    #[must_use]
    pub fn svg(&self) -> Option<String> {
        (!self.charts.is_empty()).then(|| svg::picture(self))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// Has one of everything.
    pub(crate) fn sample() -> Report {
        let taken = Taken {
            date: "2026-11-30 12:00 UTC".into(),
            command: "keeplog-benches report clean".into(),
            processor: "Some <CPU> & more".into(),
            cores: 2,
            memory_mib: 24_000,
            kernel: "Linux 6.18".into(),
            load: 0.25,
            debug_build: false,
        };
        let mut report = Report::new("sample", "A sample", "What was done.", taken);
        report.notes.push("Mind the gap.".into());
        report.tables.push(Table {
            title: "Sizes".into(),
            columns: vec![Column::text("Log"), Column::number("MB/s", 0), Column::number("ratio", 1)],
            rows: vec![
                vec![Cell::Text("a | b".into()), Cell::Number(1234.6), Cell::Number(7.25)],
                vec![Cell::Text("c".into()), Cell::Number(0.4), Cell::Missing],
            ],
        });
        let series = |name: &str, values: [Option<f64>; 2]| Series { name: name.into(), values: values.to_vec() };
        report.charts.push(Chart {
            title: "MB/s".into(),
            places: Places::Groups(vec!["a & b".into(), "c".into()]),
            series: vec![series("one", [Some(10.0), Some(20.0)]), series("two", [Some(40.0), None])],
        });
        report.charts.push(Chart {
            title: "seconds".into(),
            places: Places::Along { axis: "MiB".into(), at: vec![256.0, 1024.0] },
            series: vec![series("one", [Some(0.5), Some(2.0)]), series("two", [None, Some(1.0)])],
        });
        report.runs.push(json!({"seconds": 0.1 + 0.2}));
        report
    }

    #[test]
    fn json_keeps_all_of_it() {
        let report = sample();
        let text = serde_json::to_string_pretty(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    }

    #[test]
    fn what_can_not_be_divided_is_missing() {
        assert_eq!(Cell::from(Some(f64::NAN)), Cell::Missing);
        assert_eq!(Cell::from(Some(2.0)), Cell::Number(2.0));
        assert_eq!(Cell::from(None), Cell::Missing);
    }
}
