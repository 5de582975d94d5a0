//! Objects: requests of sources and of the owner, and checks of the replies.

use std::time::Duration;

use farjump::objects::ObjectState;
use farjump_handles::{Error, Handle};

use super::peer::{Block, contents};
use super::requests::{self, DONE, FULL, GONE, Reply};
use super::{Conversation, Object};

/// Objects of one [`StoreStep::Race`](super::StoreStep::Race).
const RACES: usize = 3;

impl Conversation {
    pub(super) fn put(&mut self, peer: usize, len: usize) {
        let word = self.next_word();
        let Some(reply) = self.request(peer, &requests::put(&contents(word, len))) else { return };
        let mut fields = Reply(&reply[1..]);
        match reply[0] {
            DONE => self.add(fields.u64(), fields.key(), len as u64, word),
            status => assert_eq!(status, FULL, "a put is refused"),
        }
    }

    pub(super) fn allocate(&mut self, peer: usize, len: usize) {
        let word = self.next_word();
        let Some(reply) = self.request(peer, &requests::allocate(len as u64)) else { return };
        let mut fields = Reply(&reply[1..]);
        match reply[0] {
            DONE => {
                let (number, key, offset) = (fields.u64(), fields.key(), fields.u64());
                self.grant(peer, Block { number, offset, len: len as u64, word, writes: Some(key) });
            }
            status => assert_eq!(status, FULL, "an allocation is refused"),
        }
    }

    pub(super) fn write(&mut self) {
        self.used().filter(|block| block.writes.is_some()).for_each(|block| self.memory.write(block));
    }

    /// Takes a block of a source. With `writes` the source writes the block, otherwise it reads it.
    fn take(&mut self, peer: usize, which: usize, writes: bool) -> Option<Block> {
        let peer = self.peers[peer].as_mut()?;
        let matching = |block: &Block| block.writes.is_some() == writes;
        let count = peer.blocks.iter().filter(|block| matching(block)).count();
        let which = which.checked_rem(count)?;
        let at = peer.blocks.iter().enumerate().filter(|(_, block)| matching(block)).nth(which)?.0;
        Some(peer.blocks.swap_remove(at))
    }

    pub(super) fn commit(&mut self, peer: usize, which: usize) {
        let Some(block) = self.take(peer, which, true) else { return };
        self.memory.write(&block);
        let reply = self.request(peer, &requests::commit(block.number));
        let Some(reply) = reply else { return self.give_back(peer, block) };
        assert_eq!(reply[0], DONE, "a source cannot finish its own object");
        self.add(block.number, block.writes.expect("it was written"), block.len, block.word);
    }

    pub(super) fn abandon(&mut self, peer: usize, which: usize) {
        let Some(block) = self.take(peer, which, true) else { return };
        let reply = self.request(peer, &requests::evict(block.number, &block.writes.expect("it is written")));
        let Some(reply) = reply else { return self.give_back(peer, block) };
        assert_eq!(reply[..], [DONE, 1], "a source cannot give its own object up");
    }

    /// Gives a block back after a request that was not sent.
    fn give_back(&mut self, peer: usize, block: Block) {
        if let Some(peer) = &mut self.peers[peer] {
            peer.blocks.push(block);
        }
    }

    /// An object, and its handle.
    pub(super) fn handle(&self, which: usize) -> Option<(usize, Handle)> {
        let at = which.checked_rem(self.objects.len())?;
        let Object { number, key, len, .. } = &self.objects[at];
        let handle = requests::handle(self.epoch, *number, *len, key);
        Some((at, Handle::from_bytes(&handle).expect("a handle")))
    }

    fn is_spilled(&self, number: u64) -> bool {
        let listing = self.store.list(usize::MAX);
        let object = listing.objects.iter().find(|object| object.number == number);
        object.is_some_and(|object| object.state == ObjectState::Spilled)
    }

    /// Checks that an object may be gone, and records that it is.
    fn note_gone(&mut self, at: usize) {
        let object = &mut self.objects[at];
        assert!(object.is_gone || object.is_leased, "object {} is lost", object.number);
        object.is_gone = true;
    }

    pub(super) fn claim(&mut self, peer: usize, which: usize) {
        let Some(at) = which.checked_rem(self.objects.len()) else { return };
        let Object { number, key, len, word, is_gone, .. } = self.objects[at];
        let was_spilled = self.is_spilled(number);
        let Some(reply) = self.request(peer, &requests::claim(number, &key)) else { return };
        let mut fields = Reply(&reply[1..]);
        match reply[0] {
            DONE => {
                let (claim, offset) = (fields.u64(), fields.u64());
                assert!(!is_gone, "object {number} is evicted, and can be claimed");
                assert_eq!(fields.u64(), len);
                self.outcome.recalled += u64::from(was_spilled);
                self.grant(peer, Block { number: claim, offset, len, word, writes: None });
            }
            GONE => self.note_gone(at),
            status => assert_eq!(status, FULL, "a claim is refused"),
        }
    }

    pub(super) fn release(&mut self, peer: usize, which: usize) {
        let Some(block) = self.take(peer, which, false) else { return };
        let link = self.peers[peer].as_ref().and_then(|peer| peer.link.as_ref());
        let is_sent =
            link.is_some_and(|link| link.try_send(&self.library, &requests::release(block.number)).is_ok());
        if !is_sent {
            self.give_back(peer, block);
        }
    }

    pub(super) fn evict(&mut self, peer: usize, which: usize) {
        let Some(at) = which.checked_rem(self.objects.len()) else { return };
        let Object { number, key, .. } = self.objects[at];
        let Some(reply) = self.request(peer, &requests::evict(number, &key)) else { return };
        assert_eq!(reply[0], DONE, "an eviction is refused");
        if reply[1] == 0 {
            self.note_gone(at);
        }
        self.objects[at].is_gone = true;
    }

    pub(super) fn lease(&mut self, peer: usize, which: usize, time: u8) {
        let Some(at) = which.checked_rem(self.objects.len()) else { return };
        let Object { number, key, .. } = self.objects[at];
        let Some(reply) = self.request(peer, &requests::lease(number, &key, time.into())) else { return };
        match reply[0] {
            DONE => self.objects[at].is_leased = true,
            status => {
                assert_eq!(status, GONE);
                self.note_gone(at);
            }
        }
    }

    pub(super) fn owner_puts(&mut self, len: usize) {
        let word = self.next_word();
        match self.store.put(&contents(word, len)) {
            Ok(handle) => {
                let key = requests::key_in(&handle.to_bytes());
                self.add(handle.number(), key, len as u64, word);
            }
            Err(error) => assert!(matches!(error, Error::Full { .. }), "{error}"),
        }
    }

    pub(super) fn owner_gets(&mut self, which: usize) {
        let Some((at, handle)) = self.handle(which) else { return };
        let was_spilled = self.is_spilled(handle.number());
        match self.store.get(&handle) {
            Ok(view) => {
                let object = &self.objects[at];
                assert!(!object.is_gone, "object {} is evicted, and the owner gets it", object.number);
                self.outcome.recalled += u64::from(was_spilled);
                self.views.push((view, object.word));
            }
            Err(Error::Gone { .. }) => self.note_gone(at),
            Err(error) => assert!(matches!(error, Error::Full { .. }), "{error}"),
        }
    }

    pub(super) fn owner_evicts(&mut self, which: usize) {
        if let Some((at, handle)) = self.handle(which) {
            self.store.evict(&handle).expect("its own object");
            self.objects[at].is_gone = true;
        }
    }

    /// Lets leases end while their objects come back from the file.
    pub(super) fn race(&mut self, which: usize, time: u32) {
        for which in (which..).take(RACES) {
            let Some((at, handle)) = self.handle(which) else { return };
            let leased = self.store.lease(&handle, Some(Duration::from_nanos(time.into())));
            let got = self.store.get(&handle);
            if leased.is_ok() {
                self.objects[at].is_leased = true;
            }
            match got {
                Ok(view) => self.views.push((view, self.objects[at].word)),
                Err(Error::Gone { .. }) => self.note_gone(at),
                Err(error) => assert!(matches!(error, Error::Full { .. }), "{error}"),
            }
        }
        self.views.truncate(4);
    }
}
