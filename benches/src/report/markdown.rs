//! The page of a report.

use std::fmt::Write;

use super::{Cell, Column, Report, Table};

/// Where it is from, what it says, and its tables.
pub(super) fn text(report: &Report) -> String {
    let mut page = format!("# {}\n\n{}\n\n", report.title, report.about);
    let taken = &report.taken;
    // invariant: writing to a string does not fail
    writeln!(
        page,
        "Taken on {} with `{}`, on {}, {} core{}, {} MiB of memory, {}; load before: {:.2}.\n",
        taken.date,
        taken.command,
        taken.processor,
        taken.cores,
        if taken.cores == 1 { "" } else { "s" },
        taken.memory_mib,
        taken.kernel,
        taken.load
    )
    .expect("a string takes it");
    if taken.debug_build {
        page += "**This was a debug build: the figures are of no use.**\n\n";
    }
    for note in &report.notes {
        page += &format!("- {note}\n");
    }
    if !report.notes.is_empty() {
        page.push('\n');
    }
    for table in &report.tables {
        page += &markdown(table);
        page.push('\n');
    }
    page
}

/// The same as a page beside its files: with the picture, and where every run is.
pub(super) fn page(report: &Report) -> String {
    let (mut page, name) = (text(report), &report.name);
    if !report.charts.is_empty() {
        page += &format!("![{}]({name}.svg)\n\n", report.title);
    }
    page += &format!("Every single run is in `{name}.json`, from which this page is made (`keeplog-benches report render {name}.json`).\n");
    page
}

fn markdown(table: &Table) -> String {
    let mut text = String::new();
    if !table.title.is_empty() {
        text += &format!("## {}\n\n", table.title);
    }
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    text += &line(table.columns.iter().map(|column| escape(&column.title)).collect());
    text += &format!("|{}|\n", table.columns.iter().map(|c| if c.digits.is_some() { "--:" } else { "---" }).collect::<Vec<_>>().join("|"));
    for row in &table.rows {
        text += &line(row.iter().zip(&table.columns).map(|(cell, column)| show(cell, column)).collect());
    }
    text
}

fn show(cell: &Cell, column: &Column) -> String {
    match cell {
        Cell::Number(number) => grouped(*number, column.digits.unwrap_or(0)),
        Cell::Text(text) => escape(text),
        Cell::Missing => "-".to_owned(),
    }
}

/// A number with its digits in threes.
pub(super) fn grouped(number: f64, digits: usize) -> String {
    let text = format!("{:.digits$}", number.abs());
    let (whole, rest) = text.split_once('.').map_or((text.as_str(), String::new()), |(whole, rest)| (whole, format!(".{rest}")));
    let sign = if number < 0.0 { "-" } else { "" };
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), crate::suite::thousands);
    format!("{sign}{whole}{rest}")
}

fn escape(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    #[test]
    fn the_page_shows_tables_and_where_they_are_from() {
        let page = page(&sample());
        let table = "## Sizes\n\n| Log | MB/s | ratio |\n|---|--:|--:|\n| a \\| b | 1,235 | 7.2 |\n| c | 0 | - |\n";
        for part in
            [table, "# A sample\n", "2026-11-30 12:00 UTC", "2 cores", "- Mind the gap.\n", "![A sample](sample.svg)", "load before: 0.25"]
        {
            assert!(page.contains(part), "{part} is missing in\n{page}");
        }
        assert!(!page.contains("debug build"));
        // What is printed has no files beside it.
        assert!(page.starts_with(&text(&sample())) && !text(&sample()).contains("sample."));
    }

    #[test]
    fn numbers_are_grouped() {
        for (number, digits, text) in [(0.0, 1, "0.0"), (1234.56, 1, "1,234.6"), (-1_000_000.0, 0, "-1,000,000"), (0.05, 2, "0.05")] {
            assert_eq!(grouped(number, digits), text);
        }
    }
}
