"""Lines of a function's source, found in LLVM IR with debugging information and in Numba's messages."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numba.core.callconv import CPUCallConv
from numba.core.compiler_lock import global_compiler_lock
from numba.core.lowering import Lower

_DEFINED = re.compile(r'^define [^@]*@("[^"]*"|[\w.$]+)\(')
_CONSTANT = re.compile(r'^@("[^"]*"|[\w.$]+) = (.*)')
_NAMED = re.compile(r'@("[^"]*"|[\w.$]+)')
_PLACED = re.compile(r"!dbg !(\d+)")
_PLACE = re.compile(r"^!(\d+) = (?:distinct )?!DILocation\(line: (\d+),.*?(?:inlinedAt: !(\d+))?\)$", re.M)
_ADDRESS = re.compile(r"numba\.dynamic\.globals|\binttoptr \(i64 \d{5,} to ptr\)")


def is_address(instruction: str) -> bool:
    """Returns whether an instruction uses an address of this process."""
    return _ADDRESS.search(instruction) is not None


def of_instruction(text: str, function: str, needs: Callable[[str], bool]) -> int | None:
    """Returns the line in `function` of the first instruction that `needs` accepts, or that names a function or constant
    that leads to one.
    """
    bodies: dict[str, list[str]] = {}
    body: list[str] = []
    for line in text.splitlines():
        if found := _DEFINED.match(line):
            body = bodies.setdefault(found[1].strip('"'), [])
        elif found := _CONSTANT.match(line):
            bodies[found[1].strip('"')] = [found[2]]
        elif line == "}":
            body = []
        else:
            body.append(line)
    # Functions and constants that lead to such an instruction.
    leading: set[str] = set()

    def leads(line: str) -> bool:
        return needs(line) or any(name.strip('"') in leading for name in _NAMED.findall(line))

    while True:
        more = {name for name, lines in bodies.items() if name not in leading and any(map(leads, lines))}
        if not more:
            break
        leading |= more
    places = {number: (int(line), outer) for number, line, outer in _PLACE.findall(text)}
    for line in filter(leads, bodies.get(function, [])):
        placed = _PLACED.search(line)
        if placed is None or placed[1] not in places:
            continue
        number, outer = places[placed[1]]
        while outer in places:
            number, outer = places[outer]
        if number:
            return number
    return None


def in_message(message: str, path: str) -> int | None:
    """Returns the last line of the file at `path` that a message of Numba's names: the innermost one."""
    name = re.escape(os.path.basename(path))
    found = re.findall(rf'{name}(?:", line (\d+)| \((\d+)\))', message)
    return int(found[-1][0] or found[-1][1]) if found else None


def in_traceback(error: BaseException, path: str) -> int | None:
    """Returns the last line of the file at `path` for which Numba made instructions before this error."""
    line = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        place = getattr(frame.f_locals.get("self"), "loc", None)
        if getattr(place, "filename", None) == path:
            line = place.line
    return line


@contextmanager
def of_exceptions() -> Iterator[None]:
    """Makes Numba note a line for each exception in code that it compiles meanwhile.

    By itself it notes the lines of `raise` alone, and none for a division, an index or an integer's power.
    """
    lowered, built = Lower.lower_inst, CPUCallConv.build_excinfo_struct
    # Instructions that Numba works on. That of a function follows that of the function for which it is compiled.
    begun: list[Any] = []

    def lower_inst(self: Any, instruction: Any) -> None:
        begun.append((self.loc, self.func_ir.func_id.func_qualname))
        try:
            lowered(self, instruction)
        finally:
            begun.pop()

    def build_excinfo_struct(self: Any, kind: Any, arguments: Any, place: Any, function: str | None) -> Any:
        if place is None and begun:
            place, function = begun[-1]
        return built(self, kind, arguments, place, function)

    # Numba compiles for one thread at a time, by this lock.
    with global_compiler_lock:
        Lower.lower_inst, CPUCallConv.build_excinfo_struct = lower_inst, build_excinfo_struct
        try:
            yield
        finally:
            Lower.lower_inst, CPUCallConv.build_excinfo_struct = lowered, built
