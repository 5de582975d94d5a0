//! A source of a store: its link, its mappings, and the copies of its descriptor.

use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::NonNull;

use farjump::Link;
use farjump::admin::ObjectMemory;
use rustix::fs::fstat;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{Shutdown, SocketAddrUnix, getpeername, shutdown};

use super::requests::Key;
use crate::conversation::Holdings;

/// The bytes of an object: its word, again and again.
pub(super) fn contents(word: u64, len: usize) -> Vec<u8> {
    // Copied as a whole, and not by an iterator: all objects in use are compared after each step, and tests are not
    // optimised.
    let mut bytes = word.to_le_bytes().repeat(len.div_ceil(size_of::<u64>()));
    bytes.truncate(len);
    bytes
}

/// A block of the store's memory that a source uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    /// The number of the claim, or of the object that the source writes.
    pub(super) number: u64,
    pub(super) offset: u64,
    pub(super) len: u64,
    /// The word whose bytes are there, or that the source writes.
    pub(super) word: u64,
    /// The key of the object, if the source writes it.
    pub(super) writes: Option<Key>,
}

impl Block {
    /// Returns whether two sources may not use both.
    pub(super) fn clashes_with(&self, other: &Block) -> bool {
        let apart = self.offset + self.len <= other.offset || other.offset + other.len <= self.offset;
        let is_shared = self.writes.is_none() && other.writes.is_none() && self.number == other.number;
        !apart && !is_shared
    }
}

/// The store's memory, mapped for writing.
pub(super) struct Memory {
    start: NonNull<u8>,
    len: usize,
}

impl Memory {
    /// Maps the memory that an owner has passed.
    pub(super) fn map(memory: &ObjectMemory) -> Memory {
        assert!(memory.may_write);
        let len = memory.len as usize;
        // SAFETY: a new mapping, at an address of the system's choice.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                memory.as_fd(),
                0,
            )
        };
        let start = start.expect("the store's memory is mapped");
        Memory { start: NonNull::new(start.cast()).expect("not at 0"), len }
    }

    fn at(&self, block: &Block) -> NonNull<u8> {
        assert!(block.offset + block.len <= self.len as u64, "a block lies outside of the store: {block:?}");
        // SAFETY: the block is inside of the mapping.
        unsafe { self.start.add(block.offset as usize) }
    }

    /// Returns the offset of the first wrong byte of a block, if there is one.
    pub(super) fn first_changed(&self, block: &Block) -> Option<usize> {
        // SAFETY: the bytes are mapped. Only this thread writes them.
        let bytes = unsafe { std::slice::from_raw_parts(self.at(block).as_ptr(), block.len as usize) };
        let expected = contents(block.word, bytes.len());
        if *bytes == *expected {
            return None;
        }
        bytes.iter().zip(&expected).position(|(byte, expected)| byte != expected)
    }

    /// Writes a block's bytes.
    pub(super) fn write(&self, block: &Block) {
        let bytes = contents(block.word, block.len as usize);
        // SAFETY: as in `first_changed`.
        unsafe { self.at(block).as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the mapping any more.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast::<c_void>(), self.len) };
        unmapped.expect("it was mapped");
    }
}

/// A source.
pub(super) struct Peer {
    pub(super) link: Option<Link>,
    /// The descriptor of its end of the control connection, and the inode of that socket.
    socket: (RawFd, u64),
    /// The descriptors of a process that it forked.
    copies: Vec<OwnedFd>,
    /// The blocks that it uses, as long as it has a descriptor.
    pub(super) blocks: Vec<Block>,
    /// Its publishers, and their topics.
    pub(super) publishers: Vec<(u64, String)>,
    /// Its subscribers, and the number of the next entry of each.
    pub(super) subscribers: Vec<(u64, u64)>,
}

/// The connected sockets of this process whose other end is at this path, and their inodes.
pub(super) fn sockets(path: &str) -> Vec<(RawFd, u64)> {
    let inode = |fd: BorrowedFd<'_>| {
        let peer = SocketAddrUnix::try_from(getpeername(fd).ok()??).ok()?;
        (peer.path_bytes() == Some(path.as_bytes())).then(|| fstat(fd).ok().map(|stat| stat.st_ino))?
    };
    let numbers = Holdings::numbers().into_iter();
    numbers.filter_map(|number| Some((number, with_descriptor(number, inode)?))).collect()
}

fn with_descriptor<T>(number: RawFd, act: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
    // SAFETY: the descriptor is open, as this thread closes none meanwhile. For a closed one the system returns an
    // error.
    act(unsafe { BorrowedFd::borrow_raw(number) })
}

impl Peer {
    /// The source of a link, whose control connection is this one of [`sockets`].
    pub(super) fn new(link: Link, socket: (RawFd, u64)) -> Peer {
        let (copies, blocks, publishers, subscribers) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Peer { link: Some(link), socket, copies, blocks, publishers, subscribers }
    }

    /// Calls `act` with its end of the control connection, if that is open.
    fn with_socket<T>(&self, act: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
        let (number, inode) = self.socket;
        with_descriptor(number, |fd| fstat(fd).ok().filter(|stat| stat.st_ino == inode).map(|_| act(fd)))
    }

    /// Forks: a copy of its descriptor stays when it leaves.
    pub(super) fn fork(&mut self) {
        let copy = self.with_socket(|fd| fd.try_clone_to_owned().expect("a descriptor"));
        self.copies.extend(copy);
    }

    /// Ends as a killed process does: without a message.
    pub(super) fn is_killed(&mut self) {
        self.with_socket(|fd| shutdown(fd, Shutdown::Both));
        self.link = None;
    }

    /// Returns whether a process has its descriptor.
    pub(super) fn is_there(&self) -> bool {
        self.link.is_some() || !self.copies.is_empty()
    }
}
