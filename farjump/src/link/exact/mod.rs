//! Images that a source compiles for its target's CPU, in the background, from the source that a library carries.
//!
//! A link has an [`Exchange`] for each library. Its calls use the image that the library carries until the target has
//! the compiled one. A separate frame brings the compiled image ([`Kind::Bind`](farjump_core::frame::Kind::Bind)): if
//! the target refuses the image, it refuses no call with it (`docs/design/images.md`).

mod compiler;
mod job;
mod state;

pub use compiler::PeerCompiler;
use job::{Job, Started};
pub use state::{CompiledImage, KeptCause};

use farjump_core::cpu::Cpu;
use farjump_loader::{Library, LibraryIdentity, LibraryImage};

/// The exchanges of a link.
#[derive(Debug)]
pub(super) struct Exchanges {
    compiler: PeerCompiler,
    entries: Vec<Exchange>,
}

/// The exchange of one library's image.
#[derive(Debug)]
pub(super) struct Exchange {
    library: LibraryIdentity,
    pub(super) state: State,
}

/// The progress of an exchange.
#[derive(Debug)]
pub(super) enum State {
    Compiling(Job),
    /// The image is ready. The link has not offered it to the target, for lack of credit.
    Compiled(LibraryImage),
    /// The frame that brings the image was sent: its token, and the image's code index.
    Offered(LibraryImage, u32, u16),
    /// Calls run the image, which has this code index.
    InUse(LibraryImage, u16),
    Kept(KeptCause),
}

impl Exchanges {
    pub(super) fn new(compiler: PeerCompiler) -> Exchanges {
        Exchanges { compiler, entries: Vec::new() }
    }

    /// The exchange of `library`, if there is one.
    pub(super) fn find(&mut self, library: &Library) -> Option<&mut Exchange> {
        self.entries.iter_mut().find(|exchange| exchange.library.is(library))
    }

    /// The exchange in which calls run the image with this code index.
    pub(super) fn using(&mut self, index: u16) -> Option<&mut Exchange> {
        let uses =
            |exchange: &&mut Exchange| matches!(exchange.state, State::InUse(_, used) if used == index);
        self.entries.iter_mut().find(uses)
    }

    /// The image that replaces the one that `library` carries.
    pub(super) fn image_of(&mut self, library: &Library) -> Option<LibraryImage> {
        match &self.find(library)?.state {
            State::InUse(image, _) => Some(image.clone()),
            _ => None,
        }
    }

    /// Begins the exchange of the image that `library` carries for `cpu`. `may_bring` is true if this source may bring
    /// code.
    pub(super) fn begin(&mut self, library: &Library, carried: &LibraryImage, cpu: &Cpu, may_bring: bool) {
        let state = match KeptCause::of(library, carried, may_bring) {
            Some(cause) => State::Kept(cause),
            None => match job::start(library, cpu, &self.compiler) {
                Ok(Started::Compiled(image)) => State::compiled(image, carried),
                Ok(Started::Job(job)) => State::Compiling(job),
                Err(cause) => State::Kept(cause),
            },
        };
        if let State::Kept(cause) = &state {
            log::info!("`{}` keeps the image that it carries: {cause}", library.name());
        }
        self.entries.retain(|exchange| exchange.library.is_open());
        self.entries.push(Exchange { library: library.identity(), state });
    }

    /// Ends all exchanges: the target may be on another machine now.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }
}

impl State {
    /// The state once `image` is compiled in place of `carried`.
    fn compiled(image: LibraryImage, carried: &LibraryImage) -> State {
        if image.span2_len() != 0 {
            State::Kept(KeptCause::Statics)
        } else if image.payload_align_log2() != carried.payload_align_log2() {
            State::Kept(KeptCause::PayloadAlignment)
        } else {
            State::Compiled(image)
        }
    }

    /// Takes the result of the compiler, if it is there.
    pub(super) fn look_at_job(&mut self, library: &Library, carried: &LibraryImage) {
        let State::Compiling(job) = self else { return };
        match job.result() {
            None => {}
            Some(Ok(image)) => *self = State::compiled(image, carried),
            Some(Err(cause)) => *self = State::Kept(cause),
        }
        if let State::Kept(cause) = self {
            log::info!("`{}` keeps the image that it carries: {cause}", library.name());
        }
    }

    /// Returns whether the exchange has ended.
    pub(super) fn is_settled(&self) -> bool {
        matches!(self, State::InUse(..) | State::Kept(_))
    }
}
