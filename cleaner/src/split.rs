//! An output that does not fit one file goes on in further ones: a batch that is written again can be larger than it
//! was, and a segment of an old version can span more offsets than an index can hold.

use keeplog_engine::Result;
use keeplog_engine::record::BatchHeader;

use crate::emit::Piece;
use crate::pass::GroupOutput;
use crate::plan::OUTPUT_SPAN_MAX;
use crate::source::Source;
use crate::walk::corrupt;

/// `output` as files of at most `bytes_max` bytes (a single larger batch is a file of its own) and of offsets that their
/// indexes can hold, ascending. The first keeps its base offset, the others are named after their first batch.
/// `last_possible` is an offset that none in it exceeds, `source` what errors are about.
pub(crate) fn split(output: GroupOutput, bytes_max: u32, last_possible: u64, source: &dyn Source) -> Result<Vec<GroupOutput>> {
    if output.bytes() <= u64::from(bytes_max) && last_possible.saturating_sub(output.base_offset) <= OUTPUT_SPAN_MAX {
        return Ok(vec![output]);
    }
    let GroupOutput { base_offset, pieces, aborts, modified_ms } = output;
    let begin = |base_offset| GroupOutput { base_offset, modified_ms, ..GroupOutput::default() };
    let mut outputs = Vec::new();
    let mut current = begin(base_offset);
    let mut size = 0;
    for mut piece in pieces.into_iter().rev() {
        let mut at = 0;
        while at < piece.bytes.len() {
            let header = BatchHeader::parse(&piece.bytes[at..]).map_err(|e| corrupt(source, 0, e))?;
            let fits = size + u64::from(header.size) <= u64::from(bytes_max) || size == 0;
            if !(fits && header.last_offset - current.base_offset <= OUTPUT_SPAN_MAX) {
                let rest = piece.bytes.split_off(at);
                current.pieces.push(std::mem::replace(&mut piece, Piece { bytes: rest, ..Piece::default() }));
                outputs.push(std::mem::replace(&mut current, begin(header.base_offset)));
                (at, size) = (0, 0);
            }
            at += header.size as usize;
            size += u64::from(header.size);
        }
        current.pieces.push(piece);
    }
    outputs.push(current);
    let mut aborts = aborts.into_iter().peekable();
    for i in 0..outputs.len() {
        let end = outputs.get(i + 1).map_or(u64::MAX, |next| next.base_offset);
        outputs[i].pieces.reverse();
        outputs[i].aborts.extend(std::iter::from_fn(|| aborts.next_if(|txn| txn.last_offset < end)));
    }
    Ok(outputs)
}
