//! Panics of injected code: message and place go to the source, without Rust's formatting machinery.

use core::panic::PanicInfo;

use crate::fail;

/// Longest text sent, in bytes; a longer one is cut.
const TEXT_LEN: usize = 256;

/// The panic handler of an ifunc: ends the call with `FILE:LINE: message`. A message that is not one constant
/// string is left out, because assembling it would add the formatting machinery.
pub fn panicked(info: &PanicInfo<'_>) -> ! {
    let mut text = Text { bytes: [0; TEXT_LEN], len: 0 };
    text.push("panicked at ");
    if let Some(location) = info.location() {
        text.push(location.file());
        text.push(":");
        text.push_number(location.line());
    }
    if let Some(message) = info.message().as_str() {
        text.push(": ");
        text.push(message);
    }
    fail(text.as_str())
}

struct Text {
    bytes: [u8; TEXT_LEN],
    len: usize,
}

impl Text {
    /// Appends the part that fits, up to the last whole character.
    fn push(&mut self, text: &str) {
        let space = self.bytes.get_mut(self.len..).unwrap_or_default();
        let mut len = text.len().min(space.len());
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        for (to, from) in space.iter_mut().zip(text.as_bytes().iter().take(len)) {
            *to = *from;
        }
        self.len += len;
    }

    fn push_number(&mut self, number: u32) {
        let mut divisor = 1;
        while number / divisor >= 10 {
            divisor *= 10;
        }
        while divisor > 0 {
            let digit = (number / divisor % 10) as u8;
            self.push(core::str::from_utf8(&[b'0' + digit]).unwrap_or_default());
            divisor /= 10;
        }
    }

    fn as_str(&self) -> &str {
        self.bytes.get(..self.len).and_then(|bytes| core::str::from_utf8(bytes).ok()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;

    fn text() -> Text {
        Text { bytes: [0; TEXT_LEN], len: 0 }
    }

    #[test]
    fn numbers_are_written_in_decimal() {
        for number in [0, 7, 10, 99, 100, 65_535, u32::MAX] {
            let mut text = text();
            text.push_number(number);
            assert_eq!(text.as_str(), std::format!("{number}"));
        }
    }

    #[test]
    fn a_long_text_is_cut_at_a_whole_character() {
        let mut text = text();
        text.push("x");
        text.push(&"ä".repeat(TEXT_LEN));
        assert_eq!(text.as_str(), String::from("x") + &"ä".repeat(TEXT_LEN / 2 - 1));
        text.push("yy");
        assert_eq!(text.as_str().len(), TEXT_LEN);
        text.push("more");
        assert_eq!(text.as_str().len(), TEXT_LEN);
    }
}
