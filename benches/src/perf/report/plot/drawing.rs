//! Draws a picture: curves above, their ratios beneath over the same axis, and names beside them.
//!
//! The unit of lengths is half a pixel of an SVG, and one pixel of a PNG.

use plotters::coord::Shift;
use plotters::prelude::{
    Circle, Color, DrawingArea, DrawingAreaErrorKind, DrawingBackend, IntoFont, PathElement, Polygon,
    ShapeStyle, Text, TextStyle,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::curves::{Panel, Picture, Relation};
use super::palette::{BASELINES, Colour, FAINT, FONT, GRID, INK, OWN};
use super::scale::Scale;

const MARGIN: i32 = 30;
/// A panel with its labels.
const PANEL_WIDTH: i32 = 1500;
/// Space left of the curves, for the labels of marks.
const LEFT: i32 = 110;
/// Space right of the curves, for their names.
const RIGHT: i32 = 350;
const TITLE: i32 = 64;
const CURVES: i32 = 460;
const BETWEEN: i32 = 48;
const RATIOS: i32 = 260;
/// Space below, for the labels of marks and of the axis.
const BELOW: i32 = 110;
const LINE: i32 = 36;

const LARGE: i32 = 42;
const SMALL: i32 = 30;

type Drawn<DB> = Result<(), DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>>;

impl Picture {
    /// Returns width and height.
    pub(super) fn size(&self) -> (u32, u32) {
        let (columns, rows) = self.grid();
        let width = MARGIN * 2 + columns * PANEL_WIDTH;
        let height = MARGIN * 2 + rows * self.panel_height() + self.notes.len() as i32 * LINE;
        (width.unsigned_abs(), height.unsigned_abs())
    }

    /// Returns the columns and rows of panels.
    fn grid(&self) -> (i32, i32) {
        let panels = self.panels.len();
        let columns = panels.min(2);
        (columns as i32, panels.div_ceil(columns.max(1)) as i32)
    }

    fn panel_height(&self) -> i32 {
        let ratios = self.panels.iter().any(|panel| !panel.relations.is_empty());
        TITLE + CURVES + BELOW + if ratios { BETWEEN + RATIOS } else { 0 }
    }

    pub(super) fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<'_, DB>) -> Drawn<DB> {
        let (columns, rows) = self.grid();
        for (number, panel) in self.panels.iter().enumerate() {
            let (column, row) = (number as i32 % columns, number as i32 / columns);
            let corner = (MARGIN + column * PANEL_WIDTH, MARGIN + row * self.panel_height());
            Drawing { canvas, panel, corner }.draw()?;
        }
        let below = MARGIN + rows * self.panel_height();
        for (number, note) in self.notes.iter().enumerate() {
            let width = columns * PANEL_WIDTH;
            let at = (MARGIN, below + number as i32 * LINE);
            canvas.write(&canvas.fit(note, width)?, at, SMALL, FAINT, (HPos::Left, VPos::Top))?;
        }
        canvas.area.present()
    }
}

/// A panel, and its position.
struct Drawing<'a, DB: DrawingBackend> {
    canvas: &'a Canvas<'a, DB>,
    panel: &'a Panel,
    corner: (i32, i32),
}

/// A rectangle with two axes.
struct Frame<'a> {
    left: i32,
    right: i32,
    top: i32,
    bottom: i32,
    across: &'a Scale,
    up: &'a Scale,
}

impl Frame<'_> {
    fn x(&self, value: f64) -> i32 {
        self.left + (self.across.place(value) * f64::from(self.right - self.left)).round() as i32
    }

    fn y(&self, value: f64) -> i32 {
        self.bottom - (self.up.place(value) * f64::from(self.bottom - self.top)).round() as i32
    }
}

impl<DB: DrawingBackend> Drawing<'_, DB> {
    fn draw(&self) -> Drawn<DB> {
        let Panel { title, unit, across, curves, relations, .. } = self.panel;
        let (left, top) = self.corner;
        let heading = format!("{title}, {unit}");
        self.canvas.write(&heading, (left, top), LARGE, INK, (HPos::Left, VPos::Top))?;
        let values = curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.0));
        let horizontal = Scale::octaves(values);
        let figures = curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.1));
        let vertical = Scale::decades(figures);
        let above = Frame {
            left: left + LEFT,
            right: left + PANEL_WIDTH - RIGHT,
            top: top + TITLE,
            bottom: top + TITLE + CURVES,
            across: &horizontal,
            up: &vertical,
        };
        self.axes(&above)?;
        self.curves(&above)?;
        self.names(above.right + MARGIN, above.top)?;
        let mut lowest = above.bottom;
        if !relations.is_empty() {
            let spread = relations.iter().flat_map(|relation| &relation.points);
            let vertical = Scale::decades(spread.flat_map(|ratio| [ratio.min, ratio.max]).chain([1.0]));
            lowest = above.bottom + BETWEEN + RATIOS;
            let below = Frame { top: above.bottom + BETWEEN, bottom: lowest, up: &vertical, ..above };
            self.axes(&below)?;
            self.ratios(&below)?;
            self.said_of_ratios(below.right + MARGIN, below.top)?;
        }
        let below = Frame { bottom: lowest, ..above };
        self.marks_below(&below)?;
        let middle = ((below.left + below.right) / 2, lowest + BELOW - 30);
        self.canvas.write(across.title(), middle, SMALL, INK, (HPos::Center, VPos::Bottom))
    }

    /// Draws lines at the marks, and the labels of the vertical axis.
    fn axes(&self, frame: &Frame<'_>) -> Drawn<DB> {
        for (value, _) in &frame.across.marks {
            let x = frame.x(*value);
            self.line(&[(x, frame.top), (x, frame.bottom)], GRID, 1)?;
        }
        for (value, name) in &frame.up.marks {
            let y = frame.y(*value);
            self.line(&[(frame.left, y), (frame.right, y)], GRID, 2)?;
            self.canvas.write(name, (frame.left - 14, y), SMALL, FAINT, (HPos::Right, VPos::Center))?;
        }
        Ok(())
    }

    /// Draws the labels of the marks below: as many as fit.
    fn marks_below(&self, frame: &Frame<'_>) -> Drawn<DB> {
        let marks = &frame.across.marks;
        let mut widest = 0;
        for (_, name) in marks {
            widest = widest.max(self.canvas.text_width(name, SMALL)?);
        }
        let space = (frame.right - frame.left) / (widest + 12);
        let step = marks.len().div_ceil(space.unsigned_abs().max(1) as usize).max(1);
        for (value, name) in marks.iter().step_by(step) {
            let at = (frame.x(*value), frame.bottom + 12);
            self.canvas.write(name, at, SMALL, FAINT, (HPos::Center, VPos::Top))?;
        }
        Ok(())
    }

    fn curves(&self, frame: &Frame<'_>) -> Drawn<DB> {
        // farjump's curves come last, and lie on top.
        for (number, curve) in self.panel.curves.iter().enumerate().rev() {
            let points: Vec<_> =
                curve.points.iter().map(|(at, figure)| (frame.x(*at as f64), frame.y(*figure))).collect();
            let colour = self.panel.colour(number);
            self.line(&points, colour, if curve.is_own { 5 } else { 3 })?;
            for point in points {
                self.mark(point, self.panel.shape(number), colour)?;
            }
        }
        Ok(())
    }

    fn ratios(&self, frame: &Frame<'_>) -> Drawn<DB> {
        let one = frame.y(1.0);
        self.line(&[(frame.left, one), (frame.right, one)], FAINT, 3)?;
        let place = |at: u64, ratio: f64| (frame.x(at as f64), frame.y(ratio));
        for Relation { own, points, .. } in &self.panel.relations {
            let most = points.iter().map(|ratio| place(ratio.at, ratio.max));
            let least = points.iter().rev().map(|ratio| place(ratio.at, ratio.min));
            let band: Vec<_> = most.chain(least).collect();
            let colour = self.panel.colour(*own).rgb().mix(0.2);
            match points.len() {
                1 => self.canvas.area.draw(&PathElement::new(band, colour.stroke_width(12)))?,
                _ => self.canvas.area.draw(&Polygon::new(band, colour.filled()))?,
            }
        }
        for Relation { own, reference, points } in &self.panel.relations {
            let colour = self.panel.colour(*own);
            let places: Vec<_> = points.iter().map(|ratio| place(ratio.at, ratio.median)).collect();
            self.line(&places, colour, 4)?;
            let shape = if self.panel.has_several_baselines() { *reference } else { *own };
            for point in places {
                self.mark(point, self.panel.shape(shape), colour)?;
            }
        }
        Ok(())
    }

    fn names(&self, left: i32, top: i32) -> Drawn<DB> {
        let mut y = top + LINE / 2;
        let mut heading = None;
        for (number, curve) in self.panel.curves.iter().enumerate() {
            let belongs = if curve.is_own { "farjump" } else { "reference" };
            if heading != Some(belongs) {
                y += if heading.is_some() { LINE / 2 } else { 0 };
                self.canvas.write(belongs, (left, y), SMALL, FAINT, (HPos::Left, VPos::Center))?;
                heading = Some(belongs);
                y += LINE;
            }
            let colour = self.panel.colour(number);
            self.line(&[(left, y), (left + 48, y)], colour, if curve.is_own { 5 } else { 3 })?;
            self.mark((left + 24, y), self.panel.shape(number), colour)?;
            let name = self.canvas.fit(&curve.label, RIGHT - MARGIN - 62)?;
            self.canvas.write(&name, (left + 62, y), SMALL, INK, (HPos::Left, VPos::Center))?;
            y += LINE;
        }
        Ok(())
    }

    /// Draws the legend of the ratios.
    fn said_of_ratios(&self, left: i32, top: i32) -> Drawn<DB> {
        let better = match self.panel.is_time {
            true => "below 1 farjump takes less",
            false => "above 1 farjump does more",
        };
        let mut lines = vec!["ratio to the reference", better, "band: all rounds"];
        if self.panel.has_several_baselines() {
            lines.push("marks: the reference's");
        }
        for (number, line) in lines.into_iter().enumerate() {
            let at = (left, top + LINE / 2 + number as i32 * LINE);
            self.canvas.write(line, at, SMALL, FAINT, (HPos::Left, VPos::Center))?;
        }
        Ok(())
    }

    fn line(&self, points: &[(i32, i32)], colour: Colour, width: u32) -> Drawn<DB> {
        match points.len() {
            0 | 1 => Ok(()),
            _ => self.canvas.area.draw(&PathElement::new(points.to_vec(), colour.rgb().stroke_width(width))),
        }
    }

    fn mark(&self, (x, y): (i32, i32), shape: Shape, colour: Colour) -> Drawn<DB> {
        let filled: ShapeStyle = colour.rgb().filled();
        let corners = match shape {
            Shape::Circle => return self.canvas.area.draw(&Circle::new((x, y), 6, filled)),
            Shape::Square => [(-6, -6), (6, -6), (6, 6), (-6, 6)].as_slice(),
            Shape::Triangle => &[(0, -9), (8, 6), (-8, 6)],
            Shape::Diamond => &[(0, -9), (9, 0), (0, 9), (-9, 0)],
            Shape::Wedge => &[(0, 9), (8, -6), (-8, -6)],
        };
        let corners: Vec<_> = corners.iter().map(|(right, down)| (x + right, y + down)).collect();
        self.canvas.area.draw(&Polygon::new(corners, filled))
    }
}

/// The marker at a curve's points.
#[derive(Clone, Copy)]
enum Shape {
    Circle,
    Square,
    Triangle,
    Diamond,
    Wedge,
}

impl Panel {
    /// Returns a curve's index among farjump's, or among the baselines'.
    fn rank(&self, curve: usize) -> usize {
        let is_own = self.curves[curve].is_own;
        self.curves[..curve].iter().filter(|other| other.is_own == is_own).count()
    }

    fn colour(&self, curve: usize) -> Colour {
        let colours: &[Colour] = if self.curves[curve].is_own { &OWN } else { &BASELINES };
        colours[self.rank(curve) % colours.len()]
    }

    fn shape(&self, curve: usize) -> Shape {
        const OF_REFERENCES: [Shape; 4] = [Shape::Square, Shape::Triangle, Shape::Diamond, Shape::Wedge];
        match self.curves[curve].is_own {
            true => Shape::Circle,
            false => OF_REFERENCES[self.rank(curve) % OF_REFERENCES.len()],
        }
    }

    fn has_several_baselines(&self) -> bool {
        self.curves.iter().filter(|curve| !curve.is_own).count() > 1
    }
}

/// The drawing area.
pub(super) struct Canvas<'a, DB: DrawingBackend> {
    pub(super) area: &'a DrawingArea<DB, Shift>,
    /// Fraction of its size by which text is lowered to stand in its place.
    pub(super) drop: f64,
}

impl<DB: DrawingBackend> Canvas<'_, DB> {
    fn write(
        &self,
        text: &str,
        (x, y): (i32, i32),
        size: i32,
        colour: Colour,
        (horizontal, vertical): (HPos, VPos),
    ) -> Drawn<DB> {
        let style = text_style(size, colour, Pos::new(horizontal, vertical));
        let y = y + (self.drop * f64::from(size)).round() as i32;
        self.area.draw(&Text::new(text.to_owned(), (x, y), style))
    }

    fn text_width(&self, text: &str, size: i32) -> Result<i32, DrawingAreaErrorKind<DB::ErrorType>> {
        let style = text_style(size, INK, Pos::new(HPos::Left, VPos::Top));
        Ok(self.area.estimate_text_size(text, &style)?.0 as i32)
    }

    /// Shortens a small text to fit, with dots for the omitted part.
    fn fit(&self, text: &str, space: i32) -> Result<String, DrawingAreaErrorKind<DB::ErrorType>> {
        let mut shown = text.to_owned();
        let mut kept = text.chars().count();
        while self.text_width(&shown, SMALL)? > space && kept > 1 {
            kept -= 1;
            shown = text.chars().take(kept).chain(['\u{2026}']).collect();
        }
        Ok(shown)
    }
}

fn text_style(size: i32, colour: Colour, pos: Pos) -> TextStyle<'static> {
    TextStyle { color: colour.rgb().to_backend_color(), pos, ..TextStyle::from((FONT, size).into_font()) }
}
