//! What the tests share: logs in memory under a clock that the test sets, batches of any kind, and a file surgeon.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use keeplog_engine::record::{BatchSpec, BatchWriter, Record, StoredRecord};
use keeplog_engine::storage::{File, MemoryStorage, OpenMode, Storage, read_exact_at, write_all_at};
use keeplog_engine::{Durability, Log, LogOptions};

pub(crate) const T0: i64 = 1_760_000_000_000;
pub(crate) const LOG: &str = "/data/t-0";

/// A file system in memory with an empty data directory.
pub(crate) fn disk() -> Arc<MemoryStorage> {
    let disk = MemoryStorage::new();
    disk.set_now_ms(T0);
    disk.create_dir(Path::new("/data")).unwrap();
    Arc::new(disk)
}

pub(crate) fn open(disk: &Arc<MemoryStorage>, options: LogOptions) -> Log {
    Log::open_with(Arc::clone(disk) as Arc<dyn Storage>, Path::new(LOG), options).unwrap()
}

/// Small segments and dense indexes: rare paths become common.
pub(crate) fn small() -> LogOptions {
    LogOptions::new().segment_bytes(4096).index_interval_bytes(256).segment_index_bytes(4096)
}

/// One batch with the given spec; keys and values are text, `None` a tombstone.
pub(crate) fn batch(spec: BatchSpec, records: &[(&str, Option<&str>)]) -> Vec<u8> {
    let mut writer = BatchWriter::new();
    let base = spec.base_offset;
    writer.begin(spec);
    for (i, (key, value)) in records.iter().enumerate() {
        writer.push(base + i as u64, T0 + i as i64, Some(key.as_bytes()), value.map(str::as_bytes), &[]).unwrap();
    }
    let mut out = Vec::new();
    writer.finish(&mut out).unwrap();
    out
}

pub(crate) fn producer(id: i64, epoch: i16, sequence: i32) -> BatchSpec {
    BatchSpec { producer_id: id, producer_epoch: epoch, base_sequence: sequence, ..BatchSpec::default() }
}

pub(crate) fn text(record: &StoredRecord) -> (u64, String, Option<String>) {
    let string = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (record.offset(), string(record.key().unwrap()), record.value().map(|v| string(v)))
}

pub(crate) fn all(log: &Log) -> Vec<(u64, String, Option<String>)> {
    log.read_from(log.start_offset()).unwrap().map(|r| text(&r.unwrap())).collect()
}

pub(crate) fn files(disk: &MemoryStorage) -> Vec<String> {
    disk.list(Path::new(LOG)).unwrap().into_iter().map(|e| e.name).collect()
}

pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(LOG).join(name)
}

pub(crate) fn file(disk: &MemoryStorage, name: &str) -> Arc<dyn File> {
    disk.open(&path(name), OpenMode::Write).unwrap()
}

pub(crate) fn contents(disk: &MemoryStorage, name: &str) -> Vec<u8> {
    let file = file(disk, name);
    let mut bytes = vec![0; file.len().unwrap() as usize];
    read_exact_at(&*file, &mut bytes, 0).unwrap();
    bytes
}

pub(crate) fn put(disk: &MemoryStorage, name: &str, bytes: &[u8]) {
    let file = disk.open(&path(name), OpenMode::Truncate).unwrap();
    write_all_at(&*file, bytes, 0).unwrap();
}

/// Lets go of a log as a crash would: nothing is closed, and the lock goes with the process.
pub(crate) fn crash(log: Log, disk: &MemoryStorage) -> Arc<MemoryStorage> {
    let image = Arc::new(disk.image());
    drop(log);
    image
}

pub(crate) fn open_on(storage: &Arc<crate::shim::Shim>, options: LogOptions) -> keeplog_engine::Result<Log> {
    Log::open_with(Arc::clone(storage) as Arc<dyn Storage>, Path::new(LOG), options)
}

pub(crate) fn append(log: &Log, value: &str) -> keeplog_engine::Result<u64> {
    log.append(&[Record::new("k", value.to_owned()).timestamp_ms(T0)], Durability::Buffered).map(|placed| placed.base_offset)
}

pub(crate) fn append_synced(log: &Log, value: &str) -> keeplog_engine::Result<u64> {
    log.append(&[Record::new("k", value.to_owned()).timestamp_ms(T0)], Durability::Synced).map(|placed| placed.base_offset)
}

pub(crate) fn values(log: &Log) -> Vec<String> {
    all(log).into_iter().map(|(_, _, value)| value.unwrap()).collect()
}

pub(crate) fn put_data(disk: &MemoryStorage, name: &str, bytes: &[u8]) {
    let file = disk.open(&Path::new("/data").join(name), OpenMode::Truncate).unwrap();
    write_all_at(&*file, bytes, 0).unwrap();
}
