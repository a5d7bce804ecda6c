"""Defines what the loop deals in: turns that ask, replies, and the attempts that come of them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from harness.project.problems import Problem
from harness.records.record import EvaluationRecord, Status
from harness.rewards import FAILED, NO_KERNEL, certain_speedup, reward

#: The most bytes of an answer. No kernel needs more.
MAX_ANSWER_BYTES = 1 << 18
#: The longest wait in seconds, a week; systems take no wait of any length.
LONGEST_WAIT_S = 7 * 86400.0


class Kind(enum.StrEnum):
    """A kind of turn: a first answer, or a change of an earlier one."""

    WRITE = "write"
    REPAIR = "repair"
    EDIT = "edit"
    REWRITE = "rewrite"


class Outcome(enum.StrEnum):
    """The result of a turn: a judged answer, or the reason why there is none."""

    JUDGED = "judged"
    NO_CODE = "no code"
    TOO_LONG = "too long"
    DUPLICATE = "duplicate"
    TIMED_OUT = "timed out"
    RATE_LIMITED = "rate limited"
    SERVER_ERROR = "server error"
    MALFORMED = "malformed"
    LOST = "connection lost"
    REFUSED = "refused"
    EXHAUSTED = "no more answers"


#: Outcomes that brought no answer.
WITHOUT_ANSWER = frozenset(
    {
        Outcome.TIMED_OUT,
        Outcome.RATE_LIMITED,
        Outcome.SERVER_ERROR,
        Outcome.MALFORMED,
        Outcome.LOST,
        Outcome.REFUSED,
        Outcome.EXHAUSTED,
    }
)


@dataclass(frozen=True)
class Tokens:
    """Tokens that a turn cost.

    Attributes:
        sent: Tokens of the prompt.
        received: Tokens of the answer, with its reasoning.
        estimated: Whether nobody counted them, so that they are a quarter of the characters.
    """

    sent: int = 0
    received: int = 0
    estimated: bool = False

    @property
    def total(self) -> int:
        """Tokens in both directions."""
        return self.sent + self.received

    def cost(self, price: tuple[float, float]) -> float:
        """Returns what the tokens cost, by the prices of a million sent and a million received."""
        return (self.sent * price[0] + self.received * price[1]) / 1e6

    def __add__(self, other: Tokens) -> Tokens:
        estimated = self.estimated or other.estimated
        return Tokens(self.sent + other.sent, self.received + other.received, estimated)


def estimated_tokens(prompt: str, answer: str) -> Tokens:
    """Estimates the tokens of a turn from its characters."""
    return Tokens(-(-len(prompt) // 4), -(-len(answer) // 4), estimated=True)


@dataclass(frozen=True)
class Reply:
    """A proposer's answer.

    Attributes:
        text: The raw answer: prose and reasoning with a fenced block of code, or code alone.
        tokens: Tokens that it cost; None if unknown.
        note: A remark for the next turn, such as that the answer was cut off; or empty.
    """

    text: str
    tokens: Tokens | None = None
    note: str = ""


class ProposerFailed(Exception):
    """A proposer has no answer to a turn.

    Attributes:
        outcome: The reason; one of ``WITHOUT_ANSWER``, or ``TOO_LONG``.
        tokens: Tokens that it cost nevertheless; None if unknown.
    """

    def __init__(self, outcome: Outcome, message: str, tokens: Tokens | None = None):
        super().__init__(message)
        self.outcome = outcome
        self.tokens = tokens


@dataclass(frozen=True)
class Gate:
    """The result of judging a winner on what no feedback has shown.

    Attributes:
        passed: Whether it passed; None if the device or the harness kept it from being judged.
        message: Why it did not pass; or empty.
        records: Names of the records.
        runner_up: Number of the attempt that it was timed against; None if there was none.
        leads: Its speed over the runner-up's, by case: ratio and 95 % interval. Empty if one of them
            could not be timed.
        device_s: Seconds that the device ran for the gate, also to time both.
    """

    passed: bool | None
    message: str = ""
    records: tuple[str, ...] = ()
    runner_up: int | None = None
    leads: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    device_s: float = 0.0

    @property
    def words(self) -> str:
        """The message, and how fast the attempt is beside the runner-up; empty if there is nothing to say."""
        told = [f"{ratio:.3f}x [{low:.3f}, {high:.3f}] on {case}" for case, (ratio, low, high) in self.leads.items()]
        if self.runner_up is None:
            return self.message
        beside = f"{', '.join(told)} beside attempt {self.runner_up}"
        return "; ".join(filter(None, (self.message, beside if told else f"not timed {beside.strip()}")))


@dataclass(frozen=True)
class Attempt:
    """A turn and what became of it.

    Attributes:
        number: Number in the run, from 1.
        kind: What was asked for.
        parent: Number of the attempt that the turn builds on; None if there is none.
        proposer: Name of the proposer that was asked.
        prompt: What was sent.
        outcome: What became of it; None while that is open.
        message: Why there is nothing to judge; or a remark about the answer; or empty.
        source: The code of the answer; empty if it has none.
        tokens: Tokens that the turn cost.
        records: The verdicts, one for each case.
        gate: The result of the gate; None if it was not there.
    """

    number: int
    kind: Kind
    parent: int | None
    proposer: str
    prompt: str = field(repr=False)
    outcome: Outcome | None = None
    message: str = ""
    source: str = field(default="", repr=False)
    tokens: Tokens = Tokens()
    records: tuple[EvaluationRecord, ...] = field(default=(), repr=False)
    gate: Gate | None = None

    @property
    def has_passed(self) -> bool:
        """True if it passed on every case and did not fail at the gate."""
        passed = bool(self.records) and all(record.status is Status.PASSED for record in self.records)
        return passed and not self.is_overfitted

    @property
    def is_overfitted(self) -> bool:
        """True if it passed on what feedback showed, and failed at the gate."""
        return self.gate is not None and self.gate.passed is False

    def device_s(self, *, on_cpu: bool) -> float:
        """Returns the seconds that its candidate ran on the device, also at the gate.

        Args:
            on_cpu: Whether the emulator is the device; before a GPU its check does not count.
        """
        judged = sum(record.run_s for record in self.records if (record.device == "cpu") is on_cpu)
        return judged + (0.0 if self.gate is None else self.gate.device_s)

    @property
    def has_answer(self) -> bool:
        """True if an answer came, with code or without."""
        return self.outcome is not None and self.outcome not in WITHOUT_ANSWER

    @property
    def verdict(self) -> str | None:
        """The verdict of the first case that did not pass, else of the first; None if it was not judged."""
        failed = (one for one in self.records if one.status is not Status.PASSED)
        return next((one.verdict for one in (*failed, *self.records)), None)

    @property
    def speedup(self) -> float | None:
        """The lower end of the speedup's interval on the first case, if it passed and was timed."""
        return certain_speedup(self.records[0]) if self.has_passed else None

    @property
    def result(self) -> str:
        """The result in words; empty while the turn is open."""
        if self.verdict is not None:
            return self.verdict if self.speedup is None else f"{self.verdict}, at least {self.speedup:.2f}x"
        return ": ".join(filter(None, (self.outcome or "", self.message if self.outcome else "")))

    @property
    def value(self) -> float:
        """The number by which strategies rank attempts: a failure's reward; for a pass, below 1 and growing with speed.

        Unlike the reward it tells solutions apart that are slower than eager.
        """
        if not self.records:
            return NO_KERNEL
        if self.is_overfitted:
            return FAILED
        if not self.has_passed:
            return reward(self.records) or NO_KERNEL
        speed = min(certain_speedup(record) or 0.0 for record in self.records)
        return speed / (1.0 + speed)


@dataclass(frozen=True)
class Turn:
    """A request to a proposer.

    Attributes:
        number: Number of the attempt, from 1.
        kind: What is asked for.
        prompt: The text for a language model.
        problem: The problem to solve.
        parent: The attempt to build on, with its source and records; None for a first answer.
        best: The best attempt that passed so far; None if there is none.
    """

    number: int
    kind: Kind
    prompt: str = field(repr=False)
    problem: Problem
    parent: Attempt | None = None
    best: Attempt | None = None


class Proposer(Protocol):
    """A source of answers, such as a language model."""

    @property
    def name(self) -> str:
        """Its name in the transcript and in the table."""

    def propose(self, turn: Turn) -> Reply:
        """Answers a turn. With several turns at once, several threads call it.

        Raises:
            ProposerFailed: It has no answer.
        """


def best_of(attempts: list[Attempt]) -> Attempt | None:
    """Returns the best attempt that passed, the earliest of equal ones; None if none did."""
    passed = [one for one in attempts if one.has_passed]
    return min(passed, key=lambda one: (-one.value, one.number), default=None)
