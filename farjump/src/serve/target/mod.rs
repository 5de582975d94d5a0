//! The target: what it polls, admits, answers and ends.

mod admin;
mod builder;
#[cfg(feature = "bitcode")]
mod compiler;
mod connections;
#[cfg(test)]
mod domain_tests;
mod end_links;
mod key_changes;
mod own_calls;
mod poll;
mod sleep;
mod store_work;
mod thread;
#[cfg(feature = "tokio")]
mod tokio;

use std::ffi::c_void;
use std::marker::PhantomData;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farjump_control::{AdminConnection, Arrival, KeyFile, Listener};
use farjump_core::cpu::Cpu;
use farjump_core::image::CodeId;
use farjump_core::transport::Transport;
use farjump_loader::{CodeKey, LinkedImage};
use farjump_os::Owner;

use crate::config::TargetConfig;
use crate::serve::epoll::{Event, Watch};
use crate::serve::forward::{Choices, Forwards};
use crate::serve::handlers::Handlers;
use crate::serve::scratch::Scratch;
use crate::serve::session::{Host, Session, Shared};
use crate::serve::sessions::Sessions;
use crate::serve::settings::Settings;
use crate::serve::target_args::TargetArgs;
pub use builder::TargetBuilder;
use store_work::StoreWork;
pub use thread::{Stopper, TargetThread};

use crate::executor::{Executor, Export, ExportFn};
use crate::stored_image::describe;
use crate::wait::NAPS;
use crate::{Error, Library, ServeError, Stats, StoredImage};

/// A process, or a thread of one, that injected functions run in.
///
/// It does nothing by itself: call [`Target::poll`] in a loop of your own, or [`Target::run`], or hand it to
/// a thread with [`Target::spawn`].
///
/// ```no_run
/// # struct Store;
/// # extern "C" fn store_get(_: *mut Store, _: u64) -> u64 { 0 }
/// # fn turn() -> Result<(), farjump::Error> { Ok(()) }
/// # fn main() -> Result<(), farjump::Error> {
/// use farjump::Target;
///
/// let mut store = Store;
/// let mut target = Target::listen("unix:store.sock")
///     .args(&mut store)
///     .exports([farjump::export!(store_get(_, _))])
///     .build()?;
/// loop {
///     target.poll()?;
///     turn()?;
/// }
/// # }
/// ```
// The shared state has the address of the target, so that a call needs no other. The fields that every poll uses follow
// from the start of a line.
#[repr(C, align(64))]
pub struct Target<'a> {
    shared: Shared,
    /// The process that it was built in.
    owner: Owner,
    idle: Idle,
    /// Counts polls up to the next reading of the clock, when it is 0.
    polls: u8,
    /// Counts readings of the clock.
    rounds: u8,
    /// Polls until the target next queries the system for sessions with events.
    polls_to_query: u32,
    sessions: Sessions<Session>,
    settings: Settings,
    /// Time of the last query to the system for events; `None` if one is due now.
    last_control: Option<Instant>,
    /// Time until which connections wait, because the system could not give one more.
    deaf_until: Option<Instant>,
    /// True if connections were rejected for lack of resources, and no link was made since.
    is_short: bool,
    listener: Listener,
    /// The key file of sources, if it may change.
    key_file: Option<KeyFile>,
    arrivals: Vec<(u64, Arrival)>,
    admin_connections: Vec<(u64, AdminConnection)>,
    store_work: StoreWork,
    watch: Watch,
    stopper: Stopper,
    next_id: u64,
    /// Time at which the idle sessions that stay armed were last checked.
    last_sweep: Instant,
    config: Box<TargetConfig>,
    /// The last field: the fields above may use the value that it owns.
    target_args: TargetArgs,
    args: PhantomData<&'a mut ()>,
}

/// The time for which a target has found nothing. Both numbers are 0 after a frame.
#[derive(Clone, Copy, Default)]
#[repr(C, align(8))]
struct Idle {
    /// Polls in a row.
    polls: u32,
    /// Naps, since the last event.
    naps: u32,
}

impl Idle {
    /// The longest time of the next nap: each is twice as long as the last, up to a limit.
    fn nap(self) -> Duration {
        let (first, longest) = NAPS;
        1_u32
            .checked_shl(self.naps)
            .and_then(|times| first.checked_mul(times))
            .map_or(longest, |nap| nap.min(longest))
    }
}

// SAFETY: `target_args` may move to another thread, see there. All else that a target has pointers to is its
// own: sessions, their code, and the executor's memory.
unsafe impl Send for Target<'_> {}

impl std::fmt::Debug for Target<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Target")
            .field("address", &self.listener.address())
            .field("sources", &self.sessions.len())
            .finish_non_exhaustive()
    }
}

impl<'a> Target<'a> {
    /// A target that listens at `address`: `unix:PATH`, `unix:@NAME` (an abstract socket), or `tcp:HOST:PORT`
    /// ([`TargetBuilder::key`]).
    ///
    /// A target that is dropped removes the file at PATH, also while a panic unwinds. A process that ends otherwise
    /// leaves it: by a signal, by an abort, by `std::process::exit`. The next target takes it over, as no process
    /// listens there, and sources get an error that says so. To leave none, catch the signals: call [`Stopper::stop`]
    /// at the first, and [`end_process`](crate::end_process) where the target does not stop in time.
    pub fn listen(address: &str) -> TargetBuilder<'a> {
        TargetBuilder::new(address)
    }

    fn new(
        listener: Listener,
        transports: Vec<Box<dyn Transport>>,
        executor: Executor,
        settings: Settings,
        handlers: Handlers,
        target_args: TargetArgs,
        choices: Choices,
    ) -> Result<Self, Error> {
        let owner = Owner::this();
        let stopper = Stopper::new()?;
        let watch = Watch::new()?;
        watch.add(listener.as_fd(), Event::Listener, false)?;
        watch.add(stopper.as_fd(), Event::Stop, false)?;
        let (mut executor, forwards) = (executor, Forwards::new(choices));
        forwards.admit(executor.forwarding());
        let mut sessions = Sessions::new();
        if settings.exposes_callers {
            sessions.poll_in_turn();
            executor.expose_callers();
        }
        Ok(Target {
            sessions,
            shared: Shared {
                executor,
                host: settings.exposes_callers.then(Host::default),
                handlers: Box::new(handlers),
                stall_timeout: settings.stall_timeout,
                scratch: Scratch::default(),
                forwards,
                transports,
                mailbox: settings.mailbox,
                large_frames: settings.large_frames(),
                handshake_timeout: settings.handshake_timeout,
            },
            settings,
            polls: 0,
            rounds: 0,
            polls_to_query: 0,
            idle: Idle::default(),
            last_control: None,
            deaf_until: None,
            is_short: false,
            owner,
            listener,
            key_file: None,
            arrivals: Vec::new(),
            admin_connections: Vec::new(),
            store_work: StoreWork::default(),
            watch,
            stopper,
            next_id: 0,
            last_sweep: Instant::now(),
            config: Box::default(),
            target_args,
            args: PhantomData,
        })
    }

    /// Moves the target to another thread, which runs it until [`TargetThread::stop`]. Its arguments must be its own
    /// ([`TargetBuilder::args_owned`]), or borrowed for `'static`.
    ///
    /// # Errors
    /// When the thread cannot be made.
    pub fn spawn(self) -> Result<TargetThread, Error>
    where
        'a: 'static,
    {
        TargetThread::start(self)
    }

    /// The options that it was built with. The program's name is that which peers see.
    pub fn config(&self) -> &TargetConfig {
        &self.config
    }

    /// A handle that stops [`Target::run`], from any thread or from a signal handler.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Checks that this is no forked child: connections and mailboxes are its parent's.
    #[inline(always)]
    fn check_process(&self) -> Result<(), Error> {
        if self.is_own_process() { Ok(()) } else { Err(*self.forked()) }
    }

    /// Returns whether this is the process that the target was built in.
    #[inline(always)]
    fn is_own_process(&self) -> bool {
        self.owner.is_this()
    }

    #[cold]
    #[inline(never)]
    fn forked(&self) -> Box<Error> {
        Box::new(ServeError::Forked { parent: self.owner.pid() }.into())
    }

    /// The value of [`TargetBuilder::args`] or [`TargetBuilder::args_owned`], between polls; `None` if it is of
    /// another type.
    pub fn args_mut<T: 'static>(&mut self) -> Option<&mut T> {
        // SAFETY: the address is that of a `T` that lives for longer than `self`; injected code uses it only
        // inside `poll`, which needs `self` exclusively, as this borrow does.
        self.target_args.of_type::<T>().map(|args| unsafe { &mut *args })
    }

    /// Ends the target and returns the value of [`TargetBuilder::args_owned`]. For a target on its own thread, that is
    /// `thread.stop()?.into_args::<Store>()`.
    ///
    /// # Errors
    /// The target as it was, if it owns no `T`.
    #[expect(clippy::result_large_err, reason = "the error is the target, which was moved in")]
    pub fn into_args<T: 'static>(mut self) -> Result<T, Self> {
        let Some(args) = self.target_args.give::<T>() else { return Err(self) };
        drop(self);
        // SAFETY: `give` gave the box at this address away, and the target is gone with all code that used
        // it.
        Ok(*unsafe { Box::from_raw(args) })
    }

    /// The address that it listens at: as given, and with the port that the system chose for port 0.
    pub fn address(&self) -> String {
        self.listener.address().to_string()
    }

    /// The target's statistics.
    pub fn stats(&self) -> Stats {
        let mut stats = self.shared.executor.counted();
        stats.frames -= stats.waited;
        stats.bytes += self.sessions.iter().map(|session| session.received()).sum::<u64>();
        stats.summed += self.sessions.iter().map(|session| session.summed()).sum::<u64>();
        stats
    }

    /// Number of connected sources.
    pub fn sources(&self) -> usize {
        self.sessions.len()
    }

    /// The code in the store.
    pub fn images(&self) -> Vec<StoredImage> {
        let executor = &self.shared.executor;
        let now = executor.clock.now();
        executor.images().map(|linked| describe(linked, now, executor.is_local(linked))).collect()
    }

    /// The CPU that the target announces to sources: this one, or less of it ([`TargetBuilder::cpu_level`]).
    pub fn cpu(&self) -> &Cpu {
        &self.settings.cpu
    }

    /// This target's epoch: another one each time a target is built.
    pub fn epoch(&self) -> u64 {
        self.shared.executor.epoch()
    }

    /// Adds the function of `library` to the target, in place of one of the same name; see
    /// [`TargetBuilder::local`].
    ///
    /// # Errors
    /// As [`Executor::set_local`](crate::Executor::set_local).
    pub fn set_local(&mut self, library: &Library) -> Result<(), Error> {
        let sessions = &mut self.sessions;
        self.shared.executor.set_local_with(library, |linked| Session::release(sessions, linked))
    }

    /// Removes the function of this name from the target's own; `false` if there was none.
    pub fn remove_local(&mut self, name: &str) -> bool {
        self.shared.executor.remove_local(name)
    }

    /// Offers a function as `name` from now on, before all earlier exports of that name (interposing). Code linked
    /// before keeps its addresses, also for later sources; [`Target::drop_code`] makes the target link it again.
    ///
    /// # Errors
    /// [`ServeError::ReservedExport`](crate::ServeError::ReservedExport) for a name that [`TargetBuilder::export`] does not
    /// take.
    pub fn export<F: ExportFn>(&mut self, name: &str, function: F) -> Result<(), Error> {
        self.shared.executor.export(name, function)
    }

    /// As [`Target::export`], for functions under their own names: `target.exports([export!(store_get(_, _))])`.
    ///
    /// # Errors
    /// As [`Target::export`]; the functions before are offered.
    pub fn exports(&mut self, functions: impl IntoIterator<Item = Export>) -> Result<(), Error> {
        functions.into_iter().try_for_each(|function| self.export(function.name(), function))
    }

    /// As [`Target::export`], for an address of a function or of data, as in C.
    ///
    /// # Safety
    /// As for [`TargetBuilder::export_raw`].
    pub unsafe fn export_raw(&mut self, name: &str, address: *const c_void) {
        // SAFETY: this function's caller guarantees it; the executor lives no longer than the target.
        unsafe { self.shared.executor.export_raw(name, address) };
    }

    /// As [`Target::export`], for the address of data.
    ///
    /// # Errors
    /// As [`Target::export`].
    pub fn export_data<T: Sync>(&mut self, name: &str, data: &'static T) -> Result<(), Error> {
        self.shared.executor.export_data(name, data)
    }

    /// As [`Target::export`], for every symbol that a shared library itself defines, by path or soname. It is
    /// loaded now, which runs its constructors, and stays until the process ends. Returns the names
    /// that it replaces, the program's exports and those of earlier libraries, in alphabetical order. From
    /// another process: [`Admin::export`](crate::admin::Admin::export).
    ///
    /// # Errors
    /// [`Error::Library`] when it cannot be loaded; nothing has changed then.
    ///
    /// # Safety
    /// As for [`TargetBuilder::export_library`]; its constructors run now.
    pub unsafe fn export_library(&mut self, path: impl AsRef<Path>) -> Result<Vec<String>, Error> {
        // SAFETY: this function's caller guarantees it.
        unsafe { self.shared.executor.export_library(path) }
    }

    /// Names the target at `address` (`unix:PATH`, `unix:@NAME`, `tcp:HOST:PORT`) as destination `name` from
    /// now on; see [`TargetBuilder::destination`]. Calls under way to another address of that name fail.
    ///
    /// # Errors
    /// When the address is malformed.
    pub fn set_destination(&mut self, name: &str, address: &str) -> Result<(), Error> {
        let (forwards, executor) = (&mut self.shared.forwards, &mut self.shared.executor);
        forwards.set(name, &address.parse()?, &self.watch, executor.forwarding());
        Ok(())
    }

    /// Drops code of all sources from the store, with its statics; `false` if it is not there. The target requests it
    /// from a source that calls it again.
    pub fn drop_code(&mut self, id: &CodeId) -> bool {
        let of_this = |linked: &&Arc<LinkedImage>| linked.id() == *id;
        let keys: Vec<_> = self.shared.executor.images().filter(of_this).map(|linked| linked.key()).collect();
        keys.into_iter().fold(false, |dropped, key| self.drop_of(key) | dropped)
    }

    /// Drops code of one domain from the store; `false` if it is not there.
    fn drop_of(&mut self, key: CodeKey) -> bool {
        for session in self.sessions.iter_mut() {
            session.codes.drop_code(key);
        }
        self.shared.executor.drop_code(key)
    }
}

impl Drop for Target<'_> {
    fn drop(&mut self) {
        // A forked child has a copy, which shares connections and the epoll instance with its parent: it ends
        // without a message.
        if self.owner.pid() == std::process::id() {
            self.end_links("the target ended");
        }
        // Before the shared state, which they use.
        drop(self.sessions.take());
    }
}
