//! Identity of a peer, and its admission.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::{fs, io, mem, ptr};

use farjump_os::overflow_uid;

use crate::error::system;
use crate::{ControlOperation, ControlSystemError};

/// Longest stored name of a program, in characters.
pub const MAX_NAME: usize = 64;

/// The process at the other end of a control connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerIdentity {
    /// Process id when it connected or began to listen, from the system; 0 if it has none in this process's
    /// PID namespace. Over TCP the peer reports it, and it is 0 until then.
    pub pid: u32,
    /// Effective user id at that time, from the system. `None` over TCP between machines, and for users that
    /// this process's user namespace does not map.
    pub uid: Option<u32>,
    /// The peer's address, over TCP.
    pub address: Option<SocketAddr>,
    /// Name of the program, without control characters. For display only: the peer chose it.
    pub name: String,
    /// At a target, the operator's name for the key that a source used, if it has one.
    pub key: Option<String>,
}

impl PeerIdentity {
    /// Queries the system for the process connected to `socket` (`SO_PEERCRED` of unix(7)).
    pub(crate) fn of(socket: BorrowedFd<'_>) -> Result<PeerIdentity, ControlSystemError> {
        let credentials =
            credentials(socket).map_err(|source| system(ControlOperation::Identify, "", source))?;
        let pid = u32::try_from(credentials.pid).unwrap_or(0);
        let comm = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        let mut identity =
            PeerIdentity { pid, uid: known(credentials.uid), address: None, name: String::new(), key: None };
        identity.rename(String::from_utf8_lossy(&comm).trim_end());
        Ok(identity)
    }

    /// Makes an identity of a TCP peer of which only this is known.
    pub(crate) fn at(address: SocketAddr, name: &str) -> PeerIdentity {
        PeerIdentity { pid: 0, uid: None, address: Some(address), name: name.to_owned(), key: None }
    }

    /// Takes the name that the peer gives itself.
    pub(crate) fn rename(&mut self, name: &str) {
        self.name = plain(name, MAX_NAME);
        if self.name.is_empty() {
            self.name = "unnamed".to_owned();
        }
    }
}

impl fmt::Display for PeerIdentity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.address, self.pid) {
            (None, pid) => write!(out, "{} (pid {pid}", self.name),
            (Some(address), 0) => write!(out, "{} ({address}", self.name),
            (Some(address), pid) => write!(out, "{} (pid {pid}, {address}", self.name),
        }?;
        match &self.key {
            None => out.write_str(")"),
            Some(key) => write!(out, ", key `{key}`)"),
        }
    }
}

/// Returns whether processes of users `peer` and `own` (effective user ids) may connect: only if both are
/// known and equal. Root is no exception, in either role: injected code runs with the target's rights.
pub fn admit(peer: Option<u32>, own: Option<u32>) -> bool {
    peer.is_some() && peer == own
}

/// Returns `uid` if it identifies a user. The overflow uid stands for all users that a user namespace does
/// not map (user_namespaces(7)), so two processes with it may be of different users.
pub(crate) fn known(uid: u32) -> Option<u32> {
    (uid != overflow_uid()).then_some(uid)
}

/// Returns the effective user of this process, if it is known.
pub(crate) fn own_user() -> Option<u32> {
    known(rustix::process::geteuid().as_raw())
}

/// Makes a peer's `text` fit for a terminal or a log: at most `limit` characters, no control characters.
pub fn plain(text: &str, limit: usize) -> String {
    text.chars().take(limit).map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Lists the first 12 of a peer's `names`, each [`plain`], and says how many more there are; `none` if there are
/// none.
pub fn first_names(names: &[String], limit: usize, none: &str) -> String {
    const LISTED: usize = 12;
    let listed = names.iter().take(LISTED).map(|name| plain(name, limit)).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(LISTED) {
        _ if names.is_empty() => none.to_owned(),
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}

/// Calls `getsockopt(SO_PEERCRED)` directly: rustix's type for the process id excludes 0, which the system
/// reports for a peer in another PID namespace.
fn credentials(socket: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = mem::size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: both pointers are to locals that outlive the call, and `len` is the length of the first.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            ptr::from_mut(&mut credentials).cast(),
            &mut len,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    if len as usize != mem::size_of::<libc::ucred>() {
        return Err(io::Error::other("the system gave no credentials"));
    }
    Ok(credentials)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn only_the_same_user_is_admitted_and_root_is_no_exception() {
        assert!(admit(Some(1000), Some(1000)) && admit(Some(0), Some(0)));
        assert!(!admit(Some(1000), Some(1001)) && !admit(Some(0), Some(1000)) && !admit(Some(1000), Some(0)));
    }

    #[test]
    fn an_unknown_user_is_not_even_its_own() {
        let unknown = known(overflow_uid());
        assert_eq!(unknown, None);
        for other in [None, Some(0), Some(1000), Some(overflow_uid())] {
            assert!(!admit(unknown, other) && !admit(other, unknown));
        }
        assert_eq!((known(0), known(1000)), (Some(0), Some(1000)));
    }

    #[test]
    fn a_peers_pid_user_and_name_come_from_the_kernel() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let identity = PeerIdentity::of(ours.as_fd()).unwrap();
        assert_eq!(identity.pid, std::process::id());
        assert_eq!(identity.uid, own_user());
        assert!(!identity.name.is_empty());
    }

    #[test]
    fn a_tcp_peer_is_shown_with_its_address() {
        let mut identity = PeerIdentity::at("10.0.0.7:53412".parse().unwrap(), "a process");
        assert_eq!(identity.to_string(), "a process (10.0.0.7:53412)");
        identity.rename("sum");
        identity.pid = 12;
        assert_eq!(identity.to_string(), "sum (pid 12, 10.0.0.7:53412)");
        identity.key = Some("node7".to_owned());
        assert_eq!(identity.to_string(), "sum (pid 12, 10.0.0.7:53412, key `node7`)");
    }

    #[test]
    fn a_name_cannot_write_to_the_terminal() {
        let mut identity =
            PeerIdentity { pid: 1, uid: Some(1), address: None, name: String::new(), key: None };
        identity.rename("\x1b[2Jevil\nname");
        assert_eq!(identity.to_string(), "?[2Jevil?name (pid 1)");
        identity.rename(&"x".repeat(1000));
        assert_eq!(identity.name.len(), MAX_NAME);
        identity.rename("");
        assert_eq!(identity.name, "unnamed");
    }
}
