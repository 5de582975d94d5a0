"""The stores that this process uses for connectors and for resolving proxies. Each is opened once."""

import os
import threading
import time
import weakref

from . import ConnectError, Gone, PeerGone, Store, _owners
from ._looks import Looks

_lock = threading.RLock()
_looks = Looks()
# The clients that several users share, by address and key file.
_shared = {}
# The clients of proxies at targets of other programs. Connectors do not share these. An owner is identified by its epoch, not
# by its address.
_resolving = {}
# All clients, to be dropped in a forked child.
_all = weakref.WeakSet()


def lock():
    """Returns the lock for opening and closing clients. A thread may take it again. A forked child has its own."""
    return _lock


class Client:
    """A native store, and the connection that keeps its owner from ending."""

    def __init__(self, address, key_file, memory, timeout, starts):
        self.address = address
        self.is_closed = False
        self._key = (address, key_file)
        self._users = 0
        # Whether handles are resolved by it. That counts as one user.
        self._resolves = False
        self._connect(key_file, memory, timeout, starts)
        _all.add(self)

    def _connect(self, key_file, memory, timeout, starts):
        path = _owners.path_of(self.address)
        deadline = time.monotonic() + timeout
        while True:
            self.presence = None if path is None else _owners.find(path, memory, timeout, starts)
            try:
                self.store = Store(self.address, key_file=key_file, connect_timeout=timeout)
                self.epoch = self.store.epoch
                return
            except BaseException as error:
                ended = isinstance(error, (ConnectError, PeerGone)) and self.presence and self.presence.is_gone()
                if self.presence is not None:
                    self.presence.close()
                # If another process ended the owner just then, the next attempt finds or starts another one.
                if not ended or time.monotonic() >= deadline:
                    raise

    @staticmethod
    def shared(address, key_file=None, memory=None, timeout=10.0, starts=True):
        """Returns the client of this address for one more user. The user calls `leave` when it is done."""
        key = (address, key_file)
        with _lock:
            client = _shared.get(key)
            if client is None or client.is_gone():
                client = Client(address, key_file, memory, timeout, starts)
                # Without a presence only a use reveals the end of a target: each user has a client of its own.
                if client.presence is not None:
                    _shared[key] = client
            client._users += 1
            return client

    @staticmethod
    def resolving(handle, address, key_file=None):
        """Returns the client that resolves a handle. It is that of an open connector, or one that stays open until its
        owner ends. Starts no owner: a new one would have none of the objects.

        Raises:
            Gone: the owner at the address is another one.
        """
        key, epoch = (address, key_file), handle.epoch
        client = _known(key, epoch)
        if client is not None and not _looks.is_due():
            return client
        with _lock:
            client = _known(key, epoch)
            # Its use shows whether it has ended.
            _forget_ended(client)
            if client is not None:
                return client
            client = Client.shared(address, key_file, starts=False)
            if client.epoch != epoch:
                client.leave()
                raise Gone(
                    f"object {handle.number} is gone: the owner at {address} has restarted since, or is another one"
                )
            client._resolves = True
            if client.presence is None:
                _resolving[key] = client
            return client

    def forget(self):
        """Drops this client, as the owner has ended. The next user opens another one."""
        with _lock:
            for clients in (_shared, _resolving):
                if clients.get(self._key) is self:
                    del clients[self._key]
            if self._resolves:
                self._resolves = False
                self.leave()

    def is_gone(self):
        """Returns whether it was closed, or the owner is known to have ended."""
        store = self.store
        return store is None or store.gone or (self.presence is not None and self.presence.is_gone())

    def leave(self):
        """Ends the use by one user; the last one closes it."""
        with _lock:
            self._users -= 1
            if self._users == 0 and not self.is_closed:
                self.close()

    def close(self):
        """Closes it for all users."""
        with _lock:
            self.is_closed = True
            self.forget()
            store, self.store = self.store, None
            if store is not None:
                store.close()
            if self.presence is not None:
                self.presence.close()

    def clear(self, timeout):
        """Ends the owner with all objects, and closes this client for all users."""
        with _lock:
            if self.store is not None and self.presence is not None:
                self.presence.clear(timeout)
            self.close()


def _known(key, epoch):
    """Returns the open client of an owner with this epoch; None if there is none."""
    for clients in (_shared, _resolving):
        client = clients.get(key)
        if client is not None and client.epoch == epoch and client.store is not None:
            return client
    return None


def _forget_ended(used):
    """Drops the clients of ended owners, except the one in use. Connectors keep theirs."""
    _looks.took_place()
    for clients in (_shared, _resolving):
        for client in list(clients.values()):
            if client is not used and client.is_gone():
                client.forget()


def _after_fork():
    """Drops the parent's clients in a forked child. Their stores do not work here, and open copies of their connections
    would keep the owner from ending."""
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
