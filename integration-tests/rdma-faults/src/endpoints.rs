//! Two endpoints in this process, of which one may have a false address of the other, and operations on them through
//! the transport contract.

use std::thread;

use farjump_core::transport::{
    Address, Endpoint, LocalMemory, Messages, OpenRequest, RemoteMemory, Transport, TransportError,
    UnconnectedEndpoint,
};
use farjump_transports::verbs::{Send, Write};

/// Length of the regions, and longest frame of messages, in bytes.
pub(crate) const REGION: usize = 1 << 16;
/// Start of frames in a region: core's control page is before it.
pub(crate) const FRAMES: usize = 4096;

/// A connected endpoint of either backend.
pub(crate) enum ConnectedEndpoint {
    Written { local: Box<dyn LocalMemory>, remote: Box<dyn RemoteMemory> },
    Sent(Box<dyn Messages>),
}

/// Opens an unconnected endpoint.
///
/// # Panics
/// If the device has none.
pub(crate) fn open(backend: &str) -> Box<dyn UnconnectedEndpoint> {
    let request = &OpenRequest::new(REGION, REGION / 2);
    let opened = if backend == farjump_transports::verbs::write::NAME {
        Write::new().open(request)
    } else {
        Send::new().open(request)
    };
    opened.unwrap_or_else(|error| panic!("{error}"))
}

/// Connects an endpoint to the one at `address`.
///
/// # Panics
/// If the backend refuses.
pub(crate) fn connect(opening: Box<dyn UnconnectedEndpoint>, address: Address) -> ConnectedEndpoint {
    match opening.connect(address, 10_000).unwrap_or_else(|error| panic!("{error}")) {
        Endpoint::OneSided { local, remote } => ConnectedEndpoint::Written { local, remote },
        Endpoint::TwoSided(messages) => ConnectedEndpoint::Sent(messages),
    }
}

/// Two endpoints. The first gets the second's address as changed by `lie`.
pub(crate) fn pair(backend: &str, lie: impl FnOnce(Address) -> Address) -> [ConnectedEndpoint; 2] {
    let (one, other) = (open(backend), open(backend));
    let (of_one, of_other) = (one.address().try_to_owned().unwrap(), other.address().try_to_owned().unwrap());
    [connect(one, lie(of_other)), connect(other, of_one)]
}

/// Two endpoints with each other's true addresses.
pub(crate) fn honest(backend: &str) -> [ConnectedEndpoint; 2] {
    pair(backend, |address| address)
}

/// A line of 64 bytes, different for each frame.
pub(crate) fn line(number: u64) -> [u8; 64] {
    let mut line = [0; 64];
    for (at, word) in line.chunks_mut(8).enumerate() {
        word.copy_from_slice(&(number << 8 | at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    }
    line
}

impl ConnectedEndpoint {
    /// Sends the line of frame `number`, to its own slot if there are slots. Returns `false` if there is no credit.
    pub(crate) fn send(&mut self, number: u64) -> Result<bool, TransportError> {
        let line = line(number);
        let sent = match self {
            ConnectedEndpoint::Written { remote, .. } => {
                let places = (REGION - FRAMES) / line.len();
                let at = FRAMES + number as usize % places * line.len();
                remote.put(at, &line, number)
            }
            ConnectedEndpoint::Sent(messages) => messages.reserve(line.len()).and_then(|space| {
                // SAFETY: `reserve` lent `line.len()` bytes.
                unsafe { space.as_ptr().copy_from_nonoverlapping(line.as_ptr(), line.len()) };
                messages.commit(line.len(), number)
            }),
        };
        match sent {
            Ok(()) => Ok(true),
            Err(error) if error.is_full() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Lets the backend make progress in both directions.
    pub(crate) fn work(&mut self) -> Result<(), TransportError> {
        match self {
            ConnectedEndpoint::Written { local, remote } => {
                remote.progress()?;
                // An endpoint that polls its memory for frames checks the device only before it sleeps.
                local.before_sleep().map(drop)?;
                local.after_sleep()
            }
            ConnectedEndpoint::Sent(messages) => {
                messages.arm().map(drop)?;
                messages.disarm()
            }
        }
    }

    /// Returns whether frame `number` has arrived. Takes it if it is a message.
    pub(crate) fn has(&mut self, number: u64) -> Result<bool, TransportError> {
        match self {
            ConnectedEndpoint::Written { local, .. } => {
                let places = (REGION - FRAMES) / 64;
                let at = local.base().as_ptr().wrapping_add(FRAMES + number as usize % places * 64);
                // SAFETY: inside the region, which belongs to the endpoint; the device may write it
                // meanwhile.
                let found = unsafe { at.cast::<[u8; 64]>().read_volatile() };
                Ok(found == line(number))
            }
            ConnectedEndpoint::Sent(messages) => {
                let Some(message) = messages.poll()? else { return Ok(false) };
                let (start, len) = (message.start(), message.len());
                // SAFETY: the message is lent until it is released.
                let found = unsafe { std::slice::from_raw_parts(start.as_ptr(), len) } == line(number);
                assert!(found, "another message than frame {number}, or a damaged one");
                messages.release();
                Ok(true)
            }
        }
    }

    /// Returns whether nothing was ever written into the region, or sent.
    pub(crate) fn is_untouched(&mut self) -> bool {
        match self {
            ConnectedEndpoint::Written { local, .. } => {
                // SAFETY: the region belongs to the endpoint; the device may write it meanwhile.
                (0..local.len()).all(|at| unsafe { local.base().as_ptr().add(at).read_volatile() } == 0)
            }
            ConnectedEndpoint::Sent(messages) => !matches!(messages.poll(), Ok(Some(_))),
        }
    }

    /// Makes progress until an error. The watchdog ends a wait for an error that does not come.
    pub(crate) fn fails(&mut self) -> TransportError {
        loop {
            match self.work() {
                Err(error) if !error.is_full() => return error,
                _ => thread::yield_now(),
            }
        }
    }
}

/// Sends one frame from `one` to `other` and waits until it has arrived.
pub(crate) fn passes(one: &mut ConnectedEndpoint, other: &mut ConnectedEndpoint, number: u64) {
    while !one.send(number).unwrap_or_else(|error| panic!("{error}")) {
        one.work().unwrap_or_else(|error| panic!("{error}"));
    }
    while !other.has(number).unwrap_or_else(|error| panic!("{error}")) {
        one.work().unwrap_or_else(|error| panic!("{error}"));
        thread::yield_now();
    }
}

/// Asserts that `error` contains all of `words`. Prints it for people.
pub(crate) fn says(error: &impl std::fmt::Display, words: &[&str]) {
    let text = error.to_string();
    println!("    {}", text.trim_end());
    for word in words {
        assert!(text.contains(word), "it does not say {word:?}: {text}");
    }
}
