//! The transport: frames go into windows of MPI.
//!
//! It implements all of farjump's demands on a one-sided backend by four functions of MPI, which `pool/` calls.
//! `MPI_Put` is for frames, and `MPI_Accumulate` for words, which have to come in one piece. `MPI_Win_flush` is for
//! order, and `MPI_Iprobe` lets MPI make progress.

use std::ptr::NonNull;

use farjump_core::transport::{
    Address, ArrivalRules, Capabilities, Cause, Endpoint, InboxKind, LocalAddress, LocalMemory, OpenRequest,
    Operation, RemoteMemory, Transport, TransportError, UnconnectedEndpoint,
};

use crate::pool::{Place, Pool, PoolError, Reached, Region, nudge};

/// Its name, which both ranks give to farjump.
const NAME: &str = "mpi-window";
/// Longest frame, in bytes: far less than the window, of which a mailbox takes several times that.
const MAX_FRAME: usize = 4 << 20;

/// The transport over a job's window.
pub struct Windows(Pool);

impl Windows {
    /// Makes a transport whose links take their regions from `pool`. Both endpoints have to be ranks of the job that
    /// made the window.
    pub fn new(pool: &Pool) -> Windows {
        Windows(pool.clone())
    }
}

impl Transport for Windows {
    fn name(&self) -> &str {
        NAME
    }

    /// MPI orders no two puts, not even the bytes of one. Order comes from a flush between them, and a
    /// checksum.
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(InboxKind::OneSided, ArrivalRules::FENCED | ArrivalRules::CHECKED, MAX_FRAME)
    }

    fn open(&mut self, request: &OpenRequest) -> Result<Box<dyn UnconnectedEndpoint>, TransportError> {
        self.0.check_worker().map_err(during(Operation::Open))?;
        let region = self.0.take(request.region_len).map_err(during(Operation::Open))?;
        Ok(Box::new(UnconnectedWindows { pool: self.0.clone(), region }))
    }
}

struct UnconnectedWindows {
    pool: Pool,
    region: Region,
}

impl UnconnectedEndpoint for UnconnectedWindows {
    fn address(&self) -> LocalAddress<'_> {
        LocalAddress { bytes: self.region.place().to_bytes(), descriptors: Vec::new() }
    }

    fn connect(self: Box<Self>, peer: Address, _deadline_ms: u32) -> Result<Endpoint, TransportError> {
        let odd = PoolError::Address("it is not one of MPI windows");
        let place = Place::from_bytes(&peer.bytes).filter(|_| peer.descriptors.is_empty()).ok_or(odd);
        let reached = place.and_then(|place| Reached::new(&self.pool, place));
        let reached = reached.map_err(during(Operation::Connect))?;
        let remote = Box::new(Remote { pool: self.pool, reached });
        Ok(Endpoint::OneSided { local: Box::new(Local(self.region)), remote })
    }
}

struct Local(Region);

// SAFETY: a region consists of pages of the window, which lives as long as the region, zero at first, and
// announced to one peer. It goes to no other link before this one is dropped and that peer has left.
unsafe impl LocalMemory for Local {
    fn base(&self) -> NonNull<u8> {
        self.0.base()
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

struct Remote {
    pool: Pool,
    reached: Reached,
}

impl Remote {
    /// Checks that `len` bytes at `offset` are all inside.
    fn inside(&self, offset: usize, len: usize, frame: u64) -> Result<(), TransportError> {
        let region = self.reached.len();
        if offset.checked_add(len).is_none_or(|end| end > region) {
            let cause = Cause::OutOfRegion { offset, len, region };
            return Err(failed(Operation::Put, cause).with_frame(frame));
        }
        Ok(())
    }
}

// SAFETY: `mapped` is not implemented, so there is no guarantee about it.
unsafe impl RemoteMemory for Remote {
    fn len(&self) -> usize {
        self.reached.len()
    }

    fn put(&mut self, offset: usize, bytes: &[u8], frame: u64) -> Result<(), TransportError> {
        self.inside(offset, bytes.len(), frame)?;
        let put = self.reached.put(offset, bytes);
        put.map_err(|error| during(Operation::Put)(error).with_frame(frame))
    }

    fn put_word(&mut self, offset: usize, word: u64, frame: u64) -> Result<(), TransportError> {
        self.inside(offset, size_of::<u64>(), frame)?;
        if !offset.is_multiple_of(size_of::<u64>()) {
            let cause = Cause::System(format!("a word at offset {offset}, which is no multiple of 8"));
            return Err(failed(Operation::Put, cause).with_frame(frame));
        }
        let put = self.reached.put_word(offset, word);
        put.map_err(|error| during(Operation::Put)(error).with_frame(frame))
    }

    /// MPI has no ordering without waiting. It waits for a round trip to the peer; where MPI needs the peer's
    /// program to make progress, for that too ([`Worker`](crate::Worker)).
    fn fence(&mut self) -> Result<(), TransportError> {
        self.reached.settle().map_err(during(Operation::Fence))
    }

    /// Sends puts for which no fence has waited: MPI may keep a put until it is flushed.
    fn progress(&mut self) -> Result<(), TransportError> {
        nudge(&self.pool).and_then(|()| self.reached.settle()).map_err(during(Operation::Progress))
    }
}

/// Returns the transport error for an error of the pool during this operation.
fn during(operation: Operation) -> impl Fn(PoolError) -> TransportError {
    move |error| {
        let cause = match error {
            PoolError::Address(why) => Cause::Address(why.into()),
            error => Cause::System(error.to_string()),
        };
        failed(operation, cause)
    }
}

fn failed(operation: Operation, cause: Cause) -> TransportError {
    TransportError::new(NAME, operation, cause)
}
