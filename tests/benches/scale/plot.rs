//! Draws a curve as SVG: both axes are logarithmic, and each line has its name at its end.

use std::fmt::Write;

use crate::curve::{Curve, Line};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 340.0;
/// The area of the lines: left, right, top and bottom.
const AREA: [f64; 4] = [62.0, 440.0, 44.0, 286.0];
/// Between the names of two lines.
const LINE_HEIGHT: f64 = 18.0;

/// The picture brings its own background, because the page around it may be light or dark. The colours can be told apart by
/// people who do not see all colours.
const STYLE: &str = "
  .back { fill: #ffffff } .grid { stroke: #d8dce2 } text { fill: #30363d; font: 13px sans-serif }
  .title { font-weight: bold } polyline { fill: none; stroke-width: 2 }
  polyline.a { stroke: #0969da } polyline.b { stroke: #c2410c } polyline.c { stroke: #1a7f5a } polyline.d { stroke: #8250df }
  .a { fill: #0969da } .b { fill: #c2410c } .c { fill: #1a7f5a } .d { fill: #8250df }
  @media (prefers-color-scheme: dark) {
    .back { fill: #0d1117 } .grid { stroke: #30363d } text { fill: #d1d7e0 }
    polyline.a { stroke: #58a6ff } polyline.b { stroke: #f0883e } polyline.c { stroke: #3fb950 } polyline.d { stroke: #bc8cff }
    .a { fill: #58a6ff } .b { fill: #f0883e } .c { fill: #3fb950 } .d { fill: #bc8cff }
  }
  polyline { fill: none !important }
";

/// From a figure to its place between the two ends of an axis.
struct Axis {
    logs: [f64; 2],
    ends: [f64; 2],
}

impl Axis {
    fn place(&self, figure: f64) -> f64 {
        let [low, high] = self.logs;
        let share = (figure.log10() - low) / (high - low);
        self.ends[0] + share * (self.ends[1] - self.ends[0])
    }
}

/// The whole picture.
pub(crate) fn svg(curve: &Curve) -> String {
    let [left, right, top, bottom] = AREA;
    let lines = curve.lines();
    let (sizes, decades) = (curve.sizes(), decades(&lines));
    let (least, most) = sizes.fold((usize::MAX, 1), |(a, b), size| (a.min(size), b.max(size)));
    let x = Axis {
        logs: [least, most].map(|size| (size as f64).log10()),
        ends: [left, right],
    };
    let y = Axis {
        logs: [decades[0], decades[1]].map(f64::from),
        ends: [bottom, top],
    };
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
         height=\"{HEIGHT}\" role=\"img\">\n<title>{0}</title>\n<style>{STYLE}</style>\n\
         <rect class=\"back\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n",
        curve.title
    );
    text(&mut out, [12.0, 24.0], "class=\"title\"", curve.title);
    let centre = (left + right) / 2.0;
    let middle = "text-anchor=\"middle\"";
    text(&mut out, [centre, HEIGHT - 12.0], middle, curve.sizes);
    for decade in decades[0]..=decades[1] {
        let at = y.place(10_f64.powi(decade));
        grid(&mut out, [left, at], [right, at]);
        let label = grouped(10_f64.powi(decade));
        text(
            &mut out,
            [left - 8.0, at + 4.0],
            "text-anchor=\"end\"",
            &label,
        );
    }
    for size in curve.sizes() {
        let at = x.place(size as f64);
        grid(&mut out, [at, bottom], [at, bottom + 5.0]);
        text(&mut out, [at, bottom + 20.0], middle, &grouped(size as f64));
    }
    draw(&mut out, lines, &x, &y);
    out + "</svg>\n"
}

/// The lines, and their names at the right. Names of lines that end close together are moved apart.
fn draw(out: &mut String, lines: Vec<Line>, x: &Axis, y: &Axis) {
    let mut names = Vec::new();
    for ((name, points), class) in lines.into_iter().zip(["a", "b", "c", "d"]) {
        let places = points
            .iter()
            .map(|(size, figure)| [x.place(*size), y.place(*figure)]);
        let places: Vec<[f64; 2]> = places.collect();
        let path = places.iter().map(|[x, y]| format!("{x:.1},{y:.1}"));
        let path: Vec<String> = path.collect();
        writeln!(
            out,
            "<polyline class=\"{class}\" points=\"{}\"/>",
            path.join(" ")
        )
        .unwrap();
        for [x, y] in &places {
            writeln!(
                out,
                "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>"
            )
            .unwrap();
        }
        names.extend(places.last().map(|[_, y]| (*y, name, class)));
    }
    names.sort_by(|(a, ..), (b, ..)| a.total_cmp(b));
    let mut free_from = AREA[2];
    for (at, name, class) in names {
        let at = at.max(free_from);
        free_from = at + LINE_HEIGHT;
        let class = format!("class=\"{class}\"");
        text(out, [AREA[1] + 12.0, at + 4.0], &class, name);
    }
}

/// The powers of ten below and above all figures.
fn decades(lines: &[Line]) -> [i32; 2] {
    let figures = lines.iter().flat_map(|(_, points)| points);
    let logs: Vec<f64> = figures.map(|(_, figure)| figure.log10()).collect();
    let low = logs.iter().copied().fold(f64::MAX, f64::min).floor() as i32;
    let high = logs.iter().copied().fold(f64::MIN, f64::max).ceil() as i32;
    [low, high.max(low + 1)]
}

fn text(out: &mut String, [x, y]: [f64; 2], attributes: &str, text: &str) {
    writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" {attributes}>{text}</text>"
    )
    .unwrap();
}

fn grid(out: &mut String, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2]) {
    writeln!(
        out,
        "<line class=\"grid\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
    )
    .unwrap();
}

/// Thousands apart: `10 000`.
fn grouped(figure: f64) -> String {
    let text = figure.to_string();
    if figure >= 10_000.0 {
        format!("{} {}", &text[..text.len() - 3], &text[text.len() - 3..])
    } else {
        text
    }
}
