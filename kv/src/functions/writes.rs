//! Writing, by commands that reach replicas and the append-only file.

use std::ffi::{CStr, CString};

use super::fault::{Code, Fault, shown};
use super::of_clients::Scope;
use super::{Bytes, Kv, count, other_slot, reads::stale};
use crate::api::{self, CallFlags, Reply, ReplyRef, Str, context_flags, must_not_write, reply_type};

/// Commands that need no memory, and so are permitted without any.
const FREEING: [&str; 22] = [
    "del",
    "unlink",
    "expire",
    "pexpire",
    "expireat",
    "pexpireat",
    "persist",
    "hdel",
    "srem",
    "spop",
    "zrem",
    "zpopmin",
    "zpopmax",
    "zremrangebyscore",
    "zremrangebyrank",
    "lpop",
    "rpop",
    "lrem",
    "ltrim",
    "xdel",
    "xtrim",
    "flushdb",
];

/// A part of the server's error for a command that writes where writing is not permitted.
const WRITES_NOTHING: &str = "while write is not allowed";

/// Parts of the server's errors for actions that a rule of the user forbids: a command, and a key that a command
/// reaches besides its arguments.
const DENIALS: [&str; 2] = ["NOPERM", "insufficient ACL permissions"];

/// The reason why writes are barred at present.
enum Bar {
    None,
    Paused,
    Replica,
    ReadOnlyCall,
    Memory,
}

/// A reply, or an element of one, as functions see it.
pub(super) struct ReplyElement {
    /// [`reply_type`].
    pub(super) kind: i32,
    pub(super) integer: i64,
    pub(super) bytes: Bytes,
    pub(super) len: usize,
}

impl Kv {
    /// Runs a command, and returns its reply. If it replies an error, the call gets that error.
    pub(super) fn run(&self, command: &[&[u8]]) -> Result<Reply, Fault> {
        let Some((name, args)) = command.split_first() else {
            return Err(Fault::new(Code::BadArgument, "a command has no name"));
        };
        let Ok(c_name) = CString::new(*name) else {
            let text = format!("no command has a zero in its name: {}", shown(name));
            return Err(Fault::new(Code::BadArgument, text));
        };
        if name.len() >= 3 && name[..3].eq_ignore_ascii_case(b"fj.") {
            let text =
                format!("functions cannot run {}: a call inside a call would wait for itself", shown(name));
            return Err(Fault::new(Code::BadArgument, text));
        }
        self.check_command(command)?;
        self.check_slots(command)?;
        // The words may lie in keys, or in the last reply, which end before the command does. From here on only copies
        // are used.
        let words: Vec<Str> = args.iter().map(|word| Str::new(word)).collect();
        // The last reply ends with this command.
        self.state.borrow_mut().reply = None;
        let name = c_name.to_bytes();
        let bar = self.bar(name)?;
        let answer = self.run_under(&bar, &c_name, &words)?;
        let is_refused = |answer: &Option<Reply>| {
            let error = answer.as_ref().and_then(Reply::error);
            error.is_some_and(|error| error.contains(WRITES_NOTHING))
        };
        // Only here it is known that the command writes.
        let answer = if matches!(bar, Bar::Memory) && is_refused(&answer) && self.make_space(&words) {
            self.run_under(&Bar::None, &c_name, &words)?
        } else {
            answer
        };
        let Some(answer) = answer else {
            return Err(Fault::new(Code::Failed, format!("the server does not run {}", shown(name))));
        };
        match answer.error() {
            None => Ok(answer),
            Some(error) => Err(failed(&error, &bar, name, &words)),
        }
    }

    /// Makes the server run a command, or refuse it if it writes and something bars writes.
    fn run_under(&self, bar: &Bar, name: &CStr, words: &[Str]) -> Result<Option<Reply>, Fault> {
        let user = self.state.borrow_mut().user()?;
        let (flags, flags_as_user) = match bar {
            Bar::None => {
                // An open key has no reference to its value.
                self.lent.close_cursors();
                self.lent.with(|context| {
                    if context.flags() & context_flags::AOF != 0 {
                        farjump::hold_reply();
                    }
                });
                (CallFlags::WRITE, CallFlags::WRITE_AS_USER)
            }
            _ => (CallFlags::READ, CallFlags::READ_AS_USER),
        };
        let answer = self.lent.with(|context| match api::runs_as_users() {
            true => context.call_as(&user, name, &flags_as_user, words),
            false => context.call(name, &flags, words),
        });
        Ok(answer.flatten())
    }

    /// As [`Kv::run`], for commands that only write.
    pub(super) fn write(&self, command: &[&[u8]]) -> Result<Reply, Fault> {
        let answer = self.run(command)?;
        count(|figures| figures.writes += 1);
        Ok(answer)
    }

    /// Runs any command, and keeps its reply until the next one, under the returned number.
    pub(super) fn command(&self, command: &[&[u8]]) -> Result<u64, Fault> {
        let scope = self.scope(command);
        if let Scope::Client(instead) = scope {
            return Err(Kv::of_client(command[0], instead));
        }
        let reply = self.run(command)?;
        if let Scope::Database = scope {
            self.stay_in_database(command.get(1).copied().unwrap_or_default())?;
        }
        self.act_at_end();
        let mut state = self.state.borrow_mut();
        let number = state.next;
        state.next += 1;
        state.reply = Some((number, reply));
        Ok(number)
    }

    /// Returns an element of a reply. `path` has the indexes to it, starting from the whole.
    pub(super) fn reply_element(&self, number: u64, path: &[usize]) -> Result<Option<ReplyElement>, Fault> {
        let state = self.state.borrow();
        let kept = state.reply.as_ref().filter(|(kept, _)| *kept == number);
        let (_, reply) = kept.ok_or_else(|| stale("reply"))?;
        let element = path.iter().try_fold(reply.root(), |part: ReplyRef<'_>, &index| part.element(index));
        Ok(element.map(|element| {
            let kind = element.kind();
            ReplyElement {
                kind,
                integer: if kind == reply_type::INTEGER { element.integer() } else { 0 },
                bytes: Bytes::of(element.bytes()),
                len: if kind == reply_type::ARRAY { element.len() } else { element.bytes().len() },
            }
        }))
    }

    /// Returns the reason why the command `name` may not write.
    fn bar(&self, name: &[u8]) -> Result<Bar, Fault> {
        let may_write = self.state.borrow().may_write;
        let flags = self.lent.with(|context| context.flags());
        let flags = flags.ok_or_else(|| Fault::new(Code::NoCall, "no function runs on this thread"))?;
        // A write that is not propagated although it should be ends the server.
        Ok(if must_not_write() {
            Bar::Paused
        } else if !may_write {
            Bar::ReadOnlyCall
        } else if flags & context_flags::READONLY != 0 {
            Bar::Replica
        } else if flags & context_flags::OOM != 0
            && FREEING.iter().all(|freeing| !name.eq_ignore_ascii_case(freeing.as_bytes()))
        {
            Bar::Memory
        } else {
            Bar::None
        })
    }
}

/// Returns the fault of a command that replied an error.
fn failed(error: &str, bar: &Bar, name: &[u8], words: &[Str]) -> Fault {
    let name = shown(name);
    if error.contains("non local key") {
        return other_slot(words.first().map_or(&b""[..], Str::bytes));
    }
    if error.contains("WRONGTYPE") {
        return Fault::new(Code::WrongType, format!("{name}: {error}"));
    }
    if error.starts_with("READONLY") {
        return Fault::new(Code::ReadOnly, format!("{name}: {error}"));
    }
    if DENIALS.iter().any(|part| error.contains(part)) {
        return Fault::new(Code::Denied, format!("{name}: {error}: allow it by ACL SETUSER"));
    }
    if !error.contains(WRITES_NOTHING) {
        return Fault::new(Code::Failed, format!("{name}: {error}"));
    }
    let (code, why) = match bar {
        Bar::Paused => (
            Code::Paused,
            "the server holds writes back (CLIENT PAUSE, or a failover): call again when that is over",
        ),
        Bar::Replica => (Code::ReadOnly, "the server is a read-only replica: call its primary"),
        Bar::Memory => (
            Code::NoMemory,
            "the server uses more than its maxmemory: delete keys, or call again when others have gone",
        ),
        Bar::ReadOnlyCall | Bar::None => {
            (Code::ReadOnly, "the call may only read: use FJ.CALL instead of FJ.CALL_RO")
        }
    };
    Fault::new(code, format!("{name} does not write: {why}"))
}
