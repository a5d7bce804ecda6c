"""The result cache: answers evaluations from the store, and keeps every new record there."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from harness.compilation.errors import may_pass_next_time
from harness.device.device_state import clock_state
from harness.judge.process.candidate_stopped import OUT_OF_MEMORY_KILLS
from harness.judge.process.disk import OTHERS_MAY_HAVE
from harness.project.solutions import Candidate
from harness.records.identity import constants_key, identity, new_record_name
from harness.records.record import FEWER_PAIRS, EvaluationRecord, Status
from harness.records.run_config import RunConfig, of_the_verdict
from harness.records.store import Store

#: Number of newest records of a case that the cache searches for baselines.
KEPT_RECORDS = 50
_KEPT = ("forward_ms", "forward_backward_ms", "note", "prepare_s")
_BASELINE_ENVIRONMENT = ("harness_code", "python", "torch", "processor", "gpu", "capability", "cuda", "driver")


@dataclass(frozen=True)
class ResultCache:
    """The cache of results that one run uses.

    Attributes:
        store: The store, open for writing.
        run: The run's name.
        fresh: Whether to ignore the store's answers.
        seed: The user's secret; None to accept records with any secret.
    """

    store: Store
    run: str
    fresh: bool
    seed: str | None

    def recall(self, blank: EvaluationRecord, *, may_be_short: bool) -> EvaluationRecord | None:
        """Returns the store's record for an evaluation; None if it must run.

        A verdict depends on a file's text. It therefore also answers for a copy of the file, under
        the copy's name.

        Args:
            blank: The evaluation's record before it runs.
            may_be_short: Whether a record will do whose timing ended early.
        """
        if self.fresh:
            return None

        def answers(record: EvaluationRecord) -> bool:
            return is_final(record) and (may_be_short or FEWER_PAIRS not in record.message)

        kept = self.store.find(identity(blank), self.seed, answers)
        if kept is None:
            return None
        newest = next(self._verdicts(blank), kept)
        if kept.status is Status.PASSED and newest.status is not Status.PASSED:
            return None  # a later evaluation failed, perhaps in an additional trial
        asked = ("solution", "solution_path", "problem", "problem_path", "device")
        return replace(kept, **{name: getattr(blank, name) for name in asked})

    def has_passed(self, blank: EvaluationRecord) -> bool:
        """Returns whether the same evaluation passed in all trials and has not failed since."""
        verdicts = self._verdicts(blank)
        newest = next(verdicts, None)
        if newest is None or newest.status is not Status.PASSED:
            return False
        return _is_in_full(newest) or any(map(_is_in_full, verdicts))

    def _verdicts(self, blank: EvaluationRecord) -> Iterator[EvaluationRecord]:
        """Yields the verdicts on an evaluation, newest first, with any trials and any baselines.

        A pass without timing does not count if ``blank`` is timed: timing may find other faults.
        """
        question, is_timed = _question(blank), _is_timed(blank)
        kept = self.store.of_solution(blank.digest, newest_first=True)
        alike = (record for record in kept if _is_verdict(record) and _question(record) == question)
        return (record for record in alike if record.status is not Status.PASSED or _is_timed(record) >= is_timed)

    def keep(self, candidate: Candidate, record: EvaluationRecord) -> EvaluationRecord:
        """Names a finished record, adds earlier times of other baselines, and stores it.

        Raises:
            StoreError: The store cannot keep the record.
        """
        record = self._with_kept_baselines(record)
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        record = replace(record, record=new_record_name(), run=self.run, created_at=now)
        self.store.add(record, candidate.solution.source)
        return record

    def _with_kept_baselines(self, record: EvaluationRecord) -> EvaluationRecord:
        """Adds times of other baselines from earlier records under the same conditions.

        These times are not paired with the candidate's.
        """
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
    """Returns an evaluation's identity without its trials, its timing and its baselines."""
    return identity(replace(record, policy=of_the_verdict(record.policy)))


def _is_in_full(record: EvaluationRecord) -> bool:
    return record.status is Status.PASSED and RunConfig.of(record).trials is None


def _conditions(record: EvaluationRecord) -> tuple[Any, ...]:
    """Returns the values that a baseline's times depend on; the solution is not among them."""
    software = tuple(record.environment.get(name) for name in _BASELINE_ENVIRONMENT)
    tf32 = record.policy.get("tf32")
    return record.problem_digest, constants_key(record), software, tf32, clock_state(record.device_state)


def _is_timed(record: EvaluationRecord) -> bool:
    """Returns whether the record's evaluation measures speed."""
    return record.device != "cpu" and RunConfig.of(record).timing


def _is_verdict(record: EvaluationRecord) -> bool:
    """Returns whether a record holds a verdict on the candidate, with or without its speed."""
    return record.status not in (Status.HARNESS_ERROR, Status.OUT_OF_MEMORY)


def may_be_the_machine_s(record: EvaluationRecord) -> bool:
    """Returns whether other programs or a failing disk may have caused a failure, by its message."""
    if record.status in (Status.BUILD_ERROR, Status.LOAD_ERROR):
        return may_pass_next_time(record.message)
    words = {Status.CRASHED: OUT_OF_MEMORY_KILLS, Status.RUNTIME_ERROR: OTHERS_MAY_HAVE}.get(record.status)
    return words is not None and words in record.message


def is_final(record: EvaluationRecord) -> bool:
    """Returns whether a record can answer later requests.

    These records cannot:

    - The harness failed.
    - Memory ran out; other programs may have used it.
    - The machine may have caused the failure: a signal ended a compiler, SIGKILL ended the
      candidate's process, or the disk failed or was full.
    - The evaluation was to measure speed and did not.
    - Speed lacks a direction, and other programs used the GPU.
    """
    if not _is_verdict(record):
        return False
    if may_be_the_machine_s(record):
        return False
    if not _is_timed(record) or record.status is not Status.PASSED:
        return True
    if record.speedup is None:
        return False
    around = (record.device_state.get(when, {}) for when in ("before", "after"))
    is_shared = any(state.get("other_pids") or state.get("strangers") for state in around)
    return not is_shared or record.speedup.keys() >= record.samples.keys()
