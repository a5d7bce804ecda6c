"""Messages between a driver and its lanes, and between a program and its driver.

All of these processes are trusted, so the messages are pickled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from harness.errors import HarnessError
from harness.project.problems import Problem
from harness.records.kernels import KernelLimits
from harness.records.record import EvaluationRecord
from harness.records.run_config import RunConfig


@dataclass(frozen=True)
class Opening:
    """The driver's first message to a lane.

    Attributes:
        device: ``cpu`` or ``cuda:N``.
        home: ``HARNESS_HOME``.
        is_timed: Whether the lane measures speed on a GPU, and before that the GPU's ceilings if no earlier
            run did.
        driver: The driver's process id.
        is_alone: Whether no other lane runs. The driver then pauses builds while the lane times a
            candidate.
    """

    device: str
    home: Path
    is_timed: bool
    driver: int
    _: KW_ONLY
    is_alone: bool = False


@dataclass(frozen=True)
class Opened:
    """A lane's first answer, which says that the lane is ready.

    Attributes:
        device: ``cpu`` or ``cuda:N``.
        environment: The machine's description for the records.
        capability: The GPU's compute capability; None on the CPU.
    """

    device: str
    environment: dict[str, str]
    capability: tuple[int, int] | None


@dataclass(frozen=True)
class Validation:
    """The first message to a lane that checks a problem and ends. It answers with a ``ProblemCheck`` for each.

    Attributes:
        problem: The problem.
        device: The device, as ``--device`` takes it.
        cases: Constants by case name; empty for all cases that fit the device.
        limit_s: The seconds that each check may take.
        driver: The driver's process id.
    """

    problem: Problem
    device: str
    cases: dict[str, dict[str, Any]]
    limit_s: float
    driver: int


@dataclass(frozen=True)
class CaseBegun:
    """A lane's message before the checks of a case."""

    name: str


@dataclass(frozen=True)
class ValidationFinished:
    """A lane's last message about a problem."""


@dataclass(frozen=True)
class Words:
    """The name of a lane's current step, for the progress display."""

    words: str


@dataclass(frozen=True)
class TimingTurn:
    """A lane's message before and after it times a candidate, if no other lane runs.

    The lane waits for the driver's answer before it begins.

    Attributes:
        begins: Whether timing begins; False after it ends.
    """

    begins: bool


@dataclass(frozen=True)
class Overrun:
    """A lane's last message if its own share of a case exceeds the timeout."""


@dataclass(frozen=True)
class CandidateFinished:
    """A lane's last message about a candidate."""


@dataclass(frozen=True)
class Failure:
    """The last message of a lane or a service, with the error that ends it."""

    error: HarnessError


@dataclass(frozen=True, kw_only=True)
class Request:
    """A program's request to judge a candidate.

    Attributes:
        number: The request's number, which the response repeats.
        source: The solution's text; None if ``path`` names it.
        path: A solution's file, or ``problem/variant``; None if ``source`` holds the text.
        problem: Name or file of the problem to solve; None if the path determines it.
        cases: Names of cases; empty for the problem's main case.
        constants: Constants that make a custom case; excludes ``cases``.
        every_case: Whether empty ``cases`` mean every case that fits the device.
        name: The solution's name for its records; None for ``candidate N``.
        trials: Trials of each case; None for the configuration's number.
        fresh: Whether to ignore the store's answers.
        to_beat: Speedups over eager by case, as in ``Policy``; None for a whole timing.
        limits_of_kernels: What nvcc may give each kernel. If a build ahead shows more, the candidate does
            not run. Of those that are built, candidates without spills come first. None for no limits.
    """

    number: int
    source: str | None
    path: str | None
    problem: str | None
    cases: tuple[str, ...]
    constants: dict[str, Any]
    every_case: bool = False
    name: str | None = None
    trials: int | None = None
    fresh: bool = False
    to_beat: Mapping[str, float] | None = None
    limits_of_kernels: KernelLimits | None = None


@dataclass(frozen=True)
class Withdrawal:
    """A program's message that it no longer wants the answer to a request.

    Attributes:
        number: The request's number.
    """

    number: int


class Cluster(NamedTuple):
    """A Ray cluster's address and the number of lanes to open there.

    Attributes:
        address: The cluster's address; None for the one that ``RAY_ADDRESS`` names. Without either,
            the harness starts a cluster on this machine.
        lanes: The number of lanes on the CPU; None for one lane per two processors.
    """

    address: str | None
    lanes: int | None


@dataclass(frozen=True, kw_only=True)
class Service:
    """A program's first message to its service, with the settings to judge by.

    Attributes:
        device: The device, as ``--device`` takes it.
        lanes: The number of lanes on this machine's CPU; None for one.
        cluster: The Ray cluster that judges; None for this machine.
        home: ``HARNESS_HOME``.
        root: Folder that holds ``problems`` and ``solutions``.
        config: The run's configuration.
        fresh: Whether to ignore the store's answers.
    """

    device: str
    lanes: int | None
    cluster: Cluster | None
    home: Path
    root: Path
    config: RunConfig
    fresh: bool


@dataclass(frozen=True)
class Serving:
    """A service's first answer: its device, and the number of requests that keep it busy."""

    device: str
    room: int


@dataclass(frozen=True)
class Response:
    """The service's answer to a request.

    Attributes:
        number: The request's number.
        records: A record for each judged case.
        error: The reason if records are missing; None if there is one for each case.
    """

    number: int
    records: tuple[EvaluationRecord, ...]
    error: HarnessError | None
