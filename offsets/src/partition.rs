//! Which partition of `__consumer_offsets` holds a group.

use std::num::NonZeroU32;

/// The partition, of `partitions`, that holds everything about `group`.
///
/// Kafka's rule: the absolute value of Java's `String.hashCode`, with 0 for -2^31, modulo the count. So the count
/// of an existing topic must never change.
#[must_use]
pub fn partition_for(group: &str, partitions: NonZeroU32) -> u32 {
    let hash = group.encode_utf16().fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(unit.into()));
    let magnitude = if hash == i32::MIN { 0 } else { hash.unsigned_abs() };
    magnitude % partitions
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hash codes from a real JVM.
    const GROUPS: &[(&str, u32, u32)] = &[
        ("", 0, 0),
        ("a", 47, 7),
        ("foo", 24, 4),
        ("test", 48, 8),
        ("my-group", 12, 2),
        ("group1", 40, 0),
        ("test-consumer-group", 31, 1),
        ("polygenelubricants", 0, 0),
        ("payments", 13, 3),
        ("orders-service", 17, 7),
        ("connect-cluster", 13, 3),
        ("console-consumer-12345", 6, 6),
        ("消费者", 6, 6),
        ("grüße", 23, 3),
        ("😀", 49, 9),
    ];

    #[test]
    fn groups_lie_where_kafka_puts_them() {
        for &(group, of_50, of_10) in GROUPS {
            let place = |n| partition_for(group, NonZeroU32::new(n).unwrap());
            assert_eq!((place(50), place(10), place(1)), (of_50, of_10, 0), "{group}");
        }
    }
}
