"""The exceptions, with the sentences of the Rust library's errors."""

import _pickle


class Error(Exception):
    """An error of farjump. Its text names the fault, its place and the remedy."""


class ConnectError(Error, ConnectionError):
    """A failed connection: no process listens at the address, or the target rejects the link."""


class InjectError(Error):
    """A call that was not sent."""


class TimedOut(Error, TimeoutError):
    """A wait that reached its timeout."""


class PeerGone(Error, ConnectionError):
    """The end of the target, or of the connection to it."""


class CallError(Error):
    """A call without a usable reply."""


class Refused(CallError):
    """A call that the target refused: nothing ran."""

    ifunc: str
    """The name of the function."""
    cause: str
    """The kind of reason, in a few words."""


class Panicked(CallError):
    """A call that its function ended by farjump_panic."""

    ifunc: str
    """The name of the function, or its code id."""
    message: str
    """The function's message."""


class Incomplete(CallError):
    """A call that led to others, some of which were lost."""

    ifunc: str
    """The name of the function."""
    lost: int
    """Number of calls that were lost."""
    replies: bytes
    """The replies of the others."""


class Cancelled(Error):
    """A call that was cancelled before its outcome was taken."""


class Closed(Error):
    """A link, a target or another object that was closed."""


class Forked(Error):
    """A use of a parent's object in a forked child."""


class LibraryError(Error):
    """An ifunc library that cannot be used."""


class IfuncError(Error):
    """A Python function that cannot be injected."""

    missing: str | None = None
    """The symbol that it needs and no target has."""
    line: int | None = None
    """The line of its source that is the cause."""


class PicklingError(IfuncError, _pickle.PicklingError):
    """A Python function that cannot be pickled: another process would not find it."""


class ServeError(Error):
    """A target that cannot be made, or cannot serve."""


class HandleError(Error, ValueError):
    """Bytes that are no handle, or a handle that the object's owner does not take."""


class Gone(Error, LookupError):
    """An object that is gone: it was evicted, or its owner has restarted."""


class Unset(Error, LookupError):
    """A handle that was reserved and has no contents yet."""


class Spilled(Error, BlockingIOError):
    """A call that reached its limit of runs while the store reads or writes its file for an object of it. Call again."""


class StoreFull(Error, MemoryError):
    """A store without memory for an object."""


class StreamError(Error):
    """A topic, a publisher or a subscriber that cannot be used."""


class StreamFull(StreamError):
    """A full topic: its slowest subscriber took no entry in time, or no subscriber has come."""


class PublisherGone(StreamError, ConnectionError):
    """A publisher that ended without finishing. All its entries came before this error."""

    publisher: int
    """Its number."""
    published: int
    """Entries that it published."""


for _class in list(globals().values()):
    if isinstance(_class, type):
        _class.__module__ = "farjump"
del _class
