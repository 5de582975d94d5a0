//! Doorbells: pairs of datagram sockets by which a side that sleeps is woken.
//!
//! Each side makes a pair, sleeps on one socket and hands the other to its peer, which rings by sending an empty datagram.
//! Nothing that the peer does to its socket can block this side ([why](../../../docs/decisions/doorbells.md)): whether a call
//! blocks is said with each call, by `MSG_DONTWAIT`, and the peer has no descriptor of the socket that is slept on.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd};

use farjump_core::transport::Cause;
use farjump_os::deferred_close::DeferredFd;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendFlags, SocketFlags, SocketType,
    getpeername, recvmsg, send, socketpair, sockopt,
};

/// Most rings that are taken at once. An honest peer rings once for each sleep; who rings all the time does not keep us here.
const AT_ONCE: usize = 16;

/// The doorbell that this side sleeps on.
pub(super) struct Doorbell {
    /// Closed where that may take its time: what the peer sent may lie in its queue.
    own: DeferredFd,
    /// The socket to ring it by.
    button: Button,
}

impl Doorbell {
    /// Makes one.
    pub(super) fn create() -> Result<Doorbell, Cause> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (own, button) =
            socketpair(AddressFamily::UNIX, SocketType::DGRAM, flags, None).map_err(|errno| {
                Cause::System(format!("making a pair of sockets for a doorbell failed: {errno}"))
            })?;
        Ok(Doorbell { own: own.into(), button: Button(button.into()) })
    }

    /// Makes it unreadable until it is rung again.
    ///
    /// # Errors
    /// When the peer sent descriptors with a ring: they stay in the queue, because to close them here could block.
    pub(super) fn silence(&self) -> Result<(), Cause> {
        for _ in 0..AT_ONCE {
            match self.receive(RecvFlags::PEEK) {
                // Descriptors are not taken, as there is no room for them, but dropped by the system, and whoever drops the
                // last copy of one may have to wait until it is closed. Looking drops no last copy. Nobody else receives from
                // this socket, so what is received below is what was looked at.
                Ok(found) if found.contains(ReturnFlags::CTRUNC) => {
                    return Err(Cause::System("the peer sent file descriptors with a ring".to_owned()));
                }
                Ok(_) => {}
                Err(Errno::AGAIN) => return Ok(()),
                // The peer did something to its socket; whatever it meant, that has woken us.
                Err(Errno::CONNRESET) => continue,
                Err(errno) => return Err(failed("looking at the doorbell", errno)),
            }
            match self.receive(RecvFlags::empty()) {
                Ok(_) | Err(Errno::AGAIN | Errno::CONNRESET) => {}
                Err(errno) => return Err(failed("silencing the doorbell", errno)),
            }
        }
        Ok(())
    }

    /// Receives a ring, without its bytes if it has any.
    fn receive(&self, flags: RecvFlags) -> Result<ReturnFlags, Errno> {
        let mut nothing = [IoSliceMut::new(&mut [])];
        let flags = flags | RecvFlags::DONTWAIT;
        again(|| recvmsg(&self.own, &mut nothing, &mut RecvAncillaryBuffer::default(), flags))
            .map(|received| received.flags)
    }

    /// What to sleep on.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.own.as_fd()
    }

    /// What to hand to the peer.
    pub(super) fn button(&self) -> BorrowedFd<'_> {
        self.button.0.as_fd()
    }
}

/// The socket by which somebody's doorbell is rung.
pub(super) struct Button(DeferredFd);

impl Button {
    /// Takes the peer's, if it is one. No call here may block, whatever the descriptor is: all ask the socket layer, which
    /// refuses what is no socket.
    pub(super) fn of_peer(descriptor: DeferredFd) -> Result<Button, Cause> {
        let wrong = |what: String| Err(Cause::Address(format!("its doorbell {what}")));
        let kind = sockopt::socket_domain(&descriptor)
            .and_then(|domain| Ok((domain, sockopt::socket_type(&descriptor)?)));
        match kind {
            Ok((AddressFamily::UNIX, SocketType::DGRAM)) => {}
            Ok(_) | Err(Errno::NOTSOCK | Errno::BADF) => {
                return wrong("is no Unix datagram socket".to_owned());
            }
            Err(errno) => return wrong(format!("does not say what it is: {errno}")),
        }
        match getpeername(&descriptor) {
            Ok(_) => Ok(Button(descriptor)),
            Err(errno) => wrong(format!("rings nobody: {errno}")),
        }
    }

    /// Makes the peer's doorbell readable.
    pub(super) fn ring(&self) -> Result<(), Cause> {
        match again(|| send(&self.0, &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL)) {
            // Full: it has been rung often enough to be heard.
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            // The peer is gone, which the control connection tells, or has spoilt its own doorbell.
            Err(Errno::CONNREFUSED | Errno::CONNRESET | Errno::NOTCONN | Errno::PIPE) => Ok(()),
            Err(errno) => Err(failed("ringing the peer's doorbell", errno)),
        }
    }
}

fn failed(doing: &str, errno: Errno) -> Cause {
    Cause::System(format!("{doing} failed: {errno}"))
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
    use std::io::IoSlice;
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixDatagram;
    use std::time::Duration;

    use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
    use rustix::fs::{OFlags, fcntl_setfl};
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, Shutdown, sendmsg, shutdown};

    use super::*;

    /// Ends the process if what it watches takes longer than a test may.
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

    /// What `poll` says of it, at once.
    fn events(bell: &Doorbell) -> PollFlags {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut fds = [PollFd::new(&bell.own, PollFlags::IN)];
        poll(&mut fds, Some(&at_once)).unwrap();
        fds[0].revents()
    }

    fn readable(bell: &Doorbell) -> bool {
        events(bell).contains(PollFlags::IN)
    }

    /// A doorbell, and what the peer has to ring it by.
    fn pair() -> (Doorbell, Button) {
        let bell = Doorbell::create().unwrap();
        let button = Button::of_peer(bell.button().try_clone_to_owned().unwrap().into()).unwrap();
        (bell, button)
    }

    /// As many blocking calls of a peer as it likes.
    fn make_blocking(button: &Button) {
        fcntl_setfl(&button.0, OFlags::empty()).unwrap();
    }

    #[test]
    fn rings_make_it_readable_until_it_is_silenced_once() {
        let (bell, button) = pair();
        assert!(!readable(&bell));
        for _ in 0..3 {
            button.ring().unwrap();
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
        // Far more than any queue of datagrams takes.
        for _ in 0..10_000 {
            button.ring().unwrap();
        }
        assert!(readable(&bell));
        // A bounded part of them is taken at a time.
        let mut turns = 0;
        while readable(&bell) {
            bell.silence().unwrap();
            turns += 1;
        }
        assert!(turns <= 10_000 / AT_ONCE + 1, "{turns}");
        bell.silence().unwrap();
    }

    #[test]
    fn a_peer_that_closes_or_shuts_its_socket_leaves_a_doorbell_that_can_be_slept_on() {
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
        button.ring().unwrap();
        drop(elsewhere);
        button.ring().unwrap();
        button.ring().unwrap();
    }

    #[test]
    fn ringing_a_peer_that_is_gone_or_has_spoilt_its_doorbell_is_no_error() {
        let (bell, button) = pair();
        drop(bell);
        for _ in 0..3 {
            button.ring().unwrap();
        }
        let (_bell, button) = pair();
        shutdown(&button.0, Shutdown::Both).unwrap();
        button.ring().unwrap();
        let (bell, button) = pair();
        shutdown(&bell.own, Shutdown::Both).unwrap();
        button.ring().unwrap();
    }

    #[test]
    fn bytes_in_a_ring_are_passed_over() {
        let (bell, button) = pair();
        send(&button.0, b"knock knock", SendFlags::empty()).unwrap();
        assert!(readable(&bell));
        bell.silence().unwrap();
        assert!(!readable(&bell));
    }

    /// A connection whose closing waits for a peer that reads nothing: with unsent data and a linger of many minutes.
    fn slow_to_close() -> (OwnedFd, std::net::TcpStream) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        sender.set_nonblocking(true).unwrap();
        while std::io::Write::write(&mut &sender, &[0; 1 << 16]).is_ok() {}
        sender.set_nonblocking(false).unwrap();
        sockopt::set_socket_linger(&sender, Some(Duration::from_secs(3600))).unwrap();
        (sender.into(), receiver)
    }

    #[test]
    fn descriptors_sent_with_a_ring_are_an_error_and_closing_them_blocks_nobody() {
        let _watchdog = within_a_minute();
        let (bell, button) = pair();
        let (slow, receiver) = slow_to_close();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        let descriptors = [slow.as_fd()];
        rights.push(SendAncillaryMessage::ScmRights(&descriptors));
        sendmsg(&button.0, &[IoSlice::new(&[])], &mut rights, SendFlags::empty()).unwrap();
        // The only copy that is left lies in the doorbell's queue.
        drop(slow);
        for _ in 0..2 {
            let why = bell.silence().expect_err("they were dropped here").to_string();
            assert!(why.contains("file descriptors with a ring"), "{why}");
        }
        drop(bell);
        // Now it can be closed.
        drop(receiver);
    }

    #[test]
    fn what_is_no_connected_datagram_socket_is_refused() {
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
        assert!(wrong(UnixDatagram::unbound().unwrap().into()).contains("rings nobody"));
    }
}
