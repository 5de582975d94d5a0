"""Objects as bytes: bytes-like objects and arrays as they are, everything else by pickle.

The first four bytes name the form: `FJA1` is an array (`_arrays`), `FJB1` a bytes-like object, `FJP1` a pickle. The large
buffers of a pickle follow it, each at a multiple of 64 bytes. So arrays in a pickle are read in place.
"""

from __future__ import annotations

import contextlib
import pickle
import struct
import sys
from typing import TYPE_CHECKING, Any

from . import _arrays

if TYPE_CHECKING:
    from typing_extensions import Buffer

_BYTES = b"FJB1"
_PICKLE = b"FJP1"
# The header of bytes: a letter for their class, and the format of a memoryview's items.
_BYTES_HEADER = struct.Struct("<4scc2x")
# The header of a pickle: the number of buffers, and the length of the pickle. The buffers' lengths follow.
_PICKLE_HEADER = struct.Struct("<4sIQ")
_LENGTHS = struct.Struct("<Q")
_CLASSES = {bytes: b"b", bytearray: b"a", memoryview: b"m"}
# Kinds of NumPy's numbers.
_KINDS = frozenset("biufc")
_ALIGNMENT = 64
_PADDING = bytes(_ALIGNMENT)
_PROTOCOL = 5


def parts(obj: Any) -> tuple[list[Buffer], str]:
    """Returns the bytes of an object in consecutive parts, and a name of its type."""
    kind = type(obj)
    code = _CLASSES.get(kind)
    if code is not None:
        return _of_bytes(obj, code), kind.__name__
    numpy = sys.modules.get("numpy")
    if numpy is not None and kind is numpy.ndarray and obj.dtype.kind in _KINDS:
        with contextlib.suppress(TypeError, ValueError):
            name = f"{obj.dtype.str[1:]}[{','.join(map(str, obj.shape))}]"
            return [_arrays.header(obj), _values(obj)], name
    return _of_pickle(obj), kind.__qualname__


def serialize(obj: Any) -> bytes:
    """Returns the bytes of an object.

    `bytes`, `bytearray`, `memoryview` and contiguous NumPy arrays of numbers become a short header and their bytes.
    Everything else is pickled, by cloudpickle if pickle cannot.
    """
    return b"".join(parts(obj)[0])


def deserialize(buffer: Buffer) -> Any:
    """Returns the object of these bytes.

    Arrays from a `memoryview` are views: they hold the memory, and are read-only if it is. `bytes` and `bytearray` are
    copies. A `memoryview` is a part of the given one. ProxyStore's default deserializer reads the bytes of ProxyStore's
    default serializer. Pickles run code: take only bytes that you trust.
    """
    view = memoryview(buffer)
    if view.format != "B" or view.ndim != 1:
        view = view.cast("B")
    magic = bytes(view[:4])
    if magic == _arrays.MAGIC:
        return _to_array(view)
    if magic == _BYTES and len(view) >= _BYTES_HEADER.size:
        return _to_bytes(view)
    if magic == _PICKLE and len(view) >= _PICKLE_HEADER.size:
        return _to_object(view)
    if magic[2:3] == b"\n":
        return _by_proxystore(view)
    raise _foreign(view)


def _by_proxystore(view):
    """Returns the object of bytes that begin like those of ProxyStore's serializer: two characters and a newline."""
    try:
        from proxystore import serialize as theirs
    except ModuleNotFoundError:
        raise _foreign(view) from None
    try:
        return theirs.deserialize(view)
    except theirs.SerializationError as error:
        # The error for an unknown identifier has no cause.
        if error.__cause__ is None:
            raise _foreign(view) from None
        raise


def _foreign(view):
    return ValueError(
        f"these bytes begin with {bytes(view[:4])!r}, and were not made by farjump.proxystore.serialize: "
        "give the deserializer that belongs to their serializer"
    )


def _values(array):
    """Returns the values of a contiguous array as bytes. A memoryview with an extent of 0 cannot be cast."""
    return memoryview(array.reshape(-1)).cast("B") if array.size else b""


def _to_array(view):
    try:
        return _arrays.view(view)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "the object is an array, and NumPy is not installed here: pip install numpy", name=error.name
        ) from None


def _of_bytes(obj, code):
    item = b"B"
    if code == b"m":
        if not obj.c_contiguous or obj.ndim != 1 or len(obj.format) != 1:
            raise TypeError(
                f"a memoryview of {obj.ndim} dimensions and format {obj.format!r} cannot be kept as bytes: "
                "give one of one dimension without gaps, or numpy.asarray(it)"
            )
        item, obj = obj.format.encode(), obj.cast("B")
    return [_BYTES_HEADER.pack(_BYTES, code, item), obj]


def _to_bytes(view):
    _, code, item = _BYTES_HEADER.unpack_from(view)
    data = view[_BYTES_HEADER.size :]
    if code == b"b":
        return bytes(data)
    if code == b"a":
        return bytearray(data)
    if code != b"m":
        raise ValueError(f"these bytes are of kind {code!r}, which this version of farjump does not know")
    return data if item == b"B" else data.cast(item.decode("latin-1"))


def _of_pickle(obj):
    buffers = []
    try:
        pickled = pickle.dumps(obj, _PROTOCOL, buffer_callback=buffers.append)
        raw = [buffer.raw() for buffer in buffers]
    except (pickle.PicklingError, AttributeError, TypeError, BufferError):
        import cloudpickle

        buffers.clear()
        pickled = cloudpickle.dumps(obj, _PROTOCOL, buffer_callback=buffers.append)
        raw = [buffer.raw() for buffer in buffers]
    lengths = b"".join(_LENGTHS.pack(buffer.nbytes) for buffer in raw)
    pieces = [_PICKLE_HEADER.pack(_PICKLE, len(raw), len(pickled)) + lengths, pickled]
    at = len(pieces[0]) + len(pickled)
    for buffer in raw:
        pieces += [_PADDING[: -at % _ALIGNMENT], buffer]
        at += -at % _ALIGNMENT + buffer.nbytes
    return pieces


def _to_object(view):
    _, number, length = _PICKLE_HEADER.unpack_from(view)
    at = _PICKLE_HEADER.size + number * _LENGTHS.size
    if at + length > len(view):
        raise _cut(at + length, view)
    lengths = [of for (of,) in _LENGTHS.iter_unpack(view[_PICKLE_HEADER.size : at])]
    starts = []
    end = at + length
    for of in lengths:
        starts.append(end + -end % _ALIGNMENT)
        end = starts[-1] + of
    if end > len(view):
        raise _cut(end, view)
    buffers = [view[start : start + of] for start, of in zip(starts, lengths)]
    return pickle.loads(view[at : at + length], buffers=buffers)


def _cut(needed, view):
    return ValueError(f"the pickle is cut: it has {needed} bytes, and {len(view)} are there")
