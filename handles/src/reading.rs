//! Reading objects that the owner lends, by the transport: reads of RDMA, gets of UCX.

use std::time::Duration;

use farjump::MemoryRead;
use farjump::core::transport::Cause;
use farjump::objects::ReadBytes;

use crate::client::Client;
use crate::connection::{Inner, NAP, lock};
use crate::error::Error;
use crate::handle::Handle;
use crate::patience::Patience;
use crate::table::Claimed;
use crate::wire::MIN_LENT;

/// Looks for the bytes before the thread sleeps.
const LOOKS: u32 = 2000;
/// The first sleep between two looks.
const FIRST_NAP: Duration = Duration::from_micros(20);

impl Inner {
    /// Whether the object of this handle is to be lent: it is not mapped here, and the transport reads memory.
    pub(crate) fn reads(&self, handle: &Handle) -> bool {
        // The handle of a reserved object does not say its length: it comes in frames.
        self.reads_memory && handle.len >= MIN_LENT && self.region().is_err()
    }
}

impl Client {
    /// Reads a claimed object by the key of its loan, and releases it. `None` if it is not read that way.
    ///
    /// Memory for all of it is registered before the first byte comes. So an owner does not get to say how much: the handle
    /// does.
    pub(crate) fn read(
        &self,
        handle: &Handle,
        claimed: Claimed,
        loan: &[u8],
        patience: &mut Patience<'_>,
    ) -> Result<Option<ReadBytes>, Error> {
        let Ok(len) = usize::try_from(claimed.len) else { return Ok(None) };
        if loan.is_empty() || len == 0 || claimed.len != handle.len {
            return Ok(None);
        }
        let mut pace = Pace { looks: 0, nap: FIRST_NAP };
        // One thread reads at a time, and waits for its turn as for its bytes.
        let mut given_up = loop {
            match self.0.reading.try_lock() {
                Ok(given_up) => break given_up,
                Err(std::sync::TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                Err(std::sync::TryLockError::WouldBlock) => {}
            }
            if let Err(error) = self.pause(&mut pace, patience) {
                self.0.release(claimed.claim, len);
                return Err(error);
            }
        };
        loop {
            let started = lock(&self.0.link).start_read(loan, len);
            match started {
                Ok(()) => break,
                // One that was given up is still under way.
                Err(error) if *error.cause() == Cause::Full => {
                    if let Err(error) = self.pause(&mut pace, patience) {
                        self.0.release(claimed.claim, len);
                        return Err(error);
                    }
                }
                Err(error) => {
                    log::debug!("object {} comes in frames: {error}", claimed.claim);
                    return Ok(None);
                }
            }
        }
        if let Some((claim, len)) = given_up.take() {
            self.0.release(claim, len);
        }
        loop {
            let polled = lock(&self.0.link).poll_read();
            match polled {
                Ok(MemoryRead::Done(bytes)) => {
                    self.0.release(claimed.claim, len);
                    return Ok(Some(bytes));
                }
                Ok(MemoryRead::Refused(error)) => {
                    log::debug!("object {} comes in frames: {error}", claimed.claim);
                    return Ok(None);
                }
                Ok(MemoryRead::UnderWay) => {}
                Err(error) => return Err(error.into()),
            }
            if let Err(error) = self.pause(&mut pace, patience) {
                // The device still reads the object: if the loan ended now, the link would.
                *given_up = Some((claimed.claim, len));
                return Err(error);
            }
        }
    }

    /// Passes a moment between two looks.
    fn pause(&self, pace: &mut Pace, patience: &mut Patience<'_>) -> Result<(), Error> {
        if pace.looks < LOOKS {
            pace.looks += 1;
            std::hint::spin_loop();
            return Ok(());
        }
        if !patience.may_go_on() {
            return Err(Error::Interrupted);
        }
        if patience.is_over() {
            let (address, timeout) = (self.address().to_owned(), patience.timeout);
            return Err(Error::TimedOut { address, timeout });
        }
        let time = patience.slice(pace.nap);
        patience.sleep(|| std::thread::sleep(time));
        pace.nap = (pace.nap * 2).min(NAP);
        Ok(())
    }
}

/// How a wait for bytes goes on: it looks often at first, then sleeps for longer and longer.
struct Pace {
    looks: u32,
    nap: Duration,
}
