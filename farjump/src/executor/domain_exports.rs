//! The exports of each domain: code is linked against those of its own.

use std::collections::HashMap;

use farjump_loader::{Domain, Resolver};

use super::DirectCaller;

/// The exports of all domains.
#[derive(Debug)]
pub(super) struct DomainExports {
    /// Those of the default domain, with its libraries.
    default: Resolver,
    /// Those of other requested domains.
    others: HashMap<Domain, Resolver>,
}

impl DomainExports {
    pub(super) fn new(default: Resolver) -> DomainExports {
        DomainExports { default, others: HashMap::new() }
    }

    /// Those of one domain. Until something is added, a domain other than the default one has the exports of every
    /// target.
    #[inline]
    pub(super) fn of(&mut self, domain: Domain) -> &mut Resolver {
        if domain == Domain::default() { &mut self.default } else { self.of_other(domain) }
    }

    #[cold]
    fn of_other(&mut self, domain: Domain) -> &mut Resolver {
        self.others.entry(domain).or_insert_with(|| Resolver::new(DirectCaller::exports()))
    }

    /// The names of the default domain.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.default.exports().names()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use farjump_control::RefusalCause;
    use farjump_core::image::{ImageParts, Import, Machine, Place};
    use farjump_loader::{Copied, code_id};

    use super::super::{CodeTable, Executor, Named};
    use super::*;
    use crate::policy::Budget;
    use crate::refusal::Refusal;

    /// Offset of the word with the address of the import.
    const SITE: u32 = 8;

    static DATA: [u64; 3] = [0; 3];

    fn address(index: usize) -> u64 {
        (&raw const DATA[index]).expose_provenance() as u64
    }

    /// Binds code that imports `name` in a domain. Returns the address that it gets.
    fn link(executor: &mut Executor, domain: Domain, name: &str) -> Result<u64, Refusal> {
        let import = Import { site: Place::Span1(SITE), name, addend: 0, weak: false };
        let machine = Machine::native().expect("the test has asked");
        let parts = ImageParts { imports: vec![import], ..ImageParts::text(machine, &[0; 16]) };
        let image = parts.encode().unwrap();
        let (id, epoch) = (code_id(&image), executor.epoch());
        let (mut table, origin) = (CodeTable::for_source(domain, Budget::default()), Arc::from("a test"));
        let mut copied = Copied::new(&image, b"code");
        let (copied, origin) = (&mut copied, &origin);
        let mut named = Named { id, epoch, family: None, copied, origin, space_was_made: false };
        executor.bind(&mut table, 0, &mut named)?;
        let linked = executor.image(domain.key(id)).unwrap();
        let site = linked.block().address() + u64::from(SITE);
        // SAFETY: the word is in the code, which is placed as long as it is in the store.
        Ok(unsafe { std::ptr::with_exposed_provenance::<u64>(site as usize).read() })
    }

    #[test]
    fn code_is_linked_against_the_exports_of_its_own_domain_alone() {
        if Machine::native().is_none() {
            return eprintln!("skipped: no code is placed on this architecture");
        }
        let [own, other, none] = [0, 1, 2].map(Domain::numbered);
        let builder = Executor::builder().export_data("both", &DATA[0]).export_data("first", &DATA[0]);
        let mut executor = builder.build().unwrap();
        for name in ["both", "second"] {
            // SAFETY: nothing calls the code that imports it.
            unsafe { executor.exports_of(other).interpose(name, (&raw const DATA[1]).cast()) };
        }
        assert_eq!(link(&mut executor, own, "both"), Ok(address(0)));
        assert_eq!(link(&mut executor, other, "both"), Ok(address(1)));
        assert_eq!(link(&mut executor, own, "first"), Ok(address(0)));
        assert_eq!(link(&mut executor, other, "second"), Ok(address(1)));
        // The exports of another domain are neither found nor named.
        for (domain, name) in [(own, "second"), (other, "first"), (none, "first"), (none, "both")] {
            let refusal = link(&mut executor, domain, name).unwrap_err();
            assert_eq!(refusal.cause, RefusalCause::UnresolvedImport);
            // Named once, as the missing import.
            assert_eq!(refusal.text.matches(name).count(), 1, "{refusal}");
        }
        // All have the services of every target.
        let services = [own, other, none].map(|domain| link(&mut executor, domain, "farjump_reply"));
        assert!(services[0].is_ok() && services.iter().all(|service| *service == services[0]));
        // Later exports belong to one domain, too.
        executor.export_data("second", &DATA[2]).unwrap();
        assert_eq!(link(&mut executor, own, "second"), Ok(address(2)));
        assert_eq!(link(&mut executor, other, "second"), Ok(address(1)));
    }
}
