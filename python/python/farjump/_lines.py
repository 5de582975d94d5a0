"""Lines of a function's source, found in LLVM IR with debugging information and in Numba's messages."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

_DEFINED = re.compile(r'^define [^@]*@("[^"]*"|[\w.$]+)\(')
_CONSTANT = re.compile(r'^@("[^"]*"|[\w.$]+) = (.*)')
_NAMED = re.compile(r'@("[^"]*"|[\w.$]+)')
_PLACED = re.compile(r"!dbg !(\d+)")
_PLACE = re.compile(r"^!(\d+) = (?:distinct )?!DILocation\(line: (\d+),.*?(?:inlinedAt: !(\d+))?\)$", re.M)
_ADDRESS = re.compile(r"numba\.dynamic\.globals|\binttoptr \(i64 \d{5,} to ptr\)")


def is_address(instruction: str) -> bool:
    """Whether it uses an address of this process."""
    return _ADDRESS.search(instruction) is not None


def of_instruction(text: str, function: str, needs: Callable[[str], bool]) -> int | None:
    """The line in `function` of the first instruction that `needs` accepts, or that names a function or constant which
    leads to one.
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
    # Those that lead to such an instruction.
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
    """The last line of the file at `path` that a message of Numba's names: its innermost."""
    name = re.escape(os.path.basename(path))
    found = re.findall(rf'{name}(?:", line (\d+)| \((\d+)\))', message)
    return int(found[-1][0] or found[-1][1]) if found else None
