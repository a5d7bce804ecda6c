"""Strategies: which attempt the next turn builds on, and what it asks for.

A strategy is a function of the history, so a run that was killed goes on as if it had not been.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.generation.attempts import WITHOUT_ANSWER, Attempt, Kind, Outcome, best_of
from harness.rewards import NO_KERNEL

#: The most ideas that a new branch is told.
MOST_IDEAS = 8
#: Weight of a bandit's bonus for what was tried less.
EXPLORATION = 0.2


@dataclass(frozen=True)
class Move:
    """The next turn.

    Attributes:
        kind: What it asks for.
        parent: Number of the attempt that it builds on; None for a first answer.
        unlike: Numbers of attempts whose ideas a first answer is told, to choose another.
    """

    kind: Kind
    parent: int | None = None
    unlike: tuple[int, ...] = ()


class Strategy(Protocol):
    """Chooses the next turn."""

    @property
    def name(self) -> str:
        """Its name on the command line and in the transcript."""

    def next(self, history: Sequence[Attempt]) -> Move | None:
        """Returns the next move, or None to wait for an open attempt; with none open, to end.

        Args:
            history: All attempts in their order. Those without an outcome are open.
        """


class BestOfN:
    """Asks for independent first answers."""

    name = "best-of-n"

    def next(self, history: Sequence[Attempt]) -> Move | None:
        """Returns a first turn, always."""
        return Move(Kind.WRITE)


class Refinement:
    """Repairs the last answer until it passes, then makes the best one faster, one turn at a time."""

    name = "refine"

    def next(self, history: Sequence[Attempt]) -> Move | None:
        """Returns a turn that builds on the last answer, or on the best if that has passed."""
        if any(one.outcome is None for one in history):
            return None
        best = best_of(list(history))
        last = next((one for one in reversed(history) if one.has_answer), None)
        if last is None:
            return Move(Kind.WRITE)
        if best is not None and (last.has_passed or last.outcome is Outcome.DUPLICATE):
            return Move(Kind.EDIT, best.number)
        return Move(Kind.WRITE) if last.is_overfitted else Move(Kind.REPAIR, last.number)


class TreeSearch:
    """Grows several branches; a bandit (UCB1) chooses the branch, and beginning a new one is an arm.

    A branch is worth its best value, and a new one what first answers were worth so far. Within a
    branch the turn builds on its best attempt that has not been tried often. An attempt that failed
    is repaired. One that passed gets local edits and rewrites in turn. A new branch is told the
    ideas of the others.

    Args:
        most_children: Turns that may build on one attempt.
        exploration: Weight of the bandit's bonus for branches that were tried less.
    """

    name = "tree"

    def __init__(self, most_children: int = 6, exploration: float = EXPLORATION):
        self._most_children = most_children
        self._exploration = exploration

    def next(self, history: Sequence[Attempt]) -> Move | None:
        """Returns a turn in the branch that promises most, or the first turn of a new branch."""
        known = [one for one in history if one.outcome not in WITHOUT_ANSWER]
        branches = list(self._branches(known).values())
        if not branches:
            return Move(Kind.WRITE)
        worths = [max(one.value for one in branch) for branch in branches]
        firsts = [branch[0].value for branch in branches]
        new = sum(firsts) / len(firsts) + self._bonus(len(known), len(branches) + 1)
        arms: list[tuple[float, Move]] = []
        for worth, branch in zip(worths, branches, strict=True):
            node = self._node(branch, known)
            if node is not None:
                arms.append((worth + self._bonus(len(known), len(branch)), self._move(node, known)))
        best = [max(branch, key=lambda one: one.value) for branch in branches]
        tried = sorted((one for one in best if one.source and not one.is_overfitted), key=lambda one: -one.value)[
            :MOST_IDEAS
        ]
        begun = Move(Kind.WRITE, unlike=tuple(one.number for one in tried))
        return max([*arms, (new, begun)], key=lambda arm: arm[0])[1]  # of equal ones the first

    def _branches(self, known: Sequence[Attempt]) -> dict[int, list[Attempt]]:
        """Returns the attempts of each branch by the number of its first one."""
        root: dict[int, int] = {}
        branches: dict[int, list[Attempt]] = {}
        for one in known:
            root[one.number] = one.number if one.parent is None else root.get(one.parent, one.number)
            branches.setdefault(root[one.number], []).append(one)
        return branches

    def _node(self, branch: Sequence[Attempt], known: Sequence[Attempt]) -> Attempt | None:
        """Returns the attempt of a branch to build on; None if all have been tried often or are open."""
        children = Counter(one.parent for one in known)
        open_parents = {one.parent for one in known if one.outcome is None}
        free = [
            one
            for one in branch
            if one.outcome in (Outcome.JUDGED, Outcome.NO_CODE, Outcome.TOO_LONG)
            and not one.is_overfitted
            and children[one.number] < self._most_children
            and (one.has_passed or one.number not in open_parents)
        ]
        return max(free, key=lambda one: (one.value, one.number), default=None)

    def _move(self, node: Attempt, known: Sequence[Attempt]) -> Move:
        if not node.has_passed:
            return Move(Kind.REPAIR, node.number)
        turns = sum(one.parent == node.number for one in known)
        return Move(Kind.EDIT if turns % 2 == 0 else Kind.REWRITE, node.number)

    def _bonus(self, total: int, tried: int) -> float:
        return _bonus(self._exploration, total, tried)


def choose_proposer(names: Sequence[str], history: Sequence[Attempt]) -> str:
    """Returns the proposer to ask next.

    A bandit (UCB1) weighs the mean value of a proposer's answers against how often it was asked.
    Whoever was not asked yet comes first.

    Args:
        names: The names of those that still answer.
        history: All attempts. Those without an outcome count as asked.
    """

    def promise(name: str) -> float:
        asked = [one for one in history if one.proposer == name]
        known = [one.value for one in asked if one.outcome is not None]
        if not asked:
            return math.inf
        return statistics.fmean(known or [NO_KERNEL]) + _bonus(EXPLORATION, len(history), len(asked))

    return max(names, key=promise)  # of equal ones the first


def _bonus(exploration: float, total: int, tried: int) -> float:
    return exploration * math.sqrt(math.log(max(total, 1) + 1) / tried)


def strategies() -> Iterator[Strategy]:
    """Yields the strategies of the command line, the default first."""
    yield TreeSearch()
    yield Refinement()
    yield BestOfN()
