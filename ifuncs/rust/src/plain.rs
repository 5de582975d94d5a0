//! Plain data: the types of payloads and replies.

/// Values that consist of nothing but their bytes. Payloads are read as such values, and replies written.
///
/// The bytes are the same on each machine for which farjump builds functions: numbers are little-endian, floats are
/// IEEE 754, and each type has one size and one alignment. So a source on one machine and a target on another agree on
/// a payload without a conversion. A function for a machine with another byte order does not compile.
///
/// Derive it for a structure:
/// ```
/// # use farjump_ifunc::Plain;
/// #[derive(Plain)]
/// #[repr(C)]
/// struct Row {
///     key: u64,
///     column: u32,
///     flags: u32,
/// }
/// ```
/// The structure is `#[repr(C)]` or `#[repr(transparent)]`, each field is plain, and there is no padding:
/// ```compile_fail,E0080
/// # use farjump_ifunc::Plain;
/// #[derive(Plain)]
/// #[repr(C)]
/// struct Row {
///     key: u64,
///     column: u32,
/// }
/// ```
/// ```compile_fail,E0277
/// # use farjump_ifunc::Plain;
/// #[derive(Plain)]
/// #[repr(C)]
/// struct Row {
///     is_new: bool,
/// }
/// ```
///
/// Types that have another size on other machines, or that mean something in one process alone, are not plain:
/// ```compile_fail,E0277
/// # use farjump_ifunc::Plain;
/// #[derive(Plain)]
/// #[repr(C)]
/// struct Row {
///     index: usize,
/// }
/// ```
/// ```compile_fail,E0277
/// # use farjump_ifunc::Plain;
/// #[derive(Plain)]
/// #[repr(C)]
/// struct Row {
///     name: &'static u8,
/// }
/// ```
///
/// # Safety
/// No byte of a value is padding, any bytes of its size are a value, and it holds no pointer, reference or
/// cell. Its size, and the meaning of its bytes, are the same on each machine. A structure is `#[repr(C)]`, and its
/// fields are `Plain` and leave no gaps.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not plain data",
    label = "this may have padding, pointers, bytes that are no value, or another size on other machines",
    note = "use integers of a fixed size, floats, arrays of them, and structs with #[derive(Plain)] and #[repr(C)]"
)]
pub unsafe trait Plain {}

macro_rules! plain {
    ($($type:ty)*) => {$(
        // SAFETY: a number has no padding, and any bytes are a number.
        unsafe impl Plain for $type {}
    )*};
}

plain!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64);

#[cfg(not(target_endian = "little"))]
compile_error!("functions for big-endian machines are not built: payloads are little-endian");

// SAFETY: the elements follow each other without gaps, and are plain.
unsafe impl<T: Plain> Plain for [T] {}
// SAFETY: the elements follow each other without gaps, and are plain, as in slices.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// Compiles only if `T` is plain.
#[doc(hidden)]
pub const fn is_plain<T: Plain>() {}
