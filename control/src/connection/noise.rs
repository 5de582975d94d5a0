//! The seal of a control connection between machines: who has the key, and nobody else, takes part in it and reads it.
//!
//! The handshake and the encryption are those of the Noise protocol framework (revision 34), pattern `NNpsk0`, by the crate
//! snow. What is ours is where its messages lie in the stream:
//!
//! ```text
//! source                                target
//! prefix, packet: psk, e  ─────────────▶
//!                         ◀───────────── prefix, packet: e, ee, with the prefix once more inside
//! packets                 ◀────────────▶ packets
//! ```
//! A packet is its length (`u16`, little-endian) and that many bytes. One of length 0 in the place of the target's handshake
//! says that the keys differ. The source's prefix goes into Noise's prologue and the target's travels inside the handshake, so
//! neither can be changed on the way without both sides noticing. The packets after the handshake hold the messages of the
//! connection, cut where a packet is full.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use farjump_os::scrubbed;
use rustix::io::Errno;
use snow::{Builder, HandshakeState, TransportState};

use crate::Error;
use crate::connection::preamble::{PREFIX_LEN, Security, prefix, read_prefix};
use crate::connection::recv_buffer::{Filled, Incoming};
use crate::connection::send_queue::Outgoing;
use crate::key::Key;
use crate::keys::{Keys, NamedKey};
use crate::peer_identity::PeerIdentity;
use crate::tcp;

/// The protocol of Noise that is spoken. Its name is part of what both sides must agree on.
const NOISE: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// What the prologue begins with; the source's prefix follows. Noise keeps the parts apart: the source writes first.
const PROLOGUE: &[u8] = b"farjump control connection, source to target";
/// Length of what Noise adds to each packet, in bytes.
const TAG: usize = 16;
/// Length of a public key of the handshake, in bytes.
const EPHEMERAL: usize = 32;
/// Length of the source's handshake in bytes, and of the target's, which holds its prefix.
const HANDSHAKES: (usize, usize) = (EPHEMERAL + TAG, EPHEMERAL + TAG + PREFIX_LEN);
/// Length of a packet's head in bytes.
const HEAD: usize = 2;
/// Longest packet in bytes, its head not counted: Noise has no longer messages.
const MAX_PACKET: usize = 65_535;
/// Least bytes that are read at once after the handshake.
const READ: usize = 4096;

/// One side of it.
pub(crate) struct Seal {
    state: State,
    /// Bytes that came and are not opened yet: a part of one packet, or some small ones.
    raw: Vec<u8>,
    /// The peer's prefix came and was right.
    greeted: bool,
    /// At a target, the key that the source has.
    key: Option<Arc<NamedKey>>,
}

enum State {
    /// A target's: the source's part of the handshake is due, which tells which of these keys it has.
    Waiting(Keys),
    /// A source's: the target's part of the handshake is due.
    Shaking(Box<HandshakeState>),
    /// Both sides have the key.
    Open(Box<TransportState>),
    /// It came to nothing.
    Failed,
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Seal").field("open", &self.is_open()).finish_non_exhaustive()
    }
}

impl Seal {
    /// A target's. It says nothing before a source has.
    ///
    /// # Errors
    /// None. Builds without the feature `key` refuse here.
    pub(crate) fn target(keys: Keys) -> Result<Seal, Error> {
        Ok(Seal { state: State::Waiting(keys), raw: Vec::new(), greeted: false, key: None })
    }

    /// The key that the source has, once a target knows.
    pub(crate) fn key(&self) -> Option<&Arc<NamedKey>> {
        self.key.as_ref()
    }

    /// Tries these keys instead, unless the source's is known already.
    pub(crate) fn try_keys(&mut self, keys: &Keys) {
        if let State::Waiting(waiting) = &mut self.state {
            waiting.clone_from(keys);
        }
    }

    /// A source's, and what it says first: prefix and handshake.
    ///
    /// # Errors
    /// [`Error::System`] where there is no randomness.
    pub(crate) fn source(key: &Key) -> Result<(Seal, Vec<u8>), Error> {
        let own = prefix(Security::Key);
        let mut first = own.to_vec();
        let noise = scrubbed(|| {
            let mut noise = builder(&prologue(&own)).and_then(Builder::build_initiator).map_err(broken)?;
            with_key(&mut noise, key, |noise| shake(noise, &[], &mut first))?;
            Ok::<_, Error>(Box::new(noise))
        })?;
        Ok((Seal { state: State::Shaking(noise), raw: Vec::new(), greeted: false, key: None }, first))
    }

    /// Takes what was read of the connection before: at most a prefix.
    pub(crate) fn begin_with(
        &mut self,
        bytes: Vec<u8>,
        outgoing: &mut Outgoing,
        peer: &PeerIdentity,
    ) -> Result<(), Error> {
        self.raw = bytes;
        self.take(&mut Incoming::sealed(), outgoing, peer)
    }

    /// Whether nothing has come yet.
    pub(crate) fn is_untouched(&self) -> bool {
        !self.greeted && self.raw.is_empty()
    }

    /// Whether the handshake is over and messages may travel.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// Puts `bytes` into packets.
    ///
    /// # Errors
    /// [`Error::System`] before the seal is open.
    pub(crate) fn close(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Error> {
        let State::Open(noise) = &mut self.state else {
            return Err(Error::system("sealing a message", Errno::NOTCONN));
        };
        let chunks = bytes.chunks(MAX_PACKET - TAG);
        let mut packets = Vec::with_capacity(bytes.len() + chunks.len() * (HEAD + TAG));
        for chunk in chunks {
            packets.extend(((chunk.len() + TAG) as u16).to_le_bytes());
            let at = packets.len();
            packets.resize(at + chunk.len() + TAG, 0);
            noise.write_message(chunk, &mut packets[at..]).map_err(broken)?;
        }
        Ok(packets)
    }

    /// Reads once from `socket`, which does not block, and gives `incoming` what it can open. What the handshake is to answer
    /// goes to `outgoing`, also where this fails: the peer learns why.
    ///
    /// # Errors
    /// [`Error::NotFarjump`], [`Error::Version`], [`Error::KeyUnknown`], [`Error::WrongKey`], [`Error::Tampered`],
    /// [`Error::Garbled`], [`Error::Silent`], [`Error::System`].
    pub(crate) fn fill(
        &mut self,
        socket: BorrowedFd<'_>,
        incoming: &mut Incoming,
        outgoing: &mut Outgoing,
        peer: &PeerIdentity,
    ) -> Result<Filled, Error> {
        let have = self.raw.len();
        let due = self.due().saturating_sub(have);
        // Of a stranger no more is taken than the handshake has.
        let room = if self.is_open() { due.max(READ) } else { due };
        self.raw.resize(have + room, 0);
        let read = loop {
            match rustix::io::read(socket, &mut self.raw[have..]) {
                Err(Errno::INTR) => {}
                read => break read,
            }
        };
        self.raw.truncate(have + read.unwrap_or(0));
        match read {
            Ok(0) | Err(Errno::CONNRESET) => Ok(Filled::End),
            Ok(_) => self.take(incoming, outgoing, peer).map(|()| Filled::Some),
            Err(Errno::AGAIN) => Ok(Filled::Nothing),
            Err(error) => Err(tcp::failure(error, "receiving from", socket, peer)),
        }
    }

    /// A packet with nothing in it, as no honest side sends one.
    #[cfg(test)]
    pub(crate) fn empty_packet(&mut self) -> Vec<u8> {
        let State::Open(noise) = &mut self.state else { panic!("it is not open") };
        let mut packet = vec![0; HEAD + TAG];
        packet[..HEAD].copy_from_slice(&(TAG as u16).to_le_bytes());
        noise.write_message(&[], &mut packet[HEAD..]).unwrap();
        packet
    }

    /// What is wrong when the connection ends now, unless nothing of a packet or the prefix is here: how much of it came, and
    /// how much was due.
    pub(crate) fn cut_short(&self) -> Option<(usize, usize)> {
        (!self.raw.is_empty()).then(|| (self.raw.len(), self.due()))
    }

    /// Length of what must be here before anything can be done with it, in bytes.
    fn due(&self) -> usize {
        match self.raw.first_chunk() {
            _ if !self.greeted => PREFIX_LEN,
            None => HEAD,
            Some(head) => HEAD + usize::from(u16::from_le_bytes(*head)),
        }
    }

    /// Does with the bytes what can be done.
    fn take(
        &mut self,
        incoming: &mut Incoming,
        outgoing: &mut Outgoing,
        peer: &PeerIdentity,
    ) -> Result<(), Error> {
        if !self.greeted {
            if !self.greet(outgoing, peer)? {
                return Ok(());
            }
            self.raw.drain(..PREFIX_LEN);
            self.greeted = true;
        }
        let mut done = 0;
        while let Some((head, rest)) = self.raw[done..].split_first_chunk() {
            let len = usize::from(u16::from_le_bytes(*head));
            self.state = match std::mem::replace(&mut self.state, State::Failed) {
                State::Open(mut noise) => {
                    if let Some(packet) = rest.get(..len) {
                        let what = |_| Error::Tampered { peer: peer.to_string() };
                        incoming
                            .extend(len.saturating_sub(TAG), |room| noise.read_message(packet, room))
                            .map_err(what)?;
                    }
                    State::Open(noise)
                }
                State::Shaking(noise) => {
                    check_handshake(len, true, peer)?;
                    match rest.get(..len) {
                        None => State::Shaking(noise),
                        Some(packet) => State::Open(Box::new(finish(*noise, packet, peer)?)),
                    }
                }
                State::Waiting(keys) => {
                    check_handshake(len, false, peer)?;
                    match rest.get(..len) {
                        None => State::Waiting(keys),
                        Some(packet) => {
                            let (noise, key) = answer(&keys, packet, outgoing, peer)?;
                            self.key = Some(key);
                            State::Open(Box::new(noise))
                        }
                    }
                }
                State::Failed => State::Failed,
            };
            if rest.len() < len {
                break;
            }
            done += HEAD + len;
        }
        self.raw.drain(..done);
        Ok(())
    }

    /// Whether the peer's prefix is here, and right. A target answers with its own, also to one that cannot go on.
    fn greet(&mut self, outgoing: &mut Outgoing, peer: &PeerIdentity) -> Result<bool, Error> {
        let theirs = read_prefix(&self.raw, peer);
        let is_target = matches!(self.state, State::Waiting(_));
        if is_target && matches!(theirs, Ok(Some(_)) | Err(Error::Version { .. })) {
            outgoing.push_raw(prefix(Security::Key).to_vec());
        }
        match theirs? {
            None => return Ok(false),
            Some(Security::Plain) => return Err(Error::KeyUnknown { peer: peer.to_string() }),
            Some(Security::Key) => {}
        }
        Ok(true)
    }
}

/// A peer's handshake has one length. A target may say instead, with a packet of none, that the keys differ.
fn check_handshake(len: usize, by_target: bool, peer: &PeerIdentity) -> Result<(), Error> {
    let expected = if by_target { HANDSHAKES.1 } else { HANDSHAKES.0 };
    match len {
        0 if by_target => Err(Error::WrongKey { peer: peer.to_string() }),
        len if len == expected => Ok(()),
        len => {
            let what = format!("its handshake has {len} bytes, not {expected}");
            Err(Error::Garbled { peer: peer.to_string(), what })
        }
    }
}

/// Takes the target's handshake.
fn finish(mut noise: HandshakeState, packet: &[u8], peer: &PeerIdentity) -> Result<TransportState, Error> {
    let mut payload = [0; PREFIX_LEN];
    let read = noise.read_message(packet, &mut payload);
    // The target has opened what this side sent, so it has the key: only on the way can this have been changed.
    let authentic = read.is_ok() && payload == prefix(Security::Key);
    if !authentic {
        return Err(Error::Tampered { peer: peer.to_string() });
    }
    noise.into_transport_mode().map_err(broken)
}

/// Takes the source's handshake, and answers it by the key that it was made with.
fn answer(
    keys: &Keys,
    packet: &[u8],
    outgoing: &mut Outgoing,
    peer: &PeerIdentity,
) -> Result<(TransportState, Arc<NamedKey>), Error> {
    // `read_prefix` has seen that it is this one, to the bit.
    let own = prefix(Security::Key);
    let Some((mut noise, key)) = find(keys, &prologue(&own), packet)? else {
        outgoing.push_raw(vec![0; HEAD]);
        return Err(Error::WrongKey { peer: peer.to_string() });
    };
    let mut answer = Vec::with_capacity(HEAD + HANDSHAKES.1);
    shake(&mut noise, &own, &mut answer)?;
    outgoing.push_raw(answer);
    Ok((noise.into_transport_mode().map_err(broken)?, key))
}

/// A state of Noise that has opened a source's handshake, and the key that did.
type Opened = (Box<HandshakeState>, Arc<NamedKey>);

/// The key that opens the source's handshake, and the state of Noise that has. All are tried, whichever does, so that the time that
/// takes says nothing of them but how many there are; none takes arithmetic on the curve.
fn find(keys: &Keys, prologue: &[u8], packet: &[u8]) -> Result<Option<Opened>, Error> {
    scrubbed(|| {
        let mut found = None;
        for key in keys.iter() {
            let mut noise = builder(prologue).and_then(Builder::build_responder).map_err(broken)?;
            let opened = with_key(&mut noise, &key.key, |noise| noise.read_message(packet, &mut []).is_ok());
            if opened && found.is_none() {
                found = Some((Box::new(noise), Arc::clone(key)));
            }
        }
        Ok(found)
    })
}

fn prologue(source_prefix: &[u8]) -> Vec<u8> {
    [PROLOGUE, source_prefix].concat()
}

/// A state of Noise to be built, without the key: it would be copied along with it.
fn builder(prologue: &[u8]) -> Result<Builder<'_>, snow::Error> {
    Builder::new(NOISE.parse()?).prologue(prologue)
}

/// Has `noise` know the key while `step` works with it: the first message of the handshake is all that takes it.
fn with_key<T>(noise: &mut HandshakeState, key: &Key, step: impl FnOnce(&mut HandshakeState) -> T) -> T {
    // It has the length that is asked for, and the place is there.
    let known = noise.set_psk(0, key.bytes());
    debug_assert!(known.is_ok(), "the pattern has one key");
    let done = step(noise);
    drop(noise.set_psk(0, &[0; Key::LEN]));
    // That nobody reads it any more is no reason not to write it.
    std::hint::black_box(noise);
    done
}

/// Appends this side's handshake to `to`, as a packet.
fn shake(noise: &mut HandshakeState, payload: &[u8], to: &mut Vec<u8>) -> Result<(), Error> {
    let mut message = [0; HANDSHAKES.1];
    let len = noise.write_message(payload, &mut message).map_err(broken)?;
    to.extend((len as u16).to_le_bytes());
    to.extend(&message[..len]);
    Ok(())
}

/// Noise fails on this side's own account only where the system gives no randomness.
fn broken(error: snow::Error) -> Error {
    Error::system(format!("sealing a connection: {error}"), Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MAX_KEYS;

    fn peer() -> PeerIdentity {
        PeerIdentity::at("127.0.0.1:1".parse().unwrap(), "a process")
    }

    /// A source's state after its first message, and that message.
    fn begun(key: &Key, prologue: &[u8]) -> (HandshakeState, Vec<u8>) {
        let mut noise = builder(prologue).unwrap().build_initiator().unwrap();
        let mut first = Vec::new();
        with_key(&mut noise, key, |noise| shake(noise, &[], &mut first)).unwrap();
        first.drain(..HEAD);
        (noise, first)
    }

    /// The outcome of a handshake at the target and, if there is one, at the source, where the source binds one prefix and the
    /// target another, and tells the source a third one.
    fn shaken(bound: [&[u8]; 2], told: &[u8]) -> (Result<(), Error>, Option<Result<(), Error>>) {
        let key = Key::from_bytes([5; 32]);
        let [there, here] = bound.map(prologue);
        let (source, first) = begun(&key, &there);
        let keys = Keys::from(key);
        let found = find(&keys, &here, &first).unwrap();
        if told == prefix(Security::Key) {
            let outcome = found.map(drop).ok_or(Error::WrongKey { peer: peer().to_string() });
            return (outcome, None);
        }
        let (mut target, _) = found.unwrap();
        let mut second = Vec::new();
        shake(&mut target, told, &mut second).unwrap();
        (Ok(()), Some(finish(source, &second[HEAD..], &peer()).map(drop)))
    }

    #[test]
    fn a_prefix_that_was_changed_on_the_way_fails_the_handshake_of_who_reads_it() {
        let (own, other) = (prefix(Security::Key), *b"FARJUMP\0\x05\0\x01\0");
        let (target, _) = shaken([&own, &own], &own);
        target.unwrap();
        let (target, _) = shaken([&own, &other], &own);
        assert!(matches!(target, Err(Error::WrongKey { .. })), "{target:?}");
        let (_, source) = shaken([&own, &own], &other);
        assert!(matches!(source, Some(Err(Error::Tampered { .. }))), "{source:?}");
    }

    #[test]
    fn of_many_keys_the_one_that_fits_is_found_wherever_it_is_and_no_other_fits() {
        let own = prologue(&prefix(Security::Key));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("k");
        let made: Vec<_> =
            (0..MAX_KEYS).map(|number| Keys::add(&path, &format!("n{number}"), None).unwrap()).collect();
        let keys = Keys::read(&path).unwrap();
        for (number, key) in made.iter().enumerate() {
            let (_, first) = begun(key, &own);
            let (_, found) = find(&keys, &own, &first).unwrap().unwrap();
            assert_eq!(found.name, Some(format!("n{number}")));
        }
        let (_, first) = begun(&Key::draw().unwrap(), &own);
        assert!(find(&keys, &own, &first).unwrap().is_none());
        assert!(find(&Keys::default(), &own, &first).unwrap().is_none());
        let start = std::time::Instant::now();
        (0..100).for_each(|_| drop(find(&keys, &own, &first).unwrap()));
        println!("{:?} for {MAX_KEYS} keys", start.elapsed() / 100);
    }

    #[test]
    fn a_message_is_cut_into_packets_that_are_full_and_opens_whole() {
        let (key, own) = (Key::from_bytes([5; 32]), prologue(&prefix(Security::Key)));
        let (mut source, first) = begun(&key, &own);
        let (mut target, _) = find(&Keys::from(key), &own, &first).unwrap().unwrap();
        let (mut message, mut nothing) = ([0; 100], [0; 100]);
        let len = target.write_message(&[], &mut message).unwrap();
        source.read_message(&message[..len], &mut nothing).unwrap();
        let open = |noise: HandshakeState| State::Open(Box::new(noise.into_transport_mode().unwrap()));
        let seal = |state| Seal { state, raw: Vec::new(), greeted: true, key: None };
        let (mut source, mut target) = (seal(open(source)), seal(open(*target)));
        for (len, packets) in [(1, 1), (65_519, 1), (65_520, 2), (200_000, 4)] {
            let sealed = source.close(&vec![7; len]).unwrap();
            assert_eq!(sealed.len(), len + packets * (HEAD + TAG));
            let mut incoming = Incoming::sealed();
            // However it comes: nothing is lost at the seams.
            for part in sealed.chunks(10_007) {
                target.raw.extend(part);
                target.take(&mut incoming, &mut Outgoing::new(), &peer()).unwrap();
            }
            assert!(target.raw.is_empty());
            // They are no message, but as many bytes as one that is cut short.
            let error = incoming.end(&peer());
            assert!(matches!(error, Error::CutShort { found, .. } if found == len), "{error}");
        }
    }
}
