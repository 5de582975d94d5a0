//! Messages of the control connection.

use farjump_control::Message;
use farjump_core::image::CodeId;

use super::{End, MESSAGES, Session, Shared, Stop, Waiting, code_missing, cut};

impl Session {
    /// Takes no more frames until the messages to the source have been sent.
    pub(in crate::serve) fn await_reading(&mut self) {
        // Nothing waits for a gone source to read.
        if self.control.wants_write() && !self.departed && !self.is_blocked() {
            self.waiting = Waiting::Reading;
        }
    }

    /// Sends a message and sets a notice, so that the source reads it now.
    pub(in crate::serve) fn tell(&mut self, message: &Message) -> Result<(), Stop> {
        self.say(message)?;
        if self.departed { Ok(()) } else { Ok(self.channel.call_attention()?) }
    }

    /// Sends a message, unless the source is gone.
    pub(super) fn say(&mut self, message: &Message) -> Result<(), Stop> {
        if self.departed { Ok(()) } else { Ok(self.control.send(message, &[])?) }
    }

    /// Takes control messages.
    pub(in crate::serve) fn read_control(&mut self, shared: &mut Shared) -> Result<(), Stop> {
        if self.is_leaving() {
            return Ok(());
        }
        // Until none is left: messages read along with the last one taken are here, where no descriptor
        // reports them.
        self.unread = true;
        for _ in 0..MESSAGES {
            let Some((message, descriptors)) = self.control.recv()? else {
                self.unread = false;
                break;
            };
            match (message, &self.waiting) {
                (Message::Code { id, image }, Waiting::Code(wanted)) if wanted.0 == id => {
                    self.waiting = Waiting::Turn(CodeId(id), image);
                    self.held.iter_mut().for_each(|held| held.answered = true);
                }
                (Message::NoCode { id }, Waiting::Code(wanted)) if wanted.0 == id => {
                    self.waiting = Waiting::Held;
                    self.held.iter_mut().for_each(|held| held.answered = true);
                    self.table.withhold(&CodeId(id), &code_missing());
                }
                (Message::Bye, _) => return Err(End::Bye.into()),
                (Message::Enlarge { frame, payload }, _) => self.enlarge(frame, payload, shared)?,
                (Message::Accept { end }, _) => self.enlarged(end, descriptors)?,
                (Message::Shrink, _) => self.shrink()?,
                (other, _) => return Err(cut(format_args!("its source sent {} unasked", other.name()))),
            }
        }
        if self.control.wants_write() {
            self.control.flush()?;
        }
        Ok(())
    }
}
