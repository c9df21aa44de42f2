//! RocksDB: a put with a synced write-ahead log, which writers that wait at the same time share.

use keeplog_stores::{Job, Outcome};
use rocksdb::{DB, WriteOptions};

fn main() -> Outcome<()> {
    let job = Job::from_args()?;
    let database = DB::open_default(&job.dir)?;
    let mut synced = WriteOptions::default();
    synced.set_sync(true);
    job.run(|key, value| Ok(database.put_opt(key, value, &synced)?))
}
