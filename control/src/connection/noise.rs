//! Noise encryption of a control connection over TCP. Only holders of the key can join or read it.
//!
//! It uses the Noise protocol framework (revision 34), pattern `NNpsk0`, by the crate snow, in this layout:
//!
//! ```text
//! source                                target
//! prefix, packet: psk, e  ─────────────▶
//!                         ◀───────────── prefix, packet: e, ee, with the prefix once more inside
//! packets                 ◀────────────▶ packets
//! ```

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use farjump_os::scrubbed;
use rustix::io::Errno;
use snow::{Builder, HandshakeState, TransportState};

use crate::connection::preamble::{PREFIX_LEN, Security, prefix, read_prefix};
use crate::connection::recv_buffer::{Filled, Incoming};
use crate::connection::send_queue::Outgoing;
use crate::error::system;
use crate::key::Key;
use crate::key::keys::{Keys, NamedKey};
use crate::peer_identity::PeerIdentity;
use crate::tcp;
use crate::{ControlOperation, ControlSystemError, HandshakeError, MessageFault};

/// The Noise protocol in use. Both processes must agree on its name.
const NOISE: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// Start of the prologue, before the source's preamble. Noise separates the parts: the source writes first.
const PROLOGUE: &[u8] = b"farjump control connection, source to target";
/// Bytes that Noise adds to each packet.
const TAG: usize = 16;
/// Length of a public key of the handshake, in bytes.
const EPHEMERAL: usize = 32;
/// Lengths of the handshakes in bytes: the source's, and the target's, which contains its preamble.
const HANDSHAKES: (usize, usize) = (EPHEMERAL + TAG, EPHEMERAL + TAG + PREFIX_LEN);
/// Length of a packet's head in bytes.
const HEAD: usize = 2;
/// Longest packet in bytes without its head: the limit of Noise.
const MAX_PACKET: usize = 65_535;
/// Smallest read after the handshake, in bytes.
const READ: usize = 4096;

/// The encryption of one process's end of a connection.
///
/// A packet is its length (`u16`, little-endian) and that many bytes. Length 0 instead of the target's
/// handshake says that the keys differ. The source's preamble ("prefix") is in Noise's prologue and the
/// target's in the handshake, so both notice changes. Later packets hold messages of the connection, cut
/// where a packet is full.
pub(crate) struct Seal {
    state: State,
    /// Bytes not yet decrypted: a part of one packet, or some small ones.
    raw: Vec<u8>,
    /// True if a valid preamble of the peer has come.
    greeted: bool,
    /// At a target, the source's key.
    key: Option<Arc<NamedKey>>,
}

enum State {
    /// At a target: waits for the source's handshake, which proves one of these keys.
    Waiting(Keys),
    /// At a source: waits for the target's handshake.
    Shaking(Box<HandshakeState>),
    /// Both processes have the key.
    Open(Box<TransportState>),
    /// The handshake failed.
    Failed,
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Seal").field("open", &self.is_open()).finish_non_exhaustive()
    }
}

impl Seal {
    /// Makes a target's encryption, which sends nothing before the source does.
    ///
    /// # Errors
    /// None. Builds without the feature `key` refuse here.
    pub(crate) fn target(keys: Keys) -> Result<Seal, ControlSystemError> {
        Ok(Seal { state: State::Waiting(keys), raw: Vec::new(), greeted: false, key: None })
    }

    /// Returns the source's key, once a target knows it.
    pub(crate) fn key(&self) -> Option<&Arc<NamedKey>> {
        self.key.as_ref()
    }

    /// Tries these keys instead, unless the source's key is known already.
    pub(crate) fn try_keys(&mut self, keys: &Keys) {
        if let State::Waiting(waiting) = &mut self.state {
            waiting.clone_from(keys);
        }
    }

    /// Makes a source's encryption, and its first bytes: preamble and handshake.
    ///
    /// # Errors
    /// When the system gives no random bytes.
    pub(crate) fn source(key: &Key) -> Result<(Seal, Vec<u8>), ControlSystemError> {
        let own = prefix(Security::Key);
        let mut first = own.to_vec();
        let noise = scrubbed(|| {
            let mut noise = builder(&prologue(&own)).and_then(Builder::build_initiator).map_err(broken)?;
            with_key(&mut noise, key, |noise| shake(noise, &[], &mut first))?;
            Ok::<_, ControlSystemError>(Box::new(noise))
        })?;
        Ok((Seal { state: State::Shaking(noise), raw: Vec::new(), greeted: false, key: None }, first))
    }

    /// Takes bytes of the connection that were read before: at most a preamble.
    pub(crate) fn begin_with(
        &mut self,
        bytes: Vec<u8>,
        outgoing: &mut Outgoing,
        peer: &PeerIdentity,
    ) -> Result<(), HandshakeError> {
        self.raw = bytes;
        self.take(&mut Incoming::sealed(), outgoing, peer)
    }

    /// Returns whether nothing has come yet.
    pub(crate) fn is_untouched(&self) -> bool {
        !self.greeted && self.raw.is_empty()
    }

    /// Returns whether the handshake is over and messages may travel.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// Encrypts `bytes` into packets.
    ///
    /// # Errors
    /// Before the seal is open.
    pub(crate) fn close(&mut self, bytes: &[u8]) -> Result<Vec<u8>, ControlSystemError> {
        let State::Open(noise) = &mut self.state else {
            return Err(system(ControlOperation::Encrypt, "", Errno::NOTCONN));
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

    /// Reads once from a nonblocking `socket`, and gives `incoming` the bytes that it can decrypt. The
    /// handshake's response goes to `outgoing`, also on failure, so that the peer learns the reason.
    ///
    /// # Errors
    /// [`HandshakeError::NotFarjump`], [`HandshakeError::Version`], [`HandshakeError::KeyUnknown`],
    /// [`HandshakeError::WrongKey`], [`HandshakeError::Tampered`], [`HandshakeError::Garbled`],
    /// [`HandshakeError::Silent`], [`HandshakeError::System`].
    pub(crate) fn fill(
        &mut self,
        socket: BorrowedFd<'_>,
        incoming: &mut Incoming,
        outgoing: &mut Outgoing,
        peer: &PeerIdentity,
    ) -> Result<Filled, HandshakeError> {
        let have = self.raw.len();
        let due = self.due().saturating_sub(have);
        // From an unknown peer only the bytes of the handshake are taken.
        let space = if self.is_open() { due.max(READ) } else { due };
        self.raw.resize(have + space, 0);
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
            Err(error) => Err(tcp::failure(error, ControlOperation::Receive, socket, peer)),
        }
    }

    /// An empty packet, which no honest peer sends.
    #[cfg(test)]
    pub(crate) fn empty_packet(&mut self) -> Vec<u8> {
        let State::Open(noise) = &mut self.state else { panic!("it is not open") };
        let mut packet = vec![0; HEAD + TAG];
        packet[..HEAD].copy_from_slice(&(TAG as u16).to_le_bytes());
        noise.write_message(&[], &mut packet[HEAD..]).unwrap();
        packet
    }

    /// Returns the number of bytes of a packet or the preamble that have come, and the number expected, for
    /// an end of the connection now. `None` if no part of either is here.
    pub(crate) fn cut_short(&self) -> Option<(usize, usize)> {
        (!self.raw.is_empty()).then(|| (self.raw.len(), self.due()))
    }

    /// Returns how many bytes must be here before the next step.
    fn due(&self) -> usize {
        match self.raw.first_chunk() {
            _ if !self.greeted => PREFIX_LEN,
            None => HEAD,
            Some(head) => HEAD + usize::from(u16::from_le_bytes(*head)),
        }
    }

    /// Processes the bytes as far as possible.
    fn take(
        &mut self,
        incoming: &mut Incoming,
        outgoing: &mut Outgoing,
        peer: &PeerIdentity,
    ) -> Result<(), HandshakeError> {
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
                        let what = |_| HandshakeError::Tampered { peer: peer.to_string() };
                        incoming
                            .extend(len.saturating_sub(TAG), |space| noise.read_message(packet, space))
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
                            let (noise, key) = reply(&keys, packet, outgoing, peer)?;
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

    /// Returns whether the peer's preamble is here and valid. A target sends its own even if versions differ.
    fn greet(&mut self, outgoing: &mut Outgoing, peer: &PeerIdentity) -> Result<bool, HandshakeError> {
        let theirs = read_prefix(&self.raw, peer);
        let is_target = matches!(self.state, State::Waiting(_));
        if is_target && matches!(theirs, Ok(Some(_)) | Err(HandshakeError::Version { .. })) {
            outgoing.push_raw(prefix(Security::Key).to_vec());
        }
        match theirs? {
            None => return Ok(false),
            Some(Security::Plain) => return Err(HandshakeError::KeyUnknown { peer: peer.to_string() }),
            Some(Security::Key) => {}
        }
        Ok(true)
    }
}

/// Checks the fixed length of a handshake. A target may send an empty packet instead if the keys differ.
fn check_handshake(len: usize, by_target: bool, peer: &PeerIdentity) -> Result<(), HandshakeError> {
    let expected = if by_target { HANDSHAKES.1 } else { HANDSHAKES.0 };
    match len {
        0 if by_target => Err(HandshakeError::WrongKey { peer: peer.to_string() }),
        len if len == expected => Ok(()),
        len => {
            let fault = MessageFault::NoiseLength { len, expected };
            Err(HandshakeError::Garbled { peer: peer.to_string(), fault })
        }
    }
}

/// Takes the target's handshake.
fn finish(
    mut noise: HandshakeState,
    packet: &[u8],
    peer: &PeerIdentity,
) -> Result<TransportState, HandshakeError> {
    let mut payload = [0; PREFIX_LEN];
    let read = noise.read_message(packet, &mut payload);
    // The target decrypted our handshake, so it has the key. Its response can only have been changed on the
    // way.
    let authentic = read.is_ok() && payload == prefix(Security::Key);
    if !authentic {
        return Err(HandshakeError::Tampered { peer: peer.to_string() });
    }
    Ok(noise.into_transport_mode().map_err(broken)?)
}

/// Takes the source's handshake, and responds with the key that it was made with.
fn reply(
    keys: &Keys,
    packet: &[u8],
    outgoing: &mut Outgoing,
    peer: &PeerIdentity,
) -> Result<(TransportState, Arc<NamedKey>), HandshakeError> {
    // `read_prefix` has checked, bit by bit, that the source's preamble is the same.
    let own = prefix(Security::Key);
    let Some((mut noise, key)) = find(keys, &prologue(&own), packet)? else {
        outgoing.push_raw(vec![0; HEAD]);
        return Err(HandshakeError::WrongKey { peer: peer.to_string() });
    };
    let mut reply = Vec::with_capacity(HEAD + HANDSHAKES.1);
    shake(&mut noise, &own, &mut reply)?;
    outgoing.push_raw(reply);
    Ok((noise.into_transport_mode().map_err(broken)?, key))
}

/// A state of Noise that has decrypted a source's handshake, and the key that did.
type Opened = (Box<HandshakeState>, Arc<NamedKey>);

/// Finds the key that decrypts the source's handshake, and the resulting state of Noise. All keys are tried
/// in any case, so that the time reveals only their number; none takes arithmetic on the curve.
fn find(keys: &Keys, prologue: &[u8], packet: &[u8]) -> Result<Option<Opened>, HandshakeError> {
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

/// Makes a builder of a state of Noise, without the key, which would be copied along with it.
fn builder(prologue: &[u8]) -> Result<Builder<'_>, snow::Error> {
    Builder::new(NOISE.parse()?).prologue(prologue)
}

/// Gives `noise` the key while `step` works with it: only the first message of the handshake takes it.
fn with_key<T>(noise: &mut HandshakeState, key: &Key, step: impl FnOnce(&mut HandshakeState) -> T) -> T {
    // The key has the right length, and location 0 exists.
    let known = noise.set_psk(0, key.bytes());
    debug_assert!(known.is_ok(), "the pattern has one key");
    let done = step(noise);
    drop(noise.set_psk(0, &[0; Key::LEN]));
    // Keeps the compiler from dropping the write as dead.
    std::hint::black_box(noise);
    done
}

/// Appends this process's handshake to `to`, as a packet.
fn shake(noise: &mut HandshakeState, payload: &[u8], to: &mut Vec<u8>) -> Result<(), ControlSystemError> {
    let mut message = [0; HANDSHAKES.1];
    let len = noise.write_message(payload, &mut message).map_err(broken)?;
    to.extend((len as u16).to_le_bytes());
    to.extend(&message[..len]);
    Ok(())
}

/// Converts a local error of Noise, which has one cause: the system gives no randomness.
fn broken(error: snow::Error) -> ControlSystemError {
    system(ControlOperation::Encrypt, "", std::io::Error::other(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MAX_KEYS;

    fn peer() -> PeerIdentity {
        PeerIdentity::at("127.0.0.1:1".parse().unwrap(), "a process")
    }

    /// Returns a source's state after its first message, and that message.
    fn begun(key: &Key, prologue: &[u8]) -> (HandshakeState, Vec<u8>) {
        let mut noise = builder(prologue).unwrap().build_initiator().unwrap();
        let mut first = Vec::new();
        with_key(&mut noise, key, |noise| shake(noise, &[], &mut first)).unwrap();
        first.drain(..HEAD);
        (noise, first)
    }

    /// Returns the outcome of a handshake at the target and, if there is one, at the source. The source binds
    /// one preamble, the target another, and the target sends the source a third one.
    fn shaken(
        bound: [&[u8]; 2],
        preamble: &[u8],
    ) -> (Result<(), HandshakeError>, Option<Result<(), HandshakeError>>) {
        let key = Key::from_bytes([5; 32]);
        let [there, here] = bound.map(prologue);
        let (source, first) = begun(&key, &there);
        let keys = Keys::from(key);
        let found = find(&keys, &here, &first).unwrap();
        if preamble == prefix(Security::Key) {
            let outcome = found.map(drop).ok_or(HandshakeError::WrongKey { peer: peer().to_string() });
            return (outcome, None);
        }
        let (mut target, _) = found.unwrap();
        let mut second = Vec::new();
        shake(&mut target, preamble, &mut second).unwrap();
        (Ok(()), Some(finish(source, &second[HEAD..], &peer()).map(drop)))
    }

    #[test]
    fn a_changed_prefix_fails_the_handshake_at_its_reader() {
        let own = prefix(Security::Key);
        let mut other = own;
        // The version.
        other[8] ^= 0x40;
        let (target, _) = shaken([&own, &own], &own);
        target.unwrap();
        let (target, _) = shaken([&own, &other], &own);
        assert!(matches!(target, Err(HandshakeError::WrongKey { .. })), "{target:?}");
        let (_, source) = shaken([&own, &own], &other);
        assert!(matches!(source, Some(Err(HandshakeError::Tampered { .. }))), "{source:?}");
    }

    #[test]
    fn only_the_fitting_key_is_found_among_many_at_any_position() {
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
            // In pieces of any length: nothing is lost at the seams.
            for part in sealed.chunks(10_007) {
                target.raw.extend(part);
                target.take(&mut incoming, &mut Outgoing::new(), &peer()).unwrap();
            }
            assert!(target.raw.is_empty());
            // No message, but as many bytes as one that is cut short.
            let error = incoming.end(&peer());
            assert!(matches!(error, HandshakeError::CutShort { found, .. } if found == len), "{error}");
        }
    }
}
