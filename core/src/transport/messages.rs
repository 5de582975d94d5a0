//! Two-sided endpoints: whole messages.

use alloc::boxed::Box;
use core::ptr::NonNull;

#[cfg(doc)]
use super::Capabilities;
use super::{BorrowedFd, Cause, Lender, Operation, PathInfo, Reads, TransportError};
use crate::frame::DELIVERED_HEADER_LEN;

/// The header of a message that core sends, as two words. The upper half of the second word is zero, and
/// belongs to the transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageHeader(pub u64, pub u64);

impl MessageHeader {
    /// The words in the order of bytes in which they travel.
    #[inline(always)]
    pub fn to_le(self) -> [u64; 2] {
        [self.0.to_le(), self.1.to_le()]
    }
}

/// A delivered message: addresses and a length, which the backend's [`Messages::poll`] vouches for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    start: NonNull<u8>,
    len: usize,
    header: NonNull<u8>,
}

impl Message {
    /// A message of `len` bytes at `start`, whose header is at its end, as it was committed.
    #[inline(always)]
    pub fn new(start: NonNull<u8>, len: usize) -> Message {
        let header = start.as_ptr().wrapping_add(len.saturating_sub(DELIVERED_HEADER_LEN));
        // No message begins at the top of the address space.
        Message { start, len, header: NonNull::new(header).unwrap_or(start) }
    }

    /// A message whose header, 16 bytes of the `len`, lies at `header` instead, and the rest at `start`: for
    /// transports that carry the header where the receiver reads first.
    #[inline(always)]
    pub fn with_header(start: NonNull<u8>, len: usize, header: NonNull<u8>) -> Message {
        Message { start, len, header }
    }

    /// The start of the message: of the payload, in a frame without code.
    #[inline(always)]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The length of the message in bytes, header included.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the message has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of the header, with any alignment.
    #[inline(always)]
    pub fn header(&self) -> NonNull<u8> {
        self.header
    }
}

/// Whole messages, in order, each delivered once. The backend must not lose one without an error.
///
/// # Safety
/// Core and the injected function keep the pointers that this trait returns, and read and write through them.
/// An implementation guarantees that
/// * the buffer that [`Messages::reserve`] returns for `len` bytes is aligned to 64 bytes, and valid for
///   reads and writes of `len` bytes until the [`Messages::commit`] that succeeds, the next `reserve`, or the
///   end of the value;
/// * the message that [`Messages::poll`] returns is aligned to 64 bytes, valid for reads and writes of its
///   length, less that of the header if that lies elsewhere, until [`Messages::release`] or the end of the
///   value, and written by nothing else until then; so is its header, which the length includes, for reads;
/// * neither overlaps the other, or any memory that a reference reaches.
pub unsafe trait Messages: Send {
    /// Reserves a buffer for one message of `len` bytes. Nothing is sent before [`Messages::commit`]; a
    /// second `reserve` without it discards the first. The buffer is aligned to 64 bytes
    /// and may hold anything.
    ///
    /// # Errors
    /// [`Cause::Full`] when no buffer is free now and [`Messages::progress`] may free one.
    /// [`Cause::TooLarge`] over [`Capabilities::max_frame`]. Any other error is final for the link.
    fn reserve(&mut self, len: usize) -> Result<NonNull<u8>, TransportError>;

    /// Sends the first `len` bytes of the reserved buffer. `len` is at least 16 and at most the reserved
    /// length. Its last four bytes are zero ([`TRANSPORT_WORD_LEN`](crate::frame::TRANSPORT_WORD_LEN)): the
    /// backend may put data of its own there, and core does not read them in the message that arrives. The
    /// message is on its way when this returns without an error. `frame` is its running
    /// number, for later errors.
    ///
    /// # Errors
    /// [`Cause::Full`] when the backend cannot take it now: the buffer stays reserved and core calls again.
    fn commit(&mut self, len: usize, frame: u64) -> Result<(), TransportError>;

    /// [`Messages::reserve`], a copy and [`Messages::commit`] in one, for the message of `body` and behind it
    /// `header`. A backend that implements it saves core a call for each frame, and may put the header
    /// elsewhere.
    ///
    /// # Errors
    /// Those of both. Nothing was sent then.
    #[inline]
    fn send(&mut self, body: &[u8], header: MessageHeader, frame: u64) -> Result<(), TransportError> {
        send_in_steps(self, body, header, frame)
    }

    /// Returns whether the backend implements [`Messages::commit_beside`], which sends bytes without copying
    /// them.
    fn sends_beside(&self) -> bool {
        false
    }

    /// [`Messages::commit`], but the message starts with the bytes of `beside` instead of as many bytes of
    /// the buffer. `beside` is shorter than the message. The backend does not use it after the return: it has
    /// copied the bytes that are not on their way by then. Only called if [`Messages::sends_beside`].
    ///
    /// # Errors
    /// Those of [`Messages::commit`].
    fn commit_beside(&mut self, len: usize, beside: &[u8], frame: u64) -> Result<(), TransportError> {
        let _ = (len, beside);
        let cause = Cause::Unsupported("sending bytes from where they lie");
        Err(TransportError::new("core", Operation::Send, cause).with_frame(frame))
    }

    /// The oldest message that was delivered and not released. The same one until [`Messages::release`]. Until
    /// then its bytes are valid for reads and writes, and the peer cannot change them. Makes a little progress
    /// if the library needs that.
    ///
    /// # Errors
    /// Final for the link.
    fn poll(&mut self) -> Result<Option<Message>, TransportError>;

    /// Returns the message from [`Messages::poll`] to the backend. Does nothing without one.
    fn release(&mut self);

    /// Lets the backend make progress. Never waits.
    ///
    /// # Errors
    /// Failures of earlier messages, with their running number.
    fn progress(&mut self) -> Result<(), TransportError> {
        Ok(())
    }

    /// The descriptor that becomes readable when there is something to do; `None` if nothing can
    /// wake a sleeper, which then naps. The same for the life of the value.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Prepares to sleep on [`Messages::descriptor`]. `false` if a message is there already, or if the
    /// descriptor might not report one: do not sleep without a bound then.
    ///
    /// # Errors
    /// Final for the link.
    fn arm(&mut self) -> Result<bool, TransportError> {
        Ok(false)
    }

    /// Called after waking.
    ///
    /// # Errors
    /// Final for the link.
    fn disarm(&mut self) -> Result<(), TransportError> {
        Ok(())
    }

    /// Returns whether committed messages wait for [`Messages::descriptor`] to become writable. If so, a
    /// sleeper waits for readable or writable, and calls [`Messages::progress`].
    fn wants_write(&self) -> bool {
        false
    }

    /// Returns whether [`Messages::descriptor`] becomes readable at the next message without a call of
    /// [`Messages::arm`]. `false` while an arrived message has not been polled, because no descriptor reports
    /// it. A receiver with many links need not poll those for which this is `true`.
    fn wakes_unarmed(&self) -> bool {
        false
    }

    /// Returns whether the backend reports the end of the messages: [`Messages::poll`] returns
    /// [`Cause::PeerGone`] behind the peer's last message, even if the peer ended long before. A caller that
    /// learns of the peer's end by other means may then poll until that error, for a bounded time. Without
    /// this property, a message that has not arrived when the peer has ended never arrives.
    fn has_end(&self) -> bool {
        false
    }

    /// The path of the messages. For people; may take long.
    fn path_info(&self) -> PathInfo {
        PathInfo::default()
    }

    /// Returns the lender of other memory to the peer; `None` if this backend lends none, or none to this
    /// peer.
    fn lender(&self) -> Option<Box<dyn Lender>> {
        None
    }

    /// Returns the reader of memory that the peer lent by [`Messages::lender`]; `None` if this backend reads
    /// none, or none of this peer.
    fn reads(&mut self) -> Option<&mut dyn Reads> {
        None
    }
}

/// [`Messages::send`] by reserve, copy and commit.
///
/// # Errors
/// Those of [`Messages::send`].
pub fn send_in_steps<M: Messages + ?Sized>(
    messages: &mut M,
    body: &[u8],
    header: MessageHeader,
    frame: u64,
) -> Result<(), TransportError> {
    let len = body.len() + DELIVERED_HEADER_LEN;
    let start = messages.reserve(len)?;
    // SAFETY: the buffer has `len` bytes until the commit, and overlaps no memory that a reference reaches (`Messages`,
    // Safety).
    unsafe {
        start.copy_from_nonoverlapping(NonNull::from(body).cast(), body.len());
        start.add(body.len()).cast().write_unaligned(header.to_le());
    }
    messages.commit(len, frame)
}
