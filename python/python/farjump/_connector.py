"""The connector of ProxyStore to the objects of an owner. It needs nothing of ProxyStore itself."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from . import Closed, Gone, Handle, Unset, _clients, _owners
from ._clients import Client

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from os import PathLike

    from typing_extensions import Buffer, Self

# Longest time for the start and for the end of an owner process, in seconds.
_START_TIMEOUT = 10.0


class FarjumpKey(NamedTuple):
    """The key of an object."""

    handle: bytes
    """The bytes of its handle."""


class FarjumpConnector:
    """A connector to the objects of an owner.

    If no process listens at a `unix:` address, it starts an owner. An owner ends when its starter and all other
    connected processes are gone, or with `close(clear=True)`. A target with a store in a program of yours is an owner
    too, at any address.

    Args:
        address: the address of the owner. By default that for all processes of this user on this machine.
        key_file: the key for a target over TCP.
        memory: most bytes of objects in an owner that it starts. By default half of the memory that the process may use.
        clear: the default of `close`: whether it ends the owner with all objects.
        start: whether to start an owner if no process listens.
        start_timeout: longest time for the start and for connecting, in seconds.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        key_file: str | PathLike[str] | None = None,
        memory: int | None = None,
        clear: bool = False,
        start: bool = True,
        start_timeout: float = _START_TIMEOUT,
    ) -> None:
        self.address = _owners.default_address() if address is None else _owners.absolute(address)
        self.clear = clear
        self._options = {"key_file": key_file, "memory": memory, "start": start, "start_timeout": start_timeout}
        self._closed = False
        self._client = None
        self._leave = None
        self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address!r})"

    def _open(self):
        options = self._options
        client = Client.shared(
            self.address, options["key_file"], options["memory"], options["start_timeout"], options["start"]
        )
        if self._leave is not None:
            # The earlier client belongs to the parent process.
            self._leave.detach()
        self._client = client
        self._leave = weakref.finalize(self, client.leave)
        self._leave.atexit = False
        return client.store

    @property
    def _store(self):
        """The native store, opened again in a forked child. That of a closed connector may still serve others."""
        store = self._client.store
        if store is not None and not self._closed:
            return store
        with _clients.lock():
            if self._closed or self._client.is_closed:
                raise Closed(f"the connector to {self.address} was closed: make another")
            return self._client.store or self._open()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    @property
    def gone(self) -> bool:
        """Whether it was closed, or its owner has ended. Then make another connector."""
        return self._closed or self._client.is_gone()

    def close(self, clear: bool | None = None) -> None:
        """Closes the connector. With `clear`, ends the owner process and its objects for all users. Closing it again does
        nothing.

        A closed connector has no objects, even if others are open at its owner. `get` returns None, `exists` returns
        False, and `evict` does nothing. Methods that make objects raise Closed."""
        if self._closed:
            return
        self._closed = True
        clear = self.clear if clear is None else clear
        if clear and self._client.presence is None and self._client.store is not None:
            self._leave()
            raise ValueError(
                f"the objects at {self.address} cannot be cleared: their owner is a program that serves there, "
                "and no owner process of farjump. Evict their keys, or end that program"
            )
        try:
            if clear:
                self._client.clear(self._options["start_timeout"])
        finally:
            self._leave()

    def config(self) -> dict[str, Any]:
        """Returns the arguments that make another connector to the same objects, in any process of this machine."""
        defaults = {"key_file": None, "memory": None, "start": True, "start_timeout": _START_TIMEOUT}
        config = {name: value for name, value in self._options.items() if value != defaults[name]}
        if self.clear:
            config["clear"] = True
        return {"address": self.address, **config}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Makes a connector with the arguments that `config` returned."""
        return cls(**config)

    def evict(self, key: FarjumpKey) -> None:
        """Evicts an object, if it is there."""
        handle = handle_of(key)
        if not self._closed:
            self._store.evict(handle)

    def exists(self, key: FarjumpKey) -> bool:
        """Returns whether there is an object of this key."""
        handle = handle_of(key)
        if self._closed:
            return False
        if handle.length:
            return self._store.exists(handle)
        try:
            # In the store a reserved handle exists. Its object exists once it is set.
            self._store.get(handle)
        except (Gone, Unset):
            return False
        return True

    def get(self, key: FarjumpKey) -> memoryview | None:
        """Returns the bytes of an object as a read-only memoryview; None if there is none.

        On the owner's machine it shows the owner's memory.
        """
        handle = handle_of(key)
        if self._closed:
            return None
        try:
            return self._store.get(handle)
        except (Gone, Unset):
            return None

    def get_batch(self, keys: Iterable[FarjumpKey]) -> list[memoryview | None]:
        """Returns the bytes of several objects, with None for each missing one."""
        return [self.get(key) for key in keys]

    def put(self, obj: Buffer) -> FarjumpKey:
        """Puts the bytes of an object, and returns its key."""
        store = self._store
        # ProxyStore sets put objects again (`update`). A store allows that for reserved ones alone.
        handle = store.reserve()
        try:
            store.set(handle, obj)
        except BaseException:
            store.evict(handle)
            raise
        return FarjumpKey(bytes(handle))

    def put_batch(self, objs: Iterable[Buffer]) -> list[FarjumpKey]:
        """Puts the bytes of several objects, and returns their keys."""
        return [self.put(obj) for obj in objs]

    def put_parts(self, parts: Sequence[Buffer], type_name: str = "") -> FarjumpKey:
        """Puts an object from parts, without joining them first. The object keeps its bytes: its key cannot be `set`."""
        return FarjumpKey(bytes(self._store.put_parts(parts, type_name=type_name)))

    def new_key(self, obj: object = None) -> FarjumpKey:
        """Returns a key without an object, for `set`. Ignores `obj`."""
        return FarjumpKey(bytes(self._store.reserve()))

    def set(self, key: FarjumpKey, obj: Buffer) -> None:
        """Sets the bytes of a key's object, and replaces earlier ones."""
        self._store.set(handle_of(key), obj)

    def wait(self, key: FarjumpKey, timeout: float | None = None) -> memoryview:
        """Waits until the object of a key is set, and returns its bytes.

        Raises:
            TimedOut: it was not set within `timeout` seconds.
            Gone: it was evicted.
        """
        return self._store.wait(handle_of(key), timeout)


def handle_of(key: FarjumpKey) -> Handle:
    """Returns the handle in a key."""
    try:
        return Handle(key[0])
    except (TypeError, IndexError, KeyError):
        raise TypeError(f"{key!r} is no key of this connector: give a FarjumpKey") from None


# Pickle and ProxyStore find them by these names.
FarjumpKey.__module__ = FarjumpConnector.__module__ = "farjump.proxystore"
