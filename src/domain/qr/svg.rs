//! Writes a symbol as SVG: a background and one path.

use super::symbol::{QUIET_ZONE, Symbol};
use super::{Light, QrOptions};
use std::fmt::Write as _;

pub(super) fn draw(symbol: &Symbol, options: &QrOptions) -> String {
    let side = symbol.image_side();
    let pixels = u16::from(side) * u16::from(options.scale.get());
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{pixels}\" height=\"{pixels}\" \
         viewBox=\"0 0 {side} {side}\" shape-rendering=\"crispEdges\">"
    );
    if let Light::Opaque(light) = options.light {
        push(&mut svg, format_args!("<rect width=\"{side}\" height=\"{side}\" fill=\"{light}\"/>"));
    }
    push(&mut svg, format_args!("<path fill=\"{}\" d=\"", options.dark));
    for (row, y) in symbol.rows().zip(QUIET_ZONE..) {
        push_row(&mut svg, row, y);
    }
    svg.push_str("\"/></svg>\n");
    svg
}

/// Adds a rectangle to the path data for each run of dark modules in a row.
fn push_row(svg: &mut String, row: &[bool], y: u8) {
    let mut run = 0;
    // A light module after the last one ends a run at the edge.
    for (dark, x) in row.iter().chain([&false]).zip(QUIET_ZONE..) {
        if *dark {
            run += 1;
        } else if run > 0 {
            push(svg, format_args!("M{} {y}h{run}v1h-{run}z", x - run));
            run = 0;
        }
    }
}

fn push(svg: &mut String, text: std::fmt::Arguments) {
    let _ = svg.write_fmt(text); // writing to a `String` never fails
}
