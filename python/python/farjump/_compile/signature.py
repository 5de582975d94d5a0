"""Signatures of ifuncs: the types of arguments and results, and their bytes in payloads and replies.

A payload starts with `FJP1` and the number of arguments, 4 bytes each. Then each argument has a slot, in order:

* A scalar is its value in 8 bytes, a complex128 in 16.
* An array is its kind, offset, length and dimensions, each 8 bytes. Kind 0 has its items at this offset of the
  payload, kind 1 the handle of an object of the target.
* An output is an array of kind 2, with the dimensions of the first array argument, or of kind 3, with those stated.

A reply is the result's slots. All numbers are little-endian.
"""

from __future__ import annotations

import operator
import re
import struct
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from .._arrays import MAX_RANK as MAX_OBJECT_RANK
from .._arrays import is_plain, not_plain

HEAD = 8
MAGIC = b"FJP1"
INLINE, OBJECT, LIKE_FIRST, SHAPED = range(4)
# Arrays start at multiples of it in a payload.
ALIGNMENT = 16
MAX_RANK = 15
# The attribute of an argument's type that returns the bytes of the handle for it.
HANDLE = "__farjump_handle__"

_LETTERS = {
    "b1": "?", "i1": "b", "i2": "h", "i4": "i", "i8": "q", "u1": "B", "u2": "H", "u4": "I", "u8": "Q",
    "f4": "f", "f8": "d", "c8": "ff", "c16": "dd",
}  # fmt: skip
_NAMES = {"bool": "b1", "float32": "f4", "float64": "f8", "complex64": "c8", "complex128": "c16"} | {
    f"{name}{8 * size}": f"{name[0]}{size}" for name in ("int", "uint") for size in (1, 2, 4, 8)
}
_PART = re.compile(r"(?:(?P<out>out)\s+)?(?P<type>\w+)\s*(?:\[(?P<dimensions>[^\]]*)\])?", re.ASCII)


class Kind(NamedTuple):
    """The type of a scalar, or of an array's items."""

    code: str
    """As NumPy writes it: f4."""

    @property
    def letter(self) -> str:
        return "b" if self.code == "b1" else self.code[0]

    @property
    def size(self) -> int:
        return int(self.code[1:])

    @property
    def alignment(self) -> int:
        return self.size // 2 if self.letter == "c" else self.size

    @property
    def slot(self) -> str:
        """The format of a scalar in a slot, for `struct`."""
        letters = _LETTERS[self.code]
        return letters + "x" * (max(self.size, 8) - self.size)


class Argument(NamedTuple):
    """An argument of a function."""

    name: str
    kind: Kind
    rank: int | None
    """The number of an array's dimensions; None for a scalar."""
    is_output: bool

    @property
    def type(self) -> str:
        """Its type, as signatures write it."""
        if self.rank is None:
            return self.kind.code
        return f"{self.kind.code}[{', '.join([':'] * (self.rank - 1) + ['::1'])}]"

    @property
    def slot(self) -> str:
        return self.kind.slot if self.rank is None else "QQQ" + "Q" * self.rank


class Result(NamedTuple):
    """The result of a function."""

    kinds: tuple[Kind, ...]
    is_tuple: bool

    def decode(self, reply: bytes) -> Any:
        """Returns the result in a reply."""
        form = "<" + "".join(kind.slot for kind in self.kinds)
        if len(reply) != struct.calcsize(form):
            raise ValueError(f"the reply has {len(reply)} bytes, and a result {struct.calcsize(form)}")
        numbers = iter(struct.unpack(form, reply))
        values = tuple(
            complex(next(numbers), next(numbers)) if kind.letter == "c" else next(numbers) for kind in self.kinds
        )
        return values if self.is_tuple else values[0] if values else None


class Signature:
    """The signature of a function with arguments of these names."""

    def __init__(self, text: str, function: str, names: Sequence[str]) -> None:
        self.text = text
        self.function = function
        before, arrow, after = text.partition("->")
        if not arrow:
            raise ValueError(f"the signature {text!r} has no result: write it as in 'f4[::1] -> i8', or '-> none'")
        parts = _split(before)
        if len(parts) != len(names):
            raise ValueError(
                f"`{function}` has {len(names)} arguments, and the signature {text!r} has {len(parts)}: state a type for each"
            )
        self.arguments = tuple(self._argument(part, name) for part, name in zip(parts, names))
        self.result = self._result(after.strip())
        outputs = [argument for argument in self.arguments if argument.is_output]
        self.output = outputs[0] if outputs else None
        if outputs and (len(outputs) > 1 or not self.arguments[-1].is_output or self.result.kinds):
            raise ValueError(
                f"the signature {text!r}: an output is the last argument, there is one, and the result is none"
            )
        self.form = struct.Struct("<4sI" + "".join(argument.slot for argument in self.arguments))

    def _argument(self, part: str, name: str) -> Argument:
        found = _PART.fullmatch(part)
        if found is None:
            raise ValueError(f"{part!r} in the signature {self.text!r} is no type: write f8, or f4[::1] for an array")
        kind = self._kind(found["type"])
        is_output, dimensions = bool(found["out"]), found["dimensions"]
        if dimensions is None:
            if is_output:
                raise ValueError(f"the output {part!r} in the signature {self.text!r} is no array: write it as out f4[::1]")
            return Argument(name, kind, None, False)
        each = [one.strip() for one in dimensions.split(",")]
        argument = Argument(name, kind, len(each), is_output)
        if each[:-1] != [":"] * (len(each) - 1) or each[-1] != "::1":
            raise ValueError(
                f"{part!r} in the signature {self.text!r} may have gaps, and farjump takes C-contiguous arrays: write "
                f"{argument.type}"
            )
        most = MAX_OBJECT_RANK if is_output else MAX_RANK
        if len(each) > most:
            raise ValueError(f"{part!r} in the signature {self.text!r} has more than {most} dimensions")
        return argument

    def _kind(self, name: str) -> Kind:
        code = _NAMES.get(name, name)
        if code not in _LETTERS:
            raise ValueError(
                f"`{name}` in the signature {self.text!r} is no type of numbers: there are {', '.join(_LETTERS)}, and bool"
            )
        return Kind(code)

    def _result(self, text: str) -> Result:
        if text in ("none", "None", "void"):
            return Result((), False)
        if "[" in text:
            raise ValueError(
                f"the signature {self.text!r} has an array as its result, and results are scalars: mark the last argument "
                "as output (`out f4[::1] -> none`) for farjump.derive, which makes an object of it"
            )
        is_tuple = text.startswith("(") and text.endswith(")")
        parts = _split(text[1:-1]) if is_tuple else [text]
        if not parts or not all(parts):
            raise ValueError(f"the signature {self.text!r} has no result: write -> none if there is none")
        return Result(tuple(self._kind(part) for part in parts), is_tuple)

    def values(self, values: Sequence[Any]) -> list[Any]:
        """Returns these arguments for a function that runs here: NumPy's numbers, and read-only arrays. Refuses those that
        `payload` refuses, and handles.
        """
        import numpy

        made = []
        for argument, value in zip(self._given(values), values):
            if argument.rank is None:
                numbers = self._packed(argument, self._scalar(argument, value))
                of_type = numpy.dtype(argument.kind.code).type
                made.append(of_type(complex(*numbers) if argument.kind.letter == "c" else numbers[0]))
            else:
                array = self._array(argument, value).view(numpy.ndarray)
                array.flags.writeable = False
                made.append(array)
        return made

    def _given(self, values: Sequence[Any]) -> Sequence[Argument]:
        """Returns the arguments that a call states: all but an output."""
        given = self.arguments[: len(self.arguments) - (self.output is not None)]
        if len(values) != len(given):
            raise TypeError(f"`{self.function}` takes {len(given)} arguments ({self.text}), and there are {len(values)}")
        return given

    def payload(self, values: Sequence[Any], shape: Sequence[int] | None = None) -> tuple[bytearray, bool]:
        """Returns the payload with these arguments, and whether one of them is a handle. An output is not among them, and
        has the dimensions `shape`.
        """
        given = self._given(values)
        slots: list[Any] = [MAGIC, len(self.arguments)]
        behind: list[tuple[int, Any]] = []
        end, has_handle = self.form.size, False
        for argument, value in zip(given, values):
            if argument.rank is None:
                slots += self._scalar(argument, value)
                continue
            handle = getattr(type(value), HANDLE, None)
            start = end + -end % ALIGNMENT
            if handle is None:
                array = self._array(argument, value)
                slots += (INLINE, start, array.nbytes, *array.shape)
                bytes_: Any = array.reshape(-1).view("u1").data
            else:
                if argument.rank > MAX_OBJECT_RANK:
                    raise TypeError(
                        f"argument `{argument.name}` of `{self.function}` has {argument.rank} dimensions, and objects "
                        f"{MAX_OBJECT_RANK} at most: send the array itself"
                    )
                bytes_, has_handle = memoryview(handle(value)), True
                slots += (OBJECT, start, len(bytes_), *[0] * argument.rank)
            behind.append((start, bytes_))
            end = start + len(bytes_)
        if self.output is not None:
            slots += self._output(given, shape)
        payload = bytearray(end)
        self._pack(payload, slots)
        # A view copies once, and a bytearray itself twice.
        with memoryview(payload) as whole:
            for start, bytes_ in behind:
                whole[start : start + len(bytes_)] = bytes_
        return payload, has_handle

    def _pack(self, payload: bytearray, slots: list[Any]) -> None:
        try:
            self.form.pack_into(payload, 0, *slots)
        except (struct.error, OverflowError):
            # Packing one at a time shows which one does not fit.
            position = 2
            for argument in self.arguments:
                count = len(struct.unpack("<" + argument.slot, bytes(struct.calcsize("<" + argument.slot))))
                self._packed(argument, slots[position : position + count])
                position += count
            raise

    def _packed(self, argument: Argument, numbers: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the numbers of a slot as it holds them. Raises OverflowError if it cannot."""
        form = "<" + argument.slot
        try:
            return struct.unpack(form, struct.pack(form, *numbers))
        except (struct.error, OverflowError):
            value = numbers[0] if len(numbers) == 1 else tuple(numbers)
            raise OverflowError(
                f"argument `{argument.name}` of `{self.function}` is {value!r}, which {argument.type} cannot hold"
            ) from None

    def _scalar(self, argument: Argument, value: Any) -> tuple[Any, ...]:
        letter = argument.kind.letter
        try:
            if letter in "iu":
                return (operator.index(value),)
            if letter == "b" and type(value).__name__ in ("bool", "bool_"):
                return (bool(value),)
            if letter == "f" and not isinstance(value, (str, bytes)):
                return (float(value),)
            if letter == "c" and not isinstance(value, (str, bytes)):
                number = complex(value)
                return (number.real, number.imag)
        except OverflowError:
            raise OverflowError(
                f"argument `{argument.name}` of `{self.function}` is {value!r}, which {argument.type} cannot hold"
            ) from None
        except (TypeError, ValueError):
            pass
        raise TypeError(
            f"argument `{argument.name}` of `{self.function}` is of type {type(value).__name__}, and the signature says "
            f"{argument.type}: convert it"
        )

    def _array(self, argument: Argument, value: Any) -> Any:
        import numpy

        about = f"argument `{argument.name}` of `{self.function}`"
        if type(value) is not numpy.ndarray and not is_plain(value):
            raise not_plain(value, about)
        if not isinstance(value, numpy.ndarray):
            try:
                value = numpy.asarray(memoryview(value))
            except TypeError:
                raise TypeError(
                    f"{about} is of type {type(value).__name__}, and the signature says {argument.type}: give a NumPy "
                    "array, or another object that shows its items (memoryview)"
                ) from None
        expected = numpy.dtype(argument.kind.code)
        if value.dtype != expected:
            raise TypeError(
                f"{about} is an array of {value.dtype.str.lstrip('<|=')}, and the signature says {argument.type}: convert "
                f"it with {argument.name}.astype({argument.kind.code!r})"
            )
        if value.ndim != argument.rank:
            raise TypeError(f"{about} has {value.ndim} dimensions, and the signature says {argument.type}: reshape it")
        if not value.flags.c_contiguous:
            raise ValueError(
                f"{about} is not C-contiguous: send a copy, numpy.ascontiguousarray({argument.name})"
            )
        return value

    def _output(self, given: Sequence[Argument], shape: Sequence[int] | None) -> tuple[int, ...]:
        output = self.output
        assert output is not None and output.rank is not None
        about = f"the output `{output.name}` of `{self.function}`"
        if shape is None:
            first = next((argument for argument in given if argument.rank is not None), None)
            if first is None or first.rank != output.rank:
                raise TypeError(f"{about} is not as long as an array argument: state its dimensions, shape=(…)")
            return (LIKE_FIRST, 0, 0, *[0] * output.rank)
        dimensions = tuple(operator.index(one) for one in shape)
        if len(dimensions) != output.rank or any(one < 0 for one in dimensions):
            raise ValueError(f"shape={tuple(shape)!r} does not fit {about}, which is {output.type}")
        if prod(max(one, 1) for one in dimensions) * output.kind.size >= 1 << 62:
            raise ValueError(f"shape={tuple(shape)!r} of {about} is larger than any memory")
        return (SHAPED, 0, 0, *dimensions)


def _split(text: str) -> list[str]:
    """Returns the parts between commas that are not in brackets."""
    text = text.strip().removesuffix(",")
    return [part.strip() for part in re.split(r",(?![^\[]*\])", text)] if text.strip() else []
