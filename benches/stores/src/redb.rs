//! redb: a transaction of one insert, with its default durability (immediate).

use keeplog_stores::{Job, Outcome};
use redb::{Database, TableDefinition};

const OFFSETS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("offsets");

fn main() -> Outcome<()> {
    let job = Job::from_args()?;
    let database = Database::create(job.dir.join("offsets.redb"))?;
    job.run(|key, value| {
        let transaction = database.begin_write()?;
        transaction.open_table(OFFSETS)?.insert(key, value)?;
        Ok(transaction.commit()?)
    })
}
