//! Keys that change while a target runs, and other losses of a principal's rights.

use std::time::Instant;

use farjump_control::{AdminConnection, Keys, RefusalCause};

use crate::principals::Principal;
use crate::serve::Target;

impl Target<'_> {
    /// Checks now and then whether the key file has changed, and applies the change.
    pub(in crate::serve) fn look_at_keys(&mut self, now: Instant) {
        let keys = self.key_file.as_mut().and_then(|file| file.look(now));
        if let Some(keys) = keys {
            self.take_keys(&keys);
        }
    }

    /// Uses these keys from now on. Ends links, handshakes and responses by removed keys, and by keys with other
    /// rights. Drops the calls that wait for sources with such keys, also of links that have ended before.
    #[cold]
    fn take_keys(&mut self, keys: &Keys) {
        let names: Vec<_> = keys.iter().map(|key| key.name.as_deref().unwrap_or("(no name)")).collect();
        log::info!("keys that count from now on ({}): {}", keys.len(), names.join(", "));
        self.listener.take_keys(keys.clone());
        let rights = self.settings.rights();
        let mut index = 0;
        while let Some(session) = self.sessions.get(index) {
            let key = session.control.principal.named_key();
            match key.and_then(|key| keys.revokes(key, rights)) {
                None => index += 1,
                Some(why) => self.revoke(index, &why),
            }
        }
        self.withdraw(|principal| keys.revokes(principal.named_key()?, rights));
        let mut index = 0;
        while let Some((_, arrival)) = self.arrivals.get_mut(index) {
            match arrival.rekey(keys) {
                None => index += 1,
                Some(why) => {
                    let (_, arrival) = self.arrivals.swap_remove(index);
                    log::info!("{}: no link was made: {why}", arrival.peer());
                    arrival.reject(&why);
                }
            }
        }
        // The unsent part of a response is dropped.
        let keeps = |connection: &AdminConnection| {
            let why = connection.key().and_then(|key| keys.revokes(key, rights));
            if let Some(why) = &why {
                log::info!("{} got no response: {why}", connection.peer());
            }
            why.is_none()
        };
        self.admin_connections.retain(|(_, connection)| keeps(connection));
        self.store_work.retain(keeps);
    }

    /// Drops the calls that wait in the target, to run again or for code or a destination, and for whose principals
    /// `why` returns a reason. This is for programs that take a right or a user away: the principal of a call that ran
    /// earlier may have it still. Sources that wait for these calls get the reason. Each call counts as refused for a
    /// missing right ([`RefusalCause::Rights`]). Returns their number.
    ///
    /// Links stay, and their further calls run: the program's own functions must refuse these. Calls that have left for
    /// a destination are not dropped.
    pub fn withdraw(&mut self, why: impl FnMut(&Principal) -> Option<String>) -> usize {
        let dropped = self.shared.forwards.withdraw(why);
        if dropped != 0 {
            log::info!(
                "dropped {}: their right was withdrawn",
                farjump_core::counted(dropped, "waiting call")
            );
            (0..dropped).for_each(|_| self.shared.executor.stats.refuse(RefusalCause::Rights));
            self.hand_over_outcomes();
        }
        dropped
    }

    /// Ends a link whose key no longer counts. Frames of its source that have not run do not run.
    fn revoke(&mut self, index: usize, why: &str) {
        let session = &mut self.sessions[index];
        log::info!("the link of {} ends: {why}", session.control.peer());
        session.close(why);
        self.discard(index, why);
    }
}
