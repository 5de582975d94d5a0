//! Values that functions answer with, and the words that links call with: both in RESP, the protocol of the server's clients.
//! A link's source gets the bytes. For `FJ.CALL` the server writes them in its client's version of the protocol.

use super::fault::{Code, Fault};
use super::{Bytes, CommandInput, Copy, Kv, numbers};

/// A value of an answer. The elements of an array are the values behind it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Value<'r> {
    Integer(i64),
    Double(f64),
    String(&'r [u8]),
    Array(usize),
}

/// The end of a line of RESP.
const END: &[u8] = b"\r\n";

/// Returns the line at the start of `bytes` that begins with `kind`, without `kind`, and the bytes behind it.
fn line(bytes: &[u8], kind: u8) -> Option<(&[u8], &[u8])> {
    let rest = bytes.strip_prefix(&[kind])?;
    let end = rest.windows(END.len()).position(|window| window == END)?;
    Some((&rest[..end], &rest[end + END.len()..]))
}

/// Returns a length at the start of `bytes`, and the bytes behind it.
fn length(bytes: &[u8], kind: u8) -> Option<(usize, &[u8])> {
    let (text, rest) = line(bytes, kind)?;
    Some((usize::try_from(numbers::integer(text)?).ok()?, rest))
}

/// Returns a string at the start of `bytes`, and the bytes behind it.
fn string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = length(bytes, b'$')?;
    let (string, rest) = rest.split_at_checked(len)?;
    Some((string, rest.strip_prefix(END)?))
}

/// Returns the value at the start of `bytes`, and the bytes behind it.
fn value(bytes: &[u8]) -> Option<(Value<'_>, &[u8])> {
    Some(match bytes.first()? {
        b':' => line(bytes, b':')
            .and_then(|(text, rest)| Some((Value::Integer(numbers::integer(text)?), rest)))?,
        b',' => {
            line(bytes, b',').and_then(|(text, rest)| Some((Value::Double(numbers::double(text)?), rest)))?
        }
        b'$' => string(bytes).map(|(string, rest)| (Value::String(string), rest))?,
        _ => length(bytes, b'*').map(|(len, rest)| (Value::Array(len), rest))?,
    })
}

/// The values of a whole answer, in order.
///
/// # Errors
/// A message, if the values are not one answer.
pub(crate) fn values(reply: &[u8]) -> Result<Vec<Value<'_>>, String> {
    let (mut values, mut rest, mut missing) = (Vec::new(), reply, 1_usize);
    while !rest.is_empty() {
        let (value, behind) = value(rest).ok_or(
            "the function has replied bytes beside its answer: use farjump_reply or kv_answer_..., not both",
        )?;
        if missing == 0 {
            return Err(
                "the function has answered two values: begin an array of both by kv_answer_array".to_owned()
            );
        }
        missing -= 1;
        if let Value::Array(len) = value {
            missing = missing.saturating_add(len);
        }
        values.push(value);
        rest = behind;
    }
    match missing {
        0 => Ok(values),
        _ => Err(format!(
            "the function's answer lacks {missing} elements of an array: answer as many as kv_answer_array was given"
        )),
    }
}

/// The keys and arguments of a link's payload: `numkeys key ... arg ...`, as behind the name in `FJ.CALL`.
fn words(payload: &[u8]) -> Option<(Vec<Bytes>, Vec<Bytes>)> {
    let (count, rest) = length(payload, b'*')?;
    let (first, mut rest) = string(rest)?;
    let keys = usize::try_from(numbers::integer(first)?).ok()?;
    let mut words = Vec::new();
    for _ in 1..count {
        let (word, behind) = string(rest)?;
        words.push(Bytes::of(word));
        rest = behind;
    }
    if keys > words.len() || !rest.is_empty() {
        return None;
    }
    let args = words.split_off(keys);
    Some((words, args))
}

impl Kv {
    /// Answers with a value.
    pub(super) fn reply_value(&self, value: Value<'_>) -> Result<(), Fault> {
        let mut state = self.state.borrow_mut();
        let mut bytes = std::mem::take(&mut state.value_bytes);
        bytes.clear();
        let (kind, number) = match value {
            Value::Integer(number) => (b':', numbers::of_integer(number)),
            Value::Double(number) if number.is_nan() => {
                return Err(Fault::new(Code::BadArgument, "the value is no number"));
            }
            Value::Double(number) => (b',', numbers::of_double(number)),
            Value::String(string) => (b'$', numbers::of_integer(length_of(string.len())?)),
            Value::Array(len) => (b'*', numbers::of_integer(length_of(len)?)),
        };
        bytes.push(kind);
        bytes.extend_from_slice(number.bytes());
        bytes.extend_from_slice(END);
        if let Value::String(string) = value {
            bytes.extend_from_slice(string);
            bytes.extend_from_slice(END);
        }
        let taken = farjump::reply(&bytes);
        (state.value_bytes, state.has_replied_values) = (bytes, true);
        match taken {
            true => Ok(()),
            false => Err(Fault::new(Code::TooMany, "the answer is longer than the target lets replies be")),
        }
    }

    /// Takes the payload of a link's call for keys and arguments. Does nothing in a call by a command.
    pub(super) fn take_words(&self, payload: &[u8]) -> Result<(), Fault> {
        if self.with_input(|input| input.is_command)? {
            return Ok(());
        }
        self.act_at_end();
        let mut state = self.state.borrow_mut();
        let at = state.copies.len();
        // The function may write to its payload.
        state.lend(Copy::Vec(payload.to_vec()))?;
        let taken = match state.copies.get(at) {
            Some(Copy::Vec(copy)) => words(copy),
            _ => None,
        };
        let Some((keys, args)) = taken else {
            let text = "the payload has no keys and arguments: send an array of bulk strings (RESP): numkeys key ... arg ...";
            return Err(Fault::new(Code::BadArgument, text));
        };
        state.words = Some(CommandInput { keys, args, is_command: false });
        Ok(())
    }
}

fn length_of(len: usize) -> Result<i64, Fault> {
    i64::try_from(len).map_err(|_| Fault::new(Code::BadArgument, "no value is so long"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_parses_as_exactly_one_value_with_all_its_elements() {
        assert_eq!(values(b":-5\r\n"), Ok(vec![Value::Integer(-5)]));
        let nested = values(b"*2\r\n*0\r\n*2\r\n$2\r\n\r\n\r\n,0.5\r\n");
        let expected = vec![
            Value::Array(2),
            Value::Array(0),
            Value::Array(2),
            Value::String(b"\r\n"),
            Value::Double(0.5),
        ];
        assert_eq!(nested, Ok(expected));
        for (reply, part) in [
            (&b":1\r\n:2\r\n"[..], "two values"),
            (b"*2\r\n:1\r\n", "lacks 1 elements"),
            (b"*9223372036854775807\r\n*9223372036854775807\r\n", "lacks"),
            (b":1\r\nx", "farjump_reply"),
            (b"$5\r\nab\r\n", "farjump_reply"),
            (b"*-1\r\n", "farjump_reply"),
            (b"", "lacks 1"),
        ] {
            let error = values(reply).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn words_are_whole_or_none() {
        let whole = b"*4\r\n$1\r\n2\r\n$1\r\na\r\n$0\r\n\r\n$1\r\nz\r\n";
        let (keys, args) = words(whole).unwrap();
        assert_eq!((keys.len(), args.len()), (2, 1));
        for cut in 0..whole.len() {
            assert!(words(&whole[..cut]).is_none(), "{cut}");
        }
        for wrong in [
            &b"*1\r\n$1\r\n1\r\n"[..],
            b"*1\r\n$2\r\n-1\r\n",
            b"*0\r\n",
            b"*1\r\n$1\r\n0\r\nx",
            b"*1\r\n$19\r\n9223372036854775807\r\n",
            b"*1\r\n$9223372036854775807\r\n0\r\n",
        ] {
            assert!(words(wrong).is_none(), "{}", wrong.escape_ascii());
        }
    }
}
