//! Functions that a target can offer to injected code.

use std::ffi::c_void;

/// A function that a target can offer to injected code: any `extern "C"` function of up to eight arguments.
///
/// It is given as a function pointer, because the type of the bare name lacks the calling convention:
/// `store_get as extern "C" fn(_, _) -> _`.
///
/// The injected code must declare it with the same types; nothing checks that, as nothing does between two C
/// files.
pub trait ExportFn: Copy + private::Sealed {
    /// The address that imports are patched with.
    fn address(self) -> *const c_void;
}

mod private {
    pub trait Sealed {}
}

macro_rules! export_fn {
    ($($argument:ident)*) => {
        impl<Result, $($argument),*> private::Sealed for extern "C" fn($($argument),*) -> Result {}
        impl<Result, $($argument),*> ExportFn for extern "C" fn($($argument),*) -> Result {
            fn address(self) -> *const c_void {
                self as *const c_void
            }
        }
        impl<Result, $($argument),*> private::Sealed for unsafe extern "C" fn($($argument),*) -> Result {}
        impl<Result, $($argument),*> ExportFn for unsafe extern "C" fn($($argument),*) -> Result {
            fn address(self) -> *const c_void {
                self as *const c_void
            }
        }
    };
}
export_fn!();
export_fn!(A);
export_fn!(A B);
export_fn!(A B C);
export_fn!(A B C D);
export_fn!(A B C D E);
export_fn!(A B C D E F);
export_fn!(A B C D E F G);
export_fn!(A B C D E F G H);
