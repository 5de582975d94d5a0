//! Functions that a target can offer to injected code.

use std::ffi::c_void;

/// A function that a target can offer to injected code: any `extern "C"` function of up to sixteen arguments,
/// `unsafe` or not. One that follows a pointer from injected code should be `unsafe`.
///
/// Pass it by [`export!`](crate::export), or as a function pointer, because the type of the bare name lacks the calling
/// convention: `store_get as unsafe extern "C" fn(_, _) -> _`.
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
export_fn!(A B C D E F G H I);
export_fn!(A B C D E F G H I J);
export_fn!(A B C D E F G H I J K);
export_fn!(A B C D E F G H I J K L);
export_fn!(A B C D E F G H I J K L M);
export_fn!(A B C D E F G H I J K L M N);
export_fn!(A B C D E F G H I J K L M N O);
export_fn!(A B C D E F G H I J K L M N O P);

/// A function with the name under which it is offered. Made by [`export!`](crate::export).
#[derive(Clone, Copy, Debug)]
pub struct Export {
    name: &'static str,
    address: *const c_void,
}

// SAFETY: the address is that of a function (`Export::new`), which any thread may call or have called.
unsafe impl Send for Export {}
// SAFETY: as for `Send`; nothing of it changes.
unsafe impl Sync for Export {}

impl Export {
    /// `function`, to be offered as `name`.
    pub fn new<F: ExportFn>(name: &'static str, function: F) -> Export {
        Export { name, address: function.address() }
    }

    /// The name.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

impl private::Sealed for Export {}
impl ExportFn for Export {
    fn address(self) -> *const c_void {
        self.address
    }
}

/// Names a function of this program once, to offer it to injected code under its own name: `export!(store_get(_, _))`,
/// with a `_` for each argument. Returns an [`Export`], for [`TargetBuilder::exports`](crate::TargetBuilder::exports).
///
/// The function has to be `extern "C"`, which is checked; it may be `unsafe`. With a path, the last name counts.
///
/// ```
/// mod rows {
///     pub extern "C" fn rows_count() -> u64 {
///         3
///     }
/// }
/// assert_eq!(farjump::export!(rows::rows_count()).name(), "rows_count");
/// ```
///
/// ```compile_fail
/// fn of_rust(x: u64) -> u64 { // no extern "C"
///     x
/// }
/// farjump::export!(of_rust(_));
/// ```
#[macro_export]
macro_rules! export {
    ($function:ident $($rest:tt)+) => { $crate::export!(@ [$function] $function $($rest)+) };
    (@ [$($path:tt)+] $last:ident :: $next:ident $($rest:tt)+) => {
        $crate::export!(@ [$($path)+ :: $next] $next $($rest)+)
    };
    (@ [$($path:tt)+] $last:ident ($($argument:tt),* $(,)?)) => {
        $crate::Export::new(stringify!($last), $($path)+ as unsafe extern "C" fn($($argument),*) -> _)
    };
}
