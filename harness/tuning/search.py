"""The search: asks a strategy for settings, has them judged, and tells it the results."""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from harness.entries import Answer, Entry
from harness.errors import LimitExceeded, TemplateError
from harness.records.kernels import CompiledKernel
from harness.records.record import EvaluationRecord, Status
from harness.report.speed_comparison import machines
from harness.system.text import one_line
from harness.tuning.results import NOT_RENDERED, NOT_RUN, Trial, cost_of, most_of, trial_of
from harness.tuning.space import Point
from harness.tuning.strategies import Strategy
from harness.tuning.template import Searched


class Judge(Protocol):
    """Judges solutions as they are asked for; ``Evaluator`` is one."""

    def stream(self, entries: Iterable[Entry], ahead: int | None = None) -> Iterator[Answer]:
        """Judges candidates and yields each answer as soon as it is ready."""


@dataclass(frozen=True)
class Question:
    """The problem and the case that every setting is judged on.

    Attributes:
        problem: The problem's file.
        cases: Names of cases; empty for the main one.
        constants: Constants that make a case; excludes ``cases``.
    """

    problem: str
    cases: tuple[str, ...] = ()
    constants: dict[str, Any] = field(default_factory=dict)

    def entry(
        self,
        searched: Searched,
        point: Point,
        body: str,
        *,
        trials: int | None = None,
        fresh: bool = False,
        to_beat: Mapping[str, float] | None = None,
    ) -> Entry:
        """Returns the request to judge a setting; ``trials``, ``fresh`` and ``to_beat`` as in ``Entry``.

        With ``trials`` the template's limits of kernels hold.
        """
        settings = searched.space.settings(point)
        label = searched.label(settings)
        return Entry(
            searched.text(point, body),
            self.problem,
            self.cases,
            self.constants,
            tag=point,
            name=f"{searched.declaration.template} {label}",
            trials=trials,
            fresh=fresh,
            to_beat=to_beat,
            limits_of_kernels=None if trials is None else searched.declaration.kernel_limits(settings),
        )


@dataclass(frozen=True)
class Limits:
    """When a search ends.

    Attributes:
        budget: Number of settings; None for all that the strategy has.
        minutes: Minutes after which nothing more begins; None for no limit.
    """

    budget: int | None
    minutes: float | None


class Search:
    """A search over one template.

    Args:
        searched: The template.
        strategy: Chooses settings.
        starts: Settings that come first, if they are in the space.
        known: Settings that come next, as long as the store answers for them.
        limits: When to end.
        began_at: When the search began, as ``created_at`` of a record has it.
        trials: Trials that a setting gets; None for the usual number.
        against: The objective beside time, of ``results.OBJECTIVES``; empty for none.
        kernels_of: Returns nvcc's figures of a solution's kernels by its digest; none if they are unknown.

    Attributes:
        trials: The results so far, in the order in which they were finished.
        same: Number of settings whose text is that of another one, and which share its result.
        machine: The device in words, from the first records; empty before them.
        cases: Names of the cases, from the first records.
        is_out_of_time: Whether the time was up before the strategy or the budget ended the search.
    """

    def __init__(
        self,
        searched: Searched,
        strategy: Strategy,
        limits: Limits,
        began_at: str,
        *,
        starts: Sequence[Point] = (),
        known: Sequence[Point] = (),
        trials: int | None = None,
        against: str = "",
        kernels_of: Callable[[str], Sequence[CompiledKernel]] = lambda _: (),
    ):
        self._kernels_of = kernels_of
        self._against = against
        self._searched = searched
        self._strategy = strategy
        self._starts = deque(point for point in dict.fromkeys(starts) if point in searched.space)
        self._known = deque(known)
        self._from_known: set[Point] = set()
        self._budget = limits.budget
        self._deadline = None if limits.minutes is None else time.monotonic() + 60 * limits.minutes
        self._began_at = began_at
        self._trials = trials
        self._owners: dict[str, Point] = {}
        self._sharing: dict[Point, list[Point]] = {}
        self._by_point: dict[Point, Trial] = {}
        self._asked: set[Point] = set()
        self._to_beat: dict[str, float] = {}
        self._begun = 0
        self.trials: list[Trial] = []
        self.same = 0
        self.machine = ""
        self.cases: tuple[str, ...] = ()
        self.is_out_of_time = False

    def run(
        self, judge: Judge, question: Question, on_trial: Callable[[Trial], None], ahead: int | None = None
    ) -> None:
        """Judges settings until the strategy has no more or a limit is reached.

        Args:
            judge: Judges the settings.
            question: What they are judged on.
            on_trial: Called with each result.
            ahead: Settings that the strategy chooses before it knows the result of the one before
                them; None for as many as keep all processors building.

        Raises:
            HarnessError: The problem does not run or lacks a case, or the judge has ended.
        """
        asked = self._asks(on_trial)
        entries = (
            question.entry(
                self._searched,
                point,
                body,
                trials=self._trials,
                # With another objective the times of slow settings count, too.
                to_beat=None if self._trials is None or self._against else dict(self._to_beat),
            )
            for point, body in asked
        )
        for answer in judge.stream(entries, ahead):
            if isinstance(answer.error, LimitExceeded):
                settings = self._searched.space.settings(answer.entry.tag)
                on_trial(self._add(answer.entry.tag, Trial(settings, NOT_RUN, message=str(answer.error))))
                continue
            if answer.error is not None:
                raise answer.error
            on_trial(self._told(answer.entry.tag, answer.records))

    def _asks(self, on_trial: Callable[[Trial], None]) -> Iterator[tuple[Point, str]]:
        """Yields the settings to judge with their texts.

        Two settings with the same text are one kernel, so the second shares the first one's result.
        """
        while self._budget is None or self._begun < self._budget:
            if self._deadline is not None and time.monotonic() >= self._deadline:
                self.is_out_of_time = True
                return
            point = self._next()
            if point is None:
                return
            try:
                body = self._searched.body(point)
            except TemplateError as error:
                self._begun += 1
                settings = self._searched.space.settings(point)
                on_trial(self._add(point, Trial(settings, NOT_RENDERED, message=one_line(str(error)))))
                continue
            owner = self._owners.setdefault(hashlib.sha256(body.encode()).hexdigest(), point)
            if owner == point:
                self._begun += 1
                yield point, body
                continue
            self.same += 1
            if owner in self._by_point:
                self._tell(point, self._by_point[owner])
            else:
                self._sharing.setdefault(owner, []).append(point)

    def _next(self) -> Point | None:
        while (point := self._chosen()) is not None:
            if point not in self._asked:
                self._asked.add(point)
                return point
        return None

    def _chosen(self) -> Point | None:
        if self._starts:
            return self._starts.popleft()
        if self._known:
            self._from_known.add(self._known[0])
            return self._known.popleft()
        return self._strategy.ask()

    def _told(self, point: Point, records: Sequence[EvaluationRecord]) -> Trial:
        self.machine = self.machine or machines(records)
        self.cases = self.cases or tuple(record.case for record in records)
        for record in records:
            cost = cost_of(record) if record.status is Status.PASSED else None
            if cost is not None:
                self._to_beat[record.case] = max(1 / cost, self._to_beat.get(record.case, 0.0))
        trial = trial_of(self._searched.space.settings(point), records, self._began_at)
        trial = replace(trial, nvcc=most_of(self._kernels_of(records[0].digest) if records else ()))
        if point in self._from_known and not trial.is_stored:  # it was known under other conditions, as are the rest
            self._known.clear()
        return self._add(point, trial)

    def _add(self, point: Point, trial: Trial) -> Trial:
        self.trials.append(trial)
        self._by_point[point] = trial
        for one in (point, *self._sharing.pop(point, ())):
            self._tell(one, trial)
        return trial

    def _tell(self, point: Point, trial: Trial) -> None:
        self._strategy.tell(point, trial.cost, trial.objective(self._against) if self._against else None)
