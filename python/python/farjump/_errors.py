"""The exceptions, with the sentences of the Rust library's errors."""

import _pickle


class Error(Exception):
    """An error of farjump. Its text names the fault, its place and the remedy."""


class ConnectError(Error, ConnectionError):
    """No link: nobody listens there, or the target rejects it."""


class InjectError(Error):
    """A call that was not sent."""


class TimedOut(Error, TimeoutError):
    """A wait that took as long as it may."""


class PeerGone(Error, ConnectionError):
    """The target ended, or the connection to it did."""


class CallError(Error):
    """A call that gave no reply of use."""


class Refused(CallError):
    """The target refused the call: nothing ran."""

    ifunc: str
    """The name of the function."""
    cause: str
    """The kind of reason, in a few words."""


class Panicked(CallError):
    """The function ended its call by farjump_panic."""

    ifunc: str
    """The name of the function, or its code id."""
    message: str
    """The function's message."""


class Incomplete(CallError):
    """Some of the calls that it led to were lost."""

    ifunc: str
    """The name of the function."""
    lost: int
    """Number of calls that were lost."""
    replies: bytes
    """The replies of the others."""


class Cancelled(Error):
    """The call was cancelled before its outcome was taken."""


class Closed(Error):
    """The link or the target was closed."""


class Forked(Error):
    """A forked child used what is its parent's."""


class LibraryError(Error):
    """An ifunc library that cannot be used."""


class IfuncError(Error):
    """A Python function that cannot be injected."""

    missing: str | None = None
    """The symbol that it needs and no target has."""
    line: int | None = None
    """The line of its source that is the cause."""


class PicklingError(IfuncError, _pickle.PicklingError):
    """A Python function that cannot be pickled, as another process would not find it."""


class ServeError(Error):
    """A target that cannot be made, or cannot serve."""


class HandleError(Error, ValueError):
    """Bytes that are no handle, or a handle that the object's owner does not take."""


class Gone(Error, LookupError):
    """The object is gone: evicted, or its owner has restarted."""


class Unset(Error, LookupError):
    """The handle was reserved, and has no contents yet."""


class Spilled(Error, BlockingIOError):
    """The store reads or writes its file for an object of a call, which has run again as often as it may: call again."""


class StoreFull(Error, MemoryError):
    """The store has no memory for an object."""


class StreamError(Error):
    """A topic, a publisher or a subscriber that cannot be used."""


class StreamFull(StreamError):
    """The topic is full: its slowest subscriber has not gone on in time, or none has come."""


class PublisherGone(StreamError, ConnectionError):
    """A publisher ended without finishing. All that it published came before."""

    publisher: int
    """Its number."""
    published: int
    """Entries that it published."""


for _class in list(globals().values()):
    if isinstance(_class, type):
        _class.__module__ = "farjump"
del _class
