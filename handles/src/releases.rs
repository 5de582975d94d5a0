//! Claims that a client no longer needs, until they are released at the owner.

use farjump_os::forked_children;

/// The claims of a client that are to be released.
#[derive(Default, Debug)]
pub(crate) struct Releases {
    /// To be released with the next request.
    due: Vec<u64>,
    /// Claims that a forked child may have too, and the number of forks before it could not: released when it has ended.
    inherited: Vec<(u64, u64)>,
}

impl Releases {
    /// Adds a claim.
    pub(crate) fn add(&mut self, claim: u64) {
        self.due.push(claim);
    }

    /// Adds the claim of a view that was made after `forks` forks of this process.
    pub(crate) fn add_of_view(&mut self, claim: u64, forks: u64) {
        match forked_children::may_live_since(forks) {
            true => self.inherited.push((claim, forks)),
            false => self.due.push(claim),
        }
    }

    /// Number of claims to be released with the next request.
    pub(crate) fn due(&mut self) -> usize {
        if !self.inherited.is_empty() {
            self.look_after_children();
        }
        self.due.len()
    }

    /// Takes at most `most` of them, the last ones.
    pub(crate) fn take(&mut self, most: usize) -> impl ExactSizeIterator<Item = u64> {
        let from = self.due().saturating_sub(most);
        self.due.drain(from..)
    }

    #[cold]
    fn look_after_children(&mut self) {
        let last = forked_children::last_living();
        let due = &mut self.due;
        self.inherited.retain(|(claim, forks)| {
            let is_due = *forks >= last;
            if is_due {
                due.push(*claim);
            }
            !is_due
        });
    }
}
