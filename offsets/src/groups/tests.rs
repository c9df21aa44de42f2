use std::collections::BTreeMap;

use keeplog_fixtures::{Set, dump_lines, unpack};
use proptest::prelude::*;

use super::*;
use crate::record::GroupMember;

const STATE_MS: i64 = 50_000;

fn key(key_type: i16, group: &str, rest: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    assert!(GroupKey { key_type, group, rest }.encode(&mut out));
    out
}

/// A string as keys and the consumer protocol have it.
fn text(text: &str) -> Vec<u8> {
    [&(text.len() as i16).to_be_bytes()[..], text.as_bytes()].concat()
}

/// A string of the flexible encoding.
fn compact(text: Option<&str>) -> Vec<u8> {
    let Some(text) = text else { return vec![0] };
    [&[u8::try_from(text.len() + 1).unwrap()], text.as_bytes()].concat()
}

fn subscription(topics: &[&str]) -> Vec<u8> {
    let topics_bytes: Vec<u8> = topics.iter().flat_map(|topic| text(topic)).collect();
    [&[0, 1], &(topics.len() as i32).to_be_bytes()[..], &topics_bytes, &[0xFF; 4], &[0; 4]].concat()
}

fn assignment(topic: &str, partitions: &[i32]) -> Vec<u8> {
    let numbers: Vec<u8> = partitions.iter().flat_map(|number| number.to_be_bytes()).collect();
    [&[0, 1, 0, 0, 0, 1][..], &text(topic), &(partitions.len() as i32).to_be_bytes(), &numbers, &[0xFF; 4]].concat()
}

/// A classic group whose members subscribe to these bytes.
fn classic(protocol_type: &str, subscriptions: &[&[u8]]) -> Vec<u8> {
    let assignment = assignment("t", &[3, 0]);
    let member = |subscription| GroupMember {
        member_id: "m",
        instance_id: Some("i"),
        client_id: "c",
        client_host: "/h",
        subscription,
        assignment: &assignment,
        ..GroupMember::default()
    };
    let mut out = Vec::new();
    let group = GroupMetadata {
        protocol_type,
        generation: 7,
        protocol: (!subscriptions.is_empty()).then_some("range"),
        leader: (!subscriptions.is_empty()).then_some("m"),
        current_state_timestamp_ms: Some(STATE_MS),
        members: subscriptions.iter().map(|bytes| member(bytes)).collect(),
    };
    assert!(group.encode(&mut out));
    out
}

/// The value of a member of a consumer group.
fn consumer_member(topics: &[&str], regex: Option<&str>) -> Vec<u8> {
    let names: Vec<u8> = topics.iter().flat_map(|topic| compact(Some(topic))).collect();
    let head =
        [&[0, 0], &compact(Some("i"))[..], &[0], &compact(Some("c")), &compact(Some("/h")), &[topics.len() as u8 + 1], &names].concat();
    [&head, &compact(regex)[..], &[0; 4], &[0, 0]].concat()
}

/// The value of a regular expression that matches these topics.
fn matched(topics: &[&str]) -> Vec<u8> {
    let names: Vec<u8> = topics.iter().flat_map(|topic| compact(Some(topic))).collect();
    [&[0, 0, topics.len() as u8 + 1], &names[..], &[0; 16], &[0]].concat()
}

const EPOCH_5: &[u8] = &[0, 0, 0, 0, 0, 5, 0];

fn groups(records: &[(Vec<u8>, &[u8])]) -> Groups {
    let mut groups = Groups::new();
    for (offset, (key, value)) in (0..).zip(records) {
        groups.record(offset, key, Some(value)).unwrap();
    }
    groups
}

fn topics(names: &[&str]) -> Subscription {
    Subscription::of(names.iter().copied())
}

#[test]
fn a_classic_group_is_described_and_forgotten_with_its_tombstone() {
    let mut groups = groups(&[(key(2, "g", &[]), &classic("consumer", &[&subscription(&["t", "s"])]))]);
    assert_eq!((groups.len(), groups.names().collect::<Vec<_>>(), groups.contains("g")), (1, vec!["g"], true));
    let described = groups.describe("g").unwrap();
    assert_eq!((described.kind, described.state), (GroupKind::Classic, GroupState::Stable));
    assert_eq!((&*described.protocol_type, described.protocol.as_deref()), ("consumer", Some("range")));
    assert_eq!((described.epoch, described.leader.as_deref()), (Some(7), Some("m")));
    assert_eq!((described.current_state_timestamp_ms, described.subscription), (Some(STATE_MS), topics(&["s", "t"])));
    let [member] = &described.members[..] else { panic!("{:?}", described.members) };
    assert_eq!((&*member.member_id, member.instance_id.as_deref()), ("m", Some("i")));
    assert_eq!((&*member.client_id, &*member.client_host), ("c", "/h"));
    assert_eq!(member.subscription, topics(&["s", "t"]));
    assert_eq!(member.assignment, Some(vec![AssignedPartitions { topic: "t".to_owned(), partitions: vec![3, 0] }]));

    groups.record(1, &key(2, "g", &[]), Some(&classic("consumer", &[]))).unwrap();
    let described = groups.describe("g").unwrap();
    assert_eq!((described.state, described.members.len(), described.subscription), (GroupState::Empty, 0, Subscription::none()));
    groups.record(2, &key(2, "other", &[]), None).unwrap();
    assert_eq!(groups.len(), 1, "a tombstone of what was never there");
    groups.record(3, &key(2, "g", &[]), None).unwrap();
    assert_eq!((groups.is_empty(), groups.describe("g"), groups.held_bytes), (true, None, 0));
    assert_eq!((groups.kind("g"), groups.state("g")), (GroupKind::Simple, GroupState::Empty));
}

#[test]
fn commits_and_types_of_the_future_are_passed_over() {
    let groups = groups(&[(key(1, "g", b"\0\x01t\0\0\0\0"), b"x"), (key(0, "g", b"\0\x01t\0\0\0\0"), b"x"), (key(99, "g", &[]), b"x")]);
    assert_eq!((groups.len(), groups.unreadable_keys()), (0, 0));
}

#[test]
fn a_consumer_group_is_put_together_from_its_records() {
    let id = [7; 16];
    let partitions = [&[0, 0, 2][..], &id, &compact(Some("t")), &[0, 0, 0, 9, 1, 0, 0]].concat();
    let assigned = [&[0, 0, 0, 0, 0, 5, 0, 0, 0, 4, 0, 2][..], &id, &[3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 1, 0]].concat();
    let by_name = consumer_member(&["u", "t"], None);
    let mut groups = groups(&[
        (key(3, "g", &[]), EPOCH_5),
        (key(4, "g", &[]), &partitions),
        (key(5, "g", &text("m1")), &by_name),
        (key(8, "g", &text("m1")), &assigned),
    ]);
    let described = groups.describe("g").unwrap();
    assert_eq!((described.kind, described.state, described.epoch), (GroupKind::Consumer, GroupState::Stable, Some(5)));
    assert_eq!((&*described.protocol_type, described.subscription), ("consumer", topics(&["t", "u"])));
    let [member] = &described.members[..] else { panic!("{:?}", described.members) };
    assert_eq!((&*member.member_id, member.instance_id.as_deref(), &*member.client_host), ("m1", Some("i"), "/h"));
    assert_eq!(member.assignment, Some(vec![AssignedPartitions { topic: "t".to_owned(), partitions: vec![1, 2] }]));

    groups.record(4, &key(4, "g", &[]), None).unwrap();
    let member = groups.describe("g").unwrap().members.remove(0);
    assert_eq!(member.assignment.unwrap()[0].topic, "BwcHBwcHBwcHBwcHBwcHBw", "its id, where nothing has its name");

    // A regular expression counts as what it was found to match, and as anything until then.
    groups.record(5, &key(5, "g", &text("m2")), Some(&consumer_member(&["u"], Some("x.*")))).unwrap();
    assert_eq!(groups.describe("g").unwrap().subscription, Subscription::Unknown);
    groups.record(6, &key(16, "g", &text("y.*")), Some(&matched(&["y1"]))).unwrap();
    assert_eq!(groups.describe("g").unwrap().subscription, Subscription::Unknown);
    groups.record(7, &key(16, "g", &text("x.*")), Some(&matched(&["x1", "x2"]))).unwrap();
    assert_eq!(groups.describe("g").unwrap().subscription, topics(&["t", "u", "x1", "x2"]));

    for member in ["m1", "m2"] {
        assert_eq!(groups.state("g"), GroupState::Stable);
        groups.record(8, &key(5, "g", &text(member)), None).unwrap();
    }
    assert_eq!((groups.state("g"), groups.expiry_view("g")), (GroupState::Empty, GroupExpiry::modern_empty()));
}

#[test]
fn the_kind_is_that_of_the_newest_record() {
    let mut groups = groups(&[(key(2, "g", &[]), &classic("consumer", &[&subscription(&["t"])])), (key(3, "g", &[]), EPOCH_5)]);
    assert_eq!((groups.kind("g"), groups.state("g")), (GroupKind::Consumer, GroupState::Empty));
    groups.record(2, &key(2, "g", &[]), Some(&classic("connect", &[b"?"]))).unwrap();
    assert_eq!((groups.kind("g"), groups.state("g")), (GroupKind::Classic, GroupState::Stable));
    for (key_type, kind) in
        [(11i16, GroupKind::Share), (17, GroupKind::Streams), (8, GroupKind::Consumer), (15, GroupKind::Share), (16, GroupKind::Consumer)]
    {
        groups.record(10 + u64::from(key_type.unsigned_abs()), &key(key_type, &kind.to_string(), &[]), Some(EPOCH_5)).unwrap();
        assert_eq!(groups.kind(&kind.to_string()), kind, "{key_type}");
    }
}

#[test]
fn a_value_that_cannot_be_read_is_kept_and_told_and_nothing_of_its_group_expires() {
    for (key_type, rest) in [(2, vec![]), (5, text("m"))] {
        let mut groups = groups(&[(key(key_type, "g", &rest), &[0xFF, 0xFF]), (key(2, "sound", &[]), &classic("consumer", &[]))]);
        let problems: Vec<_> = groups.problems().collect();
        let cause = DecodeError::Version { version: -1 };
        assert_eq!(problems, [GroupProblem { group: "g", offset: 0, key_type, cause }]);
        assert!(problems[0].to_string().contains("offset 0 (type"), "{}", problems[0]);
        assert_ne!(groups.state("g"), GroupState::Empty, "somebody may be in it");
        assert!(!groups.expiry_view("g").is_expired("t", 0, Some(0), 0, i64::MAX));
        assert!(!groups.expiry_view("g").dies_without_offsets());
        assert!(groups.expiry_view("g").may_read("t"));
        assert_eq!(groups.tombstones_of("g"), [key(key_type, "g", &rest)]);
        groups.record(2, &key(key_type, "g", &rest), None).unwrap();
        assert_eq!((groups.problems().count(), groups.len()), (0, 1));
    }
}

#[test]
fn a_key_that_cannot_be_read_changes_nothing_and_is_counted() {
    let mut groups = groups(&[(key(2, "g", &[]), &classic("consumer", &[]))]);
    for (i, bad) in [&[][..], &[0], &[0, 2], &[0, 2, 0xFF, 0xFF], &[0, 3, 0, 1, 0xFF]].into_iter().enumerate() {
        assert!(groups.record(1, bad, None).is_err(), "{bad:?}");
        assert_eq!((groups.unreadable_keys(), groups.len()), (i as u64 + 1, 1));
    }
}

#[test]
fn e07_what_expires_of_each_kind() {
    let one = subscription(&["t"]);
    let other = subscription(&["u", "v"]);
    let since_empty = GroupExpiry::classic_empty("consumer", Some(STATE_MS));
    let reads = |names: &[&str]| GroupExpiry::classic_stable("consumer", topics(names));
    for (what, records, expected) in [
        ("nothing", vec![], GroupExpiry::simple()),
        ("no protocol", vec![(2, classic("", &[]))], GroupExpiry::classic_empty("", None)),
        ("empty", vec![(2, classic("consumer", &[]))], since_empty),
        ("two members", vec![(2, classic("consumer", &[&one, &other]))], reads(&["t", "u", "v"])),
        (
            "a bad subscription",
            vec![(2, classic("consumer", &[&one, b"?"]))],
            GroupExpiry::classic_stable("consumer", Subscription::Unknown),
        ),
        ("no subscription", vec![(2, classic("consumer", &[b""]))], GroupExpiry::classic_stable("consumer", Subscription::Unknown)),
        ("connect", vec![(2, classic("connect", &[&one]))], GroupExpiry::never()),
        ("members of no protocol", vec![(2, classic("", &[&one]))], GroupExpiry::never()),
        ("consumer", vec![(5, consumer_member(&["t"], None))], GroupExpiry::modern_with_members(topics(&["t"]))),
        ("consumer, empty", vec![(3, EPOCH_5.to_vec())], GroupExpiry::modern_empty()),
        ("share", vec![(11, EPOCH_5.to_vec())], GroupExpiry::never()),
        ("streams, empty", vec![(17, EPOCH_5.to_vec())], GroupExpiry::modern_empty()),
        ("streams, no topology", vec![(19, vec![0, 0])], GroupExpiry::modern_with_members(Subscription::Unknown)),
    ] {
        let mut groups = Groups::new();
        for (key_type, value) in &records {
            let rest = if matches!(key_type, 5 | 19) { text("m") } else { Vec::new() };
            groups.record(0, &key(*key_type, "g", &rest), Some(value)).unwrap();
        }
        assert_eq!(groups.expiry_view("g"), expected, "{what}");
    }
}

#[test]
fn a_streams_group_reads_the_topics_of_its_topology() {
    let topology = |regex: &[u8]| {
        let repartition = [&[2][..], &compact(Some("r")), &[0; 4], &[0; 2], &[1, 0]].concat();
        let sub = [&compact(Some("0")), &[2][..], &compact(Some("t")), regex, &[1], &[1], &repartition, &[1], &[0]].concat();
        [&[0, 0, 0, 0, 0, 1, 2][..], &sub, &[0]].concat()
    };
    let with = |regex: &[u8]| groups(&[(key(19, "g", &text("m")), &[0, 0]), (key(23, "g", &[]), &topology(regex))]);
    assert_eq!(with(&[1]).expiry_view("g"), GroupExpiry::modern_with_members(topics(&["r", "t"])));
    let any = [&[2][..], &compact(Some("x.*"))].concat();
    assert_eq!(with(&any).expiry_view("g"), GroupExpiry::modern_with_members(Subscription::Unknown));
    assert_eq!(with(&[1]).describe("g").unwrap().protocol_type, "streams");
}

#[test]
fn tombstones_take_members_before_their_group() {
    let records: Vec<(Vec<u8>, &[u8])> =
        [(3, ""), (5, "m1"), (5, "m2"), (6, ""), (7, "m1"), (8, "m1"), (16, "x.*"), (11, ""), (10, "m1"), (17, ""), (19, "m1"), (2, "")]
            .map(|(key_type, rest)| (key(key_type, "g", &if rest.is_empty() { Vec::new() } else { text(rest) }), EPOCH_5))
            .to_vec();
    let mut groups = groups(&records);
    let tombstones = groups.tombstones_of("g");
    let types: Vec<u8> = tombstones.iter().map(|key| key[1]).collect();
    assert_eq!(types, [19, 16, 10, 8, 7, 6, 5, 5, 17, 11, 3, 2]);
    for (offset, key) in (100..).zip(&tombstones) {
        assert!(groups.contains("g"));
        groups.record(offset, key, None).unwrap();
    }
    assert_eq!((groups.len(), groups.held_bytes, groups.tombstones_of("g")), (0, 0, Vec::<Vec<u8>>::new()));
}

#[test]
fn memory_follows_the_groups_that_are_left() {
    let mut groups = Groups::new();
    let name = |i: u64| format!("console-consumer-{i}");
    for i in 0..10_000 {
        groups.record(i, &key(2, &name(i), &[]), Some(&classic("consumer", &[]))).unwrap();
    }
    let full = groups.memory_bytes();
    assert!(full > 10_000 * 60, "{full}");
    for i in 0..9_900 {
        groups.record(10_000 + i, &key(2, &name(i), &[]), None).unwrap();
    }
    assert_eq!((groups.len(), groups.contains(&name(9_950))), (100, true));
    assert!(groups.memory_bytes() < full / 10, "{} of {full}", groups.memory_bytes());
}

#[test]
fn the_groups_that_a_broker_left_behind() {
    let mut all = BTreeMap::new();
    for log in 0..4 {
        let mut groups = Groups::new();
        for batch in dump_lines(unpack(Set::Broker).join(format!("__consumer_offsets-{log}.jsonl"))) {
            let records = batch["records"].as_array().unwrap().iter().filter(|_| batch["control"] == false);
            for record in records {
                let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
                let bytes = |name: &str| record[name].as_str().map(|hex| hex.as_bytes().chunks(2).map(byte).collect::<Vec<u8>>());
                groups.record(record["o"].as_u64().unwrap(), &bytes("k").unwrap(), bytes("v").as_deref()).unwrap();
            }
        }
        assert_eq!((groups.problems().count(), groups.unreadable_keys()), (0, 0));
        all.extend(groups.names().map(|name| (name.to_owned(), groups.describe(name).unwrap())));
    }
    let shown: Vec<_> = all.iter().map(|(name, g)| (&**name, g.kind, g.state, g.epoch, g.current_state_timestamp_ms)).collect();
    let (classic, empty) = (GroupKind::Classic, GroupState::Empty);
    assert_eq!(
        shown,
        [
            ("classic-one", classic, empty, Some(2), Some(1_795_975_987_351)),
            ("classic-two", classic, empty, Some(3), Some(1_795_975_992_843)),
            ("eos", classic, empty, Some(2), Some(1_795_976_006_546)),
            ("modern", GroupKind::Consumer, empty, Some(5), None),
            ("shared", GroupKind::Share, empty, Some(3), None),
        ]
    );
}

proptest! {
    #[test]
    fn any_history_leaves_the_newest_values_and_pays_for_them_alone(
        steps in prop::collection::vec((0..4u8, prop::sample::select(vec![2i16, 3, 5, 8, 11, 17]), 0..3u8, prop::option::of(0..40usize)), 0..120),
    ) {
        let (mut groups, mut model) = (Groups::new(), BTreeMap::new());
        for (offset, (group, key_type, member, value)) in (0..).zip(steps) {
            let rest = if matches!(key_type, 5 | 8) { text(&member.to_string()) } else { Vec::new() };
            let key = key(key_type, &group.to_string(), &rest);
            let value = value.map(|len| vec![7; len]);
            groups.record(offset, &key, value.as_deref()).unwrap();
            match value {
                Some(value) => model.insert(key, value),
                None => model.remove(&key),
            };
        }
        let named: Vec<String> = groups.names().map(str::to_owned).collect();
        let mut kept: Vec<Vec<u8>> = named.iter().flat_map(|name| groups.tombstones_of(name)).collect();
        kept.sort_unstable();
        prop_assert!(kept.iter().eq(model.keys()));
        let mut again = Groups::new();
        for (offset, (key, value)) in (0..).zip(&model) {
            again.record(offset, key, Some(value)).unwrap();
        }
        prop_assert_eq!(groups.held_bytes, again.held_bytes);
        for (offset, key) in (1_000..).zip(&kept) {
            groups.record(offset, key, None).unwrap();
        }
        prop_assert_eq!((groups.len(), groups.held_bytes), (0, 0));
    }
}

/// Many small fields take many times the memory that their bytes do.
#[test]
fn of_a_large_value_only_what_is_described_is_decoded() {
    const COUNT: u32 = 100_000;
    // Topics that a regular expression has matched, and racks of a partition: all of them empty texts.
    let many = |before: &[u8], behind: &[u8]| {
        let count = [(COUNT + 1) as u8 | 0x80, ((COUNT + 1) >> 7) as u8 | 0x80, ((COUNT + 1) >> 14) as u8];
        [before, &count, &vec![1; COUNT as usize], behind].concat()
    };
    let matched = many(&[0, 0], &[0; 17]);
    let id = [7; 16];
    let racks = many(&[&[0, 0, 2][..], &id, &[2, b't', 0, 0, 0, 1, 2, 0, 0, 0, 0]].concat(), &[0, 0, 0]);
    let member = consumer_member(&["t"], None);
    let groups = groups(&[
        (key(3, "g", &[]), EPOCH_5),
        (key(4, "g", &[]), &racks),
        (key(5, "g", &text("m")), &member),
        (key(16, "g", &text("unused")), &matched),
    ]);
    crate::record::LEAVES.set(0);
    assert_eq!(groups.problems().count(), 0);
    assert_eq!(crate::record::LEAVES.get(), 0, "nothing is kept of what is only checked");
    let described = groups.describe("g").unwrap();
    assert_eq!((described.epoch, described.subscription), (Some(5), topics(&["t"])));
    assert!(crate::record::LEAVES.get() < 20, "{} leaves", crate::record::LEAVES.get());
}
