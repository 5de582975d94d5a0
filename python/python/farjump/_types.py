"""Values that links return."""

from typing import NamedTuple


class LinkStats(NamedTuple):
    """Statistics of a link: the frames and bytes that it has sent."""

    frames: int
    """Frames that run a function."""
    frames_with_code: int
    """Of those, frames that carried code."""
    code_bytes: int
    """Bytes of images, in frames and on request."""
    payload_bytes: int
    """Bytes of payload."""


class TargetStats(NamedTuple):
    """Statistics of a target since it was made."""

    calls: int
    """Calls that ran."""
    forwarded: int
    """Of those, calls that were forwarded to a destination."""
    frames: int
    """Frames taken: calls, refused or not, and requests to flush."""
    bytes: int
    """Bytes that they took in their mailboxes."""
    refused: int
    """Frames refused."""
    sources: int
    """Sources that are connected now."""
    links: int
    """Links made."""
    links_ended: int
    """Links that ended."""
    sources_refused: int
    """Processes rejected because the target had its maximum of sources."""
    images_linked: int
    """Images placed."""
    link_time: float
    """Time spent placing them, in seconds."""
    images: int
    """Images in the code store now."""
    image_bytes: int
    """Their bytes."""
    evictions: int
    """Images dropped to make space for others."""


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


LinkStats.__module__ = Peer.__module__ = TargetStats.__module__ = "farjump"
