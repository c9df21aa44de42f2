//! Binary search and big-endian fields, shared by the indexes.

/// Bytes at the end of an index that a search looks at first: reads of a live log stay near its end, so their
/// lookups touch two or three pages that are warm, whatever the size of the index (field report D06).
const WARM_BYTES: usize = 8192;

/// How many of the `len` entries, each of `entry_bytes`, come before the border. `before` must hold for a prefix
/// of them; if it does not (damaged bytes) the answer is some number up to `len`.
pub(crate) fn prefix_len(len: usize, entry_bytes: usize, before: impl Fn(usize) -> bool) -> usize {
    let warm_start = len.saturating_sub(WARM_BYTES / entry_bytes);
    let (mut low, mut high) = if warm_start == 0 || before(warm_start) { (warm_start, len) } else { (0, warm_start) };
    while low < high {
        let middle = low.midpoint(high);
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// The `N` bytes of entry `entry` (of `entry_bytes` each) from its byte `at`.
pub(crate) fn field<const N: usize>(bytes: &[u8], entry: usize, entry_bytes: usize, at: usize) -> Option<[u8; N]> {
    let start = entry.checked_mul(entry_bytes)?.checked_add(at)?;
    bytes.get(start..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn d06_lookups_near_the_end_touch_three_pages_at_most_whatever_the_size() {
        const PAGE_BYTES: usize = 4096;
        for (len, entry_bytes) in [(0, 8), (1, 8), (2, 8), (511, 8), (513, 12), (1025, 8), (10 << 17, 8), (870_000, 12)] {
            for border in len - len / 100..=len {
                let pages = RefCell::new(BTreeSet::new());
                let found = prefix_len(len, entry_bytes, |i| {
                    pages.borrow_mut().extend([i * entry_bytes / PAGE_BYTES, (i * entry_bytes + entry_bytes - 1) / PAGE_BYTES]);
                    i < border
                });
                assert_eq!(found, border);
                let is_warm = border > len.saturating_sub(WARM_BYTES / entry_bytes);
                assert!(!is_warm || pages.borrow().len() <= 3, "{len} entries, {border}: pages {pages:?}");
            }
        }
    }
}
