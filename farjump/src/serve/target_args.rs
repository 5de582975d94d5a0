//! The third argument of injected functions.

use std::any::TypeId;
use std::ffi::c_void;

/// The address that injected functions get as their third argument, and the type and owner of the value there.
pub(super) struct TargetArgs {
    address: *mut c_void,
    type_id: Option<TypeId>,
    /// Drops the value at the address, which is boxed, if the target owns it.
    drop_box: Option<unsafe fn(*mut c_void)>,
}

// SAFETY: the address is that of a `T: Send`, borrowed for longer than this lives or owned by it
// (`TargetArgs::borrowed`, `TargetArgs::owned`); or the caller of `TargetBuilder::args_raw` guaranteed it for
// whichever thread polls the target.
unsafe impl Send for TargetArgs {}

impl TargetArgs {
    /// An address of a value of unknown type.
    pub(super) fn raw(address: *mut c_void) -> TargetArgs {
        TargetArgs { address, type_id: None, drop_box: None }
    }

    /// A value that the caller keeps borrowed for as long as this is used.
    pub(super) fn borrowed<T: Send + 'static>(args: &mut T) -> TargetArgs {
        TargetArgs { address: (&raw mut *args).cast(), type_id: Some(TypeId::of::<T>()), drop_box: None }
    }

    /// A value of the target's own.
    pub(super) fn owned<T: Send + 'static>(args: T) -> TargetArgs {
        /// Drops a value.
        ///
        /// # Safety
        /// `address` must be that of a boxed `T`, which nothing uses any more.
        unsafe fn drop_box<T>(address: *mut c_void) {
            // SAFETY: this function's caller guarantees it.
            drop(unsafe { Box::from_raw(address.cast::<T>()) });
        }
        TargetArgs {
            address: Box::into_raw(Box::new(args)).cast(),
            type_id: Some(TypeId::of::<T>()),
            drop_box: Some(drop_box::<T>),
        }
    }

    pub(super) fn address(&self) -> *mut c_void {
        self.address
    }

    /// Returns the address of the value if that is a `T`. The value lives for as long as this does.
    pub(super) fn of_type<T: 'static>(&self) -> Option<*mut T> {
        (self.type_id == Some(TypeId::of::<T>())).then_some(self.address.cast())
    }

    /// Gives the value away if it is an owned `T`: the caller owns the box at the address from then on.
    pub(super) fn give<T: 'static>(&mut self) -> Option<*mut T> {
        let address = self.of_type().filter(|_| self.drop_box.is_some())?;
        (self.type_id, self.drop_box) = (None, None);
        Some(address)
    }
}

impl Drop for TargetArgs {
    fn drop(&mut self) {
        if let Some(drop_box) = self.drop_box {
            // SAFETY: `owned` boxed a value of the function's type, and `give` has not given it away. The
            // target, whose injected functions used it, drops this last.
            unsafe { drop_box(self.address) };
        }
    }
}
