//! Commands that act on a client and not on data. A command that a module runs has its own client, which ends with it.
//! So such a command would do nothing, and reply OK. `kv/tests/servers/commands.toml` lists them.

use std::ffi::c_int;

use super::Kv;
use super::fault::{Code, Fault, shown};

/// Most names of commands whose scopes are kept.
const MOST_KNOWN: usize = 256;

/// The thing that a command acts on.
#[derive(Clone, Copy)]
pub(super) enum Scope {
    /// Data, or the whole server.
    Data,
    /// The database of the commands that follow, until the call ends, as in a script.
    Database,
    /// A client, which a function does not have. The text is a remedy.
    Client(&'static str),
}

/// Commands that scripts may run and that act on a client, by their original names.
const OF_CLIENTS: [(&str, Scope); 6] = [
    ("select", Scope::Database),
    ("asking", Scope::Client("call the node that has the slot")),
    ("readonly", Scope::Client("send it by the client before FJ.CALL_RO")),
    ("readwrite", Scope::Client("send it by the client before FJ.CALL")),
    ("wait", Scope::Client("send it by the client behind FJ.CALL")),
    ("waitaof", Scope::Client("send it by the client behind FJ.CALL")),
];

impl Kv {
    /// Returns the scope of a command. The configuration may give commands other names, so this queries the server once
    /// for the original name of each.
    pub(super) fn scope(&self, command: &[&[u8]]) -> Scope {
        let Some(name) = command.first() else { return Scope::Data };
        if let Some(known) = self.state.borrow().scopes.get(*name) {
            return *known;
        }
        let told = self.command_info(b"info", &command[..1]);
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

    /// Returns the fault of a command that acts on a client.
    pub(super) fn of_client(name: &[u8], instead: &str) -> Fault {
        let text = format!(
            "functions cannot run {}: it acts on a client, and a function has none: {instead}",
            shown(name)
        );
        Fault::new(Code::BadArgument, text)
    }

    /// Makes the rest of the running call use the database of a SELECT to which the server has replied OK.
    pub(super) fn stay_in_database(&self, number: &[u8]) -> Result<(), Fault> {
        let number = std::str::from_utf8(number).ok().and_then(|number| number.parse::<c_int>().ok());
        self.act_at_end();
        let selected = self.lent.with(|context| {
            let before = context.database();
            let selected = number.is_some_and(|number| context.select(number));
            // The call's own database, if this is its first SELECT.
            self.state.borrow_mut().call_database.get_or_insert(before);
            selected
        });
        match selected {
            Some(true) => Ok(()),
            _ => Err(Fault::new(Code::Failed, "the server has no such database: SELECT another one")),
        }
    }

    /// Selects again the database of the call that ends.
    pub(super) fn leave_database(&self) {
        let Some(before) = self.state.borrow_mut().call_database.take() else { return };
        // Without a context the command has ended, which restores its client's database itself.
        self.lent.with(|context| context.select(before));
    }
}
