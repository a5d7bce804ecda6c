"""What a driver says to its lanes, and a program to its driver, and back: all are trusted, and messages are pickled."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, ProblemError
from harness.records.record import EvaluationRecord
from harness.records.run_config import RunConfig


@dataclass(frozen=True)
class Opening:
    """The first word to a lane.

    Attributes:
        device: ``cpu`` or ``cuda:N``.
        home: ``HARNESS_HOME``.
        is_timed: Whether speed is measured, on a GPU.
        driver: The driver's process.
        is_alone: Whether no other lane runs; then builds stand still while a candidate is timed.
        starts_ahead: Whether the lane is sure to need workers.
        calibrates: Whether the lane measures the GPU's ceilings first, where nobody has.
    """

    device: str
    home: Path
    is_timed: bool
    driver: int
    _: KW_ONLY
    is_alone: bool = False
    starts_ahead: bool = True
    calibrates: bool = False


@dataclass(frozen=True)
class Opened:
    """A lane's first answer: it is ready.

    Attributes:
        device: ``cpu`` or ``cuda:N``.
        environment: What records say of the machine.
        capability: The GPU's compute capability; None on the CPU.
    """

    device: str
    environment: dict[str, str]
    capability: tuple[int, int] | None


@dataclass(frozen=True)
class Words:
    """What a lane is doing now."""

    words: str


@dataclass(frozen=True)
class TimingTurn:
    """A lane that is alone times a candidate: it waits for the driver's answer before, and tells the end.

    Attributes:
        begins: Whether it begins.
    """

    begins: bool


@dataclass(frozen=True)
class Overrun:
    """A lane's last word where its own share of a case takes too long.

    Attributes:
        error: What to tell the user.
    """

    error: ProblemError


@dataclass(frozen=True)
class CandidateFinished:
    """A lane has nothing more to say of its candidate."""


@dataclass(frozen=True)
class Failure:
    """A lane's last word: why it ends."""

    error: HarnessError


@dataclass(frozen=True, kw_only=True)
class Request:
    """A candidate that a program asks about.

    Attributes:
        number: By which the answer is known.
        source: Its text; None where ``path`` is meant.
        path: A solution's file, or ``problem/variant``.
        problem: Name or file of the problem that it solves; None where its path says it.
        cases: Names of cases; none means the problem's main one.
        constants: Constants that make one case of its own; exclude ``cases``.
    """

    number: int
    source: str | None
    path: str | None
    problem: str | None
    cases: tuple[str, ...]
    constants: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Service:
    """The first word to a service: how it is to judge.

    Attributes:
        device: As ``--device``.
        lanes: As ``--lanes``.
        home: ``HARNESS_HOME``.
        root: Folder that holds ``problems`` and ``solutions``.
        config: How candidates are judged.
        fresh: Judge again what is in the store.
    """

    device: str
    lanes: int
    home: Path
    root: Path
    config: RunConfig
    fresh: bool


@dataclass(frozen=True)
class Serving:
    """A service's first answer: its device, and how many requests keep it busy."""

    device: str
    room: int


@dataclass(frozen=True)
class Response:
    """What came of a request.

    Attributes:
        number: The request's.
        records: A record for each case.
        error: Why there are none, or not all.
    """

    number: int
    records: tuple[EvaluationRecord, ...]
    error: HarnessError | None
