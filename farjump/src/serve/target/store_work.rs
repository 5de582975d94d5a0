//! Work of the target's store for later polls: of ended sources, and of listings.

use farjump_control::{AdminConnection, AdminResponse, MAX_LISTED, ObjectListing};

use crate::objects::{Bell, FIRST_PAGE};
use crate::serve::Target;

/// The remaining work.
#[derive(Default)]
pub(in crate::serve) struct StoreWork {
    /// True if requests or ended sources may have left work.
    of_sources: bool,
    listings: Vec<Listing>,
}

/// A listing of objects for a process that has requested it. The process gets it when it is complete.
struct Listing {
    /// The connection's id in the watch.
    id: u64,
    connection: AdminConnection,
    listed: ObjectListing,
    /// The next page.
    next: u64,
}

impl StoreWork {
    /// Returns whether there is any.
    pub(in crate::serve) fn is_left(&self) -> bool {
        self.of_sources || !self.listings.is_empty()
    }

    /// Number of processes that wait for a listing.
    pub(in crate::serve) fn listings(&self) -> usize {
        self.listings.len()
    }

    /// Drops the listings for processes for which `keeps` returns `false`.
    pub(in crate::serve) fn retain(&mut self, mut keeps: impl FnMut(&AdminConnection) -> bool) {
        self.listings.retain(|listing| keeps(&listing.connection));
    }
}

impl Target<'_> {
    /// Notes that the store may have work left.
    pub(in crate::serve) fn wake_store(&mut self) {
        if self.shared.executor.objects().is_some() {
            self.store_work.of_sources = true;
            self.shared.forwards.wake();
        }
    }

    /// Repeats the postponed requests, because the store's bell has rung.
    pub(in crate::serve) fn handle_bell(&mut self) {
        // Before sessions compare the count: a later ring wakes again.
        self.shared.executor.bell().into_iter().for_each(Bell::silence);
        self.idle.naps = 0;
        self.wake_store();
        self.shared.forwards.wake_store_calls();
        let waiting: Vec<u64> = self
            .sessions
            .iter()
            .filter(|session| session.waits_for_store())
            .map(|session| session.id)
            .collect();
        // Making one busy changes the places of others.
        for id in waiting {
            if let Some(index) = self.sessions.iter().position(|session| session.id == id) {
                self.sessions.make_busy(index);
            }
        }
    }

    /// Does a part of the store's remaining work. Returns whether there is more.
    pub(in crate::serve) fn store_has_work(&mut self) -> bool {
        if !self.store_work.is_left()
            && let Some(objects) = self.shared.executor.objects()
            && objects.continue_work()
        {
            self.wake_store();
        }
        self.store_work.is_left()
    }

    /// Begins a listing of the store's objects.
    pub(in crate::serve) fn list_objects(&mut self, id: u64, connection: AdminConnection) {
        let listed = ObjectListing::default();
        self.store_work.listings.push(Listing { id, connection, listed, next: FIRST_PAGE });
        self.shared.forwards.wake();
    }

    /// Does a part of the remaining work.
    #[cold]
    pub(in crate::serve) fn tend_store(&mut self) {
        let Some(objects) = self.shared.executor.objects() else { return };
        if self.store_work.of_sources {
            self.store_work.of_sources = objects.continue_work();
        }
        for mut listing in std::mem::take(&mut self.store_work.listings) {
            let Some(objects) = self.shared.executor.objects() else { return };
            let most = MAX_LISTED - listing.listed.objects.len();
            let next = objects.list(listing.next, most).add_to(&mut listing.listed);
            match next.filter(|_| listing.listed.objects.len() < MAX_LISTED) {
                Some(next) => self.store_work.listings.push(Listing { next, ..listing }),
                None => {
                    let Listing { id, connection, listed, .. } = listing;
                    self.send_response(id, connection, &AdminResponse::Objects(listed));
                }
            }
        }
        if self.store_work.is_left() {
            self.shared.forwards.wake();
        }
    }
}
