"""The routine around a function of Numba's, as LLVM IR: it checks the payload, calls the function, and replies.

A call that fails ends with the message `ended with code N`. Below `FAULT`, N is the number of an exception that the
function raises. `UNKNOWN` is an exception without a number. Otherwise N is `FAULT + STEP * argument + reason`. Reasons
above `STORE` are errors of the target's store, which are negative there.
"""

from __future__ import annotations

import enum
import re

from .._arrays import LENGTH, MAX_RANK
from .._arrays import MAGIC as OBJECT_MAGIC
from .signature import HEAD, INLINE, LIKE_FIRST, MAGIC, OBJECT, SHAPED, Argument, Kind, Signature

UNKNOWN = 9_999
FAULT = 10_000
STEP = 100
STORE = 20
SPILLED = STORE + 8
MAX_ARGUMENTS = 200

REASONS = {
    1: "the payload has no place for argument `{name}` of `{function}`: it was not made by this version of farjump",
    2: "the object for argument `{name}` of `{function}` is no array",
    3: "the object for argument `{name}` of `{function}` is an array, but none of type {type}",
    4: "the object for argument `{name}` of `{function}` is damaged: its header does not fit its length",
    5: "the items of argument `{name}` of `{function}` do not lie at a multiple of their length",
    6: "the output `{name}` of `{function}` would be larger than any memory",
    STORE + 1: "the target has no store of objects, which argument `{name}` of `{function}` needs",
    STORE + 2: "argument `{name}` of `{function}` is no handle, or one of another version of farjump",
    STORE + 3: "the object for argument `{name}` of `{function}` is another target's",
    STORE + 4: "the object for argument `{name}` of `{function}` is gone: it was evicted, or the target started again",
    STORE + 5: "the handle for argument `{name}` of `{function}` has the key of another object",
    STORE + 6: "the target has no memory for the output `{name}` of `{function}`: evict objects, or give its store more",
    STORE + 7: "the object for argument `{name}` of `{function}` was reserved, and has no contents yet",
    SPILLED: "the target's store reads or writes its file for `{name}` of `{function}`: call again",
}

_MESSAGE = re.compile(r"ended with code (\d{5})")


class Variant(enum.Enum):
    """The images of one function."""

    PLAIN = enum.auto()
    """Arguments are in the payload."""
    OBJECTS = enum.auto()
    """Arguments can be objects of the target."""
    DERIVE = enum.auto()
    """As OBJECTS, and the output is a new object of the target."""


def code_in(message: str) -> int | None:
    """Returns the code in a message of the routine; None if it has another form."""
    found = _MESSAGE.fullmatch(message)
    return int(found[1]) if found else None


_END = """
declare i32 @farjump_reply(ptr, i64)
declare void @farjump_panic(ptr, i64) noreturn

@farjump.message = private constant [21 x i8] c"ended with code 00000"

define internal void @farjump.end(i32 %code) noreturn noinline minsize {
entry:
  %text = alloca [21 x i8], align 8
  call void @llvm.memcpy.p0.p0.i64(ptr %text, ptr @farjump.message, i64 21, i1 false)
  br label %digit
digit:
  %at = phi i64 [ 20, %entry ], [ %before, %digit ]
  %left = phi i32 [ %code, %entry ], [ %rest, %digit ]
  %value = urem i32 %left, 10
  %rest = udiv i32 %left, 10
  %char = add i32 %value, 48
  %byte = trunc i32 %char to i8
  %place = getelementptr i8, ptr %text, i64 %at
  store i8 %byte, ptr %place
  %before = sub i64 %at, 1
  %more = icmp ne i32 %rest, 0
  br i1 %more, label %digit, label %tell
tell:
  call void @farjump_panic(ptr %text, i64 21)
  unreachable
}

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare { i64, i1 } @llvm.umul.with.overflow.i64(i64, i64)

; The bytes of %rank dimensions at %from, which it copies to %to; -1 if they are too many. Each is read once: payloads
; and objects may be memory that others still write.
define internal i64 @farjump.bytes(ptr %from, i64 %rank, i64 %itemsize, ptr %to) noinline minsize {
entry:
  br label %dimension
dimension:
  %index = phi i64 [ 0, %entry ], [ %next, %fits ]
  %bytes = phi i64 [ %itemsize, %entry ], [ %product, %fits ]
  %empty = phi i1 [ false, %entry ], [ %none, %fits ]
  %source = getelementptr i64, ptr %from, i64 %index
  %length = load volatile i64, ptr %source, align 1
  %target = getelementptr i64, ptr %to, i64 %index
  store i64 %length, ptr %target, align 8
  %zero = icmp eq i64 %length, 0
  %none = or i1 %empty, %zero
  ; An empty array must have dimensions that could be multiplied as well.
  %factor = select i1 %zero, i64 1, i64 %length
  %both = call { i64, i1 } @llvm.umul.with.overflow.i64(i64 %bytes, i64 %factor)
  %product = extractvalue { i64, i1 } %both, 0
  %over = extractvalue { i64, i1 } %both, 1
  %negative = icmp slt i64 %product, 0
  %bad = or i1 %over, %negative
  br i1 %bad, label %large, label %fits
fits:
  %next = add i64 %index, 1
  %more = icmp ult i64 %next, %rank
  br i1 %more, label %dimension, label %done
done:
  %found = select i1 %none, i64 0, i64 %product
  ret i64 %found
large:
  ret i64 -1
}
"""

_ARRAY = """
; Finds the items and dimensions of an array argument. Returns 0, or the reason why they cannot be used.
define internal i32 @farjump.array(ptr %payload, i64 %size, ptr %slot, i64 %itemsize, i64 %mask, i64 %rank, i64 %type,
                                   ptr %shape, ptr %data) noinline minsize {
entry:
OBJECT_PLACES  %kind = load volatile i64, ptr %slot, align 1
  %slot8 = getelementptr i8, ptr %slot, i64 8
  %offset = load volatile i64, ptr %slot8, align 1
  %slot16 = getelementptr i8, ptr %slot, i64 16
  %length = load volatile i64, ptr %slot16, align 1
  %begins = icmp ule i64 %offset, %size
  %room = sub i64 %size, %offset
  %ends = icmp ule i64 %length, %room
  %fits = and i1 %begins, %ends
  br i1 %fits, label %whole, label %short
whole:
  %at = getelementptr i8, ptr %payload, i64 %offset
  switch i64 %kind, label %short [ i64 INLINE, label %inline OBJECT_CASE ]
inline:
  %dimensions = getelementptr i8, ptr %slot, i64 24
  br label %array
OBJECT_BLOCKS
array:
  %from = phi ptr [ %dimensions, %inline ] OBJECT_FROM
  %stated = phi i64 [ %length, %inline ] OBJECT_STATED
  %items = phi ptr [ %at, %inline ] OBJECT_ITEMS
  %wrong = phi i32 [ 1, %inline ] OBJECT_WRONG
  %bytes = call i64 @farjump.bytes(ptr %from, i64 %rank, i64 %itemsize, ptr %shape)
  %same = icmp eq i64 %bytes, %stated
  %possible = icmp sge i64 %bytes, 0
  %good = and i1 %same, %possible
  br i1 %good, label %placed, label %damaged
placed:
  %address = ptrtoint ptr %items to i64
  %beside = and i64 %address, %mask
  %aligned = icmp eq i64 %beside, 0
  store ptr %items, ptr %data, align 8
  %placed_well = select i1 %aligned, i32 0, i32 5
  ret i32 %placed_well
damaged:
  ret i32 %wrong
short:
  ret i32 1
}
"""

_STORE = """
declare i32 @farjump_object(ptr, i64, ptr, ptr)

; The reason for which the store refuses an object.
define internal i32 @farjump.why(i32 %error) {
  %number = sub i32 0, %error
  %is_known = icmp ult i32 %number, 20
  %known = select i1 %is_known, i32 %number, i32 20
  %reason = add i32 %known, STORE
  ret i32 %reason
}

declare i32 @farjump_again(ptr, i64)

; Has the call run again if the store reads or writes its file for it: the target waits for that. Whether it does.
define internal i1 @farjump.later(i32 %fault, ptr %payload, i64 %size) noinline minsize {
entry:
  %is_spilled = icmp eq i32 %fault, SPILLED
  br i1 %is_spilled, label %ask, label %other
ask:
  %refused = call i32 @farjump_again(ptr %payload, i64 %size)
  %runs = icmp eq i32 %refused, 0
  ret i1 %runs
other:
  ret i1 false
}
"""

_OBJECT_BLOCKS = """object:
  %missing = call i32 @farjump_object(ptr %at, i64 %length, ptr %base_at, ptr %extent_at)
  %there = icmp eq i32 %missing, 0
  br i1 %there, label %found, label %refused
found:
  %base = load ptr, ptr %base_at, align 8
  %extent = load i64, ptr %extent_at, align 8
  %headed = icmp uge i64 %extent, HEADER
  br i1 %headed, label %headed_well, label %no_array
headed_well:
  %start = load volatile i64, ptr %base, align 1
  %magic = trunc i64 %start to i32
  %is_array = icmp eq i32 %magic, OBJECT_MAGIC
  br i1 %is_array, label %typed, label %no_array
typed:
  %is_type = icmp eq i64 %start, %type
  br i1 %is_type, label %measured, label %other_type
measured:
  %object_dimensions = getelementptr i8, ptr %base, i64 8
  %length_at = getelementptr i8, ptr %base, i64 40
  %object_length = load volatile i64, ptr %length_at, align 1
  %behind = sub i64 %extent, HEADER
  %object_fits = icmp ule i64 %object_length, %behind
  %object_items = getelementptr i8, ptr %base, i64 HEADER
  br i1 %object_fits, label %array, label %cut
refused:
  %why = call i32 @farjump.why(i32 %missing)
  ret i32 %why
no_array:
  ret i32 2
other_type:
  ret i32 3
cut:
  ret i32 4
"""

_NEW = """
declare i32 @farjump_new_object(i64, ptr)

; Makes the object of the output, with its header. Returns 0, or the reason why there is none.
define internal i32 @farjump.new(ptr %slot, ptr %first, i64 %itemsize, i64 %mask, i64 %rank, i64 %type, ptr %shape,
                                 ptr %data) noinline minsize {
entry:
  %base_at = alloca ptr, align 8
  %kind = load volatile i64, ptr %slot, align 1
  %stated = getelementptr i8, ptr %slot, i64 24
  switch i64 %kind, label %wrong [ i64 SHAPED, label %shaped i64 LIKE_FIRST, label %like ]
like:
  %some = icmp ne ptr %first, null
  br i1 %some, label %shaped, label %wrong
shaped:
  %from = phi ptr [ %stated, %entry ], [ %first, %like ]
  %bytes = call i64 @farjump.bytes(ptr %from, i64 %rank, i64 %itemsize, ptr %shape)
  ; A negative number is one that is too large.
  %possible = icmp ult i64 %bytes, 4611686018427387904
  br i1 %possible, label %make, label %full
make:
  %total = add i64 %bytes, HEADER
  %refused = call i32 @farjump_new_object(i64 %total, ptr %base_at)
  %made = icmp eq i32 %refused, 0
  br i1 %made, label %fill, label %refusal
fill:
  %base = load ptr, ptr %base_at, align 8
  store i64 %type, ptr %base, align 1
  br label %dimension
dimension:
  %index = phi i64 [ 0, %fill ], [ %next, %filled ]
  %into = getelementptr i8, ptr %base, i64 8
  %place = getelementptr i64, ptr %into, i64 %index
  %has = icmp ult i64 %index, %rank
  br i1 %has, label %copy, label %filled
copy:
  %source = getelementptr i64, ptr %shape, i64 %index
  %length = load i64, ptr %source, align 8
  br label %filled
filled:
  %word = phi i64 [ 0, %dimension ], [ %length, %copy ]
  store i64 %word, ptr %place, align 1
  %next = add i64 %index, 1
  %more = icmp ult i64 %next, MAX_RANK
  br i1 %more, label %dimension, label %rest
rest:
  %length_at = getelementptr i8, ptr %base, i64 40
  store i64 %bytes, ptr %length_at, align 1
  %zeroes = getelementptr i8, ptr %base, i64 48
  store [2 x i64] zeroinitializer, ptr %zeroes, align 1
  %items = getelementptr i8, ptr %base, i64 HEADER
  store ptr %items, ptr %data, align 8
  %address = ptrtoint ptr %items to i64
  %beside = and i64 %address, %mask
  %aligned = icmp eq i64 %beside, 0
  %placed_well = select i1 %aligned, i32 0, i32 5
  ret i32 %placed_well
full:
  ret i32 6
refusal:
  %why = call i32 @farjump.why(i32 %refused)
  ret i32 %why
wrong:
  ret i32 1
}
"""


def _word(start: bytes) -> int:
    return int.from_bytes(start, "little")


def type_word(kind: Kind, rank: int) -> int:
    """Returns the first 8 bytes of the header of such an array."""
    return _word(OBJECT_MAGIC + kind.letter.encode() + bytes([kind.size, rank, 0]))


def _numbers(text: str) -> str:
    numbers = {
        "INLINE": INLINE,
        "SHAPED": SHAPED,
        "LIKE_FIRST": LIKE_FIRST,
        "HEADER": LENGTH,
        "MAX_RANK": MAX_RANK,
        "STORE": STORE,
        "SPILLED": SPILLED,
        "OBJECT_MAGIC": _word(OBJECT_MAGIC),
    }
    return re.sub(r"\b(" + "|".join(numbers) + r")\b", lambda name: str(numbers[name[1]]), text)


def _arrays(objects: bool) -> str:
    blocks = {
        "OBJECT_PLACES": "  %base_at = alloca ptr, align 8\n  %extent_at = alloca i64, align 8\n",
        "OBJECT_CASE": f"i64 {OBJECT}, label %object",
        "OBJECT_BLOCKS": _OBJECT_BLOCKS,
        "OBJECT_FROM": ", [ %object_dimensions, %measured ]",
        "OBJECT_STATED": ", [ %object_length, %measured ]",
        "OBJECT_ITEMS": ", [ %object_items, %measured ]",
        "OBJECT_WRONG": ", [ 4, %measured ]",
    }
    text = re.sub(r"\b(" + "|".join(blocks) + r")\b", lambda name: blocks[name[1]] if objects else "", _ARRAY)
    return text + (_STORE if objects else "")


def llvm_type(kind: Kind) -> str:
    """Returns the type of a number, or of the halves of a complex one, as an argument."""
    return {"f4": "float", "f8": "double", "c8": "float", "c16": "double"}.get(kind.code, f"i{8 * kind.size}")


def parameters(signature: Signature) -> list[str]:
    """Returns the types of the parameters of Numba's function."""
    types = ["ptr", "ptr"]
    for argument in signature.arguments:
        if argument.rank is not None:
            types += ["ptr", "ptr", "i64", "i64", "ptr"] + ["i64"] * (2 * argument.rank)
        else:
            types += [llvm_type(argument.kind)] * (2 if argument.kind.letter == "c" else 1)
    return types


class _Main:
    """The body of `NAME_main`, while it is written."""

    def __init__(self, signature: Signature, variant: Variant) -> None:
        self.signature, self.variant = signature, variant
        self.lines: list[str] = []
        self.passed: list[str] = ["ptr %ret", "ptr %exception"]
        self.first: str | None = None

    def add(self, *lines: str) -> None:
        self.lines += [f"  {line}" if not line.endswith(":") else line for line in lines]

    def scalar(self, argument: Argument, number: int, offset: int) -> None:
        kind = argument.kind
        for half in range(2 if kind.letter == "c" else 1):
            value, form = f"%value{number}.{half}", llvm_type(kind)
            at = offset + half * kind.size // 2
            self.add(
                f"{value}.at = getelementptr i8, ptr %payload, i64 {at}",
                f"{value} = load volatile {form}, ptr {value}.at, align 1",
            )
            if kind.letter == "b":
                # The function gets 0 or 1, for any byte.
                self.add(f"{value}.is = icmp ne i8 {value}, 0", f"{value}.bit = zext i1 {value}.is to i8")
                value += ".bit"
            self.passed.append(f"{form} {value}")

    def array(self, argument: Argument, number: int, offset: int) -> None:
        kind, rank, n = argument.kind, argument.rank or 0, number
        facts = f"i64 {kind.size}, i64 {kind.alignment - 1}, i64 {rank}, i64 {type_word(kind, rank)}"
        facts += f", ptr %shape{n}, ptr %data{n}"
        self.add(f"%slot{n} = getelementptr i8, ptr %payload, i64 {offset}")
        if argument.is_output:
            first = self.first if self.variant is Variant.DERIVE else None
            self.add(f"%fault{n} = call i32 @farjump.new(ptr %slot{n}, ptr {first or 'null'}, {facts})")
        else:
            self.add(f"%fault{n} = call i32 @farjump.array(ptr %payload, i64 %size, ptr %slot{n}, {facts})")
        self.add(
            f"%good{n} = icmp eq i32 %fault{n}, 0",
            f"br i1 %good{n}, label %next{n}, label %bad{n}",
            f"bad{n}:",
        )
        if self.variant is not Variant.PLAIN:
            # Nothing was made before: an output is the last argument.
            self.add(
                f"%later{n} = call i1 @farjump.later(i32 %fault{n}, ptr %payload, i64 %size)",
                f"br i1 %later{n}, label %left, label %told{n}",
                f"told{n}:",
            )
        self.add(
            f"%code{n} = add i32 %fault{n}, {FAULT + STEP * n}",
            f"call void @farjump.end(i32 %code{n})",
            "unreachable",
            f"next{n}:",
            f"%items{n} = load ptr, ptr %data{n}, align 8",
        )
        lengths = []
        for dimension in range(rank):
            name = f"%length{n}.{dimension}"
            self.add(
                f"{name}.at = getelementptr i64, ptr %shape{n}, i64 {dimension}", f"{name} = load i64, ptr {name}.at, align 8"
            )
            lengths.append(name)
        # Lengths that do not fit in 63 bits were refused: none of these products is larger.
        strides, stride = [], str(kind.size)
        for dimension in reversed(range(rank)):
            strides.append(f"i64 {stride}")
            self.add(f"%stride{n}.{dimension} = mul i64 {stride}, {lengths[dimension]}")
            stride = f"%stride{n}.{dimension}"
        count = "1"
        for dimension in range(rank):
            self.add(f"%count{n}.{dimension} = mul i64 {count}, {lengths[dimension]}")
            count = f"%count{n}.{dimension}"
        self.passed += ["ptr null", "ptr null", f"i64 {count}", f"i64 {kind.size}", f"ptr %items{n}"]
        self.passed += [f"i64 {length}" for length in lengths] + strides[::-1]

    def reply(self, returned: str, leaves: list[str]) -> None:
        """Writes the reply. `leaves` has the indices of each number in a value of the type `returned`, and its type."""
        if not leaves:
            return
        self.add(f"%result = load {returned}, ptr %ret, align 1")
        offset, position = 0, 0
        for kind in self.signature.result.kinds:
            for half in range(2 if kind.letter == "c" else 1):
                indices, form = leaves[position].split(":")
                name = f"%leaf{position}"
                if indices:
                    self.add(f"{name} = extractvalue {returned} %result, {indices}")
                else:
                    name = "%result"
                if kind.letter == "b" and form != "i8":
                    self.add(f"%byte{position} = zext {form} {name} to i8")
                    name, form = f"%byte{position}", "i8"
                at = offset + half * kind.size // 2
                self.add(
                    f"%into{position} = getelementptr i8, ptr %reply, i64 {at}",
                    f"store {form} {name}, ptr %into{position}, align 1",
                )
                position += 1
            offset += max(kind.size, 8)
        self.add(f"%replied = call i32 @farjump_reply(ptr %reply, i64 {offset})")


def glue(name: str, inner: str, signature: Signature, variant: Variant, returned: str, leaves: list[str]) -> str:
    """Returns a module with `NAME_main` around the function `inner`. That function returns a value of the type `returned`."""
    main = _Main(signature, variant)
    offset = HEAD
    for number, argument in enumerate(signature.arguments):
        if argument.rank is None:
            main.scalar(argument, number, offset)
            offset += max(argument.kind.size, 8)
        else:
            main.array(argument, number, offset)
            offset += 24 + 8 * argument.rank
            output = signature.output
            if main.first is None and output is not None:
                # An output with the dimensions of an argument of other rank is refused before it is sent.
                main.first = f"%shape{number}" if argument.rank == output.rank else "null"
    places = [
        f"  %shape{number} = alloca [{argument.rank} x i64], align 8\n  %data{number} = alloca ptr, align 8\n"
        for number, argument in enumerate(signature.arguments)
        if argument.rank is not None
    ]
    reply_size = sum(max(kind.size, 8) for kind in signature.result.kinds) or 8
    magic = _word(MAGIC + len(signature.arguments).to_bytes(4, "little"))
    passed, before = ", ".join(main.passed), "\n".join(main.lines)
    main.lines = []
    main.reply(returned, leaves)
    text = f"""
define void @{name}_main(ptr %payload, i64 %size, ptr %target) {{
entry:
  %ret = alloca {returned}, align 16
  %reply = alloca [{reply_size} x i8], align 8
  %exception = alloca ptr, align 8
{"".join(places)}  store [{reply_size} x i8] zeroinitializer, ptr %reply, align 8
  store ptr null, ptr %exception, align 8
  %long = icmp uge i64 %size, {offset}
  br i1 %long, label %begin, label %short
begin:
  %magic = load volatile i64, ptr %payload, align 1
  %ours = icmp eq i64 %magic, {magic}
  br i1 %ours, label %checked, label %short
checked:
{before}
  %status = call i32 {inner}({passed})
  switch i32 %status, label %raised [ i32 0, label %done i32 -2, label %done ]
done:
{chr(10).join(main.lines)}
  ret void
left:
  ret void
raised:
  %info = load ptr, ptr %exception, align 8
  %known = icmp ne ptr %info, null
  br i1 %known, label %numbered, label %unknown
numbered:
  %number_at = getelementptr i8, ptr %info, i64 8
  %number = load i32, ptr %number_at, align 8
  call void @farjump.end(i32 %number)
  unreachable
unknown:
  call void @farjump.end(i32 {UNKNOWN})
  unreachable
short:
  call void @farjump.end(i32 {FAULT + 1})
  unreachable
}}
"""
    declared = f"declare i32 {inner}({', '.join(parameters(signature))})\n"
    helpers = declared + _END + _arrays(variant is not Variant.PLAIN) + (_NEW if variant is Variant.DERIVE else "")
    return _numbers(helpers) + text
