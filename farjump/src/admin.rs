//! Questions to a target that runs, from any process of its user: what code it holds, what it has counted; and dropping code, and
//! loading libraries.
//!
//! The same as `farjump store`, `farjump stats` and `farjump export`. Who asks makes no link and takes no source's place; the target answers
//! between two frames, and sources notice nothing but the time that takes (`docs/operations.md`).
//!
//! ```
//! # fn main() -> Result<(), farjump::Error> {
//! # let socket = std::env::temp_dir().join(format!("farjump-doc-admin-{}", std::process::id()));
//! # let address = format!("unix:{}", socket.display());
//! # let target = farjump::Target::listen(&address).build()?.spawn()?;
//! use farjump::admin::Admin;
//!
//! let admin = Admin::new(&address)?;
//! for image in admin.store()?.images {
//!     println!("{} took {} ns in {} calls", image.name, image.time_ns, image.calls);
//! }
//! println!("{} links", admin.stats()?.links);
//! # Ok(())
//! # }
//! ```

use std::time::{Duration, Instant};

use farjump_control::{Answer, Error as MeetError, Key, PeerAddress, Question, TcpOptions, ask_with};
use farjump_core::image::CodeId;

pub use farjump_control::{
    Dropped, HeldCode, MAX_LISTED, Memory, SourceFigures, StoreFigures, StoreListing, TargetStats,
};

use crate::Error;

/// How long a question may take unless set.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks the target at an address. Each question is a connection of its own: nothing is held in between, and a target that was
/// started anew meanwhile is asked like the old one ([`TargetStats::epoch`] tells them apart).
///
/// The errors of all questions: [`Error::Meet`], when nobody listens there, what listens is no target or another user's, the
/// target refuses to answer or the right to ask is missing ([`TargetBuilder::rights`](crate::TargetBuilder::rights)), it ends before it has, or does not answer in time.
#[derive(Clone, Debug)]
pub struct Admin {
    address: PeerAddress,
    timeout: Duration,
    tcp: TcpOptions,
}

impl Admin {
    /// For the target at `address` (`unix:PATH`, `tcp:HOST:PORT`). Nothing is sent yet.
    ///
    /// # Errors
    /// [`Error::Meet`] when the address makes no sense.
    pub fn new(address: &str) -> Result<Admin, Error> {
        Ok(Admin { address: address.parse()?, timeout: PATIENCE, tcp: TcpOptions::default() })
    }

    /// How long each question may take: a target answers when the function that it is running has returned. 10 seconds
    /// unless set.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Admin {
        self.timeout = timeout;
        self
    }

    /// The key that the target has too, for one at `tcp:HOST:PORT`. Means nothing on Unix sockets.
    #[must_use]
    pub fn key(mut self, key: Key) -> Admin {
        self.tcp.key = Some(key);
        self
    }

    /// The code that it holds, what was used last first.
    ///
    /// # Errors
    /// As [`Admin`] says.
    pub fn store(&self) -> Result<StoreListing, Error> {
        match self.ask(Question::Store)? {
            Answer::Store(listing) => Ok(listing),
            other => Err(self.beside_the_point(&other)),
        }
    }

    /// Drops code from its store; its statics are gone. Calls under way are not lost: a source that has called it, or calls it
    /// again, is asked for it. Functions of the target's own ([`crate::TargetBuilder::local`]) are kept.
    ///
    /// # Errors
    /// As [`Admin`] says. That no such code is held is none.
    pub fn drop_code(&self, id: &CodeId) -> Result<Dropped, Error> {
        self.dropped(Question::Drop { id: id.0 })
    }

    /// As [`Admin::drop_code`], all that it holds.
    ///
    /// # Errors
    /// As [`Admin`] says.
    pub fn drop_all(&self) -> Result<Dropped, Error> {
        self.dropped(Question::DropAll)
    }

    /// What it has counted, and who is connected.
    ///
    /// # Errors
    /// As [`Admin`] says.
    pub fn stats(&self) -> Result<TargetStats, Error> {
        match self.ask(Question::Stats)? {
            Answer::Stats(stats) => Ok(stats),
            other => Err(self.beside_the_point(&other)),
        }
    }

    /// Has it load a shared library, of which `library` are the bytes, and offer what that defines before all that it offered
    /// until now. Code that is linked from then on gets it; what was linked before keeps what it had, until it is dropped
    /// ([`Admin::drop_all`]) and comes again. Services of farjump (`farjump_reply`) cannot be replaced. The library's constructors
    /// run, its dependencies are looked for there, and it stays loaded until the process ends. `name` is what messages there call it.
    ///
    /// Returns the names of exports that it takes the place of, in alphabetical order.
    ///
    /// # Errors
    /// As [`Admin`] says; the target refuses where this process has no right to it
    /// ([`TargetBuilder::allow_export`](crate::TargetBuilder::allow_export)), and with what its dynamic linker said.
    /// [`Error::Meet`] for a library of more than 64 MiB.
    pub fn export(&self, name: &str, library: &[u8]) -> Result<Vec<String>, Error> {
        let question = Question::Export { name: name.to_owned(), library: library.to_vec() };
        match self.ask(question)? {
            Answer::Exported { replaced } => Ok(replaced),
            other => Err(self.beside_the_point(&other)),
        }
    }

    fn dropped(&self, question: Question) -> Result<Dropped, Error> {
        match self.ask(question)? {
            Answer::Dropped(dropped) => Ok(dropped),
            other => Err(self.beside_the_point(&other)),
        }
    }

    fn ask(&self, question: Question) -> Result<Answer, Error> {
        let now = Instant::now();
        // A timeout beyond what a clock can say is none that anybody sees the end of.
        let deadline = now.checked_add(self.timeout).unwrap_or(now + Duration::from_secs(u32::MAX.into()));
        Ok(ask_with(&self.address, &self.tcp, question, deadline)?)
    }

    fn beside_the_point(&self, answer: &Answer) -> Error {
        let peer = self.address.to_string();
        MeetError::OutOfOrder { peer, expected: "an answer to the question", got: answer.name() }.into()
    }
}
