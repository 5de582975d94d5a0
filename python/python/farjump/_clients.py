"""The stores that this process uses, each opened once, for connectors and for proxies that are resolved."""

import os
import threading
import time
import weakref

from . import ConnectError, PeerGone, Store, _owners

_lock = threading.RLock()
# The clients that several users share, by address and key file.
_shared = {}
# The clients of proxies at targets of other programs. Connectors do not share those.
_resolving = {}
# All clients, to be dropped in a forked child.
_all = weakref.WeakSet()


def lock():
    """The lock for opening and closing clients, which a thread may take again. A forked child has its own."""
    return _lock


class Client:
    """A native store, and the connection that keeps its owner from ending."""

    def __init__(self, address, key_file, memory, timeout, starts):
        self.address = address
        self.is_closed = False
        self._key = (address, key_file)
        self._users = 0
        self._connect(key_file, memory, timeout, starts)
        _all.add(self)

    def _connect(self, key_file, memory, timeout, starts):
        path = _owners.path_of(self.address)
        deadline = time.monotonic() + timeout
        while True:
            self.presence = None if path is None else _owners.find(path, memory, timeout, starts)
            try:
                self.store = Store(self.address, key_file=key_file, connect_timeout=timeout)
                return
            except BaseException as error:
                ended = isinstance(error, (ConnectError, PeerGone)) and self.presence and self.presence.is_gone()
                if self.presence is not None:
                    self.presence.close()
                # Another process may have ended the owner just then: the next one is found, or started.
                if not ended or time.monotonic() >= deadline:
                    raise

    @staticmethod
    def shared(address, key_file=None, memory=None, timeout=10.0, starts=True):
        """The client of this address, for one more user, which `leave`s it at its end."""
        key = (address, key_file)
        with _lock:
            client = _shared.get(key)
            if client is None or client.is_gone():
                client = Client(address, key_file, memory, timeout, starts)
                # Without a presence the end of a target is seen only in use: each user has a client of its own.
                if client.presence is not None:
                    _shared[key] = client
            client._users += 1
            return client

    @staticmethod
    def resolving(address, key_file=None):
        """The client by which proxies of this address are resolved: that of a connector that is open, or one that
        stays open. Starts no owner, which would have none of their objects."""
        key = (address, key_file)
        client = _shared.get(key) or _resolving.get(key)
        if client is None or client.store is None:
            with _lock:
                client = Client.shared(address, key_file, starts=False)
                if client.presence is None:
                    _resolving[key] = client
        return client

    def forget(self):
        """Has the next user open another one, as the owner has ended."""
        with _lock:
            for clients in (_shared, _resolving):
                if clients.get(self._key) is self:
                    del clients[self._key]

    def is_gone(self):
        """Whether the owner is known to have ended."""
        return self.store is None or self.presence is None or self.presence.is_gone()

    def leave(self):
        """Ends the use by one user; the last one closes it."""
        with _lock:
            self._users -= 1
            if self._users == 0:
                self.close()

    def close(self):
        """Closes it for all users."""
        with _lock:
            self.forget()
            self.is_closed = True
            store, self.store = self.store, None
            if store is not None:
                store.close()
            if self.presence is not None:
                self.presence.close()

    def clear(self, timeout):
        """Has the owner end with all objects, and closes this for all users."""
        with _lock:
            if self.store is not None and self.presence is not None:
                self.presence.clear(timeout)
            self.close()


def _after_fork():
    """Drops the parent's clients in a forked child: their stores do not work here, and open copies of their
    connections would keep the owner."""
    global _lock
    _lock = threading.RLock()
    _shared.clear()
    _resolving.clear()
    for client in list(_all):
        client.store = None
        if client.presence is not None:
            client.presence.close()
    _all.clear()


os.register_at_fork(after_in_child=_after_fork)
