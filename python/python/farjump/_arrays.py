"""Arrays as bytes: a header of 64 bytes, then the values, little-endian and in C order.

| offset | bytes | value |
|---|---|---|
| 0 | 4 | `FJA1` |
| 4 | 1 | kind of the values: `b` boolean, `i` signed, `u` unsigned, `f` floating, `c` complex |
| 5 | 1 | bytes of one value |
| 6 | 1 | number of dimensions, 0 to 4 |
| 7 | 1 | 0 |
| 8 | 32 | the shape, four integers of 8 bytes; unused ones are 0 |
| 40 | 8 | bytes of all values |
| 48 | 16 | 0 |
"""

import struct
import sys

MAGIC = b"FJA1"
LENGTH = 64
_HEADER = struct.Struct("<4scBBx4QQ16x")
_KINDS = frozenset("biufc")


def fits(array):
    """Whether this array of NumPy has a header: contiguous, of at most four dimensions, of native numbers."""
    dtype = array.dtype
    return (
        dtype.kind in _KINDS
        and dtype.isnative
        and sys.byteorder == "little"
        and array.ndim <= 4
        and array.flags.c_contiguous
    )


def header(array):
    """The header of an array that `fits`."""
    shape = array.shape + (0,) * (4 - array.ndim)
    return _HEADER.pack(MAGIC, array.dtype.kind.encode(), array.dtype.itemsize, array.ndim, *shape, array.nbytes)


def view(buffer):
    """The array whose header and values these bytes are, without a copy. It is read-only if they are."""
    import numpy

    if len(buffer) < LENGTH:
        raise ValueError(f"{len(buffer)} bytes are no array: its header alone has {LENGTH}")
    magic, kind, itemsize, ndim, *shape, length = _HEADER.unpack_from(buffer)
    if magic != MAGIC:
        raise ValueError(f"these bytes are no array: they begin with {magic!r}, not with {MAGIC!r}")
    try:
        if kind.decode() not in _KINDS or ndim > 4:
            raise TypeError
        dtype = numpy.dtype(f"<{kind.decode()}{itemsize}")
    except (TypeError, UnicodeDecodeError):
        raise ValueError(
            f"the header of the array names values of kind {kind!r} with {itemsize} bytes in {ndim} dimensions, "
            "which this version of farjump does not know"
        ) from None
    values = 1
    for extent in shape[:ndim]:
        values *= extent
    if values * itemsize != length or len(buffer) - LENGTH < length:
        raise ValueError(
            f"the array is cut: shape {tuple(shape[:ndim])} needs {values * itemsize} bytes, its header says {length}, "
            f"and {len(buffer) - LENGTH} are there"
        )
    return numpy.ndarray(tuple(shape[:ndim]), dtype, buffer, LENGTH)
