//! The sources of a target that read lent memory, and the loans of objects.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Once;

use farjump::objects::Lender;

use crate::owner::table::{Claimed, Source, Table};

/// The lenders of a target's links.
#[derive(Default)]
pub(crate) struct Lenders(BTreeMap<Source, Box<dyn Lender>>);

impl fmt::Debug for Lenders {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Lenders").field("links", &self.0.len()).finish()
    }
}

impl Lenders {
    pub(crate) fn add(&mut self, source: Source, lender: Option<Box<dyn Lender>>) {
        if let Some(lender) = lender {
            self.0.insert(source, lender);
        }
    }

    pub(crate) fn remove(&mut self, source: Source) {
        self.0.remove(&source);
    }

    /// Lends a claimed object to the source that claimed it, until that source releases it. Returns the loan's key,
    /// which is empty if the object is not lent. The object's bytes then go through frames.
    pub(crate) fn lend<'t>(&mut self, table: &'t mut Table, source: Source, claimed: Claimed) -> &'t [u8] {
        static WARNED: Once = Once::new();
        let Some(lender) = self.0.get_mut(&source) else { return &[] };
        if table.loan(source, claimed.claim).is_none() {
            let Some(start) = table.region().region.at(claimed.offset, claimed.len) else { return &[] };
            // SAFETY: the table drops the loan before the claim ends, and with the claim the object's memory. The
            // region stays mapped as long as the table.
            match unsafe { lender.lend(start, claimed.len as usize) } {
                Ok(loan) => table.add_loan(source, claimed.claim, loan),
                Err(error) => {
                    WARNED.call_once(|| {
                        log::warn!("objects go through frames, as they cannot be lent: {error}")
                    });
                    return &[];
                }
            }
        }
        table.loan(source, claimed.claim).map_or(&[], |loan| loan.key())
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use farjump::core::transport::{Cause, Operation, TransportError};
    use farjump::objects::{Loan, Objects, SourceMemory};

    use super::*;
    use crate::owner::service::Service;
    use crate::owner::store::Store;
    use crate::wire::handle::Handle;
    use crate::wire::requests::{MIN_LENT, Op, Reader, Status, Writer};

    /// A lender whose keys state the address, and that counts the loans that have not ended.
    struct AddressLender {
        loans: Arc<AtomicUsize>,
        fails: bool,
    }

    struct Registration(Arc<AtomicUsize>);

    impl Drop for Registration {
        fn drop(&mut self) {
            self.0.fetch_sub(1, SeqCst);
        }
    }

    impl Lender for AddressLender {
        unsafe fn lend(&mut self, start: NonNull<u8>, len: usize) -> Result<Loan, TransportError> {
            if self.fails {
                return Err(TransportError::new("telling", Operation::Lend, Cause::Unsupported("lending")));
            }
            self.loans.fetch_add(1, SeqCst);
            let key = [start.as_ptr().expose_provenance(), len].map(usize::to_le_bytes).concat();
            Ok(Loan::new(key, Box::new(Registration(Arc::clone(&self.loans)))))
        }
    }

    const LEN: usize = MIN_LENT as usize;

    struct Bench {
        store: Store,
        service: Service,
        loans: Arc<AtomicUsize>,
    }

    impl Bench {
        fn new(fails: bool) -> Bench {
            let store = Store::options().capacity(1 << 20).build().unwrap();
            let mut service = store.service();
            let loans = Arc::new(AtomicUsize::new(0));
            let lender = AddressLender { loans: Arc::clone(&loans), fails };
            service.source_began(1, Some(Box::new(lender)), SourceMemory::default());
            service.source_began(2, None, SourceMemory::default());
            Bench { store, service, loans }
        }

        /// Claims an object, after some releases. Returns the claim, and the key of its loan.
        fn claim(&mut self, source: u64, handle: &Handle, releases: &[u64]) -> (u64, Vec<u8>) {
            let mut request = Writer::request(Op::ClaimLent);
            request.u16(releases.len() as u16);
            releases.iter().for_each(|claim| _ = request.u64(*claim));
            request.u64(handle.number).bytes(&handle.key.0);
            let mut reply = Vec::new();
            self.service.request(source, request.0[..].into(), &mut reply, 4096).unwrap();
            let mut fields = Reader(&reply);
            assert_eq!(fields.u8(), Some(Status::Done as u8));
            let (claim, _, len) = (fields.u64().unwrap(), fields.u64().unwrap(), fields.u64().unwrap());
            assert_eq!(len, handle.len);
            (claim, fields.0.to_vec())
        }

        fn release(&mut self, source: u64, claims: &[u64]) {
            let mut request = Writer::request(Op::Release);
            request.u16(claims.len() as u16);
            claims.iter().for_each(|claim| _ = request.u64(*claim));
            self.service.request(source, request.0[..].into(), &mut Vec::new(), 4096).unwrap();
        }

        fn loans(&self) -> usize {
            self.loans.load(SeqCst)
        }
    }

    #[test]
    fn a_source_gets_one_loan_per_object_until_its_last_release() {
        let mut bench = Bench::new(false);
        let handle = bench.store.put(&[7; LEN]).unwrap();
        let (claim, key) = bench.claim(1, &handle, &[]);
        let word = |at: usize| usize::from_le_bytes(std::array::from_fn(|byte| key[at + byte]));
        assert_eq!((key.len(), word(8)), (16, LEN));
        // SAFETY: the object is claimed; the key has its address and length.
        let lent =
            unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<u8>(word(0)), LEN) };
        assert!(lent.iter().all(|byte| *byte == 7));
        let (again, same) = bench.claim(1, &handle, &[]);
        assert_eq!((again, &same, bench.loans()), (claim, &key, 1), "one loan for both claims");
        assert!(bench.store.evict(&handle).unwrap());
        bench.release(1, &[claim]);
        assert_eq!(bench.loans(), 1, "it is claimed once more");
        bench.release(1, &[claim]);
        assert_eq!(bench.loans(), 0);
        // The memory is used again only now.
        let next = bench.store.put(&[8; LEN]).unwrap();
        assert_eq!(bench.claim(1, &next, &[]).1, key, "the block freed last comes first");
    }

    #[test]
    fn loans_end_with_their_source() {
        let mut bench = Bench::new(false);
        let handles = [1, 2, 3].map(|byte| bench.store.put(&[byte; LEN]).unwrap());
        for handle in &handles {
            bench.claim(1, handle, &[]);
        }
        assert_eq!(bench.loans(), 3);
        bench.service.source_ended(1, None);
        assert_eq!(bench.loans(), 0);
        assert!(bench.claim(1, &handles[0], &[]).1.is_empty(), "its lender is gone, too");
    }

    #[test]
    fn short_or_unlendable_objects_are_claimed_without_a_loan() {
        let mut bench = Bench::new(false);
        let (short, long) = (bench.store.put(&[1; LEN - 1]).unwrap(), bench.store.put(&[2; LEN]).unwrap());
        assert!(bench.claim(1, &short, &[]).1.is_empty());
        assert!(bench.claim(2, &long, &[]).1.is_empty(), "that transport does not lend");
        assert_eq!(bench.loans(), 0);
        let mut failing = Bench::new(true);
        let handle = failing.store.put(&[3; LEN]).unwrap();
        assert!(failing.claim(1, &handle, &[]).1.is_empty());
    }
}
