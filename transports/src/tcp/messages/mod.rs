//! A connected endpoint.

mod closing;

use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;

use farjump_core::transport::{Cause, Message, Messages, Operation, PathInfo, TransportError};
use rustix::net::getpeername;

use super::buffers::{self, Buffer, FRONT};
use super::credit::Windows;
use super::error;
use super::inbound::Inbound;
use super::outbound::Outbound;
use super::socket::Socket;
use crate::fork;

/// A connected endpoint.
// The fields of a poll come first, in as few lines as possible.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct TcpMessages {
    /// Only `drop` takes this apart.
    parts: ManuallyDrop<Parts>,
    /// The buffer that `reserve` lends, and its length.
    lent: Option<(Buffer, usize)>,
    /// Longest frame that the peer accepts, in bytes.
    max_frame: usize,
    /// Length of the message for which there is no credit.
    wanted: Option<usize>,
    /// The peer's last credit when this endpoint reported that it waits.
    reported: Option<(u32, u32)>,
}

/// The parts for sending and receiving.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Parts {
    pub(super) socket: Socket,
    pub(super) windows: Windows,
    pub(super) inbound: Inbound,
    pub(super) outbound: Outbound,
}

impl TcpMessages {
    pub(super) fn new(parts: Parts, max_frame: usize) -> TcpMessages {
        TcpMessages { parts: ManuallyDrop::new(parts), lent: None, max_frame, wanted: None, reported: None }
    }

    #[inline]
    fn parts(&mut self) -> &mut Parts {
        &mut self.parts
    }

    /// Records that there is no credit for a message of `len` bytes. Notifies the peer once for each state of
    /// its window.
    #[cold]
    fn full(&mut self, len: usize) -> Result<TransportError, TransportError> {
        self.wanted = Some(len);
        let reported = self.reported;
        let Parts { socket, outbound, windows, .. } = self.parts();
        if !windows.send_credit.has_credit(len) && reported != Some(windows.send_credit.state()) {
            let sent = outbound.note(socket, true, &mut windows.recv_credit);
            if sent.map_err(|cause| error(Operation::Send, *cause))? {
                self.reported = Some(self.parts().windows.send_credit.state());
            }
        }
        self.work()?;
        let inbound = &self.parts().inbound;
        match (inbound.front(), inbound.ended()) {
            // No credit will ever arrive.
            (None, Some(cause)) => Err(error(Operation::Send, cause.clone())),
            _ => Ok(error(Operation::Send, Cause::Full)),
        }
    }

    /// Sends waiting bytes and due credit. If this endpoint cannot send, also receives from the peer, because both may
    /// wait for each other.
    fn work(&mut self) -> Result<(), TransportError> {
        let wanted = self.wanted;
        let Parts { socket, outbound, inbound, windows } = self.parts();
        let failed = |cause: Box<Cause>| error(Operation::Progress, *cause);
        if outbound.is_copy() {
            return Err(copied(Operation::Progress));
        }
        outbound.flush(socket, &mut windows.recv_credit).map_err(failed)?;
        if windows.recv_credit.must_return_credit() {
            outbound.note(socket, false, &mut windows.recv_credit).map_err(failed)?;
        }
        let stuck = |windows: &Windows| wanted.is_some_and(|len| !windows.send_credit.has_credit(len));
        if outbound.is_waiting() || outbound.broken().is_some() || stuck(windows) {
            // At most a window: the peer may send no more.
            while let Ok(true) = inbound.next(socket, windows) {}
            outbound.flush(socket, &mut windows.recv_credit).map_err(failed)?;
        }
        Ok(())
    }

    /// Sends a message: the first `len` bytes of the reserved buffer, those at its start replaced by `beside`.
    #[inline]
    fn send(&mut self, len: usize, beside: &[u8], frame: u64) -> Result<(), TransportError> {
        let failed = |cause: Box<Cause>| error(Operation::Send, *cause).with_frame(frame);
        let (lent, reserved) = match self.lent.take() {
            Some((lent, reserved)) if len <= reserved && len > beside.len() => (lent, reserved),
            _ => return Err(failed(Box::new(Cause::Unsupported("committing without reserving")))),
        };
        let Parts { socket, outbound, windows, .. } = self.parts();
        if outbound.is_copy() {
            return Err(copied(Operation::Send).with_frame(frame));
        }
        // Credit may have been returned since `reserve`, and wait for the socket.
        if outbound.is_waiting() && !outbound.flush(socket, &mut windows.recv_credit).map_err(failed)? {
            self.lent = Some((lent, reserved));
            return Err(failed(Box::new(Cause::Full)));
        }
        // No frame is longer than `MAX_FRAME`.
        windows.send_credit.send(len as u32);
        match beside {
            [] => outbound.message(socket, lent, len, &mut windows.recv_credit).map_err(failed),
            _ => outbound.message_beside(socket, lent, len, beside, &mut windows.recv_credit).map_err(failed),
        }
    }

    /// The error after sending has failed. The peer's earlier messages are received first.
    #[cold]
    fn broken(&mut self) -> TransportError {
        if let Err(error) = self.work() {
            return error;
        }
        let parts = &self.parts;
        let cause = match (parts.inbound.front(), parts.outbound.broken()) {
            (Some(_), _) | (None, None) => Cause::Full,
            (None, Some(cause)) => cause.clone(),
        };
        error(Operation::Send, cause)
    }
}

#[cold]
fn copied(operation: Operation) -> TransportError {
    error(operation, fork::refused())
}

// SAFETY: a reserved buffer belongs to this value and is not used before `commit`. A message is in a buffer
// of `Inbound`, which receives only into other parts until `release`. Both start on a line (`Buffer`,
// `Inbound::look`).
unsafe impl Messages for TcpMessages {
    #[inline]
    fn reserve(&mut self, len: usize) -> Result<NonNull<u8>, TransportError> {
        if len > self.max_frame {
            return Err(error(Operation::Send, Cause::TooLarge { len, max: self.max_frame }));
        }
        let parts = self.parts();
        if parts.outbound.broken().is_some() {
            return Err(self.broken());
        }
        if parts.outbound.is_waiting() || !parts.windows.send_credit.has_credit(len) {
            let full = self.full(len)?;
            let parts = self.parts();
            if parts.outbound.is_waiting() || !parts.windows.send_credit.has_credit(len) {
                return Err(full);
            }
        }
        self.wanted = None;
        let lent = match self.lent.take() {
            Some((lent, _)) if lent.capacity() >= len && lent.capacity() / 8 < len => lent,
            other => {
                other.into_iter().for_each(|(lent, _)| buffers::give(lent));
                buffers::take(len).map_err(|cause| error(Operation::Send, cause))?
            }
        };
        let start = lent.at(FRONT);
        self.lent = Some((lent, len));
        Ok(start)
    }

    #[inline]
    fn commit(&mut self, len: usize, frame: u64) -> Result<(), TransportError> {
        self.send(len, &[], frame)
    }

    fn sends_beside(&self) -> bool {
        true
    }

    fn commit_beside(&mut self, len: usize, beside: &[u8], frame: u64) -> Result<(), TransportError> {
        self.send(len, beside, frame)
    }

    #[inline]
    fn poll(&mut self) -> Result<Option<Message>, TransportError> {
        let Parts { outbound, inbound, windows, .. } = self.parts();
        if let Some(front) = inbound.front() {
            return Ok(Some(front));
        }
        if outbound.is_waiting() || windows.recv_credit.must_return_credit() {
            self.work()?;
        }
        let Parts { socket, inbound, windows, outbound } = self.parts();
        if inbound.front().is_none() {
            let found = match inbound.next(socket, windows) {
                Ok(found) => found,
                Err(cause) => {
                    // A peer that has ended receives nothing, even if the system still accepts bytes.
                    outbound.end(&cause);
                    return Err(error(Operation::Receive, *cause));
                }
            };
            // The peer may just have reported that it waits.
            if !found && windows.recv_credit.must_return_credit() {
                self.work()?;
            }
        }
        Ok(self.parts.inbound.front())
    }

    #[inline]
    fn release(&mut self) {
        let parts = self.parts();
        if let Some(len) = parts.inbound.release() {
            parts.windows.recv_credit.consume(len);
        }
    }

    #[inline]
    fn progress(&mut self) -> Result<(), TransportError> {
        let wanted = self.wanted.is_some();
        let parts = self.parts();
        if wanted || parts.outbound.is_waiting() || parts.windows.recv_credit.must_return_credit() {
            self.work()?;
        }
        Ok(())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.parts.socket.as_fd())
    }

    fn arm(&mut self) -> Result<bool, TransportError> {
        let nothing = self.poll()?.is_none();
        if nothing {
            self.parts().inbound.rest();
            buffers::rest();
        }
        Ok(nothing)
    }

    fn wants_write(&self) -> bool {
        self.parts.outbound.is_waiting()
    }

    fn wakes_unarmed(&self) -> bool {
        self.parts.inbound.is_empty()
    }

    fn has_end(&self) -> bool {
        true
    }

    fn path_info(&self) -> PathInfo {
        let parts = &self.parts;
        let over = match parts.socket.is_unix() {
            true => "unix socket".to_owned(),
            false => match getpeername(&parts.socket).map(|peer| peer.map(SocketAddr::try_from)) {
                Ok(Some(Ok(peer))) => format!("tcp {}", canonical(peer)),
                _ => "tcp".to_owned(),
            },
        };
        let sealed = match parts.outbound.keys() {
            Some(keys) => format!("sealed by {}", keys.cipher().name()),
            None => {
                "clear: any process that can intercept the stream can read and change its frames".to_owned()
            }
        };
        PathInfo::new(over, vec![sealed])
    }
}

/// IPv4 addresses in their usual form, also on IPv6 sockets.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

impl Drop for TcpMessages {
    fn drop(&mut self) {
        self.lent.take().into_iter().for_each(|(lent, _)| buffers::give(lent));
        // SAFETY: nothing uses the parts behind this.
        closing::part(unsafe { ManuallyDrop::take(&mut self.parts) });
    }
}

#[cfg(test)]
mod tests;
