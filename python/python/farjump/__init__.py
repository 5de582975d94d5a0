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
    IfuncError,
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
from ._ifunc import Ifunc, ifunc
from ._native import (
    Handle,
    Library,
    Link,
    Pending,
    Pendings,
    Store,
    Target,
    close_targets as _close_targets,
    gather,
)
from ._places import Choice, at, choose, derive, get_array, map, put_array
from ._types import LinkStats, Peer, TargetStats

__all__ = [
    "CallError",
    "Cancelled",
    "Choice",
    "Closed",
    "ConnectError",
    "Error",
    "Forked",
    "Gone",
    "Handle",
    "HandleError",
    "Ifunc",
    "IfuncError",
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
    "Pendings",
    "Refused",
    "ServeError",
    "Store",
    "StoreFull",
    "Target",
    "TargetStats",
    "TimedOut",
    "Unset",
    "at",
    "choose",
    "derive",
    "gather",
    "get_array",
    "ifunc",
    "map",
    "put_array",
]

_atexit.register(_close_targets)
