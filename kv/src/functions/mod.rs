//! The operations of injected functions on the server's data: `farjump_kv.h`.

mod access;
mod boundary;
mod eviction;
mod fault;
mod numbers;
mod of_clients;
mod reads;
mod values;
mod writes;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::c_int;

use access::Access;
pub(crate) use boundary::exports;
use fault::{Code, Fault, shown};
use of_clients::Scope;
pub(crate) use values::{Value, values};

use crate::api::{Context, Lent, Reply, Str};

/// Most bytes of copies that one call may have at a time.
const MOST_LENT: usize = 64 << 20;
/// Longest name for which a string is kept.
const LONGEST_KEPT_NAME: usize = 255;

thread_local! {
    /// The server's data for the functions that run on this thread.
    static KV: Kv = const { Kv::new() };
}

/// Bytes that are lent to a function.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Bytes {
    pub(crate) data: *const u8,
    pub(crate) len: usize,
}

impl Bytes {
    pub(crate) fn of(bytes: &[u8]) -> Bytes {
        Bytes { data: bytes.as_ptr(), len: bytes.len() }
    }
}

/// The module's word on a call: its user and its terms. It is a part of the call's principal, so it also holds if the
/// call runs later than its command.
#[derive(Clone, Debug)]
pub(crate) struct Word {
    /// The user's name.
    pub(crate) user: Vec<u8>,
    pub(crate) terms: Terms,
}

/// The terms of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Terms {
    /// Whether writes are permitted.
    pub(crate) may_write: bool,
    /// The slot of the command's keys, if it has keys.
    pub(crate) slot: Option<u16>,
    /// The database.
    pub(crate) database: c_int,
}

/// The things that came with the command that runs functions. Calls that run later have none of them.
#[derive(Default)]
pub(crate) struct CommandInput {
    /// Keys.
    pub(crate) keys: Vec<Bytes>,
    /// Arguments.
    pub(crate) args: Vec<Bytes>,
    /// Whether they came with a command.
    pub(crate) is_command: bool,
}

/// The server's data, while functions run.
struct Kv {
    lent: Lent,
    state: RefCell<State>,
    /// Whether to act at the end of the running call.
    acts_at_end: Cell<bool>,
    /// The number of the principal whose word the state has.
    principal: Cell<Option<u64>>,
}

/// The state of running functions.
struct State {
    input: Option<CommandInput>,
    /// The rights of the user, determined at the first access of the turn.
    access: Option<Access>,
    /// The rights of other users as which calls have run in this turn.
    others: Vec<(Vec<u8>, Access)>,
    /// The user as which the running call runs.
    user: Vec<u8>,
    /// Whether the running call may write.
    may_write: bool,
    /// The server's policy of eviction, queried at the first write that lacks memory.
    eviction: Option<eviction::Policy>,
    in_cluster: bool,
    /// The slot of a cluster for which the running call runs.
    slot: Option<u16>,
    /// One string for each length of names, rewritten for each look-up.
    names: Vec<Option<Str>>,
    /// Copies that are lent until the call ends.
    copies: Vec<Copy>,
    copied: usize,
    /// The reply of the last command, and its number.
    reply: Option<(u64, Reply)>,
    /// The number of the next cursor or reply.
    next: u64,
    /// Keys and arguments of the running call of a link, once it has taken its payload for them.
    words: Option<CommandInput>,
    /// Whether a call has answered with a value since the turn began.
    has_replied_values: bool,
    /// Space for the bytes of a value.
    value_bytes: Vec<u8>,
    /// The message of the last error.
    error: String,
    /// The scopes of commands, by the names that functions have used.
    scopes: BTreeMap<Vec<u8>, Scope>,
    /// The database of the running call, if it has selected another one.
    call_database: Option<c_int>,
}

/// A copy that is lent to the running call.
enum Copy {
    Str(Str),
    Vec(Vec<u8>),
}

/// Figures of INFO.
#[derive(Clone, Copy, Default)]
pub(crate) struct Figures {
    pub(crate) writes: u64,
    pub(crate) refused: u64,
    /// Keys that were evicted to make space for writes.
    pub(crate) evicted: u64,
}

thread_local! {
    static FIGURES: Cell<Figures> = const { Cell::new(Figures { writes: 0, refused: 0, evicted: 0 }) };
}

/// Returns the numbers of writes made and accesses refused since the module was loaded.
pub(crate) fn figures() -> Figures {
    FIGURES.get()
}

fn count(change: impl FnOnce(&mut Figures)) {
    let mut figures = FIGURES.get();
    change(&mut figures);
    FIGURES.set(figures);
}

impl Kv {
    const fn new() -> Kv {
        Kv {
            lent: Lent::new(),
            state: RefCell::new(State {
                input: None,
                access: None,
                others: Vec::new(),
                user: Vec::new(),
                may_write: false,
                eviction: None,
                in_cluster: false,
                slot: None,
                names: Vec::new(),
                copies: Vec::new(),
                copied: 0,
                reply: None,
                next: 1,
                words: None,
                has_replied_values: false,
                value_bytes: Vec::new(),
                error: String::new(),
                scopes: BTreeMap::new(),
                call_database: None,
            }),
            acts_at_end: Cell::new(false),
            principal: Cell::new(None),
        }
    }

    /// Takes the word on the running call, if its principal differs from the last one.
    #[inline]
    fn follow(&self) -> Result<(), Fault> {
        match farjump::principal_number() == self.principal.get() {
            true => Ok(()),
            false => self.take_word(),
        }
    }

    #[cold]
    fn take_word(&self) -> Result<(), Fault> {
        let principal = farjump::principal();
        let word = principal.as_ref().and_then(|principal| principal.word::<Word>());
        let mut state = self.state.borrow_mut();
        let Some(word) = word.filter(|_| state.input.is_some()) else {
            return Err(Fault::new(Code::NoCall, "no function runs on this thread"));
        };
        let database = word.terms.database;
        let selected = self.lent.with(|context| context.database() == database || context.select(database));
        if selected != Some(true) {
            let text = format!("the server has no database {database} any more: call with another one");
            return Err(Fault::new(Code::Failed, text));
        }
        state.apply_word(word);
        self.principal.set(principal.as_ref().map(|principal| principal.number()));
        Ok(())
    }

    /// Ends everything that was lent to the running call.
    fn end_call(&self) {
        self.acts_at_end.set(false);
        self.lent.close_cursors();
        self.leave_database();
        let mut state = self.state.borrow_mut();
        // Before the copies, which hold them.
        state.words = None;
        state.copies.clear();
        state.copied = 0;
        state.reply = None;
    }

    /// Returns something that came with the running call.
    fn with_input<T>(&self, take: impl FnOnce(&CommandInput) -> T) -> Result<T, Fault> {
        let state = self.state.borrow();
        let input = state.words.as_ref().or(state.input.as_ref());
        input.map(take).ok_or_else(|| Fault::new(Code::NoCall, "no function runs on this thread"))
    }

    /// Arranges that the running call returns the server's data when it ends.
    fn act_at_end(&self) {
        if !self.acts_at_end.get() {
            self.acts_at_end.set(farjump::at_call_end(|| KV.with(Kv::end_call)));
        }
    }
}

/// Runs `work`, inside which functions have the server's data through `context`. `None` if functions are already
/// running.
pub(crate) fn during<T>(context: &Context<'_>, input: CommandInput, work: impl FnOnce() -> T) -> Option<T> {
    /// Ends everything, even if a panic unwinds.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            KV.with(|kv| {
                kv.end_call();
                kv.principal.set(None);
                let mut state = kv.state.borrow_mut();
                (state.input, state.access, state.eviction) = (None, None, None);
                state.others.clear();
            });
        }
    }
    KV.with(|kv| {
        let mut state = kv.state.borrow_mut();
        if state.input.is_some() {
            return None;
        }
        state.in_cluster = context.in_cluster();
        state.input = Some(input);
        state.has_replied_values = false;
        drop(state);
        // Calls may select other databases.
        let database = context.keep_database();
        // Dropped behind the context's guard: keys are closed while the context is valid.
        let end = End;
        let result = kv.lent.during(context, work);
        drop(end);
        drop(database);
        Some(result)
    })
}

/// Returns the reason why no call runs as the user of this name. `None` if calls run.
pub(crate) fn loss_of(user: &[u8]) -> Option<String> {
    match Access::of(user) {
        Access::None(why) => Some(why),
        _ => None,
    }
}

/// Returns whether the running functions have answered with values, and not with bytes.
pub(crate) fn have_replied_values() -> bool {
    KV.with(|kv| kv.state.borrow().has_replied_values)
}

/// Returns whether functions run.
pub(crate) fn are_running() -> bool {
    KV.with(|kv| kv.state.try_borrow().map_or(true, |state| state.input.is_some()))
}

impl State {
    /// Makes the following work run as this word states. Keeps the known rights of the earlier user for this turn.
    fn apply_word(&mut self, word: &Word) {
        if self.user != word.user {
            let before = std::mem::replace(&mut self.user, word.user.clone());
            self.others.extend(self.access.take().map(|access| (before, access)));
            let known = self.others.iter().position(|(user, _)| *user == word.user);
            self.access = known.map(|index| self.others.swap_remove(index).1);
        }
        self.may_write = word.terms.may_write;
        self.slot = word.terms.slot.filter(|_| self.in_cluster);
    }

    /// Notes the reason why a function got nothing.
    #[cold]
    fn note(&mut self, fault: Fault) -> i32 {
        count(|figures| figures.refused += u64::from(fault.code != Code::WrongType));
        self.error = fault.text;
        fault.code as i32
    }

    /// Returns a string of this name: a kept one, if a string of this length is kept.
    fn name(&mut self, bytes: &[u8]) -> Str {
        if let Some(Some(kept)) = self.names.get_mut(bytes.len()).map(Option::take) {
            let mut kept = kept;
            kept.overwrite(bytes);
            return kept;
        }
        Str::new(bytes)
    }

    /// Keeps a string for the next name of its length. Must not be the string of a key that was not found: the server
    /// passes that string to other modules, which may keep it.
    fn keep_name(&mut self, name: Str, len: usize) {
        if len > LONGEST_KEPT_NAME {
            return;
        }
        if self.names.len() <= len {
            self.names.resize_with(len + 1, || None);
        }
        self.names[len] = Some(name);
    }

    /// Lends a copy until the call ends.
    fn lend(&mut self, copy: Copy) -> Result<Bytes, Fault> {
        let bytes = match &copy {
            Copy::Str(copy) => Bytes::of(copy.bytes()),
            Copy::Vec(copy) => Bytes::of(copy),
        };
        self.copied = self.copied.saturating_add(bytes.len + size_of::<Copy>());
        if self.copied > MOST_LENT {
            let text = format!(
                "this call has copies of more than {} MiB: read strings, which are not copied, or less in one call",
                MOST_LENT >> 20
            );
            return Err(Fault::new(Code::TooMany, text));
        }
        self.copies.push(copy);
        Ok(bytes)
    }
}

/// Returns the fault of a key in another slot than the keys of the command that runs the function. Redis 8.0 and Valkey
/// expect all keys of such a command in its slot. They would search for and put other keys where no command finds them.
fn beyond_call(key: &[u8]) -> Fault {
    let text = format!(
        "key {} is of another slot than the keys of FJ.CALL: in a cluster give it no keys, or keys of one slot and use only that",
        shown(key)
    );
    Fault::new(Code::OtherSlot, text)
}

/// Returns the fault of a key that another node of the cluster has.
fn other_slot(key: &[u8]) -> Fault {
    let text = format!("key {} belongs to another node of the cluster: call its node", shown(key));
    Fault::new(Code::OtherSlot, text)
}
