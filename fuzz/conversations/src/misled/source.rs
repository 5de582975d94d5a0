//! The source that talks to a hostile target: each of its waits ends in time.

use std::time::{Duration, Instant};

use farjump::admin::Admin;
use farjump::{Error, Link, LinkBuilder, Mode, WaitError, WaitPolicy};
use farjump_control::Key;

use super::{CONNECTING, Script};
use crate::functions::functions;
use crate::step::Route;
use crate::transports::transport;

/// Timeout of each wait of the source.
const PATIENCE: Duration = Duration::from_millis(20);
/// Time beyond its timeout that a source may take on a busy machine.
const SLACK: Duration = Duration::from_secs(10);

/// The source.
pub(super) struct Source<'s> {
    pub(super) address: String,
    pub(super) key: Option<Key>,
    pub(super) script: &'s Script,
    pub(super) seed: u64,
    pub(super) link: Option<Link>,
    pub(super) well: u64,
    pub(super) ill: u64,
}

impl Source<'_> {
    pub(super) fn acts(mut self) -> (u64, u64) {
        for &act in &self.script.acts {
            if self.link.is_none() {
                let builder = self.builder();
                self.link = self.timed("connecting", 2 * CONNECTING, |_| builder.connect());
            }
            self.act(act);
        }
        (self.well, self.ill)
    }

    fn builder(&self) -> LinkBuilder {
        let mut builder = Link::builder(&self.address)
            .connect_timeout(CONNECTING)
            .send_timeout(PATIENCE)
            .reply_mailbox_size(1 << (12 + self.seed % 4))
            .mode([Mode::Cached, Mode::Always, Mode::Local][(self.seed % 3) as usize])
            .on_refused(|refusal| assert!(!refusal.text.chars().any(char::is_control)))
            .on_peer_gone(|why| assert!(!why.is_empty()))
            .on_code_missing(|name| assert!(!name.is_empty()));
        if self.script.route != Route::Shared {
            let transport = transport(self.script.route, self.seed);
            builder = builder.transport(transport.name()).with_transport(transport);
        }
        if let Some(key) = &self.key {
            builder = builder.key(key.clone());
        }
        match self.seed % 4 {
            0 => builder.wait_policy(WaitPolicy::sleep_only()),
            1 => builder.wait_policy(WaitPolicy::spin_only()).control_interval(Duration::ZERO),
            _ => builder,
        }
    }

    /// Runs an action that may take at most `most`.
    fn timed<T>(
        &mut self,
        what: &str,
        most: Duration,
        act: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Option<T> {
        let begun = Instant::now();
        let done = act(self);
        let took = begun.elapsed();
        assert!(took < most + SLACK, "{what} took {took:?}, and {most:?} is its deadline");
        match done {
            Ok(done) => {
                self.well += 1;
                Some(done)
            }
            Err(error) => {
                let words = error.to_string();
                assert!(
                    !words.trim().is_empty() && !words.chars().any(char::is_control),
                    "{what}: {words:?}"
                );
                self.ill += 1;
                if matches!(error, Error::Wait(WaitError::PeerGone { .. })) {
                    self.link = None;
                }
                None
            }
        }
    }

    fn act(&mut self, act: u8) {
        let function = &functions()[usize::from(act / 16) % functions().len()];
        let library = &function.library;
        let link = self.link.take();
        let Some(mut link) = link else { return self.request(act) };
        let args = vec![0x41; usize::from(act)];
        let most = 4 * PATIENCE;
        match act % 12 {
            0..3 => drop(self.timed("a call", most, |_| link.inject(library, &args)?.wait(PATIENCE))),
            3 => drop(self.timed("a message", most, |_| link.send(library, &args))),
            4 => drop(self.timed("a batch", 16 * most, |_| {
                let mut batch = link.batch();
                for _ in 0..16 {
                    batch.send(library, &args)?;
                }
                batch.finish()
            })),
            5 => drop(self.timed("a flush", most, |_| link.flush(PATIENCE))),
            6 => drop(self.timed("a long call", most + SLACK / 2, |_| {
                link.inject(library, &vec![0x42; 40_000 + 997 * usize::from(act)])?.wait(PATIENCE)
            })),
            7 => drop(self.timed("a call into a buffer", most, |_| {
                link.call_into(library, &args, PATIENCE, &mut Vec::new()).map(drop)
            })),
            8 => drop(self.timed("progress", most, |_| {
                let _ = (link.stats(), link.path(), link.peer(), link.max_frame());
                if link.arm()?.is_some() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                link.disarm();
                link.progress()
            })),
            9 => drop(self.timed("connecting again", 2 * CONNECTING, |_| link.reconnect())),
            10 => drop(self.timed("several calls", 10 * most, |_| {
                let calls: Vec<_> = (0..8).map(|_| link.inject(library, &args)).collect();
                calls.into_iter().try_for_each(|call| call?.wait(PATIENCE).map(drop))
            })),
            _ => drop(self.timed("a linking time", most, |_| link.link_time(library, PATIENCE))),
        }
        if self.ill == 0 || !act.is_multiple_of(3) {
            self.link = Some(link);
        }
    }

    fn request(&mut self, act: u8) {
        self.timed("an admin request", 2 * CONNECTING, |own| {
            let mut admin = Admin::new(&own.address)?.timeout(CONNECTING);
            if let Some(key) = &own.key {
                admin = admin.key(key.clone());
            }
            match act % 3 {
                0 => admin.store().map(drop),
                1 => admin.stats().map(drop),
                _ => admin.drop_all().map(drop),
            }
        });
    }
}
