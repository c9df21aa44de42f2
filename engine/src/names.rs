//! Names on storage: topics, partition directories, segment files. Only names of this grammar are ever joined to a
//! path, so nothing outside the data directory can be named.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::{Error, Result};

/// Longest topic name, in characters (each is one byte).
pub const TOPIC_CHARS_MAX: usize = 249;
/// Longest name of a `-delete` or `-stray` directory.
const MOVED_NAME_CHARS_MAX: usize = 255;
/// Digits of the number that starts a file name.
const NUMBER_DIGITS: usize = 20;

/// File in a partition directory that holds the leader epochs.
pub const LEADER_EPOCHS: &str = "leader-epoch-checkpoint";
/// File in a partition directory that holds the topic id.
pub const PARTITION_METADATA: &str = "partition.metadata";

/// Suffix of files in a partition directory that hold what somebody has made of the log's records, to have it sooner than by
/// reading them. A broker does not know them. They say of what log they are, see
/// [`Log::fingerprint`](crate::Log::fingerprint); before a log is cut they are removed.
pub const DERIVED_SUFFIX: &str = ".keeplog-snapshot";

/// A topic and a partition of it, both valid: names one log, and one directory `topic-partition`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    topic: Arc<str>,
    partition: u32,
}

impl TopicPartition {
    /// Fails if `topic` is not 1 to 249 characters of `A-Z a-z 0-9 . _ -`, or is `.` or `..`, or if `partition` is
    /// above 2147483647.
    pub fn new(topic: &str, partition: u32) -> Result<Self> {
        check_topic(topic)?;
        if i32::try_from(partition).is_err() {
            return Err(Error::invalid("name a partition", format!("partition {partition} is above {}", i32::MAX)));
        }
        Ok(Self { topic: topic.into(), partition })
    }

    /// The topic.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The partition number.
    #[must_use]
    pub fn partition(&self) -> u32 {
        self.partition
    }

    /// Name of its directory.
    #[must_use]
    pub fn directory_name(&self) -> String {
        self.to_string()
    }

    /// Name of its directory while it waits for removal. `id` tells apart directories of one name. The topic is cut
    /// as far as the name gets too long.
    #[must_use]
    pub fn delete_name(&self, id: u128) -> String {
        let tail = format!("-{}.{id:032x}-delete", self.partition);
        let topic = &self.topic[..self.topic.len().min(MOVED_NAME_CHARS_MAX - tail.len())];
        format!("{topic}{tail}")
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

impl fmt::Debug for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for TopicPartition {
    type Err = Error;

    /// Parses a directory name: the partition is what follows the last `-`, in plain decimal. Other spellings of a
    /// number (`+1`, `01`) are refused, for the directory would not be found again under the name made from it.
    fn from_str(name: &str) -> Result<Self> {
        let refused = || Error::invalid("parse the directory name", format!("{name:?} is not a topic, a '-' and a partition number"));
        let (topic, digits) = name.rsplit_once('-').ok_or_else(refused)?;
        let partition: u32 = digits.parse().map_err(|_| refused())?;
        let parsed = Self::new(topic, partition)?;
        if digits.starts_with('+') || (digits.len() > 1 && digits.starts_with('0')) {
            return Err(refused());
        }
        Ok(parsed)
    }
}

/// Checks a topic name against Kafka's grammar.
pub fn check_topic(topic: &str) -> Result<()> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    if topic.is_empty() || topic.len() > TOPIC_CHARS_MAX || matches!(topic, "." | "..") || !topic.bytes().all(legal) {
        let detail = format!("{topic:?} is not a topic name: 1 to {TOPIC_CHARS_MAX} of A-Z a-z 0-9 . _ -, and not . or ..");
        return Err(Error::invalid("name a topic", detail));
    }
    Ok(())
}

/// What the name of a partition directory says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryName {
    /// The partition; the topic of a directory that waits for removal or was set aside may be cut short.
    pub topic_partition: TopicPartition,
    /// What it is now.
    pub state: DirectoryState,
}

/// What a partition directory is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DirectoryState {
    /// A log in use.
    Live,
    /// `-delete`: removed, files pending.
    Delete,
    /// `-future`: a copy being built to replace the live one elsewhere.
    Future,
    /// `-stray`: found but not wanted by its cluster; kept, never served.
    Stray,
}

impl DirectoryName {
    /// `None` if `name` is not that of a partition directory.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        const SUFFIXES: [(&str, DirectoryState); 3] =
            [("-delete", DirectoryState::Delete), ("-future", DirectoryState::Future), ("-stray", DirectoryState::Stray)];
        for (suffix, state) in SUFFIXES {
            let moved = name.strip_suffix(suffix).and_then(|stem| stem.rsplit_once('.'));
            if let Some((live, _)) = moved.filter(|(_, id)| !id.is_empty() && !id.contains(char::is_whitespace)) {
                return Some(Self { topic_partition: live.parse().ok()?, state });
            }
        }
        Some(Self { topic_partition: name.parse().ok()?, state: DirectoryState::Live })
    }
}

/// What a numbered file in a partition directory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// Records: `.log`.
    Log,
    /// Offset index: `.index`.
    OffsetIndex,
    /// Time index: `.timeindex`.
    TimeIndex,
    /// Aborted-transaction index: `.txnindex`.
    TxnIndex,
    /// Producer state below its number: `.snapshot`.
    Snapshot,
}

impl FileKind {
    /// The four files of a segment, in the order in which they are renamed.
    pub const OF_SEGMENT: [Self; 4] = [Self::Log, Self::OffsetIndex, Self::TimeIndex, Self::TxnIndex];

    /// The suffix, with its dot.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Log => ".log",
            Self::OffsetIndex => ".index",
            Self::TimeIndex => ".timeindex",
            Self::TxnIndex => ".txnindex",
            Self::Snapshot => ".snapshot",
        }
    }
}

/// What the last suffix of a file name says about its place in a swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileState {
    /// No such suffix: in use.
    Live,
    /// `.cleaned`: an output that is not complete.
    Cleaned,
    /// `.swap`: a complete output on its way to replace others.
    Swap,
    /// `.deleted`: gone, removal pending.
    Deleted,
}

impl FileState {
    /// The suffix, with its dot; empty for a live file.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Live => "",
            Self::Cleaned => ".cleaned",
            Self::Swap => ".swap",
            Self::Deleted => ".deleted",
        }
    }

    /// The state that the last suffix of any file name stands for, and the name without it.
    #[must_use]
    pub fn split(name: &str) -> (&str, Self) {
        [Self::Cleaned, Self::Swap, Self::Deleted]
            .into_iter()
            .find_map(|state| name.strip_suffix(state.suffix()).map(|stem| (stem, state)))
            .unwrap_or((name, Self::Live))
    }
}

/// A numbered file of a partition directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName {
    /// Base offset of the segment, or the offset that a snapshot stands at.
    pub number: u64,
    /// What it holds.
    pub kind: FileKind,
    /// Where it stands in a swap.
    pub state: FileState,
}

impl FileName {
    /// A live file.
    #[must_use]
    pub fn live(number: u64, kind: FileKind) -> Self {
        Self { number, kind, state: FileState::Live }
    }

    /// The same file in another state.
    #[must_use]
    pub fn with_state(self, state: FileState) -> Self {
        Self { state, ..self }
    }

    /// `None` unless `name` is 20 digits of an offset, one of the kinds and at most one of the states: anything else
    /// in a partition directory is foreign.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let (stem, state) = FileState::split(name);
        let (digits, suffix) = stem.split_at_checked(NUMBER_DIGITS)?;
        if !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let number = digits.parse().ok().filter(|&n| n <= i64::MAX as u64)?;
        let kind = FileKind::OF_SEGMENT.into_iter().chain([FileKind::Snapshot]).find(|kind| kind.suffix() == suffix)?;
        Some(Self { number, kind, state })
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:0width$}{}{}", self.number, self.kind.suffix(), self.state.suffix(), width = NUMBER_DIGITS)
    }
}

/// Name of a live file.
#[must_use]
pub fn file_name(number: u64, kind: FileKind) -> String {
    FileName::live(number, kind).to_string()
}

/// See [`FileName::parse`].
#[must_use]
pub fn parse_file_name(name: &str) -> Option<FileName> {
    FileName::parse(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn topics_outside_the_grammar_are_refused() {
        let (longest, longer) = ("x".repeat(249), "x".repeat(250));
        for good in ["a", "a.b", "a_b", "-", "a-", "...", "trailing.", "orders-0.deleted", "x-delete", longest.as_str()] {
            assert!(check_topic(good).is_ok(), "{good}");
        }
        let bad = ["", ".", "..", "../x", "a/b", "a\\b", "C:x", "a\0", "trailing ", "ä", "a b", longer.as_str()];
        for bad in bad {
            assert_eq!(check_topic(bad).unwrap_err().kind(), crate::ErrorKind::InvalidInput, "{bad}");
            assert!(TopicPartition::new(bad, 0).is_err());
        }
        assert!(TopicPartition::new("a", i32::MAX as u32).is_ok());
        assert!(TopicPartition::new("a", 1 << 31).is_err());
    }

    #[test]
    fn directory_names_split_at_the_last_dash() {
        let parse = |name: &str| name.parse::<TopicPartition>().map(|tp| (tp.topic().to_owned(), tp.partition())).ok();
        assert_eq!(parse("orders-0"), Some(("orders".into(), 0)));
        assert_eq!(parse("a-b-17"), Some(("a-b".into(), 17)));
        assert_eq!(parse("__consumer_offsets-49"), Some(("__consumer_offsets".into(), 49)));
        assert_eq!(parse("a--1"), Some(("a-".into(), 1)));
        for bad in ["orders", "-0", "a-", "a-+1", "a-01", "a-00", "a-x", "a-2147483648", "a-1 ", "../a-0", "lost+found-0", ".-0", "..-0"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn suffixed_directories_are_recognised_first() {
        let id = "0123456789abcdef0123456789abcdef";
        for (suffix, state) in [("delete", DirectoryState::Delete), ("future", DirectoryState::Future), ("stray", DirectoryState::Stray)] {
            let parsed = DirectoryName::parse(&format!("a.b-c-3.{id}-{suffix}")).unwrap();
            assert_eq!((parsed.topic_partition.to_string().as_str(), parsed.state), ("a.b-c-3", state));
            assert_eq!(DirectoryName::parse(&format!("a-3.-{suffix}")), None);
            assert_eq!(DirectoryName::parse(&format!("a-x.{id}-{suffix}")), None);
            assert_eq!(DirectoryName::parse(&format!("a-3-{suffix}")), None);
        }
        assert_eq!(DirectoryName::parse("x-1.y-delete-0").unwrap().state, DirectoryState::Live);
        assert_eq!(DirectoryName::parse("a-0.deleted"), None);
    }

    #[test]
    fn names_for_removal_parse_and_stay_short() {
        let short = TopicPartition::new("orders", 3).unwrap();
        assert_eq!(short.delete_name(0xabc), "orders-3.00000000000000000000000000000abc-delete");
        let long = TopicPartition::new(&"x".repeat(249), i32::MAX as u32).unwrap();
        let name = long.delete_name(u128::MAX);
        assert_eq!(name.len(), 255);
        let parsed = DirectoryName::parse(&name).unwrap();
        assert_eq!((parsed.state, parsed.topic_partition.partition()), (DirectoryState::Delete, i32::MAX as u32));
    }

    #[test]
    fn file_names_have_twenty_digits() {
        assert_eq!(file_name(0, FileKind::Log), "00000000000000000000.log");
        assert_eq!(file_name(i64::MAX as u64, FileKind::TimeIndex), "09223372036854775807.timeindex");
        let swap = FileName::live(42, FileKind::TxnIndex).with_state(FileState::Swap);
        assert_eq!(swap.to_string(), "00000000000000000042.txnindex.swap");
        assert_eq!(parse_file_name("00000000000000000042.txnindex.swap"), Some(swap));
        let foreign = [
            "._0000.log",
            "notes.txt",
            "0000000000000000000.log",
            "000000000000000000000.log",
            "0000000000000000000000000.log",
            "09223372036854775808.log",
            "99999999999999999999.log",
            "+0000000000000000000.log",
            "00000000000000000000.log.log",
            "00000000000000000000.log.swap.swap",
            "00000000000000000000.log.tmp",
            "00000000000000000000log",
            "00000000000000000000",
            "00000000000000000000-0000000001.checkpoint.deleted",
            "0000000000000000000\u{e9}.log",
            "",
        ];
        for name in foreign {
            assert_eq!(parse_file_name(name), None, "{name}");
        }
        assert_eq!(FileState::split("anything.deleted"), ("anything", FileState::Deleted));
        assert_eq!(FileState::split("a.swap.log"), ("a.swap.log", FileState::Live));
    }

    proptest! {
        #[test]
        fn names_round_trip(topic in "[A-Za-z0-9._-]{1,249}", partition in 0u32..1 << 31, number in 0..=i64::MAX as u64) {
            prop_assume!(topic != "." && topic != "..");
            let tp = TopicPartition::new(&topic, partition).unwrap();
            let parsed = DirectoryName::parse(&tp.directory_name()).unwrap();
            prop_assert_eq!(parsed, DirectoryName { topic_partition: tp, state: DirectoryState::Live });
            for kind in FileKind::OF_SEGMENT.into_iter().chain([FileKind::Snapshot]) {
                for state in [FileState::Live, FileState::Cleaned, FileState::Swap, FileState::Deleted] {
                    let name = FileName::live(number, kind).with_state(state);
                    prop_assert_eq!(FileName::parse(&name.to_string()), Some(name));
                }
            }
        }

        #[test]
        fn what_parses_comes_back_as_it_was(name in "\\PC{0,60}|[a-z0-9.-]{0,40}(-[0-9]{1,11})?|[0-9]{18,22}\\.(log|index)") {
            if let Ok(tp) = name.parse::<TopicPartition>() {
                prop_assert_eq!(tp.to_string(), name.clone());
            }
            if let Some(file) = FileName::parse(&name) {
                prop_assert_eq!(file.to_string(), name.clone());
            }
            let _ = DirectoryName::parse(&name);
        }
    }
}
