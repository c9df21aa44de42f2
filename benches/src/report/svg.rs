//! The charts of a report as a picture. It has no background of its own, and colours that can be read on a light and on a dark
//! one.

use std::fmt::Write;

use super::markdown::grouped;
use super::{Chart, Places, Report};

const WIDTH: f64 = 760.0;
const MARGIN: f64 = 16.0;
const COLOURS: [&str; 5] = ["#2f81f7", "#d29922", "#8b949e", "#3fb950", "#db61a2"];
const STYLE: &str = "text{font:12px system-ui,sans-serif;fill:#1f2328}.t{font-weight:600;font-size:14px}.g{stroke:#8b949e;stroke-opacity:.35}\
.d{stroke:#8b949e;stroke-dasharray:4 4}@media(prefers-color-scheme:dark){text{fill:#e6edf3}}";

/// All charts, one below the other.
pub(super) fn picture(report: &Report) -> String {
    let mut pen = Pen { out: String::new(), y: MARGIN };
    for chart in &report.charts {
        match &chart.places {
            Places::Groups(labels) => pen.bars(chart, labels),
            Places::Along { axis, at } => pen.lines(chart, axis, at),
        }
    }
    let height = pen.y;
    let taken = format!("{}; {}", report.taken.date, report.taken.processor);
    pen.y += 12.0;
    pen.text(MARGIN, &taken, "", "start");
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {:.0}\" width=\"{WIDTH}\" role=\"img\"><title>{}</title>\
         <style>{STYLE}</style>\n{}</svg>\n",
        height + 24.0,
        escape(&report.title),
        pen.out
    )
}

/// Draws from the top down.
struct Pen {
    out: String,
    y: f64,
}

impl Pen {
    /// Groups of bars from a common left edge; the longest takes the width.
    fn bars(&mut self, chart: &Chart, labels: &[String]) {
        const BAR: f64 = 13.0;
        self.head(chart);
        let largest = chart.series.iter().flat_map(|series| &series.values).flatten().fold(0.0_f64, |a, &b| a.max(b));
        for (group, label) in labels.iter().enumerate() {
            self.y += 18.0;
            self.text(MARGIN, label, "", "start");
            self.y += 5.0;
            for (kind, series) in chart.series.iter().enumerate() {
                let Some(value) = series.values.get(group).copied().flatten() else { continue };
                let width = (WIDTH - 2.0 * MARGIN - 80.0) * if largest > 0.0 { value / largest } else { 0.0 };
                self.put(&format!(
                    "<rect x=\"{MARGIN}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{}\"/>",
                    self.y,
                    BAR - 2.0,
                    COLOURS[kind % COLOURS.len()]
                ));
                self.y += BAR;
                let (at, shown) = (self.y, short(value));
                self.y -= 3.0;
                self.text(MARGIN + width + 5.0, &shown, "", "start");
                self.y = at;
            }
        }
        self.y += 28.0;
    }

    /// Lines over logarithmic axes, one power of ten a grid line, and a dashed one that shows linear growth.
    fn lines(&mut self, chart: &Chart, axis: &str, at: &[f64]) {
        const HEIGHT: f64 = 220.0;
        self.head(chart);
        let values = || chart.series.iter().flat_map(|series| &series.values).flatten().copied().filter(|value| *value > 0.0);
        let (Some(x), Some(y)) = (Scale::around(at.iter().copied()), Scale::around(values())) else { return };
        let (left, right, top) = (MARGIN + 64.0, WIDTH - MARGIN, self.y + 14.0);
        let place_x = |value: f64| left + (right - left) * x.share(value);
        let place_y = |value: f64| top + HEIGHT * (1.0 - y.share(value));
        for power in y.powers() {
            let line = place_y(power);
            self.put(&format!("<path class=\"g\" d=\"M{left} {line:.1}H{right}\"/>"));
            self.y = line + 4.0;
            self.text(left - 6.0, &short(power), "", "end");
        }
        self.y = top + HEIGHT + 16.0;
        for &value in at {
            self.text(place_x(value), &short(value), "", "middle");
        }
        let first = chart.series.iter().find_map(|s| at.iter().zip(&s.values).find_map(|(x, v)| v.filter(|v| *v > 0.0).map(|v| (*x, v))));
        if let Some((from_x, from_y)) = first {
            // As far as both axes go.
            let factor = (x.to / from_x).min(y.to / from_y);
            let (from, to) = ((place_x(from_x), place_y(from_y)), (place_x(from_x * factor), place_y(from_y * factor)));
            self.put(&format!("<path class=\"d\" fill=\"none\" d=\"M{:.1} {:.1}L{:.1} {:.1}\"/>", from.0, from.1, to.0, to.1));
        }
        for (kind, series) in chart.series.iter().enumerate() {
            let colour = COLOURS[kind % COLOURS.len()];
            let points: Vec<(f64, f64)> =
                at.iter().zip(&series.values).filter_map(|(x, v)| v.filter(|v| *v > 0.0).map(|v| (place_x(*x), place_y(v)))).collect();
            let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
            self.put(&format!("<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>", path.join(" ")));
            for (x, y) in points {
                self.put(&format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"));
            }
        }
        self.y += 18.0;
        self.text(f64::midpoint(left, right), &format!("{axis} (both axes logarithmic; dashed: linear)"), "", "middle");
        self.y += 28.0;
    }

    /// The title and what the colours mean.
    fn head(&mut self, chart: &Chart) {
        self.y += 12.0;
        self.text(MARGIN, &chart.title, "t", "start");
        self.y += 20.0;
        let mut x = MARGIN;
        for (kind, series) in chart.series.iter().enumerate() {
            let colour = COLOURS[kind % COLOURS.len()];
            self.put(&format!("<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>", self.y - 9.0));
            self.text(x + 15.0, &series.name, "", "start");
            x += 40.0 + 6.5 * series.name.chars().count() as f64;
        }
    }

    fn text(&mut self, x: f64, text: &str, class: &str, anchor: &str) {
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        let y = self.y;
        self.put(&format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{class}>{}</text>", escape(text)));
    }

    fn put(&mut self, element: &str) {
        // invariant: writing to a string does not fail
        writeln!(self.out, "{element}").expect("a string takes it");
    }
}

/// A logarithmic axis.
struct Scale {
    from: f64,
    to: f64,
}

impl Scale {
    /// Room for all of `values`; `None` if there are none.
    fn around(values: impl Iterator<Item = f64>) -> Option<Self> {
        let (from, to) = values.fold((f64::INFINITY, 0.0_f64), |(from, to), value| (from.min(value), to.max(value)));
        (from.is_finite() && from > 0.0).then_some(Self { from: from * 0.8, to: to * 1.25 })
    }

    /// How far along the axis a value stands, 0 to 1.
    fn share(&self, value: f64) -> f64 {
        (value / self.from).ln() / (self.to / self.from).ln()
    }

    /// The powers of ten on it; where there is but one or none, some steps between.
    fn powers(&self) -> Vec<f64> {
        let powers: Vec<f64> = (-9..15).map(|power| 10_f64.powi(power)).collect();
        let steps: &[f64] = if self.to / self.from > 100.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let all = powers.iter().flat_map(|power| steps.iter().map(move |step| step * power));
        all.filter(|value| (self.from..=self.to).contains(value)).collect()
    }
}

/// A number with about three digits.
fn short(value: f64) -> String {
    let digits = if value >= 100.0 || value.fract() == 0.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    match value {
        v if v >= 1e6 => format!("{} M", grouped(v / 1e6, usize::from(v < 1e7 && v % 1e6 != 0.0))),
        v if v > 0.0 && v < 0.01 => format!("{v:.4}"),
        v => grouped(v, digits),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    /// The elements of a picture, if each that is opened is closed in order and no text is left bare.
    fn elements(picture: &str) -> Vec<String> {
        let mut open = Vec::new();
        let mut all = Vec::new();
        for tag in picture.split('<').skip(1) {
            let (tag, text) = tag.split_once('>').expect("a tag ends");
            assert!(!text.replace("&amp;", "").replace("&lt;", "").replace("&gt;", "").contains('&'), "{text}");
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name.to_owned()));
            } else {
                let name = tag.trim_end_matches('/').split(' ').next().unwrap().to_owned();
                all.push(name.clone());
                if !tag.ends_with('/') {
                    open.push(name);
                }
            }
        }
        assert!(open.is_empty(), "{open:?} are not closed");
        all
    }

    #[test]
    fn a_picture_has_a_mark_for_each_value() {
        let picture = picture(&sample());
        let count = |name: &str| elements(&picture).iter().filter(|element| *element == name).count();
        // Three bars, and a square for each of four kinds.
        assert_eq!((count("rect"), count("circle"), count("polyline")), (3 + 4, 3, 2));
        assert!(picture.contains("a &amp; b") && picture.contains("Some &lt;CPU&gt; &amp; more"));
        assert!(picture.contains("prefers-color-scheme:dark"));
    }

    #[test]
    fn bars_are_as_long_as_their_values() {
        let picture = picture(&sample());
        let widths: Vec<f64> = picture
            .lines()
            .filter(|line| line.starts_with("<rect x=\"16\""))
            .map(|line| line.split("width=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(widths, [162.0, 648.0, 324.0]);
    }

    #[test]
    fn an_axis_reaches_around_its_values() {
        let scale = Scale::around([10.0, 1000.0].into_iter()).unwrap();
        assert!(scale.share(10.0) > 0.0 && scale.share(1000.0) < 1.0);
        assert!((scale.share(100.0) - 0.5).abs() < 1e-9);
        assert_eq!(scale.powers(), [10.0, 100.0, 1000.0]);
        assert!(Scale::around(std::iter::empty()).is_none());
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in
            [(0.001, "0.0010"), (0.5, "0.50"), (12.34, "12.3"), (1234.0, "1,234"), (50e6, "50 M"), (1.5e6, "1.5 M"), (256.0, "256")]
        {
            assert_eq!(short(value), text);
        }
    }
}
