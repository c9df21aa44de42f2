use keeplog_engine::Durability;

/// How an offset store writes. Methods set one value each and return the options.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommitOptions {
    /// When a commit or a deletion is acknowledged, and shown; default synced.
    pub durability: Durability,
    /// `offset.metadata.max.bytes`: the longest metadata that is taken, in UTF-16 units as Kafka counts; default 4096.
    pub offset_metadata_max_bytes: usize,
}

impl Default for CommitOptions {
    fn default() -> Self {
        Self { durability: Durability::Synced, offset_metadata_max_bytes: 4096 }
    }
}

impl CommitOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`CommitOptions::durability`](#structfield.durability).
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Sets [`CommitOptions::offset_metadata_max_bytes`](#structfield.offset_metadata_max_bytes).
    #[must_use]
    pub fn offset_metadata_max_bytes(mut self, units: usize) -> Self {
        self.offset_metadata_max_bytes = units;
        self
    }
}
