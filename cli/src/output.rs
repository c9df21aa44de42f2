//! What commands print, and how numbers, times, names and bytes look in it.

use std::fmt::Write as _;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;

use crate::failure::Failure;

const WIDTH_DEFAULT: usize = 80;
const WIDTH_MIN: usize = 40;
/// Characters of a name that are shown.
const SHOWN_MAX: usize = 249;

/// Standard output, buffered. All that a command prints goes through here, so that a reader who leaves early is no
/// reason to crash.
pub(crate) struct Out {
    stdout: BufWriter<StdoutLock<'static>>,
    /// Whether the command goes on when nobody reads any more.
    goes_on: bool,
    gone: bool,
}

impl Out {
    /// Of a command that only prints: it ends with its reader.
    pub(crate) fn new() -> Self {
        Self { stdout: BufWriter::with_capacity(1 << 16, io::stdout().lock()), goes_on: false, gone: false }
    }

    /// Of a command whose work and exit status count, whether anybody reads or not.
    pub(crate) fn of_work() -> Self {
        Self { goes_on: true, ..Self::new() }
    }

    fn outcome(&mut self, result: io::Result<()>) -> Result<(), Failure> {
        match result {
            Err(e) if self.goes_on && e.kind() == io::ErrorKind::BrokenPipe => {
                self.gone = true;
                Ok(())
            }
            other => other.map_err(|e| Failure::output(&e)),
        }
    }

    /// Prints `text` as it is.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), Failure> {
        if self.gone {
            return Ok(());
        }
        let written = self.stdout.write_all(text.as_bytes());
        self.outcome(written)
    }

    /// Prints `text` and ends the line.
    pub(crate) fn line(&mut self, text: &str) -> Result<(), Failure> {
        self.text(text)?;
        self.text("\n")
    }

    /// Prints `value` as one line of JSON.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let line = serde_json::to_string(value).map_err(|e| Failure::output(&e.into()))?;
        self.line(&line)
    }

    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        if self.gone {
            return Ok(());
        }
        let flushed = self.stdout.flush();
        self.outcome(flushed)
    }
}

/// How wide the output may be, and whether it may hold more than ASCII.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Canvas {
    pub(crate) width: usize,
    /// How wide sentences may be: what is not read on a terminal, or may be searched, is not broken up.
    pub(crate) text_width: usize,
    pub(crate) unicode: bool,
}

impl Canvas {
    /// As the terminal and the locale say.
    pub(crate) fn of_stdout() -> Self {
        let terminal = io::stdout().is_terminal().then(terminal_size::terminal_size).flatten();
        let columns = terminal.map(|(width, _)| usize::from(width.0));
        let asked = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
        let width = columns.or(asked).unwrap_or(WIDTH_DEFAULT).max(WIDTH_MIN);
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
        let unicode = locale.is_some_and(|name| {
            let name = name.to_ascii_lowercase();
            name.contains("utf-8") || name.contains("utf8")
        });
        let text_width = if columns.or(asked).is_some() { width } else { usize::MAX };
        Self { width, text_width, unicode }
    }
}

/// A table without borders. Columns whose header starts with `>` are set right.
pub(crate) fn table(headers: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(headers.iter().map(|header| Cell::new(header.trim_start_matches('>'))));
    for row in rows {
        table.add_row(row);
    }
    for (i, header) in headers.iter().enumerate() {
        if let Some(column) = table.column_mut(i) {
            column.set_padding((0, 2));
            if header.starts_with('>') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    let mut text = String::new();
    for line in table.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Indents every line of `text` by two.
pub(crate) fn indent(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 16);
    for line in text.lines() {
        if !line.is_empty() {
            out.push_str("  ");
            out.push_str(line);
        }
        out.push('\n');
    }
    out
}

/// `text` in lines of at most `width` characters (longer words stay whole), each with `indent` spaces before it.
pub(crate) fn wrap(text: &str, indent: usize, width: usize) -> String {
    let room = width.saturating_sub(indent).max(WIDTH_MIN / 2);
    let mut out = String::new();
    let mut used = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if used > 0 && used + 1 + length <= room {
            out.push(' ');
            used += 1 + length;
        } else {
            if used > 0 {
                out.push('\n');
            }
            out.extend(std::iter::repeat_n(' ', indent));
            used = length;
        }
        out.push_str(word);
    }
    out.push('\n');
    out
}

/// `head`, and after it `text` in lines that all begin below its first word.
pub(crate) fn hanging(head: &str, text: &str, width: usize) -> String {
    format!("{head}{}", wrap(text, head.chars().count(), width).trim_start_matches(' '))
}

/// `10.0 MiB`, in powers of 1024.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// `2,000,000`.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 batch`, `2 batches`: the count with the right form of its noun.
pub(crate) fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(n), if n == 1 { one } else { many })
}

/// `12 %`; `-` of nothing.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.0} %", part as f64 * 100.0 / whole as f64) }
}

/// `0.42 s`, `3 min 05 s`, `5 h 07 min`, `417 days`.
pub(crate) fn seconds(value: f64) -> String {
    if value < 1.0 {
        format!("{:.0} ms", value * 1000.0)
    } else if value < 10.0 {
        format!("{value:.2} s")
    } else if value < 120.0 {
        format!("{value:.0} s")
    } else {
        let (minutes, hours) = ((value / 60.0).floor(), (value / 3600.0).floor());
        match hours {
            ..2.0 => format!("{minutes} min {:02.0} s", (value % 60.0).floor()),
            2.0..48.0 => format!("{hours} h {:02.0} min", minutes % 60.0),
            _ => format!("{} days", (hours / 24.0).floor()),
        }
    }
}

/// `2026-11-29 20:12:24.708`, UTC; `-` for -1, which stands for no timestamp.
pub(crate) fn time(ms: i64) -> String {
    if ms == -1 { "-".to_owned() } else { format!("{}.{:03}", time_to_seconds(ms), ms.rem_euclid(1000)) }
}

/// `2026-11-29 20:12:24`, UTC; `-` for -1, which stands for no timestamp.
pub(crate) fn time_to_seconds(ms: i64) -> String {
    if ms == -1 {
        return "-".to_owned();
    }
    let days = ms.div_euclid(86_400_000);
    let of_day = ms.rem_euclid(86_400_000);
    let (year, month, day) = civil_date(days);
    let (hour, minute, second) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// The date `days` after 1970-01-01 in the Gregorian calendar, by counting in eras of 400 years that start in March
/// (so that the leap day comes last).
fn civil_date(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Bytes from a log for a human: quoted text if they are printable UTF-8, else hex; cut after `max` characters.
pub(crate) fn data(bytes: &[u8], max: usize) -> String {
    let mut out = String::new();
    match std::str::from_utf8(bytes) {
        Ok(text) if text.chars().all(|c| !c.is_control()) => {
            out.push('"');
            let mut chars = text.chars();
            out.extend(chars.by_ref().take(max));
            out.push('"');
            note_rest(&mut out, chars.as_str().len());
        }
        _ => {
            let shown = bytes.len().min(max / 2);
            out.push_str("0x");
            push_hex(&mut out, &bytes[..shown]);
            note_rest(&mut out, bytes.len() - shown);
        }
    }
    out
}

fn note_rest(out: &mut String, bytes: usize) {
    if bytes > 0 {
        let _ = write!(out, "...+{bytes} B");
    }
}

/// The first `max` characters of a text from outside, safe to print.
pub(crate) fn clipped(text: &str, max: usize) -> String {
    let mut chars = text.chars();
    let mut out = name(&chars.by_ref().take(max).collect::<String>());
    note_rest(&mut out, chars.as_str().len());
    out
}

/// A name for a table or a message: as long as a topic's may be, since one that was planted can have 32 KB, and would make
/// every row of a table as wide.
pub(crate) fn shown(text: &str) -> String {
    clipped(text, SHOWN_MAX)
}

/// Appends lower-case hex.
pub(crate) fn push_hex(out: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.push(char::from(DIGITS[usize::from(byte >> 4)]));
        out.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

/// A name from outside (a file, a group) with control characters escaped, so that it can't drive the terminal.
pub(crate) fn name(text: &str) -> String {
    if !text.chars().any(char::is_control) {
        return text.to_owned();
    }
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect::<Vec<_>>() } else { vec![c] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_counts_read_well() {
        assert_eq!([0, 1023, 1024, 10 << 20, u64::MAX].map(bytes), ["0 B", "1023 B", "1.0 KiB", "10.0 MiB", "16384.0 PiB"]);
        assert_eq!(bytes((1 << 20) - 1), "1.0 MiB");
        assert_eq!([0, 999, 1000, 2_000_000].map(count), ["0", "999", "1,000", "2,000,000"]);
        assert_eq!(counted(1, "batch", "batches"), "1 batch");
        assert_eq!([percent(1, 3), percent(0, 0)], ["33 %", "-"]);
        assert_eq!([0.0421, 3.0, 42.42, 185.7].map(seconds), ["42 ms", "3.00 s", "42 s", "3 min 05 s"]);
        assert_eq!([7199.0, 18_450.0, 36_054_013.0].map(seconds), ["119 min 59 s", "5 h 07 min", "417 days"]);
    }

    #[test]
    fn times_follow_the_calendar() {
        assert_eq!(time(0), "1970-01-01 00:00:00.000");
        assert_eq!(time(-1), "-");
        assert_eq!(time(1_709_210_096_789), "2024-02-29 12:34:56.789");
        assert_eq!(time(-2), "1969-12-31 23:59:59.998");
        assert_eq!(time(4_102_444_800_000), "2100-01-01 00:00:00.000");
        for extreme in [i64::MIN, i64::MAX] {
            assert!(!time(extreme).is_empty());
        }
    }

    #[test]
    fn bytes_of_records_are_text_where_they_can_be() {
        assert_eq!(data(b"EURUSD", 20), "\"EURUSD\"");
        assert_eq!(data("größe".as_bytes(), 3), "\"grö\"...+3 B");
        assert_eq!(data(b"\x1b[2J", 20), "0x1b5b324a");
        assert_eq!(data(&[0xff; 9], 8), "0xffffffff...+5 B");
        assert_eq!(name("a\x1b[0m\n"), "a\\u{1b}[0m\\n");
    }

    #[test]
    fn long_text_wraps_between_words() {
        assert_eq!(wrap("one two  three", 2, 24), "  one two three\n");
        assert_eq!(wrap("aaaaaaaaaaaa bbbbbbbbbbb cc", 2, 24), "  aaaaaaaaaaaa\n  bbbbbbbbbbb cc\n");
        assert_eq!(wrap("x".repeat(50).as_str(), 0, 40), format!("{}\n", "x".repeat(50)));
        assert_eq!(hanging("  ab  ", "one two three four five", 26), "  ab  one two three four\n      five\n");
        assert_eq!(hanging("ab ", "one two", usize::MAX), "ab one two\n");
    }

    #[test]
    fn a_table_has_no_borders_and_no_trailing_space() {
        let text = table(&["name", ">size"], [vec!["a".to_owned(), "10".to_owned()], vec!["longer".to_owned(), "9".to_owned()]]);
        assert_eq!(text, "name    size\na         10\nlonger     9\n");
    }
}
