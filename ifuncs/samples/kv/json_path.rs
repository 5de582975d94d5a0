//! json_path: a value inside a JSON text, which is a string of the server's.
//!
//! The payload has words with a zero behind each: the key, and the steps to the value. A step is the name of a member or, in
//! an array, the index of an element. With `FJ.CALL` the key is the first one of the command, and the payload has steps alone.
//! The reply is the value as written in the text. There is no reply if the value does not exist. Names are compared as
//! written, so a name with a backslash is never found. The text is checked only as far as the path to the value
//! requires.
//!
//! `farjump build` compiles a crate with this file that depends on `farjump-ifunc` and `farjump-kv-ifunc`.

#![no_std]
#![forbid(unsafe_code)]

use farjump_ifunc::{fail, ifunc, reply};
use farjump_kv_ifunc::Kv;

#[ifunc(name = "json_path")]
fn json_path(payload: &[u8], kv: &mut Kv) {
    let Some(words) = payload.strip_suffix(b"\0") else {
        fail("the payload has no zero at its end: write KEY and steps, each with a zero behind it")
    };
    let mut words = words.split(|&byte| byte == 0);
    let key = kv.key(0);
    let key = match &key {
        Some(key) => key,
        None => words.next().unwrap_or_default(),
    };
    let text = match kv.get(key) {
        Ok(text) => text,
        Err(fault) => kv.fail(fault),
    };
    let Some(text) = text else { return };
    let start = words.try_fold(space(text, 0), |at, step| follow(text, at, step));
    let value = start.and_then(|start| text.get(start..skip(text, start)?));
    if let Some(value) = value
        && reply(value).is_err()
    {
        fail("the value is longer than a reply may be")
    }
}

/// Returns the place behind spaces.
fn space(text: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\r' | b'\t') = text.get(at) {
        at += 1;
    }
    at
}

/// Returns the place behind the string that begins here.
fn string(text: &[u8], mut at: usize) -> Option<usize> {
    at += 1;
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Returns the place behind the value that begins here.
fn skip(text: &[u8], mut at: usize) -> Option<usize> {
    let start = at;
    let mut depth = 0_usize;
    loop {
        match text.get(at) {
            Some(b'"') => at = string(text, at)?,
            Some(b'{' | b'[') => {
                depth += 1;
                at += 1;
            }
            Some(b'}' | b']') if depth > 0 => {
                depth -= 1;
                at += 1;
            }
            Some(b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t') | None if depth == 0 => {
                return (at > start).then_some(at);
            }
            Some(_) => at += 1,
            None => return None,
        }
        let is_whole = matches!(text.get(at - 1), Some(b'"' | b'}' | b']'));
        if depth == 0 && is_whole {
            return Some(at);
        }
    }
}

/// Returns the place of the member or element that a step names, in the value that begins here.
fn follow(text: &[u8], at: usize, step: &[u8]) -> Option<usize> {
    let is_object = match text.get(at)? {
        b'{' => true,
        b'[' => false,
        _ => return None,
    };
    let mut left = if is_object { 0 } else { core::str::from_utf8(step).ok()?.parse::<usize>().ok()? };
    let mut at = space(text, at + 1);
    loop {
        let mut is_wanted = !is_object && left == 0;
        if is_object {
            if *text.get(at)? != b'"' {
                return None;
            }
            let end = string(text, at)?;
            is_wanted = text.get(at + 1..end - 1)? == step;
            at = space(text, end);
            if *text.get(at)? != b':' {
                return None;
            }
            at = space(text, at + 1);
        } else if *text.get(at)? == b']' {
            return None;
        }
        if is_wanted {
            return Some(at);
        }
        at = space(text, skip(text, at)?);
        if *text.get(at)? != b',' {
            return None;
        }
        at = space(text, at + 1);
        left = left.saturating_sub(1);
    }
}
