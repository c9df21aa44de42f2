//! What a metric is, and how those of a part are listed and described.

use metrics::Unit;

/// A metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Whether it is set, counts up, or collects.
    pub kind: MetricKind,
    /// What its numbers are: `count`, `bytes`, `percent`, `seconds`, `milliseconds` or `offset`.
    pub unit: &'static str,
    /// Whether there is one for each log, with the labels `topic` and `partition`.
    pub per_log: bool,
    /// What it says.
    pub meaning: &'static str,
    /// Kafka's own, if it has one: `LogCleaner: cleaner-recopy-percent` stands for the MBean `kafka.log:type=LogCleaner,name=cleaner-recopy-percent`.
    pub kafka: Option<&'static str>,
}

/// How a metric is updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Set to what is the case now.
    Gauge,
    /// Only grows.
    Counter,
    /// Collects one value a pass.
    Histogram,
}

/// A constant for each name, and one with all of them.
macro_rules! metrics {
    (
        $(#[$doc:meta])* pub $all:ident;
        $($id:ident $kind:ident $unit:literal $scope:ident $name:literal $(($kafka:literal))? $meaning:literal;)*
    ) => {
        $(const $id: &str = $name;)*

        $(#[$doc])*
        pub const $all: &[$crate::Metric] = &[$($crate::Metric {
            name: $name,
            kind: $crate::MetricKind::$kind,
            unit: $unit,
            per_log: $crate::metrics::metrics!(@ $scope),
            meaning: $meaning,
            kafka: [$(Some($kafka),)? None][0],
        },)*];
    };
    (@ log) => { true };
    (@ store) => { false };
}
pub(crate) use metrics;

/// Describes metrics to the recorder, if there is one.
pub(crate) fn describe(all: &[Metric]) {
    for metric in all {
        let unit = match metric.unit {
            "bytes" => Unit::Bytes,
            "percent" => Unit::Percent,
            "seconds" => Unit::Seconds,
            "milliseconds" => Unit::Milliseconds,
            _ => Unit::Count,
        };
        match metric.kind {
            MetricKind::Gauge => metrics::describe_gauge!(metric.name, unit, metric.meaning),
            MetricKind::Counter => metrics::describe_counter!(metric.name, unit, metric.meaning),
            MetricKind::Histogram => metrics::describe_histogram!(metric.name, unit, metric.meaning),
        }
    }
}
