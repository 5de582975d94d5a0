"""farjump for ProxyStore: a connector, a serializer, and a store whose proxies are small and quickly resolved."""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any

try:
    from proxystore.proxy import Proxy
    from proxystore.store import get_store
    from proxystore.store.base import Store as ProxyStoreStore
    from proxystore.store.config import ConnectorConfig, StoreConfig
    from proxystore.store.exceptions import NonProxiableTypeError, ProxyResolveMissingKeyError
    from proxystore.store.factory import StoreFactory
    from proxystore.store.future import Future
    from proxystore.store.ref import OwnedProxy
except ModuleNotFoundError as error:
    if error.name != "proxystore":
        raise
    raise ModuleNotFoundError(
        "farjump.proxystore needs ProxyStore, which is not installed: pip install proxystore", name="proxystore"
    ) from None

from . import Gone, PeerGone, TimedOut, Unset, _clients, _serialize
from ._clients import Client
from ._connector import FarjumpConnector, FarjumpKey, handle_of
from ._serialize import deserialize, serialize
from ._streams import FarjumpPublisher, FarjumpSubscriber

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from proxystore.store.lifetimes import Lifetime

__all__ = [
    "FarjumpConnector",
    "FarjumpFactory",
    "FarjumpKey",
    "FarjumpPublisher",
    "FarjumpStore",
    "FarjumpSubscriber",
    "deserialize",
    "serialize",
]

# The stores of this module in this process, by name, also those that are not registered.
_stores: weakref.WeakValueDictionary[str, FarjumpStore] = weakref.WeakValueDictionary()
# Those that were made for proxies.
_made: weakref.WeakSet[FarjumpStore] = weakref.WeakSet()


class FarjumpFactory(StoreFactory):
    """A factory that fetches an object for a proxy, by its handle and the configuration of a connector.

    Its pickle has these alone. It bypasses the store's locks, times and cache. So each resolved proxy has an object of
    its own, and arrays share the memory of the owner.
    """

    # An attribute of `StoreFactory`. The store's own deserializer is used.
    deserializer = None

    def __init__(
        self, key: FarjumpKey, config: dict[str, Any] | None = None, *, name: str | None = None, evict: bool = False
    ) -> None:
        self.key = key
        self.evict = evict
        self._handle = handle_of(key)
        self._config = {"address": self._handle.addresses[0]} if config is None else config
        self._name = name
        self._obj_future = None

    def __call__(self) -> Any:
        return self.resolve() if self._obj_future is None else super().__call__()

    def __reduce__(self):
        return _factory, self._arguments()

    def _arguments(self):
        """Returns the shortest arguments that make an equal factory."""
        arguments = [self.key.handle, self._config, self.evict, self._name]
        if len(self._config) == 1 and self._handle.addresses[:1] == [self._config["address"]]:
            # The handle has the address.
            arguments[1] = None
        while not arguments[-1]:
            arguments.pop()
        return tuple(arguments)

    @property
    def store_config(self) -> StoreConfig:
        """The configuration of a store for the object."""
        return StoreConfig(
            name=self._name or _name_of(self._config["address"]),
            connector=ConnectorConfig(kind="farjump.proxystore.FarjumpConnector", options=self._config),
            serializer=serialize,
            deserializer=deserialize,
            populate_target=False,
        )

    def get_store(self) -> ProxyStoreStore[Any]:
        """Returns the store of this name in this process. Makes and registers one if there is none."""
        name = self._name or _name_of(self._config["address"])
        with _clients.lock():
            store = get_store(name)
            if store in _made and store.connector.gone:
                # The next owner at the address gets another store.
                _made.discard(store)
                store.close()
                store = None
            if store is not None:
                return store
            store = _stores.get(name)
            if store is None or store.connector.closed:
                # A new owner would not have the object.
                connector = FarjumpConnector(**{**self._config, "start": False})
                store = FarjumpStore(name, connector, register=True)
                _made.add(store)
            return store

    def resolve(self) -> Any:
        """Fetches the object, and evicts it if it is to be used once."""
        try:
            client = Client.resolving(self._handle, self._config["address"], self._config.get("key_file"))
        except Gone as error:
            raise self._missing() from error
        store = client.store
        if store is None:
            raise PeerGone(f"the owner at {client.address} has ended")
        try:
            obj = deserialize(self._fetch(store, self._handle))
            if self.evict:
                store.evict(self._handle)
        except (Gone, Unset) as error:
            raise self._missing() from error
        except PeerGone:
            client.forget()
            raise
        return obj

    def _fetch(self, store, handle):
        return store.get(handle)

    def _missing(self):
        error = ProxyResolveMissingKeyError(self.key, FarjumpStore, self._name or _name_of(self._config["address"]))
        if self.evict:
            error.add_note(
                "A proxy with evict=True is resolved once. Dask resolves proxies that are arguments: make them with "
                "populate_target=True, or without evict"
            )
        return error


class FarjumpFutureFactory(FarjumpFactory):
    """A factory that fetches an object for the proxy of a future. It waits until the object is set, and does not poll."""

    def __init__(
        self,
        key: FarjumpKey,
        config: dict[str, Any] | None = None,
        *,
        name: str | None = None,
        evict: bool = False,
        timeout: float | None = None,
    ) -> None:
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
    """Returns the default name of a store."""
    return f"farjump {address}"


class FarjumpStore(ProxyStoreStore):
    """A store of ProxyStore with the serializer of farjump, and with proxies that are small and quickly resolved.

    Its defaults differ from those of `Store`. The connector is one at the address of this user. The name is that of the
    address. Proxies do not hold the object that they were made of (`populate_target`). If a serializer, a deserializer or
    metrics are given, it works as `Store` does.
    """

    def __init__(
        self,
        name: str | None = None,
        connector: Any = None,
        *,
        serializer: Callable[[Any], Any] | None = None,
        deserializer: Callable[[Any], Any] | None = None,
        populate_target: bool = False,
        **options: Any,
    ) -> None:
        connector = FarjumpConnector() if connector is None else connector
        is_ours = isinstance(connector, FarjumpConnector)
        if name is None:
            if not is_ours:
                raise ValueError(f"a store over a {type(connector).__name__} has no address to be named after: give a name")
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
        if is_ours:
            _stores[name] = self
        if self._is_quick:
            self._connector_config = connector.config()
            self._factory_name = None if name == _name_of(connector.address) else name

    def _is_plain(self, *overrides):
        """Returns whether none of these overrides is given and a call needs nothing of `Store`."""
        return self._is_quick and all(override is None for override in overrides)

    def _factory(self, key, evict):
        return FarjumpFactory(key, self._connector_config, name=self._factory_name, evict=evict)

    def put(
        self,
        obj: Any,
        *,
        lifetime: Lifetime | None = None,
        serializer: Callable[[Any], Any] | None = None,
        **kwargs: Any,
    ) -> FarjumpKey:
        if kwargs or not self._is_plain(serializer):
            return super().put(obj, lifetime=lifetime, serializer=serializer, **kwargs)
        key = self.connector.put_parts(*_serialize.parts(obj))
        if lifetime is not None:
            lifetime.add_key(key, store=self)
        return key

    def proxy(
        self,
        obj: Any,
        *,
        evict: bool = False,
        lifetime: Lifetime | None = None,
        serializer: Callable[[Any], Any] | None = None,
        deserializer: Callable[[Any], Any] | None = None,
        populate_target: bool | None = None,
        skip_nonproxiable: bool = False,
        **kwargs: Any,
    ) -> Any:
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
        proxy = Proxy(factory, cache_defaults=True, target=obj) if populate else _of_class(type(obj), factory)
        if lifetime is not None:
            lifetime.add_proxy(proxy)
        return proxy

    def owned_proxy(
        self,
        obj: Any,
        *,
        serializer: Callable[[Any], Any] | None = None,
        deserializer: Callable[[Any], Any] | None = None,
        populate_target: bool | None = None,
        skip_nonproxiable: bool = True,
        **kwargs: Any,
    ) -> Any:
        # An owned proxy can be updated, so its object must be one that can be set.
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

    def proxy_batch(
        self,
        objs: Iterable[Any],
        *,
        serializer: Callable[[Any], Any] | None = None,
        deserializer: Callable[[Any], Any] | None = None,
        skip_nonproxiable: bool = False,
        **options: Any,
    ) -> list[Any]:
        if not self._is_plain(serializer, deserializer):
            options.update(serializer=serializer, deserializer=deserializer)
            return super().proxy_batch(objs, skip_nonproxiable=skip_nonproxiable, **options)
        objs = list(objs)
        if not skip_nonproxiable and any(obj is None or isinstance(obj, bool) for obj in objs):
            raise NonProxiableTypeError("None, True and False cannot have proxies: skip_nonproxiable returns them")
        return [self.proxy(obj, skip_nonproxiable=True, **options) for obj in objs]

    def proxy_from_key(
        self,
        key: FarjumpKey,
        *,
        evict: bool = False,
        lifetime: Lifetime | None = None,
        deserializer: Callable[[Any], Any] | None = None,
    ) -> Proxy[Any]:
        if not self._is_plain(deserializer):
            return super().proxy_from_key(key, evict=evict, lifetime=lifetime, deserializer=deserializer)
        _check_evict(evict, lifetime)
        proxy = Proxy(self._factory(key, evict))
        if lifetime is not None:
            lifetime.add_proxy(proxy)
        return proxy

    def future(
        self,
        *,
        evict: bool = False,
        serializer: Callable[[Any], Any] | None = None,
        deserializer: Callable[[Any], Any] | None = None,
        polling_timeout: float | None = None,
        **polling: Any,
    ) -> Future[Any]:
        """Returns a future. Its result is waited for, at most `polling_timeout` seconds. The other arguments for polling
        are those of `Store`, and are not needed."""
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


def _of_class(kind, factory):
    """Returns a proxy. If another process finds the class by its name, the proxy states it without being resolved.
    Otherwise `isinstance` fetches the object, and evicts it."""
    proxy = Proxy(factory)
    if kind.__module__ != "__main__" and getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is kind:
        object.__setattr__(proxy, "__proxy_default_class__", kind)
    return proxy


def _check_evict(evict, lifetime):
    if evict and lifetime is not None:
        raise ValueError("evict and lifetime exclude each other: give one of them")
