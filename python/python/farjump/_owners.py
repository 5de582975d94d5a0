"""The owner process of a `unix:` address: finding it, starting one if no process listens, and keeping it while it is used.

Beside the socket of its target, an owner listens on a second one, `PATH.owner`. A process that uses the owner stays
connected there, so the kernel notifies the owner of any end of the process. Starting and ending an owner take place
under a lock on `PATH.owner-lock`.
"""

import contextlib
import fcntl
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import time

from ._errors import ConnectError, TimedOut

# The messages of an owner to a connecting process.
GREETING = b"farjump-owner 1\n"
ENDING = b"ending\n"
# The request to end, from a connected process.
CLEAR = b"clear\n"
# The reports of an owner to its starter. A sentence follows the second.
READY = b"ready\n"
FAILED = b"failed "

SUFFIX = ".owner"
LOCK_SUFFIX = ".owner-lock"
LOG_SUFFIX = ".owner-log"

# Interval between attempts, in seconds.
_RETRY = 0.005
# Longest time for the sockets of an owner that was killed to close, in seconds.
_CLOSING = 1.0
# Longest sentence of an owner that failed, in bytes, and lines of its log that are shown.
_LONGEST = 4096
_LINES = 5
_CREDENTIALS = struct.Struct("3i")
_UNIX = "unix:"
# Longest path of a Unix socket, in bytes (unix(7)).
_LONGEST_PATH = 107
# The parent of the folder for a user without a runtime folder.
_TEMPORARY = "/tmp"


def default_address():
    """Returns the address for all processes of this user on this machine."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    folder = os.path.join(runtime, "farjump")
    is_usable = os.path.isabs(runtime) and not _fault(runtime) and _is_short(os.path.join(folder, "store"))
    if not is_usable or not _has(folder):
        folder = f"{_TEMPORARY}/farjump-{os.geteuid()}"
        try:
            _make(folder)
        except OSError as error:
            raise ConnectError(
                f"no folder can be made for the store of this user: {folder}: {error.strerror or error}. "
                "Set XDG_RUNTIME_DIR to a folder of this user with mode 700, or give an address"
            ) from None
    fault = _fault(folder)
    if fault:
        raise ConnectError(f"{folder} is not safe for the store of this user: {fault}. Remove it, or give an address")
    return f"{_UNIX}{folder}/store"


def _make(folder):
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)


def _has(folder):
    """Makes the folder unless it exists; returns False if that fails."""
    try:
        _make(folder)
    except OSError:
        return False
    return True


def _is_short(path):
    return len(os.fsencode(path)) <= _LONGEST_PATH


def _connect(connection, path):
    """Connects to the socket at a path of any length."""
    if _is_short(path):
        connection.connect(path)
        return
    found = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        connection.connect(f"/proc/self/fd/{found}")
    finally:
        os.close(found)


def bind(listener, path):
    """Binds a socket to a path of any length. No socket may exist there."""
    if _is_short(path):
        listener.bind(path)
        return
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        made = f"/proc/self/fd/{folder}/.{os.getpid()}"
        listener.bind(made)
        try:
            os.rename(made, path)
        except BaseException:
            os.unlink(made)
            raise
    finally:
        os.close(folder)


def _fault(folder):
    """Returns the reason why another user may have access to this folder; empty if there is none."""
    try:
        found = os.lstat(folder)
    except OSError as error:
        return error.strerror
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a folder"
    if found.st_uid != os.geteuid():
        return f"it belongs to the user with id {found.st_uid}"
    if found.st_mode & 0o077:
        return f"its mode is {stat.S_IMODE(found.st_mode):o}, which lets others in"
    return ""


def absolute(address):
    """Returns the address with an absolute path, so that it means the same in other folders."""
    path = path_of(address)
    return address if path is None else _UNIX + os.path.abspath(path)


def path_of(address):
    """Returns the path of an address of the form `unix:PATH`; None for others."""
    path = address.removeprefix(_UNIX)
    return path if path != address and path and not path.startswith("@") else None


class Presence:
    """A connection to an owner. The owner does not end while it is open."""

    def __init__(self, connection):
        self._connection = connection

    def is_gone(self):
        """Returns whether the owner has ended."""
        try:
            return self._connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def clear(self, timeout):
        """Requests the end of the owner, and waits for it."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._connection.sendall(CLEAR)
        self._connection.settimeout(timeout)
        try:
            while self._connection.recv(64):
                pass
        except ConnectionResetError:
            pass
        except TimeoutError:
            raise TimedOut(f"the owner process did not end within {timeout:g} s: it may be stopped or busy") from None

    def close(self):
        """Leaves the owner."""
        self._connection.close()


def find(path, memory, timeout, starts):
    """Returns a `Presence` at the owner of this path; None at a target of another program.

    If no process listens there, starts an owner, unless `starts` is False.
    """
    deadline = time.monotonic() + timeout
    if not _is_short(path):
        raise ConnectError(
            f"unix:{path}: the path has {len(os.fsencode(path))} bytes, and that of a socket has {_LONGEST_PATH} at most: "
            "give a shorter one"
        )
    found = _attach(path, deadline)
    if found:
        return found
    with contextlib.ExitStack() as held:
        try:
            descriptor = held.enter_context(lock(path, deadline))
        except OSError as error:
            if isinstance(error, TimedOut):
                raise
            if _listens(path):
                return None
            raise ConnectError(
                f"no owner can be started at unix:{path}: {path}{LOCK_SUFFIX}: {error.strerror or error}. "
                "Give an address in a folder that this user can write"
            ) from None
        # No other process starts or ends an owner now.
        found = _attach(path, deadline)
        if found:
            return found
        if _listens(path) and not _closes(path, deadline):
            return None
        if not starts:
            raise ConnectError(
                f"no process listens at unix:{path}: the owner of the objects has ended, and they are gone"
            )
        return _start(path, memory, timeout, deadline, descriptor)


def _attach(path, deadline):
    """Returns a `Presence` at the owner that listens beside this path; None if there is none."""
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(_left(deadline))
            _connect(connection, path + SUFFIX)
            said = _line(connection)
        except (FileNotFoundError, ConnectionRefusedError, ConnectionResetError, NotADirectoryError):
            said = b""
        except (BlockingIOError, TimeoutError):
            connection.close()
            raise TimedOut(f"the owner process at unix:{path} did not answer: it may be stopped or busy") from None
        except OSError as error:
            connection.close()
            raise ConnectError(f"{path}{SUFFIX}: {error.strerror or error}") from None
        if said == GREETING:
            check_peer(connection, path)
            connection.settimeout(None)
            return Presence(connection)
        connection.close()
        if said == b"":
            return None
        if said != ENDING:
            raise ConnectError(
                f"{path}{SUFFIX} is the socket of another program, or of another version of farjump: "
                "give another address"
            )
        if time.monotonic() >= deadline:
            raise TimedOut(f"the owner process at unix:{path} does not end: it may be stopped or busy")
        time.sleep(_RETRY)


def check_peer(connection, path):
    """Checks that the peer is a process of this user, or of root."""
    _, user, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if user not in (os.geteuid(), 0):
        connection.close()
        raise ConnectError(f"the process at {path}{SUFFIX} is one of the user with id {user}: give another address")


def _line(connection):
    """Returns a line from the peer, or a part of one if the peer closes."""
    said = b""
    while not said.endswith(b"\n") and len(said) < _LONGEST:
        more = connection.recv(_LONGEST)
        if not more:
            break
        said += more
    return said


def _listens(path):
    """Returns whether a process listens at the path."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            return False
        except OSError:
            # It is busy, or another user's. The link's error says so.
            return True
        return True


def _closes(path, deadline):
    """Returns whether the socket at the path is that of a killed owner, and waits until it is closed. The sockets of such
    an owner close one after the other."""
    try:
        # An owner makes its second socket after that of its target.
        if os.stat(path).st_mtime_ns > os.stat(path + SUFFIX).st_mtime_ns:
            return False
    except OSError:
        return False
    until = min(deadline, time.monotonic() + _CLOSING)
    while time.monotonic() < until:
        if not _listens(path):
            return True
        time.sleep(_RETRY)
    return False


@contextlib.contextmanager
def lock(path, deadline):
    """Holds the lock for starting and ending an owner of this path, and yields its descriptor. Leaves no file behind."""
    name = path + LOCK_SUFFIX
    while True:
        held = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(held, name):
                break
        except BlockingIOError:
            pass
        except BaseException:
            os.close(held)
            raise
        os.close(held)
        if time.monotonic() >= deadline:
            raise TimedOut(f"another process starts or ends an owner at unix:{path}, and does not come to an end")
        time.sleep(_RETRY)
    try:
        yield held
    finally:
        unlock(held, path)


def unlock(held, path):
    """Releases the lock, or one of its two holds."""
    name = path + LOCK_SUFFIX
    with contextlib.suppress(OSError):
        # The other hold may have removed the file. The name may then be that of another lock.
        if _is_at(held, name):
            os.unlink(name)
    os.close(held)


def _is_at(held, name):
    """Returns whether this open file still has this name: its last holder may have removed it."""
    try:
        there = os.stat(name, follow_symlinks=False)
    except FileNotFoundError:
        return False
    mine = os.fstat(held)
    return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)


def _start(path, memory, timeout, deadline, held):
    """Starts an owner, and returns the `Presence` of its starter. The owner shares the lock until it serves, because the
    starter can be killed before."""
    if not sys.executable:
        raise ConnectError(
            f"no owner can be started at unix:{path}: this program names no interpreter (sys.executable). "
            f"Start one: python -m farjump.owner unix:{path}"
        )
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-P", "-m", "farjump.owner", _UNIX + path]
    command += ["--starter", str(theirs.fileno()), "--lock", str(held)]
    if memory is not None:
        command += ["--memory", str(memory)]
    # The package of this process, as found here.
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(paths))
    first = None
    try:
        with theirs, _log(path) as log:
            first = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=env,
                pass_fds=[theirs.fileno(), held],
                start_new_session=True,
            )
        ours.settimeout(_left(deadline))
        said = _line(ours)
        status = first.wait(_left(deadline))
    except BaseException as error:
        ours.close()
        _kill(first)
        if isinstance(error, TimeoutError | subprocess.TimeoutExpired):
            raise TimedOut(
                f"the owner at unix:{path} did not come up within {timeout:g} s{_log_of(path)}: "
                "allow it more by start_timeout"
            ) from None
        if isinstance(error, OSError):
            raise ConnectError(f"no owner can be started at unix:{path}: {error}") from None
        raise
    if said == READY:
        ours.settimeout(None)
        return Presence(ours)
    ours.close()
    if said.startswith(FAILED):
        raise ConnectError(
            f"no owner can be started at unix:{path}: {said[len(FAILED) :].decode(errors='replace').strip()}"
        )
    raise ConnectError(
        f"no owner can be started at unix:{path}: {sys.executable} -m farjump.owner ended early"
        f"{f' with status {status}' if status else ''}{_log_of(path)}"
    )


def _kill(first):
    """Kills a starting owner. It is in the process group of the first process."""
    if first is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(first.pid, signal.SIGKILL)
        first.wait()


@contextlib.contextmanager
def _log(path):
    """Opens the file for the output of an owner."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    log = os.open(path + LOG_SUFFIX, flags, 0o600)
    try:
        yield log
    finally:
        os.close(log)


def _log_of(path):
    """Returns the last lines of an owner's log, for an error message; empty if there are none."""
    name = path + LOG_SUFFIX
    try:
        with open(name, errors="replace") as log:
            lines = log.read()[-_LONGEST:].splitlines()[-_LINES:]
    except OSError:
        return ""
    if not lines:
        with contextlib.suppress(OSError):
            os.unlink(name)
        return ""
    return f". Its last words, in {name}: " + " | ".join(line.strip() for line in lines)


def _left(deadline):
    """Returns the time left in seconds. It is at least a little, as 0 would mean not to wait."""
    return max(deadline - time.monotonic(), 0.001)
