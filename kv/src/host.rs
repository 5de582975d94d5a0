//! The target in the server.

use std::cell::{Cell, OnceCell, RefCell};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farjump::{Principal, Target};
use farjump_os::resources;
use rustix::event::{EventfdFlags, eventfd};

use crate::api::{self, Level, Watched};
use crate::causes::with_causes;
use crate::code::{Code, Happened};
use crate::functions::{Terms, Word};
use crate::options::{DEFAULT_LIMIT, Options};
use crate::ran::LastRun;
use crate::watcher::{Limit, Watcher};
use crate::{functions, ran};

/// Maximum number of calls of a link in the first poll, when their length is unknown.
pub(crate) const FIRST_CALLS: usize = 8;
/// Time between two checks of the users for whose calls the target waits, in microseconds. The server does not notify
/// modules when users change.
const LOOK_AT_USERS: u64 = 500_000;

thread_local! {
    /// The module, on the server's main thread, while it is loaded.
    static HOST: RefCell<Option<Rc<Host>>> = const { RefCell::new(None) };
}

/// The module's state.
pub(crate) struct Host {
    /// Descriptors that the loop watches. The first field, so that it is dropped before the things that it watches.
    watched: RefCell<Vec<Watched>>,
    /// Reports functions that take too long.
    pub(crate) watcher: OnceCell<Watcher>,
    /// Settings, or the fault in them.
    options: Result<Options, String>,
    /// Settings that change while the server runs.
    pub(crate) linger: Cell<Duration>,
    pub(crate) limit: Arc<Limit>,
    /// Settings that are not in effect.
    pub(crate) warnings: Vec<String>,
    /// The reason why the target does not listen.
    problem: RefCell<Option<String>>,
    /// The target, once it listens. Borrowed while functions run.
    pub(crate) target: RefCell<Option<Target<'static>>>,
    /// The principal of a command's last call. The next call mostly has the same one.
    last_principal: RefCell<Option<Arc<Principal>>>,
    /// Code that commands call.
    pub(crate) code: RefCell<Code>,
    /// The events of its keys, which may come while code is called.
    pub(crate) happened: Rc<Happened>,
    /// Ends the server's sleep when it is written to.
    kick: RefCell<Option<OwnedFd>>,
    pub(crate) turns: Turns,
}

/// State of the turns in the event loop.
#[derive(Default)]
pub(crate) struct Turns {
    /// Whether the target's descriptor was readable.
    pub(crate) woken: Cell<bool>,
    /// Whether the target is armed.
    pub(crate) armed: Cell<bool>,
    /// The time of arming, by the server's clock in microseconds.
    pub(crate) armed_at: Cell<u64>,
    /// The time at which something other than a call is due, by that clock.
    pub(crate) due: Cell<Option<u64>>,
    /// Whether a timer will end a nap.
    pub(crate) has_timer: Cell<bool>,
    /// Whether opening the target was tried.
    pub(crate) opened: Cell<bool>,
    /// Set by the hooks around the internal command: without it, a client's call of the command is refused.
    pub(crate) in_hook: Cell<bool>,
    /// The time when the target last checked more than frames, by that clock.
    pub(crate) tended_at: Cell<u64>,
    /// True if the last run ended for its time limit, and not for lack of calls.
    pub(crate) has_more: Cell<bool>,
    /// The time when the last call of a link ended.
    pub(crate) last_call: Cell<Option<Instant>>,
    /// The functions of links in the last run.
    pub(crate) last_run: RefCell<LastRun>,
    /// Maximum number of calls of a link in one poll.
    pub(crate) batch: Cell<usize>,
    /// Number of turns since the last run, in a server that does not sleep.
    pub(crate) skipped: Cell<u32>,
    /// Number of runs of the internal command.
    pub(crate) runs: Cell<u64>,
    /// The time of the last check of users with waiting calls, by the server's clock in microseconds.
    pub(crate) users_seen: Cell<u64>,
    /// Number of times that the target was armed.
    pub(crate) arms: Cell<u64>,
    /// Number of runs that took longer than the limit.
    pub(crate) slow: Cell<u64>,
    /// The longest run in microseconds.
    pub(crate) longest: Cell<u64>,
}

/// The module on this thread; `None` on threads that are not the server's main thread.
pub(crate) fn get() -> Option<Rc<Host>> {
    HOST.try_with(|host| host.try_borrow().ok().and_then(|host| host.clone())).ok().flatten()
}

/// Sets the module, or ends the present one.
pub(crate) fn set(host: Option<Host>) {
    let old = HOST.with(|slot| std::mem::replace(&mut *slot.borrow_mut(), host.map(Rc::new)));
    if let Some(old) = old {
        old.close();
    }
}

impl Host {
    /// A module with these arguments, in a server that lacks these functions.
    pub(crate) fn new(args: &[Vec<u8>], missing: &[&str]) -> Host {
        let mut parsed = Options::parse(args, resources::processors());
        if !missing.is_empty() {
            parsed = Err(format!(
                "the server's module interface lacks {}: use Redis 7.0, Valkey 8.0, or a later one",
                missing.join(", ")
            ));
        }
        let (options, warnings) = match parsed {
            Ok((options, mut warnings)) => {
                warnings.extend(options.unknown_keys());
                (Ok(options), warnings)
            }
            Err(problem) => (Err(problem), Vec::new()),
        };
        for warning in &warnings {
            api::log(Level::Warning, warning);
        }
        let code = Code::new(options.as_ref().ok().and_then(|options| options.code_key.as_deref()));
        let (code, key_problem) = match code {
            Ok(code) => (code, None),
            Err(problem) => (Code::default(), Some(problem)),
        };
        let problem = options.as_ref().err().cloned().or(key_problem);
        Host {
            watched: RefCell::new(Vec::new()),
            watcher: OnceCell::new(),
            problem: RefCell::new(problem),
            linger: Cell::new(options.as_ref().map_or(Duration::ZERO, |options| options.linger)),
            limit: Arc::new(Limit::new(options.as_ref().map_or(DEFAULT_LIMIT, |options| options.limit))),
            options,
            warnings,
            target: RefCell::new(None),
            last_principal: RefCell::default(),
            happened: Rc::clone(code.happened()),
            code: RefCell::new(code),
            kick: RefCell::new(None),
            turns: Turns::default(),
        }
    }

    pub(crate) fn options(&self) -> Option<&Options> {
        self.options.as_ref().ok()
    }

    /// Returns whether the server's loop never sleeps.
    pub(crate) fn spins(&self) -> bool {
        self.options().is_some_and(|options| options.spin)
    }

    /// Returns the reason why the target does not listen, if it does not.
    pub(crate) fn problem(&self) -> Option<String> {
        self.problem.borrow().clone()
    }

    /// Returns the commands' error if there is no target.
    pub(crate) fn refusal(&self) -> Option<String> {
        match (self.problem(), self.turns.opened.get()) {
            (Some(problem), _) => Some(format!("NOTARGET farjump does not listen: {problem}")),
            (None, false) => Some("NOTARGET farjump does not listen yet: try again".to_owned()),
            (None, true) => None,
        }
    }

    /// Opens the target. A failure becomes the problem.
    pub(crate) fn open(&self) {
        self.turns.opened.set(true);
        if self.problem.borrow().is_some() {
            return;
        }
        let Some(options) = self.options() else { return };
        match self.try_open(options) {
            Ok(()) => {}
            Err(problem) => self.fail(problem),
        }
    }

    fn try_open(&self, options: &Options) -> Result<(), String> {
        let builder = Target::listen(&options.address)
            .config(options.target.clone())
            .args_owned(Marker { _reserved: [0; 2] })
            .exports(functions::exports())
            .crash_report(true)
            .host_word(word_of_links(options))
            .program(server_name());
        let mut target = builder.build().map_err(|error| with_advice(with_causes(&error)))?;
        target.set_batch(FIRST_CALLS);
        let kick = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| format!("no descriptor for an event: {error}: raise the limit of open files"))?;
        let woken = Watched::new(target.as_fd(), || {
            if let Some(host) = get() {
                host.turns.woken.set(true);
            }
        })?;
        let kicked = Watched::new(kick.as_fd(), || {
            if let Some(host) = get() {
                host.take_kick();
            }
        })?;
        self.watcher
            .set(Watcher::start(Arc::clone(&self.limit))?)
            .map_err(|_| "functions are watched already")?;
        api::log(Level::Notice, &format!("listening at {}", target.address()));
        *self.target.borrow_mut() = Some(target);
        *self.kick.borrow_mut() = Some(kick);
        *self.watched.borrow_mut() = vec![woken, kicked];
        if options.spin {
            self.kick();
        }
        Ok(())
    }

    /// Returns whether replies are held until the append-only file is written.
    pub(crate) fn holds_replies(&self) -> bool {
        let target = self.target.try_borrow();
        target.is_ok_and(|target| target.as_ref().is_some_and(Target::holds_replies))
    }

    /// Sends the held replies: the writes of their calls are in the append-only file.
    pub(crate) fn release_replies(&self) {
        if let Ok(mut target) = self.target.try_borrow_mut()
            && let Some(target) = &mut *target
        {
            target.release_replies();
        }
    }

    /// Returns the principal of a command's call for this user on these terms.
    pub(crate) fn principal(&self, user: &[u8], terms: Terms) -> Arc<Principal> {
        let mut last = self.last_principal.borrow_mut();
        let is_word = |word: &Word| word.user == user && word.terms == terms;
        match &*last {
            Some(last) if last.word().is_some_and(is_word) => Arc::clone(last),
            _ => Arc::clone(last.insert(Principal::with_word(Word { user: user.to_vec(), terms }))),
        }
    }

    /// Drops, now and then, calls that wait and whose users are gone or off.
    pub(crate) fn drop_calls_of_lost_users(&self) {
        let now = api::now();
        if now.saturating_sub(self.turns.users_seen.get()) < LOOK_AT_USERS {
            return;
        }
        self.turns.users_seen.set(now);
        if let Ok(mut target) = self.target.try_borrow_mut()
            && let Some(target) = &mut *target
        {
            target.withdraw(|principal| functions::loss_of(&principal.word::<Word>()?.user));
        }
    }

    /// Ends the server's next sleep at once.
    pub(crate) fn kick(&self) {
        if let Some(kick) = &*self.kick.borrow() {
            // The write can fail only if it was written before.
            let _ = rustix::io::write(kick, &1_u64.to_ne_bytes());
        }
    }

    /// Lets the server sleep again, unless it never sleeps.
    fn take_kick(&self) {
        if self.spins() {
            return;
        }
        if let Some(kick) = &*self.kick.borrow() {
            let _ = rustix::io::read(kick, &mut [0_u8; 8]);
        }
    }

    /// Closes the target, for this reason.
    pub(crate) fn fail(&self, problem: String) {
        api::log(Level::Warning, &format!("no target: {problem}"));
        *self.problem.borrow_mut() = Some(problem);
        self.close();
    }

    fn close(&self) {
        // The loop must not watch closed descriptors.
        self.watched.borrow_mut().clear();
        drop(self.kick.borrow_mut().take());
        if let Ok(mut target) = self.target.try_borrow_mut() {
            drop(target.take());
        }
    }

    /// Notes the time that functions took, most of it `function`, and reports the time if it was too long. Returns the
    /// time in microseconds.
    pub(crate) fn note_time(&self, start: Instant, function: &str, what: impl FnOnce() -> String) -> u64 {
        let took = start.elapsed();
        let microseconds = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let turns = &self.turns;
        turns.runs.set(turns.runs.get() + 1);
        turns.longest.set(turns.longest.get().max(microseconds));
        if took > self.limit.get() {
            turns.slow.set(turns.slow.get() + 1);
            log::warn!("functions ({}) took {} ms, and other clients waited", what(), took.as_millis());
        }
        ran::note_latency(function, took);
        microseconds
    }
}

/// Returns the function that gives the word on the calls of each link: they run as the user of the link's key, or as
/// the user of all links.
fn word_of_links(options: &Options) -> impl FnMut(&Principal) -> Word + Send + use<> {
    let (user, key_users) = (options.user.clone(), options.key_users.clone());
    move |principal| {
        let of_key = principal.key().and_then(|key| key_users.iter().find(|(name, _)| name == key));
        let user = of_key.map_or(&user, |(_, user)| user).clone().into_bytes();
        Word { user, terms: Terms { may_write: true, slot: None, database: 0 } }
    }
}

/// Adds to the error of a target that cannot place code the restrictions of systemd's units.
fn with_advice(problem: String) -> String {
    match problem.contains("executable") {
        true => format!(
            "{problem}; if systemd starts the server: `systemctl edit` its unit, and put MemoryDenyWriteExecute=no below [Service]"
        ),
        false => problem,
    }
}

/// Returns the server's name. The file's name may differ, because one file is several programs.
fn server_name() -> String {
    let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    if name.trim().is_empty() { "server".to_owned() } else { name.trim().to_owned() }
}

/// The type of `target_args`. Functions use only its address, which shows that it is this module's.
struct Marker {
    _reserved: [u64; 2],
}
