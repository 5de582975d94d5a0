"""Functions at the data of handles: `at`, `map`, `derive`, and the choice of a place."""

from __future__ import annotations

import itertools
import os
import struct
import sys
import threading
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ._errors import ConnectError, Error, Gone, PeerGone
from ._looks import Looks
from ._native import Handle, Library, Link, Placement, Store, gather

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import EllipsisType

    import numpy

    from ._ifunc import Ifunc
    from ._native import Pendings

R = TypeVar("R")

# Alignment of the arguments in a call of a library's function at an object (farjump_ifunc.h).
_ALIGNMENT = 64
_WORDS = struct.Struct("<II")
# Choices of one kind that follow the last one without a measurement.
_SETTLED = 31
# Longest time for connecting to an owner, in seconds.
_CONNECT = 5.0


class Choice(NamedTuple):
    """The place where a function on an object would run, and the reason."""

    place: str
    """`"owner"` or `"here"`."""
    here: float
    """Expected time here in seconds, with the fetch of the object."""
    owner: float
    """Expected time at the owner in seconds, with the call."""


class _Owner:
    """The connections of this process to one owner, each made when it is first used."""

    def __init__(self, handle: Handle, key_file: Any, key: tuple[Any, ...]) -> None:
        self._handle, self._key_file, self._key = handle, key_file, key
        self.address = handle.addresses[0]
        self._link: Link | None = None
        self._store: Store | None = None
        self._spills = False
        self._lock = threading.Lock()

    def _reached(self, connect: Any) -> Any:
        reasons = []
        for address in self._handle.addresses:
            try:
                made = connect(address, key_file=self._key_file, connect_timeout=_CONNECT)
            except ConnectError as error:
                reasons.append(str(error))
                continue
            self.address = address
            return made
        self.forget()
        raise ConnectError("the owner is reached at none of its addresses: " + "; ".join(reasons))

    def is_gone(self) -> bool:
        """Returns whether it was reached, and has ended."""
        return self._store is not None and self._store.gone

    def forget(self) -> None:
        """Drops this owner, and the times and choices known for it. The next use connects again."""
        if _owners.get(self._key) is self:
            del _owners[self._key]
        _placement.forget(self.address)
        for settled in [one for one in _settled if one[1] == self._handle.epoch]:
            _settled.pop(settled, None)

    @property
    def link(self) -> Link:
        if self._link is None:
            # The store's epoch reveals a restarted owner. A link does not.
            self.store.exists(self._handle)
            with self._lock:
                self._link = self._link or self._reached(Link)
        return self._link

    @property
    def store(self) -> Store:
        if self._store is None:
            with self._lock:
                store = self._store or self._reached(Store)
                if store.epoch != self._handle.epoch:
                    store.close()
                    self.forget()
                    raise Gone(f"object {self._handle.number} is gone: the owner at {self.address} has restarted since, or is another one")
                self._store, self._spills = store, store.spills
        return self._store

    def link_for(self, *objects: Any) -> Link:
        """Returns the link for a call on these objects. The owner reads those in its file before the function starts."""
        link = self.link
        if self._spills:
            for one in objects:
                if type(one) is Handle and one.epoch == self._handle.epoch:
                    link._hold(one)
        return link


# By epoch and key file: a restarted owner is another one.
_owners: dict[tuple[Any, ...], _Owner] = {}
_looks = Looks()
_count = itertools.count(1)
_placement = Placement()
# The choice for a function, an owner and lengths of one power of two: whether the function runs there, the number of further
# calls without a measurement, and the number of such choices in a row.
_settled: dict[tuple[int, int, int], list[int]] = {}


# Functions that have run at a place once.
_warm: set[tuple[int, bool]] = set()


def _after_fork() -> None:
    _owners.clear()


os.register_at_fork(after_in_child=_after_fork)


def _resolved(place: Any) -> tuple[Handle, Any]:
    """Returns the handle of a handle, a key or a proxy, and the key file for its owner. Does not resolve the proxy."""
    if type(place) is Handle:
        return place, None
    proxies = sys.modules.get("proxystore.proxy")
    if proxies is not None and issubclass(type(place), proxies.Proxy):
        factory = proxies.get_factory(place)
        handle = getattr(factory, "_handle", None)
        if type(handle) is Handle:
            return handle, factory._config.get("key_file")
        # The factory of ProxyStore's own `Store` has a key.
        place = getattr(factory, "key", place)
    if type(place).__name__ == "FarjumpKey":
        return Handle(place.handle), None
    raise TypeError(f"a {type(place).__name__} names no object of an owner: give a farjump.Handle, or a proxy of a FarjumpStore")


def _owner(handle: Handle, key_file: Any) -> _Owner:
    """Returns the connections to the owner of a handle."""
    key = handle.epoch, key_file
    owner = _owners.get(key)
    if owner is not None and not handle._is_at(owner.address):
        # An owner elsewhere may claim any epoch.
        key += tuple(handle.addresses)
        owner = _owners.get(key)
    if owner is not None and not _looks.is_due():
        return owner
    # The use of this owner shows whether it has ended.
    _forget_ended(owner)
    if owner is None:
        if not handle.addresses:
            raise ConnectError("the handle has no address of its owner")
        owner = _owners.setdefault(key, _Owner(handle, key_file, key))
    return owner


def _forget_ended(used: _Owner | None) -> None:
    """Drops ended owners, and the times and choices known for them. Keeps the owner in use."""
    _looks.took_place()
    for owner in list(_owners.values()):
        if owner is not used and owner.is_gone():
            owner.forget()


def _arguments(function: Any, handle: Handle, args: Sequence[Any]) -> Sequence[Any]:
    """Returns the arguments of a call at an object. A library's function gets bytes for `farjump_open_at`."""
    if type(function) is not Library:
        return (handle, *args)
    if len(args) > 1:
        raise TypeError(f"the function of a library takes one argument, its bytes, and there are {len(args)}")
    named = bytes(handle)
    start = _WORDS.size + len(named)
    start += -start % _ALIGNMENT
    payload = bytearray(start)
    _WORDS.pack_into(payload, 0, len(named), start)
    payload[_WORDS.size : _WORDS.size + len(named)] = named
    if args:
        payload += memoryview(args[0]).cast("B")
    return (payload,)


def at(obj: Any, function: Ifunc[..., R] | Library, /, *args: Any, place: str = "owner", timeout: float | None = None) -> Any:
    """Runs a function on an object, given by its handle or an unresolved proxy: `function(object, *args)`.

    With `place="owner"` it runs at the object's owner. With `"here"` the object is fetched. With `"auto"` it runs at the
    place that takes less time, judged by the times of earlier calls.
    """
    handle, key_file = _resolved(obj)
    owner = _owner(handle, key_file)
    try:
        if place == "owner":
            return owner.link_for(handle, *args).call(function, *_arguments(function, handle, args), timeout=timeout)
        if place not in ("here", "auto"):
            raise ValueError(f"place={place!r}: it is owner, here or auto")
        if type(function) is Library:
            raise TypeError("the function of a library runs at the owner only: give one with the decorator @farjump.ifunc")
        if place == "here":
            return _here(owner, handle, function, args, timeout)
        return _anywhere(owner, handle, function, args, timeout)
    except PeerGone:
        owner.forget()
        raise


def _here(owner: _Owner, handle: Handle, function: Any, args: Sequence[Any], timeout: float | None) -> Any:
    from ._arrays import view
    from ._ifunc import Ifunc

    run = function._run_here if isinstance(function, Ifunc) else function
    return run(view(owner.store.get(handle, timeout)), *args)


def _anywhere(owner: _Owner, handle: Handle, function: Any, args: Sequence[Any], timeout: float | None) -> Any:
    length = handle.length
    number = _number(function)
    key = number, handle.epoch, length.bit_length()
    settled = _settled.get(key)
    if settled is not None and settled[1] > 0:
        # Measuring costs more than a short function.
        settled[1] -= 1
        if settled[0]:
            return owner.link_for(handle, *args).call(function, handle, *args, timeout=timeout)
        return _here(owner, handle, function, args, timeout)
    from ._arrays import view

    size = _size(args)
    _measure(owner)
    is_there, here, there = _placement.choose(owner.address, number, length, size)
    begun = perf_counter()
    if is_there:
        result = owner.link_for(handle, *args).call(function, handle, *args, timeout=timeout)
        if (number, True) in _warm:
            _placement.ended_there(owner.address, number, length, size, perf_counter() - begun)
    else:
        array = view(owner.store.get(handle, timeout))
        fetched = perf_counter()
        result = function(array, *args)
        ended = perf_counter()
        if (number, False) in _warm:
            _placement.ended_here(owner.address, number, length, size, fetched - begun, ended - fetched)
    if (number, is_there) not in _warm:
        # This run also compiled it and mapped memory.
        _warm.add((number, is_there))
        return result
    if is_there == (there < here):
        # Once both places are known, it is chosen without a measurement. Where they take similar times, that is rarer.
        runs = settled[2] + 1 if settled is not None and settled[0] == is_there else 0
        _settled[key] = [is_there, _SETTLED if runs > 4 else 0, runs]
    return result


def _number(function: Any) -> int:
    """Returns a number that no other function of this process has or had."""
    number = getattr(function, "_number", None)
    if number is None:
        if not hasattr(type(function), "_farjump_call"):
            raise TypeError(f"a {type(function).__name__} has no place: give a function with the decorator @farjump.ifunc")
        number = function._number = next(_count)
    return number


def _size(args: Sequence[Any]) -> int:
    return sum(getattr(one, "nbytes", 8) for one in args)


def _measure(owner: _Owner) -> None:
    """Measures the path to an owner, once: puts objects there and fetches them."""
    if _placement.knows(owner.address):
        return
    store, found = owner.store, []
    for length in (64, 1 << 16):
        handle = store.put(bytes(length))
        try:
            least = 1.0
            for _ in range(10):
                begun = perf_counter()
                with store.get(handle) as seen:
                    bytes(seen)
                least = min(least, perf_counter() - begun)
            found.append((length, least))
        finally:
            store.evict(handle)
    _placement.set_fetch_times(owner.address, *found)


def choose(obj: Any, function: Ifunc[..., Any], /, *args: Any) -> Choice:
    """Returns the place where `at(..., place="auto")` would run a function now, and the expected time at each place."""
    handle, key_file = _resolved(obj)
    owner = _owner(handle, key_file)
    _measure(owner)
    is_there, here, there = _placement.choose(owner.address, _number(function), handle.length, _size(args))
    return Choice("owner" if is_there else "here", here, there)


def map(
    objects: Iterable[Any], function: Ifunc[..., R] | Library, /, *args: Any, return_exceptions: bool = False
) -> Pendings[Any]:
    """Runs a function on each of several objects, at their owners. Returns one awaitable for the list of results."""
    pendings = []
    for one in objects:
        handle, key_file = _resolved(one)
        link = _owner(handle, key_file).link_for(handle, *args)
        pendings.append(link.inject(function, *_arguments(function, handle, args)))
    return gather(pendings, return_exceptions=return_exceptions)


def derive(obj: Any, function: Ifunc[..., Any] | Library, /, *args: Any, shape: Sequence[int] | None = None, timeout: float | None = None) -> Any:
    """Makes a new object from an object at its owner, by a function with an output. The bytes of both stay there.

    Returns a handle for a handle, and a proxy for a proxy. The output has the shape of the first array unless `shape` is given.
    """
    handle, key_file = _resolved(obj)
    owner = _owner(handle, key_file)
    called = function if type(function) is Library else function._derive(shape)
    try:
        reply = owner.link_for(handle, *args).call(called, *_arguments(function, handle, args), timeout=timeout)
    except PeerGone:
        owner.forget()
        raise
    try:
        made = Handle(reply)
    except ValueError as error:
        raise Error(f"the function made no object: {error}") from None
    if type(obj) is Handle:
        return made
    proxies = sys.modules["proxystore.proxy"]
    if not issubclass(type(obj), proxies.Proxy):
        return type(obj)(bytes(made))
    factory = proxies.get_factory(obj)
    from .proxystore import FarjumpFactory, FarjumpKey

    return proxies.Proxy(FarjumpFactory(FarjumpKey(bytes(made)), factory._config, name=factory._name))


def put_array(store: Store, array: numpy.ndarray) -> Handle:
    """Puts a NumPy array with its type and shape, so that functions accept it as an array. Copies an array with gaps."""
    from . import _arrays

    if not _arrays.is_plain(array):
        raise _arrays.not_plain(array, "the array for farjump.put_array")
    if not array.flags.c_contiguous:
        array = array.copy()
    parts = [_arrays.header(array), array.reshape(-1).view("u1")]
    return store.put_parts(parts, type_name=f"ndarray {array.dtype.str} {array.shape}")


def get_array(store: Store, handle: Handle, timeout: float | EllipsisType | None = ...) -> numpy.ndarray:
    """Returns the array of an object, read-only. Copies nothing if the owner is on this machine. The time limit is
    that of the store if not given."""
    from . import _arrays

    return _arrays.view(store.get(handle, timeout))
