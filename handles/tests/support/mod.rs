//! A store's service that a test answers for.

use std::fmt;

use farjump::objects::{Lender, Lent, ObjectError, ObjectListing, Objects, Region, Request};
use farjump_handles::Service;

/// A service whose requests `answer` gets, with the service itself. All else is the service's.
pub(crate) struct Answering<F> {
    pub(crate) service: Service,
    pub(crate) answer: F,
}

impl<F> fmt::Debug for Answering<F> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Answering").field("service", &self.service).finish_non_exhaustive()
    }
}

impl<F> Objects for Answering<F>
where
    F: FnMut(&mut Service, u64, Request<'_>, &mut Vec<u8>, usize) -> Result<(), String> + Send,
{
    fn listening(&mut self, address: &str) {
        self.service.listening(address);
    }

    fn source_began(&mut self, source: u64, lender: Option<Box<dyn Lender>>) {
        self.service.source_began(source, lender);
    }

    fn request(
        &mut self,
        source: u64,
        request: Request<'_>,
        reply: &mut Vec<u8>,
        limit: usize,
    ) -> Result<(), String> {
        (self.answer)(&mut self.service, source, request, reply, limit)
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

    fn source_ended(&mut self, source: u64) {
        self.service.source_ended(source);
    }

    fn region(&self, may_write: bool) -> Option<Region<'_>> {
        self.service.region(may_write)
    }

    fn list(&self, most: usize) -> ObjectListing {
        self.service.list(most)
    }
}
