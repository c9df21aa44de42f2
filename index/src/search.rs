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
