//! The lengths of messages that a control connection takes and sends at each time of its life.

use crate::connection::message::{MAX_CODE, MAX_HANDSHAKE_MESSAGE, MAX_MESSAGE};
use crate::connection::{Control, Role};

impl Control {
    /// Ends the handshake: from now on code may travel from source to target, and its limits apply.
    pub(crate) fn end_handshake(&mut self, role: Role) {
        // A target sends only small messages: a source that does not read them pins little of its memory.
        let (receive, send, queue) = match role {
            Role::Source => (MAX_HANDSHAKE_MESSAGE, MAX_MESSAGE, 2 * MAX_MESSAGE),
            Role::Target => (MAX_MESSAGE, MAX_HANDSHAKE_MESSAGE, 16 * MAX_HANDSHAKE_MESSAGE),
        };
        self.incoming.set_limit(receive);
        self.outgoing.set_limits(send, queue);
    }

    /// Marks this process as the requester: request and response may be as long as an image.
    pub(crate) fn allow_long_request_and_response(&mut self) {
        self.incoming.set_limit(MAX_MESSAGE);
        self.outgoing.set_limits(MAX_MESSAGE, 2 * MAX_MESSAGE);
    }

    /// Permits a request as long as an image.
    pub(crate) fn allow_long_request(&mut self) {
        self.incoming.set_limit(MAX_MESSAGE);
    }

    /// Marks this process as the sender of one response.
    pub(crate) fn allow_long_response(&mut self) {
        self.outgoing.set_limits(MAX_MESSAGE, 2 * MAX_MESSAGE);
    }

    /// Rejects messages that could hold an image of more than `most` bytes: a source's bytes pin no more of
    /// the target's memory.
    pub(crate) fn limit_code(&mut self, most: usize) {
        let most = most.min(MAX_CODE);
        self.incoming.set_limit((most + (MAX_MESSAGE - MAX_CODE)).max(MAX_HANDSHAKE_MESSAGE));
    }
}
