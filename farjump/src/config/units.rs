//! Durations and numbers of bytes in text.

use std::time::Duration;

/// Shown for a time without end.
const FOREVER: &str = "forever";

/// Reads a duration: `500ms`, `2s`, `1.5m`, or `forever`.
///
/// # Errors
/// A sentence for the user.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    if text == FOREVER {
        return Ok(Duration::MAX);
    }
    let wrong =
        || format!("`{text}` is no duration: write a number and us, ms, s or m, for example 500ms or 2s");
    let (number, unit) = split(text);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "ns" => number / 1e9,
        "us" => number / 1e6,
        "ms" => number / 1e3,
        "s" => number,
        "m" => number * 60.0,
        _ => return Err(wrong()),
    };
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        Ok(_) => Err("a time limit is longer than 0".to_owned()),
        Err(_) => Err(wrong()),
    }
}

/// Formats a duration so that [`parse_duration`] reads it back: `2s`, `1500ms`.
pub fn shown_duration(time: Duration) -> String {
    if time == Duration::MAX {
        return FOREVER.to_owned();
    }
    let nanoseconds = time.as_nanos();
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000)];
    let fitting = units.into_iter().find(|(_, length)| nanoseconds.is_multiple_of(*length));
    let (unit, length) = fitting.unwrap_or(("ns", 1));
    format!("{}{unit}", nanoseconds / length)
}

/// Reads a number of bytes: `65536`, `64K`, `4M`, `1G`; also `4MiB`.
///
/// # Errors
/// A sentence for the user.
pub fn parse_bytes(text: &str) -> Result<usize, String> {
    let wrong =
        || format!("`{text}` is no number of bytes: write it out, or with K, M or G, for example 64K or 4M");
    let (number, unit) = split(text);
    let number: usize = number.parse().map_err(|_| wrong())?;
    let factor = match unit {
        "" | "B" => 1,
        "K" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        _ => return Err(wrong()),
    };
    number.checked_mul(factor).ok_or_else(|| format!("`{text}` is more than this machine can address"))
}

/// Formats a number of bytes so that [`parse_bytes`] reads it back: `4M`, `65537`.
pub fn shown_bytes(bytes: u64) -> String {
    let units = [("G", 30), ("M", 20), ("K", 10)];
    let fitting = units.into_iter().find(|(_, shift)| bytes != 0 && bytes.is_multiple_of(1 << shift));
    let (unit, shift) = fitting.unwrap_or(("", 0));
    format!("{}{unit}", bytes >> shift)
}

fn split(text: &str) -> (&str, &str) {
    let unit = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text.split_at(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_unit_and_read_back() {
        let read = |text| parse_duration(text).map_err(|_| ());
        assert_eq!(read("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(read("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(read("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(read("20us"), Ok(Duration::from_micros(20)));
        for text in ["500ms", "2s", "90s", "20us", "7ns", "forever"] {
            assert_eq!(shown_duration(parse_duration(text).unwrap()), text);
        }
        for wrong in
            ["", "2", "s", "-1s", "1h", "1e400s", "1..2s", "99999999999999999999999s", "0s", "0.1.0ms"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bytes_are_read_with_binary_units_and_read_back() {
        let read = |text| parse_bytes(text).map_err(|_| ());
        assert_eq!([read("65536"), read("64K"), read("64KiB")], [Ok(65536); 3]);
        assert_eq!([read("4M"), read("1G")], [Ok(4 << 20), Ok(1 << 30)]);
        for text in ["0", "1", "65537", "64K", "4M", "3G", "4000G"] {
            assert_eq!(shown_bytes(parse_bytes(text).unwrap() as u64), text);
        }
        for wrong in ["", "M", "4 M", "4m", "1.5M", "-1", "99999999999999999999", "18446744073709551615G"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
