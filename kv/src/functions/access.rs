//! The rights of the user as which functions run.

use std::rc::Rc;

use super::fault::{Code, Fault, shown};
use super::{Kv, State, beyond_call};
use crate::api::{self, CallFlags, Reply, Str, User};
use crate::code_key::slot_of_key;

/// A user's rights, for one turn: no rule changes meanwhile.
pub(super) enum Access {
    /// The rights of the user's rules.
    Some(Rights),
    /// No rights, for this reason.
    None(String),
}

/// The rights that a user's rules give.
pub(super) struct Rights {
    user: Rc<User>,
    reach: Reach,
    /// True if no rule keeps it from reading any key, whichever command reads.
    reads_all_keys: bool,
}

/// The extent of checks for a user's commands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// None: it may run all commands, on all keys and channels.
    Everything,
    /// Commands that may have channels: it may run all commands, on all keys.
    AllKeys,
    /// All commands.
    Some,
}

impl Access {
    /// Returns the rights of the user of this name.
    pub(super) fn of(name: &[u8]) -> Access {
        let Some(user) = User::named(name) else {
            return Access::None(format!(
                "the server has no user {}: make it by ACL SETUSER, or load the module with another `user`",
                shown(name)
            ));
        };
        let rules = user.rules();
        // Selectors, in parentheses, add to the rules before them.
        let (own, selectors) = rules.split_once('(').unwrap_or((&rules, ""));
        let has = |rule: &str| own.split_ascii_whitespace().any(|word| word == rule);
        if !has("on") {
            return Access::None(format!("the user {} is off: turn it on by ACL SETUSER", shown(name)));
        }
        let restricts = |word: &str| word.starts_with('-') || word.starts_with("db=");
        let all_commands = has("+@all") && !own.split_ascii_whitespace().any(restricts);
        let reach = match all_commands && has("~*") {
            true if has("&*") => Reach::Everything,
            true => Reach::AllKeys,
            false => Reach::Some,
        };
        // A selector may permit a command, but only with the keys of that selector.
        let reads_all_keys = reach != Reach::Some || selectors.is_empty() && (has("~*") || has("%R~*"));
        Access::Some(Rights { user: Rc::new(user), reach, reads_all_keys })
    }
}

/// Commands of one word that have no keys. Users with few rights may run no other command of one word: the server would
/// look for keys that do not exist.
const OF_ONE_WORD: [&str; 7] = ["dbsize", "info", "lastsave", "ping", "randomkey", "role", "time"];

/// Returns whether the options of SORT have a pattern for names of keys, as the server reads them: up to their first
/// zero.
fn has_patterns(options: &[&[u8]]) -> bool {
    let mut options = options.iter();
    while let Some(option) = options.next() {
        let text = option.split(|&byte| byte == 0).next().unwrap_or_default();
        let is = |name: &str| text.eq_ignore_ascii_case(name.as_bytes());
        if is("get") || is("by") && options.next().is_some_and(|pattern| pattern.contains(&b'*')) {
            return true;
        }
        if is("limit") {
            options.nth(1);
        } else if is("store") {
            options.next();
        }
    }
    false
}

impl State {
    /// The user's rights.
    fn access(&mut self) -> Result<&Rights, Fault> {
        if self.input.is_none() {
            return Err(Fault::new(Code::NoCall, "no function runs on this thread"));
        }
        match self.access.get_or_insert_with(|| Access::of(&self.user)) {
            Access::None(why) => Err(Fault::new(Code::Denied, why.clone())),
            Access::Some(rights) => Ok(rights),
        }
    }

    /// The user.
    pub(super) fn user(&mut self) -> Result<Rc<User>, Fault> {
        self.access().map(|rights| Rc::clone(&rights.user))
    }

    /// Checks that the user may run `command`.
    fn check(&mut self, command: &[Str]) -> Result<(), Fault> {
        if self.access()?.user.may(command) {
            return Ok(());
        }
        let user = shown(&self.user);
        let name = String::from_utf8_lossy(command[0].bytes());
        let key = command.get(1).map_or_else(String::new, |key| shown(key.bytes()));
        let text = format!("the user {user} may not run {name} {key}: allow it by ACL SETUSER");
        Err(Fault::new(Code::Denied, text))
    }

    /// Checks that the user may read `key` as `command` does, with this number of arguments behind the key.
    #[inline]
    pub(super) fn check_read(&mut self, command: &str, key: &[u8], more: usize) -> Result<(), Fault> {
        if self.access()?.reach != Reach::Some {
            return Ok(());
        }
        let mut words = vec![Str::new(command.as_bytes()), Str::new(key)];
        words.extend((0..more).map(|_| Str::new(b"0")));
        self.check(&words)
    }
}

impl Kv {
    /// Checks that all keys of a command are of the slot of the command that runs the function, if that has one.
    pub(super) fn check_slots(&self, command: &[&[u8]]) -> Result<(), Fault> {
        let Some(slot) = self.state.borrow().slot else { return Ok(()) };
        let answer = self.command_info(b"getkeys", command);
        // An error means that the command has no keys.
        let Some(answer) = answer.filter(|answer| answer.error().is_none()) else { return Ok(()) };
        let keys = answer.root();
        let mut keys = (0..keys.len()).filter_map(|index| Some(keys.element(index)?.bytes()));
        keys.find(|key| slot_of_key(key) != slot).map_or(Ok(()), |key| Err(beyond_call(key)))
    }

    /// Checks that the user may run a command. The server looks for its keys where commands of that name have them,
    /// without checking the number of arguments. That number is checked before.
    pub(super) fn check_command(&self, command: &[&[u8]]) -> Result<(), Fault> {
        let (reach, reads_all_keys) = {
            let mut state = self.state.borrow_mut();
            let rights = state.access()?;
            (rights.reach, rights.reads_all_keys)
        };
        // A command of one word names no channel.
        if reach == Reach::Everything || reach == Reach::AllKeys && command.len() == 1 {
            return Ok(());
        }
        let words: Vec<Str> = command.iter().map(|word| Str::new(word)).collect();
        let refusal = match command {
            [name] => match OF_ONE_WORD.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes())) {
                true => String::new(),
                false => "it has too few arguments".to_owned(),
            },
            _ => {
                let answer = self.command_info(b"getkeys", command);
                let answer = answer.and_then(|answer| answer.error()).unwrap_or_default();
                // Other errors mean that the command has no keys.
                let is_wrong =
                    ["Invalid number of", "Invalid command"].iter().any(|part| answer.contains(part));
                if is_wrong { answer } else { String::new() }
            }
        };
        if !refusal.is_empty() {
            let text = format!("the server cannot run {}: {refusal}", shown(command[0]));
            return Err(Fault::new(Code::BadArgument, text));
        }
        self.state.borrow_mut().check(&words)?;
        if !reads_all_keys && !api::runs_as_users() && self.reads_beyond(command) {
            let text = format!(
                "the user {} may not run {} with BY or GET: they read keys that the command does not name, for which this version \
                 of the server asks no rule: let the user read all keys, or leave them away",
                shown(&self.state.borrow().user),
                String::from_utf8_lossy(command[0])
            );
            return Err(Fault::new(Code::Denied, text));
        }
        Ok(())
    }

    /// Returns the server's reply to a query about a command.
    pub(super) fn command_info(&self, subcommand: &[u8], command: &[&[u8]]) -> Option<Reply> {
        let asked: Vec<Str> = [subcommand].iter().chain(command).map(|word| Str::new(word)).collect();
        self.lent.with(|context| context.call(c"command", &CallFlags::READ, &asked)).flatten()
    }

    /// Returns whether a command reads keys that it does not name. `kv/tests/servers/commands.toml` lists all commands,
    /// and those that do.
    fn reads_beyond(&self, command: &[&[u8]]) -> bool {
        if !has_patterns(command.get(2..).unwrap_or_default()) {
            return false;
        }
        // The configuration may give commands other names. The server's table has the original ones.
        let known = self.command_info(b"info", &command[..1]);
        let name = known.as_ref().and_then(|known| known.root().element(0)?.element(0));
        name.is_none_or(|name| [&b"sort"[..], b"sort_ro"].contains(&name.bytes()))
    }
}
