//! The forms in which a reply is shown.

use std::fmt::Write;

use clap::ValueEnum;

/// Bytes in a line of a hex dump.
const LINE: usize = 16;

/// The form of a reply.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    Raw,
    Hex,
    Text,
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F32,
    F64,
}

impl Format {
    /// Formats a reply. Also returns the bytes at its end that make no whole number.
    pub(crate) fn show(self, reply: &[u8]) -> (Vec<u8>, &[u8]) {
        match self {
            Format::Raw => (reply.to_vec(), &[]),
            Format::Hex => (hex_dump(reply).into_bytes(), &[]),
            Format::Text => (text(reply).into_bytes(), &[]),
            Format::U8 => numbers(reply, u8::from_le_bytes),
            Format::U16 => numbers(reply, u16::from_le_bytes),
            Format::U32 => numbers(reply, u32::from_le_bytes),
            Format::U64 => numbers(reply, u64::from_le_bytes),
            Format::I8 => numbers(reply, i8::from_le_bytes),
            Format::I16 => numbers(reply, i16::from_le_bytes),
            Format::I32 => numbers(reply, i32::from_le_bytes),
            Format::I64 => numbers(reply, i64::from_le_bytes),
            Format::F32 => numbers(reply, f32::from_le_bytes),
            Format::F64 => numbers(reply, f64::from_le_bytes),
        }
    }

    /// Returns its name on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// Formats one number a line. Floats have the fewest digits that read back as the same number.
fn numbers<const N: usize, T: std::fmt::Debug>(reply: &[u8], read: fn([u8; N]) -> T) -> (Vec<u8>, &[u8]) {
    let (whole, rest) = reply.as_chunks::<N>();
    let lines = whole.iter().map(|bytes| format!("{:?}\n", read(*bytes)));
    (lines.collect::<String>().into_bytes(), rest)
}

/// Formats a reply in the form of `hexdump -C`: offset, bytes, and those that are visible ASCII.
fn hex_dump(reply: &[u8]) -> String {
    let mut text = String::new();
    for (line, bytes) in reply.chunks(LINE).enumerate() {
        let hex: String = (0..LINE)
            .map(|at| {
                let gap = if at == LINE / 2 { " " } else { "" };
                bytes.get(at).map_or_else(|| format!("{gap}   "), |byte| format!("{gap}{byte:02x} "))
            })
            .collect();
        let visible =
            |byte: &u8| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '.' };
        let seen: String = bytes.iter().map(visible).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:08x}  {hex} |{seen}|", line * LINE);
    }
    text
}

/// Formats a reply as UTF-8 that no terminal takes for commands. Bytes and characters that cannot be shown become
/// `\xNN` or `\u{N}`. Ends in a newline.
fn text(reply: &[u8]) -> String {
    let mut text = String::new();
    for chunk in reply.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\n' | '\t' => text.push(letter),
                letter if letter.is_ascii_control() => {
                    let _ = write!(text, "\\x{:02x}", u32::from(letter));
                }
                letter if letter.is_control() => text.extend(letter.escape_unicode()),
                letter => text.push(letter),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn shown(format: Format, reply: &[u8]) -> String {
        let (shown, rest) = format.show(reply);
        assert_eq!(rest, b"");
        String::from_utf8(shown).expect("it is text")
    }

    #[test]
    fn numbers_stand_one_a_line_as_their_types_read_them() {
        let bytes = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(shown(Format::U64, &bytes), "18446744073709551615\n1\n");
        assert_eq!(shown(Format::I64, &bytes), "-1\n1\n");
        assert_eq!(shown(Format::U32, &bytes), "4294967295\n4294967295\n1\n0\n");
        assert_eq!(shown(Format::I32, &bytes[4..12]), "-1\n1\n");
        assert_eq!(shown(Format::I16, &bytes[6..10]), "-1\n1\n");
        assert_eq!(shown(Format::U16, &bytes[6..10]), "65535\n1\n");
        assert_eq!((shown(Format::U8, &[200]), shown(Format::I8, &[200])), ("200\n".into(), "-56\n".into()));
        let floats: Vec<u8> =
            [1.5, 13.0, 0.1, 1e300, f64::NAN].iter().flat_map(|it: &f64| it.to_le_bytes()).collect();
        assert_eq!(shown(Format::F64, &floats), "1.5\n13.0\n0.1\n1e300\nNaN\n");
        assert_eq!(shown(Format::F32, &0.1_f32.to_le_bytes()), "0.1\n");
        assert_eq!(shown(Format::U64, b""), "");
    }

    #[test]
    fn bytes_that_make_no_number_are_given_back() {
        assert_eq!(Format::U64.show(&[1, 0, 0, 0, 0, 0, 0, 0, 7, 8]), (b"1\n".to_vec(), &[7, 8][..]));
        assert_eq!(Format::F32.show(b"abc"), (Vec::new(), &b"abc"[..]));
    }

    #[test]
    fn a_hex_dump_is_that_of_hexdump() {
        let bytes: Vec<u8> = (0..18).map(|at| at + b'0').collect();
        let expected = "\
00000000  30 31 32 33 34 35 36 37  38 39 3a 3b 3c 3d 3e 3f  |0123456789:;<=>?|
00000010  40 41                                             |@A|
";
        assert_eq!(shown(Format::Hex, &bytes), expected);
        assert!(shown(Format::Hex, b"\x1b\xff ").ends_with("|.. |\n"));
        assert_eq!(shown(Format::Hex, b""), "");
    }

    #[test]
    fn text_commands_no_terminal() {
        assert_eq!(shown(Format::Text, "Grüße\tan\nalle".as_bytes()), "Grüße\tan\nalle\n");
        assert_eq!(shown(Format::Text, b"\x1b[2J\r\0\n"), "\\x1b[2J\\x0d\\x00\n");
        assert_eq!(shown(Format::Text, b"a\xffb\xc2\x9b"), "a\\xffb\\u{9b}\n");
        assert_eq!(
            (shown(Format::Text, b""), Format::Raw.show(b"\xff").0),
            (String::new(), b"\xff".to_vec())
        );
    }
}
