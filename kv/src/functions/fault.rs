//! The reasons why a function got nothing.

/// Numbers of `farjump_kv.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub(crate) enum Code {
    WrongType = -1,
    Denied = -2,
    Paused = -3,
    NoMemory = -4,
    ReadOnly = -5,
    OtherSlot = -6,
    Stale = -7,
    Failed = -8,
    BadArgument = -9,
    TooMany = -10,
    NoCall = -11,
}

/// A number, and its message.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) code: Code,
    pub(crate) text: String,
}

impl Fault {
    #[cold]
    pub(crate) fn new(code: Code, text: impl Into<String>) -> Fault {
        Fault { code, text: text.into() }
    }
}

/// Returns a name or value in the form for messages.
pub(crate) fn shown(bytes: &[u8]) -> String {
    const MOST: usize = 64;
    let cut = if bytes.len() > MOST { "…" } else { "" };
    format!("\"{}{cut}\"", bytes[..bytes.len().min(MOST)].escape_ascii())
}
