//! The working of a link: sending, looking for answers, sleeping, noticing that the target is gone.

use std::os::fd::AsFd;
use std::time::Duration;

use farjump_core::channel::{Armed, Channel, Polled, SendError};
use farjump_core::frame::{Kind, Plan, ReplyStatus};
use farjump_core::image::Machine;
use farjump_core::transport::{ArrivalRules, TransportError};
use farjump_core::wait::{Turn, Waiter};
use farjump_loader::Library;
use farjump_transports::Error as MeetError;
use farjump_transports::meet::{Control, Message, PeerIdentity};
use rustix::event::{PollFd, PollFlags};

use super::calls::{Calls, MAX_CALLS, ReplyBytes};
use super::codes::{Codes, Known};
use super::connect::Settings;
use super::send::{Call, Failed, image_of};
use super::{Deadline, LinkStats};
use crate::sleep::{borrow, timespec};
use crate::{Error, Refusal};

/// Longest sleep at a stretch, so that a ring that got lost delays and never hangs.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// Longest nap where nothing rings.
const NAP: Duration = Duration::from_millis(1);
/// Turns of a wait after which the target is told what has been consumed, and the clock is read.
const TURNS_TO_IDLE: u32 = 256;

/// Marks the tokens of frames for which nobody waits: no slot has so high a number ([`MAX_CALLS`]). The code index in the
/// upper half tells which function a refusal means.
const ONE_WAY: u32 = MAX_CALLS as u32;

fn one_way_token(index: u16) -> u32 {
    ONE_WAY | u32::from(index) << 16
}

pub(super) struct Inner {
    pub(super) settings: Settings,
    channel: Channel,
    control: Control,
    calls: Calls,
    codes: Codes,
    machine: Machine,
    epoch: u64,
    transport: String,
    stats: LinkStats,
    /// First refusal of a frame for which nobody waits, for the next flush.
    refusal: Option<Error>,
    /// Placing times told by the target: code index and nanoseconds.
    link_times: Vec<(u16, u64)>,
    /// Why the target is gone.
    gone: Option<String>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Link")
            .field("address", &self.settings.address)
            .field("transport", &self.transport)
            .field("gone", &self.gone)
            .finish_non_exhaustive()
    }
}

impl Inner {
    pub(super) fn connect(mut settings: Settings) -> Result<Inner, Error> {
        let met = settings.meet()?;
        Ok(Inner {
            channel: met.channel,
            control: met.control,
            calls: Calls::default(),
            codes: Codes::default(),
            machine: met.machine,
            epoch: met.epoch,
            transport: met.transport,
            stats: LinkStats::default(),
            refusal: None,
            link_times: Vec::new(),
            gone: None,
            settings,
        })
    }

    pub(super) fn reconnect(&mut self) -> Result<(), Error> {
        let met = self.settings.meet()?;
        self.leave();
        let why = "the link was made anew before the answer came";
        let peer = self.settings.address.clone();
        self.calls.fail_all(|| Error::PeerGone { peer: peer.clone(), why: why.into() });
        self.codes.unbind();
        self.channel = met.channel;
        self.control = met.control;
        self.machine = met.machine;
        self.epoch = met.epoch;
        self.transport = met.transport;
        self.link_times.clear();
        self.gone = None;
        Ok(())
    }

    // ---- sending ----

    #[inline]
    pub(super) fn inject(
        &mut self,
        library: &Library,
        args: &[u8],
        wants_reply: bool,
        wait: bool,
    ) -> Result<u32, Error> {
        if self.gone.is_some() {
            return Err(self.gone_error());
        }
        let index = self.codes.index(library, self.machine)?;
        let token = if wants_reply {
            self.calls.open(index as u16).ok_or(Error::TooManyCalls(MAX_CALLS))?
        } else {
            one_way_token(index as u16)
        };
        let sent = self.send(library, args, index, token, wants_reply, wait);
        if sent.is_err() && wants_reply {
            self.calls.close(token);
        }
        sent.map(|()| token)
    }

    #[inline]
    fn send(
        &mut self,
        library: &Library,
        args: &[u8],
        index: usize,
        token: u32,
        wants_reply: bool,
        wait: bool,
    ) -> Result<(), Error> {
        let deadline = Deadline(None);
        let mut call =
            Call { library, args, index: index as u16, token, wants_reply, epoch: self.epoch, deadline };
        let mut waited = None;
        loop {
            let code = self.codes.get(index);
            match call.send(&mut self.channel, code) {
                Ok(sent) => {
                    if code.known != Known::Bound {
                        self.codes.set_known(index, Known::Bound);
                        self.stats.frames_with_code += u64::from(sent.code != 0);
                        self.stats.code_bytes += sent.code as u64;
                    }
                    self.stats.frames += 1;
                    self.stats.payload_bytes += sent.payload as u64;
                    return Ok(());
                }
                Err(Failed::Send(SendError::Full)) => {
                    if !wait {
                        return Err(self.full());
                    }
                    let limit = self.settings.send_timeout;
                    let (deadline, waiter) = waited
                        .get_or_insert_with(|| (Deadline::after(limit), Waiter::new(self.settings.wait)));
                    call.deadline = *deadline;
                    let deadline = *deadline;
                    let mut turn = *waiter;
                    self.turn(&mut turn, deadline)?;
                    if let Some((_, waiter)) = &mut waited {
                        *waiter = turn;
                    }
                    if deadline.passed() {
                        let peer = &self.settings.address;
                        return Err(Error::Timeout {
                            what: format!("waiting for room in the mailbox of {peer}"),
                        });
                    }
                }
                Err(Failed::Send(SendError::TooLarge { len, max })) => {
                    return Err(Error::TooLarge { ifunc: library.name().into(), len, max });
                }
                Err(Failed::Send(SendError::Failed(error))) => return Err(self.broken(&error)),
                Err(Failed::Other(error)) => return Err(error),
            }
        }
    }

    /// There is no room, and the caller does not wait: but if that is because the target is gone, say so.
    #[cold]
    fn full(&mut self) -> Error {
        match self.look() {
            Ok(()) => Error::Full,
            Err(error) => error,
        }
    }

    pub(super) fn flush(&mut self, timeout: Duration) -> Result<(), Error> {
        if self.gone.is_some() {
            return Err(self.gone_error());
        }
        let deadline = Deadline::after(timeout);
        let token = self.calls.open(u16::MAX).ok_or(Error::TooManyCalls(MAX_CALLS))?;
        let plan = Plan { kind: Kind::Flush, wants_reply: true, index: 0, token, align_log2: 0, code: None };
        let mut waiter = Waiter::new(self.settings.wait);
        loop {
            let sent = self.channel.reserve(&plan, 0).and_then(|room| self.channel.commit(&plan, &room, 0));
            match sent {
                Ok(()) => break,
                Err(SendError::Full) if !deadline.passed() => self.turn(&mut waiter, deadline)?,
                Err(SendError::Failed(error)) => return Err(self.broken(&error)),
                Err(_) => {
                    self.calls.close(token);
                    return Err(self.timeout("flushing"));
                }
            }
        }
        self.wait_until(token, deadline, "flushing")?;
        match self.refusal.take() {
            Some(refusal) => Err(refusal),
            None => Ok(()),
        }
    }

    // ---- waiting ----

    #[inline]
    pub(super) fn wait(&mut self, token: u32, timeout: Duration) -> Result<ReplyBytes, Error> {
        // The clock is read only once the answer has kept us waiting for a while.
        let mut turns = 0;
        loop {
            if let Some(answer) = self.calls.take(token) {
                return answer;
            }
            if !self.step()? {
                turns += 1;
                if turns == TURNS_TO_IDLE {
                    return self.wait_until(token, Deadline::after(timeout), "waiting for a reply");
                }
            }
        }
    }

    #[cold]
    fn wait_until(&mut self, token: u32, deadline: Deadline, what: &str) -> Result<ReplyBytes, Error> {
        let mut waiter = Waiter::new(self.settings.wait);
        loop {
            if let Some(answer) = self.calls.take(token) {
                return answer;
            }
            if self.gone.is_some() {
                return Err(self.gone_error());
            }
            if deadline.passed() {
                self.calls.abandon(token);
                return Err(self.timeout(what));
            }
            self.turn(&mut waiter, deadline)?;
        }
    }

    pub(super) fn wait_into(
        &mut self,
        token: u32,
        timeout: Duration,
        into: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let answer = self.wait(token, timeout)?;
        into.extend_from_slice(&answer);
        Ok(())
    }

    pub(super) fn poll_call(&mut self, token: u32) -> Result<Option<ReplyBytes>, Error> {
        if let Some(answer) = self.calls.take(token) {
            return answer.map(Some);
        }
        self.look()?;
        self.calls.take(token).transpose()
    }

    pub(super) fn abandon(&mut self, token: u32) {
        self.calls.abandon(token);
    }

    /// Some turns of a wait: look, and if there is nothing wait as the policy says. At most one sleep.
    fn turn(&mut self, waiter: &mut Waiter, deadline: Deadline) -> Result<(), Error> {
        for _ in 0..TURNS_TO_IDLE {
            if self.step()? {
                waiter.reset();
                return Ok(());
            }
            match waiter.turn() {
                Turn::Again => {}
                Turn::Yield => {
                    std::thread::yield_now();
                    break;
                }
                Turn::Sleep => {
                    self.sleep(deadline)?;
                    return self.look();
                }
            }
        }
        self.progress(true)
    }

    /// Looks for frames and for news, without waiting.
    pub(super) fn look(&mut self) -> Result<(), Error> {
        while self.step()? {}
        self.progress(true)?;
        self.read_control()
    }

    fn progress(&mut self, idle: bool) -> Result<(), Error> {
        match self.channel.progress(idle) {
            Ok(false) => Ok(()),
            Ok(true) => self.read_control(),
            Err(error) => Err(self.broken(&error)),
        }
    }

    /// Takes one frame, if one is there.
    #[inline]
    fn step(&mut self) -> Result<bool, Error> {
        let frame = match self.channel.poll() {
            Ok(Polled::Frame(frame)) => frame,
            Ok(Polled::Nothing | Polled::Partial) => return Ok(false),
            Err(error) => return Err(self.broken(&error)),
        };
        let header = *frame.header();
        if header.kind == Kind::Reply {
            let (calls, codes, channel) = (&mut self.calls, &self.codes, &self.channel);
            if header.index == ReplyStatus::Done as u16 {
                calls.answer(header.token, || {
                    let mut bytes = ReplyBytes::new();
                    if header.payload_len != 0 {
                        channel.copy_payload(&mut bytes);
                    }
                    Ok(bytes)
                });
            } else {
                let code = calls.code(header.token);
                calls.answer(header.token, || {
                    let mut message = Vec::new();
                    channel.copy_payload(&mut message);
                    let ifunc =
                        code.map_or_else(String::new, |code| codes.get(code.into()).library.name().into());
                    Err(Error::Panicked { ifunc, message: String::from_utf8_lossy(&message).into_owned() })
                });
            }
        }
        // Frames of other kinds a target does not send; there is nothing to run here.
        match self.channel.release() {
            Ok(()) => Ok(true),
            Err(error) => Err(self.broken(&error)),
        }
    }

    fn sleep(&mut self, deadline: Deadline) -> Result<(), Error> {
        let armed = match self.channel.arm() {
            Ok(armed) => armed,
            Err(error) => return Err(self.broken(&error)),
        };
        let longest = match armed {
            Armed::Ready => return Ok(()),
            Armed::Sleep(_) => LONGEST_SLEEP,
            Armed::Nap => NAP,
        };
        let interest =
            if self.control.wants_write() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let control = PollFd::from_borrowed_fd(self.control.as_fd(), interest);
        let timeout = timespec(deadline.left().min(longest));
        let slept = match armed {
            Armed::Sleep(descriptor) => {
                // SAFETY: the channel lends the descriptor as long as it lives, and it outlives this call.
                let doorbell = unsafe { borrow(&descriptor) };
                rustix::event::poll(
                    &mut [control, PollFd::from_borrowed_fd(doorbell, PollFlags::IN)],
                    Some(&timeout),
                )
            }
            _ => rustix::event::poll(&mut [control], Some(&timeout)),
        };
        if let Err(error) = self.channel.disarm() {
            return Err(self.broken(&error));
        }
        match slept {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(Error::system("sleeping until a reply comes")(errno)),
        }
    }

    // ---- the control connection ----

    fn read_control(&mut self) -> Result<(), Error> {
        if self.gone.is_some() {
            return Err(self.gone_error());
        }
        loop {
            match self.control.recv() {
                Ok(Some((message, _))) => self.control_message(message)?,
                Ok(None) => break,
                Err(error) => return Err(self.gone(&error)),
            }
        }
        if self.control.wants_write()
            && let Err(error) = self.control.flush()
        {
            return Err(self.gone(&error));
        }
        Ok(())
    }

    fn control_message(&mut self, message: Message) -> Result<(), Error> {
        match message {
            Message::Refused { token, cause, text } => self.refused(token, Refusal { cause, text }),
            Message::NeedCode { id, .. } => return self.supply(id),
            Message::Linked { index, nanoseconds } => self.link_times.push((index, nanoseconds)),
            Message::Closing { text } => {
                // What was answered before is still in the mailbox.
                while self.gone.is_none() && self.step()? {}
                return Err(self.end(format!("it closed the link: {text}")));
            }
            other => log::debug!("{}: unexpected {} ignored", self.settings.address, other.name()),
        }
        Ok(())
    }

    fn refused(&mut self, token: u32, refusal: Refusal) {
        let one_way = token & ONE_WAY != 0;
        let code = if one_way { Some((token >> 16) as u16) } else { self.calls.code(token) };
        // Whatever the frame was to bind is not bound: the next call brings the code again.
        let mut ifunc = String::from("a frame");
        if let Some(code) = code.filter(|code| usize::from(*code) < self.codes.len()) {
            self.codes.set_known(code.into(), Known::Nothing);
            self.codes.get(code.into()).library.name().clone_into(&mut ifunc);
        }
        if one_way && let Some(handler) = &mut self.settings.on_refused {
            handler(&refusal);
        }
        let error = Error::Refused { ifunc, cause: refusal.cause, text: refusal.text };
        if one_way {
            self.refusal.get_or_insert(error);
        } else {
            self.calls.answer(token, || Err(error));
        }
    }

    /// The target asks for code.
    fn supply(&mut self, id: [u8; 16]) -> Result<(), Error> {
        let id = farjump_core::image::CodeId(id);
        let Some(code) = self.codes.by_id(&id) else {
            return self.tell(&Message::NoCode { id: id.0 });
        };
        let library = code.library.clone();
        if let Some(handler) = &mut self.settings.on_code_missing {
            handler(library.name());
        }
        let image = image_of(&library, &id);
        self.stats.code_bytes += image.len() as u64;
        self.tell(&Message::Code { id: id.0, image: image.to_vec() })
    }

    fn tell(&mut self, message: &Message) -> Result<(), Error> {
        match self.control.send(message, &[]) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.gone(&error)),
        }
    }

    pub(super) fn link_time(
        &mut self,
        library: &Library,
        timeout: Duration,
    ) -> Result<Option<Duration>, Error> {
        let index = self.codes.index(library, self.machine)?;
        let deadline = Deadline::after(timeout);
        loop {
            if let Some((_, time)) = self.link_times.iter().rev().find(|(of, _)| usize::from(*of) == index) {
                return Ok(Some(Duration::from_nanos(*time)));
            }
            if self.codes.get(index).known != Known::Bound || deadline.passed() {
                return Ok(None);
            }
            self.sleep(deadline)?;
            self.look()?;
        }
    }

    // ---- the end ----

    /// The control connection ended: the target is gone. Answers that came before are taken first.
    #[cold]
    fn gone(&mut self, error: &MeetError) -> Error {
        for _ in 0..MAX_CALLS {
            if self.gone.is_some() || !matches!(self.step(), Ok(true)) {
                break;
            }
        }
        self.end(error.to_string())
    }

    /// The transport failed, or the target broke the protocol.
    #[cold]
    fn broken(&mut self, error: &TransportError) -> Error {
        self.end(error.clone().with_peer(self.settings.address.clone()).to_string())
    }

    fn end(&mut self, why: String) -> Error {
        if self.gone.is_none() {
            if let Some(handler) = &mut self.settings.on_peer_gone {
                handler(&why);
            }
            let peer = self.settings.address.clone();
            self.calls.fail_all(|| Error::PeerGone { peer: peer.clone(), why: why.clone() });
            self.gone = Some(why);
        }
        self.gone_error()
    }

    #[cold]
    fn gone_error(&self) -> Error {
        let why = self.gone.clone().unwrap_or_default();
        Error::PeerGone { peer: self.settings.address.clone(), why }
    }

    #[cold]
    fn timeout(&self, what: &str) -> Error {
        Error::Timeout { what: format!("{what} from {}", self.settings.address) }
    }

    /// Says goodbye, so that the target need not find out.
    fn leave(&mut self) {
        if self.gone.is_none() && self.control.send(&Message::Bye, &[]).is_ok() {
            // Best effort: the end of the connection says the same.
            drop(self.control.flush());
        }
    }

    // ---- what is known ----

    pub(super) fn stats(&self) -> LinkStats {
        self.stats
    }

    pub(super) fn transport(&self) -> &str {
        &self.transport
    }

    pub(super) fn rule(&self) -> ArrivalRules {
        self.channel.rule()
    }

    pub(super) fn peer(&self) -> &PeerIdentity {
        self.control.peer()
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(super) fn max_frame(&self) -> usize {
        self.channel.max_frame()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.leave();
    }
}
