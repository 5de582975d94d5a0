//! Admin requests to a running target: its store and statistics, and dropping code. The target responds between frames;
//! none of the requests waits.

use std::cmp::Reverse;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farjump_control::{
    AdminConnection, AdminRequest, AdminResponse, Dropped, MAX_CODE, MAX_LISTED, Memory, RefusalCause,
    RejectCause, SourceStats, StoreListing, StoreStats, TargetStats, first_names, plain,
};
use farjump_core::frame::MAX_NAME;
use farjump_core::image::CodeId;
use farjump_loader::{CodeKey, Domain, LinkedImage};
use farjump_transports::BackendOptions;

use crate::serve::Target;
use crate::serve::epoll::Event;
use crate::serve::session::Session;
use crate::stored_image::describe;

/// Most processes to which the target sends a response at a time, and most that may connect while it has its maximum of
/// sources: each of them may turn out to make an admin request.
pub(in crate::serve) const MAX_ADMIN_CONNECTIONS: usize = 8;
/// The domain of the code that admin requests list and drop: that of all sources.
const DOMAIN: Domain = Domain::numbered(0);
/// The log's words for a library that replaces nothing.
const NO_EXPORT: &str = "no export";
/// The response without a store of objects.
const NO_OBJECTS: &str = "it has no store of objects: have the target open one (TargetBuilder::objects)";
/// Most bytes that the length of a name takes in a response.
const MAX_LEN_BYTES: usize = 5;

impl Target<'_> {
    /// Responds, and keeps the part for which the requester's socket has no space until it does. `id` is the
    /// connection's id in the watch.
    pub(in crate::serve) fn respond(&mut self, id: u64, connection: AdminConnection) {
        if self.admin_connections.len() + self.store_work.listings() >= MAX_ADMIN_CONNECTIONS {
            let text = format!("it serves {MAX_ADMIN_CONNECTIONS} admin requests at a time: try again");
            log::info!("{} got no response: {text}", connection.peer());
            return connection.reject(RejectCause::Full, &text);
        }
        log::debug!("admin request of {}: {}", connection.peer(), connection.request().name());
        let response = match connection.request() {
            AdminRequest::Store => AdminResponse::Store(self.listing()),
            AdminRequest::Drop { id } => AdminResponse::Dropped(self.drop_all_of(&[DOMAIN.key(CodeId(*id))])),
            AdminRequest::DropAll => {
                let all: Vec<_> = self.images_of(DOMAIN).map(|linked| linked.key()).collect();
                AdminResponse::Dropped(self.drop_all_of(&all))
            }
            AdminRequest::Stats => AdminResponse::Stats(self.target_stats()),
            AdminRequest::Objects => match self.shared.executor.objects() {
                Some(_) => return self.list_objects(id, connection),
                None => return connection.reject(RejectCause::Failed, NO_OBJECTS),
            },
            AdminRequest::Region => return self.hand_out_region(id, connection),
            AdminRequest::Export { name, library } => {
                let name = plain(name, MAX_NAME);
                // SAFETY: the request was admitted, so the target's user has permitted this to all peers that
                // may connect (`TargetBuilder::allow_export`), as the user has permitted them to have code
                // run.
                match unsafe { self.shared.executor.export_library_bytes(&name, library) } {
                    Ok(replaced) => {
                        log::info!(
                            "{} exports {name}: it replaces {}",
                            connection.peer(),
                            first_names(&replaced, MAX_NAME, NO_EXPORT)
                        );
                        AdminResponse::Exported { replaced: that_fit(replaced) }
                    }
                    Err(error) => return connection.reject(RejectCause::Failed, &error.to_string()),
                }
            }
        };
        self.send_response(id, connection, &response);
    }

    /// Sends a response, as [`Target::respond`] does.
    pub(in crate::serve) fn send_response(
        &mut self,
        id: u64,
        mut connection: AdminConnection,
        response: &AdminResponse,
    ) {
        if let Err(error) = connection.respond(response) {
            return log::info!("{} got no response: {error}", connection.peer());
        }
        self.admin_connections.push((id, connection));
        self.attend(id);
    }

    /// Sends the descriptor of the store's memory to a process of this machine. A process of the target's own user may
    /// write there: it could do the same to the target's memory in other ways.
    fn hand_out_region(&mut self, id: u64, mut connection: AdminConnection) {
        let may_write = connection.peer().uid == Some(rustix::process::geteuid().as_raw());
        let Some(objects) = self.shared.executor.objects() else {
            return connection.reject(RejectCause::Failed, NO_OBJECTS);
        };
        let Some(region) = objects.region(may_write).filter(|_| connection.carries_descriptors()) else {
            return connection.reject(RejectCause::Failed, "its store has no memory to map from here");
        };
        let response = AdminResponse::Region { len: region.len, may_write, epoch: region.epoch };
        if let Err(error) = connection.respond_with(&response, Some(region.descriptor)) {
            return log::info!("{} got no response: {error}", connection.peer());
        }
        self.admin_connections.push((id, connection));
        self.attend(id);
    }

    /// Continues a response.
    pub(in crate::serve) fn attend(&mut self, id: u64) {
        let Some(index) = self.admin_connections.iter().position(|(connection, _)| *connection == id) else {
            return;
        };
        let connection = &mut self.admin_connections[index].1;
        // It may be dropped below, and its descriptor may be closed some time later.
        self.watch.remove(connection.as_fd());
        match connection.advance() {
            Ok(false) => match self.watch.add(connection.as_fd(), Event::Arrival(id), true) {
                Ok(()) => return,
                Err(error) => log::info!("{} did not take its response: {error}", connection.peer()),
            },
            Ok(true) => {}
            Err(error) => log::info!("{} did not take its response: {error}", connection.peer()),
        }
        self.admin_connections.swap_remove(index);
    }

    /// Time at which the first unfinished response times out.
    pub(in crate::serve) fn admin_deadline(&self) -> Option<Instant> {
        self.admin_connections.iter().map(|(_, connection)| connection.deadline()).min()
    }

    /// Drops requesters that did not take their responses in time.
    pub(in crate::serve) fn drop_late_requesters(&mut self, now: Instant) {
        let late = |(id, connection): &(u64, AdminConnection)| (connection.deadline() <= now).then_some(*id);
        let late: Vec<_> = self.admin_connections.iter().filter_map(late).collect();
        late.into_iter().for_each(|id| self.attend(id));
    }

    /// The code in the store, most recently used first.
    fn listing(&self) -> StoreListing {
        let executor = &self.shared.executor;
        let mut held: Vec<_> = self.images_of(DOMAIN).collect();
        held.sort_by_key(|linked| Reverse(linked.usage().last()));
        let now = executor.clock.now();
        let left_out = held.len().saturating_sub(MAX_LISTED) as u64;
        let described = held.into_iter().take(MAX_LISTED);
        let described = described.map(|linked| describe(linked, now, executor.is_local(linked)));
        StoreListing { images: described.collect(), left_out }
    }

    /// The code of a domain.
    fn images_of(&self, domain: Domain) -> impl Iterator<Item = &Arc<LinkedImage>> {
        self.shared.executor.images().filter(move |linked| linked.domain() == domain)
    }

    /// Drops the code with these keys that is in the store, except the target's own functions.
    pub(in crate::serve) fn drop_all_of(&mut self, keys: &[CodeKey]) -> Dropped {
        let mut dropped = Dropped::default();
        for key in keys {
            let executor = &self.shared.executor;
            match executor.image(*key).map(|linked| executor.is_local(linked)) {
                None => {}
                Some(true) => dropped.kept += 1,
                Some(false) => dropped.images += u64::from(self.drop_of(*key)),
            }
        }
        dropped
    }

    fn target_stats(&mut self) -> TargetStats {
        let stats = self.stats();
        let store = &stats.store;
        TargetStats {
            program: self.settings.program.to_string(),
            pid: std::process::id(),
            epoch: self.epoch(),
            links: self.sources() as u64,
            links_made: stats.links,
            links_ended: stats.links_ended,
            sources_refused: stats.sources_refused,
            frames: stats.frames,
            bytes: stats.bytes,
            calls: stats.calls,
            forwarded: stats.forwarded,
            images_linked: stats.images_linked,
            link_ns: nanoseconds(stats.link_time),
            refused: RefusalCause::ALL.map(|cause| stats.refused(cause)).to_vec(),
            store: StoreStats {
                images: store.images as u64,
                bytes: store.bytes as u64,
                capacity_images: limit(store.capacity_images),
                capacity_bytes: limit(store.capacity_bytes),
                evictions: store.evictions,
                arena_used: store.arena_used as u64,
                arena_capacity: store.arena_capacity as u64,
            },
            sources: self.source_stats(),
            ucx_tcp: self.settings.ucx_tcp,
            ucx_ports_closed_by: BackendOptions::new()
                .with_ucx_tcp(self.settings.ucx_tcp)
                .ucx_ports_closed_by()
                .map(str::to_owned),
            cpu: (*self.settings.cpu).clone(),
        }
    }

    fn source_stats(&mut self) -> Vec<SourceStats> {
        // Sessions change places when one ends; their numbers ascend in the order of their arrival.
        let mut sessions: Vec<&mut Session> = self.sessions.iter_mut().collect();
        sessions.sort_by_key(|session| session.id);
        let describe = |session: &mut Session| SourceStats {
            program: session.control.peer().name.clone(),
            pid: session.control.peer().pid,
            bytes: session.channel.received(),
            memory: session
                .codes
                .memory()
                .map(|(used, limit)| Memory { used: used as u64, limit: limit as u64 }),
            waits: session.is_blocked(),
            rights: session.control.rights(),
            key: session.control.peer().key.clone(),
            path: session.path(),
        };
        sessions.into_iter().take(MAX_LISTED).map(describe).collect()
    }
}

/// The first names, as many as fit a response: libraries choose their number and lengths.
fn that_fit(names: Vec<String>) -> Vec<String> {
    let mut len = 0;
    let fits = |name: &String| {
        len += name.len() + MAX_LEN_BYTES;
        len <= MAX_CODE
    };
    names.into_iter().take(MAX_LISTED).take_while(fits).collect()
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn limit(most: usize) -> Option<u64> {
    (most != usize::MAX).then_some(most as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize, len: usize) -> Vec<String> {
        (0..count).map(|number| "0".repeat(len - number.to_string().len()) + &number.to_string()).collect()
    }

    #[test]
    fn replaced_names_are_cut_to_what_a_response_takes() {
        assert_eq!(that_fit(names(3, 5)), names(3, 5));
        assert_eq!(that_fit(names(MAX_LISTED + 1, 5)).len(), MAX_LISTED);
        let fitting = that_fit(names(100, 1 << 20));
        assert_eq!(fitting.len(), 63, "64 of 1 MiB have no space left for their lengths");
    }

    #[test]
    fn the_log_names_the_first_of_many() {
        let first_names_of = |names: &[String]| first_names(names, MAX_NAME, NO_EXPORT);
        assert_eq!(first_names_of(&[]), "no export");
        assert_eq!(first_names_of(&["a\x1bb".to_owned()]), "a?b");
        assert_eq!(first_names_of(&names(2, 1)), "0, 1");
        assert_eq!(
            first_names_of(&names(14, 2)),
            "00, 01, 02, 03, 04, 05, 06, 07, 08, 09, 10, 11 and 2 more"
        );
    }
}
