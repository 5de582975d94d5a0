//! Claims of a client that are over, until the owner releases them.

use farjump_os::forked_children;

/// The claims of a client to release.
#[derive(Default, Debug)]
pub(crate) struct Releases {
    /// Claims to release with the next request.
    due: Vec<u64>,
    /// Claims that a forked child may also have, each with the number of forks before its view was made. A claim is
    /// released when no child forked since then lives.
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

    /// Number of claims to release with the next request.
    pub(crate) fn due(&mut self) -> usize {
        if !self.inherited.is_empty() {
            self.release_inherited();
        }
        self.due.len()
    }

    /// Takes at most `most` of these claims, the last ones.
    pub(crate) fn take(&mut self, most: usize) -> impl ExactSizeIterator<Item = u64> {
        let from = self.due().saturating_sub(most);
        self.due.drain(from..)
    }

    #[cold]
    fn release_inherited(&mut self) {
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
