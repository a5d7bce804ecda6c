"""Measures how long each stage of an evaluation takes."""

from __future__ import annotations

import time


class Stopwatch:
    """A stopwatch that attributes time to one stage at a time.

    Attributes:
        seconds: Seconds by stage, in the order in which the stages were first entered.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._name = ""
        self._since = time.monotonic()

    def enter(self, name: str) -> None:
        """Leave the current stage, if any, and enter another; entering one again adds to it."""
        now = time.monotonic()
        if self._name:
            self.seconds[self._name] = self.seconds.get(self._name, 0.0) + now - self._since
        self._name, self._since = name, now
        if name:
            self.seconds.setdefault(name, 0.0)

    def leave(self) -> dict[str, float]:
        """Leave the last stage; return the seconds."""
        self.enter("")
        return self.seconds
