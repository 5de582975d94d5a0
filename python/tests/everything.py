"""Calls every callable of the package with all kinds of values, in a process of its own: test_everything.py starts it.

Arguments: the address of a target, a folder for sockets, and `plain`, or `loop` for the same in an event loop. Callables
are found by introspection. Objects of the package that calls return are used too. Prints the callables that it called.
"""

import array
import asyncio
import copy
import ctypes
import gc
import inspect
import itertools
import operator
import pickle
import resource
import signal
import sys
import threading
import warnings

import farjump
from farjump import _native
from support import library, milliseconds, options

# Memory that a wrong size may take, in bytes.
MEMORY = 8 << 30
# Longest time of a call, in seconds: waits are interrupted then.
CALL = 0.03
# Objects of each class that are used.
OBJECTS = 6
# Options that change the process for good, or leave a file behind.
LASTING = ("crash_report", "perf_map")


class Stuck(BaseException):
    """A call that took longer."""

    may_be = False


class Raising:
    """A value whose every operation raises."""

    def fails(self, *_):
        raise ZeroDivisionError("it always fails")

    __buffer__ = __index__ = __float__ = __int__ = __bool__ = __len__ = __iter__ = __fspath__ = __str__ = fails
    __getitem__ = __hash__ = __eq__ = __contains__ = __await__ = __call__ = fails


class Lying:
    """A value whose operations return invalid results."""

    __index__ = lambda self: 1 << 70
    __len__ = lambda self: sys.maxsize
    __getitem__ = lambda self, _: self
    __iter__ = lambda self: iter([self, self])
    __fspath__ = lambda self: b"\xff/\xfe"
    __buffer__ = lambda self, flags: memoryview(bytes(1)).cast("B", ())


class Closing:
    """A value that closes a link while its bytes are read."""

    def __init__(self, link):
        self.link = link

    def __iter__(self):
        self.link.close()
        return iter([b"", b""])

    __index__ = __buffer__ = lambda self, *_: self.link.close()


def values(address, folder):
    """Returns values that may reveal a fault."""
    released = memoryview(bytearray(8))
    released.release()
    numbers = (0, -1, 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63) - 1, True)
    floats = (0.0, -0.0, 0.001, float("nan"), float("inf"), -float("inf"), 1e308, 5e-324)
    texts = ("", "text", "\udcff", "a\0b", "unix:", "unix:@", address, f"unix:{folder}/new", "tcp:127.0.0.1:0", "x" * 70_000)
    buffers = (
        b"", b"bytes", bytes(1 << 20), bytearray(3), released, memoryview(b"abcdef")[::2], memoryview(b""),
        array.array("d", [1.5]), (ctypes.c_int * 0)(), ctypes.c_void_p(), ctypes.py_object(1),
    )
    others = ([], (), {}, [None], [b"", b"x"], {"next": "nowhere"}, {1: 2}, set(), iter([b""]), range(3), object(), len)
    odd = (None, Raising(), Lying(), Closing(farjump.Link(address)), NotImplemented, ..., sys, type, lambda: None)
    return [*numbers, *floats, *texts, *buffers, *others, *odd]


def instances(address, folder):
    """Makes objects of the package in different states."""
    link, closed = farjump.Link(address), farjump.Link(address)
    echo, panics, slow = library("echo"), library("panics"), library("slow")
    of_closed = closed.inject(slow, milliseconds(1))
    closed.close()
    done, failed, cancelled = link.inject(echo, b"1"), link.inject(panics, b"oh"), link.inject(echo, b"")
    done.wait()
    failed.cancel()
    cancelled.cancel()
    target, ended = farjump.Target(f"unix:{folder}/one"), farjump.Target(f"unix:{folder}/two")
    ended.close()
    made = [link, closed, echo, of_closed, done, failed, cancelled, link.inject(slow, milliseconds(2)), target, ended]
    made += [link.map(echo, [b"1", b"2"]), farjump.gather([done, cancelled]), iter(link.map(echo, [b"1"]))]
    owner = farjump.Target(f"unix:{folder}/owner", objects=1 << 20)
    threading.Thread(target=owner.run, daemon=True).start()
    store, shut = farjump.Store(owner.address), farjump.Store(owner.address, mapped=False)
    shut.close()
    evicted = store.put(b"evicted")
    store.evict(evicted)
    made += [store, shut, store.put(bytes(5000)), store.reserve(), evicted, farjump.Choice("here", 0.0, 0.0)]
    return [*made, link.stats, link.peer, target.stats, farjump.Error("text")]


def is_ours(one):
    return getattr(type(one), "__module__", "").split(".")[0] == "farjump"


class Calls:
    def __init__(self, address, folder, loop):
        self.loop = loop
        self.good = {
            "address": address, "library": library("echo"), "args": [b"1"], "path": library("echo").path, "timeout": 0.001,
            "pendings": [], "transport": "shm", "objects": [], "place": "owner", "function": library("echo"),
        }
        # In an event loop most calls run the same code, so a part of the values is enough.
        self.values = values(address, folder)[:: 3 if loop else 1]
        self.pool = {}
        self.called, self.count = set(), 0
        for one in instances(address, folder):
            self.keep(one)

    def keep(self, one):
        """Keeps an object of the package for further calls, unless there are enough of its class."""
        objects = self.pool.setdefault(type(one), [])
        if len(objects) < 3 * OBJECTS and (isinstance(one, BaseException) is False or len(objects) < 1):
            objects.append(one)

    async def call(self, name, function, /, *args, **named):
        """Makes one call. It may fail by any exception but one that reports a bug."""
        self.called.add(name)
        self.count += 1
        signal.setitimer(signal.ITIMER_REAL, CALL)
        try:
            try:
                Stuck.may_be = True
                result = function(*args, **named)
            finally:
                Stuck.may_be = False
                signal.setitimer(signal.ITIMER_REAL, 0)
            if is_ours(result):
                self.keep(result)
            if self.loop and hasattr(type(result), "__await__"):
                await asyncio.wait_for(settled(result), CALL)
        except (SystemError, Warning) as error:
            raise AssertionError(f"{name} {args!r:.200} {named!r:.200}") from error
        except (Exception, Stuck) as error:
            if "a bug in" in str(error):
                raise AssertionError(f"{name} {args!r:.200} {named!r:.200}") from error

    async def everything(self):
        """Calls all callables, until no class is new."""
        seen = set()
        while True:
            new = [kind for kind in self.classes() if kind not in seen]
            if not new:
                return
            for kind in new:
                seen.add(kind)
                await self.constructor(kind)
            for module in (farjump, _native):
                for name, function in vars(module).items():
                    if callable(function) and not isinstance(function, type) and name not in seen:
                        seen.add(name)
                        await self.function(name, function)
            for kind in new:
                for one in [*self.pool.get(kind, ())][:OBJECTS]:
                    await self.object(kind, one)

    def classes(self):
        named = [one for module in (farjump, _native) for one in vars(module).values() if isinstance(one, type)]
        return [kind for kind in dict.fromkeys([*named, *self.pool]) if kind.__module__.split(".")[0] == "farjump"]

    async def constructor(self, kind):
        name = kind.__name__
        await self.function(name, kind)
        for make in (kind.__new__, object.__new__):
            await self.call(f"{name}.__new__", make, kind)
        await self.call(f"{name} as a base", type, "Derived", (kind,), {})

    async def object(self, kind, one):
        """Uses all attributes and protocols of an object."""
        for name in dir(kind):
            if name in vars(object) or name in ("__class__", "__dict__", "__doc__", "__module__", "__weakref__"):
                continue
            shown = f"{kind.__name__}.{name}"
            await self.call(shown, getattr, one, name)
            await self.call(f"{shown} = ", setattr, one, name, None)
            await self.call(f"del {shown}", delattr, one, name)
            if name in ("close", "__exit__", "cancel", "stop"):
                continue
            try:
                method = getattr(one, name)
            except Exception:  # An object that was closed.
                continue
            if callable(method):
                await self.function(shown, method)
        for protocol in (
            repr, str, hash, bool, len, iter, next, int, float, operator.index, bytes, memoryview, dir, sorted, copy.copy,
            copy.deepcopy, pickle.dumps, aiter, anext, operator.neg, operator.invert,
        ):
            await self.call(f"{protocol.__name__}({kind.__name__})", protocol, one)
        for operation in (operator.eq, operator.lt, operator.add, operator.getitem, operator.contains, operator.matmul, divmod):
            for value in (None, 0, one, b""):
                await self.call(f"{operation.__name__}({kind.__name__})", operation, one, value)

    async def function(self, name, function):
        """Calls a callable with all values in each place, and with all pairs of some."""
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (ValueError, TypeError):
            parameters = []
        places = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
        good = [self.good.get(one.name, None if one.default is one.empty else one.default) for one in places]
        named = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
        if any(one.kind is one.VAR_KEYWORD for one in parameters):
            named += [option for option in options(name) if option not in (*named, *LASTING)]
        ours = [one for objects in self.pool.values() for one in objects[:1]]
        all_values = [*self.values, *ours, function]
        await self.call(name, function)
        await self.call(name, function, *good)
        for number, value in enumerate(all_values):
            await self.call(name, function, value)
            for place in range(len(good)):
                await self.call(name, function, *good[:place], value, *good[place + 1 :])
            # There are many: each gets every other value, and some also get it in a list.
            for place, keyword in enumerate(named):
                if (number + place) % 2 == 0:
                    await self.call(f"{name} {keyword}=", function, *good, **{keyword: value})
                    if number % 3 == 0:
                        await self.call(f"{name} {keyword}=", function, *good, **{keyword: [value]})
        for pair in itertools.product(all_values[::6], repeat=2):
            await self.call(name, function, *pair)
        await self.call(name, function, *[None] * 9)
        await self.call(name, function, no_such_argument=None)


async def settled(result):
    return await result


def stuck(*_):
    if Stuck.may_be:
        raise Stuck


def main():
    address, folder, way = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.unraisablehook = lambda _: None
    signal.signal(signal.SIGALRM, stuck)
    warnings.simplefilter("ignore")
    calls = Calls(address, folder, way == "loop")
    asyncio.run(calls.everything()) if calls.loop else drive(calls.everything())
    del calls.values, calls.pool
    gc.collect()
    print("\n".join(sorted(calls.called)))
    print(f"called {calls.count} times")


def drive(coroutine):
    """Runs a coroutine that never suspends, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("it was suspended")


if __name__ == "__main__":
    main()
