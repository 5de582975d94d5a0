//! Makes an object of another one: its bytes in reverse. With arguments it fails after that, or makes two.
#![no_std]
#![forbid(unsafe_code)]

use farjump_ifunc::{Payload, at, fail, ifunc, new_object};

#[ifunc]
fn reversed(payload: &[u8]) {
    let Ok((bytes, args)) = at(payload) else { fail("no object") };
    let made = new_object(bytes.len(), |into| {
        for (to, from) in into.iter_mut().zip(bytes.iter().rev()) {
            *to = *from;
        }
    });
    match (made, args.first()) {
        (Err(_), _) => fail("no memory"),
        (Ok(()), Some(b'f')) => fail("made one and failed"),
        (Ok(()), Some(_)) => {
            let _ = new_object(1, |into| into.fill(7));
        }
        (Ok(()), None) => {}
    }
}
