//! Ways to close a listening TCP socket of UCX's to all peers. The socket stays open and listens, because UCX regards
//! others as broken ([`super::listeners`]). Its accepted connections continue.
//!
//! Each way changes the socket itself, not this process's descriptor: UCX opens its sockets without `SOCK_CLOEXEC`, so
//! children of the process have them too.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// The number of a network interface that no machine has. Linux numbers them from 1.
const NO_DEVICE: libc::c_int = libc::c_int::MAX;

/// A way in which this process closes the ports of UCX's TCP once the peer is connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortClosing {
    /// By a filter that drops all packets (`SO_ATTACH_FILTER`). Linux 6.18 lets only a process with
    /// CAP_NET_ADMIN put one on a TCP socket.
    Filter,
    /// By accepting only packets of one network interface, which does not exist (`SO_BINDTOIFINDEX`).
    Device,
}

impl PortClosing {
    /// All ways, in the order in which they are tried.
    const ALL: [PortClosing; 2] = [PortClosing::Filter, PortClosing::Device];

    /// Returns the way that works in this process, after a trial on a temporary socket.
    ///
    /// # Errors
    /// A sentence for display, with the remedy.
    pub fn usable() -> Result<PortClosing, String> {
        let open = |family| socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        // A system without IPv4 may have IPv6.
        let socket = open(AddressFamily::INET).or_else(|error| match error {
            Errno::AFNOSUPPORT => open(AddressFamily::INET6),
            other => Err(other),
        });
        let tried = socket
            .map_err(|error| format!("no TCP socket can be opened to try it: {error}"))
            .and_then(|socket| PortClosing::close(socket.as_fd()));
        tried.map_err(|why| {
            format!(
                "BackendOptions::with_ucx_tcp is refused here, because nothing closes the ports of UCX's TCP once the peer is \
                 connected ({why}): permit setsockopt with SO_ATTACH_FILTER or SO_BINDTOIFINDEX, or leave UCX's TCP off and \
                 use transport tcp"
            )
        })
    }

    /// Closes a TCP socket to all peers, by the first way that works. Returns the way.
    ///
    /// # Errors
    /// The reasons against each.
    pub(super) fn close(socket: BorrowedFd<'_>) -> Result<PortClosing, String> {
        let mut reasons = Vec::new();
        for way in PortClosing::ALL {
            match way.apply(socket) {
                Ok(()) => return Ok(way),
                Err(error) => reasons.push(format!("{}: {error}", way.option())),
            }
        }
        Err(reasons.join("; "))
    }

    /// Returns its name, for users and programs.
    pub const fn name(self) -> &'static str {
        match self {
            PortClosing::Filter => "filter",
            PortClosing::Device => "device",
        }
    }

    /// Returns the name of its socket option.
    const fn option(self) -> &'static str {
        match self {
            PortClosing::Filter => "SO_ATTACH_FILTER",
            PortClosing::Device => "SO_BINDTOIFINDEX",
        }
    }

    /// Closes a TCP socket in this way.
    fn apply(self, socket: BorrowedFd<'_>) -> io::Result<()> {
        match self {
            PortClosing::Filter => {
                let mut take_nothing =
                    libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
                let program = libc::sock_fprog { len: 1, filter: &mut take_nothing };
                // SAFETY: the value has the option's type. The system copies the one instruction that it
                // points to, a local.
                unsafe { set(socket, libc::SO_ATTACH_FILTER, &program) }
            }
            // SAFETY: the value has the option's type, and no pointer.
            PortClosing::Device => unsafe { set(socket, libc::SO_BINDTOIFINDEX, &NO_DEVICE) },
        }
    }
}

/// Sets an option of the level `SOL_SOCKET`.
///
/// # Safety
/// `T` is the option's type, and its pointers are valid.
unsafe fn set<T>(socket: BorrowedFd<'_>, option: libc::c_int, value: &T) -> io::Result<()> {
    let (value, len) = ((&raw const *value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: `value` is valid for `len` bytes, and the caller ensures that it is valid for the option.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, value, len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
