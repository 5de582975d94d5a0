//! The sources of a target that read memory which is lent to them, and the loans of objects.

use std::collections::HashMap;
use std::fmt;
use std::sync::Once;

use farjump::objects::Lender;

use crate::table::{Claimed, Source, Table};

/// The lenders of a target's links.
#[derive(Default)]
pub(crate) struct Lenders(HashMap<Source, Box<dyn Lender>>);

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

    /// Lends a claimed object to the source that claimed it, until it releases it. Returns the loan's key, which is empty
    /// if the object is not lent: its bytes then go through frames.
    pub(crate) fn lend<'t>(&mut self, table: &'t mut Table, source: Source, claimed: Claimed) -> &'t [u8] {
        static TOLD: Once = Once::new();
        let Some(lender) = self.0.get_mut(&source) else { return &[] };
        if table.loan(source, claimed.claim).is_none() {
            let Some(start) = table.region().region.at(claimed.offset, claimed.len) else { return &[] };
            // SAFETY: the table drops the loan before the claim ends, and with it the object's memory; the region stays
            // mapped as long as the table.
            match unsafe { lender.lend(start, claimed.len as usize) } {
                Ok(loan) => table.add_loan(source, claimed.claim, loan),
                Err(error) => {
                    TOLD.call_once(|| {
                        log::warn!("objects go through frames, as they cannot be lent: {error}")
                    });
                    return &[];
                }
            }
        }
        table.loan(source, claimed.claim).map_or(&[], |loan| loan.key())
    }
}
