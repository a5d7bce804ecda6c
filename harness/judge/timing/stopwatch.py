"""Where the seconds of an evaluation go."""

from __future__ import annotations

import time


class Stopwatch:
    """A stopwatch that always runs on one stage.

    Attributes:
        seconds: Seconds by stage, in the order in which they were first entered.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._name = ""
        self._since = time.monotonic()

    def enter(self, name: str) -> None:
        """Leave the stage that runs, if one does, and enter another; the same one again adds to it."""
        now = time.monotonic()
        if self._name:
            self.seconds[self._name] = self.seconds.get(self._name, 0.0) + now - self._since
        self._name, self._since = name, now
        if name:
            self.seconds.setdefault(name, 0.0)

    def leave(self) -> dict[str, float]:
        """Leave the last stage; the seconds."""
        self.enter("")
        return self.seconds
