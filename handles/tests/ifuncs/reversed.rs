//! Makes an object of another one: its bytes in reverse. With arguments it fails after that, or makes two.
#![no_std]
#![forbid(unsafe_code)]

use farjump_ifunc::{NoObject, again, at, fail, ifunc, new_object};

#[ifunc]
fn reversed(payload: &[u8]) {
    let made = at(payload, |bytes, args| {
        let made = new_object(bytes.len(), |into| {
            for (to, from) in into.iter_mut().zip(bytes.iter().rev()) {
                *to = *from;
            }
        });
        (made, args.first().copied())
    });
    let Ok(made) = made else { fail("no object") };
    match made {
        // The function runs again when the store has written other objects to its file.
        (Err(NoObject::Spilled), _) if again(payload).is_ok() => {}
        (Err(_), _) => fail("no memory"),
        (Ok(()), Some(b'f')) => fail("made one and failed"),
        (Ok(()), Some(_)) => {
            let _ = new_object(1, |into| into.fill(7));
        }
        (Ok(()), None) => {}
    }
}
