//! Reads of the target's memory.

use farjump_core::transport::{Cause, Operation, TransportError};

use super::Inner;
use crate::Error;
use crate::link::MemoryRead;

impl Inner {
    pub(in crate::link) fn reads_memory(&mut self) -> bool {
        self.connection.channel.reads().is_some()
    }

    pub(in crate::link) fn start_read(&mut self, key: &[u8], len: usize) -> Result<(), TransportError> {
        let control = &self.connection.control;
        let cause = if len == 0 {
            Cause::Unsupported("a read of no bytes")
        } else if control.gone.is_some() || control.leaving.is_some() || !self.is_own() {
            Cause::PeerGone
        } else if let Some(reads) = self.connection.channel.reads() {
            return reads.start(key, len);
        } else {
            Cause::Unsupported("reading the target's memory")
        };
        Err(TransportError::new(&*self.connection.target.transport, Operation::Read, cause))
    }

    /// Polls for the bytes of a read, for outcomes, and for control messages.
    pub(in crate::link) fn poll_read(&mut self) -> Result<MemoryRead, Error> {
        self.check_process()?;
        let control = &self.connection.control;
        if control.gone.is_none()
            && control.leaving.is_none()
            && let Some(reads) = self.connection.channel.reads()
        {
            match reads.poll() {
                Ok(None) => {}
                Ok(Some(bytes)) => return Ok(MemoryRead::Done(bytes)),
                Err(error) if matches!(error.cause(), Cause::Unsupported(_)) => {
                    return Ok(MemoryRead::Refused(error));
                }
                Err(error) => return Err(self.broken(&error)),
            }
        }
        self.look().map(|()| MemoryRead::InFlight)
    }
}
