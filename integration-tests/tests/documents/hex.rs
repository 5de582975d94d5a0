//! Blocks of bytes in documents.
//!
//! A block is fenced and marked `hex NAME`. Each line has an offset, a bar, the bytes in hexadecimal, a bar,
//! and words for people.

use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Reads a document, by its path from the root of the repository.
pub(crate) fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The bytes of the block `name`.
fn block(document: &str, name: &str) -> Vec<u8> {
    let opening = format!("```hex {name}\n");
    let (_, rest) = document.split_once(&opening).unwrap_or_else(|| panic!("no block {name}"));
    let (lines, _) = rest.split_once("```").expect("the block ends");
    let mut bytes = Vec::new();
    for line in lines.lines() {
        let mut parts = line.split('|');
        let offset = usize::from_str_radix(parts.next().unwrap_or("").trim(), 16);
        assert_eq!(offset, Ok(bytes.len()), "{name}: offset of {line:?}");
        for word in parts.next().unwrap_or("").split_whitespace() {
            bytes.push(u8::from_str_radix(word, 16).unwrap_or_else(|_| panic!("{name}: {word:?}")));
        }
    }
    bytes
}

/// Fails, showing the correct block, unless the block `name` of `document` has these bytes.
pub(crate) fn assert_block(document: &str, name: &str, bytes: &[u8]) {
    let shown = bytes.chunks(8).enumerate().fold(String::new(), |mut text, (index, chunk)| {
        let _ = write!(text, "{:02x} |", index * 8);
        for byte in chunk {
            let _ = write!(text, " {byte:02x}");
        }
        text + " |\n"
    });
    assert!(!bytes.is_empty());
    assert_eq!(block(document, name), bytes, "block {name} should be\n{shown}");
}
