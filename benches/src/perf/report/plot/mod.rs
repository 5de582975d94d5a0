//! `--plot`: draws the report as a picture, SVG or PNG.
//!
//! [`curves`] chooses the contents, [`scale`] the positions, [`palette`] the colours; [`drawing`] draws.

mod curves;
mod drawing;
mod palette;
mod scale;

use std::fmt::Display;

use plotters::prelude::{BitMapBackend, IntoDrawingArea, SVGBackend, WHITE};

use crate::perf::report::Report;
use crate::perf::report::picture_file::PictureKind;
use crate::program::failure::Failure;
use curves::Picture;
use drawing::Canvas;

/// Draws a report.
///
/// # Errors
/// No row has figures, or the picture cannot be drawn.
pub(in crate::perf) fn draw(report: &Report, rounds: u32, kind: PictureKind) -> Result<Vec<u8>, Failure> {
    let picture = Picture::of(report, rounds)?;
    palette::load_font()?;
    match kind {
        PictureKind::Svg => Ok(svg(&picture)?.into_bytes()),
        PictureKind::Png => png(&picture),
    }
}

fn cannot_draw(error: impl Display) -> Failure {
    Failure::new(format!("the picture cannot be drawn: {error}"))
}

/// Draws on a transparent background, visible on the viewer's own, with colours for light and dark.
fn svg(picture: &Picture) -> Result<String, Failure> {
    let (width, height) = picture.size();
    let mut drawn = String::new();
    let area = SVGBackend::with_string(&mut drawn, (width, height)).into_drawing_area();
    picture.draw(&Canvas { area: &area, drop: 0.0 }).map_err(cannot_draw)?;
    drop(area);
    let (_, content) = drawn.split_once('>').ok_or_else(|| cannot_draw("the SVG has no beginning"))?;
    Ok(format!(
        "<svg width=\"{}\" height=\"{}\" viewBox=\"0 0 {width} {height}\" xmlns=\"http://www.w3.org/2000/svg\">\n{}{}",
        width / 2,
        height / 2,
        palette::style(),
        content.trim_start()
    ))
}

/// Draws on white.
fn png(picture: &Picture) -> Result<Vec<u8>, Failure> {
    let (width, height) = picture.size();
    let mut pixels = vec![0; width as usize * height as usize * 3];
    {
        let area = BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area();
        area.fill(&WHITE).map_err(cannot_draw)?;
        // The backend takes text for lower than it is.
        picture.draw(&Canvas { area: &area, drop: 0.15 }).map_err(cannot_draw)?;
    }
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(cannot_draw)?;
    writer.write_image_data(&pixels).map_err(cannot_draw)?;
    writer.finish().map_err(cannot_draw)?;
    Ok(bytes)
}
