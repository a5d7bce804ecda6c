"""How often the judge looks at what a candidate takes from others."""

from __future__ import annotations

import time
from collections.abc import Callable

#: A look is followed by this many times its own duration without one, but not by more seconds than these.
_REST, _LONGEST_REST_S = 20, 5.0


class Paced:
    """Calls a function now and then, so that its cost stays a small share of the time.

    Args:
        look: Says what is wrong, and what to do; empty where nothing is.
        interval_s: Least seconds between two calls; more where a call takes long.
    """

    def __init__(self, look: Callable[[], str], interval_s: float):
        self._look = look
        self._interval_s = interval_s
        self._next = 0.0

    def fault(self) -> str:
        """Returns what is wrong, empty where nothing is or where the last look was a moment ago."""
        started = time.monotonic()
        if started < self._next:
            return ""
        found = self._look()
        ended = time.monotonic()
        self._next = ended + max(self._interval_s, min(_REST * (ended - started), _LONGEST_REST_S))
        return found
