//! Commands of the module's.

use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use super::context::Context;
use super::functions::functions;
use super::strings::bytes_of;
use super::types::{
    BEGIN_AT_INDEX, BeginSearch, COMMAND_INFO_VERSION, CommandInfo, FIND_BY_COUNT, FindKeys, KeySpec, OK,
    RawContext, RawString,
};

/// A command.
pub(crate) trait Command {
    /// The command's name.
    const NAME: &'static CStr;
    /// The command's flags, as `RM_CreateCommand` takes them.
    const FLAGS: &'static CStr;
    /// The command's summary, for `COMMAND DOCS`.
    const SUMMARY: &'static CStr;
    /// The command's arity: the number of its arguments with its name, or the negative of the least number.
    const ARITY: i32;
    /// The places of the command's keys.
    const KEYS: KeysOf = KeysOf::None;

    /// Runs the command, and replies.
    fn run(context: &Context<'_>, args: &Args<'_>);
}

/// The keys of a command.
#[derive(Clone, Copy)]
pub(crate) enum KeysOf {
    /// It has none.
    None,
    /// Argument 2 is their number, and they follow, with these [`key_flags`](super::key_flags).
    Counted(u64),
}

/// The arguments of a command. The first is its name.
pub(crate) struct Args<'a> {
    raw: &'a [*mut RawString],
    /// Whether bytes of some were lent.
    lent: Cell<bool>,
}

impl<'a> Args<'a> {
    pub(crate) fn len(&self) -> usize {
        self.raw.len()
    }

    /// The bytes of an argument; none if there are fewer arguments.
    pub(crate) fn get(&self, index: usize) -> &'a [u8] {
        let Some(raw) = self.raw.get(index) else { return &[] };
        self.lent.set(true);
        // SAFETY: the server lends the arguments for as long as the command runs. `append` does nothing once bytes were
        // lent.
        unsafe { bytes_of(*raw) }
    }

    /// Appends to an argument, for the lists in which the server shows commands that have run. Does nothing if bytes of
    /// arguments were lent.
    pub(crate) fn append(&self, context: &Context<'_>, index: usize, text: &str) {
        let Some(raw) = self.raw.get(index).filter(|_| !self.lent.get()) else { return };
        // SAFETY: context and text are valid, and the string is an argument of the running command, to whose bytes
        // nothing here has a reference. The server itself refuses strings to which it has other references.
        unsafe {
            functions().string_append_buffer()(context.raw(), *raw, text.as_ptr().cast(), text.len());
        }
    }

    /// The arguments from `start` to `end`.
    pub(crate) fn range(&self, start: usize, end: usize) -> impl Iterator<Item = &'a [u8]> {
        (start..end.min(self.len())).map(|index| self.get(index))
    }
}

/// Adds a command to the server. Returns whether the server took it.
pub(crate) fn register<C: Command>(context: &Context<'_>) -> bool {
    // SAFETY: context, name and flags are valid; the server copies both texts. The specification below states the keys.
    let made = unsafe {
        functions().create_command()(context.raw(), C::NAME.as_ptr(), run::<C>, C::FLAGS.as_ptr(), 0, 0, 0)
    };
    if made != OK {
        return false;
    }
    // Servers without this function have no key specifications either. The module reports there that it does nothing.
    if functions().missing().contains(&"SetCommandInfo") {
        return true;
    }
    // Two elements, because an empty one ends the list.
    let mut specs = [const { empty_spec() }, const { empty_spec() }];
    if let KeysOf::Counted(flags) = C::KEYS {
        specs[0] = KeySpec {
            notes: ptr::null(),
            flags,
            begin_search: BEGIN_AT_INDEX,
            begin: BeginSearch { position: 2 },
            find_keys: FIND_BY_COUNT,
            find: FindKeys { count_index: 0, first_key: 1, step: 1 },
        };
    }
    let info = CommandInfo {
        version: &raw const COMMAND_INFO,
        summary: C::SUMMARY.as_ptr(),
        complexity: ptr::null(),
        since: ptr::null(),
        history: ptr::null_mut(),
        tips: ptr::null(),
        arity: C::ARITY,
        key_specs: if matches!(C::KEYS, KeysOf::None) { ptr::null_mut() } else { specs.as_mut_ptr() },
        arguments: ptr::null_mut(),
    };
    // SAFETY: the context and the name are valid. The command is one of this module's, made above.
    let set = unsafe {
        let command = functions().get_command()(context.raw(), C::NAME.as_ptr());
        !command.is_null() && functions().set_command_info()(command, &raw const info) == OK
    };
    // The server copies the information.
    set
}

/// Sizes of the structures above. The server may refer to them as long as it runs.
static COMMAND_INFO: super::types::CommandInfoVersion = COMMAND_INFO_VERSION;

const fn empty_spec() -> KeySpec {
    KeySpec {
        notes: ptr::null(),
        flags: 0,
        begin_search: 0,
        begin: BeginSearch { keyword: super::types::Keyword { keyword: ptr::null(), start: 0 } },
        find_keys: 0,
        find: FindKeys { count_index: 0, first_key: 0, step: 0 },
    }
}

/// The callback by which the server runs a command.
unsafe extern "C" fn run<C: Command>(
    context: *mut RawContext,
    args: *mut *mut RawString,
    count: c_int,
) -> c_int {
    // SAFETY: the server passes a context that is valid until this returns.
    let Some(context) = (unsafe { Context::new(context) }) else { return OK };
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: the server passes `count` strings, which live until this returns.
    let args = Args { raw: unsafe { std::slice::from_raw_parts(args, count) }, lent: Cell::new(false) };
    let ran = catch_unwind(AssertUnwindSafe(|| match C::KEYS {
        KeysOf::Counted(flags) if context.is_keys_request() => report_keys(&context, &args, flags),
        _ => C::run(&context, &args),
    }));
    if ran.is_err() {
        context.reply_error("the farjump module failed: the server's standard error says why");
    }
    OK
}

/// Reports the places of the keys to the server.
fn report_keys(context: &Context<'_>, args: &Args<'_>, flags: u64) {
    let count = std::str::from_utf8(args.get(2)).ok().and_then(|count| count.parse::<usize>().ok());
    let count = count.unwrap_or(0).min(args.len().saturating_sub(3));
    (3..3 + count).for_each(|position| context.key_at(position, flags));
}
