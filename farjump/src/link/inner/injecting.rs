//! Injecting: along the fast paths of mailboxes and of messages, and along the general path.

use std::time::Duration;

use farjump_control::Rights;
use farjump_core::channel::{BESIDE, PlainSent, SendError};
use farjump_core::frame::{INLINE_PAYLOAD, Kind};
use farjump_core::transport::TransportError;
use farjump_loader::Library;

use super::waiting::Wait;
use super::{Inner, Wants};
use crate::link::Deadline;
use crate::link::in_place;
use crate::link::pending_calls::MAX_CALLS;
use crate::link::send::{CANARY_LEN, Call, Failed, Sent, make_payload, run_payload_init};
use crate::link::sent_codes::Known;
use crate::policy::{may, takes_lines};
use crate::{Awaited, CallError, Error, InjectError, Mode, Refusal, WaitError};

impl Inner {
    /// Injects: along the fast path if the code is the one used last and bound, the payload fits a line and
    /// there is credit, else along the general path. Errors are boxed, and the token is as wide as their
    /// pointer, so that both travel in a register.
    ///
    /// The stores of the fast path count as much as its work: the processor takes stores back to the mailbox one after
    /// another, and has buffers for those of a few calls only (`docs/design/fast-path.md`). If the arguments are the
    /// payload, this function calls nothing, so it saves no registers either. Everything else is its last call, with
    /// arguments that fit registers.
    #[inline(never)]
    pub(in super::super) fn inject<const WANTS_REPLY: bool>(
        &mut self,
        library: &Library,
        args: &[u8],
        wants_credit: bool,
    ) -> Result<usize, Box<Error>> {
        let wants = Wants::new(WANTS_REPLY, wants_credit);
        if !library.payload_is_args() {
            return self.inject_made(library, args, wants);
        }
        let Some(index) = self.codes.last_used(library) else {
            return self.inject_slowly(library, args, args.len(), wants);
        };
        if args.len() <= INLINE_PAYLOAD
            && let Some(mut line) = self.connection.channel.clear_line()
            && let Some(plan) = self.pending.slots.plan_in_place(Kind::Call, index, WANTS_REPLY)
        {
            line.write(args);
            let must_look = line.send(&plan, args.len());
            self.stats.frames += 1;
            self.stats.payload_bytes += args.len() as u64;
            return if must_look { self.look_at_target(plan.token) } else { Ok(plan.token as usize) };
        }
        if !self.connection.channel.is_mapped() {
            return match self.connection.channel.has_mailbox() {
                true => self.inject_put(library, args, wants),
                false => self.inject_delivered_args(library, args, index, wants),
            };
        }
        if args.len() <= INLINE_PAYLOAD {
            return self.inject_sized(library, args, args.len(), wants);
        }
        self.inject_bound(library, args, args.len(), wants)
    }

    /// [`Inner::inject`] of arguments that are the payload, on a one-sided path whose peer's memory is not mapped.
    #[inline(never)]
    fn inject_put(&mut self, library: &Library, args: &[u8], wants: Wants) -> Result<usize, Box<Error>> {
        if args.len() <= INLINE_PAYLOAD
            && let Some(index) = self.codes.last_used(library)
            && let Some(plan) = self.pending.slots.plan_in_place(Kind::Call, index, wants.reply())
        {
            let sent = self.connection.channel.send_put(&plan, args);
            if sent != PlainSent::NotSent {
                self.stats.frames += 1;
                self.stats.payload_bytes += args.len() as u64;
                return match sent {
                    PlainSent::Look => self.look_at_target(plan.token),
                    _ => Ok(plan.token as usize),
                };
            }
            self.pending.slots.take_back(plan.token);
        }
        self.inject_put_lines(library, args, args.len(), wants)
    }

    /// Wakes the target if it fell asleep before the call with this token arrived. Returns the token.
    #[cold]
    fn look_at_target(&mut self, token: u32) -> Result<usize, Box<Error>> {
        match self.connection.channel.look_at_changed_peer() {
            Ok(()) => Ok(token as usize),
            Err(error) => Err(self.broken(&error).into()),
        }
    }

    /// [`Inner::inject`] for a payload that the library's routines make.
    #[inline(never)]
    fn inject_made(&mut self, library: &Library, args: &[u8], wants: Wants) -> Result<usize, Box<Error>> {
        let max = library.payload_max_size(args);
        self.inject_in_line(library, args, max, wants)
    }

    /// As [`Inner::inject`], for a payload of up to `max` bytes. Each call queries the library for that number once,
    /// because the library's routine may have much to count.
    #[inline(never)]
    pub(in super::super) fn inject_sized(
        &mut self,
        library: &Library,
        args: &[u8],
        max: usize,
        wants: Wants,
    ) -> Result<usize, Box<Error>> {
        self.inject_in_line(library, args, max, wants)
    }

    /// [`Inner::inject_sized`], as part of its callers.
    #[inline(always)]
    fn inject_in_line(
        &mut self,
        library: &Library,
        args: &[u8],
        max: usize,
        wants: Wants,
    ) -> Result<usize, Box<Error>> {
        let Some(index) = self.codes.last_used(library) else {
            return self.inject_slowly(library, args, max, wants);
        };
        if max <= INLINE_PAYLOAD
            && let Some(line) = self.connection.channel.line()
        {
            let used = make_payload(library, args, max, &line)?;
            if let Some(plan) = self.pending.slots.plan(Kind::Call, index, wants.reply()) {
                let sent = line.send(&plan, used);
                return self.sent_by_index(plan.token, used, sent).map(|token| token as usize);
            }
        }
        if !self.connection.channel.has_mailbox() {
            return if library.payload_is_args() {
                self.inject_delivered_args(library, args, index, wants)
            } else {
                self.inject_delivered(library, args, max, wants)
            };
        }
        self.inject_bound(library, args, max, wants)
    }

    /// [`Inner::inject_sized`] without a frame of one line: mostly for payloads that do not fit one.
    #[inline(never)]
    fn inject_bound(
        &mut self,
        library: &Library,
        args: &[u8],
        max: usize,
        wants: Wants,
    ) -> Result<usize, Box<Error>> {
        if max > self.connection.target.limits.payload {
            return self.inject_slowly(library, args, max, wants);
        }
        let Some(index) = self.codes.last_used(library) else {
            return self.inject_slowly(library, args, max, wants);
        };
        if max > INLINE_PAYLOAD
            && let Some(lines) = self.connection.channel.lines(max.saturating_add(CANARY_LEN))
        {
            // SAFETY: the lines lend `max + CANARY_LEN` bytes.
            let used = unsafe { run_payload_init(library, lines.payload().as_ptr(), max, args)? };
            if let Some(plan) = self.pending.slots.plan(Kind::Call, index, wants.reply()) {
                let sent = lines.send(&plan, used);
                return self.sent_by_index(plan.token, used, sent).map(|token| token as usize);
            }
        }
        self.inject_put_lines(library, args, max, wants)
    }

    /// [`Inner::inject_bound`] on a one-sided path whose peer's memory is not mapped, or along the general path.
    #[inline(never)]
    fn inject_put_lines(
        &mut self,
        library: &Library,
        args: &[u8],
        max: usize,
        wants: Wants,
    ) -> Result<usize, Box<Error>> {
        if let Some(index) = self.codes.last_used(library)
            && let Some(space) = self.connection.channel.put_space(Kind::Call, max.saturating_add(CANARY_LEN))
        {
            // SAFETY: the channel lends `max + CANARY_LEN` bytes with `space`.
            let used = unsafe { run_payload_init(library, space.payload().as_ptr(), max, args)? };
            if let Some(plan) = self.pending.slots.plan(Kind::Call, index, wants.reply()) {
                if let Err(error) = space.commit(&plan, used) {
                    self.not_sent(plan.token, error)?;
                } else {
                    return self.sent_by_index(plan.token, used, Ok(())).map(|token| token as usize);
                }
            }
        }
        self.inject_slowly(library, args, max, wants)
    }

    /// Counts a call that was sent by its code index.
    #[inline(always)]
    fn sent_by_index(
        &mut self,
        token: u32,
        used: usize,
        sent: Result<(), TransportError>,
    ) -> Result<u32, Box<Error>> {
        self.stats.frames += 1;
        self.stats.payload_bytes += used as u64;
        match sent {
            Ok(()) => Ok(token),
            Err(error) => Err(self.broken(&error).into()),
        }
    }

    /// [`Inner::inject`] on a two-sided path of arguments that are the payload, for the code with this index.
    #[inline(never)]
    fn inject_delivered_args(
        &mut self,
        library: &Library,
        args: &[u8],
        index: u16,
        wants: Wants,
    ) -> Result<usize, Box<Error>> {
        // The general path can send long arguments from where they lie.
        if args.len() < BESIDE
            && args.len() <= self.connection.target.limits.payload
            && let Some(plan) = self.pending.slots.plan_in_place(Kind::Call, index, wants.reply())
        {
            if self.connection.channel.send_message(&plan, args) {
                self.stats.frames += 1;
                self.stats.payload_bytes += args.len() as u64;
                return Ok(plan.token as usize);
            }
            self.pending.slots.take_back(plan.token);
        }
        self.inject_slowly(library, args, args.len(), wants)
    }

    /// [`Inner::inject_sized`] on a two-sided path.
    #[inline(never)]
    fn inject_delivered(
        &mut self,
        library: &Library,
        args: &[u8],
        max: usize,
        wants: Wants,
    ) -> Result<usize, Box<Error>> {
        if max <= self.connection.target.limits.payload
            && let Some(index) = self.codes.last_used(library)
            && let Some(space) = self.connection.channel.message(max.saturating_add(CANARY_LEN))
        {
            // SAFETY: the channel lends `max + CANARY_LEN` bytes with `space`.
            let used = unsafe { run_payload_init(library, space.payload().as_ptr(), max, args)? };
            if let Some(plan) = self.pending.slots.plan(Kind::Call, index, wants.reply()) {
                if space.send(&plan, used) {
                    return self.sent_by_index(plan.token, used, Ok(())).map(|token| token as usize);
                }
                self.pending.slots.take_back(plan.token);
            }
        }
        self.inject_slowly(library, args, max, wants)
    }

    /// Frees the token of a frame that the channel did not take. The general path may send it: `None`, unless
    /// the link failed.
    #[cold]
    fn not_sent(&mut self, token: u32, error: SendError) -> Result<Option<u32>, Box<Error>> {
        self.pending.slots.take_back(token);
        match error {
            SendError::Failed(error) => Err(self.broken(&error).into()),
            SendError::Full | SendError::TooLarge { .. } => Ok(None),
        }
    }

    /// Checks that this source may bring code to the target.
    #[cold]
    fn may_bring(&self, library: &Library) -> Result<(), Box<Error>> {
        let has_key = || self.settings.tcp.key.is_some();
        may(self.connection.target.rights, Rights::INJECT, has_key).map_err(|Refusal { cause, text }| {
            Error::Call(CallError::Refused { ifunc: library.name().to_owned(), cause, text }).into()
        })
    }

    /// The general path. `max` is the library's limit for this payload in bytes.
    #[inline(never)]
    fn inject_slowly(
        &mut self,
        library: &Library,
        args: &[u8],
        max: usize,
        wants: Wants,
    ) -> Result<usize, Box<Error>> {
        let wants_reply = wants.reply();
        if self.connection.control.gone.is_some() || self.connection.control.leaving.is_some() {
            return Err(self.gone_error().into());
        }
        let patience = if wants.credit() { self.settings.send_timeout } else { Duration::ZERO };
        self.send_several(patience)?;
        let mode = self.settings.mode;
        if mode != Mode::Cached
            && let Some(token) = self.inject_stamped(library, args, max, wants_reply)?
        {
            return Ok(token as usize);
        }
        if matches!(mode, Mode::Always | Mode::InPlace)
            && !self.connection.target.rights.contains(Rights::INJECT)
        {
            self.may_bring(library)?;
        }
        let recent = self.codes.recent_index(library);
        let index = match recent {
            Some(index) => index,
            None => self.switch_to(library)?,
        };
        if mode == Mode::InPlace {
            in_place::check(library, &self.connection.target.cpu, &self.connection.channel)?;
        }
        if mode == Mode::Cached && takes_lines(&self.connection.target.limits) {
            self.codes.warm(library, index);
        }
        let alone = wants_reply && self.pending.slots.none_in_flight();
        let Some(token) = self.pending.slots.token(index, wants_reply) else {
            return Err(Error::Inject(InjectError::TooManyCalls { max: MAX_CALLS }).into());
        };
        let target = &self.connection.target;
        let (epoch, rights) = (target.epoch, target.rights);
        let (max_payload, max_image) = (target.limits.payload, target.limits.image);
        let call = Call {
            library,
            args,
            max,
            index,
            token,
            wants_reply,
            alone,
            mode,
            epoch,
            patience,
            max_payload,
            max_image,
            rights,
        };
        let sent = match call.send(&mut self.connection.channel, self.codes.get(index.into())) {
            Ok(sent) => {
                if mode != Mode::Cached
                    && self.codes.with_template(library, mode).is_none()
                    && let Some(template) =
                        call.template(&self.connection.channel, self.codes.get(index.into()))
                {
                    self.codes.set_template(index, mode, template);
                }
                self.sent(index.into(), sent);
                Ok(())
            }
            Err(failed) => self.send_again(&call, failed),
        };
        match sent {
            Ok(()) => {
                if recent.is_none() && wants_reply {
                    self.codes.mark(token);
                }
                Ok(token as usize)
            }
            Err(error) => {
                self.pending.slots.take_back(token);
                Err(error.into())
            }
        }
    }

    /// Injects the code used last by its frame template, if there is credit right away. `None` if not:
    /// nothing was sent then.
    fn inject_stamped(
        &mut self,
        library: &Library,
        args: &[u8],
        max: usize,
        wants_reply: bool,
    ) -> Result<Option<u32>, Box<Error>> {
        let mode = self.settings.mode;
        let Some((index, template)) = self.codes.with_template(library, mode) else { return Ok(None) };
        if max > self.connection.target.limits.payload {
            return Ok(None);
        }
        let image_len = template.image_len();
        let Some(space) =
            self.connection.channel.reserve_from_template(template, max.saturating_add(CANARY_LEN))
        else {
            return Ok(None);
        };
        // SAFETY: the channel lends `max + CANARY_LEN` bytes with `space`.
        let used = unsafe { run_payload_init(library, space.payload().as_ptr(), max, args)? };
        let kind = if mode == Mode::Local { Kind::CallLocal } else { Kind::CallCode };
        let Some(plan) = self.pending.slots.plan(kind, index, wants_reply) else { return Ok(None) };
        match space.commit(&plan, used) {
            Ok(()) => {
                self.sent(index.into(), Sent { payload: used, code: image_len, binds: false });
                Ok(Some(plan.token))
            }
            Err(error) => self.not_sent(plan.token, error),
        }
    }

    pub(super) fn sent(&mut self, index: usize, sent: Sent) {
        if sent.binds && self.codes.get(index).known != Known::Bound {
            self.codes.set_known(index, Known::Bound);
        }
        self.stats.frames_with_code += u64::from(sent.code != 0);
        self.stats.code_bytes += sent.code as u64;
        self.stats.frames += 1;
        self.stats.payload_bytes += sent.payload as u64;
    }

    /// Waits for credit if it was missing, and tries again.
    #[cold]
    fn send_again(&mut self, call: &Call<'_>, mut failed: Failed) -> Result<(), Error> {
        let mut wait = None;
        loop {
            match failed {
                Failed::Send(SendError::TooLarge { len, max }) => match self.send_large(call, len, max) {
                    Ok(sent) => {
                        self.sent(call.index.into(), sent);
                        return Ok(());
                    }
                    Err(Failed::Send(SendError::TooLarge { len, max })) => {
                        return Err(Error::Inject(InjectError::TooLarge {
                            ifunc: call.library.name().into(),
                            len,
                            max,
                        }));
                    }
                    Err(large) => {
                        failed = large;
                        continue;
                    }
                },
                Failed::Send(SendError::Full) => self.wait_for_credit(&mut wait, call.patience)?,
                Failed::Send(SendError::Failed(error)) => return Err(self.broken(&error)),
                Failed::Other(error) => return Err(error),
            }
            let index = usize::from(call.index);
            match call.send(&mut self.connection.channel, self.codes.get(index)) {
                Ok(sent) => {
                    self.sent(index, sent);
                    return Ok(());
                }
                Err(again) => failed = again,
            }
        }
    }

    /// Takes some turns of a wait for credit that begins with the first of them and ends after `patience`;
    /// none if that is zero.
    #[cold]
    pub(super) fn wait_for_credit(
        &mut self,
        wait: &mut Option<Wait>,
        patience: Duration,
    ) -> Result<(), Error> {
        if patience.is_zero() {
            return Err(self.full());
        }
        let wait = wait.get_or_insert_with(|| Wait::new(self.settings.wait, Deadline::after(patience)));
        if wait.deadline_passed() {
            let peer = self.settings.address.clone();
            return Err(Error::Wait(WaitError::TimedOut {
                awaited: Awaited::Credit,
                peer,
                timeout: patience,
            }));
        }
        self.turn(wait)
    }

    /// Reports a full mailbox to a caller that does not wait, or the target's end if that is the cause.
    #[cold]
    fn full(&mut self) -> Error {
        match self.look() {
            Ok(()) => Error::Inject(InjectError::Full),
            Err(error) => error,
        }
    }
}
