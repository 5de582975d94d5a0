//! UCX's description of a put or a get: its protocol and lane, which decide whether the peer has to take part.
//!
//! The newer protocols (from UCX 1.16 on, by `UCX_PROTO_ENABLE=y` before) choose for each length separately, and
//! describe the choice only for a put that was made. So this module makes a put of zeroes for each length, and queries
//! its request (`ucp_request_query`): `{cpml|proto} put from host memory length 8 short rc_verbs/mlx5_0:1 83.3 MB/s
//! 0.09 us`. The text is for display and no stable format. Text of another form counts as a put that is not native.

use std::ffi::CStr;
use std::mem::MaybeUninit;

use farjump_ucx_sys::{
    UCP_REQUEST_ATTR_FIELD_INFO_STRING, UCP_REQUEST_ATTR_FIELD_INFO_STRING_SIZE, UCS_OK, Ucx,
    ucp_request_attr_t, ucs_status_ptr_t,
};

/// Space for UCX's text. UCX truncates longer text.
const TEXT_LEN: usize = 1024;

/// Implementation of a put.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum How {
    /// By the device, or by a copy that the sender makes. The peer takes no part.
    Native,
    /// Emulated, with UCX's description.
    Emulated(String),
    /// Unknown: the older protocols.
    Unknown,
}

/// Returns UCX's description of a put or a get.
///
/// # Safety
/// UCX returned `request` for a put or a get, and it was not freed.
pub(super) unsafe fn said(ucx: &Ucx, request: ucs_status_ptr_t) -> How {
    if !farjump_ucx_sys::UCS_PTR_IS_PTR(request) {
        return How::Unknown;
    }
    let mut text = [0_u8; TEXT_LEN];
    // SAFETY: zero is valid for all fields, numbers and pointers; UCX reads those that the mask names.
    let mut attributes: ucp_request_attr_t = unsafe { MaybeUninit::zeroed().assume_init() };
    attributes.field_mask =
        u64::from(UCP_REQUEST_ATTR_FIELD_INFO_STRING | UCP_REQUEST_ATTR_FIELD_INFO_STRING_SIZE);
    attributes.debug_string = text.as_mut_ptr().cast();
    attributes.debug_string_size = text.len() - 1;
    // SAFETY: the caller guarantees the request; the text buffer has the stated length and a zero behind it.
    let status = unsafe { ucx.ucp_request_query(request, &mut attributes) };
    match CStr::from_bytes_until_nul(&text) {
        Ok(text) if status == UCS_OK => How::read(&text.to_string_lossy()),
        _ => How::Unknown,
    }
}

impl How {
    /// Parses UCX's text for a request.
    fn read(text: &str) -> How {
        let Some((_, rest)) = text.split_once(" length ") else { return How::Unknown };
        // Length, protocol, lane, and two estimates: `8 short sysv/memory 83.3 MB/s 0.09 us`.
        let Some((_, how)) = rest.split_once(' ') else { return How::Emulated(rest.to_owned()) };
        let words: Vec<_> = how.split_whitespace().collect();
        let end =
            words.iter().position(|word| *word == "MB/s").map_or(words.len(), |unit| unit.saturating_sub(1));
        let words = &words[..end];
        let said = words.join(" ");
        let ways: Vec<_> =
            words.iter().filter_map(|word| word.split_once('/')).map(|(transport, _)| transport).collect();
        // TCP's zero-copy put is a message that the peer's UCX executes; datagrams write no memory.
        let is_message = |way: &&str| *way == "tcp" || way.starts_with("ud");
        let is_told = ["emulation", "stub", "reconfig"].iter().any(|word| said.contains(word));
        if is_told || ways.is_empty() || ways.iter().any(is_message) {
            return How::Emulated(said);
        }
        How::Native
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded: UCX's version, its text for a put, and its description of one that is not native.
    const SAID: [(&str, &str, Option<&str>); 19] = [
        ("1.13.1", "flags:0x5 put() from host memory length 8 short sysv/memory -131.9 MB/s -0.06 us", None),
        (
            "1.13.1",
            "flags:0x5 put() from host memory length 8 software emulation sysv/memory 41.5 MB/s 0.18 us",
            Some("software emulation sysv/memory"),
        ),
        ("1.16.0", "{cpml|proto} put from host memory length 8 short sysv/memory 83.3 MB/s 0.09 us", None),
        (
            "1.16.0",
            "{proto|init} put from host memory length 8 software emulation sysv/memory 41.8 MB/s 0.18 us",
            Some("software emulation sysv/memory"),
        ),
        (
            "1.16.0",
            "{proto|init} put from host memory length 1048576 software emulation sysv/memory 6615.2 MB/s 151.17 us",
            Some("software emulation sysv/memory"),
        ),
        ("1.16.0", "{proto} put from host memory length 8 zero-copy cma/memory 12.9 MB/s 0.59 us", None),
        (
            "1.16.0",
            "{proto} put from host memory length 8 zero-copy tcp/eth0 0.1 MB/s 61.65 us",
            Some("zero-copy tcp/eth0"),
        ),
        ("1.18.1", "{proto} put from host memory length 8 zero-copy cma/memory 11.4 MB/s 0.67 us", None),
        (
            "1.18.1",
            "{proto} put from host memory length 1048576 zero-copy tcp/lo 11.9 MB/s 84009.24 us",
            Some("zero-copy tcp/lo"),
        ),
        ("1.18.1", "{cpml|proto} put from host memory length 8 short rc_verbs/rxe0:1 1.4 MB/s 5.35 us", None),
        ("1.18.1", "{proto} put from host memory length 128 copy-in rc_verbs/rxe0:1 19.5 MB/s 6.26 us", None),
        (
            "1.18.1",
            "{proto} put from host memory length 1048576 copy-in rc_verbs/rxe0:1 218.8 MB/s 4569.75 us",
            None,
        ),
        (
            "1.20.1",
            "{cpml|proto|init} put from host memory length 8 short sysv/memory 83.3 MB/s 0.09 us",
            None,
        ),
        (
            "1.22.0",
            "{cpml|proto|init} put from host memory length 8 short sysv/memory 83.3 MB/s 0.09 us",
            None,
        ),
        (
            "1.22.0",
            "{cpml|proto|init} put from host memory length 1048576 short sysv/memory 4806.5 MB/s 208.05 us",
            None,
        ),
        (
            "1.22.0",
            "{cpml|proto|init} put from host memory length 8 stub protocol 0.0 MB/s inf us",
            Some("stub protocol"),
        ),
        (
            "1.22.0",
            "{proto|init} put from host memory length 8 zero-copy tcp/lo 0.1 MB/s 72.61 us",
            Some("zero-copy tcp/lo"),
        ),
        // Not recorded: forms that no known version prints.
        ("", "{proto} put from host memory length 8 something new 1.0 MB/s 0.1 us", Some("something new")),
        (
            "",
            "{proto} put from host memory length 8 50% on rc_mlx5/mlx5_0:1 and 50% on ud_mlx5/mlx5_1:1 1.0 MB/s",
            Some("50% on rc_mlx5/mlx5_0:1 and 50% on ud_mlx5/mlx5_1:1"),
        ),
    ];

    #[test]
    fn puts_are_read_as_native_or_emulated_for_each_ucx_version() {
        for (version, text, emulated) in SAID {
            let how = emulated.map_or(How::Native, |words| How::Emulated(words.to_owned()));
            assert_eq!(How::read(text), how, "{version}: {text}");
        }
    }

    #[test]
    fn the_older_protocols_say_nothing() {
        for text in ["flags:0x1 <no debug info>", "", "flags:0x0"] {
            assert_eq!(How::read(text), How::Unknown, "{text}");
        }
    }

    #[test]
    fn a_truncated_put_description_counts_as_emulated() {
        for text in [
            "put from host memory length ",
            "put from host memory length 8",
            "put from host memory length 8 ",
        ] {
            assert!(matches!(How::read(text), How::Emulated(_)), "{text}");
        }
    }
}
