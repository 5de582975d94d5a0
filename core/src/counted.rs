//! Numbers of things in messages.

use core::fmt;

/// Writes a number of things: `1 byte`, `2 bytes`. `thing` is a word whose plural ends in s.
pub fn counted(count: usize, thing: &'static str) -> impl fmt::Display {
    Counted { count, thing }
}

struct Counted {
    count: usize,
    thing: &'static str,
}

impl fmt::Display for Counted {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.count == 1 { "" } else { "s" };
        write!(out, "{} {}{plural}", self.count, self.thing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn one_thing_is_no_several() {
        assert_eq!(
            [0, 1, 2].map(|count| counted(count, "byte").to_string()),
            ["0 bytes", "1 byte", "2 bytes"]
        );
    }
}
