//! Plain data: the types of payloads and replies.

/// Values that consist of nothing but their bytes. Payloads are read as such values, and replies written.
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
/// # Safety
/// No byte of a value is padding, any bytes of its size are a value, and it holds no pointer, reference or
/// cell. A structure is `#[repr(C)]`, and its fields are `Plain` and leave no gaps.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not plain data",
    label = "this may have padding, pointers, or bytes that are no value",
    note = "use integers, floats, arrays of them, and structs with #[derive(Plain)] and #[repr(C)]"
)]
pub unsafe trait Plain {}

macro_rules! plain {
    ($($type:ty)*) => {$(
        // SAFETY: a number has no padding, and any bytes are a number.
        unsafe impl Plain for $type {}
    )*};
}

plain!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64);

// SAFETY: the elements follow each other without gaps, and are plain.
unsafe impl<T: Plain> Plain for [T] {}
// SAFETY: the elements follow each other without gaps, and are plain, as in slices.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// Compiles where `T` is plain.
#[doc(hidden)]
pub const fn is_plain<T: Plain>() {}
