"""Shows searches by language models: turn by turn, with prompts, answers and the tokens that they cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

#: What stands for a text that would make the report too large.
LEFT_OUT = "Left out, to keep this file small; the run's transcript has it."


class Turn(NamedTuple):
    """A turn of a search.

    Attributes:
        number: Its number, from 1.
        kind: What was asked for.
        parent: Number of the attempt that it builds on; None if there is none.
        proposer: Who was asked.
        tokens: Tokens in both directions.
        device_s: Seconds that its candidate ran on the device, also at the gate.
        result: The result in words.
        has_passed: Whether the answer passed on all cases.
        is_open: Whether there is no result yet.
        speedup: The lower end of its speedup's interval; None if it was not timed.
        records: Names of its records.
        prompt: What was sent.
        answer: The raw answer; empty if there is none.
    """

    number: int
    kind: str
    parent: int | None
    proposer: str
    tokens: int
    device_s: float
    result: str
    has_passed: bool
    is_open: bool
    speedup: float | None
    records: tuple[str, ...]
    prompt: str
    answer: str


class Search(NamedTuple):
    """A search.

    Attributes:
        name: Its folder, as the user gave it.
        about: What it was about, in words.
        turns: Its turns.
    """

    name: str
    about: str
    turns: Sequence[Turn]

    @property
    def totals(self) -> str:
        """The turns, passes and tokens in words."""
        passed = [turn for turn in self.turns if turn.has_passed]
        tokens = sum(turn.tokens for turn in self.turns)
        seconds = sum(turn.device_s for turn in self.turns)
        told = [f"{len(passed)} of {len(self.turns)} attempts passed", f"{tokens:,} tokens"]
        if passed:
            told[:1] = [f"{told[0]}, the first of them attempt {passed[0].number}"]
            told.append(f"{tokens / len(passed):,.0f} for each that passed")
        told.append(f"{seconds:.1f} s of the device")
        return "; ".join(told)

    @property
    def best_by_tokens(self) -> list[tuple[float, float]]:
        """The best speedup so far after each turn that has one, and the tokens spent until then."""
        return self._best_by([turn.tokens for turn in self.turns])

    @property
    def best_by_device_s(self) -> list[tuple[float, float]]:
        """The same, and the seconds of the device until then."""
        return self._best_by([turn.device_s for turn in self.turns])

    def _best_by(self, costs: Sequence[float]) -> list[tuple[float, float]]:
        spent, best, found = 0.0, 0.0, []
        for turn, cost in zip(self.turns, costs, strict=True):
            spent += cost
            best = max(best, turn.speedup or 0.0)
            if best:
                found.append((spent, best))
        return found
