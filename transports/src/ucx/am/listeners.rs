//! The listening sockets of a worker with TCP. UCX opens one on each device with the worker and authenticates
//! no process that connects, which may then write any address of this one. Once the peer is connected no
//! other connection is needed, and they are closed by a filter that drops all packets. A shutdown would not
//! do. UCX 1.13 to 1.22 take such a socket for broken, close its descriptor and keep its number. The next
//! worker that gets the number cannot be made ("Element already exists").
//!
//! UCX has no function that names them. A socket counts as UCX's if it listens, was not there before the
//! worker was made, and its port stands in the worker's address in UCX's notation. So a listener that another
//! thread of the program opens meanwhile is left alone.

use std::fs;
use std::io;
use std::mem::size_of;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::net::getsockname;

/// Time for which they stay open after the peer was heard of. By then the peer has requested all of its
/// connections, and they may be on their way over several devices.
const GRACE: Duration = Duration::from_millis(50);

/// A listening socket of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Listener {
    descriptor: RawFd,
    at: SocketAddr,
}

/// The listening sockets of a worker.
#[derive(Debug)]
pub(super) struct Listeners {
    open: Vec<Listener>,
    /// Time at which the peer was heard of.
    heard: Option<Instant>,
}

/// Returns the TCP sockets that listen in this process; none without /proc.
pub(super) fn listening() -> Vec<Listener> {
    let Ok(folder) = fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let numbers = folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers.filter_map(Listener::at).collect()
}

impl Listeners {
    /// Returns those of the worker with this address, which was made after `before` was read.
    pub(super) fn of(before: &[Listener], worker: &[u8]) -> Listeners {
        let is_ours =
            |listener: &Listener| !before.contains(listener) && has_port(worker, listener.at.port());
        let open: Vec<_> = listening().into_iter().filter(is_ours).collect();
        if open.is_empty() {
            log::warn!(
                "UCX's listening sockets cannot be found (is /proc there?): they stay open as long as the link"
            );
        }
        Listeners { open, heard: None }
    }

    #[cfg(test)]
    pub(super) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.open.iter().map(|listener| listener.at)
    }

    /// Closes them to all peers once the connected one needs them no more. Returns whether that is done.
    #[cold]
    pub(super) fn close(&mut self) -> bool {
        let heard = *self.heard.get_or_insert_with(Instant::now);
        if heard.elapsed() < GRACE {
            return false;
        }
        self.open.iter().for_each(Listener::close);
        true
    }
}

impl Listener {
    /// Returns the listening TCP socket behind this number, if it is one.
    fn at(descriptor: RawFd) -> Option<Listener> {
        let mut listens: libc::c_int = 0;
        let mut len = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: the pointers are to locals for the result. A number that is not a socket's is an error.
        let asked = unsafe {
            libc::getsockopt(
                descriptor,
                libc::SOL_SOCKET,
                libc::SO_ACCEPTCONN,
                (&raw mut listens).cast(),
                &mut len,
            )
        };
        if asked != 0 || listens == 0 {
            return None;
        }
        // SAFETY: the number was open just now. If another thread closes it meanwhile, only its name is read.
        let socket = unsafe { BorrowedFd::borrow_raw(descriptor) };
        Some(Listener { descriptor, at: getsockname(socket).ok()?.try_into().ok()? })
    }

    /// Makes the system drop all packets to it. Existing connections are not affected.
    fn close(&self) {
        // UCX keeps it open as long as the worker. If it does not, the number may be another file's now.
        if Listener::at(self.descriptor) != Some(*self) {
            return;
        }
        let mut take_nothing =
            libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
        let program = libc::sock_fprog { len: 1, filter: &mut take_nothing };
        // SAFETY: the check above found a listening socket; the system copies the program of one instruction.
        let status = unsafe {
            libc::setsockopt(
                self.descriptor,
                libc::SOL_SOCKET,
                libc::SO_ATTACH_FILTER,
                (&raw const program).cast(),
                size_of::<libc::sock_fprog>() as libc::socklen_t,
            )
        };
        if status != 0 {
            log::warn!("UCX's listening socket at {} stays open: {}", self.at, io::Error::last_os_error());
        }
    }
}

/// Returns whether a worker's address names this port as UCX does over TCP: behind a byte whose lower six
/// bits are 2, the number of bytes that follow.
fn has_port(worker: &[u8], port: u16) -> bool {
    worker.windows(3).any(|bytes| bytes[0] & 0x3f == 2 && bytes[1..] == port.to_be_bytes())
}

/// Returns whether it accepts connections over loopback.
#[cfg(test)]
pub(super) fn is_open(at: SocketAddr) -> bool {
    std::net::TcpStream::connect_timeout(&at, Duration::from_millis(100)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn found(listener: &TcpListener) -> Listener {
        let at = listener.local_addr().unwrap();
        listening().into_iter().find(|listener| listener.at == at).expect("it listens")
    }

    #[test]
    fn a_socket_is_ucxs_only_if_it_is_new_and_the_worker_tells_its_port() {
        let (old, new) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("[::1]:0").unwrap());
        let [[a, b], [c, d]] = [&old, &new].map(|listener| found(listener).at.port().to_be_bytes());
        let address = [9, 0x82, a, b, 0, 0x82, c, d, 7];
        assert_eq!(Listeners::of(&[found(&old)], &address).open, [found(&new)]);
        // Whatever the port is, even one of two equal bytes: it stands behind another number alone.
        assert_eq!(Listeners::of(&[found(&old)], &[0x83, c, d, 0, 0x82, d ^ 1, c]).open, []);
    }

    #[test]
    fn a_door_that_is_closed_takes_what_waits_and_nothing_else() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let mut listeners = Listeners { open: vec![found(&listener)], heard: None };
        assert!(!listeners.close(), "the peer has just been heard of");
        assert!(is_open(at));
        listeners.heard = Instant::now().checked_sub(GRACE);
        assert!(listeners.close());
        assert!(!is_open(at));
        listener.accept().unwrap();
        listener.set_nonblocking(true).unwrap();
        listener.accept().expect_err("a second one came in");
    }
}
