//! Sources that send in turn: those of this process, or the one of a process that is a source alone.

use std::path::Path;
use std::slice;

use farjump::{Library, Link, WaitPolicy};

use crate::perf::child_protocol::{Sent, Set};
use crate::perf::clock;
use crate::perf::liveness::PATIENCE;
use crate::perf::place;
use crate::program::failure::Failure;

/// How a source waits for room or an answer. Many of them share one processor: one that the target is quick to serve finds what
/// it waits for while it spins; any other lets the next one send.
const WAIT: WaitPolicy = WaitPolicy { spins: 4_000, pauses: 0, yields: u32::MAX };

/// A link of a source that shares its processor with others, with `room` bytes for replies. One call has run when it returns: the
/// target has the code.
pub(super) fn connect(
    folder: &Path,
    socket: &str,
    transport: &str,
    room: usize,
    library: &Library,
) -> Result<Link, Failure> {
    let link = place::link(folder, socket, transport)?.wait_policy(WAIT).reply_room(room).connect()?;
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
    /// Of the target whose socket has this name, for the function of `library`. `set` says how long payloads and mailboxes are.
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
            return Err(Failure::new("a source was told to send more than was announced"));
        };
        send_in_turn(slice::from_ref(&self.link), self.library, args, count)
    }
}
