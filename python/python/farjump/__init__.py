"""farjump: inject functions into other processes."""

import atexit as _atexit

from ._errors import (
    CallError,
    Cancelled,
    Closed,
    ConnectError,
    Error,
    Forked,
    Incomplete,
    InjectError,
    LibraryError,
    Panicked,
    PeerGone,
    Refused,
    ServeError,
    TimedOut,
)
from ._native import Library, Link, Pending, Pendings, Target, close_targets as _close_targets, gather
from ._types import LinkStats, Peer, TargetStats

__all__ = [
    "CallError",
    "Cancelled",
    "Closed",
    "ConnectError",
    "Error",
    "Forked",
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
    "Target",
    "TargetStats",
    "TimedOut",
    "gather",
]

_atexit.register(_close_targets)
