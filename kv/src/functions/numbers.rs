//! Numbers as the server writes and reads them: text.

use std::io::Write as _;

/// Most bytes of a number's text: `KV_NUMBER`.
pub(super) const LONGEST: usize = 32;

/// Doubles from here on, and below the inverse, are written with an exponent.
const LARGE: f64 = 1e17;
const SMALL: f64 = 1e-7;

/// A number's text.
#[derive(Clone, Copy)]
pub(super) struct Text {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Text {
    fn of(arguments: std::fmt::Arguments<'_>) -> Text {
        let mut bytes = [0; LONGEST];
        let mut rest = &mut bytes[..];
        rest.write_fmt(arguments).expect("no number has a longer text");
        let len = LONGEST - rest.len();
        Text { bytes, len }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Returns the number that INCR would read in this text: no blank, no `+`, no zero in front.
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_written_so = match digits {
        [b'0'] => digits.len() == text.len(),
        [first, ..] => (b'1'..=b'9').contains(first),
        [] => false,
    };
    std::str::from_utf8(text).ok().filter(|_| is_written_so)?.parse().ok()
}

/// Returns the number that ZADD would read in this text: no blank, and `inf` for an infinite value. Hexadecimal digits
/// are no number here.
pub(super) fn double(text: &[u8]) -> Option<f64> {
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let is_named = text.iter().any(|byte| byte.eq_ignore_ascii_case(&b'i'));
    (!value.is_nan() && value.is_infinite() == is_named).then_some(value)
}

/// The text of a whole number.
pub(super) fn of_integer(value: i64) -> Text {
    Text::of(format_args!("{value}"))
}

/// Returns the shortest text that reads as the same number, as Redis 7.2 and Valkey write it.
pub(super) fn of_double(value: f64) -> Text {
    let size = value.abs();
    if value == 0.0 || !value.is_finite() || (SMALL..LARGE).contains(&size) {
        return Text::of(format_args!("{value}"));
    }
    match size < 1.0 {
        true => Text::of(format_args!("{value:e}")),
        false => {
            let text = Text::of(format_args!("{value:e}"));
            let text = std::str::from_utf8(text.bytes()).unwrap_or_default();
            let (digits, exponent) = text.split_once('e').unwrap_or((text, "0"));
            Text::of(format_args!("{digits}e+{exponent}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_those_that_incr_takes() {
        for (text, number) in [("0", 0), ("-1", -1), ("10", 10), ("-9223372036854775808", i64::MIN)] {
            assert_eq!(integer(text.as_bytes()), Some(number));
            assert_eq!(of_integer(number).bytes(), text.as_bytes());
        }
        for text in ["", "-", "-0", "+1", "01", " 1", "1 ", "1.0", "0x10", "9223372036854775808", "\u{661}"] {
            assert_eq!(integer(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn doubles_are_those_that_zadd_takes() {
        for (text, number) in
            [("1", 1.0), ("-.5", -0.5), ("1e3", 1e3), ("inf", f64::INFINITY), ("-INF", f64::NEG_INFINITY)]
        {
            assert_eq!(double(text.as_bytes()), Some(number), "{text}");
        }
        for text in ["", " 1", "1 ", "nan", "-nan", "1e999", "0x10", "1,5", "e"] {
            assert_eq!(double(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn a_double_is_written_so_that_it_is_read_again() {
        for (number, text) in [
            (3.0, "3"),
            (-0.0, "-0"),
            (0.1, "0.1"),
            (1e300, "1e+300"),
            (1e-9, "1e-9"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17"),
        ] {
            assert_eq!(std::str::from_utf8(of_double(number).bytes()), Ok(text));
        }
        let mut bits = 1_u64;
        for _ in 0..10_000 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let number = f64::from_bits(bits);
            if number.is_finite() {
                assert_eq!(double(of_double(number).bytes()).map(f64::to_bits), Some(bits));
            }
        }
    }
}
