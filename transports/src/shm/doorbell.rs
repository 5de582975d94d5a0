//! Doorbells: eventfds by which a side that sleeps is woken.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use farjump_core::transport::Cause;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{OFlags, fcntl_getfl, readlink};
use rustix::io::{Errno, read, write};

/// An eventfd, this side's or the peer's.
pub(super) struct Doorbell(OwnedFd);

impl Doorbell {
    /// Makes one for this side.
    pub(super) fn create() -> Result<Doorbell, Cause> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(Doorbell)
            .map_err(|errno| Cause::System(format!("making an eventfd failed: {errno}")))
    }

    /// Takes the peer's, if it is one and never blocks.
    pub(super) fn of_peer(descriptor: OwnedFd) -> Result<Doorbell, Cause> {
        let link = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
        let kind = readlink(&link, Vec::new())
            .map_err(|errno| Cause::System(format!("reading {link} failed: {errno}; is /proc mounted?")))?;
        if kind.as_bytes() != b"anon_inode:[eventfd]" {
            let what = format!("its doorbell is no eventfd but {}", kind.to_string_lossy().escape_default());
            return Err(Cause::Address(what));
        }
        // The peer could change this later, as a process of the same user it could do worse; here it is an honest mistake.
        let flags = fcntl_getfl(&descriptor)
            .map_err(|errno| Cause::System(format!("asking for the doorbell's flags failed: {errno}")))?;
        if !flags.contains(OFlags::NONBLOCK | OFlags::RDWR) {
            return Err(Cause::Address("its doorbell would block whoever rings".to_owned()));
        }
        Ok(Doorbell(descriptor))
    }

    /// Makes it readable.
    pub(super) fn ring(&self) -> Result<(), Cause> {
        match again(|| write(&self.0, &1u64.to_ne_bytes())) {
            // Full: it has been rung often enough to be heard.
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(errno) => Err(Cause::System(format!("ringing the peer's doorbell failed: {errno}"))),
        }
    }

    /// Makes it unreadable until it is rung again.
    pub(super) fn silence(&self) -> Result<(), Cause> {
        // One read takes all rings; a peer that rings all the time does not keep us here.
        match again(|| read(&self.0, &mut [0u8; 8])) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(errno) => Err(Cause::System(format!("reading the doorbell failed: {errno}"))),
        }
    }

    /// What to sleep on, or to hand to the peer.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
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
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn readable(bell: &Doorbell) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&bell.0, PollFlags::IN)], Some(&at_once)).unwrap() == 1
    }

    #[test]
    fn rings_make_it_readable_until_it_is_silenced_once() {
        let ours = Doorbell::create().unwrap();
        let theirs = Doorbell::of_peer(ours.0.try_clone().unwrap()).unwrap();
        assert!(!readable(&ours));
        for _ in 0..3 {
            theirs.ring().unwrap();
        }
        assert!(readable(&ours));
        ours.silence().unwrap();
        assert!(!readable(&ours));
        ours.silence().unwrap();
    }

    #[test]
    fn a_full_doorbell_neither_blocks_nor_fails() {
        let bell = Doorbell::create().unwrap();
        write(&bell.0, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        bell.ring().unwrap();
        assert!(readable(&bell));
    }

    #[test]
    fn what_is_no_eventfd_or_would_block_is_refused() {
        let wrong = |descriptor: OwnedFd| match Doorbell::of_peer(descriptor) {
            Err(Cause::Address(what)) => what,
            _ => panic!("taken"),
        };
        assert!(wrong(rustix::pipe::pipe().unwrap().1).contains("no eventfd but pipe"));
        assert!(wrong(tempfile::tempfile().unwrap().into()).contains("no eventfd"));
        assert!(wrong(eventfd(0, EventfdFlags::CLOEXEC).unwrap()).contains("block"));
    }
}
