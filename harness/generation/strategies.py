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
from harness.generation.ideas import techniques_of
from harness.rewards import NO_KERNEL

#: The most ideas that a new branch is told.
MOST_IDEAS = 8
#: Weight of a bandit's bonus for what was tried less.
EXPLORATION = 0.2
#: Prior for the chance of a repair, as passes of so many repairs. Before the first pass, for an answer that did not run
#: and for any other; after it.
BLIND, IMPATIENT, PATIENT = (1, 6), (1, 3), (2, 3)


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
    """Grows branches: a first answer or a rewrite begins one, and repairs and edits continue it.

    A turn repairs a branch that failed or begins a new one: whichever has passed more often in this
    run. A turn that only got further than its parent counts half. Once something has passed, every
    third turn edits it, and an edit that made the best faster is followed by another. A bandit (UCB1)
    chooses the branch to edit.
    New branches are rewrites of the best, and first answers that are told what was tried, in turn.

    Before the first pass a new answer is as good as a repaired one, so repairs have to prove
    themselves. Once a repair has not passed, those of answers that ran no kernel are doubted most:
    what these compute may be wrong, too. After the first pass a branch that failed may be the faster
    structure, which is worth more patience.

    Args:
        most_repairs: Repairs of a branch before it is given up.
        most_edits: Edits that may build on one attempt.
        exploration: Weight of the bandit's bonus for branches that were edited less.
    """

    name = "tree"

    def __init__(self, most_repairs: int = 6, most_edits: int = 6, exploration: float = EXPLORATION):
        self._most_repairs = most_repairs
        self._most_edits = most_edits
        self._exploration = exploration

    def next(self, history: Sequence[Attempt]) -> Move | None:
        """Returns a repair, an edit, or the first turn of a new branch."""
        known = [one for one in history if one.outcome not in WITHOUT_ANSWER]
        branches = branches_of(known)
        edit = self._edit(branches)
        if edit is not None and self._is_time_to_edit(known):
            return edit
        return self._repair(known, branches) or self._begun(known, branches)

    def _is_time_to_edit(self, known: Sequence[Attempt]) -> bool:
        """Returns True if the last edit made the best faster, or each edit since the first pass had two other turns."""
        best, edits, others, has_gained = NO_KERNEL, 0, 0, False
        for one in known:
            if best >= 0:
                edits, others = (edits + 1, others) if one.kind is Kind.EDIT else (edits, others + 1)
            if one.kind is Kind.EDIT and one.outcome is not None:
                has_gained = one.value > best
            best = max(best, one.value)
        return has_gained or 2 * edits < others

    def _edit(self, branches: Sequence[Sequence[Attempt]]) -> Move | None:
        """Returns an edit of the best attempt of the branch that promises most; None if none can be edited."""
        total = sum(one.kind is Kind.EDIT for branch in branches for one in branch)
        arms: list[tuple[float, Move]] = []
        for branch in branches:
            children = Counter(one.parent for one in branch if one.kind is Kind.EDIT)
            free = [one for one in branch if one.has_passed and children[one.number] < self._most_edits]
            if free:
                node = max(free, key=lambda one: (one.value, one.number))
                bonus = _bonus(self._exploration, total, 1 + sum(children.values()))
                arms.append((node.value + bonus, Move(Kind.EDIT, node.number)))
        return max(arms, key=lambda arm: arm[0])[1] if arms else None  # of equal ones the first

    def _repair(self, known: Sequence[Attempt], branches: Sequence[Sequence[Attempt]]) -> Move | None:
        """Returns a repair of the branch that is nearest to a pass; None if a new branch promises more."""
        nodes: list[Attempt] = []
        for branch in branches:
            repaired = sum(one.kind is Kind.REPAIR for one in branch)
            is_open = any(one.outcome is None for one in branch)
            has_passed = any(one.has_passed or one.is_overfitted for one in branch)
            last = next((one for one in reversed(branch) if one.outcome is not Outcome.DUPLICATE), None)
            if not is_open and not has_passed and last is not None and repaired < self._most_repairs:
                nodes.append(last)
        best = max(nodes, key=lambda one: (one.value, one.number), default=None)
        if best is None:
            return None
        repairs = [one for one in known if one.kind is Kind.REPAIR]
        firsts = [one for one in known if one.kind in (Kind.WRITE, Kind.REWRITE)]
        has_failed = any(one.outcome is not None and not one.has_passed for one in repairs)
        doubt = BLIND if has_failed and best.value <= NO_KERNEL else IMPATIENT
        chance = _chance(repairs, known, PATIENT if best_of(list(known)) is not None else doubt)
        return None if chance < _chance(firsts, known) else Move(Kind.REPAIR, best.number)

    def _begun(self, known: Sequence[Attempt], branches: Sequence[Sequence[Attempt]]) -> Move:
        """Returns the first turn of a new branch."""
        best = best_of(list(known))
        rewrites = sum(one.kind is Kind.REWRITE for one in known)
        since = sum(one.kind is Kind.WRITE for one in known if best is not None and one.number > best.number)
        if best is not None and rewrites <= since:
            return Move(Kind.REWRITE, best.number)
        return Move(Kind.WRITE, unlike=tuple(one.number for one in _archive(branches)[:MOST_IDEAS]))


def _archive(branches: Sequence[Sequence[Attempt]]) -> list[Attempt]:
    """Returns the best attempts of the branches, the best first, and one alone for the same techniques."""
    tops = (max(branch, key=lambda one: one.value) for branch in branches)
    tried = sorted((one for one in tops if one.source and not one.is_overfitted), key=lambda one: -one.value)
    kept: dict[object, Attempt] = {}
    for one in tried:
        kept.setdefault(techniques_of(one.source) or one.number, one)
    return list(kept.values())


def branches_of(known: Sequence[Attempt]) -> list[list[Attempt]]:
    """Returns the attempts by branch: a first answer or a rewrite begins one."""
    root: dict[int, int] = {}
    branches: dict[int, list[Attempt]] = {}
    for one in known:
        begins = one.parent is None or one.kind is Kind.REWRITE
        root[one.number] = one.number if begins else root.get(one.parent or 0, one.number)
        branches.setdefault(root[one.number], []).append(one)
    return list(branches.values())


def _chance(turns: Sequence[Attempt], known: Sequence[Attempt], before: tuple[int, int] = (1, 2)) -> float:
    """Estimates the probability that such a turn passes; one that got further than its parent counts half.

    Args:
        turns: The turns; those that are open do not count.
        known: All attempts, with the parents.
        before: Passes and turns to count before there are any.
    """
    values = {one.number: one.value for one in known if one.outcome is not None}
    ended = [one for one in turns if one.number in values]
    further = sum(not one.has_passed and one.value > values.get(one.parent or 0, math.inf) for one in ended)
    return (before[0] + sum(one.has_passed for one in ended) + further / 2) / (before[1] + len(ended))


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
