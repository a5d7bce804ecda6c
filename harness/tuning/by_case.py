"""Makes the result of searches: one setting for all cases, or a plan with a setting for each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.entries import Entry
from harness.errors import UsageError
from harness.evaluator import Evaluator
from harness.project.problems import Problem
from harness.records.record import EvaluationRecord
from harness.rendering.by_shape import ShapedBody, Shapes, joined
from harness.rendering.stamp import stamped
from harness.tuning.confirmation import Confirmation, confirm
from harness.tuning.run import SHORT_TRIALS
from harness.tuning.search import Question
from harness.tuning.space import Point
from harness.tuning.summary import Summary, as_recorded
from harness.tuning.template import Searched

#: The format of the file of searches by case.
FORMAT = "kernel-harness tune by case 1"


@dataclass(frozen=True)
class PlanRow:
    """The setting that won on a case.

    Attributes:
        case: The case, or the cases of the search.
        point: The setting.
        record: Name of the record that measured it.
    """

    case: str
    point: Point
    record: str


@dataclass
class Outcome:
    """The searches of a command and what came of them.

    Attributes:
        searches: One search for all cases, or one for each.
        is_by_case: Whether each case has its own.
        rows: The winners of the searches; empty if one has none.
        text: The solution file of the winners; empty if there is none.
        confirmations: The solution beside the default on other cases and, for a plan, on its own.
    """

    searches: Sequence[Summary]
    is_by_case: bool
    rows: Sequence[PlanRow] = ()
    text: str = ""
    confirmations: Sequence[Confirmation] = ()

    @property
    def holds(self) -> bool:
        """True if there is a result, and no confirmation speaks against it."""
        return bool(self.text) and all(one.holds for one in self.confirmations)

    def settle(self, evaluator: Evaluator, problem: Problem, held_out: Sequence[str]) -> None:
        """Makes the result of finished searches on a GPU, and confirms it.

        Raises:
            HarnessError: The judge has ended, or the result cannot be made or judged.
        """
        rows = [row for search in self.searches for row in _winner(search)]
        if len(rows) < len(self.searches):
            return
        searched, question = self.searches[0].searched, self.searches[0].order.question
        text = text_of(searched, problem, rows)
        is_plan = len({row.point for row in rows}) > 1
        cases = [*(row.case for row in rows if is_plan), *held_out]
        self.rows, confirmations = rows, confirmed(searched, evaluator, question, text, cases) if cases else []
        self.text, self.confirmations = text, confirmations

    def to_json(self) -> str:
        """Returns the file of the searches: that of the only one, or one object with all."""
        told = as_objects(self)
        if not self.is_by_case:
            return as_recorded(self.searches[0], {"held_out": told["held_out"]}).to_json()
        begun = [json.loads(as_recorded(one).to_json()) for one in self.searches if one.has_begun]
        return json.dumps({"format": FORMAT, "searches": begun, **told}, allow_nan=False)

    def sentences(self) -> Iterator[str]:
        """Yields the sentences about a plan and about confirmations."""
        searched = self.searches[0].searched
        if self.is_by_case and self.rows:
            for row in self.rows:
                label = searched.label(searched.space.settings(row.point))
                yield f"plan: case {row.case}: {label} (record {row.record})"
            if len({row.point for row in self.rows}) == 1:
                yield "one setting wins on every case"
        elif self.is_by_case and all(one.progress.is_finished for one in self.searches):
            yield "no plan: a case has no winner"
        for one in self.confirmations:
            lead = "" if one.lead is None else f"{one.lead.ratio:.3f}x [{one.lead.low:.3f}, {one.lead.high:.3f}] "
            yield f"case {one.case}: the result over the default: {lead}{one.verdict}"
        if self.text and not self.holds:
            yield "not confirmed: the result failed on a case or is slower than the default there"


def _winner(search: Summary) -> Iterator[PlanRow]:
    decision = search.progress.decision
    if decision is not None and decision.winner is not None:
        record = next(one.finalist.records[0] for one in decision.rivals if one.finalist.point == decision.winner)
        yield PlanRow(", ".join(search.progress.cases), decision.winner, record)


def text_of(searched: Searched, problem: Problem, rows: Sequence[PlanRow]) -> str:
    """Returns the solution file of a plan: of one setting, or of several that shapes choose from.

    Raises:
        TemplateError: A setting cannot be rendered, or renderings cannot be joined.
        UsageError: The shapes of a case's inputs cannot be found.
        ProblemError: The problem's body raised.
    """
    first = rows[0].point
    if all(row.point == first for row in rows):
        return searched.text(first, searched.body(first))
    about = [
        f"case {row.case}: {searched.label(searched.space.settings(row.point))} (record {row.record})" for row in rows
    ]
    bodies = [
        ShapedBody(input_shapes(problem, row.case), searched.body(row.point), words)
        for row, words in zip(rows, about, strict=True)
    ]
    return stamped(searched.declaration.template, {"plan": "; ".join(about)}, joined(bodies))


def input_shapes(problem: Problem, case: str) -> Shapes:
    """Returns the shapes of a case's input tensors, from a call on torch's meta device, which allocates nothing.

    Raises:
        UsageError: The problem does not make its inputs there.
        ProblemError: The problem's body raised.
    """
    import torch

    from harness.project import problems
    from harness.system.interrupts import Interrupted

    constants = problem.case(case)
    module = problems.load(problem, constants)
    try:
        with torch.device("meta"):
            inputs = list(module.get_inputs())
    except Interrupted:
        raise
    except BaseException as error:  # the problem's own code
        raise UsageError(
            f"{problem.path}: case {case!r}: get_inputs makes no tensors without values ({error}), so the shapes of "
            "its inputs are unknown; leave out --by-case"
        ) from None
    finally:
        problems.forget(problem, constants)
    return tuple(tuple(one.shape) for one in inputs if isinstance(one, torch.Tensor))


def confirmed(
    searched: Searched, evaluator: Evaluator, question: Question, text: str, cases: Sequence[str]
) -> list[Confirmation]:
    """Judges a solution beside the default setting on these cases; none if it is the default setting.

    Raises:
        HarnessError: The judge has ended, or the problem does not run on a case.
    """
    default = stamped(searched.declaration.template, searched.start, searched.renderer.body(searched.start))
    if text == default:
        return []

    def judge(asked: Sequence[str], is_full: bool) -> tuple[Mapping[str, EvaluationRecord], ...]:
        entries = [
            Entry(
                one,
                question.problem,
                tuple(asked),
                tag=number,
                name=f"{searched.declaration.template} {('result', 'default')[number]}",
                trials=None if is_full else SHORT_TRIALS,
                fresh=not is_full,
            )
            for number, one in enumerate((text, default))
        ]
        found: dict[int, dict[str, EvaluationRecord]] = {}
        for answer in evaluator.stream(entries):
            if answer.error is not None:
                raise answer.error
            found[answer.entry.tag] = {record.case: record for record in answer.records}
        return found[0], found[1]

    return confirm(cases, judge)  # type: ignore[arg-type]


def as_objects(outcome: Outcome) -> dict[str, Any]:
    """Returns a plan and its confirmations for the file of a search."""
    space = outcome.searches[0].searched.space
    return {
        "plan": [
            {"case": row.case, "settings": space.settings(row.point), "record": row.record} for row in outcome.rows
        ],
        "held_out": [
            {
                "case": one.case, "verdict": str(one.verdict), "records": list(one.records),
                "over_default": None if one.lead is None else [one.lead.ratio, one.lead.low, one.lead.high],
            }
            for one in outcome.confirmations
        ],
    }  # fmt: skip
