//! `keeplog offsets export`: committed offsets in a form that can be read back.

use super::source::load_commits;
use super::{Line, Loaded, find};
use crate::args::{self, ExportFormat};
use crate::door::Storage;
use crate::failure::Failure;
use crate::output::Out;
use crate::{Status, csv};

pub(super) fn run(args: &args::OffsetsExport, storage: &dyn Storage) -> Result<Status, Failure> {
    let target = find(storage, &args.dir)?;
    let Loaded { mut folded, places, status, .. } = load_commits(storage, &target, &|group| args.only.has_group(group))?;
    places.warn(&target);
    args.only.warn_of_nothing(&folded.committed);
    folded.committed.retain(|committed| args.only.has_topic(&committed.topic));
    // Kafka's own tool leaves out the group where one was asked for.
    let is_of_one = args.only.groups.len() == 1;
    let mut out = Out::new();
    let mut row = String::new();
    for committed in &folded.committed {
        match args.format {
            ExportFormat::Json => out.json(&Line::of(committed))?,
            ExportFormat::Csv => {
                let (partition, offset) = (committed.partition.to_string(), committed.offset.to_string());
                let fields = [&*committed.group, &*committed.topic, &partition, &offset];
                row.clear();
                csv::push_row(&mut row, &fields[usize::from(is_of_one)..]);
                out.text(&row)?;
            }
        }
    }
    out.flush()?;
    Ok(status)
}
