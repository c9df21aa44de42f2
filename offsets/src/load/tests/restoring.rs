//! A load from a snapshot and the end of the log is what a load of the whole log is, whatever happened in between.

use keeplog_engine::storage::File;

use super::*;
use crate::snapshot::{Encoder, NAME, Writer};

fn path() -> std::path::PathBuf {
    Path::new(LOG).join(NAME)
}

/// Saves a snapshot of `replay`, which shows all of the log, while `between` goes on with both.
fn save(log: &Log, replay: &mut Replay, mut between: impl FnMut(&mut Replay)) {
    let mut encoder = Encoder::begin(replay, log.end_offset());
    let mut writer = Writer::create(log.storage(), path()).unwrap();
    loop {
        let is_last = encoder.take(replay).unwrap();
        encoder.write(&mut writer).unwrap();
        if is_last {
            break;
        }
        between(replay);
    }
    encoder.finish(writer, log.fingerprint(log.end_offset()).unwrap()).unwrap();
}

/// Offset, key and value.
type StoredGroup = (u64, Vec<u8>, Vec<u8>);

fn groups(replay: &Replay) -> Vec<(String, Vec<StoredGroup>)> {
    let records = |name: &str| replay.groups().records_of(name).map(|(offset, key, value)| (offset, key, value.to_vec())).collect();
    let mut all: Vec<_> = replay.groups().names().map(|name| (name.to_owned(), records(name))).collect();
    all.sort_unstable();
    all
}

struct World {
    disk: Arc<MemoryStorage>,
    log: Log,
    history: History,
    replay: Replay,
    restored: usize,
    /// An older snapshot.
    older: Option<Vec<u8>>,
}

impl World {
    fn new(seed: u64) -> Self {
        let disk = disk();
        let log = open(&disk);
        Self { disk, log, history: History::new(seed), replay: Replay::new(), restored: 0, older: None }
    }

    fn append(log: &Log, history: &mut History, replay: &mut Replay) {
        let (from, mut entries) = (log.end_offset(), Vec::new());
        history.batch(&mut entries);
        log.append_as_follower(&entries, Durability::Buffered).unwrap();
        plain::go_on(log, replay, from, &|_| {}).unwrap();
    }

    fn save(&mut self) {
        self.older = self.older.take().or(self.bytes());
        let Self { log, history, replay, .. } = self;
        save(log, replay, |replay| {
            for _ in 0..history.dice.roll(3) {
                Self::append(log, history, replay);
            }
        });
    }

    fn file(&self, mode: OpenMode) -> Option<Arc<dyn File>> {
        self.disk.open(&path(), mode).ok()
    }

    fn bytes(&self) -> Option<Vec<u8>> {
        let file = self.file(OpenMode::Read)?;
        let mut bytes = vec![0; file.len().unwrap() as usize];
        read_exact_at(&*file, &mut bytes, 0).unwrap();
        Some(bytes)
    }

    /// Damages the snapshot, or puts an older one in its place.
    fn spoil(&mut self) {
        let (Some(mut bytes), dice) = (self.bytes(), &mut self.history.dice) else { return };
        match dice.roll(4) {
            0 => bytes.truncate(dice.roll(bytes.len() as u64) as usize),
            1 => bytes.push(0),
            2 => bytes = self.older.take().unwrap_or_default(),
            _ => {
                let at = dice.roll(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << dice.roll(8);
            }
        }
        write_all_at(&*self.file(OpenMode::Truncate).unwrap(), &bytes, 0).unwrap();
    }

    /// Makes one segment of the first two, as a pass of the cleaner may.
    fn merge(&self) {
        let rewrite = self.log.begin_rewrite().unwrap();
        let sources: Vec<_> = rewrite.sources().sealed().iter().take(2).cloned().collect();
        let [first, second] = &sources[..] else { return };
        let mut output = rewrite.create_output(first.base_offset()).unwrap();
        for source in [first, second] {
            let mut bytes = vec![0; source.size_bytes() as usize];
            read_exact_at(&*source.file().unwrap(), &mut bytes, 0).unwrap();
            output.append(&bytes).unwrap();
        }
        let output = output.seal(0).unwrap();
        rewrite.swap(&sources, vec![output]).unwrap();
    }

    fn truncate(&mut self) {
        let (start, end) = (self.log.start_offset(), self.log.end_offset());
        self.log.truncate_to(end - self.history.dice.roll((end - start).min(30) + 1)).unwrap();
        self.history.next = self.log.end_offset();
        self.replay = plain::load(&self.log).unwrap().0;
    }

    fn restart(&mut self) {
        self.log.close().unwrap();
        self.log = open(&self.disk);
    }

    fn check(&mut self, how: &str) {
        let threads = 1 + self.history.dice.roll(3) as usize;
        let (found, report, kept) = load_restoring(&self.log, threads, &|_| {}).unwrap();
        self.restored += usize::from(kept.is_some());
        assert_eq!((report.entries, report.snapshot_bytes > 0), (found.cache().len() as u64, kept.is_some()));
        let (expected, _) = plain::load(&self.log).unwrap();
        assert_eq!(groups(&found), groups(&expected), "{how}");
        assert_same(&found, &self.replay, how);
        assert_same_for_ever(found, expected, how);
        assert_eq!(self.bytes().is_some(), kept.is_some(), "one that is of no use is removed");
    }
}

#[test]
fn any_history_with_snapshots_is_loaded_as_it_is_replayed() {
    let mut restored = 0;
    for seed in 0..120 {
        let mut world = World::new(seed);
        for step in 0..80 {
            let how = format!("seed {seed}, step {step}");
            match world.history.dice.roll(40) {
                0..3 => world.save(),
                3 => world.restart(),
                4..7 => world.check(&how),
                7 => world.log.roll().unwrap(),
                8 if world.history.dice.roll(3) == 0 => world.spoil(),
                9 if world.history.dice.roll(2) == 0 => world.truncate(),
                10 if world.history.dice.roll(2) == 0 => world.merge(),
                11 if world.history.dice.roll(8) == 0 => {
                    let (start, end) = (world.log.start_offset(), world.log.end_offset());
                    world.log.advance_start(start + world.history.dice.roll((end - start).min(9) + 1)).unwrap();
                    world.replay = plain::load(&world.log).unwrap().0;
                }
                _ => World::append(&world.log, &mut world.history, &mut world.replay),
            }
        }
        world.check(&format!("seed {seed}"));
        restored += world.restored;
    }
    assert!(restored > 200, "{restored} loads began with a snapshot");
}

/// Every byte of a snapshot is under some checksum, or is compared.
#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    let mut world = World::new(5);
    for _ in 0..40 {
        World::append(&world.log, &mut world.history, &mut world.replay);
    }
    world.save();
    let bytes = world.bytes().unwrap();
    let put = |bytes: &[u8]| write_all_at(&*world.file(OpenMode::Truncate).unwrap(), bytes, 0).unwrap();
    for at in (0..bytes.len()).step_by(if bytes.len() > 3000 { 3 } else { 1 }) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        put(&flipped);
        assert!(load_restoring(&world.log, 1, &|_| {}).unwrap().2.is_none() || (40..64).contains(&at), "byte {at}");
        put(&bytes[..at]);
        assert!(load_restoring(&world.log, 1, &|_| {}).unwrap().2.is_none(), "cut at {at}");
    }
    put(&bytes);
    assert!(load_restoring(&world.log, 2, &|_| {}).unwrap().2.is_some());
}
