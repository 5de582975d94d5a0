//! Incoming connections: their classification, and handshakes of sources up to their links.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farjump_control::{Arrival, Handshake, HandshakeError, IncomingStream, Joined, Message, Progress};
use farjump_loader::Domain;

use super::admin::MAX_ADMIN_CONNECTIONS;
use crate::Error;
use crate::executor::CodeTable;
use crate::open_channel::joined_channel;
use crate::policy::Budget;
use crate::principals::Principal;
use crate::serve::Target;
use crate::serve::epoll::Event;
use crate::serve::session::{ChannelEvents, Session, SourceControl};

/// Connections accepted at a time: the system reports the rest again.
const CONNECTIONS: usize = 64;
/// Most connections that have not shown their kind.
const MOST_SILENT: usize = 64;
/// Further connections of unknown kind that are kept for each handshake that awaits its stream.
const STREAM_PLACES: usize = 4;
/// Time for which new connections wait when the system has no resources for one more.
const DEAF: Duration = Duration::from_millis(100);

/// Origin of a connecting process: a link's stream has the same origin as its control connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Origin {
    Machine(IpAddr),
    /// A process of this machine, by the id that the system reports.
    Process(u32),
}

impl Origin {
    fn of(arrival: &Arrival) -> Origin {
        let peer = arrival.peer();
        match peer.address {
            Some(address) => Origin::Machine(address.ip().to_canonical()),
            None => Origin::Process(peer.pid),
        }
    }
}

impl Target<'_> {
    /// Accepts waiting connections, a limited number at a time.
    pub(in crate::serve) fn accept(&mut self) -> Result<(), Error> {
        for _ in 0..CONNECTIONS {
            let control = match self.listener.accept() {
                Ok(Some(control)) => control,
                Ok(None) => return Ok(()),
                Err(error @ HandshakeError::System(_)) => return self.pause_accepting(&error),
                Err(error @ HandshakeError::NoDescriptors { .. }) => {
                    self.shared.executor.stats.sources_refused += 1;
                    self.say_short(&error);
                    continue;
                }
                // A failure of one connection concerns only that connection.
                Err(error) => {
                    log::info!("rejected a process that connected: {error}");
                    continue;
                }
            };
            let mut options = self.settings.arrival(self.shared.executor.epoch());
            options.limits = self.shared.executor.policy.announced(self.settings.memory_besides_mailbox());
            let arrival = Arrival::new(control, options);
            let id = self.next_id;
            self.next_id += 1;
            if let Some(fd) = arrival.as_fd()
                && let Err(error) = self.watch.add(fd, Event::Arrival(id), false)
            {
                return self.pause_accepting(&error);
            }
            self.arrivals.push((id, arrival));
            self.advance(id);
            self.drop_silent();
        }
        Ok(())
    }

    /// Keeps [`MOST_SILENT`] connections of unknown kind, besides those that have a place as streams. A
    /// process that opens more loses the oldest, and keeps out neither new sources nor the streams of
    /// handshakes.
    fn drop_silent(&mut self) {
        while self.arrivals.iter().filter(|(_, arrival)| !arrival.is_known()).count() > MOST_SILENT {
            let Some(oldest) = self.oldest_in_excess() else { return };
            // Its message may have come just now.
            self.advance(oldest);
            let is_oldest = |(id, arrival): &(u64, Arrival)| *id == oldest && !arrival.is_known();
            if let Some(index) = self.arrivals.iter().position(is_oldest) {
                let (_, arrival) = self.arrivals.swap_remove(index);
                log::info!("rejected {}: it sent nothing, and others connect", arrival.peer());
                if let Some(fd) = arrival.as_fd() {
                    self.watch.remove(fd);
                }
            }
        }
    }

    /// The oldest connection of unknown kind without a place as a stream, if there are more than
    /// [`MOST_SILENT`]. For each handshake that awaits its stream, the oldest [`STREAM_PLACES`] connections
    /// of its source's origin that came after it have one.
    fn oldest_in_excess(&self) -> Option<u64> {
        let mut places: HashMap<Origin, (u64, usize)> = HashMap::new();
        for (id, arrival) in self.arrivals.iter().filter(|(_, arrival)| arrival.awaits_stream()) {
            let (first, left) = places.entry(Origin::of(arrival)).or_insert((*id, 0));
            *first = (*first).min(*id);
            *left += STREAM_PLACES;
        }
        let is_silent =
            |(id, arrival): &(u64, Arrival)| (!arrival.is_known()).then(|| (*id, Origin::of(arrival)));
        let mut silent: Vec<_> = self.arrivals.iter().filter_map(is_silent).collect();
        silent.sort_unstable_by_key(|(id, _)| *id);
        silent.retain(|(id, origin)| match places.get_mut(origin) {
            Some((first, left)) if *left != 0 && id > first => {
                *left -= 1;
                false
            }
            _ => true,
        });
        (silent.len() > MOST_SILENT).then(|| silent[0].0)
    }

    /// The reason if a connection that has just turned out to be a control connection is rejected. A process
    /// with an admin request is no source, and only its first message shows which of the two it is.
    fn crowded(&self) -> Option<usize> {
        let being_met = self.arrivals.iter().filter(|(_, arrival)| arrival.is_known()).count();
        let most = self.settings.limits.sources.saturating_add(MAX_ADMIN_CONNECTIONS);
        (self.sessions.len() + being_met >= most).then_some(self.settings.limits.sources)
    }

    /// Passes a stream to the handshake that awaits it. Closes a stream that none awaits.
    fn hand_over(&mut self, stream: IncomingStream) {
        // All are compared, so that the time reveals nothing about tokens.
        let awaiting = self.arrivals.iter_mut().filter(|(_, arrival)| arrival.awaits(&stream));
        let Some((id, arrival)) = awaiting.last() else {
            return log::info!("{}: its stream was closed: no handshake awaits it", stream.peer());
        };
        let id = *id;
        if let Err(error) = arrival.take_stream(stream) {
            // The handshake continues without it, and times out.
            return log::info!("{}: its stream was closed: {error}", arrival.peer());
        }
        self.advance(id);
    }

    /// Stops accepting because the system cannot give one more connection now. Waiting connections stay in
    /// its queue: looking at them again at once would find the same, over and over.
    #[cold]
    fn pause_accepting(&mut self, error: &dyn std::fmt::Display) -> Result<(), Error> {
        self.say_short(error);
        self.deaf_until = Some(Instant::now() + DEAF);
        self.watch.listen(self.listener.as_fd(), false)
    }

    /// Warns that the system has no resources for one more connection; once, until there is a link again.
    fn say_short(&mut self, error: &dyn std::fmt::Display) {
        let level = if self.is_short { log::Level::Debug } else { log::Level::Warn };
        log::log!(level, "no more connections for now: {error}");
        self.is_short = true;
    }

    /// Continues a handshake, or a response.
    pub(in crate::serve) fn advance(&mut self, id: u64) {
        let Some(index) = self.arrivals.iter().position(|(arrival, _)| *arrival == id) else {
            return self.attend(id);
        };
        let being_met = self.arrivals.iter().filter(|(_, arrival)| arrival.is_source()).count();
        let most = self.settings.limits.sources;
        let places = most.saturating_sub(self.sessions.len() + being_met);
        let lingering = self.shared.executor.objects().map_or(0, |objects| objects.lingering());
        let full = (lingering >= places).then_some(most);
        let crowded = self.crowded();
        let arrival = &mut self.arrivals[index].1;
        arrival.turn_sources_away(full);
        arrival.turn_away(crowded);
        if let Some(fd) = arrival.as_fd() {
            // It is dropped if the handshake fails, and its descriptor may be closed some time later.
            self.watch.remove(fd);
        }
        let outcome = arrival.advance(&mut self.shared.transports);
        if let (Ok(Progress::Pending), Some(fd)) = (&outcome, arrival.as_fd()) {
            match self.watch.add(fd, Event::Arrival(id), arrival.wants_write()) {
                Ok(()) => return,
                Err(error) => {
                    log::info!("{}: no link was made: {error}", arrival.peer());
                    self.arrivals.swap_remove(index);
                    return;
                }
            }
        }
        let (_, arrival) = self.arrivals.swap_remove(index);
        match outcome {
            Ok(Progress::Handshake(handshake)) => {
                if let Err(error) = self.join(id, *handshake) {
                    log::info!("{}: the link could not be made: {error}", arrival.peer());
                }
            }
            Ok(Progress::Admin(connection)) => self.respond(id, *connection),
            Ok(Progress::Stream(stream)) => self.hand_over(*stream),
            Ok(Progress::Pending) => {}
            Err(error @ HandshakeError::Full { .. }) => {
                log::info!("rejected {}: {error}", arrival.peer());
                self.shared.executor.stats.sources_refused += 1;
            }
            Err(error) => log::info!("{}: no link was made: {error}", arrival.peer()),
        }
    }

    fn join(&mut self, id: u64, handshake: Handshake) -> Result<(), Error> {
        let Handshake { mut control, endpoint, rule, send, receive, peer, transport, rights, .. } = handshake;
        let longest = receive.max_frame;
        let mut channel = match joined_channel(Joined { endpoint, rule, send, receive }, &peer) {
            Ok(channel) => channel,
            Err(error) => {
                // The handshake is complete: the source believes that there is a link, and would see no more
                // than its end.
                let text = format!("the target could not open its channel: {error}");
                drop(control.send(&Message::Closing { text }, &[]));
                return Err(error);
            }
        };
        // A longer frame was delivered and fits no mailbox: `may_run` checks its payload.
        let unquestioned = self.shared.executor.policy.unchecked_frame_len().unwrap_or(usize::MAX);
        channel.limit_glances(unquestioned.min(self.settings.mailbox));
        // They are taken out of the watch before the channel is dropped.
        let doorbell = channel.descriptor().map(|descriptor| (descriptor, Event::Doorbell(id)));
        let once = ChannelEvents::are_armed_for(&channel);
        self.watch.add_link(doorbell, once, (control.as_fd(), Event::Control(id)))?;
        let mut budget = Budget::new(self.settings.limits.source_memory);
        budget.try_take(self.settings.memory_of_frames(longest));
        let domain = Domain::default();
        let memory = budget.memory();
        let table = CodeTable::for_source(domain, budget);
        let most = self.shared.executor.reply_limit();
        let (peer, key) = (control.peer().clone(), control.key().cloned());
        let mut principal = Principal::of_link(id, peer, key, rights, domain);
        self.shared.handlers.give_word(&mut principal);
        let control = SourceControl::new(control, Arc::new(principal));
        let session = Session::new(id, channel, control, table, most, transport);
        if std::mem::take(&mut self.is_short) {
            log::info!("connections are accepted again");
        }
        if let Some(objects) = self.shared.executor.objects() {
            objects.source_began(id, session.channel.lender(), memory);
        }
        self.shared.handlers.peer_joined(session.control.peer());
        self.shared.executor.stats.links += 1;
        self.sessions.push(session);
        Ok(())
    }
}
