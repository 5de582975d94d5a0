//! The listening sockets of a worker with TCP. UCX opens one on each device with the worker. It does not authenticate
//! processes that connect, and they may then write any address of this process. Once the peer is connected no other
//! connection is needed, so this module closes the sockets to all peers ([`PortClosing`]). A shutdown would not do: UCX
//! 1.13 to 1.22 regard such a socket as broken, close its descriptor and keep its number. Making the next worker that
//! gets the number then fails ("Element already exists").
//!
//! UCX has no function that names the sockets. A socket counts as UCX's if it listens, did not exist before the worker,
//! and its port stands in the worker's address in UCX's notation. So a listener that another thread of the program
//! opens at the same time stays open.

use std::fs;
use std::mem::size_of;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::{Duration, Instant};

use farjump_core::transport::Cause;
use rustix::net::getsockname;

use super::port_closing::PortClosing;

/// Time for which the sockets stay open after the peer's first message. When that arrives, the peer has requested all
/// of its connections, and they may be under way over several devices.
const GRACE: Duration = Duration::from_millis(50);

/// A listening socket of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::ucx) struct Listener {
    descriptor: RawFd,
    at: SocketAddr,
}

/// The listening sockets of a worker.
#[derive(Debug)]
pub(super) struct Listeners {
    open: Vec<Listener>,
    /// Arrival time of the peer's first message.
    heard: Option<Instant>,
}

/// Returns the TCP sockets that listen in this process.
///
/// # Errors
/// Without /proc, a sentence for display, with the remedy.
pub(in crate::ucx) fn listening() -> Result<Vec<Listener>, String> {
    const FOLDER: &str = "/proc/self/fd";
    let folder = fs::read_dir(FOLDER).map_err(|error| {
        format!(
            "BackendOptions::with_ucx_tcp is refused here, because the listening sockets of UCX's TCP, which have to be closed, \
             cannot be found ({FOLDER}: {error}): mount /proc, or leave UCX's TCP off and use transport tcp"
        )
    })?;
    let numbers = folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(numbers.filter_map(Listener::at).collect())
}

impl Listeners {
    /// Returns the sockets of the worker with this address, which was made after `before` was read; `None` if UCX
    /// opened none.
    ///
    /// # Errors
    /// The worker `has_tcp`, but its address names none of the sockets that appeared with it: UCX's sockets could not
    /// be closed.
    pub(super) fn of(
        before: &[Listener],
        worker: &[u8],
        has_tcp: impl FnOnce() -> bool,
    ) -> Result<Option<Listeners>, Cause> {
        let mut open = listening().map_err(Cause::System)?;
        open.retain(|listener| !before.contains(listener));
        let are_new = !open.is_empty();
        open.retain(|listener| has_port(worker, listener.at.port()));
        if !open.is_empty() {
            return Ok(Some(Listeners { open, heard: None }));
        }
        if are_new && has_tcp() {
            return Err(Cause::System(
                "UCX opened listening sockets whose ports are not in its worker's address, so they cannot be told from others \
                 and closed: leave BackendOptions::with_ucx_tcp off, or take another UCX (FARJUMP_UCX)"
                    .to_owned(),
            ));
        }
        Ok(None)
    }

    #[cfg(test)]
    pub(super) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.open.iter().map(|listener| listener.at)
    }

    /// Closes the sockets to all peers once the connected peer does not need them. Returns whether they are closed.
    ///
    /// # Errors
    /// A socket stays open. The others are closed.
    #[cold]
    pub(super) fn close(&mut self) -> Result<bool, Cause> {
        let heard = *self.heard.get_or_insert_with(Instant::now);
        if heard.elapsed() < GRACE {
            return Ok(false);
        }
        let closed: Vec<_> = self.open.iter().map(Listener::close).collect();
        closed.into_iter().collect::<Result<(), _>>().map(|()| true)
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
        // SAFETY: the number was open just above. If another thread closes it since, this only reads another socket's
        // name.
        let socket = unsafe { BorrowedFd::borrow_raw(descriptor) };
        Some(Listener { descriptor, at: getsockname(socket).ok()?.try_into().ok()? })
    }

    /// Closes the socket to all peers, without effect on existing connections.
    fn close(&self) -> Result<(), Cause> {
        // UCX keeps the socket open as long as the worker. If it does not, the number may belong to another file.
        if Listener::at(self.descriptor) != Some(*self) {
            return Ok(());
        }
        // SAFETY: the check above found it open.
        let socket = unsafe { BorrowedFd::borrow_raw(self.descriptor) };
        let closed = PortClosing::close(socket);
        closed.map(drop).map_err(|why| {
            Cause::System(format!(
                "UCX's listening socket at {} cannot be closed ({why}), and a process that reaches it may write this process's \
                 memory: leave BackendOptions::with_ucx_tcp off",
                self.at
            ))
        })
    }
}

/// Returns whether a worker's address contains this port in UCX's form for TCP: behind a byte whose lower six bits are
/// 2, the number of bytes that follow.
fn has_port(worker: &[u8], port: u16) -> bool {
    worker.windows(3).any(|bytes| bytes[0] & 0x3f == 2 && bytes[1..] == port.to_be_bytes())
}

/// Returns whether the socket accepts connections over loopback, which takes a busy machine a while.
#[cfg(test)]
pub(super) fn is_open(at: SocketAddr) -> bool {
    std::net::TcpStream::connect_timeout(&at, Duration::from_secs(60)).is_ok()
}

/// Returns whether the socket leaves a connection over loopback without an answer.
#[cfg(test)]
pub(super) fn is_closed(at: SocketAddr) -> bool {
    std::net::TcpStream::connect_timeout(&at, Duration::from_millis(100)).is_err()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use farjump_fixtures::seccomp::refuse_socket_options;

    use super::*;

    fn found(listener: &TcpListener) -> Listener {
        let at = listener.local_addr().unwrap();
        listening().unwrap().into_iter().find(|listener| listener.at == at).expect("it listens")
    }

    #[test]
    fn only_new_sockets_with_ports_in_the_address_are_ucxs() {
        let (old, new) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("[::1]:0").unwrap());
        let [[a, b], [c, d]] = [&old, &new].map(|listener| found(listener).at.port().to_be_bytes());
        let address = [9, 0x82, a, b, 0, 0x82, c, d, 7];
        let ours = Listeners::of(&[found(&old)], &address, || true).unwrap().unwrap();
        assert_eq!(ours.open, [found(&new)]);
        // The port, even one of two equal bytes, stands here only behind another number.
        let other = [0x83, c, d, 0, 0x82, d ^ 1, c];
        assert!(Listeners::of(&[found(&old)], &other, || false).unwrap().is_none());
        let refused = Listeners::of(&[found(&old)], &other, || true).unwrap_err().to_string();
        assert!(refused.contains("cannot be told from others"), "{refused}");
    }

    /// Runs `body` in a thread that may not set these options of sockets.
    fn without(options: &[libc::c_int], body: impl FnOnce() + Send) {
        thread::scope(|scope| {
            scope.spawn(|| match refuse_socket_options(options) {
                Ok(()) => body(),
                Err(error) => println!("skipped: no filter of system calls: {error}"),
            });
        });
    }

    /// A listening socket that is due to be closed, and its listeners.
    fn due_listener(at: &str) -> (TcpListener, Listeners) {
        let listener = TcpListener::bind(at).unwrap();
        let mut listeners = Listeners { open: vec![found(&listener)], heard: None };
        assert_eq!(listeners.close(), Ok(false), "the peer has just been heard of");
        assert!(is_open(listener.local_addr().unwrap()));
        listeners.heard = Instant::now().checked_sub(GRACE);
        (listener, listeners)
    }

    #[test]
    fn a_closed_listener_accepts_pending_connections_and_no_new_ones() {
        for refused in [&[][..], &[libc::SO_ATTACH_FILTER]] {
            without(refused, || {
                for at in ["127.0.0.1:0", "[::1]:0"] {
                    let (listener, mut listeners) = due_listener(at);
                    assert_eq!(listeners.close(), Ok(true));
                    assert!(is_closed(listener.local_addr().unwrap()));
                    listener.accept().unwrap();
                    listener.set_nonblocking(true).unwrap();
                    listener.accept().expect_err("a second one came in");
                }
            });
        }
    }

    #[test]
    fn an_unclosable_listener_is_an_error_naming_its_address_and_socket_options() {
        without(&[libc::SO_ATTACH_FILTER, libc::SO_BINDTOIFINDEX], || {
            let (listener, mut listeners) = due_listener("127.0.0.1:0");
            let at = listener.local_addr().unwrap();
            let error = listeners.close().unwrap_err().to_string();
            assert!(error.contains(&at.to_string()) && error.contains("Operation not permitted"), "{error}");
            let error = PortClosing::usable().unwrap_err();
            for part in ["SO_ATTACH_FILTER: ", "SO_BINDTOIFINDEX: ", "with_ucx_tcp is refused"] {
                assert!(error.contains(part), "{error}");
            }
        });
    }
}
