"""What has been judged before is not judged again; what has been judged is kept before anybody is told."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, replace
from typing import Any

from harness.device_state import clock_state
from harness.records import EvaluationRecord, Status, plain
from harness.solutions import Candidate
from harness.store import Store, identity, new_record_name

#: Among so many newest records of a case baselines are looked for.
KEPT_RECORDS = 50
_KEPT = ("forward_ms", "forward_backward_ms", "note", "failure", "prepare_s")
_BASELINE_ENVIRONMENT = ("python", "torch", "processor", "gpu", "capability", "cuda", "driver")


@dataclass(frozen=True)
class Ledger:
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
        asked = ("solution", "solution_path", "problem", "problem_path", "device")
        return replace(kept, **{name: getattr(blank, name) for name in asked})

    def has_passed(self, blank: EvaluationRecord) -> bool:
        """Whether an evaluation like the one that is about to be made has passed, whatever it was timed against."""
        judged = {name: value for name, value in blank.policy.items() if name != "baselines"}
        alike = (identity(replace(blank, policy=policy)) for policy in (judged, blank.policy))
        newest = [found for one in dict.fromkeys(alike) if (found := self.store.find(one, None, _is_verdict))]
        return bool(newest) and all(record.status is Status.PASSED for record in newest)

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
        found = dict(record.baselines)
        for other in self.store.newest_passed(record.problem, record.case, KEPT_RECORDS):
            if _conditions(other) != _conditions(record):
                continue
            for name, told in other.baselines.items():
                if name not in found and "kept_from" not in told:
                    found[name] = {key: told[key] for key in _KEPT if key in told} | {"kept_from": other.record}
        return replace(record, baselines=found)


def _conditions(record: EvaluationRecord) -> tuple[Any, ...]:
    """What a baseline's times depend on; the solution that they were taken beside is not of it."""
    software = tuple(record.environment.get(name) for name in _BASELINE_ENVIRONMENT)
    return record.problem_digest, plain(record.constants), software, clock_state(record.device_state)


def _is_verdict(record: EvaluationRecord) -> bool:
    """Whether a record says something of the candidate, be its speed known or not."""
    return record.status not in (Status.HARNESS_ERROR, Status.OUT_OF_MEMORY)


def is_final(record: EvaluationRecord) -> bool:
    """Whether a record answers for good.

    Not where the harness failed, where memory was short (which may have been others' doing), or where speed was not
    measured though it could be.
    """
    if not _is_verdict(record):
        return False
    return record.device == "cpu" or record.status is not Status.PASSED or record.speedup is not None
