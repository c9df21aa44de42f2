//! The logs of the large table: each has a name to ask for it by.

use keeplog_engine::record::Codec;

use crate::Shape;

/// A log of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What `--only` calls it.
    pub name: &'static str,
    /// At full scale.
    pub shape: Shape,
}

const COMMITS: Shape =
    Shape { mib: 1024, keys: 800_000, records_per_batch: 1, value_bytes: 24, codec: Codec::None, segment_mib: 10, transactions: false };
const LARGE_BATCHES: Shape = Shape { records_per_batch: 100, value_bytes: 100, ..COMMITS };

/// All of them, in the order of the table.
pub const SUITE: [Entry; 10] = [
    Entry { name: "commits", shape: COMMITS },
    Entry { name: "commits-100mib", shape: Shape { segment_mib: 100, ..COMMITS } },
    Entry { name: "batches", shape: LARGE_BATCHES },
    Entry { name: "values", shape: Shape { keys: 400_000, records_per_batch: 20, value_bytes: 1000, ..COMMITS } },
    Entry { name: "lz4", shape: Shape { mib: 256, codec: Codec::Lz4, ..LARGE_BATCHES } },
    Entry { name: "zstd", shape: Shape { mib: 256, codec: Codec::Zstd, ..LARGE_BATCHES } },
    Entry { name: "many-keys", shape: Shape { keys: 8_000_000, ..COMMITS } },
    Entry { name: "commits-txn", shape: Shape { transactions: true, ..COMMITS } },
    Entry { name: "commits-100mib-txn", shape: Shape { segment_mib: 100, transactions: true, ..COMMITS } },
    Entry { name: "batches-txn", shape: Shape { transactions: true, ..LARGE_BATCHES } },
];

impl Entry {
    /// What the log is, for people.
    #[must_use]
    pub fn label(shape: Shape) -> String {
        let size = if shape.mib >= 1024 && shape.mib.is_multiple_of(1024) {
            format!("{} GiB", shape.mib / 1024)
        } else {
            format!("{} MiB", shape.mib)
        };
        let mut label =
            format!("{size}, {} a batch, {} B values, {} keys", shape.records_per_batch, shape.value_bytes, thousands(shape.keys.into()));
        if shape.codec != Codec::None {
            label += &format!(", {}", shape.codec.name());
        }
        label += &format!(", {} MiB segments", shape.segment_mib);
        if shape.transactions {
            label += ", a fifth in transactions";
        }
        label
    }
}

/// `1234567` as `1,234,567`.
#[must_use]
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_different_and_so_are_labels() {
        let names: BTreeSet<_> = SUITE.iter().map(|entry| entry.name).collect();
        let labels: BTreeSet<_> = SUITE.iter().map(|entry| Entry::label(entry.shape)).collect();
        assert_eq!((names.len(), labels.len()), (SUITE.len(), SUITE.len()));
    }

    #[test]
    fn labels_say_what_the_log_is() {
        assert_eq!(Entry::label(COMMITS), "1 GiB, 1 a batch, 24 B values, 800,000 keys, 10 MiB segments");
        let all = Shape { mib: 1500, codec: Codec::Zstd, transactions: true, ..COMMITS };
        let label = "1500 MiB, 1 a batch, 24 B values, 800,000 keys, zstd, 10 MiB segments, a fifth in transactions";
        assert_eq!(Entry::label(all), label);
    }

    #[test]
    fn digits_are_grouped_by_three() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (12_345_678, "12,345,678")] {
            assert_eq!(thousands(number), text);
        }
    }
}
