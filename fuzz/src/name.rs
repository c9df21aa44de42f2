//! Names of files, directories and topics.

use keeplog_engine::TopicPartition;
use keeplog_engine::names::{DirectoryName, DirectoryState, FileName, FileState, check_topic};

/// Any text, as each kind of name.
pub fn names(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(name) = text.parse::<TopicPartition>() {
        assert_eq!(name.to_string(), *text, "a name that would not be found again");
        assert_eq!(TopicPartition::new(name.topic(), name.partition()).expect("it parsed"), name);
        stays_inside(&text);
        comes_back_from_removal(&name);
    }
    if let Some(directory) = DirectoryName::parse(&text) {
        let live = text.parse::<TopicPartition>();
        let name = directory.topic_partition.to_string();
        match directory.state {
            DirectoryState::Live => assert_eq!(live.expect("a live directory"), directory.topic_partition),
            _ => assert!(text.starts_with(&format!("{name}."))),
        }
    }
    if let Some(file) = FileName::parse(&text) {
        assert_eq!(file.to_string(), *text);
        assert!(file.number <= i64::MAX as u64);
        stays_inside(&text);
        for state in [FileState::Live, FileState::Cleaned, FileState::Swap, FileState::Deleted] {
            let moved = file.with_state(state);
            assert_eq!(FileName::parse(&moved.to_string()), Some(moved));
        }
    }
    if check_topic(&text).is_ok() {
        stays_inside(&text);
    }
}

fn stays_inside(name: &str) {
    assert!(!name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\', '\0', ':']), "{name:?} leads elsewhere");
}

fn comes_back_from_removal(name: &TopicPartition) {
    let moved = name.delete_name(0x0123_4567_89ab_cdef);
    assert!(moved.len() <= 255);
    let parsed = DirectoryName::parse(&moved).unwrap_or_else(|| panic!("{moved:?} is not recognised"));
    assert_eq!((parsed.state, parsed.topic_partition.partition()), (DirectoryState::Delete, name.partition()));
    assert!(name.topic().starts_with(parsed.topic_partition.topic()));
}
