//! A picture of comparisons: the time of each strategy by the wire's latency.

use std::error::Error;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::{
    Circle, Color, DrawingArea, IntoDrawingArea, IntoFont, PathElement, RGBColor, SVGBackend, Text, TextStyle,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::compare::{Algorithm, Comparison};
use crate::work::Strategy;

const WIDTH: i32 = 620;
const HEIGHT: i32 = 400;
/// Around the curves.
const LEFT: i32 = 70;
const RIGHT: i32 = 90;
const ABOVE: i32 = 50;
const BELOW: i32 = 60;
const SMALL: i32 = 15;
const LARGE: i32 = 18;
const INK: RGBColor = RGBColor(0x1F, 0x23, 0x28);
const GRID: RGBColor = RGBColor(0xD0, 0xD7, 0xDE);
/// By strategy: Okabe and Ito's colours, distinct for colour-blind viewers too.
const COLOURS: [RGBColor; 3] =
    [RGBColor(0xD5, 0x5E, 0x00), RGBColor(0x00, 0x9E, 0x73), RGBColor(0x00, 0x72, 0xB2)];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn Error + Send + Sync>>;

/// Draws them into a file, beside each other.
///
/// # Errors
/// The file cannot be written.
pub fn draw(path: &Path, comparisons: &[Comparison]) -> Drawn {
    let width = WIDTH * comparisons.len().max(1) as i32;
    let area = SVGBackend::new(path, (width.unsigned_abs(), HEIGHT.unsigned_abs())).into_drawing_area();
    area.fill(&RGBColor(255, 255, 255))?;
    for (number, comparison) in comparisons.iter().enumerate() {
        panel(&area, number as i32 * WIDTH, comparison)?;
    }
    Ok(area.present()?)
}

fn panel(area: &Area<'_>, left: i32, comparison: &Comparison) -> Drawn {
    let title = match comparison.algorithm {
        Algorithm::Search(_) => "Breadth-first search",
        Algorithm::Triangles => "Triangle counting",
    };
    let (first, last) = (left + LEFT, left + WIDTH - RIGHT);
    let (top, bottom) = (ABOVE, HEIGHT - BELOW);
    let times = |strategy| comparison.wires.iter().map(move |one| one.median(strategy) / 1e3);
    let most = Strategy::ALL.into_iter().flat_map(times).fold(0.0, f64::max);
    let (step, marks) = marks(most);
    let y = |ms: f64| bottom - (ms / (step * marks as f64) * f64::from(bottom - top)) as i32;
    let spaces = (comparison.wires.len() as i32 - 1).max(1);
    let x = |number: usize| first + (last - first) * number as i32 / spaces;
    write(area, title, (first, top / 2), LARGE, INK, (HPos::Left, VPos::Center))?;
    for mark in 0..=marks {
        let ms = step * mark as f64;
        area.draw(&PathElement::new([(first, y(ms)), (last, y(ms))], GRID))?;
        let decimals = if step < 1.0 { 1 } else { 0 };
        let label = format!("{ms:.decimals$} ms");
        write(area, &label, (first - 8, y(ms)), SMALL, INK, (HPos::Right, VPos::Center))?;
    }
    for (number, one) in comparison.wires.iter().enumerate() {
        let at = (x(number), bottom + 10);
        write(area, &format!("{}", one.wire), at, SMALL, INK, (HPos::Center, VPos::Top))?;
    }
    let middle = ((first + last) / 2, HEIGHT - 14);
    write(area, "latency of the wire one way, us", middle, SMALL, INK, (HPos::Center, VPos::Center))?;
    // Names stand beside the ends of curves, and not on each other.
    let mut names = Vec::new();
    for (strategy, colour) in Strategy::ALL.into_iter().zip(COLOURS) {
        let points: Vec<_> = times(strategy).enumerate().map(|(number, ms)| (x(number), y(ms))).collect();
        area.draw(&PathElement::new(points.clone(), colour.stroke_width(2)))?;
        for point in &points {
            area.draw(&Circle::new(*point, 4, colour.filled()))?;
        }
        names.extend(points.last().map(|point| (point.1, strategy.name(), colour)));
    }
    names.sort_by_key(|name| name.0);
    let mut above = i32::MIN;
    for (height, name, colour) in names {
        let height = height.max(above.saturating_add(SMALL + 3));
        write(area, name, (last + 12, height), SMALL, colour, (HPos::Left, VPos::Center))?;
        above = height;
    }
    Ok(())
}

/// The distance of marks, and their number above zero: at most ten, of which the last one is no less.
fn marks(most: f64) -> (f64, usize) {
    let most = most.max(1e-3);
    let decade = 10_f64.powf(most.log10().floor() - 1.0);
    let steps = [1.0, 2.0, 5.0, 10.0, 20.0].map(|step| step * decade);
    let step = steps.into_iter().find(|step| most / step <= 10.0).unwrap_or(most / 10.0);
    (step, (most / step).ceil() as usize)
}

fn write(
    area: &Area<'_>,
    text: &str,
    at: (i32, i32),
    size: i32,
    colour: RGBColor,
    (horizontal, vertical): (HPos, VPos),
) -> Drawn {
    let font = ("sans-serif", size).into_font();
    let style = TextStyle { pos: Pos::new(horizontal, vertical), ..TextStyle::from(font).color(&colour) };
    Ok(area.draw(&Text::new(text.to_owned(), at, style))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_reach_the_longest_time() {
        for most in [0.004, 0.09, 1.0, 3.7, 99.0, 1234.5] {
            let (step, number) = marks(most);
            assert!(
                (1..=10).contains(&number) && step * number as f64 >= most * 0.999,
                "{most}: {step} {number}"
            );
        }
    }
}
