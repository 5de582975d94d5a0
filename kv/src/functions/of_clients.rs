//! Commands that act on a client and not on data. A command that a module runs has a client of its own, which ends with it: there such
//! a command would do nothing, and answer OK. `docs/decisions/kv-commands.md` lists them by the servers' tables.

use std::ffi::c_int;

use super::Kv;
use super::fault::{Code, Fault, shown};

/// Most names of commands that are known.
const MOST_KNOWN: usize = 256;

/// What a command acts on.
#[derive(Clone, Copy)]
pub(super) enum Scope {
    /// Data, or the whole server.
    Data,
    /// The database of what follows, until the call ends: as in a script.
    Database,
    /// A client that a function does not have; with what to do instead.
    Client(&'static str),
}

/// Commands that scripts may run and that act on a client, by their first names.
const OF_CLIENTS: [(&str, Scope); 6] = [
    ("select", Scope::Database),
    ("asking", Scope::Client("call the node that has the slot")),
    ("readonly", Scope::Client("send it by the client before FJ.CALL_RO")),
    ("readwrite", Scope::Client("send it by the client before FJ.CALL")),
    ("wait", Scope::Client("send it by the client behind FJ.CALL")),
    ("waitaof", Scope::Client("send it by the client behind FJ.CALL")),
];

impl Kv {
    /// What a command acts on. The configuration may give commands other names, so the server is asked for the first one of each name
    /// once.
    pub(super) fn scope(&self, command: &[&[u8]]) -> Scope {
        let Some(name) = command.first() else { return Scope::Data };
        if let Some(known) = self.state.borrow().scopes.get(*name) {
            return *known;
        }
        let told = self.ask_of_command(b"info", &command[..1]);
        let first = told.as_ref().and_then(|told| told.root().element(0)?.element(0));
        let first = first.map_or(*name, |first| first.bytes());
        let found = OF_CLIENTS.iter().find(|(of_client, _)| first.eq_ignore_ascii_case(of_client.as_bytes()));
        let scope = found.map_or(Scope::Data, |(_, scope)| *scope);
        let scopes = &mut self.state.borrow_mut().scopes;
        if told.is_some() && scopes.len() < MOST_KNOWN {
            scopes.insert(name.to_vec(), scope);
        }
        scope
    }

    /// The fault of a command that acts on a client.
    pub(super) fn of_client(name: &[u8], instead: &str) -> Fault {
        let text = format!(
            "functions cannot run {}: it acts on a client, and a function has none: {instead}",
            shown(name)
        );
        Fault::new(Code::BadArgument, text)
    }

    /// Has what follows in the running call use the database of a SELECT that the server has answered with OK.
    pub(super) fn stay_in_database(&self, number: &[u8]) -> Result<(), Fault> {
        let number = std::str::from_utf8(number).ok().and_then(|number| number.parse::<c_int>().ok());
        self.heed_end();
        let selected = self.lent.with(|context| {
            let before = context.database();
            let selected = number.is_some_and(|number| context.select(number));
            // That of the call, where this is the first SELECT in it.
            self.state.borrow_mut().call_database.get_or_insert(before);
            selected
        });
        match selected {
            Some(true) => Ok(()),
            _ => Err(Fault::new(Code::Failed, "the server has no such database: SELECT another one")),
        }
    }

    /// Goes back to the database of the call that ends.
    pub(super) fn leave_database(&self) {
        let Some(before) = self.state.borrow_mut().call_database.take() else { return };
        // Without a context the command has ended, which gives its client's database back itself.
        self.lent.with(|context| context.select(before));
    }
}
