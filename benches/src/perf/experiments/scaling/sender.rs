//! Sources that send in turn: those of this process, or that of a process with a single source.

use std::path::Path;
use std::slice;

use farjump::{Library, Link, WaitPolicy};

use crate::perf::machine::clock;
use crate::perf::process::child_protocol::{Sent, Set};
use crate::perf::process::liveness::PATIENCE;
use crate::perf::process::place;
use crate::program::failure::Failure;

/// A source's wait for credit or a reply. Many sources share one processor: one that the target serves
/// quickly finishes its wait while spinning; any other lets the next one send.
const WAIT: WaitPolicy = WaitPolicy { spins: 4_000, pauses: 0, events: 0, yields: u32::MAX };

/// Connects a source that shares its processor with others, with `mailbox` bytes for replies. It returns
/// after one call has run, so the target has the code.
pub(super) fn connect(
    folder: &Path,
    socket: &str,
    transport: &str,
    mailbox: usize,
    library: &Library,
) -> Result<Link, Failure> {
    let link =
        place::link(folder, socket, transport)?.wait_policy(WAIT).reply_mailbox_size(mailbox).connect()?;
    link.inject(library, &[])?.wait(PATIENCE)?;
    Ok(link)
}

/// Sends `each` messages over every link, one over each in turn, and waits until all have run.
pub(super) fn send_in_turn(
    links: &[Link],
    library: &Library,
    args: &[u8],
    each: u64,
) -> Result<Sent, Failure> {
    let (start, cpu) = (clock::now(), clock::of_this_thread());
    for _ in 0..each {
        for link in links {
            link.send(library, args)?;
        }
    }
    for link in links {
        link.flush(PATIENCE)?;
    }
    Ok(Sent { start, end: clock::now(), cpu: clock::of_this_thread() - cpu })
}

/// The one source of a process.
pub(crate) struct Caller<'a> {
    link: Link,
    library: &'a Library,
    args: Vec<u8>,
}

impl<'a> Caller<'a> {
    /// Connects to the target whose socket has this name, for the function of `library`. `set` has the
    /// lengths of payloads and mailboxes.
    pub(crate) fn connect(
        socket: &str,
        transport: &str,
        library: &'a Library,
        set: &Set,
    ) -> Result<Caller<'a>, Failure> {
        let link = connect(&set.folder, socket, transport, set.ring, library)?;
        Ok(Caller { link, library, args: vec![7; set.layout.longest] })
    }

    /// Sends `count` messages of `size` bytes, which is at most the longest, and waits until all have run.
    pub(crate) fn send(&mut self, size: usize, count: u64) -> Result<Sent, Failure> {
        let Some(args) = self.args.get(..size) else {
            return Err(Failure::new("a source received an order to send more than was announced"));
        };
        send_in_turn(slice::from_ref(&self.link), self.library, args, count)
    }
}
