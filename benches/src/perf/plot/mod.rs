//! `--plot`: draws the report as a picture, SVG or PNG by the file's ending.
//!
//! [`curves`] chooses the contents, [`scale`] the positions, [`palette`] the colours; [`drawing`] draws.

mod curves;
mod drawing;
mod palette;
mod scale;

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use plotters::prelude::{BitMapBackend, IntoDrawingArea, SVGBackend, WHITE};
use rustix::fs::{Access, access};

use crate::perf::report::Report;
use crate::program::failure::Failure;
use curves::Picture;
use drawing::Canvas;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Plot {
    path: PathBuf,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Svg,
    Png,
}

/// Reads the name of a picture's file.
///
/// # Errors
/// It ends with neither `.svg` nor `.png`.
pub(super) fn parse_plot(text: &str) -> Result<Plot, String> {
    let path = PathBuf::from(text);
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    let kind = match ending.as_deref() {
        Some("svg") => Kind::Svg,
        Some("png") => Kind::Png,
        _ => return Err("plots are SVG or PNG: end the name with .svg or .png".to_owned()),
    };
    Ok(Plot { path, kind })
}

impl Plot {
    /// Checks as far as possible without writing that the file can be written.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let refused = |why: &dyn Display| Failure::new(format!("--plot {}: {why}", self.path.display()));
        let (place, needed) = match self.path.exists() {
            true => (&*self.path, Access::WRITE_OK),
            false => (folder_of(&self.path), Access::WRITE_OK | Access::EXEC_OK),
        };
        match (place == self.path, place.is_dir()) {
            (true, true) => return Err(refused(&"that is a folder; name a file")),
            (false, false) => return Err(refused(&format!("there is no folder {}", place.display()))),
            _ => {}
        }
        access(place, needed)
            .map_err(|error| refused(&format!("{} cannot be written: {error}", place.display())))
    }

    /// Draws a report, and writes the file.
    ///
    /// # Errors
    /// No row has figures, or the file cannot be written.
    pub(super) fn write(&self, report: &Report, rounds: u32) -> Result<(), Failure> {
        let picture = Picture::of(report, rounds)?;
        palette::load_font()?;
        let bytes = match self.kind {
            Kind::Svg => svg(&picture)?.into_bytes(),
            Kind::Png => png(&picture)?,
        };
        let written = OpenOptions::new().write(true).create(true).truncate(true).open(&self.path).and_then(
            |mut file| {
                file.write_all(&bytes)?;
                // Some file systems report only now that they are full.
                file.sync_all().or_else(|error| match error.kind() {
                    std::io::ErrorKind::InvalidInput => Ok(()),
                    _ => Err(error),
                })
            },
        );
        written.map_err(|error| {
            Failure::new(format!("the picture {} cannot be written: {error}", self.path.display()))
        })
    }
}

/// Returns the folder of the file with this name.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
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
