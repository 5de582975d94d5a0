//! Which way UCX takes to a peer: what `ucp_ep_print_info` prints, read and put into words.
//!
//! UCX 1.13 answers no other question about an endpoint's lanes. What is printed is for people and not promised: nothing is
//! refused because a line could not be read, except writes into memory that is not mapped here, which have to be known not to be
//! emulated.

use std::ffi::c_void;
use std::ptr;
use std::slice;

use farjump_ucx_sys::{Ucx, ucp_ep_h};

/// The lanes of an endpoint.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    /// Lanes for which UCX says how it writes memory, by index.
    puts: Vec<usize>,
    /// How long a message is that UCX sends inline, copies, and sends without a copy, each at most, in bytes; from there on
    /// the receiver fetches it.
    limits: Vec<(String, String)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Lane {
    /// UCX's name of the transport: `posix`, `tcp`, `rc_verbs`.
    transport: String,
    /// UCX's name of the device, without the path index: `eth0`, `memory`.
    device: String,
}

impl Lanes {
    /// Those of `end`.
    pub(super) fn of(ucx: &Ucx, end: ucp_ep_h) -> Lanes {
        // SAFETY: the end is connected, and the stream is one that `print` made.
        Lanes::read(&printed(|stream| unsafe { ucx.ucp_ep_print_info(end, stream) }))
    }

    /// From what UCX printed. Lines that it printed otherwise in 1.13 are passed over.
    fn read(text: &str) -> Lanes {
        let mut lanes = Lanes::default();
        for line in text.lines() {
            let Some((name, said)) = line.trim_start_matches('#').split_once(": ") else { continue };
            let (name, said) = (name.trim(), said.trim());
            if name.starts_with("lane[") {
                // `1:sysv/memory.0 md[1] -> …`
                let word = said.split_whitespace().next().unwrap_or("");
                let way = word.split_once(':').map_or(word, |(_, way)| way);
                if let Some((transport, device)) = way.split_once('/') {
                    let device = device.rsplit_once('.').map_or(device, |(device, _)| device);
                    lanes.lanes.push(Lane { transport: transport.to_owned(), device: device.to_owned() });
                }
            } else if let Some(index) = name.strip_prefix("put[").and_then(|rest| rest.strip_suffix(']')) {
                lanes.puts.extend(index.parse::<usize>().ok());
            } else if name == "am_send" {
                lanes.limits = ranges(said);
            }
        }
        lanes
    }

    /// Whether a lane writes memory of the peer's that is not mapped here, by its device: for UCX's shared memory, whose lanes
    /// can only write what is mapped, and TCP, writes are emulated.
    pub(super) fn write_natively(&self) -> bool {
        self.puts.iter().filter_map(|index| self.lanes.get(*index)).any(|lane| !lane.is_emulating())
    }

    /// Whether all of them are TCP.
    pub(super) fn are_tcp(&self) -> bool {
        !self.lanes.is_empty() && self.lanes.iter().all(|lane| lane.transport == "tcp")
    }

    /// In a few words: `tcp over eth0`. Each way once, the first first.
    pub(super) fn in_words(&self) -> String {
        let mut ways: Vec<String> = Vec::new();
        for way in self.lanes.iter().map(Lane::in_words) {
            if !ways.contains(&way) {
                ways.push(way);
            }
        }
        if ways.is_empty() { "a way that UCX does not tell".to_owned() } else { ways.join(", ") }
    }

    /// How messages travel, by their length, as a sentence; `None` where UCX does not tell.
    pub(super) fn sizes_in_words(&self) -> Option<String> {
        let parts: Vec<_> = self
            .limits
            .iter()
            .map(|(how, up_to)| match how.trim_start_matches("egr/") {
                "short" => format!("up to {up_to} bytes go inline"),
                "bcopy" => format!("up to {up_to} are copied by UCX"),
                "zcopy" => format!("up to {up_to} are sent from where they lie"),
                "rndv" => "longer ones are fetched by the receiver".to_owned(),
                other => format!("up to {up_to} go by {other}"),
            })
            .collect();
        if parts.is_empty() { None } else { Some(format!("messages: {}", parts.join(", "))) }
    }
}

impl Lane {
    fn is_emulating(&self) -> bool {
        matches!(&*self.transport, "tcp" | "posix" | "sysv" | "cma" | "knem" | "xpmem")
    }

    fn in_words(&self) -> String {
        let Lane { transport, device } = self;
        match &**transport {
            "posix" | "sysv" | "xpmem" => format!("shared memory of this machine ({transport})"),
            "cma" | "knem" => format!("copies by this machine's kernel ({transport})"),
            "self" => "this process itself".to_owned(),
            "tcp" => format!("tcp over {device}"),
            _ if transport.starts_with("rc") || transport.starts_with("dc") => {
                format!("reliable RDMA over {device} ({transport})")
            }
            _ if transport.starts_with("ud") => {
                format!("datagrams of an RDMA device over {device} ({transport})")
            }
            _ => format!("{transport} over {device}"),
        }
    }
}

/// `0..<egr/short>..93..<egr/bcopy>..8256..<rndv>..(inf)`: what is done up to which length. The lengths that UCX prints are
/// where the next begins.
fn ranges(said: &str) -> Vec<(String, String)> {
    let words: Vec<_> = said.split("..").map(str::trim).collect();
    let how = |word: &str| word.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')).map(str::to_owned);
    words
        .iter()
        .enumerate()
        .filter_map(|(index, word)| {
            let next = words.get(index + 1).copied().unwrap_or("(inf)");
            let most = next
                .parse::<u64>()
                .map_or_else(|_| "any".to_owned(), |next| next.saturating_sub(1).to_string());
            Some((how(word)?, most))
        })
        .collect()
}

/// What `print` writes to the stream that it is given; empty where the system has no memory for one.
pub(super) fn printed(print: impl FnOnce(*mut libc::FILE)) -> String {
    let (mut text, mut len) = (ptr::null_mut::<libc::c_char>(), 0_usize);
    // SAFETY: there is room for both.
    let stream = unsafe { libc::open_memstream(&mut text, &mut len) };
    if stream.is_null() {
        return String::new();
    }
    print(stream);
    // SAFETY: opened above, and used no more. Closing it writes text and length.
    unsafe { libc::fclose(stream) };
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the system has written so many bytes there, which are ours to free.
    let copy = String::from_utf8_lossy(unsafe { slice::from_raw_parts(text.cast::<u8>(), len) }).into_owned();
    // SAFETY: as above, and used no more.
    unsafe { libc::free(text.cast::<c_void>()) };
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARED: &str = "\
#
# UCP endpoint 
#
#               peer: <no debug data>
#                 lane[0]:  1:sysv/memory.0 md[1]           -> md[1]/sysv/sysdev[255] am am_bw#0
#                 lane[1]:  2:posix/memory.0 md[2]          -> md[2]/posix/sysdev[255]
#
#                tag_send: 0..<egr/short>..93..<egr/bcopy>..8248..<rndv>..(inf)
#                  put[0]: 0..<short>..4294967296..<bcopy>..(inf)
#                  put[1]: 0..<short>..4294967296..<bcopy>..(inf)
";
    const TCP: &str = "\
#                 lane[0]:  0:tcp/lo.0 md[0]                -> md[0]/tcp/sysdev[255] am am_bw#0 wireup
#                 am_send: 0..<egr/short>..8185..<egr/bcopy>..8249..<egr/zcopy>..20501..<rndv>..(inf)
";
    const RDMA: &str = "\
#                 lane[0]:  5:rc_verbs/mlx5_0:1.0 md[3]     -> md[3]/ib/sysdev[0] rma_bw#0 am am_bw#0 wireup{ud_verbs}
#                  put[0]: 0..<short>..124..<bcopy>..8257..<zcopy>..(inf)
";

    #[test]
    fn lanes_are_read_and_said_in_words() {
        let tcp = Lanes::read(TCP);
        assert_eq!(tcp.in_words(), "tcp over lo");
        assert!(tcp.are_tcp() && !tcp.write_natively());
        assert_eq!(
            tcp.sizes_in_words().as_deref(),
            Some(
                "messages: up to 8184 bytes go inline, up to 8248 are copied by UCX, up to 20500 are sent from where they lie, \
                 longer ones are fetched by the receiver"
            )
        );
        let rdma = Lanes::read(RDMA);
        assert_eq!(rdma.in_words(), "reliable RDMA over mlx5_0:1 (rc_verbs)");
        assert!(rdma.write_natively() && !rdma.are_tcp());
    }

    #[test]
    fn shared_memory_writes_nothing_that_is_not_mapped_though_it_says_how_it_puts() {
        let shared = Lanes::read(SHARED);
        assert!(!shared.write_natively() && !shared.are_tcp());
        assert_eq!(
            shared.in_words(),
            "shared memory of this machine (sysv), shared memory of this machine (posix)"
        );
    }

    #[test]
    fn what_cannot_be_read_is_passed_over() {
        for text in ["", "nonsense", "# lane[x]: ?", "# put[9]: 0..", "# am_send: ..<..>..", "#lane[0]: /"] {
            let lanes = Lanes::read(text);
            assert!(!lanes.write_natively(), "{text}");
            assert!(!lanes.in_words().is_empty());
        }
    }

    #[test]
    fn what_is_printed_comes_back() {
        let text = printed(|stream| {
            // SAFETY: the stream is open, and the text ends.
            unsafe { libc::fputs(c"a line\nand another".as_ptr(), stream) };
        });
        assert_eq!(text, "a line\nand another");
        assert_eq!(printed(|_| {}), "");
    }
}
