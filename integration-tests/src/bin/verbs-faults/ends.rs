//! Two ends in this process, of which one may have been told another address than the other's, and what is done with them through
//! the transport contract.

use std::thread;

use farjump_core::transport::{
    Address, Endpoint, LocalMemory, Messages, OpenRequest, Opening, RemoteMemory, Transport, TransportError,
};
use farjump_transports::verbs::{Send, Write};

/// Length of the regions that are opened, and the longest frame of messages, in bytes.
pub(crate) const REGION: usize = 1 << 16;
/// Where frames begin in a region: core's control page is before it.
pub(crate) const FRAMES: usize = 4096;

/// A connected end of either backend.
pub(crate) enum End {
    Written { local: Box<dyn LocalMemory>, remote: Box<dyn RemoteMemory> },
    Sent(Box<dyn Messages>),
}

/// An end before it is connected.
///
/// # Panics
/// The device gives none.
pub(crate) fn open(backend: &str) -> Box<dyn Opening> {
    let request = OpenRequest::new(REGION, REGION / 2);
    let opened = if backend == farjump_transports::verbs::write::NAME {
        Write::new().open(&request)
    } else {
        Send::new().open(&request)
    };
    opened.unwrap_or_else(|error| panic!("{error}"))
}

/// Connects an end to the end at `address`.
///
/// # Panics
/// That is refused.
pub(crate) fn connect(opening: Box<dyn Opening>, address: Address) -> End {
    match opening.connect(address, 10_000).unwrap_or_else(|error| panic!("{error}")) {
        Endpoint::OneSided { local, remote } => End::Written { local, remote },
        Endpoint::TwoSided(messages) => End::Sent(messages),
    }
}

/// Two ends, of which the first is told what `lie` makes of the second's address.
pub(crate) fn pair(backend: &str, lie: impl FnOnce(Address) -> Address) -> [End; 2] {
    let (one, other) = (open(backend), open(backend));
    let (of_one, of_other) = (one.address().try_to_owned().unwrap(), other.address().try_to_owned().unwrap());
    [connect(one, lie(of_other)), connect(other, of_one)]
}

/// Two ends that know each other.
pub(crate) fn honest(backend: &str) -> [End; 2] {
    pair(backend, |address| address)
}

/// A line of 64 bytes that no other frame has.
pub(crate) fn line(number: u64) -> [u8; 64] {
    let mut line = [0; 64];
    for (at, word) in line.chunks_mut(8).enumerate() {
        word.copy_from_slice(&(number << 8 | at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    }
    line
}

impl End {
    /// Sends the line of frame `number`, to the place of `number` where there are places. `false`: there is no room.
    pub(crate) fn send(&mut self, number: u64) -> Result<bool, TransportError> {
        let line = line(number);
        let sent = match self {
            End::Written { remote, .. } => {
                let places = (REGION - FRAMES) / line.len();
                let at = FRAMES + number as usize % places * line.len();
                remote.put(at, &line, number)
            }
            End::Sent(messages) => messages.reserve(line.len()).and_then(|room| {
                // SAFETY: so much room was lent.
                unsafe { room.as_ptr().copy_from_nonoverlapping(line.as_ptr(), line.len()) };
                messages.commit(line.len(), number)
            }),
        };
        match sent {
            Ok(()) => Ok(true),
            Err(error) if error.is_full() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Lets the backend work, on what is sent and on what is received.
    pub(crate) fn work(&mut self) -> Result<(), TransportError> {
        match self {
            End::Written { local, remote } => {
                remote.progress()?;
                // What an end that looks for frames by its memory asks the device only before it sleeps.
                local.before_sleep().map(drop)?;
                local.after_sleep()
            }
            End::Sent(messages) => {
                messages.arm().map(drop)?;
                messages.disarm()
            }
        }
    }

    /// Whether frame `number` is there. A message is taken.
    pub(crate) fn has(&mut self, number: u64) -> Result<bool, TransportError> {
        match self {
            End::Written { local, .. } => {
                let places = (REGION - FRAMES) / 64;
                let at = local.base().as_ptr().wrapping_add(FRAMES + number as usize % places * 64);
                // SAFETY: inside the region, which is the end's; the device may write it meanwhile.
                let found = unsafe { at.cast::<[u8; 64]>().read_volatile() };
                Ok(found == line(number))
            }
            End::Sent(messages) => {
                let Some((start, len)) = messages.poll()? else { return Ok(false) };
                // SAFETY: the message is lent until it is released.
                let found = unsafe { std::slice::from_raw_parts(start.as_ptr(), len) } == line(number);
                assert!(found, "another message than frame {number}, or a damaged one");
                messages.release();
                Ok(true)
            }
        }
    }

    /// Whether nothing was ever written into the region, or sent.
    pub(crate) fn is_untouched(&mut self) -> bool {
        match self {
            End::Written { local, .. } => {
                // SAFETY: the region is the end's; the device may write it meanwhile.
                (0..local.len()).all(|at| unsafe { local.base().as_ptr().add(at).read_volatile() } == 0)
            }
            End::Sent(messages) => !matches!(messages.poll(), Ok(Some(_))),
        }
    }

    /// Works until that fails. The watchdog ends a wait for an error that does not come.
    pub(crate) fn fails(&mut self) -> TransportError {
        loop {
            match self.work() {
                Err(error) if !error.is_full() => return error,
                _ => thread::yield_now(),
            }
        }
    }
}

/// Sends one frame from `one` to `other` and waits until it is there.
pub(crate) fn passes(one: &mut End, other: &mut End, number: u64) {
    while !one.send(number).unwrap_or_else(|error| panic!("{error}")) {
        one.work().unwrap_or_else(|error| panic!("{error}"));
    }
    while !other.has(number).unwrap_or_else(|error| panic!("{error}")) {
        one.work().unwrap_or_else(|error| panic!("{error}"));
        thread::yield_now();
    }
}

/// That `error` says all of this. What it says is shown, for people to judge.
pub(crate) fn says(error: &impl std::fmt::Display, words: &[&str]) {
    let text = error.to_string();
    println!("    {}", text.trim_end());
    for word in words {
        assert!(text.contains(word), "it does not say {word:?}: {text}");
    }
}
