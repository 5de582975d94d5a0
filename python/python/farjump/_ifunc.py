"""Functions in Python that can be injected: `@farjump.ifunc`."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import inspect
import operator
import re
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from ._compile import glue
from ._arrays import is_plain, not_plain
from ._errors import Error, Gone, HandleError, IfuncError, Panicked, PicklingError, Refused, Spilled, StoreFull, Unset
from ._compile.glue import Variant
from ._native import Library
from ._compile.signature import Signature

if TYPE_CHECKING:
    from ._compile.numba import Compiled

P = ParamSpec("P")
R = TypeVar("R")

LEVELS = {"v2": 2, "v3": 3, "v4": 4}
# Functions of the C library's mathematics that Numba calls.
LIBM = frozenset(
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs floor fma fmod frexp hypot "
    "ldexp lgamma log log10 log1p log2 nearbyint nextafter pow rint round sin sincos sinh sqrt tan tanh tgamma trunc".split()
)

# The main script, in its own process and in those that multiprocessing spawns of it.
_MAIN = ("__main__", "__mp_main__")


# The exceptions for the errors of the target's store, by reason.
_STORE_ERRORS: dict[int, type[Error]] = {
    glue.STORE + 2: HandleError,
    glue.STORE + 3: HandleError,
    glue.STORE + 4: Gone,
    glue.STORE + 5: HandleError,
    glue.STORE + 6: StoreFull,
    glue.STORE + 7: Unset,
    glue.SPILLED: Spilled,
}


def ifunc(
    signature: str,
    *,
    name: str | None = None,
    levels: Sequence[str] = (),
    error_model: str = "python",
    fastmath: bool = False,
    boundscheck: bool = False,
) -> Callable[[Callable[P, R]], Ifunc[P, R]]:
    """Makes a function injectable, as in `@farjump.ifunc("f4[:, ::1], f4[::1] -> i8")`.

    Numba compiles it when it is first used. `levels` are levels of x86-64 CPUs, such as `v3`. Each gets code of its own,
    besides the code for all CPUs. `error_model`, `fastmath` and `boundscheck` are Numba's, with the defaults of its `njit`.
    A division by zero is a ZeroDivisionError. With `error_model="numpy"` it is infinity, or 0 between integers.
    """
    unknown = [level for level in levels if level not in LEVELS]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no level of x86-64 CPUs: there are {', '.join(LEVELS)}")
    if error_model not in ("numpy", "python"):
        raise ValueError(f"error_model={error_model!r}: it is numpy, or python")
    if not isinstance(signature, str):
        raise TypeError("@farjump.ifunc needs a signature: write @farjump.ifunc('f4[::1] -> f8')")
    if importlib.util.find_spec("numba") is None:
        raise IfuncError("@farjump.ifunc compiles functions by Numba, which is not installed: pip install 'farjump[numba]'")
    options = {"error_model": error_model, "fastmath": fastmath, "boundscheck": boundscheck}
    chosen = tuple(sorted({0, *(LEVELS[level] for level in levels)}))

    def made(function: Callable[P, R]) -> Ifunc[P, R]:
        return Ifunc(function, signature, name, chosen, options)

    return made


class Ifunc(Generic[P, R]):
    """An injectable function. Called directly, it runs here, compiled by Numba."""

    __name__: str
    __qualname__: str

    def __init__(
        self,
        function: Callable[P, R],
        signature: str,
        name: str | None,
        levels: tuple[int, ...],
        options: dict[str, Any],
    ) -> None:
        function = getattr(function, "py_func", function)
        if not inspect.isfunction(function):
            raise TypeError(f"a {type(function).__name__} cannot be injected: @farjump.ifunc takes functions")
        parameters = inspect.signature(function).parameters.values()
        odd = [one.name for one in parameters if one.kind not in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
        if odd:
            raise TypeError(f"`{function.__name__}` takes `{odd[0]}` in another way than by position: it cannot be injected")
        if len(parameters) > glue.MAX_ARGUMENTS:
            raise TypeError(f"`{function.__name__}` has more than {glue.MAX_ARGUMENTS} arguments: it cannot be injected")
        self.name: str = re.sub(r"\W", "_", name or function.__name__, flags=re.ASCII)
        """The name by which targets know it."""
        self.signature = Signature(signature, function.__name__, [one.name for one in parameters])
        self._function, self._levels, self._options = function, levels, options
        self._lock, self._making = threading.Lock(), threading.Lock()
        self._local: Any = None
        # Whether its name means the function without the decorator. It may call itself by that name, and has to be registered.
        self._is_its_own_name = function.__globals__.get(function.__name__) is function
        self._compiled: Compiled | None = None
        self._libraries: dict[Variant, tuple[Library, _Results]] = {}
        for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(self, attribute, getattr(function, attribute))
        self.__wrapped__ = function
        if self.__module__ in _MAIN:
            _pass_to_pools()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        for argument, value in (*zip(self.signature.arguments, args), *kwargs.items()):
            if not is_plain(value):
                name = argument if isinstance(argument, str) else argument.name
                raise not_plain(value, f"argument `{name}` of `{self.__name__}`")
        dispatcher = self._local or self._dispatcher()
        if self._is_its_own_name:
            with _numba().register_dispatcher(dispatcher):
                return cast("R", dispatcher(*args, **kwargs))
        return cast("R", dispatcher(*args, **kwargs))

    def _dispatcher(self) -> Any:
        """Returns Numba's function. It runs here, and other functions call it."""
        if self._local is None:
            numba = _numba().numba
            # Not the lock of compilations: during one, Numba requests this if the function calls itself.
            with self._making:
                self._local = self._local or numba.njit(**self._options)(self._function)
        return self._local

    @functools.cached_property
    def _typed(self) -> Any:
        """Numba's function for the types of the signature alone, which runs here."""
        return _numba().typed(self._function, self.signature, self._options)

    def _run_here(self, *args: Any) -> Any:
        """Runs it here as at a target: converts arguments to the signature's types, and refuses those that links refuse."""
        self._check_no_output()
        return self._typed(*self.signature.values(args))

    def _check_no_output(self) -> None:
        if self.signature.output is not None:
            raise TypeError(
                f"`{self.__name__}` has the output `{self.signature.output.name}`, which becomes a new object: use "
                "farjump.derive"
            )

    @property
    def library(self) -> Library:
        """Its library, compiled at first use. A target accepts it as one of its own (`local`)."""
        return self._built(Variant.PLAIN)[0]

    def _farjump_call(self, args: Sequence[Any]) -> tuple[Library, Any, _Results]:
        """Returns, for links, the library, the payload with these arguments, and the conversion of outcomes to results."""
        self._check_no_output()
        payload, has_handle = self.signature.payload(args)
        library, results = self._built(Variant.OBJECTS if has_handle else Variant.PLAIN)
        return library, payload, results

    def _derive(self, shape: Sequence[int] | None = None) -> _Derivation:
        """Returns the function as links call it to make its output a new object of the target. The result is the bytes of the
        object's handle.
        """
        if self.signature.output is None:
            raise TypeError(
                f"`{self.__name__}` has no output for a new object: mark its last argument, as in `f4[::1], out f4[::1] -> none`"
            )
        return _Derivation(self, shape)

    def _derive_library(self) -> Library:
        return self._built(Variant.DERIVE)[0]

    def _built(self, variant: Variant) -> tuple[Library, _Results]:
        if variant not in self._libraries:
            numba = _numba()
            with self._lock:
                if self._compiled is None:
                    self._compiled = numba.compiled(self._function, self.signature, self._options)
                if variant not in self._libraries:
                    library = numba.build(
                        self.name, self._function, self.signature, self._compiled, variant, self._levels, self._options
                    )
                    self._libraries[variant] = library, _Results(self, self._compiled, variant)
        return self._libraries[variant]

    def __reduce__(self) -> str:
        if self.__module__ in _MAIN:
            file = self._function.__code__.co_filename
            raise PicklingError(
                f"`{self.__qualname__}` cannot be pickled: it is defined in the main script ({file}), which another process does "
                "not import. Define it in a module that both processes can import"
            )
        return self._by_name()

    def _by_name(self) -> str:
        """Returns its name, as a pickle has it. Raises PicklingError if the name does not lead to it."""
        found: Any = None
        with contextlib.suppress(ImportError, AttributeError, ValueError):
            found = operator.attrgetter(self.__qualname__)(importlib.import_module(self.__module__))
        if found is not self:
            raise PicklingError(
                f"`{self.__qualname__}` cannot be pickled: a pickle has its name, by which module {self.__module__} does not have "
                "it. Define it at the top level of the module, under its own name"
            )
        return self.__qualname__

    # A copy would have to be compiled again.
    def __copy__(self) -> Ifunc[P, R]:
        return self

    def __deepcopy__(self, memo: Any) -> Ifunc[P, R]:
        return self

    def __repr__(self) -> str:
        return f"<farjump.Ifunc {self.__qualname__} of {self.signature.text!r}>"


class _Derivation:
    """A function with an output, which becomes a new object of the target with these dimensions."""

    def __init__(self, function: Ifunc[..., Any], shape: Sequence[int] | None) -> None:
        self._function, self._shape = function, shape

    def _farjump_call(self, args: Sequence[Any]) -> tuple[Library, Any, _Results]:
        payload, _ = self._function.signature.payload(args, self._shape)
        library, results = self._function._built(Variant.DERIVE)
        return library, payload, results


class _Results:
    """The conversion of outcomes to a function's results and exceptions."""

    def __init__(self, function: Ifunc[..., Any], compiled: Compiled, variant: Variant) -> None:
        self._signature, self._file = function.signature, function._function.__code__.co_filename
        self._exceptions, self._variant = compiled.exceptions, variant

    def result(self, reply: bytes) -> Any:
        if self._variant is Variant.DERIVE:
            return reply
        try:
            return self._signature.result.decode(reply)
        except ValueError as error:
            raise Error(f"the target did not run `{self._signature.function}`: {error}") from None

    def error(self, error: Exception) -> BaseException:
        if isinstance(error, Panicked):
            return self._raised(error)
        if isinstance(error, Refused):
            text = str(error)
            named = re.findall(r"`(\w+)`", text.partition(": ")[2])
            needed = [one for one in named if one in LIBM or one.removesuffix("f") in LIBM]
            if needed:
                more = Refused(
                    f"{text.rstrip('.')}. `{needed[0]}` is of the C library's mathematics: start the target with `farjump serve "
                    "--export-library libm.so.6`, or farjump.Target(…, export_library='libm.so.6')"
                )
                more.ifunc, more.cause = error.ifunc, error.cause
                return more
        return error

    def _at(self, place: tuple[str, str, int] | None) -> str:
        """Returns the file of the function, and the place in it or in a function that it calls, if Numba noted one."""
        if place is None:
            return self._file
        function, file, line = place
        return f"{file}, line {line}" if file == self._file else f"{self._file}; in `{function}`, {file}, line {line}"

    def _raised(self, error: Panicked) -> BaseException:
        code = glue.code_in(error.message)
        if code is None:
            return error
        if code < len(self._exceptions):
            kind, arguments, place = self._exceptions[code]
            raised: BaseException = kind if isinstance(kind, BaseException) else kind(*(arguments or ()))
            raised.__cause__ = error
            raised.add_note(f"raised at the target, by `{self._signature.function}` ({self._at(place)})")
            return raised
        number, reason = divmod(code - glue.FAULT, glue.STEP)
        if code >= glue.FAULT and number < len(self._signature.arguments):
            argument = self._signature.arguments[number]
            why = glue.REASONS.get(reason, "the target refuses the object for argument `{name}` of `{function}`")
            text = why.format(name=argument.name, function=self._signature.function, type=argument.type)
            if reason in _STORE_ERRORS:
                return _STORE_ERRORS[reason](text)
        else:
            text = f"`{self._signature.function}` raised an exception that the target could not name"
        better = Panicked(text)
        better.ifunc, better.message = error.ifunc, error.message
        return better


def _pass_to_pools() -> None:
    """Makes multiprocessing pass functions of the main script by their names: its processes have that script too."""
    from multiprocessing.reduction import ForkingPickler

    ForkingPickler.register(Ifunc, Ifunc._by_name)


def _numba() -> Any:
    """Returns the module that compiles. IfuncError names the version of Numba to install."""
    try:
        import llvmlite
        import numba
    except ImportError as error:
        raise IfuncError(f"Numba cannot be used here ({error}): pip install 'farjump[numba]'") from error
    for module, expected in ((numba, (0, 68)), (llvmlite, (0, 50))):
        version = module.__version__
        if tuple(int(one) for one in re.findall(r"\d+", version)[:2]) != expected:
            wanted = ".".join(map(str, expected))
            raise IfuncError(
                f"{module.__name__} {version} is installed, and farjump is made for {wanted}: pip install 'farjump[numba]'"
            )
    from ._compile import numba as compiler

    return compiler
