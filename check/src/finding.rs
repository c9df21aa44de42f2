//! What a check finds.

use std::collections::BTreeMap;

use serde::Serialize;

/// Findings of one code in one file that are told one by one; the rest is only counted.
const TOLD_PER_FILE: u64 = 20;

/// How bad a finding is. Ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Unusual but sound.
    Note,
    /// Unfinished or out of date; nothing is lost.
    Warning,
    /// A file is not what was written: data is lost or would be read wrongly, or the file must be made anew.
    Damage,
}

/// One thing that a check found.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What kind of finding it is, in a word.
    pub code: &'static str,
    /// File name in the directory; `None` for the directory as a whole.
    pub file: Option<String>,
    /// Byte position in the file.
    pub position: Option<u64>,
    /// Record offset.
    pub offset: Option<u64>,
    /// What was found.
    pub message: String,
    /// What it means and what to do.
    pub advice: &'static str,
}

/// A kind of finding; see [`crate::codes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code {
    pub(crate) name: &'static str,
    pub(crate) severity: Severity,
    pub(crate) advice: &'static str,
}

impl Code {
    fn finding(self, place: Place<'_>, message: String) -> Finding {
        let Self { name, severity, advice } = self;
        Finding {
            severity,
            code: name,
            file: place.file.map(str::to_owned),
            position: place.position,
            offset: place.offset,
            message,
            advice,
        }
    }
}

/// Where a finding is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place<'a> {
    pub(crate) file: Option<&'a str>,
    pub(crate) position: Option<u64>,
    pub(crate) offset: Option<u64>,
}

impl<'a> Place<'a> {
    pub(crate) fn file(name: &'a str) -> Self {
        Self { file: Some(name), ..Self::default() }
    }

    pub(crate) fn at(self, position: u64) -> Self {
        Self { position: Some(position), ..self }
    }

    pub(crate) fn offset(self, offset: u64) -> Self {
        Self { offset: Some(offset), ..self }
    }
}

/// Collects findings; a file that is all wrong does not drown the rest.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    told: Vec<Finding>,
    /// By code and file: how many there were.
    seen: BTreeMap<(&'static str, Option<String>), (Code, u64)>,
}

impl Findings {
    pub(crate) fn add(&mut self, code: Code, place: Place<'_>, message: impl Into<String>) {
        let (_, seen) = self.seen.entry((code.name, place.file.map(str::to_owned))).or_insert((code, 0));
        *seen += 1;
        if *seen <= TOLD_PER_FILE {
            self.told.push(code.finding(place, message.into()));
        }
    }

    /// Everything found, in order, with a line for what was only counted.
    pub(crate) fn finish(mut self) -> Vec<Finding> {
        for ((_, file), (code, seen)) in self.seen.iter().filter(|(_, (_, seen))| *seen > TOLD_PER_FILE) {
            let place = Place { file: file.as_deref(), ..Place::default() };
            self.told.push(code.finding(place, format!("and {} more of this kind", seen - TOLD_PER_FILE)));
        }
        self.told
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes;

    #[test]
    fn many_findings_of_one_kind_are_counted() {
        let mut findings = Findings::default();
        for i in 0..50 {
            findings.add(codes::CHECKSUM, Place::file("a.log").at(i), "wrong");
        }
        findings.add(codes::GAP, Place::file("b.log"), "gap");
        let all = findings.finish();
        assert_eq!(all.len(), 20 + 1 + 1);
        assert_eq!(all[21].message, "and 30 more of this kind");
        assert_eq!((all[20].code, all[20].severity), ("gap", Severity::Note));
    }
}
