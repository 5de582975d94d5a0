"""Compiles functions by Numba, for `farjump.ifunc`: machine code that needs nothing of Python's or Numba's runtime."""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numba
from llvmlite import binding as llvm
from numba.core import types

from . import _glue, _lines
from ._errors import IfuncError
from ._native import Library, link_library
from ._signature import Argument, Kind, Signature

#: Starts of the names of symbols that no target has, and what in a function needs them.
RUNTIME = {
    **dict.fromkeys(
        ("NRT_MemInfo_alloc", "NRT_MemInfo_new", "NRT_Allocate", "NRT_"),
        "it allocates memory: make no arrays, lists or strings in it",
    ),
    "numba_gil": "it uses objects of Python's: print nothing, and use no objmode",
    "numba_unpickle": "it uses objects of Python's",
    "numba_rnd": "it draws random numbers: pass a seed or numbers to it",
    "numba_get": "it draws random numbers: pass a seed or numbers to it",
    "numba_attempt_nocopy_reshape": "it reshapes an array: pass it in that shape",
    "numba_": "it calls a function of Numba's runtime",
    "PyErr_SetString": "it raises with values that it computes: raise with constants alone",
    "Py": "it uses objects of Python's",
    "_Py": "it uses objects of Python's",
    "__svml": "Numba was set up with Intel's SVML: set NUMBA_DISABLE_INTEL_SVML=1",
}

_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_PICKLED = re.compile(r'^@(\.const\.pickledata\.\w+) = .*? c"((?:[^"\\]|\\.)*)"', re.M)
_EXCEPTION = re.compile(r"^(@\.const\.picklebuf\.\w+ = .*?\{ ptr, i32, ptr, ptr, i32 \}) \{ ptr @([\w.]+),.*$", re.M)
#: An address of this process in code.
_ADDRESS = re.compile(r"\binttoptr \(i64 (\d{5,}) to ptr\)")


class Compiled(NamedTuple):
    """A function as Numba compiled it."""

    module: str
    """LLVM IR, in which exceptions are their numbers."""
    inner: str
    """The function's name in it, as IR writes it."""
    returned: str
    """The type in which it stores its result."""
    leaves: list[str]
    """The indices of each number in that, and its type."""
    exceptions: list[tuple[Any, Any, int]]
    """Class, arguments and line of each exception that it raises, by its number."""


def _numba_kind(kind: Kind) -> Any:
    return types.boolean if kind.letter == "b" else getattr(types, kind.code)


def _numba_type(argument: Argument) -> Any:
    kind = _numba_kind(argument.kind)
    if argument.rank is None:
        return kind
    return types.Array(kind, argument.rank, "C", readonly=not argument.is_output)


def _signature(signature: Signature) -> Any:
    kinds = [_numba_kind(kind) for kind in signature.result.kinds]
    result = types.Tuple(kinds) if signature.result.is_tuple else kinds[0] if kinds else types.none
    return result(*map(_numba_type, signature.arguments))


def _compile(function: Callable[..., Any], signature: Signature, options: dict[str, Any]) -> Any:
    # Wrappers would call Python, and stay away. Numba's own option `_nrt=False` would refuse what allocates memory, but
    # functions that this one calls would keep it.
    options = {"no_cfunc_wrapper": True, "no_cpython_wrapper": True, **options}
    return next(iter(numba.njit([_signature(signature)], **options)(function).overloads.values()))


def compiled(function: Callable[..., Any], signature: Signature, options: dict[str, Any]) -> Compiled:
    """Compiles `function`. IfuncError says what in it cannot be injected."""
    if getattr(numba.config, "DISABLE_JIT", False):
        raise IfuncError(f"`{function.__name__}` cannot be injected while NUMBA_DISABLE_JIT is set: unset it")
    try:
        result = _compile(function, signature, options)
    except Exception as error:  # noqa: BLE001 - Numba raises whatever its parts do
        # Numba's traceback is of its own parts: its explanation has the places in the function.
        raise _refusal(function, error) from None
    text, name = result.library.get_llvm_str(), result.fndesc.llvm_func_name
    inner = f"@{name}" if re.fullmatch(r"[\w.$]+", name, re.ASCII) else f'@"{name}"'
    if result.library.has_dynamic_globals or _ADDRESS.search(text):
        line = _line(function, signature, options, _lines.is_address)
        raise _error(
            function,
            line,
            "uses an address of this process, which means nothing at a target: take a function of ctypes or cffi out, and "
            "pass a global array of over 1 MB as an argument",
        )
    # What is optimised away fails always: the environment of Python's objects is null.
    _check_imports(function, signature, options, llvm.parse_assembly(text), but=("NRT_",))
    returned = result.target_context.get_return_type(result.signature.return_type)
    leaves = list(_leaves(returned)) if signature.result.kinds else []
    text, exceptions = _exceptions(text)
    return Compiled(text, inner, str(returned), leaves, exceptions)


def _leaves(form: Any, indices: str = "") -> Iterator[str]:
    elements = getattr(form, "elements", None)
    if elements is None:
        yield f"{indices}:{form}"
        return
    for index, element in enumerate(elements):
        yield from _leaves(element, f"{indices}, {index}" if indices else str(index))


def _unescaped(escape: re.Match[bytes]) -> bytes:
    return b"\\" if escape[1] == b"\\" else bytes([int(escape[1], 16)])


def _exceptions(text: str) -> tuple[str, list[tuple[Any, Any, int]]]:
    """The module with numbers in place of the contents of its exceptions, and those."""
    pickled = {
        name: re.sub(rb"\\(\\|[0-9A-Fa-f]{2})", _unescaped, data.encode("latin-1"))
        for name, data in _PICKLED.findall(text)
    }
    found: list[tuple[Any, Any, int]] = []

    def numbered(match: re.Match[str]) -> str:
        # Numba pickled them in this process, from what the function names.
        raised, arguments, place = pickle.loads(pickled[match[2]])
        found.append((raised, arguments, place[2] if place else 0))
        return f"{match[1]} {{ ptr null, i32 {len(found) - 1}, ptr null, ptr null, i32 0 }}"

    return _EXCEPTION.sub(numbered, text), found


def build(
    name: str,
    function: Callable[..., Any],
    signature: Signature,
    done: Compiled,
    variant: _glue.Variant,
    levels: tuple[int, ...],
    options: dict[str, Any],
) -> Library:
    """Links a library of a compiled function. IfuncError says what it needs that no target has."""
    objects = []
    if any(levels) and not llvm.get_process_triple().startswith("x86_64"):
        raise IfuncError(f"`{function.__name__}` states levels, which only x86-64 CPUs have: leave them out on this machine")
    for level in levels:
        module = reduced(name, signature, done, variant, level)
        _check_imports(function, signature, options, module)
        objects.append((level, _machine(level).emit_object(module)))
    return link_library(name, function.__code__.co_filename, objects)


def reduced(name: str, signature: Signature, done: Compiled, variant: _glue.Variant, level: int) -> Any:
    """The module of `NAME_main` and what it reaches, optimised for a level of CPUs."""
    module = llvm.parse_assembly(done.module)
    _check_parameters(module, done.inner.strip('@"'), signature)
    head = f'target triple = "{module.triple}"\ntarget datalayout = "{module.data_layout}"\n'
    around = llvm.parse_assembly(head + _glue.glue(name, done.inner, signature, variant, done.returned, done.leaves))
    around.verify()
    module.link_in(around)
    for symbol in [*module.functions, *module.global_variables]:
        if not symbol.is_declaration and symbol.name != f"{name}_main":
            symbol.linkage = "internal"
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    # Numba has unrolled loops already.
    tuning.loop_unrolling = False
    passes = llvm.create_pass_builder(_machine(level), tuning)
    passes.getModulePassManager().run(module, passes)
    return module


def _machine(level: int) -> Any:
    cpu = f"x86-64-v{level}" if level else ""
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(cpu=cpu, features="", opt=3, reloc="pic", codemodel="small")


def _check_parameters(module: Any, inner: str, signature: Signature) -> None:
    found = [str(argument.type) for argument in module.get_function(inner).arguments]
    if found != _glue.parameters(signature):
        raise IfuncError(
            f"Numba {numba.__version__} passes the arguments of `{signature.function}` in another way than farjump expects: "
            f"{', '.join(found)}. Install the version that farjump is made for: pip install 'farjump[numba]'"
        )


def _check_imports(
    function: Callable[..., Any],
    signature: Signature,
    options: dict[str, Any],
    module: Any,
    but: tuple[str, ...] = (),
) -> None:
    """Checks that `module` needs no runtime, but for symbols that start with `but`.

    Numba counts references to arrays, and none of that is left where no array of a function is counted.
    """
    symbols = [*module.functions, *module.global_variables]
    names = [one.name for one in symbols if one.is_declaration]
    for start, why in RUNTIME.items():
        for missing in names:
            if missing.startswith(start) and not missing.startswith(but):
                line = _line(function, signature, options, lambda text: missing in text)
                raise _error(function, line, f"needs `{missing}`, which no target has: {why}", missing)


def _refusal(function: Callable[..., Any], error: Exception) -> IfuncError:
    """The error for a function that Numba does not compile."""
    text = _ESCAPES.sub("", str(error)).strip()
    line = _lines.in_message(text, function.__code__.co_filename)
    if "readonly" in text and "setitem" in text:
        return _error(
            function, line, "writes into an argument, which is read only: mark the last argument as output (`out f4[::1]`)"
        )
    return _error(function, line, f"cannot be compiled by Numba: {text}")


def _error(function: Callable[..., Any], line: int | None, what: str, missing: str | None = None) -> IfuncError:
    code = function.__code__
    error = IfuncError(f"`{function.__name__}` ({code.co_filename}, line {line or code.co_firstlineno}) {what}")
    error.missing, error.line = missing, line
    return error


def _line(
    function: Callable[..., Any], signature: Signature, options: dict[str, Any], needs: Callable[[str], bool]
) -> int | None:
    """The line of `function` that leads to an instruction for which `needs` is true, by debugging information."""
    try:
        with warnings.catch_warnings():
            # Of parts without a source.
            warnings.simplefilter("ignore")
            result = _compile(function, signature, {**options, "debug": True})
    except Exception:  # noqa: BLE001 - it only finds a line for an error
        return None
    return _lines.of_instruction(result.library.get_llvm_str(), result.fndesc.llvm_func_name, needs)
