"""The pace at which tables of connections are searched for owners that have ended."""

from time import monotonic

# Least time between two looks, in seconds, where a known connection serves.
_EVERY = 0.1


class Looks:
    """The schedule of looks. A use of an unknown owner is always a look."""

    def __init__(self):
        self._next = 0.0

    def is_due(self):
        """Returns whether the next look is due."""
        return monotonic() >= self._next

    def took_place(self):
        """Records a look."""
        self._next = monotonic() + _EVERY
