//! Doorbells: pairs of datagram sockets that wake a sleeping process.
//!
//! Each process makes a pair, sleeps on one socket and hands the other to its peer, which wakes it by sending
//! an empty datagram. Nothing that the peer does to its socket can block this process
//! ([why](../../../docs/design/sleep.md)). Each call has `MSG_DONTWAIT`, and the peer has no
//! descriptor of the socket that this process sleeps on.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd};

use farjump_core::transport::Cause;
use farjump_os::deferred_close::DeferredFd;
use farjump_os::limits;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendFlags, SocketFlags, SocketType,
    getpeername, recvmsg, send, socketpair, sockopt,
};

/// Most wake-ups received at once. An honest peer sends one for each sleep; a peer that sends them without
/// end cannot keep this process busy.
const AT_ONCE: usize = 16;

/// The doorbell that this process sleeps on.
pub(super) struct Doorbell {
    /// Closed on another thread, because the peer's datagrams may be queued in it and make that slow.
    own: DeferredFd,
    /// The socket by which the peer wakes this process.
    button: Button,
}

impl Doorbell {
    /// Makes a doorbell.
    pub(super) fn create() -> Result<Doorbell, Cause> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (own, button) = socketpair(AddressFamily::UNIX, SocketType::DGRAM, flags, None)
            .map_err(|errno| failed("making a pair of sockets for a doorbell", "socketpair", errno))?;
        Ok(Doorbell { own: own.into(), button: Button(button.into()) })
    }

    /// Makes the descriptor unreadable until the next wake-up.
    ///
    /// # Errors
    /// The peer sent descriptors with a wake-up: they stay in the queue, because closing them here could block.
    pub(super) fn silence(&self) -> Result<(), Cause> {
        for _ in 0..AT_ONCE {
            match self.receive(RecvFlags::PEEK) {
                // There is no buffer for descriptors, so a receive would make the system drop them, and
                // dropping the last copy of one may block until it is closed. A peek drops no last copy. Nothing else
                // receives from this socket, so the receive below gets the same datagram as the peek.
                Ok(found) if found.contains(ReturnFlags::CTRUNC) => {
                    return Err(Cause::System("the peer sent file descriptors with a ring".to_owned()));
                }
                Ok(_) => {}
                Err(Errno::AGAIN) => return Ok(()),
                // The peer did something to its socket; that counts as a wake-up.
                Err(Errno::CONNRESET) => continue,
                Err(errno) => return Err(failed("looking at the doorbell", "recvmsg", errno)),
            }
            match self.receive(RecvFlags::empty()) {
                Ok(_) | Err(Errno::AGAIN | Errno::CONNRESET) => {}
                Err(errno) => return Err(failed("silencing the doorbell", "recvmsg", errno)),
            }
        }
        Ok(())
    }

    /// Receives a wake-up, without its bytes if it has any.
    fn receive(&self, flags: RecvFlags) -> Result<ReturnFlags, Errno> {
        let mut nothing = [IoSliceMut::new(&mut [])];
        let flags = flags | RecvFlags::DONTWAIT;
        again(|| recvmsg(&self.own, &mut nothing, &mut RecvAncillaryBuffer::default(), flags))
            .map(|received| received.flags)
    }

    /// The descriptor to sleep on.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.own.as_fd()
    }

    /// The socket to hand to the peer.
    pub(super) fn button(&self) -> BorrowedFd<'_> {
        self.button.0.as_fd()
    }
}

/// The socket that wakes a peer.
pub(super) struct Button(DeferredFd);

impl Button {
    /// Takes the peer's socket, if the descriptor is a socket. No call here may block, whatever the descriptor is: all
    /// are calls of the socket layer, which refuses other descriptors.
    pub(super) fn of_peer(descriptor: DeferredFd) -> Result<Button, Cause> {
        let wrong = |what: String| Err(Cause::Address(format!("its doorbell {what}")));
        let kind = sockopt::socket_domain(&descriptor)
            .and_then(|domain| Ok((domain, sockopt::socket_type(&descriptor)?)));
        match kind {
            Ok((AddressFamily::UNIX, SocketType::DGRAM)) => {}
            Ok(_) | Err(Errno::NOTSOCK | Errno::BADF) => {
                return wrong("is no Unix datagram socket".to_owned());
            }
            Err(errno) => return Err(failed("looking at the peer's doorbell", "getsockopt", errno)),
        }
        match getpeername(&descriptor) {
            Ok(_) => Ok(Button(descriptor)),
            Err(errno @ (Errno::NOTCONN | Errno::INVAL)) => wrong(format!("rings no process: {errno}")),
            Err(errno) => Err(failed("looking at the peer's doorbell", "getpeername", errno)),
        }
    }

    /// Wakes the peer: makes its doorbell readable.
    pub(super) fn wake(&self) -> Result<(), Cause> {
        match again(|| send(&self.0, &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL)) {
            // Full: enough wake-ups are queued.
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            // The peer is gone, which the control connection reports, or it has broken its own doorbell.
            Err(Errno::CONNREFUSED | Errno::CONNRESET | Errno::NOTCONN | Errno::PIPE) => Ok(()),
            Err(errno) => Err(failed("ringing the peer's doorbell", "sendto", errno)),
        }
    }
}

fn failed(doing: &str, call: &str, errno: Errno) -> Cause {
    Cause::System(format!("{doing} failed: {errno}{}", limits::behind_call(call, &errno.into())))
}

/// Repeats a call that a signal interrupted.
fn again<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixDatagram;
    use std::time::Duration;

    use farjump_fixtures::by_hand::{send_with, slow_to_close};
    use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
    use rustix::fs::{OFlags, fcntl_setfl};
    use rustix::net::{Shutdown, shutdown};

    use super::*;

    /// Ends the process if the watched test takes more than a minute.
    fn within_a_minute() -> impl Drop {
        struct Over(std::sync::mpsc::Sender<()>);
        impl Drop for Over {
            fn drop(&mut self) {
                let _ = self.0.send(());
            }
        }
        let (over, wait) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            if wait.recv_timeout(Duration::from_secs(60)) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                eprintln!("a call on a doorbell blocks");
                std::process::abort();
            }
        });
        Over(over)
    }

    /// The result of `poll` on it, without waiting.
    fn events(bell: &Doorbell) -> PollFlags {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut fds = [PollFd::new(&bell.own, PollFlags::IN)];
        poll(&mut fds, Some(&at_once)).unwrap();
        fds[0].revents()
    }

    fn readable(bell: &Doorbell) -> bool {
        events(bell).contains(PollFlags::IN)
    }

    /// A doorbell, and the socket by which the peer wakes its owner.
    fn pair() -> (Doorbell, Button) {
        let bell = Doorbell::create().unwrap();
        let button = Button::of_peer(bell.button().try_clone_to_owned().unwrap().into()).unwrap();
        (bell, button)
    }

    /// Makes the calls on the socket blocking, as a peer may.
    fn make_blocking(button: &Button) {
        fcntl_setfl(&button.0, OFlags::empty()).unwrap();
    }

    #[test]
    fn rings_make_it_readable_until_it_is_silenced_once() {
        let (bell, button) = pair();
        assert!(!readable(&bell));
        for _ in 0..3 {
            button.wake().unwrap();
        }
        assert!(readable(&bell));
        bell.silence().unwrap();
        assert!(!readable(&bell));
        bell.silence().unwrap();
    }

    #[test]
    fn a_peer_that_makes_its_socket_blocking_blocks_neither_ringing_nor_silencing() {
        let _watchdog = within_a_minute();
        let (bell, button) = pair();
        make_blocking(&button);
        bell.silence().unwrap();
        // Far more than fits any queue of datagrams.
        for _ in 0..10_000 {
            button.wake().unwrap();
        }
        assert!(readable(&bell));
        // Each call takes a bounded number of them.
        let mut turns = 0;
        while readable(&bell) {
            bell.silence().unwrap();
            turns += 1;
        }
        assert!(turns <= 10_000 / AT_ONCE + 1, "{turns}");
        bell.silence().unwrap();
    }

    #[test]
    fn a_peer_socket_closed_or_shut_down_leaves_the_doorbell_silent() {
        let _watchdog = within_a_minute();
        for how in [None, Some(Shutdown::Both), Some(Shutdown::Read), Some(Shutdown::Write)] {
            let (bell, button) = pair();
            let Doorbell { own, button: ours } = bell;
            drop(ours);
            let bell = Doorbell { own, button: pair().1 };
            match how {
                None => drop(button),
                Some(how) => shutdown(&button.0, how).unwrap(),
            }
            assert!(events(&bell).is_empty(), "{how:?}: it would keep whoever sleeps on it awake");
            bell.silence().unwrap();
        }
    }

    #[test]
    fn an_error_on_the_socket_is_gone_once_it_was_silenced() {
        let (bell, button) = pair();
        // Connecting it elsewhere breaks the pair, and leaves an error on the other end (unix(7)).
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = UnixDatagram::bind(folder.path().join("elsewhere")).unwrap();
        UnixDatagram::from(button.0.as_fd().try_clone_to_owned().unwrap())
            .connect(folder.path().join("elsewhere"))
            .unwrap();
        bell.silence().unwrap();
        assert!(events(&bell).is_empty(), "{:?}", events(&bell));
        button.wake().unwrap();
        drop(elsewhere);
        button.wake().unwrap();
        button.wake().unwrap();
    }

    #[test]
    fn waking_a_gone_peer_or_a_broken_doorbell_is_no_error() {
        let (bell, button) = pair();
        drop(bell);
        for _ in 0..3 {
            button.wake().unwrap();
        }
        let (_bell, button) = pair();
        shutdown(&button.0, Shutdown::Both).unwrap();
        button.wake().unwrap();
        let (bell, button) = pair();
        shutdown(&bell.own, Shutdown::Both).unwrap();
        button.wake().unwrap();
    }

    #[test]
    fn bytes_in_a_ring_are_passed_over() {
        let (bell, button) = pair();
        send(&button.0, b"knock knock", SendFlags::empty()).unwrap();
        assert!(readable(&bell));
        bell.silence().unwrap();
        assert!(!readable(&bell));
    }

    #[test]
    fn descriptors_sent_to_a_doorbell_are_an_error_and_close_without_blocking() {
        let _watchdog = within_a_minute();
        let (bell, button) = pair();
        let (slow, receiver) = slow_to_close(Duration::from_secs(3600)).unwrap();
        send_with(&button.0, &[], &[slow.as_fd()], SendFlags::empty()).unwrap();
        // The only copy left is in the doorbell's queue.
        drop(slow);
        for _ in 0..2 {
            let why = bell.silence().expect_err("they were dropped here").to_string();
            assert!(why.contains("file descriptors with a ring"), "{why}");
        }
        drop(bell);
        // Lets the close finish.
        drop(receiver);
    }

    #[test]
    fn a_doorbell_other_than_a_connected_datagram_socket_is_refused() {
        let wrong = |descriptor: OwnedFd| match Button::of_peer(descriptor.into()) {
            Err(Cause::Address(what)) => what,
            _ => panic!("taken"),
        };
        let no_socket = "its doorbell is no Unix datagram socket";
        assert_eq!(wrong(rustix::pipe::pipe().unwrap().1), no_socket);
        assert_eq!(wrong(tempfile::tempfile().unwrap().into()), no_socket);
        assert_eq!(wrong(eventfd(0, EventfdFlags::NONBLOCK).unwrap()), no_socket);
        assert_eq!(wrong(std::os::unix::net::UnixStream::pair().unwrap().0.into()), no_socket);
        assert_eq!(wrong(std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into()), no_socket);
        assert_eq!(wrong(std::fs::File::open("/dev/null").unwrap().into()), no_socket);
        assert!(wrong(UnixDatagram::unbound().unwrap().into()).contains("rings no process"));
    }
}
