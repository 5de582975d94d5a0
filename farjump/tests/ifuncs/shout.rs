//! The ASCII letters of a text in upper case.

#![no_std]

use farjump_ifunc::{ifunc, reply};

#[ifunc]
fn shout(text: &str) {
    for letter in text.bytes() {
        let _ = reply(&[letter.to_ascii_uppercase()]);
    }
}
