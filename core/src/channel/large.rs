//! Frames in the large mailbox. For each, a `Large` in the first mailbox holds its place among the other
//! frames.

use super::{Channel, SendError};
use crate::frame::{Kind, Plan};

impl Channel {
    /// Sends one frame through `large` by `send`, then a `Large` with this token through this channel: both
    /// or neither.
    ///
    /// # Errors
    /// The error that `send` returns, or [`SendError::Full`] without credit for the `Large`. Nothing was
    /// sent then.
    pub fn send_large_frame<T, E: From<SendError>>(
        &mut self,
        large: &mut Channel,
        token: u32,
        send: impl FnOnce(&mut Channel) -> Result<T, E>,
    ) -> Result<T, E> {
        let (kind, wants_reply, alone) = (Kind::Large, false, false);
        let switch =
            Plan { kind, wants_reply, alone, travelled: false, index: 0, token, align_log2: 0, code: None };
        // Space for the `Large` first: nothing may fail once the frame is sent.
        let space = self.reserve(&switch, 0)?;
        let sent = send(large)?;
        // The frame is there before the `Large`: a receiver that sees the `Large` finds the frame.
        space.commit(&switch, 0)?;
        Ok(sent)
    }
}
