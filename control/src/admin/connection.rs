//! Questions to a target: a process connects, asks once, and is answered.
//!
//! It makes no link and is no source. Both sides give up at their own deadline: nobody waits for a process that asks and does
//! not read.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use crate::Error;
use crate::address::PeerAddress;
use crate::admin::messages::{Answer, Question};
use crate::connection::message::Message;
use crate::connection::{Control, out_of_order, refused};
use crate::keys::NamedKey;
use crate::peer_identity::PeerIdentity;
use crate::refusal::MeetRefusal;
use crate::tcp::TcpOptions;

/// A process that has asked a target. The target's side of a question, driven without waiting.
#[derive(Debug)]
pub struct Asker {
    control: Control,
    question: Question,
    deadline: Instant,
}

impl Asker {
    /// `control` has brought `question` and nothing behind it.
    pub(crate) fn new(mut control: Control, question: Question, deadline: Instant) -> Asker {
        control.answers();
        Asker { control, question, deadline }
    }

    /// What is asked.
    pub fn question(&self) -> &Question {
        &self.question
    }

    /// Who asks.
    pub fn peer(&self) -> &PeerIdentity {
        self.control.peer()
    }

    /// The key by which it came, if it needed one.
    pub fn key(&self) -> Option<&Arc<NamedKey>> {
        self.control.key()
    }

    /// Until when the answer must have been taken. [`Asker::advance`] after it fails.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Gives the answer, once; [`Asker::advance`] sends what of it finds no room now.
    ///
    /// # Errors
    /// As [`Control::send`].
    pub fn answer(&mut self, answer: &Answer) -> Result<(), Error> {
        let bytes = postcard::to_stdvec(answer).map_err(|error| {
            let what = format!("encoding {}: {error}", answer.name());
            Error::system(what, rustix::io::Errno::INVAL)
        })?;
        self.control.send(&Message::Answer { bytes }, &[])
    }

    /// Sends more of the answer. `true` once all of it has left: then drop the asker. Call it when [`Asker::as_fd`] is readable
    /// or writable, and at [`Asker::deadline`].
    ///
    /// # Errors
    /// There is no more to be done for it, drop it: [`Error::PeerGone`], [`Error::OutOfOrder`] for one that asks a second time,
    /// [`Error::TooLate`] past the deadline, and what [`Control::recv`] says.
    pub fn advance(&mut self) -> Result<bool, Error> {
        self.control.flush()?;
        if !self.control.wants_write() {
            return Ok(true);
        }
        if let Some((other, _)) = self.control.recv()? {
            return Err(out_of_order(&self.control, "nothing more", &other));
        }
        if Instant::now() >= self.deadline {
            let peer = self.control.peer().to_string();
            return Err(Error::TooLate { peer, waiting_for: "room for the rest of its answer" });
        }
        Ok(false)
    }

    /// Says why there is no answer.
    pub fn refuse(self, cause: MeetRefusal, text: &str) {
        self.control.refuse(cause, text);
    }
}

impl AsFd for Asker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }
}

/// Asks the target at `address`, and waits for its answer.
///
/// # Errors
/// At `deadline` [`Error::TooLate`]. [`Error::Refused`] with the target's reason. [`Error::OtherUser`] when the target runs as
/// another user; it was not asked then. What [`Control::connect`] and [`Control::recv`] say, [`Error::OutOfOrder`].
pub fn ask(address: &PeerAddress, question: Question, deadline: Instant) -> Result<Answer, Error> {
    ask_with(address, &TcpOptions::default(), question, deadline)
}

/// The same of a target that may be on another machine.
///
/// # Errors
/// As [`ask`], and what a key adds ([`Control::recv`]).
pub fn ask_with(
    address: &PeerAddress,
    options: &TcpOptions,
    question: Question,
    deadline: Instant,
) -> Result<Answer, Error> {
    let mut control = Control::connect_with(address, options, deadline)?;
    control.admit_target(deadline)?;
    control.asks();
    match control.send(&Message::Ask(question), &[]) {
        // A target that refuses at once may have closed already: its reason is in what can be received.
        Ok(()) | Err(Error::PeerGone { .. }) => {}
        Err(error) => return Err(error),
    }
    let bytes = match control.recv_until(deadline, "its answer")? {
        (Message::Refuse { cause, text }, _) => return Err(refused(&control, cause, &text)),
        (Message::Answer { bytes }, _) => bytes,
        (other, _) => return Err(out_of_order(&control, "Answer", &other)),
    };
    let peer = || control.peer().to_string();
    match postcard::take_from_bytes(&bytes) {
        Ok((answer, [])) => Ok(answer),
        Ok((_, rest)) => {
            Err(Error::Garbled { peer: peer(), what: format!("{} bytes follow an answer", rest.len()) })
        }
        Err(error) => {
            Err(Error::Garbled { peer: peer(), what: format!("its answer does not decode ({error})") })
        }
    }
}
