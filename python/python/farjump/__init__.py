"""farjump: inject functions into other processes."""

import atexit as _atexit

from ._errors import (
    CallError,
    Cancelled,
    Closed,
    ConnectError,
    Error,
    Forked,
    IfuncError,
    Incomplete,
    InjectError,
    LibraryError,
    Panicked,
    PeerGone,
    Refused,
    ServeError,
    TimedOut,
)
from ._ifunc import Ifunc, ifunc
from ._native import Library, Link, Pending, Target, close_targets as _close_targets
from ._types import LinkStats, Peer

__all__ = [
    "CallError",
    "Cancelled",
    "Closed",
    "ConnectError",
    "Error",
    "Forked",
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
    "Refused",
    "ServeError",
    "Target",
    "TimedOut",
    "ifunc",
]

_atexit.register(_close_targets)
