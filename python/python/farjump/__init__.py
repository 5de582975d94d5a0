"""farjump: inject functions into other processes."""

import atexit as _atexit

from ._errors import (
    CallError,
    Cancelled,
    Closed,
    ConnectError,
    Error,
    Forked,
    Gone,
    HandleError,
    Incomplete,
    InjectError,
    LibraryError,
    Panicked,
    PeerGone,
    Refused,
    ServeError,
    StoreFull,
    TimedOut,
    Unset,
)
from ._native import (
    Handle,
    Library,
    Link,
    Pending,
    Store,
    Target,
    close_targets as _close_targets,
)
from ._types import LinkStats, Peer

__all__ = [
    "CallError",
    "Cancelled",
    "Closed",
    "ConnectError",
    "Error",
    "Forked",
    "Gone",
    "Handle",
    "HandleError",
    "Incomplete",
    "InjectError",
    "Library",
    "LibraryError",
    "Link",
    "LinkStats",
    "Panicked",
    "Peer",
    "PeerGone",
    "Pending",
    "Refused",
    "ServeError",
    "Store",
    "StoreFull",
    "Target",
    "TimedOut",
    "Unset",
]

_atexit.register(_close_targets)
