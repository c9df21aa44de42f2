use proptest::prelude::*;

use super::*;

const RETENTION_MS: i64 = 1_000;
/// When the commit of most rows was made, and when the group of most rows became Empty.
const COMMIT_MS: i64 = 50_000;
const EMPTY_MS: i64 = 52_000;

fn topics(topics: &[&str]) -> Subscription {
    Subscription::of(topics.iter().copied())
}

/// The first moment at which an offset of topic "t" expires, found by looking at the moments around every time in the
/// row; `None` for never.
fn expires_at(group: &GroupExpiry, commit_ms: i64, expire_ms: Option<i64>) -> Option<i64> {
    let is_expired = |now_ms| group.is_expired("t", commit_ms, expire_ms, RETENTION_MS, now_ms);
    let times = [commit_ms, EMPTY_MS, expire_ms.unwrap_or(0).max(0)];
    let mut moments: Vec<i64> = times.iter().flat_map(|ms| [*ms, ms + RETENTION_MS]).flat_map(|ms| [ms - 1, ms, ms + 1]).collect();
    moments.extend([i64::MIN, 0, i64::MAX]);
    moments.sort_unstable();
    let first = moments.iter().copied().find(|ms| is_expired(*ms));
    assert_eq!(first.is_some(), is_expired(i64::MAX), "what has expired stays so: {group:?}");
    first
}

#[test]
fn e07_every_row_of_the_table() {
    let (after_commit, after_empty) = (Some(COMMIT_MS + RETENTION_MS), Some(EMPTY_MS + RETENTION_MS));
    for (what, group, expected) in [
        ("simple", GroupExpiry::simple(), after_commit),
        ("simple, with a record", GroupExpiry::classic_empty("", Some(EMPTY_MS)), after_commit),
        ("empty", GroupExpiry::classic_empty("consumer", Some(EMPTY_MS)), after_empty),
        ("empty, of another protocol", GroupExpiry::classic_empty("connect", Some(EMPTY_MS)), after_empty),
        ("empty, since when is not known", GroupExpiry::classic_empty("consumer", None), after_commit),
        ("empty, with the sentinel for that", GroupExpiry::classic_empty("consumer", Some(-1)), after_commit),
        ("stable, reads it", GroupExpiry::classic_stable("consumer", topics(&["s", "t"])), None),
        ("stable, reads others", GroupExpiry::classic_stable("consumer", topics(&["s", "u"])), after_commit),
        ("stable, nobody knows", GroupExpiry::classic_stable("consumer", Subscription::Unknown), None),
        ("stable, of another protocol", GroupExpiry::classic_stable("connect", topics(&[])), None),
        ("stable, of no protocol", GroupExpiry::classic_stable("", topics(&[])), None),
        ("modern, reads it", GroupExpiry::modern_with_members(topics(&["t"])), None),
        ("modern, reads others", GroupExpiry::modern_with_members(topics(&["u"])), after_commit),
        ("modern, nobody knows", GroupExpiry::modern_with_members(Subscription::Unknown), None),
        ("modern, empty", GroupExpiry::modern_empty(), after_commit),
        ("left alone", GroupExpiry::never(), None),
    ] {
        assert_eq!(expires_at(&group, COMMIT_MS, None), expected, "{what}");
        assert!(group.can_expire() || expected.is_none(), "{what}");
        // A time of its own counts instead, where anything expires at all; before and after the retention.
        for own_ms in [COMMIT_MS + 1, COMMIT_MS + 10 * RETENTION_MS] {
            assert_eq!(expires_at(&group, COMMIT_MS, Some(own_ms)), expected.map(|_| own_ms), "{what}");
        }
    }
}

#[test]
fn e05_no_expire_timestamp_is_none_however_it_is_written() {
    let simple = GroupExpiry::simple();
    for none in [None, Some(-1), Some(i64::MIN)] {
        assert_eq!(expires_at(&simple, COMMIT_MS, none), Some(COMMIT_MS + RETENTION_MS), "{none:?}");
    }
}

#[test]
fn a_commit_of_unknown_age_stays() {
    for unknown in [-1, i64::MIN] {
        assert!(!GroupExpiry::simple().is_expired("t", unknown, None, 0, i64::MAX));
    }
    assert!(GroupExpiry::classic_empty("consumer", Some(0)).is_expired("t", -1, None, 0, 0), "the group's own time is known");
}

#[test]
fn e06_every_retention_means_something() {
    let is_expired = |retention_ms, now_ms| GroupExpiry::simple().is_expired("t", COMMIT_MS, None, retention_ms, now_ms);
    assert!(is_expired(0, COMMIT_MS) && !is_expired(0, COMMIT_MS - 1), "nothing of the future");
    for forever in [-1, -2, i64::MIN, i64::MAX] {
        assert!(!is_expired(forever, i64::MAX - 1), "{forever}");
    }
    assert!(!GroupExpiry::simple().is_expired("t", i64::MAX, None, 0, i64::MIN), "a clock that is far behind");
    assert!(GroupExpiry::simple().is_expired("t", 5, Some(7), -1, 7), "its own time counts without a retention");
}

#[test]
fn e06_minutes_become_ms_without_wrapping() {
    let day = 24 * 60;
    assert_eq!([0, 1, 7 * day, -1].map(retention_ms), [0, 60_000, 604_800_000, -60_000]);
    assert_eq!(retention_ms(i64::from(i32::MAX)), 128_849_018_820_000);
    assert_eq!([i64::MAX, i64::MIN].map(retention_ms), [i64::MAX, i64::MIN]);
}

#[test]
fn only_a_group_with_records_and_nobody_in_it_dies() {
    assert!(GroupExpiry::classic_empty("consumer", None).dies_without_offsets());
    assert!(GroupExpiry::modern_empty().dies_without_offsets());
    let living = [
        GroupExpiry::simple(),
        GroupExpiry::never(),
        GroupExpiry::classic_stable("consumer", Subscription::none()),
        GroupExpiry::classic_stable("connect", Subscription::none()),
        GroupExpiry::modern_with_members(Subscription::none()),
    ];
    assert!(!living.iter().any(GroupExpiry::dies_without_offsets));
}

#[test]
fn what_two_members_read_is_what_either_reads() {
    let both = topics(&["b", "a", "b"]).or(topics(&["c", "a"]));
    assert_eq!(both, Subscription::Topics(["a", "b", "c"].map(Into::into).to_vec()));
    assert!(both.may_read("c") && !both.may_read("d"));
    assert_eq!(both.or(Subscription::Unknown), Subscription::Unknown);
    assert!(Subscription::Unknown.may_read("d") && !Subscription::none().may_read("d"));
}

fn group() -> impl Strategy<Value = GroupExpiry> {
    let subscription = prop_oneof![Just(Subscription::Unknown), Just(topics(&["t"])), Just(topics(&["u"])), Just(Subscription::none())];
    let protocol = prop::sample::select(vec!["", "consumer", "connect"]);
    let empty = (protocol.clone(), prop::option::of(time())).prop_map(|(protocol, since)| GroupExpiry::classic_empty(protocol, since));
    let stable = (protocol, subscription.clone()).prop_map(|(protocol, topics)| GroupExpiry::classic_stable(protocol, topics));
    prop_oneof![
        Just(GroupExpiry::simple()),
        Just(GroupExpiry::modern_empty()),
        empty,
        stable,
        subscription.prop_map(GroupExpiry::modern_with_members)
    ]
}

/// Near each other, or at the ends of what there is.
fn time() -> impl Strategy<Value = i64> {
    prop_oneof![8 => -2..5_000i64, 1 => any::<i64>(), 1 => prop::sample::select(vec![i64::MIN, i64::MAX])]
}

proptest! {
    #[test]
    fn what_has_expired_stays_expired_and_nothing_young_expires(
        group in group(), commit in time(), expire in prop::option::of(time()), retention in time(), now in time(), later in time(),
    ) {
        let (now, later) = (now.min(later), now.max(later));
        let is_expired = |now| group.is_expired("t", commit, expire, retention, now);
        prop_assert!(!is_expired(now) || is_expired(later));
        prop_assert!(!is_expired(now) || (group.can_expire() && !group.may_read("t")));
        if expire.is_none_or(|ms| ms < 0) {
            let since = match group.clock { Clock::Since(ms) => ms, _ => commit };
            let age = i128::from(now) - i128::from(since);
            prop_assert!(!is_expired(now) || (retention >= 0 && age >= i128::from(retention)), "{age} ms old");
        }
    }
}
