//! Medians of times, and pictures of them, for the examples that measure.

#![deny(missing_docs)]

use std::error::Error;
use std::path::{Path, PathBuf};

use plotters::coord::Shift;
use plotters::prelude::{
    Circle, Color, DrawingArea, IntoDrawingArea, IntoFont, PathElement, RGBColor, SVGBackend, Text, TextStyle,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};

const WIDTH: i32 = 620;
const HEIGHT: i32 = 400;
/// Space around the curves.
const LEFT: i32 = 70;
const RIGHT: i32 = 90;
const ABOVE: i32 = 50;
const BELOW: i32 = 60;
const SMALL: i32 = 15;
const LARGE: i32 = 18;
const INK: RGBColor = RGBColor(0x1F, 0x23, 0x28);
const GRID: RGBColor = RGBColor(0xD0, 0xD7, 0xDE);
/// By curve: Okabe and Ito's colours, distinct for colour-blind viewers too.
const COLOURS: [RGBColor; 3] =
    [RGBColor(0xD5, 0x5E, 0x00), RGBColor(0x00, 0x9E, 0x73), RGBColor(0x00, 0x72, 0xB2)];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn Error + Send + Sync>>;

/// Curves over the same points.
#[derive(Clone, PartialEq, Debug)]
pub struct Panel {
    /// The title.
    pub title: String,
    /// The name of the points, with their unit.
    pub axis: String,
    /// The points, at equal distances.
    pub points: Vec<String>,
    /// At most three curves: the name, and a time in milliseconds for each point.
    pub curves: Vec<(String, Vec<f64>)>,
}

/// Returns the median of some times; NaN of none.
pub fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        len => (sorted[(len - 1) / 2] + sorted[len / 2]) / 2.0,
    }
}

/// Returns the median, the least and the most of some values; NaN, infinity and 0 of none.
pub fn spread(values: &[f64]) -> [f64; 3] {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    [median(values), least, values.iter().copied().fold(0.0, f64::max)]
}

/// Reads the value of an option for the file of a picture.
///
/// # Errors
/// A sentence, if it is no name of an SVG file.
pub fn svg_path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.extension().is_some_and(|ending| ending == "svg") {
        Ok(path)
    } else {
        Err("the picture is an SVG: end the name with .svg".to_owned())
    }
}

/// Draws panels into an SVG file, beside each other.
///
/// # Errors
/// The file cannot be written.
pub fn draw(path: &Path, panels: &[Panel]) -> Drawn {
    let width = WIDTH * panels.len().max(1) as i32;
    let area = SVGBackend::new(path, (width.unsigned_abs(), HEIGHT.unsigned_abs())).into_drawing_area();
    area.fill(&RGBColor(255, 255, 255))?;
    for (number, panel) in panels.iter().enumerate() {
        draw_panel(&area, number as i32 * WIDTH, panel)?;
    }
    Ok(area.present()?)
}

fn draw_panel(area: &Area<'_>, left: i32, panel: &Panel) -> Drawn {
    let (first, last) = (left + LEFT, left + WIDTH - RIGHT);
    let (top, bottom) = (ABOVE, HEIGHT - BELOW);
    let most = panel.curves.iter().flat_map(|(_, times)| times.iter().copied()).fold(0.0, f64::max);
    let (step, marks) = marks(most);
    let y = |ms: f64| bottom - (ms / (step * marks as f64) * f64::from(bottom - top)) as i32;
    let spaces = (panel.points.len() as i32 - 1).max(1);
    let x = |number: usize| first + (last - first) * number as i32 / spaces;
    write(area, &panel.title, (first, top / 2), LARGE, INK, (HPos::Left, VPos::Center))?;
    for mark in 0..=marks {
        let ms = step * mark as f64;
        area.draw(&PathElement::new([(first, y(ms)), (last, y(ms))], GRID))?;
        let decimals = if step < 1.0 { 1 } else { 0 };
        let label = format!("{ms:.decimals$} ms");
        write(area, &label, (first - 8, y(ms)), SMALL, INK, (HPos::Right, VPos::Center))?;
    }
    for (number, point) in panel.points.iter().enumerate() {
        let at = (x(number), bottom + 10);
        write(area, point, at, SMALL, INK, (HPos::Center, VPos::Top))?;
    }
    let middle = ((first + last) / 2, HEIGHT - 14);
    write(area, &panel.axis, middle, SMALL, INK, (HPos::Center, VPos::Center))?;
    // Names stand beside the ends of curves, and not on each other.
    let mut names = Vec::new();
    for ((name, times), colour) in panel.curves.iter().zip(COLOURS) {
        let points: Vec<_> = times.iter().enumerate().map(|(number, ms)| (x(number), y(*ms))).collect();
        area.draw(&PathElement::new(points.clone(), colour.stroke_width(2)))?;
        for point in &points {
            area.draw(&Circle::new(*point, 4, colour.filled()))?;
        }
        names.extend(points.last().map(|point| (point.1, name.as_str(), colour)));
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

/// Returns the distance of marks, and their number above zero: at most ten, of which the last one is no less.
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
    fn the_median_of_an_even_number_lies_between_the_middle_ones() {
        assert_eq!(median(&[3.0, 1.0, 2.0, 10.0]), 2.5);
        assert_eq!(median(&[3.0]), 3.0);
        assert!(median(&[]).is_nan());
    }

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
