"""Limits the seconds that a candidate may build and run, and counts those that it uses."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import NamedTuple


class Limits(NamedTuple):
    """Seconds that a candidate may run on one case, and that all its builds may take."""

    run_s: float
    build_s: float


@dataclass
class Clock:
    """The seconds that a candidate may still use, for building and running apart.

    Attributes:
        run_limit_s: Limit of running on one case.
        build_limit_s: Limit of all builds of the candidate.
        run_s: Seconds used for running so far.
        build_s: Seconds used for building so far.
    """

    run_limit_s: float
    build_limit_s: float
    run_s: float = 0.0
    build_s: float = 0.0

    def left(self, building: bool) -> float:
        """Return the seconds left for building or running."""
        return self.build_limit_s - self.build_s if building else self.run_limit_s - self.run_s

    def spend(self, building: bool, seconds: float) -> None:
        """Book seconds on building or running."""
        if building:
            self.build_s += seconds
        else:
            self.run_s += seconds


class Waited:
    """Counts the seconds that the main thread waits for workers; used as a context."""

    def __init__(self) -> None:
        self._passed_s = 0.0
        self._since: float | None = None

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._since = time.monotonic()

    def __exit__(self, *_: object) -> None:
        if threading.current_thread() is threading.main_thread():
            self._passed_s, self._since = self.seconds(), None

    def seconds(self) -> float:
        """Return the seconds so far, including a wait that goes on."""
        since = self._since
        return self._passed_s + (time.monotonic() - since if since is not None else 0.0)
