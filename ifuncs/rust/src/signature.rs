//! The sizes and alignments of an ifunc's arguments and reply, as its library states them to sources.

/// The shape of the values that a call takes or returns. `farjump build` reads this structure
/// (`docs/guide/writing-ifuncs.md`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Shape {
    /// 0: any bytes; 1: one value; 2: any number of values.
    kind: u32,
    /// Size of one value in bytes.
    size: u32,
    /// Alignment of a value in bytes.
    align: u32,
}

impl Shape {
    /// Any bytes.
    pub const ANY: Shape = Shape { kind: 0, size: 0, align: 1 };

    /// The arguments of the author's own payload routine: any bytes.
    pub const fn of_arguments(_routine: &str) -> Shape {
        Shape::ANY
    }

    /// One value.
    pub const fn one<T>() -> Shape {
        Shape::new::<T>(1)
    }

    /// Any number of values.
    pub const fn many<T>() -> Shape {
        Shape::new::<T>(2)
    }

    const fn new<T>(kind: u32) -> Shape {
        assert!(size_of::<T>() <= 1 << 30, "a payload has at most one gigabyte");
        Shape { kind, size: size_of::<T>() as u32, align: align_of::<T>() as u32 }
    }
}

/// The contents of a library's `NAME_signature`: the shapes, and the function's source text for readers.
#[repr(C)]
pub struct Signature<const N: usize> {
    arguments: Shape,
    reply: Shape,
    len: u32,
    text: [u8; N],
}

impl<const N: usize> Signature<N> {
    /// Makes a signature. `text` has `N` bytes.
    pub const fn new(arguments: Shape, reply: Shape, text: &str) -> Signature<N> {
        let mut copy = [0; N];
        copy.copy_from_slice(text.as_bytes());
        Signature { arguments, reply, len: N as u32, text: copy }
    }
}
