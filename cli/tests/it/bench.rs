//! `keeplog bench clean`: a pass over a log made for it.

use crate::harness::{command, finish};

#[test]
fn a_bench_shows_a_pass_and_leaves_nothing_behind() {
    let scratch = tempfile::tempdir().unwrap();
    let bench = |more: &[&str]| {
        let arguments = ["bench", "clean", "--mib", "3", "--keys", "500", "--threads", "2"].iter().chain(more);
        let run = finish(command(arguments).env("TMPDIR", scratch.path()).output().unwrap());
        assert_eq!((run.status, run.stderr.as_str()), (0, ""));
        assert_eq!(scratch.path().read_dir().unwrap().count(), 0, "the log is still there");
        run
    };
    let figures = bench(&["--json"]).json_lines().remove(0);
    let number = |field: &str| figures[field].as_f64().unwrap();
    assert_eq!((number("map_size"), number("records_written"), number("threads")), (500.0, 500.0, 2.0), "{figures}");
    assert!(number("records_read") > 20_000.0 && number("bytes_read") >= f64::from(3 << 20), "{figures}");
    assert!(number("bytes_per_second") > 0.0 && number("records_per_second") > 0.0, "{figures}");
    assert_eq!(number("new_dirty"), number("first_uncleanable"));
    let text = bench(&[]).stdout;
    for said in ["bench-0: cleaned offsets 0..", " MB/s, ", "records/s on 2 threads", "for each byte dropped", "500 keys"] {
        assert!(text.contains(said), "{said:?} is not in {text}");
    }
}
