"""Limits how often the judge checks the resources that a candidate uses."""

from __future__ import annotations

import time
from collections.abc import Callable

#: The pause after a check, as a multiple of its duration, and the longest pause in seconds.
_REST, _LONGEST_REST_S = 20, 5.0


class Paced:
    """Calls a check now and then, so that it costs only a small share of the time.

    Args:
        look: The check. It returns what is wrong, and what to do; empty if nothing is.
        interval_s: Least seconds between two checks; more if a check takes long.
    """

    def __init__(self, look: Callable[[], str], interval_s: float):
        self._look = look
        self._interval_s = interval_s
        self._next = 0.0

    def fault(self) -> str:
        """Return what is wrong; empty if nothing is, or if the last check was a moment ago."""
        started = time.monotonic()
        if started < self._next:
            return ""
        found = self._look()
        ended = time.monotonic()
        self._next = ended + max(self._interval_s, min(_REST * (ended - started), _LONGEST_REST_S))
        return found
