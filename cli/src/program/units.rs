//! Durations and numbers of bytes in text: reading and formatting.

use std::time::Duration;

pub use farjump::config::{parse_bytes, parse_duration};

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
}
