//! What tests of a store in memory begin with.

use std::sync::Arc;

use keeplog::inspect::storage::MemoryStorage;

/// The time at which they begin, ms.
pub(crate) const T0: i64 = 1_760_000_000_000;

/// An empty disk at that time.
pub(crate) fn disk() -> Arc<MemoryStorage> {
    let disk = MemoryStorage::new();
    disk.set_now_ms(T0);
    Arc::new(disk)
}
