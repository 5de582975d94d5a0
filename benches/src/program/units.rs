//! Durations and numbers of bytes in text: reading and formatting.

use std::time::Duration;

/// Reads a duration: `500ms`, `2s`, `1.5m`.
///
/// # Errors
/// A sentence for the user.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong =
        || format!("`{text}` is no duration: write a number and us, ms, s or m, for example 500ms or 2s");
    let (number, unit) = split(text);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit {
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

/// Largest mailbox, in bytes: each source gets one.
const MAX_MAILBOX: usize = 1 << 30;

/// Reads the length of a mailbox in bytes.
///
/// # Errors
/// A sentence for the user.
pub fn parse_mailbox(text: &str) -> Result<usize, String> {
    match parse_bytes(text)? {
        bytes if bytes > MAX_MAILBOX => Err("a mailbox has at most 1G".to_owned()),
        bytes if bytes < 4096 => Err("a mailbox has at least 4K".to_owned()),
        bytes => Ok(bytes),
    }
}

fn split(text: &str) -> (&str, &str) {
    let unit = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text.split_at(unit)
}

/// Formats a duration with two digits or more: `0.5 us`, `4.1 ms`, `12 s`.
pub fn show_duration(duration: Duration) -> String {
    let nanoseconds = duration.as_nanos() as f64;
    let (value, unit) = if nanoseconds < 1e3 {
        (nanoseconds, "ns")
    } else if nanoseconds < 1e6 {
        (nanoseconds / 1e3, "us")
    } else if nanoseconds < 1e9 {
        (nanoseconds / 1e6, "ms")
    } else {
        (nanoseconds / 1e9, "s")
    };
    let digits = usize::from(value < 10.0 && unit != "ns");
    format!("{value:.digits$} {unit}")
}

/// Formats the time since an event, to the second: `just now`, `3 s ago`, `5 min ago`.
pub fn show_ago(elapsed: Duration) -> String {
    match elapsed.as_secs() {
        0 => "just now".to_owned(),
        seconds @ 1..60 => format!("{seconds} s ago"),
        seconds @ 60..3600 => format!("{} min ago", seconds / 60),
        seconds @ 3600..172_800 => format!("{} h ago", seconds / 3600),
        seconds => format!("{} days ago", seconds / 86_400),
    }
}

/// Formats a limit, which usually is a power of two: `64 MiB`.
pub fn show_limit(bytes: usize) -> String {
    for (unit, shift) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if bytes != 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    format!("{bytes} B")
}

/// Formats a whole number with its digits in groups: `9 100 432`.
pub fn show_count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.char_indices() {
        if index != 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Formats a number of things: `1 image`, `2 000 images`.
pub fn counted(count: u64, thing: &str) -> String {
    format!("{} {thing}{}", show_count(count), if count == 1 { "" } else { "s" })
}

/// Returns microseconds, for programs.
pub fn microseconds(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e3
}

/// Returns the middle one; of an even number the lower of the two. `None` without times.
pub fn median(mut times: Vec<Duration>) -> Option<Duration> {
    times.sort_unstable();
    let middle = times.len().checked_sub(1)? / 2;
    times.get(middle).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_unit() {
        let read = |text| parse_duration(text).map_err(|_| ());
        assert_eq!(read("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(read("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(read("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(read("20us"), Ok(Duration::from_micros(20)));
        for wrong in
            ["", "2", "s", "-1s", "1h", "1e400s", "1..2s", "99999999999999999999999s", "0s", "0.1.0ms"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bytes_are_read_with_binary_units() {
        let read = |text| parse_bytes(text).map_err(|_| ());
        assert_eq!([read("65536"), read("64K"), read("64KiB")], [Ok(65536); 3]);
        assert_eq!([read("4M"), read("1G")], [Ok(4 << 20), Ok(1 << 30)]);
        for wrong in ["", "M", "4 M", "4m", "1.5M", "-1", "99999999999999999999", "18446744073709551615G"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn quantities_are_shown_as_people_say_them() {
        let show = |nanoseconds| show_duration(Duration::from_nanos(nanoseconds));
        assert_eq!([show(512), show(1_500), show(41_200)], ["512 ns", "1.5 us", "41 us"]);
        assert_eq!([show(4_100_000), show(12_000_000_000)], ["4.1 ms", "12 s"]);
        assert_eq!(
            [show_limit(64 << 20), show_limit(1 << 30), show_limit(100)],
            ["64 MiB", "1 GiB", "100 B"]
        );
        assert_eq!(
            [show_count(7), show_count(9_100_432), show_count(100_000)],
            ["7", "9 100 432", "100 000"]
        );
    }

    #[test]
    fn one_thing_is_no_several() {
        let images = [0, 1, 2, 1000].map(|count| counted(count, "image"));
        assert_eq!(images, ["0 images", "1 image", "2 images", "1 000 images"]);
    }

    #[test]
    fn a_time_ago_is_shown_in_a_fitting_unit() {
        let show = |seconds| show_ago(Duration::from_secs(seconds));
        assert_eq!([show(0), show(1), show(59)], ["just now", "1 s ago", "59 s ago"]);
        assert_eq!([show(60), show(3599), show(3600)], ["1 min ago", "59 min ago", "1 h ago"]);
        assert_eq!([show(172_799), show(172_800)], ["47 h ago", "2 days ago"]);
    }

    #[test]
    fn the_median_is_the_middle_one() {
        let of = |numbers: &[u64]| median(numbers.iter().map(|n| Duration::from_nanos(*n)).collect());
        assert_eq!(of(&[9, 1, 5]), Some(Duration::from_nanos(5)));
        assert_eq!(of(&[4, 1, 2, 3]), Some(Duration::from_nanos(2)));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn a_mailbox_too_small_or_too_large_is_refused() {
        assert_eq!(parse_mailbox("64K"), Ok(64 << 10));
        assert_eq!(parse_mailbox("1G"), Ok(1 << 30));
        for wrong in ["0", "4095", "2G", "x"] {
            assert!(parse_mailbox(wrong).is_err(), "{wrong}");
        }
    }
}
