//! `docs/FIELD_REPORTS.md` and the tests that it names are kept in step.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{env, fs};

const PAGE: &str = "docs/FIELD_REPORTS.md";
/// Where the cases come from, beside the project.
const SOURCE: &str = "../shared/field-reports.md";
/// Parts without an open case.
const FINISHED: &[char] = &['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'];

/// A row of the page.
struct Case {
    id: String,
    is_open: bool,
    /// File and name of each test.
    tests: Vec<(String, String)>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn cases() -> Vec<Case> {
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let rows = page.lines().filter(|line| line.starts_with('|')).map(cells).filter(|cells| is_id(&cells[0]));
    rows.map(|cells| {
        assert_eq!(cells.len(), 4, "{PAGE}: the row of {} has another number of cells than its table", cells[0]);
        let (is_open, tests) = (cells[2] == "open", tests_of(&cells[2]));
        assert!(is_open == tests.is_empty(), "{PAGE}: {} is open, or names its tests as `file`: `test`, `test`; `file`: `test`", cells[0]);
        assert!(is_open || !cells[1].is_empty(), "{PAGE}: {} does not say what went wrong elsewhere", cells[0]);
        Case { id: cells[0].clone(), is_open, tests }
    })
    .collect()
}

fn is_id(text: &str) -> bool {
    matches!(text.as_bytes(), [b'A'..=b'H', b'0'..=b'9', b'0'..=b'9'])
}

/// The tests in a cell: each follows its file, or another test of the same file.
fn tests_of(cell: &str) -> Vec<(String, String)> {
    let (mut file, mut tests) = (None, Vec::new());
    for span in cell.split('`').skip(1).step_by(2) {
        if span.contains('/') {
            file = Some(span);
        } else {
            let file = file.unwrap_or_else(|| panic!("{PAGE}: `{span}` stands before its file"));
            tests.push((file.to_owned(), span.to_owned()));
        }
    }
    tests
}

/// The names of the test functions of a file.
fn tests_in(file: &Path) -> Vec<String> {
    let mut tests = Vec::new();
    let mut is_test = false;
    for line in fs::read_to_string(file).unwrap().lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("fn ").and_then(|rest| rest.split('(').next()) {
            if std::mem::take(&mut is_test) {
                tests.push(name.to_owned());
            }
        } else if line == "#[test]" {
            is_test = true;
        }
    }
    tests
}

/// The project's own Rust files, relative to its root.
fn rust_files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(root().join(dir)).unwrap().map(Result::unwrap) {
        let (name, path) = (entry.file_name(), dir.join(entry.file_name()));
        if entry.file_type().unwrap().is_dir() {
            if name != "target" && !name.to_string_lossy().starts_with('.') {
                rust_files(&path, out);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.push(path);
        }
    }
}

/// Tests that bear the id of a case in their names: id, file, name.
fn tests_by_id() -> BTreeSet<(String, String, String)> {
    let mut files = Vec::new();
    rust_files(Path::new(""), &mut files);
    let mut found = BTreeSet::new();
    for file in files {
        for name in tests_in(&root().join(&file)) {
            let id = name.get(..3).filter(|_| name.as_bytes().get(3) == Some(&b'_')).map(str::to_uppercase);
            if let Some(id) = id.filter(|id| is_id(id)) {
                found.insert((id, file.to_str().unwrap().to_owned(), name));
            }
        }
    }
    found
}

#[test]
fn each_case_is_on_the_page_once() {
    let mut seen = BTreeSet::new();
    for case in cases() {
        assert!(seen.insert(case.id.clone()), "{PAGE}: {} is there twice", case.id);
    }
    assert!(seen.len() > 100, "{PAGE}: {} cases were found", seen.len());
}

#[test]
fn every_test_that_the_page_names_exists() {
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for case in cases() {
        for (file, test) in case.tests {
            let path = root().join(&file);
            assert!(path.is_file(), "{PAGE}: {} names {file}, which is not there", case.id);
            let tests = files.entry(file.clone()).or_insert_with(|| tests_in(&path));
            assert!(tests.contains(&test), "{PAGE}: {} names {test}, which is no test of {file}", case.id);
        }
    }
}

#[test]
fn every_test_with_the_name_of_a_case_is_in_its_row() {
    let rows: BTreeMap<_, _> = cases().into_iter().map(|case| (case.id, case.tests)).collect();
    for (id, file, test) in tests_by_id() {
        let row = rows.get(&id).unwrap_or_else(|| panic!("{file}: {test} bears the name of a case that {PAGE} does not have"));
        assert!(row.contains(&(file.clone(), test.clone())), "{PAGE}: the row of {id} does not name {test} of {file}");
    }
}

#[test]
fn no_case_of_a_finished_part_is_open() {
    let open = cases().into_iter().filter(|case| case.is_open).map(|case| case.id);
    let open: Vec<_> = open.filter(|id| FINISHED.iter().any(|part| id.starts_with(part.to_ascii_uppercase()))).collect();
    assert!(open.is_empty(), "{PAGE}: {open:?} are open");
}

#[test]
fn the_page_has_every_case_of_its_source() {
    let source = root().join(SOURCE);
    if !source.exists() && env::var_os("CI").is_none() {
        return;
    }
    let source = fs::read_to_string(source).unwrap_or_else(|e| panic!("{SOURCE}: {e}"));
    let wanted: BTreeSet<_> = source.lines().filter_map(|line| line.strip_prefix("### ")?.get(..3)).filter(|id| is_id(id)).collect();
    let cases = cases();
    let there: BTreeSet<_> = cases.iter().map(|case| case.id.as_str()).collect();
    assert_eq!(wanted, there);
}
