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
from numba.core.typeinfer import register_dispatcher
from numba.extending import typeof_impl

from . import glue, lines, runtime
from .._errors import IfuncError
from .._ifunc import Ifunc
from .._native import Library, link_library
from .signature import Argument, Kind, Signature

_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_PICKLED = re.compile(r'^@(\.const\.pickledata\.\w+) = .*? c"((?:[^"\\]|\\.)*)"', re.M)
_EXCEPTION = re.compile(r"^(@\.const\.picklebuf\.\w+ = .*?\{ ptr, i32, ptr, ptr, i32 \}) \{ ptr @([\w.]+),.*$", re.M)
#: The variable with the address of a caller, in a function that is compiled before its caller is.
_UNRESOLVED = re.compile(r'^(@"\.numba\.unresolved\$([^"]+)") = external [^\n]*global ptr.*$', re.M)
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
    exceptions: list[tuple[Any, Any, tuple[str, str, int] | None]]
    """Class and arguments of each exception that it raises, by its number, with the function, file and line that raise it
    if Numba noted them.
    """


#: Wrappers would call Python.
_WITHOUT_WRAPPERS = {"no_cfunc_wrapper": True, "no_cpython_wrapper": True}
#: While a function is compiled for targets, the dispatchers of it and of the ifuncs that it calls. Those that run here are
#: others: code for targets has all that it calls in one module. Numba's lock guards it.
_for_targets: dict[Callable[..., Any], Any] | None = None


@typeof_impl.register(Ifunc)
def _typeof(value: Ifunc[..., Any], context: Any) -> Any:
    """Returns the type by which a function compiled by Numba calls an ifunc. The ifunc may be the function itself."""
    if _for_targets is None:
        return types.Dispatcher(value._dispatcher())
    if value._function not in _for_targets:
        _for_targets[value._function] = numba.njit(**_WITHOUT_WRAPPERS, **value._options)(value._function)
    return types.Dispatcher(_for_targets[value._function])


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
    # Numba's own option `_nrt=False` would refuse a function that allocates memory, but functions that it calls would keep it.
    global _for_targets
    with lines.of_exceptions():
        _for_targets = {function: numba.njit(**_WITHOUT_WRAPPERS, **options)(function)}
        try:
            return next(iter(_typed(_for_targets[function], signature).overloads.values()))
        finally:
            _for_targets = None


def typed(function: Callable[..., Any], signature: Signature, options: dict[str, Any]) -> Any:
    """Compiles `function` for the types of its signature alone. IfuncError says why Numba does not."""
    return _typed(numba.njit(**options)(function), signature)


def _typed(dispatcher: Any, signature: Signature) -> Any:
    try:
        # The function may also call itself by the name without the decorator.
        with register_dispatcher(dispatcher):
            dispatcher.compile(_signature(signature))
    except Exception as error:  # noqa: BLE001 - Numba raises whatever its parts do
        # Numba's traceback shows its own parts. Its message names the places in the function.
        raise _refusal(dispatcher.py_func, error) from None
    dispatcher.disable_compile()
    return dispatcher


def compiled(function: Callable[..., Any], signature: Signature, options: dict[str, Any]) -> Compiled:
    """Compiles `function`. IfuncError names the part of it that cannot be injected."""
    if getattr(numba.config, "DISABLE_JIT", False):
        raise IfuncError(f"`{function.__name__}` cannot be injected while NUMBA_DISABLE_JIT is set: unset it")
    result = _compile(function, signature, options)
    text, name = _resolved(result.library.get_llvm_str()), result.fndesc.llvm_func_name
    inner = f"@{name}" if re.fullmatch(r"[\w.$]+", name, re.ASCII) else f'@"{name}"'
    if result.library.has_dynamic_globals or _ADDRESS.search(text):
        line = _line(function, signature, options, lines.is_address)
        raise _error(
            function,
            line,
            "uses an address of this process, which means nothing at a target: take a function of ctypes or cffi out, and "
            "pass a global array of over 1 MB as an argument",
        )
    # Code that is optimised away would always fail: the environment of Python's objects is null. Code that counts references
    # to arrays stays until the function is linked.
    missing = [name for name in _missing(llvm.parse_assembly(text)) if not name.startswith("NRT_")]
    returned = result.target_context.get_return_type(result.signature.return_type)
    leaves = list(_leaves(returned)) if signature.result.kinds else []
    text, exceptions = _exceptions(text)
    done = Compiled(text, inner, str(returned), leaves, exceptions)
    if missing:
        missing += _missing(reduced("f", signature, done, glue.Variant.PLAIN, 0))
        raise _needs(function, signature, options, missing)
    return done


def _resolved(text: str) -> str:
    """Returns the module with the addresses of functions that call each other. Numba would fill them in at run time."""

    def known(match: re.Match[str]) -> str:
        defined = f"@{match[2]}(" in text or f'@"{match[2]}"(' in text
        return f'{match[1]} = internal constant ptr @"{match[2]}"' if defined else match[0]

    return _UNRESOLVED.sub(known, text)


def _leaves(form: Any, indices: str = "") -> Iterator[str]:
    elements = getattr(form, "elements", None)
    if elements is None:
        yield f"{indices}:{form}"
        return
    for index, element in enumerate(elements):
        yield from _leaves(element, f"{indices}, {index}" if indices else str(index))


def _unescaped(escape: re.Match[bytes]) -> bytes:
    return b"\\" if escape[1] == b"\\" else bytes([int(escape[1], 16)])


def _exceptions(text: str) -> tuple[str, list[tuple[Any, Any, tuple[str, str, int] | None]]]:
    """Returns the module with numbers in place of the contents of its exceptions, and these contents."""
    pickled = {
        name: re.sub(rb"\\(\\|[0-9A-Fa-f]{2})", _unescaped, data.encode("latin-1"))
        for name, data in _PICKLED.findall(text)
    }
    found: list[tuple[Any, Any, tuple[str, str, int] | None]] = []

    def numbered(match: re.Match[str]) -> str:
        # Numba pickled them in this process, from objects that the function names.
        raised, arguments, place = pickle.loads(pickled[match[2]])
        found.append((raised, arguments, place))
        return f"{match[1]} {{ ptr null, i32 {len(found) - 1}, ptr null, ptr null, i32 0 }}"

    return _EXCEPTION.sub(numbered, text), found


def build(
    name: str,
    function: Callable[..., Any],
    signature: Signature,
    done: Compiled,
    variant: glue.Variant,
    levels: tuple[int, ...],
    options: dict[str, Any],
) -> Library:
    """Links a library of a compiled function. IfuncError names a symbol that it needs and no target has."""
    objects = []
    if any(levels) and not llvm.get_process_triple().startswith("x86_64"):
        raise IfuncError(f"`{function.__name__}` states levels, which only x86-64 CPUs have: leave them out on this machine")
    for level in levels:
        module = reduced(name, signature, done, variant, level)
        if missing := _missing(module):
            raise _needs(function, signature, options, missing)
        objects.append((level, _machine(level).emit_object(module)))
    return link_library(name, function.__code__.co_filename, objects)


def reduced(name: str, signature: Signature, done: Compiled, variant: glue.Variant, level: int) -> Any:
    """Returns the module of `NAME_main` and the code that it reaches, optimised for a level of CPUs."""
    module = llvm.parse_assembly(done.module)
    _check_parameters(module, done.inner.strip('@"'), signature)
    head = f'target triple = "{module.triple}"\ntarget datalayout = "{module.data_layout}"\n'
    around = llvm.parse_assembly(head + glue.glue(name, done.inner, signature, variant, done.returned, done.leaves))
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
    if found != glue.parameters(signature):
        raise IfuncError(
            f"Numba {numba.__version__} passes the arguments of `{signature.function}` in another way than farjump expects: "
            f"{', '.join(found)}. Install the version that farjump is made for: pip install 'farjump[numba]'"
        )


def _missing(module: Any) -> list[str]:
    """Returns the symbols of a runtime that `module` needs.

    Numba counts references to arrays. No symbol for that is left if no array of a function is counted.
    """
    symbols = [*module.functions, *module.global_variables]
    return [one.name for one in symbols if one.is_declaration and runtime.what(one.name) is not None]


def _needs(
    function: Callable[..., Any], signature: Signature, options: dict[str, Any], missing: list[str]
) -> IfuncError:
    """Returns the error for a function that needs these symbols. It names the most telling one."""
    name, what = runtime.cause(missing)
    line = _line(function, signature, options, lambda text: name in text)
    return _error(function, line, f"needs `{name}`, which no target has: {what}", name)


def _refusal(function: Callable[..., Any], error: Exception) -> IfuncError:
    """Returns the error for a function that Numba does not compile."""
    text = _ESCAPES.sub("", str(error)).strip()
    line = lines.in_message(text, function.__code__.co_filename)
    if isinstance(error, ImportError) and "scipy" in text:
        # Numba would take BLAS from SciPy, but a target has none.
        line = lines.in_traceback(error, function.__code__.co_filename)
        return _error(function, line, f"needs linear algebra, which no target has: {runtime.BLAS}")
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
    """Returns the line of `function` that leads to an instruction for which `needs` is true, by debugging information."""
    try:
        with warnings.catch_warnings():
            # It warns of parts without a source.
            warnings.simplefilter("ignore")
            result = _compile(function, signature, {**options, "debug": True})
    except Exception:  # noqa: BLE001 - it only finds a line for an error
        return None
    return lines.of_instruction(result.library.get_llvm_str(), result.fndesc.llvm_func_name, needs)
