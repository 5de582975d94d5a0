//! The lanes of UCX to a peer: the output of `ucp_ep_print_info`, parsed and described.
//!
//! UCX 1.13 has no other interface to a UCX endpoint's lanes. The output is for display and no stable format: an
//! unreadable line never causes a rejection, except for writes into unmapped memory, which must be known not to be
//! emulated. UCX chooses lanes by one of two sets of rules ("protocols"), and prints them in two forms: lines with
//! limits (1.13 to 1.15) and tables (from 1.16 on). `printed/` has samples of both.

use std::ffi::c_void;
use std::ptr;
use std::slice;

use farjump_ucx_sys::{Ucx, ucp_ep_h};

use super::tls;

/// The lanes of a UCX endpoint.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    /// Indexes of lanes with a stated way of writing memory.
    puts: Vec<usize>,
    /// Protocols of messages (inline, copied, without a copy), each with its limit in bytes, then fetching.
    limits: Vec<(String, String)>,
    /// True if the text has limits in lines, as the older protocols print them.
    by_lines: bool,
}

/// The heading of the table for messages that are sent without flags.
const MESSAGES: &str = "active message by ucp_am_send* from host memory";

#[derive(Clone, PartialEq, Eq, Debug)]
struct Lane {
    /// UCX's name of the transport: `posix`, `tcp`, `rc_verbs`.
    transport: String,
    /// UCX's name of the device, without the path index: `eth0`, `memory`.
    device: String,
}

impl Lanes {
    /// Reads the lanes of `end`.
    pub(super) fn of(ucx: &Ucx, endpoint: ucp_ep_h) -> Lanes {
        // SAFETY: the UCX endpoint is connected, and `printed` made the stream.
        Lanes::read(&printed(|stream| unsafe { ucx.ucp_ep_print_info(endpoint, stream) }))
    }

    /// Parses UCX's output. Skips lines of no known form.
    fn read(text: &str) -> Lanes {
        let mut lanes = Lanes { limits: table(text, MESSAGES), ..Lanes::default() };
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
                lanes.by_lines = true;
            }
        }
        lanes
    }

    /// Returns whether a lane writes unmapped memory of the peer by its device. UCX emulates writes over TCP, and over
    /// its shared memory, whose lanes can only write mapped memory. `None` for the newer protocols, which print nothing
    /// about puts: only a put shows it (`put/query.rs`).
    pub(super) fn write_natively(&self) -> Option<bool> {
        let writing = || self.puts.iter().filter_map(|index| self.lanes.get(*index));
        self.by_lines.then(|| writing().any(|lane| !lane.is_emulating()))
    }

    /// Names their transports, each once, in UCX's order.
    pub(super) fn transports(self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for Lane { transport, .. } in self.lanes {
            if !names.contains(&transport) {
                names.push(transport);
            }
        }
        names
    }

    /// Returns whether one of them is TCP.
    pub(super) fn have_tcp(&self) -> bool {
        self.lanes.iter().any(Lane::is_tcp)
    }

    /// Returns whether all of them are TCP.
    pub(super) fn are_tcp(&self) -> bool {
        !self.lanes.is_empty() && self.lanes.iter().all(Lane::is_tcp)
    }

    /// Returns whether devices carry all of them, and none is shared memory or emulates writes.
    pub(super) fn are_devices(&self) -> bool {
        !self.lanes.is_empty()
            && !self.lanes.iter().any(|lane| lane.is_emulating() || lane.transport == "self")
    }

    /// Describes them briefly: `tcp over eth0`. Each lane once, in UCX's order.
    pub(super) fn in_words(&self) -> String {
        let mut ways: Vec<String> = Vec::new();
        for way in self.lanes.iter().map(Lane::in_words) {
            if !ways.contains(&way) {
                ways.push(way);
            }
        }
        if ways.is_empty() { "a transport that UCX does not name".to_owned() } else { ways.join(", ") }
    }

    /// Describes the protocols for messages by length, as a sentence; `None` if UCX does not print them.
    pub(super) fn sizes_in_words(&self) -> Option<String> {
        let part = |(index, (how, up_to)): (usize, &(String, String))| {
            let (what, is_last) = match how.trim_start_matches("egr/") {
                "short" => ("go inline".to_owned(), false),
                "bcopy" | "copy-in" => ("are copied by UCX".to_owned(), false),
                "multi-frag copy-in" => ("are copied by UCX in pieces".to_owned(), false),
                "zcopy" | "zero-copy" => ("are sent from where they lie".to_owned(), false),
                other if other == "rndv" || other.contains("rendezvous") => {
                    ("are fetched by the receiver".to_owned(), true)
                }
                other => (format!("go by {other}"), false),
            };
            match (index, &**up_to) {
                (0, "any") => format!("all {what}"),
                (_, "any") => format!("longer ones {what}"),
                _ if is_last => format!("longer ones {what}"),
                (0, most) => format!("up to {most} bytes {what}"),
                (_, most) => format!("up to {most} {what}"),
            }
        };
        let parts: Vec<_> = self.limits.iter().enumerate().map(part).collect();
        if parts.is_empty() { None } else { Some(format!("messages: {}", parts.join(", "))) }
    }
}

impl Lane {
    fn is_tcp(&self) -> bool {
        tls::is_tcp(&self.transport)
    }

    fn is_emulating(&self) -> bool {
        self.is_tcp() || matches!(&*self.transport, "posix" | "sysv" | "cma" | "knem" | "xpmem")
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

/// Parses `0..<egr/short>..93..<egr/bcopy>..8256..<rndv>..(inf)` into protocols and their upper limits. The printed
/// lengths are those at which the next protocol begins.
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

/// Returns the rows of the table with this heading: protocol (`copy-in`) and upper limit. A row is
/// `|     93..8248 | copy-in | sysv/memory |`, with inclusive lengths, some of them in units (`256K..inf`). The heading
/// stands in the table's first row, alone or behind the context's name.
fn table(text: &str, heading: &str) -> Vec<(String, String)> {
    let cells = |line: &str| -> Option<Vec<String>> {
        let row = line.trim_start_matches('#').trim().strip_prefix('|')?.strip_suffix('|')?;
        Some(row.split('|').map(|cell| cell.trim().to_owned()).collect())
    };
    let is_heading =
        |line: &str| cells(line).is_some_and(|cells| cells.last().is_some_and(|last| last == heading));
    let rows = text.lines().skip_while(|line| !is_heading(line)).skip(1);
    // A rule of dashes stands between the parts of a table. A heading behind it begins another table.
    rows.take_while(|line| line.contains('|') || line.contains("---"))
        .take_while(|line| !line.contains("ucp_") && !line.contains("cfg#"))
        .filter_map(cells)
        .filter_map(|cells| match &cells[..] {
            [range, how, _] => {
                let most = range.split("..").last().filter(|most| {
                    most.starts_with(|first: char| first.is_ascii_digit()) || *most == "inf"
                })?;
                Some((how.clone(), if most == "inf" { "any".to_owned() } else { most.to_owned() }))
            }
            _ => None,
        })
        .collect()
}

/// Returns the text that `print` writes to its stream; empty if the system has no memory for a stream.
pub(super) fn printed(print: impl FnOnce(*mut libc::FILE)) -> String {
    let (mut text, mut len) = (ptr::null_mut::<libc::c_char>(), 0_usize);
    // SAFETY: both pointers are to locals.
    let stream = unsafe { libc::open_memstream(&mut text, &mut len) };
    if stream.is_null() {
        return String::new();
    }
    print(stream);
    // SAFETY: opened above, and not used again. Closing it writes text and length.
    unsafe { libc::fclose(stream) };
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the system has written `len` bytes there, which this function must free.
    let copy = String::from_utf8_lossy(unsafe { slice::from_raw_parts(text.cast::<u8>(), len) }).into_owned();
    // SAFETY: the text of `open_memstream` above, not used again.
    unsafe { libc::free(text.cast::<c_void>()) };
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let all = Lanes::read(include_str!("printed/1.22.0-cma.txt"));
        assert_eq!(all.transports(), ["sysv", "posix", "cma"]);
        let tcp = Lanes::read(TCP);
        assert_eq!(tcp.in_words(), "tcp over lo");
        assert!(tcp.are_tcp());
        assert_eq!(tcp.write_natively(), Some(false));
        assert_eq!(
            tcp.sizes_in_words().as_deref(),
            Some(
                "messages: up to 8184 bytes go inline, up to 8248 are copied by UCX, up to 20500 are sent from where they lie, \
                 longer ones are fetched by the receiver"
            )
        );
        let rdma = Lanes::read(RDMA);
        assert_eq!(rdma.in_words(), "reliable RDMA over mlx5_0:1 (rc_verbs)");
        assert!(!rdma.are_tcp());
        assert_eq!(rdma.write_natively(), None, "nothing says which protocols it has");
    }

    #[test]
    fn shared_memory_lanes_do_not_write_unmapped_memory_natively() {
        let shared = Lanes::read(include_str!("printed/1.13.1-shm.txt"));
        assert_eq!(shared.write_natively(), Some(false));
        assert!(!shared.are_tcp());
        assert_eq!(
            shared.in_words(),
            "shared memory of this machine (sysv), shared memory of this machine (posix)"
        );
    }

    /// UCX's version, its output, the lanes in words, whether they write natively, and message protocols.
    type Printed = (&'static str, &'static str, &'static str, Option<bool>, &'static str);

    const OVER_SHM: &str = "shared memory of this machine (sysv), shared memory of this machine (posix)";
    const OVER_RC: &str = "reliable RDMA over rxe0:1 (rc_verbs)";

    /// Recorded output of `ucp_ep_print_info` of these versions.
    const PRINTED: [Printed; 11] = [
        (
            "1.13.1",
            include_str!("printed/1.13.1-shm.txt"),
            OVER_SHM,
            Some(false),
            "up to 92 bytes go inline, up to 8255 are copied by UCX, longer ones are fetched by the receiver",
        ),
        (
            "1.13.1",
            include_str!("printed/1.13.1-rc.txt"),
            OVER_RC,
            Some(true),
            "up to 71 bytes go inline, up to 394324 are copied by UCX, longer ones are fetched by the receiver",
        ),
        (
            "1.13.1",
            include_str!("printed/1.13.1-tcp.txt"),
            "tcp over lo",
            Some(false),
            "up to 8184 bytes go inline, up to 20552 are sent from where they lie, longer ones are fetched by the receiver",
        ),
        (
            "1.14.1",
            include_str!("printed/1.14.1-shm.txt"),
            OVER_SHM,
            Some(false),
            "up to 92 bytes go inline, up to 8255 are copied by UCX, longer ones are fetched by the receiver",
        ),
        (
            "1.16.0",
            include_str!("printed/1.16.0-shm.txt"),
            OVER_SHM,
            None,
            "up to 92 bytes go inline, up to 8248 are copied by UCX, up to 579040 are copied by UCX in pieces, \
             longer ones are fetched by the receiver",
        ),
        (
            "1.18.1",
            include_str!("printed/1.18.1-shm.txt"),
            OVER_SHM,
            None,
            "up to 92 bytes go inline, up to 8248 are copied by UCX, longer ones are copied by UCX in pieces",
        ),
        (
            "1.18.1",
            include_str!("printed/1.18.1-rc.txt"),
            OVER_RC,
            None,
            "up to 71 bytes go inline, up to 8247 are copied by UCX, longer ones are copied by UCX in pieces",
        ),
        (
            "1.20.1",
            include_str!("printed/1.20.1-shm.txt"),
            OVER_SHM,
            None,
            "up to 92 bytes go inline, up to 8248 are copied by UCX, up to 579763 are copied by UCX in pieces, \
             longer ones are fetched by the receiver",
        ),
        (
            "1.22.0",
            include_str!("printed/1.22.0-shm.txt"),
            OVER_SHM,
            None,
            "up to 92 bytes go inline, up to 8248 are copied by UCX, up to 579763 are copied by UCX in pieces, \
             longer ones are fetched by the receiver",
        ),
        (
            "1.22.0",
            include_str!("printed/1.22.0-cma.txt"),
            "shared memory of this machine (sysv), shared memory of this machine (posix), copies by this machine's kernel (cma)",
            None,
            "up to 92 bytes go inline, up to 5028 are copied by UCX, longer ones are fetched by the receiver",
        ),
        (
            "1.22.0",
            include_str!("printed/1.22.0-tcp.txt"),
            "tcp over lo",
            None,
            "up to 0 bytes go inline, up to 16515 are sent from where they lie, up to 273821 are copied by UCX in pieces, \
             longer ones are fetched by the receiver",
        ),
    ];

    #[test]
    fn recorded_output_of_each_ucx_version_parses_into_lanes_and_sizes() {
        for (version, text, way, natively, sizes) in PRINTED {
            let lanes = Lanes::read(text);
            assert_eq!(lanes.in_words(), way, "{version}");
            assert_eq!(lanes.write_natively(), natively, "{version}");
            assert_eq!(lanes.sizes_in_words(), Some(format!("messages: {sizes}")), "{version}");
        }
    }

    #[test]
    fn unreadable_lane_output_is_skipped_and_shows_no_native_writes() {
        for text in ["", "nonsense", "# lane[x]: ?", "# put[9]: 0..", "# am_send: ..<..>..", "#lane[0]: /"] {
            let lanes = Lanes::read(text);
            assert!(!lanes.write_natively().unwrap_or(false), "{text}");
            assert!(!lanes.in_words().is_empty());
        }
    }

    #[test]
    fn text_printed_to_a_c_stream_is_captured() {
        let text = printed(|stream| {
            // SAFETY: the stream is open, and the text is a C string.
            unsafe { libc::fputs(c"a line\nand another".as_ptr(), stream) };
        });
        assert_eq!(text, "a line\nand another");
        assert_eq!(printed(|_| {}), "");
    }
}
