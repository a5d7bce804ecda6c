"""What has been judged before is not judged again; what has been judged is kept before anybody is told."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, replace

from harness.records import EvaluationRecord, Status
from harness.solutions import Candidate
from harness.store import Store, identity, new_record_name


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
        for policy in (judged, blank.policy):
            kept = self.store.find(identity(replace(blank, policy=policy)), None, is_final)
            if kept is not None:
                return kept.status is Status.PASSED
        return False

    def keep(self, candidate: Candidate, record: EvaluationRecord) -> EvaluationRecord:
        """Name a finished record and put it into the store.

        Raises:
            StoreError: It could not be kept.
        """
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        record = replace(record, record=new_record_name(), run=self.run, created_at=now)
        self.store.add(record, candidate.solution.source)
        return record


def is_final(record: EvaluationRecord) -> bool:
    """Whether a record answers for good.

    Not where the harness failed, where memory was short (which may have been others' doing), or where speed was not
    measured though it could be.
    """
    if record.status in (Status.HARNESS_ERROR, Status.OUT_OF_MEMORY):
        return False
    return record.device == "cpu" or record.status is not Status.PASSED or record.speedup is not None
