//! Plots as SVG, for any background: a transparent ground, and grey for everything that is not a figure.

use std::path::Path;

use plotters::{coord::Shift, prelude::*};

/// As legible on white as on black.
const INK: RGBColor = RGBColor(128, 128, 128);
const HUES: [RGBColor; 6] = [
    RGBColor(31, 136, 229),
    RGBColor(230, 120, 20),
    RGBColor(30, 160, 90),
    RGBColor(200, 70, 150),
    RGBColor(140, 110, 220),
    RGBColor(170, 140, 30),
];
const FONT: &str = "sans-serif";
/// In the units of plotters, which draws five pixels for six.
const TITLE: u32 = 22;
const TEXT: u32 = 16;
const WIDTH: u32 = 860;

/// A figure over rounds.
pub struct Bar {
    pub label: String,
    pub min: f64,
    pub median: f64,
    pub max: f64,
}

/// One figure over another.
pub struct Line {
    pub label: String,
    pub points: Vec<(f64, f64)>,
}

fn highest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::MIN_POSITIVE, f64::max) * 1.1
}

/// Horizontal bars as long as the medians, each with a whisker from the least to the greatest; they begin at zero.
/// `marked` draws a line through all of them, such as the figure to be reached.
pub fn bars(path: &Path, title: &str, unit: &str, bars: &[Bar], marked: Option<f64>) {
    let height = 90 + 34 * bars.len() as u32;
    let root = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    let most = highest(bars.iter().map(|bar| bar.max).chain(marked));
    let rows = bars.len() as f64;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, (FONT, TITLE, &INK))
        .margin(10)
        .x_label_area_size(44)
        .y_label_area_size(310)
        .build_cartesian_2d(0.0..most, rows..0.0)
        .unwrap();
    chart
        .configure_mesh()
        .disable_mesh()
        .axis_style(INK)
        .label_style((FONT, TEXT, &INK))
        .x_desc(unit)
        .y_labels(0)
        .draw()
        .unwrap();
    for (row, bar) in bars.iter().enumerate() {
        let (top, middle, end) = (row as f64 + 0.2, row as f64 + 0.5, row as f64 + 0.8);
        let hue = HUES[row % HUES.len()];
        chart.draw_series([Rectangle::new([(0.0, top), (bar.median, end)], hue.mix(0.75).filled())]).unwrap();
        let whisker = [
            vec![(bar.min, middle), (bar.max, middle)],
            vec![(bar.min, middle - 0.12), (bar.min, middle + 0.12)],
            vec![(bar.max, middle - 0.12), (bar.max, middle + 0.12)],
        ];
        chart.draw_series(whisker.map(|points| PathElement::new(points, INK.stroke_width(2)))).unwrap();
        write_label(&root, &format!("{}  {}", bar.label, short(bar.median)), chart.backend_coord(&(0.0, middle)));
    }
    if let Some(at) = marked {
        chart.draw_series([PathElement::new(vec![(at, 0.0), (at, rows)], INK.stroke_width(1))]).unwrap();
    }
    root.present().unwrap();
}

/// A row's label, left of where its bar begins.
fn write_label(root: &DrawingArea<SVGBackend, Shift>, text: &str, (x, y): (i32, i32)) {
    use plotters::style::text_anchor::{HPos, Pos, VPos};
    let style = (FONT, TEXT, &INK).into_text_style(root).pos(Pos::new(HPos::Right, VPos::Center));
    root.draw(&Text::new(text.to_owned(), (x - 8, y), style)).unwrap();
}

/// Three digits, as far as there are that many behind the point.
fn short(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A stretch of time in which something was done to what is measured.
pub struct Band {
    pub label: String,
    pub from: f64,
    pub to: f64,
}

/// Lines over time, from zero upwards, with bands behind them.
pub fn over_time(path: &Path, title: &str, (x_name, y_name): (&str, &str), lines: &[Line], bands: &[Band]) {
    let points = || lines.iter().flat_map(|line| &line.points);
    let end = points().fold(f64::MIN_POSITIVE, |end, &(x, _)| end.max(x));
    let most = highest(points().map(|&(_, y)| y));
    let root = SVGBackend::new(path, (WIDTH, 360)).into_drawing_area();
    let mut chart = ChartBuilder::on(&root)
        .caption(title, (FONT, TITLE, &INK))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..end, 0.0..most)
        .unwrap();
    let mut mesh = chart.configure_mesh();
    mesh.axis_style(INK).light_line_style(TRANSPARENT).bold_line_style(INK.mix(0.25));
    mesh.label_style((FONT, TEXT, &INK)).x_desc(x_name).y_desc(y_name).draw().unwrap();
    let ground = bands.iter().map(|band| Rectangle::new([(band.from, 0.0), (band.to, most)], INK.mix(0.2).filled()));
    chart.draw_series(ground).unwrap();
    for (line, hue) in lines.iter().zip(HUES.into_iter().cycle()) {
        chart
            .draw_series([PathElement::new(line.points.clone(), hue.stroke_width(1))])
            .unwrap()
            .label(line.label.clone())
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], hue.stroke_width(2)));
    }
    let mut legend = chart.configure_series_labels();
    legend.label_font((FONT, TEXT, &INK)).border_style(TRANSPARENT);
    legend.position(SeriesLabelPosition::UpperRight).draw().unwrap();
    let upright = (FONT, TEXT - 4, &INK).into_text_style(&root).transform(FontTransform::Rotate270);
    for band in bands {
        let (x, y) = chart.backend_coord(&(f64::midpoint(band.from, band.to), 0.0));
        root.draw(&Text::new(band.label.clone(), (x - 6, y - 4), upright.clone())).unwrap();
    }
    root.present().unwrap();
}

/// Lines with their points, from zero upwards; with `log_x` each step to the right is a factor.
pub fn lines(path: &Path, title: &str, (x_name, y_name): (&str, &str), lines: &[Line], log_x: bool) {
    let xs = || lines.iter().flat_map(|line| &line.points).map(|&(x, _)| x);
    let (least, greatest) = (xs().fold(f64::INFINITY, f64::min), xs().fold(f64::MIN_POSITIVE, f64::max));
    let most = highest(lines.iter().flat_map(|line| &line.points).map(|&(_, y)| y));
    let root = SVGBackend::new(path, (WIDTH, 420)).into_drawing_area();
    let mut builder = ChartBuilder::on(&root);
    builder.caption(title, (FONT, TITLE, &INK)).margin(10).x_label_area_size(40).y_label_area_size(70);
    // The two charts are of different types.
    macro_rules! draw {
        ($x:expr) => {{
            let mut chart = builder.build_cartesian_2d($x, 0.0..most).unwrap();
            let mut mesh = chart.configure_mesh();
            mesh.axis_style(INK).light_line_style(TRANSPARENT).bold_line_style(INK.mix(0.25));
            mesh.label_style((FONT, TEXT, &INK)).x_desc(x_name).y_desc(y_name).draw().unwrap();
            for (line, hue) in lines.iter().zip(HUES.into_iter().cycle()) {
                let points = line.points.iter().copied();
                chart
                    .draw_series([PathElement::new(line.points.clone(), hue.stroke_width(2))])
                    .unwrap()
                    .label(line.label.clone())
                    .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], hue.stroke_width(2)));
                chart.draw_series(points.map(|point| Circle::new(point, 3, hue.filled()))).unwrap();
            }
            let mut legend = chart.configure_series_labels();
            legend.label_font((FONT, TEXT, &INK)).border_style(TRANSPARENT);
            legend.position(SeriesLabelPosition::UpperLeft).draw().unwrap();
        }};
    }
    if log_x {
        draw!((least..greatest * 1.1).log_scale());
    } else {
        draw!(0.0..greatest * 1.05);
    }
    root.present().unwrap();
}
