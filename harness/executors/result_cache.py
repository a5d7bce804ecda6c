"""What has been judged before is not judged again; what has been judged is kept before anybody is told."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from harness.device.device_state import clock_state
from harness.project.solutions import Candidate
from harness.records.identity import identity, new_record_name
from harness.records.json_values import plain
from harness.records.record import EvaluationRecord, Status
from harness.records.run_config import RunConfig, of_the_verdict
from harness.records.store import Store

#: Among so many newest records of a case baselines are looked for.
KEPT_RECORDS = 50
_KEPT = ("forward_ms", "forward_backward_ms", "note", "prepare_s")
_BASELINE_ENVIRONMENT = ("harness_code", "python", "torch", "processor", "gpu", "capability", "cuda", "driver")


@dataclass(frozen=True)
class ResultCache:
    """The store as one command uses it.

    Attributes:
        store: The store, writable.
        run: The command's name.
        fresh: Judge again what is in the store.
        seed: The secret that the user named; None where any will do.
    """

    store: Store
    run: str
    fresh: bool
    seed: str | None

    def recall(self, blank: EvaluationRecord) -> EvaluationRecord | None:
        """The kept record of an evaluation that is about to be made, None where it must be made.

        A verdict is about a file's text, so it also answers for a copy of that file, under the copy's name.

        Args:
            blank: The record as it stands before the evaluation.
        """
        if self.fresh:
            return None
        kept = self.store.find(identity(blank), self.seed, is_final)
        if kept is None:
            return None
        newest = next(self._verdicts(blank), kept)
        if kept.status is Status.PASSED and newest.status is not Status.PASSED:
            return None  # it has failed since, if only in a trial more
        asked = ("solution", "solution_path", "problem", "problem_path", "device")
        return replace(kept, **{name: getattr(blank, name) for name in asked})

    def has_passed(self, blank: EvaluationRecord) -> bool:
        """Whether an evaluation like the one that is about to be made has passed in full, and none has failed since."""
        verdicts = self._verdicts(blank)
        newest = next(verdicts, None)
        if newest is None or newest.status is not Status.PASSED:
            return False
        return _is_in_full(newest) or any(map(_is_in_full, verdicts))

    def _verdicts(self, blank: EvaluationRecord) -> Iterator[EvaluationRecord]:
        """The verdicts on an evaluation, newest first, in however many trials and whatever it was timed against.

        To pass untimed says nothing against a fault that timing has found.
        """
        question, is_timed = _question(blank), _is_timed(blank)
        kept = self.store.of_solution(blank.digest, newest_first=True)
        alike = (record for record in kept if _is_verdict(record) and _question(record) == question)
        return (record for record in alike if record.status is not Status.PASSED or _is_timed(record) >= is_timed)

    def keep(self, candidate: Candidate, record: EvaluationRecord) -> EvaluationRecord:
        """Name a finished record and put it into the store, with what is known of baselines that it was not timed with.

        Raises:
            StoreError: It could not be kept.
        """
        record = self._with_kept_baselines(record)
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        record = replace(record, record=new_record_name(), run=self.run, created_at=now)
        self.store.add(record, candidate.solution.source)
        return record

    def _with_kept_baselines(self, record: EvaluationRecord) -> EvaluationRecord:
        """Add other baselines' times from records made under the same conditions; they were not taken in pairs."""
        if not record.baselines:
            return record
        found, conditions = dict(record.baselines), _conditions(record)
        for other in self.store.newest_passed(record.problem, record.case, KEPT_RECORDS):
            if _conditions(other) != conditions:
                continue
            for name, told in other.baselines.items():
                if name not in found and "kept_from" not in told and "failure" not in told:
                    found[name] = {key: told[key] for key in _KEPT if key in told} | {"kept_from": other.record}
        return replace(record, baselines=found)


def _question(record: EvaluationRecord) -> str:
    """What an evaluation is known by, but for how many trials it has, and whether and beside what it is timed."""
    return identity(replace(record, policy=of_the_verdict(record.policy)))


def _is_in_full(record: EvaluationRecord) -> bool:
    return record.status is Status.PASSED and RunConfig.of(record).trials is None


def _conditions(record: EvaluationRecord) -> tuple[Any, ...]:
    """What a baseline's times depend on; the solution that they were taken beside is not of it."""
    software = tuple(record.environment.get(name) for name in _BASELINE_ENVIRONMENT)
    return record.problem_digest, plain(record.constants), software, clock_state(record.device_state)


def _is_timed(record: EvaluationRecord) -> bool:
    """Whether speed was to be measured."""
    return record.device != "cpu" and RunConfig.of(record).timing


def _is_verdict(record: EvaluationRecord) -> bool:
    """Whether a record says something of the candidate, be its speed known or not."""
    return record.status not in (Status.HARNESS_ERROR, Status.OUT_OF_MEMORY)


def is_final(record: EvaluationRecord) -> bool:
    """Whether a record answers for good.

    Not where the harness failed, where memory was short (which may have been others' doing), or where speed was not
    measured though it could be, be it in one direction only, beside others on the GPU.
    """
    if not _is_verdict(record):
        return False
    if not _is_timed(record) or record.status is not Status.PASSED:
        return True
    if record.speedup is None:
        return False
    around = (record.device_state.get(when, {}) for when in ("before", "after"))
    is_shared = any(state.get("other_pids") or state.get("strangers") for state in around)
    return not is_shared or record.speedup.keys() >= record.samples.keys()
