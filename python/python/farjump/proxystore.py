"""farjump for ProxyStore: a connector, a serializer, and a store whose proxies are small and quickly resolved."""

import threading
import weakref
from typing import NamedTuple

try:
    from proxystore.proxy import Proxy
    from proxystore.store import get_store
    from proxystore.store.base import Store as ProxyStoreStore
    from proxystore.store.config import ConnectorConfig, StoreConfig
    from proxystore.store.exceptions import NonProxiableTypeError, ProxyResolveMissingKeyError
    from proxystore.store.factory import PollingStoreFactory, StoreFactory
    from proxystore.store.future import Future
    from proxystore.store.ref import OwnedProxy
except ModuleNotFoundError as error:
    if error.name != "proxystore":
        raise
    raise ModuleNotFoundError(
        "farjump.proxystore needs ProxyStore, which is not installed: pip install proxystore", name="proxystore"
    ) from None

from . import Closed, Gone, Handle, PeerGone, TimedOut, Unset, _owners, _serialize
from ._clients import Client
from ._serialize import deserialize, serialize

__all__ = ["FarjumpConnector", "FarjumpFactory", "FarjumpKey", "FarjumpStore", "deserialize", "serialize"]

# Longest time for the start and for the end of an owner process, in seconds.
_START_TIMEOUT = 10.0
_stores_lock = threading.RLock()
# The stores of this module in this process, by name, also those that are not registered.
_stores = weakref.WeakValueDictionary()


class FarjumpKey(NamedTuple):
    """The key of an object."""

    handle: bytes
    """The bytes of its handle."""


class FarjumpConnector:
    """A connector to the objects of an owner.

    Where nobody listens at a `unix:` address, it starts an owner process, which ends when its starter and all others
    that were connected are gone, or with `close(clear=True)`. A target of a program's own that has a store serves as
    well, at any address.

    Args:
        address: of the owner. Without it, that of all processes of this user on this machine.
        key_file: the key for a target over TCP.
        memory: most bytes of objects, in an owner that is started: half of the machine's memory if not given.
        clear: whether `close` ends the owner, with all objects, if it is not told.
        start: whether to start an owner where nobody listens.
        start_timeout: longest time for that, and for connecting, in seconds.
    """

    def __init__(
        self, address=None, *, key_file=None, memory=None, clear=False, start=True, start_timeout=_START_TIMEOUT
    ):
        self.address = _owners.default_address() if address is None else _owners.absolute(address)
        self.clear = clear
        self._options = {"key_file": key_file, "memory": memory, "start": start, "start_timeout": start_timeout}
        self._closed = False
        self._client = None
        self._leave = None
        self._open()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        return f"{type(self).__name__}({self.address!r})"

    def _open(self):
        options = self._options
        client = Client.shared(
            self.address, options["key_file"], options["memory"], options["start_timeout"], options["start"]
        )
        if self._leave is not None:
            # The client of the process that forked this one.
            self._leave.detach()
        self._client = client
        self._leave = weakref.finalize(self, client.leave)
        self._leave.atexit = False
        return client.store

    @property
    def _store(self):
        """The native store, opened again in a forked child."""
        store = self._client.store
        if store is not None:
            return store
        if self._closed or self._client.is_closed:
            raise Closed(f"the connector to {self.address} was closed: make another")
        return self._open()

    @property
    def closed(self):
        """Whether it was closed."""
        return self._closed

    def close(self, clear=None):
        """Closes the connector. With `clear`, ends the owner process and its objects for all. Closing it again does
        nothing."""
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

    def config(self):
        """The arguments that make another connector to the same objects, in any process of this machine."""
        defaults = {"key_file": None, "memory": None, "start": True, "start_timeout": _START_TIMEOUT}
        config = {name: value for name, value in self._options.items() if value != defaults[name]}
        if self.clear:
            config["clear"] = True
        return {"address": self.address, **config}

    @classmethod
    def from_config(cls, config):
        """A connector with the arguments that `config` returned."""
        return cls(**config)

    def evict(self, key):
        """Evicts an object, if it is there."""
        self._store.evict(_handle(key))

    def exists(self, key):
        """Whether there is an object of this key."""
        handle = _handle(key)
        if handle.length:
            return self._store.exists(handle)
        try:
            # For the store a reserved handle exists; its object does not before it is set.
            self._store.get(handle)
        except (Gone, Unset):
            return False
        return True

    def get(self, key):
        """The bytes of an object as a read-only memoryview, which on the owner's machine is its memory; None if there is
        none."""
        try:
            return self._store.get(_handle(key))
        except (Gone, Unset):
            return None

    def get_batch(self, keys):
        """The bytes of several objects, with None where there is none."""
        return [self.get(key) for key in keys]

    def put(self, obj):
        """Puts the bytes of an object, and returns its key."""
        store = self._store
        # ProxyStore sets objects anew that were put (`update`), which a store lets do with reserved ones.
        handle = store.reserve()
        try:
            store.set(handle, obj)
        except BaseException:
            store.evict(handle)
            raise
        return FarjumpKey(bytes(handle))

    def put_batch(self, objs):
        """Puts the bytes of several objects, and returns their keys."""
        return [self.put(obj) for obj in objs]

    def put_parts(self, parts, type_name=""):
        """Puts the bytes of an object whose parts lie apart, without putting them together before. It keeps them: its
        key cannot be `set`."""
        return FarjumpKey(bytes(self._store.put_parts(parts, type_name=type_name)))

    def new_key(self, obj=None):
        """A key without an object, for `set`. `obj` is not looked at."""
        return FarjumpKey(bytes(self._store.reserve()))

    def set(self, key, obj):
        """Sets the bytes of the object of a key, in place of others."""
        self._store.set(_handle(key), obj)

    def wait(self, key, timeout=None):
        """The bytes of the object of a key, as soon as it is set.

        Raises:
            TimedOut: it was not set within `timeout` seconds.
            Gone: it was evicted.
        """
        return self._store.wait(_handle(key), timeout)


def _handle(key):
    try:
        return Handle(key[0])
    except (TypeError, IndexError, KeyError):
        raise TypeError(f"{key!r} is no key of this connector: give a FarjumpKey") from None


class FarjumpFactory(StoreFactory):
    """Fetches an object for a proxy, by its handle and the configuration of a connector.

    It is pickled as these alone, and bypasses the store's locks, times and cache: each resolved proxy has an object of
    its own, and arrays share the memory of the owner.
    """

    # Of `StoreFactory`: the store's own is used.
    deserializer = None

    def __init__(self, key, config=None, *, name=None, evict=False):
        self.key = key
        self.evict = evict
        self._handle = _handle(key)
        self._config = {"address": self._handle.addresses[0]} if config is None else config
        self._name = name
        self._obj_future = None

    def __call__(self):
        return self.resolve() if self._obj_future is None else super().__call__()

    def __reduce__(self):
        return _factory, self._arguments()

    def _arguments(self):
        """What makes another one, as few as will do."""
        arguments = [self.key.handle, self._config, self.evict, self._name]
        if len(self._config) == 1 and self._handle.addresses[:1] == [self._config["address"]]:
            # The handle says it.
            arguments[1] = None
        while not arguments[-1]:
            arguments.pop()
        return tuple(arguments)

    @property
    def store_config(self):
        """The configuration of a store for the object."""
        return StoreConfig(
            name=self._name or _name_of(self._config["address"]),
            connector=ConnectorConfig(kind="farjump.proxystore.FarjumpConnector", options=self._config),
            serializer=serialize,
            deserializer=deserialize,
            populate_target=False,
        )

    def get_store(self):
        """The store of this name in this process, made and registered if there is none."""
        name = self._name or _name_of(self._config["address"])
        with _stores_lock:
            registered, store = get_store(name), _stores.get(name)
            if registered is not None:
                return registered
            if store is None or store.connector.closed:
                # A new owner would not have the object.
                connector = FarjumpConnector(**{**self._config, "start": False})
                store = FarjumpStore(name, connector, register=True)
            return store

    def resolve(self):
        """Fetches the object, and evicts it if it is to be used once."""
        client = Client.resolving(self._config["address"], self._config.get("key_file"))
        try:
            obj = deserialize(self._fetch(client.store, self._handle))
            if self.evict:
                client.store.evict(self._handle)
        except (Gone, Unset) as error:
            raise self._missing() from error
        except PeerGone:
            client.forget()
            raise
        return obj

    def _fetch(self, store, handle):
        return store.get(handle)

    def _missing(self):
        return ProxyResolveMissingKeyError(
            self.key, FarjumpStore, self._name or _name_of(self._config["address"])
        )


class FarjumpFutureFactory(FarjumpFactory):
    """Fetches an object for the proxy of a future: it waits until the object is set, and does not poll."""

    def __init__(self, key, config, *, name=None, evict=False, timeout=None):
        super().__init__(key, config, name=name, evict=evict)
        self._timeout = timeout

    def __reduce__(self):
        return _future_factory, (self._timeout, *self._arguments())

    def _fetch(self, store, handle):
        try:
            return store.wait(handle, self._timeout)
        except TimedOut as error:
            raise self._missing() from error


def _factory(handle, config=None, evict=False, name=None):
    return FarjumpFactory(FarjumpKey(handle), config, name=name, evict=evict)


def _future_factory(timeout, handle, config=None, evict=False, name=None):
    return FarjumpFutureFactory(FarjumpKey(handle), config, name=name, evict=evict, timeout=timeout)


def _name_of(address):
    """The name of a store that was given none."""
    return f"farjump {address}"


class FarjumpStore(ProxyStoreStore):
    """A store of ProxyStore with the serializer of farjump, and with proxies that are small and quickly resolved.

    It differs from `Store` in its defaults: the connector is one at the address of this user, the name is that of its
    address, and proxies do not hold the object that they were made of (`populate_target`). Where a serializer, a
    deserializer or metrics are given, it does as `Store`.
    """

    def __init__(
        self, name=None, connector=None, *, serializer=None, deserializer=None, populate_target=False, **options
    ):
        connector = FarjumpConnector() if connector is None else connector
        if name is None:
            name = _name_of(connector.address)
        super().__init__(
            name,
            connector,
            serializer=serializer or serialize,
            deserializer=deserializer or deserialize,
            populate_target=populate_target,
            **options,
        )
        self._is_quick = (
            self._serializer is serialize
            and self._deserializer is deserialize
            and self._metrics is None
            and type(connector) is FarjumpConnector
        )
        self._connector_config = connector.config()
        _stores[name] = self
        self._factory_name = None if name == _name_of(self._connector_config["address"]) else name

    def _is_plain(self, *overrides):
        """Whether a call without these overrides needs nothing of `Store`."""
        return self._is_quick and all(override is None for override in overrides)

    def _factory(self, key, evict):
        return FarjumpFactory(key, self._connector_config, name=self._factory_name, evict=evict)

    def put(self, obj, *, lifetime=None, serializer=None, **kwargs):
        if kwargs or not self._is_plain(serializer):
            return super().put(obj, lifetime=lifetime, serializer=serializer, **kwargs)
        key = self.connector.put_parts(*_serialize.parts(obj))
        if lifetime is not None:
            lifetime.add_key(key, store=self)
        return key

    def proxy(
        self,
        obj,
        *,
        evict=False,
        lifetime=None,
        serializer=None,
        deserializer=None,
        populate_target=None,
        skip_nonproxiable=False,
        **kwargs,
    ):
        if kwargs or not self._is_plain(serializer, deserializer):
            return super().proxy(
                obj,
                evict=evict,
                lifetime=lifetime,
                serializer=serializer,
                deserializer=deserializer,
                populate_target=populate_target,
                skip_nonproxiable=skip_nonproxiable,
                **kwargs,
            )
        _check_evict(evict, lifetime)
        if obj is None or isinstance(obj, bool):
            if skip_nonproxiable:
                return obj
            raise NonProxiableTypeError(f"an object of {type(obj)} cannot have a proxy: skip_nonproxiable returns it")
        factory = self._factory(self.put(obj), evict)
        populate = self._populate_target if populate_target is None else populate_target
        proxy = Proxy(factory, cache_defaults=True, target=obj) if populate else Proxy(factory)
        if lifetime is not None:
            lifetime.add_proxy(proxy)
        return proxy

    def owned_proxy(
        self,
        obj,
        *,
        serializer=None,
        deserializer=None,
        populate_target=None,
        skip_nonproxiable=True,
        **kwargs,
    ):
        # An owned proxy can be updated: its object is one that can be set.
        if kwargs or not self._is_plain(serializer, deserializer) or obj is None or isinstance(obj, bool):
            return super().owned_proxy(
                obj,
                serializer=serializer,
                deserializer=deserializer,
                populate_target=populate_target,
                skip_nonproxiable=skip_nonproxiable,
                **kwargs,
            )
        factory = self._factory(self.connector.put(serialize(obj)), False)
        populate = self._populate_target if populate_target is None else populate_target
        return OwnedProxy(factory, cache_defaults=True, target=obj) if populate else OwnedProxy(factory)

    def proxy_batch(self, objs, *, serializer=None, deserializer=None, skip_nonproxiable=False, **options):
        if not self._is_plain(serializer, deserializer):
            options.update(serializer=serializer, deserializer=deserializer)
            return super().proxy_batch(objs, skip_nonproxiable=skip_nonproxiable, **options)
        objs = list(objs)
        if not skip_nonproxiable and any(obj is None or isinstance(obj, bool) for obj in objs):
            raise NonProxiableTypeError("None, True and False cannot have proxies: skip_nonproxiable returns them")
        return [self.proxy(obj, skip_nonproxiable=True, **options) for obj in objs]

    def proxy_from_key(self, key, *, evict=False, lifetime=None, deserializer=None):
        if not self._is_plain(deserializer):
            return super().proxy_from_key(key, evict=evict, lifetime=lifetime, deserializer=deserializer)
        _check_evict(evict, lifetime)
        proxy = Proxy(self._factory(key, evict))
        if lifetime is not None:
            lifetime.add_proxy(proxy)
        return proxy

    def future(self, *, evict=False, serializer=None, deserializer=None, polling_timeout=None, **polling):
        """A future whose result is waited for, at most `polling_timeout` seconds. The other arguments for polling are
        those of `Store`, and are not needed."""
        if not self._is_plain(serializer, deserializer):
            polling.update(serializer=serializer, deserializer=deserializer, polling_timeout=polling_timeout)
            return super().future(evict=evict, **polling)
        unknown = polling.keys() - {"polling_interval", "polling_backoff_factor", "polling_interval_limit"}
        if unknown:
            raise TypeError(f"future() got an unexpected keyword argument {sorted(unknown)[0]!r}")
        return Future(
            FarjumpFutureFactory(
                self.connector.new_key(),
                self._connector_config,
                name=self._factory_name,
                evict=evict,
                timeout=polling_timeout,
            )
        )


def _check_evict(evict, lifetime):
    if evict and lifetime is not None:
        raise ValueError("evict and lifetime exclude each other: give one of them")
