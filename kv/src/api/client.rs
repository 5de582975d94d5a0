//! The client behind a command, if there is one.
//!
//! A script, another module, the append-only file and a primary run commands, too. The server gives each of these a client without
//! a connection, or a client by which no user logs in. Some servers crash if a module queries such a client. Valkey 9.1
//! reads the address of a connection that does not exist (`RM_GetClientInfoById`). Redis 7.0 and Valkey 8.0 read the
//! name of no user (`RM_GetCurrentUserName`). So all queries about a client are made here, and only by calls that work
//! for every client:
//!
//! | query | made by | where there is no client |
//! |---|---|---|
//! | location | CLIENT LIST, which looks for connections alone | the reply is empty, or an error |
//! | user | `RM_GetClientUserNameById`, and `RM_GetCurrentUserName` behind [`Context::has_user`] | `ENOENT`, `ENOTSUP` |

use std::ffi::c_int;
use std::io;
use std::net::SocketAddr;

use super::context::{CallFlags, Context};
use super::functions::functions;
use super::replies::Reply;
use super::strings::Str;

/// The number of the client with which the server runs the commands of the append-only file.
const APPEND_ONLY_FILE: u64 = u64::MAX;

/// The location of the client of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Whereabouts {
    /// On this machine: it has connected by a Unix socket or a loopback address.
    Here,
    /// At this address.
    Elsewhere(String),
    /// Nowhere: a script, another module, a primary, or the append-only file runs the command.
    NoClient,
    /// The server does not report it, for this reason.
    Unknown(String),
}

impl Context<'_> {
    /// Returns the location of the command's client. Runs a command of the server's.
    pub(crate) fn whereabouts(&self) -> Whereabouts {
        let id = self.client_id();
        if id == APPEND_ONLY_FILE {
            return Whereabouts::NoClient;
        }
        let words = [&b"list"[..], b"id", id.to_string().as_bytes()].map(Str::new);
        let Some(answer) = self.call(c"client", &CallFlags::QUERY, &words) else {
            return Whereabouts::Unknown("CLIENT LIST does not run".to_owned());
        };
        match answer.error() {
            None => whereabouts_in(&String::from_utf8_lossy(answer.root().bytes())),
            Some(error) => Whereabouts::Unknown(error),
        }
    }

    /// Returns the name of the user whose command runs. `None` if the command has no user, such as one that another
    /// module runs for itself.
    pub(crate) fn user(&self) -> Option<Str> {
        let id = self.client_id();
        // Redis 7.0 gives this client the user that a new client has.
        if id == APPEND_ONLY_FILE {
            return None;
        }
        // SAFETY: the context is valid. The string's reference is the caller's.
        let of_connection = unsafe { Str::owned(functions().get_client_user_name_by_id()(self.raw(), id)) };
        match of_connection {
            Some(name) => Some(name),
            // The client is a primary, whose connection may do everything.
            None if last_error() == Some(libc::ENOTSUP) => None,
            // There is no connection: a script, a call by a module, or the append-only file.
            None if !self.has_user() => None,
            // SAFETY: the context is valid, and the command has a user. The string's reference is the caller's.
            None => unsafe { Str::owned(functions().get_current_user_name()(self.raw())) },
        }
    }

    /// Returns whether the running command has a user. Servers crash if a module queries the name of a current user
    /// that does not exist. The server makes a client for this query.
    fn has_user(&self) -> bool {
        // The server looks for the user first, and then for the command, which does not exist: nothing runs, and no
        // rule is checked.
        // SAFETY: the context is valid, and the format takes no arguments. A reply is the caller's to free.
        let reply =
            unsafe { Reply::owned(functions().call()(self.raw(), c"fj._none".as_ptr(), c"C".as_ptr())) };
        reply.is_none() && last_error() == Some(libc::ENOENT)
    }

    /// The number of the client of the command, which may have no connection.
    fn client_id(&self) -> u64 {
        // SAFETY: the context is valid.
        unsafe { functions().get_client_id()(self.raw()) }
    }
}

/// Returns the location of a client from its line in CLIENT LIST, which is empty if there is none. The only value in it
/// that may have a blank is the path of the server's own socket.
fn whereabouts_in(shown: &str) -> Whereabouts {
    let field = |name: &str| shown.split_whitespace().find_map(|word| word.strip_prefix(name));
    let flags = field("flags=").unwrap_or_default();
    let address = field("addr=").unwrap_or_default();
    // A primary is a connection that this server has made, and no client.
    if address.is_empty() || flags.contains('M') {
        return Whereabouts::NoClient;
    }
    let is_loopback =
        address.parse::<SocketAddr>().is_ok_and(|address| address.ip().to_canonical().is_loopback());
    match is_loopback || flags.contains('U') {
        true => Whereabouts::Here,
        false => Whereabouts::Elsewhere(address.to_owned()),
    }
}

/// Returns the `errno` of the server's last failed function.
fn last_error() -> Option<c_int> {
    io::Error::last_os_error().raw_os_error()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_where_the_servers_list_has_it() {
        let elsewhere = |address: &str| Whereabouts::Elsewhere(address.to_owned());
        for (address, flags, expected) in [
            ("127.0.0.1:50000", "N", Whereabouts::Here),
            ("127.9.0.1:50000", "x", Whereabouts::Here),
            ("[::1]:50000", "N", Whereabouts::Here),
            ("[::ffff:127.0.0.1]:50000", "N", Whereabouts::Here),
            ("/run/redis/s:0", "U", Whereabouts::Here),
            ("/a path/s:0", "xU", Whereabouts::Here),
            ("10.0.0.7:50000", "N", elsewhere("10.0.0.7:50000")),
            ("[::ffff:10.0.0.7]:50000", "N", elsewhere("[::ffff:10.0.0.7]:50000")),
            ("[fe80::1%eth0]:50000", "N", elsewhere("[fe80::1%eth0]:50000")),
            ("?:0", "N", elsewhere("?:0")),
            ("127.0.0.1:6379", "M", Whereabouts::NoClient),
        ] {
            let shown =
                format!("id=7 addr={address} laddr=127.0.0.1:1 fd=8 name= age=0 flags={flags} db=0\n");
            assert_eq!(whereabouts_in(&shown), expected, "{shown}");
        }
        assert_eq!(whereabouts_in(""), Whereabouts::NoClient);
    }
}
