"""What a driver and its lanes say to each other; both are trusted, and messages are pickled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.errors import HarnessError


@dataclass(frozen=True)
class Opening:
    """The first word to a lane.

    Attributes:
        device: ``cpu`` or ``cuda:N``.
        home: ``HARNESS_HOME``.
        is_timed: Whether speed is measured, on a GPU.
        driver: The driver's process.
    """

    device: str
    home: Path
    is_timed: bool
    driver: int


@dataclass(frozen=True)
class Opened:
    """A lane's first answer: it is ready.

    Attributes:
        environment: What records say of the machine.
        capability: The GPU's compute capability; None on the CPU.
    """

    environment: dict[str, str]
    capability: tuple[int, int] | None


@dataclass(frozen=True)
class Words:
    """What a lane is doing now."""

    words: str


@dataclass(frozen=True)
class Finished:
    """A lane has nothing more to say of its candidate."""


@dataclass(frozen=True)
class Failure:
    """A lane's last word: why it ends."""

    error: HarnessError
