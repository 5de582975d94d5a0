//! The ends of links.

use std::os::fd::AsFd;
use std::time::Instant;

use farjump_core::frame::LINE;

use crate::serve::Target;
use crate::serve::session::{End, Session, Stop};

impl Target<'_> {
    /// Runs the frames that a source sent before it was gone, and drops the replies. Bounded by its mailbox's
    /// capacity.
    pub(in crate::serve) fn drain(&mut self, index: usize) {
        let outer = self.shared.executor.begin_calls();
        self.sessions[index].depart();
        let mut left = self.settings.mailbox / LINE;
        while left > 0 {
            let frames = match self.with_session(index, Session::poll_in_turn) {
                Ok(0) => break,
                Ok(frames) => frames,
                Err(stop) => match self.make_space(stop) {
                    Ok(frames) => frames,
                    Err(Stop(end)) => {
                        if let End::Gone(_, ran) = *end {
                            self.shared.executor.stats.frames += ran as u64;
                        }
                        break;
                    }
                },
            };
            self.shared.executor.stats.frames += frames as u64;
            left = left.saturating_sub(frames);
        }
        self.shared.executor.end_calls(outer);
    }

    /// Ends a link: runs the frames that were sent before, and frees its memory.
    #[cold]
    pub(in crate::serve) fn end(&mut self, index: usize, Stop(end): Stop) {
        let why = match *end {
            End::Broken(refusal) => {
                self.shared.executor.stats.refuse(refusal.cause);
                let session = &mut self.sessions[index];
                self.shared.handlers.refused(session.control.peer(), &refusal);
                session.close(&refusal.text);
                refusal.text
            }
            end => {
                if let End::Gone(_, ran) = end {
                    self.shared.executor.stats.frames += ran as u64;
                }
                if self.lets_leave(index, &end) {
                    return;
                }
                // Frames sent before are whole or absent, however the source ended.
                self.drain(index);
                self.sessions[index].control.reason(&end)
            }
        };
        self.discard(index, &why);
    }

    /// Keeps a session whose channel may still bring frames that a source sent before its end, until the
    /// channel reports its end, for as long as a machine may be silent. Returns whether it does.
    pub(in crate::serve) fn lets_leave(&mut self, index: usize, end: &End) -> bool {
        let session = &mut self.sessions[index];
        if !session.channel.has_end() || session.control.is_leaving() {
            return false;
        }
        let why = session.control.reason(end);
        session.leave(Instant::now() + self.settings.peer_timeout, why);
        // An ended connection would stay readable for ever.
        self.watch.remove(session.control.as_fd());
        self.sessions.make_busy(index);
        true
    }

    /// Ends the links of sources that are gone and whose channels have not ended in time.
    pub(in crate::serve) fn end_late(&mut self, now: Instant) {
        let mut index = 0;
        while index < self.sessions.len() {
            match self.sessions[index].control.is_late(now) {
                true => self.end(index, End::Bye.into()),
                false => index += 1,
            }
        }
    }

    /// Drops a link that has ended.
    pub(in crate::serve) fn discard(&mut self, index: usize, why: &str) {
        let session = self.sessions.remove(index);
        self.unwatch(&session);
        let (id, peer) = (session.id, session.control.peer().clone());
        self.shared.forwards.source_ended(id);
        let lingering = session.into_peer();
        if let Some(objects) = self.shared.executor.objects() {
            objects.source_ended(id, lingering);
            self.wake_store();
        }
        self.shared.handlers.peer_gone(&peer, why);
    }

    /// Takes a session that ends out of the watch and into the statistics.
    fn unwatch(&mut self, session: &Session) {
        self.watch.remove_link(session.channel.descriptor(), session.control.as_fd());
        let stats = &mut self.shared.executor.stats;
        stats.bytes += session.received();
        stats.summed += session.summed();
        stats.links_ended += 1;
    }

    /// Ends all links, and sends sources the reason.
    pub fn end_links(&mut self, why: &str) {
        for mut session in self.sessions.take() {
            session.close(why);
            self.unwatch(&session);
            let id = session.id;
            let lingering = session.into_peer();
            if let Some(objects) = self.shared.executor.objects() {
                objects.source_ended(id, lingering);
            }
        }
        for (_, arrival) in self.arrivals.drain(..) {
            if let Some(fd) = arrival.as_fd() {
                self.watch.remove(fd);
            }
        }
        for (_, connection) in self.admin_connections.drain(..) {
            self.watch.remove(connection.as_fd());
        }
        self.store_work.retain(|_| false);
        self.shared.forwards.close(&self.watch);
        self.wake_store();
    }
}
