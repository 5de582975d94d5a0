//! A store's service whose requests a test handles.

use std::fmt;
use std::sync::Arc;

use farjump::objects::{
    Bell, Lender, Lent, LingeringPeer, ObjectError, ObjectPage, Objects, Region, Request, RequestState,
    SourceMemory,
};
use farjump_handles::Service;

/// A service that passes its requests, and itself, to `respond`. Everything else is the service's.
pub(crate) struct Responding<F> {
    pub(crate) service: Service,
    pub(crate) respond: F,
}

impl<F> fmt::Debug for Responding<F> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Responding").field("service", &self.service).finish_non_exhaustive()
    }
}

// SAFETY: all pointers and descriptors are the service's, which learns of the end of each call.
unsafe impl<F> Objects for Responding<F>
where
    F: FnMut(&mut Service, u64, Request<'_>, &mut Vec<u8>, usize) -> Result<RequestState, String> + Send,
{
    fn listening(&mut self, address: &str) {
        self.service.listening(address);
    }

    fn bell(&mut self) -> Result<Option<Arc<Bell>>, farjump::Error> {
        self.service.bell()
    }

    fn source_began(&mut self, source: u64, lender: Option<Box<dyn Lender>>, memory: SourceMemory) {
        self.service.source_began(source, lender, memory);
    }

    fn request(
        &mut self,
        source: u64,
        request: Request<'_>,
        reply: &mut Vec<u8>,
        limit: usize,
    ) -> Result<RequestState, String> {
        (self.respond)(&mut self.service, source, request, reply, limit)
    }

    fn resolve(&mut self, handle: Request<'_>) -> Result<Lent, ObjectError> {
        self.service.resolve(handle)
    }

    fn create(&mut self, len: usize) -> Result<Lent, ObjectError> {
        self.service.create(len)
    }

    fn call_ended(&mut self, returned: bool, reply: &mut Vec<u8>) {
        self.service.call_ended(returned, reply);
    }

    fn source_ended(&mut self, source: u64, peer: Option<LingeringPeer>) {
        self.service.source_ended(source, peer);
    }

    fn lingering(&mut self) -> usize {
        self.service.lingering()
    }

    fn region(&self, may_write: bool) -> Option<Region<'_>> {
        self.service.region(may_write)
    }

    fn continue_work(&mut self) -> bool {
        self.service.continue_work()
    }

    fn list(&mut self, from: u64, most: usize) -> ObjectPage {
        self.service.list(from, most)
    }
}
