//! What the user may do for whom functions run.

use super::fault::{Code, Fault, shown};
use super::{Kv, State, beyond_call};
use crate::api::{CallFlags, Str, User};
use crate::code_key::slot_of_key;

/// A user's rights, for one turn: no rule changes meanwhile.
pub(super) enum Access {
    /// All commands on all keys.
    All,
    /// Some.
    Some(User),
    /// None, for this reason.
    None(String),
}

impl Access {
    /// The rights of the user of this name.
    pub(super) fn of(name: &[u8]) -> Access {
        let Some(user) = User::named(name) else {
            return Access::None(format!(
                "the server has no user {}: make it by ACL SETUSER, or load the module with another `user`",
                shown(name)
            ));
        };
        let rules = user.rules();
        // Selectors, in parentheses, add to the rules before them.
        let own = rules.split('(').next().unwrap_or_default();
        let has = |rule: &str| own.split_ascii_whitespace().any(|word| word == rule);
        if !has("on") {
            return Access::None(format!("the user {} is off: turn it on by ACL SETUSER", shown(name)));
        }
        let restricts = |word: &str| word.starts_with('-') || word.starts_with("db=");
        match has("~*") && has("+@all") && !own.split_ascii_whitespace().any(restricts) {
            true => Access::All,
            false => Access::Some(user),
        }
    }
}

/// The user among `users` of the key by which the call's link came, if there is one.
fn user_of_caller(users: &[(String, String)]) -> Option<Vec<u8>> {
    if users.is_empty() {
        return None;
    }
    let caller = farjump::caller()?;
    let key = caller.key.as_ref()?;
    users.iter().find(|(name, _)| name == key).map(|(_, user)| user.clone().into_bytes())
}

/// Commands of one word that have no keys. Users with few rights may run no other command of one word: the server would
/// look for keys that are not there.
const OF_ONE_WORD: [&str; 7] = ["dbsize", "info", "lastsave", "ping", "randomkey", "role", "time"];

impl State {
    /// The user's rights.
    fn access(&mut self) -> Result<&Access, Fault> {
        let Some(door) = &self.door else {
            return Err(Fault::new(Code::NoCall, "no function runs on this thread"));
        };
        if self.by_key {
            let caller = farjump::caller_number();
            if caller != self.caller {
                self.caller = caller;
                if let Some(access) = self.access.take() {
                    self.others.push((std::mem::take(&mut self.user), access));
                }
            }
        }
        if self.by_key && self.access.is_none() && self.caller.is_some() && farjump::caller().is_none() {
            let text =
                "the link of this call has ended, and its user with it: keep the link until the call has run";
            return Err(Fault::new(Code::Denied, text));
        }
        let (user, others) = (&mut self.user, &mut self.others);
        let find = || {
            *user = user_of_caller(&door.key_users).unwrap_or_else(|| door.user.clone());
            match others.iter().position(|(known, _)| known == user) {
                Some(index) => others.swap_remove(index).1,
                None => Access::of(user),
            }
        };
        match self.access.get_or_insert_with(find) {
            Access::None(why) => Err(Fault::new(Code::Denied, why.clone())),
            access => Ok(access),
        }
    }

    /// Checks that the user may run `command`.
    fn check(&mut self, command: impl FnOnce() -> Vec<Str>) -> Result<(), Fault> {
        let Access::Some(user) = self.access()? else { return Ok(()) };
        let command = command();
        if user.may(&command) {
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
        if let Some(Access::All) = self.access
            && !self.by_key
        {
            return Ok(());
        }
        self.check(|| {
            let mut words = vec![Str::new(command.as_bytes()), Str::new(key)];
            words.extend((0..more).map(|_| Str::new(b"0")));
            words
        })
    }
}

impl Kv {
    /// Checks that all keys of a command are of the slot of the command that runs the function, if that has one.
    pub(super) fn check_slots(&self, command: &[&[u8]]) -> Result<(), Fault> {
        let Some(slot) = self.state.borrow().slot else { return Ok(()) };
        let asked: Vec<Str> = [&b"getkeys"[..]].iter().chain(command).map(|word| Str::new(word)).collect();
        let answer = self.lent.with(|context| context.call(c"command", &CallFlags::READ, &asked)).flatten();
        // An error is that of a command without keys.
        let Some(answer) = answer.filter(|answer| answer.error().is_none()) else { return Ok(()) };
        let keys = answer.root();
        let mut keys = (0..keys.len()).filter_map(|index| Some(keys.element(index)?.bytes()));
        keys.find(|key| slot_of_key(key) != slot).map_or(Ok(()), |key| Err(beyond_call(key)))
    }

    /// Checks that the user may run a command. The server looks for its keys where commands of that name have them,
    /// without checking the number of arguments: that is checked before.
    pub(super) fn check_command(&self, command: &[&[u8]]) -> Result<(), Fault> {
        if let Access::All = self.state.borrow_mut().access()? {
            return Ok(());
        }
        let words = || command.iter().map(|word| Str::new(word)).collect::<Vec<_>>();
        let refusal = match command {
            [name] => match OF_ONE_WORD.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes())) {
                true => String::new(),
                false => "it has too few arguments".to_owned(),
            },
            _ => {
                let mut asked = vec![Str::new(b"getkeys")];
                asked.extend(words());
                let answer = self.lent.with(|context| context.call(c"command", &CallFlags::READ, &asked));
                let answer = answer.flatten().and_then(|answer| answer.error()).unwrap_or_default();
                // Other errors are of commands that have no keys.
                let is_wrong =
                    ["Invalid number of", "Invalid command"].iter().any(|part| answer.contains(part));
                if is_wrong { answer } else { String::new() }
            }
        };
        if !refusal.is_empty() {
            let text = format!("the server cannot run {}: {refusal}", shown(command[0]));
            return Err(Fault::new(Code::BadArgument, text));
        }
        self.state.borrow_mut().check(words)
    }
}
