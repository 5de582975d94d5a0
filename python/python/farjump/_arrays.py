"""Arrays as objects: a header of 64 bytes, then the items in C order.

| offset | bytes | content |
|---|---|---|
| 0 | 4 | `FJA1` |
| 4 | 1, 1 | letter of the items' kind (`b`, `i`, `u`, `f`, `c`), and their length in bytes |
| 6 | 1, 1 | number of dimensions, at most 4, and 0 |
| 8 | 32 | the dimensions, 8 bytes each; 0 for missing ones |
| 40 | 8 | length of the items in bytes |
| 48 | 16 | 0 |

All numbers are little-endian.
"""

from __future__ import annotations

import struct
import sys
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy
    from typing_extensions import Buffer

MAGIC = b"FJA1"
LENGTH = 64
MAX_RANK = 4
_FORM = struct.Struct("<4scBBB4QQ16s")
_SIZES = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (4, 8), "c": (8, 16)}


class Header(NamedTuple):
    """The type, dimensions and place of the array in an object."""

    dtype: numpy.dtype
    shape: tuple[int, ...]
    offset: int
    """Offset of its items, in bytes."""
    size: int
    """Their length in bytes."""


def is_plain(value: Any) -> bool:
    """Returns whether a value is no array, or one of `numpy.ndarray` or `numpy.memmap`. An array of another class is more
    than its items: it has a mask, a unit or other operations.
    """
    kind = type(value)
    numpy = sys.modules.get("numpy")
    return numpy is None or kind is numpy.ndarray or kind is numpy.memmap or not isinstance(value, numpy.ndarray)


def not_plain(array: Any, about: str) -> TypeError:
    """Returns the error for an array that is not plain. `about` begins its sentence."""
    import numpy

    if isinstance(array, numpy.ma.MaskedArray):
        advice = "give its items without the mask, by `filled(value)` or `compressed()`"
    else:
        advice = "give its items, by numpy.asarray"
    kind = f"{type(array).__module__}.{type(array).__qualname__}"
    return TypeError(f"{about} is a {kind}, and farjump takes arrays of numpy.ndarray and numpy.memmap alone: {advice}")


def header(array: numpy.ndarray) -> bytes:
    """Returns the header for an array. The items follow as `array.data` has them.

    TypeError or ValueError says why an array cannot be an object.
    """
    if not is_plain(array):
        raise not_plain(array, "an array for an object")
    kind, size = array.dtype.kind, array.dtype.itemsize
    if size not in _SIZES.get(kind, ()) or not array.dtype.isnative:
        raise TypeError(
            f"an array of {array.dtype.str} cannot be an object: it can be one of bool, integers, floats up to 8 bytes and "
            "complex numbers up to 16, in this machine's byte order"
        )
    if array.ndim > MAX_RANK:
        raise ValueError(f"an array of {array.ndim} dimensions cannot be an object: the most are {MAX_RANK}")
    if not array.flags.c_contiguous:
        raise ValueError("an array with gaps cannot be an object: put a copy, numpy.ascontiguousarray(array)")
    dimensions = array.shape + (0,) * (MAX_RANK - array.ndim)
    return _FORM.pack(MAGIC, kind.encode(), size, array.ndim, 0, *dimensions, array.nbytes, bytes(16))


def parse(buffer: Buffer) -> Header:
    """Returns the type, dimensions and place of the array in a buffer. ValueError says why there is none."""
    import numpy

    with memoryview(buffer) as view:
        found = view.nbytes
        start = bytes(view.cast("B")[:LENGTH]) if view.c_contiguous and found else b""
    if len(start) < LENGTH:
        raise ValueError(f"this object is no array: it has {len(start)} bytes side by side, and a header {LENGTH}")
    magic, letter, itemsize, rank, zero, *numbers, last = _FORM.unpack(start)
    if magic != MAGIC:
        raise ValueError("this object is no array: it does not start with FJA1")
    kind = letter.decode("latin-1")
    dimensions, size = tuple(numbers[:MAX_RANK]), numbers[MAX_RANK]
    if itemsize not in _SIZES.get(kind, ()):
        raise ValueError(f"this array is damaged: it has items of kind {kind!r} and {itemsize} bytes")
    if rank > MAX_RANK or zero or any(last) or any(dimensions[rank:]):
        raise ValueError("this array is damaged: its header has numbers that mean nothing")
    shape = dimensions[:rank]
    if prod(max(one, 1) for one in shape) * itemsize >= 1 << 63 or prod(shape) * itemsize != size:
        raise ValueError(f"this array is damaged: it has dimensions {shape} of {itemsize} bytes, and {size} bytes of items")
    if size > found - LENGTH:
        raise ValueError(f"this array is truncated: it has {size} bytes of items, and {found - LENGTH} are there")
    return Header(numpy.dtype(f"{kind}{itemsize}"), shape, LENGTH, size)


def view(buffer: Buffer) -> numpy.ndarray:
    """Returns the array in a buffer, without a copy. It is writable if the buffer is. ValueError says why there is none."""
    import numpy

    found = parse(buffer)
    return numpy.ndarray(found.shape, found.dtype, memoryview(buffer).cast("B"), found.offset)
