"""Values that links return."""

from typing import NamedTuple


class LinkStats(NamedTuple):
    """What a link has sent."""

    frames: int
    """Frames that run a function."""
    frames_with_code: int
    """Of those, frames that carried code."""
    code_bytes: int
    """Bytes of images, in frames and on request."""
    payload_bytes: int
    """Bytes of payload."""


class Peer(NamedTuple):
    """A target's process."""

    pid: int
    """Its process id; 0 if it is not known."""
    uid: int | None
    """Its effective user id; None between machines."""
    name: str
    """The name of its program, for display only: the peer chose it."""
    address: str | None
    """Its address over TCP."""


LinkStats.__module__ = Peer.__module__ = "farjump"
