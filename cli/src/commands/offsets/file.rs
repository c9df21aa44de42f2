//! Offsets from a file, as `keeplog offsets export` and Kafka's own tool write them.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;

use crate::args::ExportFormat;
use crate::csv;
use crate::door::storage::{OpenMode, read_full_at};
use crate::door::{Error, Storage};
use crate::failure::Failure;
use crate::output;

/// More than any export can have.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// Characters of a file that a message repeats, at most.
const ECHO_MAX: usize = 60;
/// Bytes of a name in a record, at most.
const NAME_BYTES_MAX: usize = i16::MAX as usize;

const BYTE_ORDER_MARK: char = '\u{feff}';

/// What a line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Where it stands in the file.
    pub(super) line: usize,
    pub(super) group: String,
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) offset: u64,
    pub(super) leader_epoch: Option<i32>,
    pub(super) metadata: String,
}

/// A line of JSON; what else it says is not for us.
#[derive(Deserialize)]
struct Line {
    group: Option<String>,
    topic: String,
    partition: i32,
    offset: u64,
    leader_epoch: Option<i32>,
    metadata: Option<String>,
}

/// Reads `path`, or standard input where it is `-`. Of a file with groups, `groups` says which are meant (none: all); one
/// without is about the one group there must be.
pub(super) fn read(storage: &dyn Storage, path: &Path, format: Option<ExportFormat>, groups: &[String]) -> Result<Vec<Wanted>, Failure> {
    let text = text_of(storage, path)?;
    let format = format.unwrap_or(if is_json(&text) { ExportFormat::Json } else { ExportFormat::Csv });
    parse(&text, format, groups).map_err(|what| {
        Failure::new(format!("could not take offsets from {}: {what}", path.display()))
            .advise("give what keeplog offsets export writes, or kafka-consumer-groups.sh with --export; nothing was changed")
    })
}

/// A group may begin with a brace as well. As CSV, a name with a quote in it is in quotes as a whole.
fn is_json(text: &str) -> bool {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text).trim_start();
    text.strip_prefix('{').is_some_and(|object| object.trim_start().starts_with('"'))
}

fn text_of(storage: &dyn Storage, path: &Path) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let too_large = || {
        Failure::new(format!("could not read {}: it is too large for a list of offsets", path.display()))
            .advise("take it in parts of up to a gibibyte; nothing was changed")
    };
    if path == Path::new("-") {
        let mut input = std::io::stdin().lock().take(FILE_BYTES_MAX + 1);
        input.read_to_end(&mut bytes).map_err(|e| Failure::new("could not read standard input").caused_by(&e))?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(too_large());
        }
    } else {
        let file = storage.open(path, OpenMode::Read).map_err(|e| Error::io("open", path, e))?;
        let len = file.len().map_err(|e| Error::io("read the size of", path, e))?;
        if len > FILE_BYTES_MAX {
            return Err(too_large());
        }
        bytes.resize(usize::try_from(len).unwrap_or(usize::MAX), 0);
        let got = read_full_at(&*file, &mut bytes, 0).map_err(|e| Error::io("read", path, e))?;
        bytes.truncate(got);
    }
    String::from_utf8(bytes).map_err(|e| Failure::new(format!("could not read {}", path.display())).caused_by(&e))
}

fn parse(text: &str, format: ExportFormat, groups: &[String]) -> Result<Vec<Wanted>, String> {
    let lines: Box<dyn Iterator<Item = Result<(usize, Line), String>>> = match format {
        ExportFormat::Csv => Box::new(csv::rows(text).map(|row| take_row(&row?))),
        ExportFormat::Json => Box::new(json_lines(text)),
    };
    let mut seen = BTreeSet::new();
    let mut wanted = Vec::new();
    for line in lines {
        let (number, line) = line?;
        let refuse = |what: &str| Err(format!("line {number}: {what}"));
        let group = match (line.group, groups) {
            (Some(group), _) if !groups.is_empty() && !groups.contains(&group) => continue,
            (Some(group), _) => group,
            (None, [group]) => group.clone(),
            (None, _) => return refuse("it does not name a group: say which with one --group"),
        };
        if group.is_empty() {
            return refuse("the name of the group is empty");
        }
        if [&group, &line.topic].into_iter().chain(&line.metadata).any(|text| text.len() > NAME_BYTES_MAX) {
            return refuse("a name, or the metadata, has more than 32767 bytes");
        }
        if line.partition < 0 {
            return refuse("the partition is negative");
        }
        if i64::try_from(line.offset).is_err() {
            return refuse("the offset is above 2^63 - 1");
        }
        if line.leader_epoch.is_some_and(|epoch| epoch < 0) {
            return refuse("the leader epoch is negative");
        }
        if !seen.insert((group.clone(), line.topic.clone(), line.partition)) {
            return refuse("an earlier line is about the same group, topic and partition");
        }
        wanted.push(Wanted {
            line: number,
            group,
            topic: line.topic,
            partition: line.partition,
            offset: line.offset,
            leader_epoch: line.leader_epoch,
            metadata: line.metadata.unwrap_or_default(),
        });
    }
    Ok(wanted)
}

/// With the number of its line.
fn take_row(row: &csv::Row) -> Result<(usize, Line), String> {
    let [group, topic, partition, offset] = match &row.fields[..] {
        [topic, partition, offset] => [None, Some(topic), Some(partition), Some(offset)],
        [group, topic, partition, offset] => [Some(group), Some(topic), Some(partition), Some(offset)],
        fields => return Err(format!("line {}: it has {} columns, 3 or 4 are due", row.line, fields.len())),
    };
    let number = |field: Option<&String>| field.map(|field| field.trim().to_owned()).unwrap_or_default();
    let (partition, offset) = (number(partition), number(offset));
    let is_header = row.line == 1 && partition.to_lowercase().contains("partition");
    let bad = |what: &str, field: &str| {
        let hint = if is_header { "; the first line looks like a header: leave it out" } else { "" };
        format!("line {}: \"{}\" is no {what}{hint}", row.line, output::clipped(field, ECHO_MAX))
    };
    let line = Line {
        group: group.cloned(),
        topic: topic.cloned().unwrap_or_default(),
        partition: partition.parse().map_err(|_| bad("partition", &partition))?,
        offset: offset.parse().map_err(|_| bad("offset", &offset))?,
        leader_epoch: None,
        metadata: None,
    };
    Ok((row.line, line))
}

fn json_lines(text: &str) -> impl Iterator<Item = Result<(usize, Line), String>> {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    // What the parser says repeats what it read.
    let bad = |number: usize, what: &serde_json::Error| format!("line {number}: {}", output::clipped(&what.to_string(), 4 * ECHO_MAX));
    lines.map(move |(number, line)| serde_json::from_str(line).map(|line| (number, line)).map_err(|e| bad(number, &e)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csv(text: &str, groups: &[&str]) -> Result<Vec<(String, String, i32, u64)>, String> {
        let groups: Vec<String> = groups.iter().map(|&group| group.into()).collect();
        let wanted = parse(text, ExportFormat::Csv, &groups)?;
        Ok(wanted.into_iter().map(|w| (w.group, w.topic, w.partition, w.offset)).collect())
    }

    fn row(group: &str, partition: i32, offset: u64) -> (String, String, i32, u64) {
        (group.into(), "t".into(), partition, offset)
    }

    #[test]
    fn both_forms_of_kafkas_csv_are_read() {
        assert_eq!(csv("t,0,5\nt, 1 ,6\n", &["g"]), Ok(vec![row("g", 0, 5), row("g", 1, 6)]));
        assert_eq!(csv("a,t,0,5\r\n\"b\",\"t\",1,6\r\n", &[]), Ok(vec![row("a", 0, 5), row("b", 1, 6)]));
        assert_eq!(csv("a,t,0,5\nb,t,1,6\n", &["b", "c"]), Ok(vec![row("b", 1, 6)]), "of a file with groups, those that are asked for");
    }

    #[test]
    fn what_cannot_be_taken_is_refused_with_its_line() {
        for (text, groups, said) in [
            ("t,0,5", &[][..], "line 1: it does not name a group"),
            ("t,0,5", &["a", "b"], "line 1: it does not name a group"),
            ("a,t,0,5\na,t\n", &[], "line 2: it has 2 columns"),
            ("a,t,x,5", &[], "line 1: \"x\" is no partition"),
            ("a,t,-1,5", &[], "line 1: the partition is negative"),
            ("a,t,0,-5", &[], "line 1: \"-5\" is no offset"),
            ("a,t,0,9223372036854775808", &[], "above 2^63 - 1"),
            ("group,topic,partition,offset\n", &[], "\"partition\" is no partition; the first line looks like a header"),
            (",t,0,5", &[], "line 1: the name of the group is empty"),
            ("a,t,0,5\nb,t,0,5\na,t,0,6", &[], "line 3: an earlier line is about the same"),
        ] {
            let error = csv(text, groups).unwrap_err();
            assert!(error.contains(said), "{text:?}: {error}");
        }
    }

    #[test]
    fn what_a_message_repeats_is_short() {
        let long = "x".repeat(1 << 16);
        for (text, format) in [
            (format!("a,t,{long},5"), ExportFormat::Csv),
            (format!("a,t,0,{long}"), ExportFormat::Csv),
            (",".repeat(1 << 16), ExportFormat::Csv),
            (format!("{{\"group\":\"g\",\"topic\":\"t\",\"partition\":\"{long}\",\"offset\":1}}"), ExportFormat::Json),
            (format!("{long},t,0,1"), ExportFormat::Csv),
        ] {
            let error = parse(&text, format, &[]).unwrap_err();
            assert!(error.starts_with("line 1: ") && error.len() < 300, "{}: {}", error.len(), &error[..100]);
        }
    }

    #[test]
    fn the_form_is_told_by_how_the_file_begins() {
        for text in ["{\"group\":1}", "\u{feff}{\"a\"", "\n { \"group\""] {
            assert!(is_json(text), "{text}");
        }
        for text in ["{g},t,0,1", "{,t,0,1", "\"{\"\"g\",t,0,1", "g,t,0,1", "", "{"] {
            assert!(!is_json(text), "{text}");
        }
        let text = "\u{feff}{\"group\":\"g\",\"topic\":\"t\",\"partition\":0,\"offset\":5}";
        assert_eq!(parse(text, ExportFormat::Json, &[]).unwrap().len(), 1);
    }

    #[test]
    fn json_brings_metadata_and_epochs() {
        let text = "{\"group\":\"g\",\"topic\":\"t\",\"partition\":0,\"offset\":5,\"leader_epoch\":3,\"metadata\":\"m\",\"commit_timestamp\":1}\n\n\
                    {\"topic\":\"t\",\"partition\":1,\"offset\":6,\"leader_epoch\":null}\n";
        let wanted = parse(text, ExportFormat::Json, &["g".to_owned()]).unwrap();
        let [first, second] = &wanted[..] else { panic!("{wanted:?}") };
        assert_eq!((first.leader_epoch, &*first.metadata), (Some(3), "m"));
        assert_eq!((&*second.group, second.leader_epoch, &*second.metadata), ("g", None, ""));
        for (text, said) in [
            ("{\"group\":\"g\",\"topic\":\"t\",\"partition\":0}", "line 1: missing field `offset`"),
            ("{\"group\":\"g\",\"topic\":\"t\",\"partition\":0,\"offset\":1,\"leader_epoch\":-2}", "leader epoch is negative"),
            ("\n[]", "line 2: "),
        ] {
            let error = parse(text, ExportFormat::Json, &[]).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
