//! The honest link of a conversation: each of its calls succeeds, despite any action of the hostile source.

use farjump::{Error, Link, LinkBuilder, Mode, WaitPolicy};

use super::{Conversation, Victim};
use crate::alongside::{PATIENCE, alongside};
use crate::functions::honest;
use crate::step::Route;
use crate::transports::transport;

/// Words of a target that has its maximum of sources.
const FULL: &str = "has as many";

impl Conversation<'_> {
    /// Polls the target while another thread waits for it.
    pub(super) fn meanwhile<T: Send>(&mut self, act: impl FnOnce() -> T + Send) -> T {
        alongside(|| self.turn(), act)
    }

    fn honest_link(&self) -> LinkBuilder {
        let mut builder =
            Link::builder(&self.address).connect_timeout(PATIENCE).send_timeout(PATIENCE).program("honest");
        if self.settings.route != Route::Shared {
            let name = transport(self.settings.route, 0).name().to_owned();
            builder = builder.transport(&name).with_transport(transport(self.settings.route, self.seed ^ 2));
        }
        if let Some(key) = &self.key {
            builder = builder.key(key.clone());
        }
        let has_it = self.settings.only_local || (self.settings.has_local && self.seed.is_multiple_of(2));
        builder = builder.mode(match () {
            () if has_it => Mode::Local,
            () if self.settings.in_place && self.seed.is_multiple_of(3) => Mode::InPlace,
            () if self.seed.is_multiple_of(5) => Mode::Always,
            () => Mode::Cached,
        });
        match self.seed % 3 {
            0 => builder.wait_policy(WaitPolicy::sleep_only()).reply_mailbox_size(1 << 18),
            1 => builder.wait_policy(WaitPolicy::spin_only()),
            _ => builder,
        }
    }

    pub(super) fn connect_honest(&mut self) {
        let builder = self.honest_link();
        match self.meanwhile(|| builder.connect()) {
            Ok(link) => self.link = Some(link),
            Err(error) => {
                // The hostile source may have taken all places.
                let text = error.to_string();
                assert!(
                    self.settings.sources == 2 || text.contains(FULL),
                    "the honest link is not made: {text}"
                );
            }
        }
    }

    /// Calls, and compares the reply.
    pub(super) fn honest_call(&mut self, len: usize) {
        let Some(link) = self.link.take() else { return };
        let args = vec![0x2a; len];
        let library = &honest().library;
        let (link, reply) = self.meanwhile(move || {
            let reply = link
                .inject(library, &args)
                .and_then(|pending| pending.wait(PATIENCE))
                .map(|reply| reply.into_vec());
            (link, reply)
        });
        match reply {
            Ok(reply) => assert_eq!(reply, vec![0x2a; len], "the honest link got something else"),
            Err(error) => self.refused(&error),
        }
        self.sent += 1;
        self.link = Some(link);
    }

    /// Makes `count` calls by `act`, all of which have to succeed.
    fn calls(&mut self, link: Link, count: u64, act: impl FnOnce(&Link) -> Result<(), Error> + Send) {
        let (link, done) = self.meanwhile(move || {
            let done = act(&link);
            (link, done)
        });
        done.unwrap_or_else(|error| self.refused(&error));
        (self.link, self.sent) = (Some(link), self.sent + count);
    }

    /// Fails. If an error ended the target, the message has that error.
    fn refused(&mut self, error: &Error) {
        let ended = match self.victim.take() {
            Some(Victim::There(target)) => target.stop().err(),
            _ => None,
        };
        panic!("a call of the honest link failed: {error} (the target's own error: {ended:?})");
    }

    pub(super) fn honest_works(&mut self, how: u8) {
        if self.link.is_none() {
            self.connect_honest();
        }
        let library = &honest().library;
        let Some(link) = self.link.take() else { return };
        let large = self.settings.memory.is_none()
            && self.settings.max_frame.is_none()
            && self.settings.max_payload > 200_000;
        let in_place = self.settings.in_place && self.seed.is_multiple_of(3);
        let count = u64::from(how / 8 % 16) + 1;
        match how % 8 {
            0 | 1 => {
                self.link = Some(link);
                self.honest_call(usize::from(how));
            }
            2 if large && !in_place => {
                self.link = Some(link);
                self.honest_call(20_000 * (usize::from(how) % 9 + 1));
            }
            3 => self.calls(link, count, |link| {
                let mut batch = link.batch();
                (0..count).try_for_each(|_| batch.send(library, &[7; 24]))?;
                batch.finish()?;
                link.flush(PATIENCE)
            }),
            4 => self.calls(link, count, |link| {
                let calls: Vec<_> = (0..count).map(|_| link.inject(library, &[9; 40])).collect();
                calls.into_iter().try_for_each(|call| call?.wait(PATIENCE).map(drop))
            }),
            5 => self.calls(link, count, |link| {
                (0..count).try_for_each(|_| link.send(library, &[1; 100]))?;
                link.flush(PATIENCE)
            }),
            6 => self.calls(link, 1, |link| {
                let mut into = Vec::new();
                link.call_into(library, &[3; 8], PATIENCE, &mut into)?;
                assert_eq!(into, [3; 8]);
                Ok(())
            }),
            _ => {
                assert!(link.progress().is_ok(), "the honest link has ended");
                let _ = (link.stats(), link.path(), link.arrival_rule(), link.max_frame(), link.is_busy());
                if link.arm().is_ok() {
                    link.disarm();
                }
                self.link = Some(link);
            }
        }
    }
}
