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

/// More than any export can have.
const FILE_BYTES_MAX: u64 = 4 << 30;

/// What a line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
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
    let is_json = text.trim_start().starts_with('{');
    let format = format.unwrap_or(if is_json { ExportFormat::Json } else { ExportFormat::Csv });
    parse(&text, format, groups).map_err(|what| {
        Failure::new(format!("could not take offsets from {}: {what}", path.display()))
            .advise("give what keeplog offsets export writes, or kafka-consumer-groups.sh with --export; nothing was changed")
    })
}

fn text_of(storage: &dyn Storage, path: &Path) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        std::io::stdin().lock().read_to_end(&mut bytes).map_err(|e| Failure::new("could not read standard input").caused_by(&e))?;
    } else {
        let file = storage.open(path, OpenMode::Read).map_err(|e| Error::io("open", path, e))?;
        let len = file.len().map_err(|e| Error::io("read the size of", path, e))?;
        if len > FILE_BYTES_MAX {
            return Err(Failure::new(format!("could not read {}: it is too large for a list of offsets", path.display())));
        }
        bytes.resize(usize::try_from(len).unwrap_or(usize::MAX), 0);
        let got = read_full_at(&*file, &mut bytes, 0).map_err(|e| Error::io("read", path, e))?;
        bytes.truncate(got);
    }
    String::from_utf8(bytes).map_err(|e| Failure::new(format!("could not read {}", path.display())).caused_by(&e))
}

fn parse(text: &str, format: ExportFormat, groups: &[String]) -> Result<Vec<Wanted>, String> {
    let lines = match format {
        ExportFormat::Csv => parse_csv(text)?,
        ExportFormat::Json => parse_json(text)?,
    };
    let mut seen = BTreeSet::new();
    let mut wanted = Vec::new();
    for (number, line) in lines {
        let refuse = |what: &str| Err(format!("line {number}: {what}"));
        let group = match (line.group, groups) {
            (Some(group), _) if !groups.is_empty() && !groups.contains(&group) => continue,
            (Some(group), _) => group,
            (None, [group]) => group.clone(),
            (None, _) => return refuse("it does not name a group: say which with one --group"),
        };
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

/// With the number of each line.
fn parse_csv(text: &str) -> Result<Vec<(usize, Line)>, String> {
    let take = |row: csv::Row| {
        let [group, topic, partition, offset] = match &row.fields[..] {
            [topic, partition, offset] => [None, Some(topic), Some(partition), Some(offset)],
            [group, topic, partition, offset] => [Some(group), Some(topic), Some(partition), Some(offset)],
            fields => return Err(format!("line {}: it has {} columns, 3 or 4 are due", row.line, fields.len())),
        };
        let bad = |what: &str, field: Option<&String>| format!("line {}: {:?} is no {what}", row.line, field.map_or("", String::as_str));
        let number = |field: Option<&String>| field.map(|field| field.trim().to_owned()).unwrap_or_default();
        let partition_number = number(partition).parse().map_err(|_| bad("partition", partition))?;
        let offset_number = number(offset).parse().map_err(|_| bad("offset", offset))?;
        let line = Line {
            group: group.cloned(),
            topic: topic.cloned().unwrap_or_default(),
            partition: partition_number,
            offset: offset_number,
            leader_epoch: None,
            metadata: None,
        };
        Ok((row.line, line))
    };
    csv::parse(text)?.into_iter().map(take).collect()
}

fn parse_json(text: &str) -> Result<Vec<(usize, Line)>, String> {
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(number, line)| serde_json::from_str(line).map(|line| (number, line)).map_err(|e| format!("line {number}: {e}"))).collect()
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
            ("group,topic,partition,offset\n", &[], "\"partition\" is no partition"),
            ("a,t,0,5\nb,t,0,5\na,t,0,6", &[], "line 3: an earlier line is about the same"),
        ] {
            let error = csv(text, groups).unwrap_err();
            assert!(error.contains(said), "{text:?}: {error}");
        }
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
