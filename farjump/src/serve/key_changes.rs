//! Keys that change while a target runs.

use std::time::Instant;

use farjump_control::Keys;

use super::Target;

impl Target<'_> {
    /// Checks now and then whether the key file has changed, and applies the change.
    pub(super) fn look_at_keys(&mut self, now: Instant) {
        let keys = self.key_file.as_mut().and_then(|file| file.look(now));
        if let Some(keys) = keys {
            self.take_keys(&keys);
        }
    }

    /// Uses these keys from now on. Links, handshakes and responses by removed keys end, and so do those by
    /// keys with other rights.
    #[cold]
    fn take_keys(&mut self, keys: &Keys) {
        let names: Vec<_> = keys.iter().map(|key| key.name.as_deref().unwrap_or("(no name)")).collect();
        log::info!("keys that count from now on ({}): {}", keys.len(), names.join(", "));
        self.listener.take_keys(keys.clone());
        let rights = self.settings.rights();
        let mut index = 0;
        while let Some(session) = self.sessions.get(index) {
            let key = session.control.key();
            match key.and_then(|key| keys.revokes(key, rights)) {
                None => index += 1,
                Some(why) => self.revoke(index, &why),
            }
        }
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
        self.admin_connections.retain(|(_, connection)| {
            let why = connection.key().and_then(|key| keys.revokes(key, rights));
            if let Some(why) = &why {
                log::info!("{} got no response: {why}", connection.peer());
            }
            why.is_none()
        });
    }

    /// Ends a link whose key no longer counts. Frames of its source that have not run do not run.
    fn revoke(&mut self, index: usize, why: &str) {
        let session = &mut self.sessions[index];
        log::info!("the link of {} ends: {why}", session.control.peer);
        session.close(why);
        self.discard(index, why);
    }
}
