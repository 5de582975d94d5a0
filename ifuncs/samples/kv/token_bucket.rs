//! token_bucket: takes tokens from a bucket that fills up again.
//!
//! The key is the bucket, a hash. The arguments are its capacity in tokens, the tokens that come in a second, the
//! tokens wanted, and the time in microseconds. Without a time the server's clock counts. The answer is an array: 1 if
//! the tokens were taken, otherwise 0, and the tokens left. `token_bucket.c` and `token_bucket.lua` do the same.
//!
//! `farjump build` compiles a crate with this file that depends on `farjump-ifunc` and `farjump-kv-ifunc`.

#![no_std]
#![forbid(unsafe_code)]

use farjump_ifunc::{fail, ifunc};
use farjump_kv_ifunc::{Fault, Kv};

#[ifunc(name = "token_bucket")]
fn token_bucket(payload: &[u8], kv: &mut Kv) {
    if let Err(fault) = take(payload, kv) {
        kv.fail(fault)
    }
}

fn take(payload: &[u8], kv: &mut Kv) -> Result<(), Fault> {
    kv.words(payload)?;
    let Some(key) = kv.key(0) else { fail("token_bucket needs a key") };
    let [most, rate, wanted] = [0, 1, 2].map(|index| argument(kv, index));
    let now = if kv.args() > 3 { argument(kv, 3) } else { kv.time() as f64 };

    let (tokens, before) = (saved(kv, &key, b"tokens", most)?, saved(kv, &key, b"time", now)?);
    let mut tokens = (tokens + (now - before).max(0.0) * rate / 1e6).min(most);
    let is_taken = tokens >= wanted;
    if is_taken {
        tokens -= wanted;
    }

    let Some(left) = kv.double_text(tokens) else { fail("the arguments leave no number of tokens") };
    let time = kv.integer_text(now as i64);
    kv.command([b"HSET", &key, b"tokens", &left, b"time", &time])?;
    kv.expire(&key, ((most / rate * 1000.0) as i64).saturating_add(1))?;
    kv.reply_array(2)?;
    kv.reply_integer(is_taken.into())?;
    kv.reply_string(&left)
}

fn argument(kv: &Kv, index: usize) -> f64 {
    let number = kv.arg(index).and_then(|text| kv.double(&text));
    number.unwrap_or_else(|| fail("token_bucket needs numbers: MOST, RATE, WANTED, and perhaps the time"))
}

/// Returns a field of the bucket, or `otherwise` if the field is missing.
fn saved(kv: &Kv, key: &[u8], field: &[u8], otherwise: f64) -> Result<f64, Fault> {
    let Some(text) = kv.hget(key, field)? else { return Ok(otherwise) };
    Ok(kv.double(text).unwrap_or_else(|| fail("the key is no bucket: a field of it is no number")))
}
