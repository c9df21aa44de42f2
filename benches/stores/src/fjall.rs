//! fjall: an insert, then its journal is synced.

use fjall::{Database, KeyspaceCreateOptions, PersistMode};
use keeplog_stores::{Job, Outcome};

fn main() -> Outcome<()> {
    let job = Job::from_args()?;
    let database = Database::builder(&job.dir).open()?;
    let offsets = database.keyspace("offsets", KeyspaceCreateOptions::default)?;
    job.run(|key, value| {
        offsets.insert(key, value)?;
        Ok(database.persist(PersistMode::SyncData)?)
    })
}
