//! Groups: calls that wake a sleeping target once.

use farjump_loader::{Library, TypedArgs, TypedFunction, TypedReply};

use super::{Link, Pending, TypedPending, boxed};
use crate::Error;

/// Sends calls of a link that wake a sleeping target once, at the end. Otherwise each call would wake it: it runs the
/// calls that have come and sleeps again, and the next call pays for another wake. Made by [`Link::group`].
///
/// Each call has its own frame and its own outcome, like other calls of the link, and all calls of the link run in
/// injection order. A target that is awake runs them as they come. Over transports that wake it with each frame a group
/// changes nothing. Finish it after some hundreds of calls, so that the target works while you send more.
///
/// ```no_run
/// # fn main() -> Result<(), farjump::Error> {
/// use std::time::Duration;
/// use farjump::{Library, Link};
///
/// let sum = Library::open("libsum.so")?;
/// let link = Link::connect("unix:store.sock")?;
/// let mut group = link.group();
/// let calls = (0..64_u64).map(|key| group.inject(&sum, &key.to_le_bytes())).collect::<Result<Vec<_>, _>>()?;
/// group.finish()?;
/// for call in calls {
///     println!("{} bytes came back", call.wait(Duration::from_secs(1))?.len());
/// }
/// # Ok(())
/// # }
/// ```
///
/// The group also wakes the target when it is dropped, before a wait for credit, and after an error of the group. It
/// does so before anything on the link waits or polls for an outcome, too. So no call is forgotten, and several groups
/// of a link are one.
#[derive(Debug)]
#[must_use = "the target is woken when it is finished or dropped"]
pub struct Group<'l> {
    link: &'l Link,
}

impl<'l> Group<'l> {
    pub(super) fn new(link: &'l Link) -> Group<'l> {
        Group { link }
    }

    /// As [`Link::inject`]. Without credit it wakes the target, and waits.
    ///
    /// # Errors
    /// As [`Link::inject`].
    #[inline]
    pub fn inject(&mut self, library: &Library, args: &[u8]) -> Result<Pending<'l>, Error> {
        let token = boxed(self.link.inner.borrow_mut().inject_grouped::<true>(library, args, true))?;
        Ok(Pending { link: self.link, token })
    }

    /// As [`Link::try_inject`]. Without credit it wakes the target.
    ///
    /// # Errors
    /// As [`Link::try_inject`].
    #[inline]
    pub fn try_inject(&mut self, library: &Library, args: &[u8]) -> Result<Pending<'l>, Error> {
        let token = boxed(self.link.inner.borrow_mut().inject_grouped::<true>(library, args, false))?;
        Ok(Pending { link: self.link, token })
    }

    /// As [`Link::send`]. Without credit it wakes the target, and waits.
    ///
    /// # Errors
    /// As [`Link::send`].
    #[inline]
    pub fn send(&mut self, library: &Library, args: &[u8]) -> Result<(), Error> {
        boxed(self.link.inner.borrow_mut().inject_grouped::<false>(library, args, true)).map(drop)
    }

    /// Calls `function`: [`Group::inject`] with arguments and a reply of its types.
    ///
    /// # Errors
    /// As [`Link::call`].
    #[inline]
    pub fn call<A: TypedArgs + ?Sized, R: TypedReply + ?Sized>(
        &mut self,
        function: &'l TypedFunction<A, R>,
        args: &A,
    ) -> Result<TypedPending<'l, R>, Error> {
        Ok(TypedPending::new(self.inject(function.library(), args.payload())?, function.library()))
    }

    /// Wakes the target, if it sleeps.
    ///
    /// # Errors
    /// When the transport fails: the link has ended then.
    pub fn finish(self) -> Result<(), Error> {
        // Dropping it would repeat the attempt.
        let this = std::mem::ManuallyDrop::new(self);
        this.link.inner.borrow_mut().wake_for_group()
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        // A handler that runs inside the link may drop a group. The call that runs it wakes the target before it waits again.
        if let Ok(mut inner) = self.link.inner.try_borrow_mut() {
            // The next use of the link reports an error.
            let _ = inner.wake_for_group();
        }
    }
}
