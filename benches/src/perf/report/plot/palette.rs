//! Colours, each for light and dark backgrounds, and the font that measures text and draws it in PNGs.

use plotters::style::{FontStyle, RGBColor, register_font};

use crate::program::failure::Failure;

/// A colour on white, and its substitute on black.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Colour {
    light: u32,
    dark: u32,
}

const fn colour(light: u32, dark: u32) -> Colour {
    Colour { light, dark }
}

impl Colour {
    /// Returns the colour for drawing. [`style`] adds the one for dark backgrounds.
    pub(super) fn rgb(self) -> RGBColor {
        let [_, red, green, blue] = self.light.to_be_bytes();
        RGBColor(red, green, blue)
    }
}

/// Titles and curves' names.
pub(super) const INK: Colour = colour(0x1F2328, 0xE6EDF3);
/// Marks of axes, and notes beside the figures.
pub(super) const FAINT: Colour = colour(0x59636E, 0x9DA7B1);
/// Lines at marks.
pub(super) const GRID: Colour = colour(0xDDE2E7, 0x363C43);
/// farjump's curves: Okabe and Ito's colours, distinct for colour-blind viewers too.
pub(super) const OWN: [Colour; 8] = [
    colour(0x0072B2, 0x56B4E9),
    colour(0xD55E00, 0xFF8C42),
    colour(0x009E73, 0x35D0A5),
    colour(0xB0508A, 0xE79AC6),
    colour(0x8A6D00, 0xE0BE3C),
    colour(0x5B4BB7, 0xA79BF0),
    colour(0xA3312A, 0xF08A80),
    colour(0x2C7A7B, 0x7FD4D5),
];
/// The baselines' curves, which have markers of their own besides.
pub(super) const BASELINES: [Colour; 4] = [
    colour(0x4D5359, 0xC3C9CF),
    colour(0x8A8F95, 0x8F959B),
    colour(0x94795E, 0xC9AD92),
    colour(0x5E7A94, 0x93B0CA),
];

/// The registered name of the font; in an SVG it is the viewer's own.
pub(super) const FONT: &str = "sans-serif";
/// Roboto (Apache-2.0, Google: `roboto-LICENSE.txt`), reduced to the characters used here.
static ROBOTO: &[u8] = include_bytes!("roboto.ttf");

pub(super) fn load_font() -> Result<(), Failure> {
    register_font(FONT, FontStyle::Normal, ROBOTO)
        .map_err(|_| Failure::new("the font that is built in cannot be read"))
}

/// Returns a style sheet that changes an SVG's colours where its viewer prefers the dark.
pub(super) fn style() -> String {
    let all = [INK, FAINT, GRID].into_iter().chain(OWN).chain(BASELINES);
    let rules = all.map(|Colour { light, dark }| {
        format!(
            "[fill=\"#{light:06X}\"]{{fill:#{dark:06X}}}[stroke=\"#{light:06X}\"]{{stroke:#{dark:06X}}}\n"
        )
    });
    format!("<style>@media (prefers-color-scheme: dark) {{\n{}}}</style>\n", rules.collect::<String>())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_colour_has_one_for_the_dark_and_none_has_two() {
        let all: Vec<_> = [INK, FAINT, GRID].into_iter().chain(OWN).chain(BASELINES).collect();
        let light: BTreeSet<_> = all.iter().map(|colour| colour.light).collect();
        assert_eq!(light.len(), all.len());
        let style = style();
        for Colour { light, dark } in all {
            assert!(style.contains(&format!("[stroke=\"#{light:06X}\"]{{stroke:#{dark:06X}}}")), "{style}");
        }
    }

    #[test]
    fn the_font_that_is_built_in_can_be_read() {
        load_font().expect("it is a font");
    }
}
