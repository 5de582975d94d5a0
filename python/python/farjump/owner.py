"""A process that owns objects: `python -m farjump.owner unix:PATH`.

It serves until SIGTERM, SIGINT or SIGHUP, or until a connector ends it (`close(clear=True)`). An owner that a
connector started also ends when its starter and all other connected processes are gone.
"""

import argparse
import contextlib
import os
import selectors
import signal
import socket
import stat
import sys
import threading
import time

from . import Error, Target, _native, _owners

# Interval between attempts to end, in seconds, while another process holds the lock.
_RETRY = 0.02
# Longest time to wait for that lock after a signal or a request of a connector, in seconds.
_PATIENCE = 10
# The libraries that functions may call. Numba's functions need the mathematical ones.
_EXPORTS = ("libm.so.6",)
_ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(arguments=None):
    """Runs an owner, and returns its exit status."""
    options = _parser().parse_args(arguments)
    starter = None
    if options.starter is not None:
        # The starter waits for this process. The owner is the child of this process, not of the starter.
        if os.fork():
            os._exit(0)
        starter = socket.socket(fileno=options.starter)
        os.set_inheritable(options.starter, False)
    os.umask(0o077)
    path = _owners.path_of(options.address)
    try:
        with _lock_for_start(options, path):
            owner = _Owner(options, path, starter)
    except (Error, OSError, ValueError, OverflowError) as error:
        if starter is None:
            print(f"farjump.owner: {error}", file=sys.stderr, flush=True)
        else:
            _say(starter, _owners.FAILED + " ".join(str(error).split()).encode() + b"\n")
            _remove_log(path)
        return 1
    if starter is None:
        print(f"farjump.owner: serves at {owner.target.address}", flush=True)
    else:
        _say(starter, _owners.READY)
    owner.serve()
    return owner.status


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m farjump.owner", description="Owns objects for other processes.", allow_abbrev=False
    )
    parser.add_argument("address", type=_owners.absolute, help="unix:PATH, or another address of a target")
    parser.add_argument(
        "--memory",
        type=int,
        default=_native.usable_memory() // 2,
        metavar="BYTES",
        help="most bytes of objects; half of the memory that this process may use if not given",
    )
    parser.add_argument("--key-file", help="the key that peers over TCP must have")
    parser.add_argument(
        "--export-library",
        action="append",
        default=list(_EXPORTS),
        metavar="LIBRARY",
        help="a library that injected functions may call, besides libm.so.6",
    )
    parser.add_argument("--export", action=_Renamed, const="--export-library", help=argparse.SUPPRESS)
    # A socket of a pair whose other one is the starter's, and the starter's lock.
    parser.add_argument("--starter", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--lock", type=int, help=argparse.SUPPRESS)
    return parser


class _Renamed(argparse.Action):
    """An argument of an earlier version, with its present name."""

    def __call__(self, parser, namespace, values, option_string=None):
        parser.error(f"{option_string} is called {self.const} now")


@contextlib.contextmanager
def _lock_for_start(options, path):
    """Holds the lock for starting an owner: that of the starter, if there is one."""
    if options.lock is not None:
        try:
            yield
        finally:
            _owners.unlock(options.lock, path)
    elif path is not None:
        with _owners.lock(path, time.monotonic() + _PATIENCE):
            yield
    else:
        yield


class _Owner:
    """A target with a store, and the processes that use it."""

    def __init__(self, options, path, starter):
        self.target = Target(
            options.address,
            objects=options.memory,
            export_library=options.export_library,
            key_file=options.key_file,
        )
        self.status = 0
        self._path = path
        self._ends_unused = starter is not None
        self._ending_until = None
        self._selector = selectors.DefaultSelector()
        self._connected = set()
        if starter is not None:
            self._add(starter)
        self._listener = None
        if path is not None:
            try:
                self._listener = _listener(path + _owners.SUFFIX)
            except BaseException:
                self.target.close()
                raise
            self._selector.register(self._listener, selectors.EVENT_READ)
        # Signals and the end of the thread that runs the target arrive as bytes here.
        self._woken, self._wake = socket.socketpair()
        self._woken.setblocking(False)
        self._wake.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)

    def serve(self):
        """Serves until the end, and leaves nothing behind."""
        signal.set_wakeup_fd(self._wake.fileno())
        for number in _ENDS:
            signal.signal(number, lambda *_: None)
        serving = threading.Thread(target=self._run_target, daemon=True)
        serving.start()
        held = None
        while held is None:
            for key, _ in self._selector.select(self._wait()):
                self._handle_event(key.fileobj)
            held = self._try_to_end()
        with held:
            self.target.stop()
            serving.join(_PATIENCE)
            if serving.is_alive():
                self._end_beside_call()
            self.target.close()
            if self._listener is not None:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._path + _owners.SUFFIX)
                self._listener.close()
                _remove_log(self._path)
        # The connections close with the process. By that a waiting connector sees its end.

    def _end_beside_call(self):
        """Ends the process while a call still runs. Nothing can stop such a call."""
        print("farjump.owner: a call did not end, and was ended with the process", file=sys.stderr, flush=True)
        for name in ("", _owners.SUFFIX, _owners.LOCK_SUFFIX) if self._path is not None else ():
            with contextlib.suppress(OSError):
                os.unlink(self._path + name)
        os._exit(1)

    def _run_target(self):
        try:
            self.target.run()
        except Exception as error:
            print(f"farjump.owner: {error}", file=sys.stderr, flush=True)
            self.status = 1
        with contextlib.suppress(OSError):
            self._wake.send(b"\0")

    def _wait(self):
        """Returns the time until the next attempt to end; None if it is not to end."""
        return _RETRY if self._ending_until is not None or self._is_unused() else None

    def _is_unused(self):
        return self._ends_unused and not self._connected

    def _handle_event(self, source):
        if source is self._listener:
            self._accept()
        elif source is self._woken:
            self._woken.recv(64)
            self._end()
        else:
            self._hear(source)

    def _end(self):
        if self._ending_until is None:
            self._ending_until = time.monotonic() + _PATIENCE

    def _accept(self):
        try:
            connection, _ = self._listener.accept()
        except OSError:
            # The process has ended before, or there is no descriptor for its connection.
            return
        try:
            _owners.check_peer(connection, self._path)
        except Error:
            return
        if self._ending_until is not None:
            _say(connection, _owners.ENDING)
            connection.close()
        elif _say(connection, _owners.GREETING):
            self._add(connection)
        else:
            connection.close()

    def _add(self, connection):
        connection.setblocking(False)
        self._connected.add(connection)
        self._selector.register(connection, selectors.EVENT_READ)

    def _hear(self, connection):
        try:
            said = connection.recv(64)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if said == _owners.CLEAR:
            self._end()
        elif not said:
            self._selector.unregister(connection)
            self._connected.discard(connection)
            connection.close()

    def _try_to_end(self):
        """Takes and returns the lock if this process is to end now; returns None if it continues.

        While it holds the lock, no other process starts an owner here. Without the lock it responds to connecting processes.
        """
        if self._ending_until is None and not self._is_unused():
            return None
        if self._path is None:
            return contextlib.nullcontext()
        held = contextlib.ExitStack()
        try:
            held.enter_context(_owners.lock(self._path, 0))
        except (Error, OSError):
            return contextlib.nullcontext() if self._is_overdue() else None
        if self._ending_until is None and self._has_waiting():
            held.close()
            return None
        return held

    def _is_overdue(self):
        return self._ending_until is not None and time.monotonic() >= self._ending_until

    def _has_waiting(self):
        """Returns whether a connected process waits for a response."""
        return any(key.fileobj is self._listener for key, _ in self._selector.select(0))


def _listener(path):
    """Returns a listening socket at the path. Replaces one that a killed owner left: this process already has its target's
    address."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _owners.bind(listener, path)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"{path}: {error.strerror or error}") from None
    listener.setblocking(False)
    return listener


def _say(connection, words):
    """Sends a few words; returns False if the peer is gone."""
    try:
        connection.sendall(words)
    except OSError:
        return False
    return True


def _remove_log(path):
    """Removes the log of an owner that wrote nothing."""
    name = path + _owners.LOG_SUFFIX
    with contextlib.suppress(OSError):
        if os.path.getsize(name) == 0:
            os.unlink(name)


if __name__ == "__main__":
    sys.exit(main())
