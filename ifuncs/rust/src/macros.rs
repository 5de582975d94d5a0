//! The macro that makes the routines of `#[ifunc]`, and the functions that its expansion calls.

use core::ffi::c_void;
use core::ptr::NonNull;

use crate::{Payload, TargetArgs, fail};

/// The routines of an ifunc, from the fields that the attribute reads. Each field is its name and a value in
/// brackets, in this order.
#[doc(hidden)]
#[macro_export]
macro_rules! __ifunc {
    (
        name [$name:literal]
        signature [$signature:literal]
        main [$main:path]
        $(payload [$payload:ty])?
        $(target [$target:ty])?
        $(returns [$returns:ty])?
        $(max_size [$max_size:path] init [$init:path])?
        $(payload_align [$align:expr])?
    ) => {
        const _: () = {
            #[unsafe(export_name = concat!($name, "_main"))]
            unsafe extern "C" fn ifunc_main(
                payload: *mut ::core::ffi::c_void,
                payload_size: usize,
                target_args: *mut ::core::ffi::c_void,
            ) {
                let _ = target_args;
                // SAFETY: farjump passes the payload's place and length; it is this call's until it returns.
                let mut payload = unsafe { $crate::payload(payload, payload_size) };
                let mut copy = $crate::ShortCopy::new();
                let _ = (&mut payload, &mut copy);
                $crate::IntoReply::reply($main(
                    $(<$payload as $crate::FromPayload<'_>>::from_payload(&mut payload, &mut copy),)?
                    // SAFETY: the type's `TargetArgs` speaks for every target that this is sent to.
                    $(unsafe { $crate::target::<$target>(target_args) },)?
                ))
            }
        };
        $crate::__ifunc_payload! { $name $($max_size, $init)? }
        const _: () = {
            const TEXT: &str = $signature;
            #[used]
            #[unsafe(export_name = concat!($name, "_signature"))]
            #[unsafe(link_section = ".farjump.signature")]
            static SIGNATURE: $crate::Signature<{ TEXT.len() }> = $crate::Signature::new(
                $crate::__first!(
                    [$($crate::Shape::of_arguments(stringify!($init)))?]
                    [$(<$payload as $crate::FromPayload<'_>>::SHAPE)?]
                    [$crate::Shape::ANY]
                ),
                $crate::__first!([$(<$returns as $crate::IntoReply>::SHAPE)?] [$crate::Shape::ANY]),
                TEXT,
            );
        };
        $(
            const _: () = {
                const BYTES: u32 = $align;
                assert!(
                    BYTES.is_power_of_two() && BYTES >= 8 && BYTES <= 4096,
                    "a payload's alignment is a power of two from 8 to 4096"
                );
                #[used]
                #[unsafe(export_name = concat!($name, "_payload_align"))]
                #[unsafe(link_section = ".farjump.payload_align")]
                static ALIGN: u32 = BYTES;
            };
        )?
        #[allow(unexpected_cfgs)]
        const _: () = {
            #[cfg(farjump_ifunc)]
            #[panic_handler]
            fn panic(info: &::core::panic::PanicInfo<'_>) -> ! {
                $crate::panicked(info)
            }
        };
    };
}

/// The first value present.
#[doc(hidden)]
#[macro_export]
macro_rules! __first {
    ([] $($rest:tt)+) => { $crate::__first!($($rest)+) };
    ([$($first:tt)+] $($rest:tt)*) => { $($first)+ };
}

/// The routines that run at the source.
#[doc(hidden)]
#[macro_export]
macro_rules! __ifunc_payload {
    ($name:literal) => {
        const _: () = {
            #[used]
            #[unsafe(export_name = concat!($name, "_copy_args"))]
            #[unsafe(link_section = ".farjump.copy_args")]
            static COPY_ARGS: u32 = 1;
        };
        const _: () = {
            #[unsafe(export_name = concat!($name, "_payload_get_max_size"))]
            extern "C" fn ifunc_max_size(args: *mut ::core::ffi::c_void, args_size: usize) -> usize {
                let _ = args;
                args_size
            }

            #[unsafe(export_name = concat!($name, "_payload_init"))]
            unsafe extern "C" fn ifunc_init(
                payload: *mut ::core::ffi::c_void,
                payload_size: usize,
                args: *mut ::core::ffi::c_void,
                args_size: usize,
            ) -> ::core::ffi::c_int {
                // SAFETY: farjump passes the space and its length; it is this call's alone.
                let mut space = unsafe { $crate::payload(payload, payload_size) };
                // SAFETY: farjump passes the arguments with their length.
                let args = unsafe { $crate::source_args(args, args_size) };
                if space.write_at(0, args) == args.len() { 0 } else { -1 }
            }
        };
    };
    ($name:literal $max_size:path, $init:path) => {
        const _: () = {
            #[unsafe(export_name = concat!($name, "_payload_get_max_size"))]
            unsafe extern "C" fn ifunc_max_size(args: *mut ::core::ffi::c_void, args_size: usize) -> usize {
                // SAFETY: farjump passes the arguments with their length.
                $max_size(unsafe { $crate::source_args(args, args_size) })
            }

            #[unsafe(export_name = concat!($name, "_payload_init_shrink"))]
            unsafe extern "C" fn ifunc_init(
                payload: *mut ::core::ffi::c_void,
                payload_size: *mut usize,
                args: *mut ::core::ffi::c_void,
                args_size: usize,
            ) -> ::core::ffi::c_int {
                // SAFETY: farjump passes space, its length behind a pointer, and arguments with their length.
                let (mut space, args) = unsafe {
                    ($crate::payload(payload, *payload_size), $crate::source_args(args, args_size))
                };
                match $crate::filled($init(&mut space, args)) {
                    Ok(used) => {
                        // SAFETY: as above.
                        unsafe { *payload_size = used };
                        0
                    }
                    Err(failure) => failure,
                }
            }
        };
    };
}

/// The payload, or the space for one.
///
/// # Safety
/// `len` bytes from `at` on are readable and writable as long as the value is used, and no other code of this
/// process uses them meanwhile; with a length of 0 `at` is not used.
#[inline]
pub unsafe fn payload(at: *mut c_void, len: usize) -> Payload {
    let at = if len == 0 { NonNull::dangling().as_ptr() } else { at.cast() };
    // SAFETY: this function's caller gives the same guarantees.
    unsafe { Payload::new(at, len) }
}

/// The arguments at the source.
///
/// # Safety
/// `len` bytes from `at` on are readable and not written for `'a`; with a length of 0 `at` is not used.
#[inline]
pub unsafe fn source_args<'a>(at: *mut c_void, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: this function's caller guarantees the bytes.
    unsafe { core::slice::from_raw_parts(at.cast(), len) }
}

/// The result of an `init`, with a failure that cannot be taken for success.
#[inline]
pub fn filled(result: Result<usize, i32>) -> Result<usize, i32> {
    result.map_err(|failure| if failure == 0 { -1 } else { failure })
}

/// `target_args` as the type that the ifunc names.
///
/// # Safety
/// The guarantees of [`TargetArgs`] for the type hold for `args`.
#[inline]
pub unsafe fn target<T: Target>(args: *mut c_void) -> T {
    // SAFETY: this function's caller gives the same guarantees.
    unsafe { T::from_args(args) }
}

/// Types of the second parameter of an `#[ifunc]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no type of a target's arguments",
    label = "the second parameter of an ifunc is `&T` or `&mut T` of a `#[target_args]` type, or a raw pointer"
)]
pub trait Target {
    /// # Safety
    /// As for [`target`].
    unsafe fn from_args(args: *mut c_void) -> Self;
}

const NO_ARGS: &str = "the target passes no target_args, and this function needs some";

impl<T: TargetArgs> Target for &T {
    #[inline]
    unsafe fn from_args(args: *mut c_void) -> Self {
        // SAFETY: null, or a valid value that no other code writes to before the call ends.
        unsafe { args.cast::<T>().as_ref() }.unwrap_or_else(|| fail(NO_ARGS))
    }
}

impl<T: TargetArgs> Target for &mut T {
    #[inline]
    unsafe fn from_args(args: *mut c_void) -> Self {
        // SAFETY: null, or a valid value that no other code accesses before the call ends.
        unsafe { args.cast::<T>().as_mut() }.unwrap_or_else(|| fail(NO_ARGS))
    }
}

impl<T> Target for *mut T {
    #[inline]
    unsafe fn from_args(args: *mut c_void) -> Self {
        args.cast()
    }
}
