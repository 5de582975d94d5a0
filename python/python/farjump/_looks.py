"""The pace at which tables of connections are searched for owners that have ended."""

from time import monotonic

# Least time between two looks, in seconds, where a known connection serves.
_EVERY = 0.1


class Looks:
    """Says when the next look is due. A use of an owner that is not known is always one."""

    def __init__(self):
        self._next = 0.0

    def is_due(self):
        """Whether the last look is long ago."""
        return monotonic() >= self._next

    def took_place(self):
        """Notes a look."""
        self._next = monotonic() + _EVERY
