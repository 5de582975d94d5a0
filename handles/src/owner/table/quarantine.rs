//! Quarantine: memory that an ended link claimed or did not finish, while a process may still map it.
//!
//! A mapping cannot be taken back. So neither the owner's wish to end a link, nor the peer's farewell, nor the end of its
//! process frees such memory: a forked child may still read it. The one proof is the end of file on the link's control
//! connection, when every copy of the peer's descriptor is closed. The store checks for it when it needs memory or
//! reports figures.

use std::collections::BTreeMap;
use std::os::fd::AsFd;

use farjump::objects::{LingeringPeer, MemoryKeeper, PeerIdentity};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::owner::table::{Source, Table};

/// Maximum number of peers to check in one request.
const LOOKS: usize = 64;
/// Most processes that an error names.
const NAMED: usize = 3;
/// Most characters of a program's name in an error.
const NAME: usize = 24;

/// The ended links whose peers have not let go of the store's memory, in the order in which they ended.
#[derive(Default, Debug)]
pub(crate) struct Quarantine {
    /// Links by rising numbers.
    kept: BTreeMap<u64, Kept>,
    /// The number from which the next check of peers starts.
    next: u64,
    /// The number of the last link.
    last: u64,
    /// Bytes of all links.
    bytes: u64,
}

#[derive(Debug)]
struct Kept {
    source: Source,
    peer: LingeringPeer,
    /// Bytes of the objects that the link claimed or did not finish.
    bytes: u64,
}

impl Quarantine {
    /// Bytes in quarantine. An object that two links claim counts twice.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of links whose peers have not let go.
    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    /// The peers, at most `most`.
    pub(crate) fn keepers(&self, most: usize) -> Vec<MemoryKeeper> {
        let keeper = |kept: &Kept| {
            let PeerIdentity { name, pid, .. } = kept.peer.peer();
            MemoryKeeper { program: name.clone(), pid: *pid, bytes: kept.bytes }
        };
        self.kept.values().take(most).map(keeper).collect()
    }

    /// Keeps the memory that `source` has claimed or not finished, for its peer.
    fn keep(&mut self, source: Source, peer: LingeringPeer, bytes: u64) {
        self.last += 1;
        self.bytes += bytes;
        self.kept.insert(self.last, Kept { source, peer, bytes });
    }

    /// The first processes, as text. Empty if there are none.
    pub(crate) fn named(&self) -> String {
        let mut named: Vec<String> = Vec::new();
        for kept in self.kept.values().take(LOOKS) {
            let PeerIdentity { name, pid, .. } = kept.peer.peer();
            let name: String = name.chars().take(NAME).collect();
            let process = match pid {
                0 => format!("{name} (in another PID namespace)"),
                pid => format!("{name} (pid {pid})"),
            };
            if !named.contains(&process) {
                named.push(process);
            }
        }
        let more = named.len().saturating_sub(NAMED);
        named.truncate(NAMED);
        let listed = named.join(", ");
        if more == 0 { listed } else { format!("{listed} and others") }
    }

    /// Checks up to [`LOOKS`] peers, in turn. Returns the sources whose peers have let go, and forgets them.
    fn let_go(&mut self) -> Vec<Source> {
        if self.kept.range(self.next..).next().is_none() {
            self.next = 0;
        }
        let looked_at = || self.kept.range(self.next..).take(LOOKS);
        let events = PollFlags::IN | PollFlags::RDHUP;
        let mut polled: Vec<_> =
            looked_at().map(|(_, kept)| PollFd::from_borrowed_fd(kept.peer.as_fd(), events)).collect();
        let next = looked_at().last().map_or(0, |(number, _)| number + 1);
        let mut with_news = Vec::new();
        if !polled.is_empty() && poll(&mut polled, Some(&Timespec::default())).unwrap_or(0) != 0 {
            let news = looked_at().zip(&polled).filter(|(_, polled)| !polled.revents().is_empty());
            with_news.extend(news.map(|((number, _), _)| *number));
        }
        self.next = next;
        with_news.retain(|number| self.kept.get_mut(number).is_some_and(|kept| kept.peer.is_gone()));
        let gone: Vec<_> = with_news.iter().filter_map(|number| self.kept.remove(number)).collect();
        self.bytes -= gone.iter().map(|kept| kept.bytes).sum::<u64>();
        gone.into_iter().map(|kept| kept.source).collect()
    }
}

impl Table {
    /// Ends the link of `source`. Memory that it claimed or did not finish stays in quarantine while `peer` may use it.
    pub(crate) fn link_ended(&mut self, source: Source, peer: Option<LingeringPeer>) {
        self.await_nothing(source);
        let bytes = self.held_by(source);
        let mut peer = peer.filter(|_| bytes != 0);
        if peer.as_mut().is_none_or(LingeringPeer::is_gone) {
            return self.source_ended(source);
        }
        peer.into_iter().for_each(|peer| self.quarantine.keep(source, peer, bytes));
    }

    /// Checks a few peers, and frees the memory in quarantine for those that have let go. Returns whether there were
    /// any.
    pub(crate) fn end_quarantine(&mut self) -> bool {
        let gone = self.quarantine.let_go();
        gone.iter().for_each(|source| self.source_ended(*source));
        !gone.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use farjump::objects::Objects;

    use super::*;
    use crate::error::Error;
    use crate::owner::service::Service;
    use crate::owner::store::Store;
    use crate::wire::handle::Handle;
    use crate::wire::requests::{Op, Reader, Status, Writer};

    const CAPACITY: u64 = 1 << 20;
    /// More than half of the store.
    const LARGE: usize = 600_000;

    fn bench() -> (Store, Service) {
        let store = Store::options().capacity(CAPACITY).build().unwrap();
        let mut service = store.service();
        (1..=200)
            .for_each(|source| service.source_began(source, None, farjump::objects::SourceMemory::default()));
        (store, service)
    }

    fn request(service: &mut Service, source: u64, request: &Writer) {
        let mut reply = Vec::new();
        service.request(source, request.0[..].into(), &mut reply, 4096).unwrap();
        assert_eq!(Reader(&reply).u8(), Some(Status::Done as u8));
    }

    fn claim(service: &mut Service, source: u64, handle: &Handle) {
        let mut requested = Writer::request(Op::Claim);
        requested.u16(0).u64(handle.number).bytes(&handle.key.0);
        request(service, source, &requested);
    }

    fn allocate(service: &mut Service, source: u64, len: usize) {
        let mut requested = Writer::request(Op::Allocate);
        requested.u64(len as u64).text("");
        request(service, source, &requested);
    }

    fn peer() -> (Option<LingeringPeer>, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Some(LingeringPeer::from_stream(ours).unwrap()), theirs)
    }

    #[test]
    fn claimed_or_unfinished_memory_stays_in_quarantine_until_its_peer_closes() {
        for is_claimed in [true, false] {
            let (store, mut service) = bench();
            if is_claimed {
                let handle = store.put(&[1; LARGE]).unwrap();
                claim(&mut service, 1, &handle);
                store.evict(&handle).unwrap();
            } else {
                allocate(&mut service, 1, LARGE);
            }
            let (ours, theirs) = peer();
            service.source_ended(1, ours);
            for _ in 0..2 {
                let full = store.put(&[2; LARGE]).unwrap_err();
                let Error::Full { quarantined, keepers, .. } = &full else { panic!("{full}") };
                assert_eq!(*quarantined, LARGE as u64);
                let own = format!("(pid {})", std::process::id());
                assert!(keepers.contains(&own) && full.to_string().contains(keepers), "{full}");
            }
            assert_eq!((store.list(0).quarantined, service.lingering()), (LARGE as u64, 1));
            drop(theirs);
            store.put(&[2; LARGE]).unwrap();
            assert_eq!((store.list(0).quarantined, service.lingering()), (0, 0));
        }
    }

    #[test]
    fn quarantine_skips_ended_sources_without_claims_peer_or_shared_memory() {
        let (store, mut service) = bench();
        let handle = store.put(&[1; LARGE]).unwrap();
        let (ours, _theirs) = peer();
        service.source_ended(1, ours);
        assert_eq!(service.lingering(), 0, "it holds nothing");
        claim(&mut service, 2, &handle);
        claim(&mut service, 3, &handle);
        store.evict(&handle).unwrap();
        service.source_ended(2, None);
        let (ours, theirs) = peer();
        drop(theirs);
        service.source_ended(3, ours);
        assert_eq!(service.lingering(), 0);
        store.put(&[2; LARGE]).unwrap();
    }

    #[test]
    fn each_check_looks_at_a_bounded_number_of_peers_in_turn() {
        let (store, mut service) = bench();
        let handle = store.put(&[1; LARGE]).unwrap();
        let count = 2 * LOOKS as u64 + 1;
        let theirs: Vec<_> = (1..=count)
            .map(|source| {
                claim(&mut service, source, &handle);
                let (ours, theirs) = peer();
                service.source_ended(source, ours);
                theirs
            })
            .collect();
        store.evict(&handle).unwrap();
        assert_eq!(service.lingering(), count as usize);
        drop(theirs);
        let mut left = Vec::new();
        while left.last() != Some(&0) {
            left.push(service.lingering());
        }
        assert_eq!(left.len(), 3, "{left:?}");
        store.put(&[2; LARGE]).unwrap();
    }

    #[test]
    fn a_no_memory_reply_cuts_the_keepers_to_fit_and_reads_back() {
        let mut none = crate::wire::refusal::NoMemory {
            requested: 1,
            used: 2,
            capacity: 3,
            largest: 4,
            quarantined: 5,
            keepers: "é".repeat(200).into(),
            file_failed: true,
            lack: crate::wire::refusal::Lack::Memory,
        };
        let mut reply = Writer::default();
        none.write(&mut reply);
        let mut fields = Reader(&reply.0[1..]);
        let read = crate::wire::refusal::NoMemory::read(&mut fields).unwrap();
        none.keepers = "é".repeat(127).into();
        assert_eq!((read, fields.0.len()), (none, 0));
        assert!((0..reply.0.len() - 1).all(|len| {
            crate::wire::refusal::NoMemory::read(&mut Reader(&reply.0[1..1 + len])).is_none()
        }));
    }
}
