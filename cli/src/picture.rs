//! The segments of a log as a picture: how large each is, and how much of it is live.

use std::fmt::Write as _;

use crate::output::{self, Canvas};

/// More segments than this are drawn as columns, many to a line.
const ROWS_MAX: usize = 32;
/// Columns of the row form before its bar: offset, size, share.
const LABEL_WIDTH: usize = 20 + 2 + 10 + 2 + 5 + 2;
/// What stands behind the bar of the active segment.
const ACTIVE: &str = " (active)";
const BAR_WIDTH_MIN: usize = 10;
const BAR_WIDTH_MAX: usize = 100;

/// One segment.
#[derive(Clone, Debug)]
pub(crate) struct Bar {
    /// What the segment is called, at most 20 characters: its base offset, perhaps with its partition.
    pub(crate) label: String,
    pub(crate) bytes: u64,
    /// Of `bytes`, those that compacting everything would keep.
    pub(crate) live_bytes: u64,
    pub(crate) active: bool,
}

/// Draws `bars`, oldest first: a line for each while there are few, else a column for each.
pub(crate) fn draw(bars: &[Bar], canvas: Canvas) -> String {
    if bars.len() <= ROWS_MAX { rows(bars, canvas) } else { columns(bars, canvas) }
}

fn rows(bars: &[Bar], canvas: Canvas) -> String {
    let (live_mark, dead_mark) = if canvas.unicode { ('█', '░') } else { ('#', '.') };
    let largest = bars.iter().map(|bar| bar.bytes).max().unwrap_or(0);
    let room = |width: usize| width.saturating_sub(LABEL_WIDTH).clamp(BAR_WIDTH_MIN, BAR_WIDTH_MAX);
    let mut area = room(canvas.width);
    // Behind its bar, the active segment has a word; the longest bar must leave room for it if it is this one.
    let noted = bars.iter().filter(|bar| bar.active).map(|bar| scaled(bar.bytes, largest, area)).max();
    if noted.is_some_and(|length| length + ACTIVE.len() > area) {
        area = room(canvas.width.saturating_sub(ACTIVE.len()));
    }
    let mut text = format!("{:>20}  {:>10}  {:>5}  {live_mark} live  {dead_mark} dead\n", "segment", "size", "live");
    for bar in bars {
        let (live, dead) = cells(bar, largest, area);
        let _ = write!(text, "{:>20}  {:>10}  {:>5}  ", bar.label, output::bytes(bar.bytes), output::percent(bar.live_bytes, bar.bytes));
        text.extend(std::iter::repeat_n(live_mark, live));
        text.extend(std::iter::repeat_n(dead_mark, dead));
        if bar.active {
            text.push_str(if live + dead == 0 { ACTIVE.trim_start() } else { ACTIVE });
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
    text
}

/// Cells of the live and of the dead part. Whatever has bytes has a cell, as far as the length allows.
fn cells(bar: &Bar, largest: u64, area: usize) -> (usize, usize) {
    if bar.bytes == 0 {
        return (0, 0);
    }
    let length = scaled(bar.bytes, largest, area).max(1);
    let dead_bytes = bar.bytes.saturating_sub(bar.live_bytes);
    let mut live = scaled(bar.live_bytes, bar.bytes, length);
    if length > 1 {
        live = live.clamp(usize::from(bar.live_bytes > 0), length - usize::from(dead_bytes > 0));
    }
    (live, length - live)
}

/// `part / whole * cells`, rounded.
fn scaled(part: u64, whole: u64, cells: usize) -> usize {
    let whole = u128::from(whole.max(1));
    let scaled = (u128::from(part) * cells as u128 + whole / 2) / whole;
    usize::try_from(scaled).map_or(cells, |n| n.min(cells))
}

fn columns(bars: &[Bar], canvas: Canvas) -> String {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const LEVELS_ASCII: [char; 8] = ['1', '2', '3', '4', '5', '6', '7', '8'];
    let levels = if canvas.unicode { LEVELS } else { LEVELS_ASCII };
    let per_line = canvas.width.saturating_sub(22).clamp(BAR_WIDTH_MIN, BAR_WIDTH_MAX) / 10 * 10;
    let mut text = format!(
        "{} segments, oldest first, a column each: the share that is live ({} all, {} little, . none)\n",
        output::count(bars.len() as u64),
        levels[7],
        levels[0]
    );
    for line in bars.chunks(per_line) {
        let _ = write!(text, "{:>20}  ", line[0].label);
        for bar in line {
            text.push(if bar.live_bytes == 0 { '.' } else { levels[scaled(bar.live_bytes, bar.bytes, 8).clamp(1, 8) - 1] });
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASCII: Canvas = Canvas { width: 62, text_width: 62, unicode: false };

    fn bar(base_offset: u64, bytes: u64, live_bytes: u64) -> Bar {
        Bar { label: base_offset.to_string(), bytes, live_bytes, active: false }
    }

    #[test]
    fn one_segment_takes_the_whole_width() {
        let text = draw(&[Bar { active: true, ..bar(0, 1 << 20, 1 << 19) }], Canvas { width: 70, text_width: 70, unicode: true });
        assert_eq!(
            text,
            "             segment        size   live  █ live  ░ dead\n                   0     1.0 MiB   50 %  ██████████░░░░░░░░░░ (active)\n"
        );
    }

    #[test]
    fn bars_are_as_long_as_their_segments_and_small_parts_stay_visible() {
        let text = draw(&[bar(0, 2000, 1), bar(100, 1000, 999), bar(200, 1, 1), bar(300, 0, 0)], ASCII);
        let bars: Vec<&str> = text.lines().skip(1).map(|line| line.get(41..).unwrap_or("")).collect();
        assert_eq!(bars, ["#....................", "##########.", "#", ""]);
        assert!(text.lines().all(|line| line.len() <= ASCII.width), "{text}");
    }

    #[test]
    fn a_thousand_segments_fit_on_a_screen() {
        let bars: Vec<Bar> = (0..1000).map(|i| bar(i * 10, 800, i % 9 * 100)).collect();
        let text = draw(&bars, Canvas { width: 100, text_width: 100, unicode: false });
        assert_eq!(text.lines().count(), 1 + 1000_usize.div_ceil(70));
        assert_eq!(text.lines().nth(1).unwrap(), format!("{:>20}  {}", 0, &".12345678".repeat(8)[..70]));
        let drawn: usize = text.lines().skip(1).map(|line| line.len() - 22).sum();
        assert_eq!(drawn, 1000);
    }

    #[test]
    fn no_number_overflows() {
        let huge = Bar { active: true, ..bar(u64::MAX, u64::MAX, u64::MAX) };
        assert!(draw(&vec![huge.clone(); 2], ASCII).lines().count() == 3);
        assert!(draw(&vec![huge; 40], ASCII).lines().count() > 1);
    }
}
