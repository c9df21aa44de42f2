//! The figures of the offset store on one page: loads, snapshots, commits and fetches.

use keeplog_benches::Figures;
use keeplog_benches::report::{Cell, Column, Report, Table, Taken};

use crate::args::{Common, Offsets, Reload};
use crate::load::{self, MAP};
use crate::{Outcome, commits, reload};

const ABOUT: &str = "Loads: logs of committed offsets of several shapes, in the page cache, into the cache of the offset store; beside it, in the same run, a plain \
replay record by record into a map with all of each key, and what both come to is compared. A is 10,000 groups x 20 topics x 50 partitions, cleaned, one record a \
batch, in no order; B has 20 a batch; C two million places, five records each; D is C in zstd, 100 a batch; A50 is A in 50 logs; E 200,000 groups x 1 topic x 50; \
F 1,000,000 groups x 10 topics x 1. Bytes an entry are by the cache's own account, and by the growth of the process. Snapshots: of as many offsets in four partitions.";

/// Everything in turn.
pub(crate) fn run(args: &Offsets, common: &Common) -> Outcome<Report> {
    let taken = Taken::now();
    let loads = load::run(&args.load, common)?;
    let reloads = reload::run(&Reload::of_scale(args.load.scale), common)?;
    let commits = commits::run(&args.commits, common)?;
    let mut report = Report::new("offsets", "The offset store", &format!("{ABOUT} {}", commits.about), taken);
    report.tables.push(loads_table(&loads));
    report.tables.push(snapshots_table(&reloads));
    let titled = |table| Table { title: "Commits and fetches".into(), ..table };
    report.tables.extend(commits.tables.into_iter().map(titled));
    report.runs.extend(loads.iter().chain(&reloads).map(Figures::json).chain(commits.runs));
    Ok(report)
}

fn loads_table(loads: &[Figures]) -> Table {
    let columns = vec![
        Column::text("log"),
        Column::text("loaded with"),
        Column::number("records/s", 0),
        Column::number("times the map", 1),
        Column::number("seconds", 2),
        Column::number("bytes an entry", 1),
        Column::number("resident", 1),
    ];
    let row = |figures: &Figures| {
        let (shape, how) = figures.name.split_once(", ").unwrap_or((&figures.name, ""));
        let map = loads.iter().find(|other| other.name == format!("{shape}, {MAP}"));
        let more = |key: &str| Cell::from(figures.more[key].as_f64());
        vec![
            Cell::Text(shape.to_owned()),
            Cell::Text(how.to_owned()),
            Cell::Number(figures.records_per_s()),
            Cell::from(map.map(|map| figures.records_per_s() / map.records_per_s())),
            Cell::Number(figures.seconds()),
            more("bytes_per_entry"),
            more("resident_per_entry"),
        ]
    };
    Table { title: "Loads".into(), columns, rows: loads.iter().map(row).collect() }
}

fn snapshots_table(reloads: &[Figures]) -> Table {
    let columns = vec![Column::text("what"), Column::number("seconds", 3), Column::number("MB/s", 0), Column::number("bytes an entry", 1)];
    let row = |figures: &Figures| {
        let bytes = figures.runs.first().map(|run| run.bytes as f64 / run.records.max(1) as f64);
        vec![Cell::Text(figures.name.clone()), Cell::Number(figures.seconds()), Cell::Number(figures.mb_per_s()), Cell::from(bytes)]
    };
    Table { title: "Snapshots, beside the logs themselves".into(), columns, rows: reloads.iter().map(row).collect() }
}
