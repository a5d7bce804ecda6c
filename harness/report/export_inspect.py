"""Writes records as a log of Inspect (the package ``inspect_ai``), with its own API."""

from __future__ import annotations

import datetime
import functools
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness.errors import ProblemError
from harness.package import VERSION
from harness.project.problems import problem_text
from harness.records.json_values import plain
from harness.records.record import EvaluationRecord, Status
from harness.report.extras import imported
from harness.report.record_times import time_of
from harness.report.sample_scores import results_of
from harness.system.scratch import scratch_folder
from harness.system.text import storable

#: The formats of a log, by the end of its name.
SUFFIXES = (".eval", ".json")
_TASK, _SCORER = "kernel-harness", "verdict"
#: Inspect's name for "no model", for records of several models or of none.
_NO_MODEL = "none/none"
_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)


def log_name(records: Sequence[EvaluationRecord]) -> str:
    """Returns the name of a log in a folder, with time, task and identity, as Inspect has it."""
    identity = hashlib.sha256("\n".join(record.record for record in records).encode("utf-8", "replace")).hexdigest()
    return f"{_created(records):%Y-%m-%dT%H-%M-%S+00-00}_{_TASK}_{identity[:12]}{SUFFIXES[0]}"


def inspect_log(records: Sequence[EvaluationRecord], source_of: Callable[[str], str | None], suffix: str) -> bytes:
    """Returns an Inspect log with a sample for each record, in their order.

    A sample's input is the problem's text, if its file still has the record's digest, else the
    problem's name. Its output is the solution as it was judged.

    Args:
        records: The records; at least one.
        source_of: Returns the text of a solution by its digest.
        suffix: One of ``SUFFIXES``.

    Raises:
        UsageError: inspect_ai is not installed.
    """
    log, model = imported("inspect_ai.log", "--inspect"), imported("inspect_ai.model", "--inspect")
    scorer = imported("inspect_ai.scorer", "--inspect")
    models = {one.model for one in results_of(records)}
    name = storable(models.pop()) if len(models) == 1 and models != {""} else _NO_MODEL

    def sample(record: EvaluationRecord) -> Any:
        told, answer = _input(record), storable(source_of(record.digest) or "")
        has_passed = record.status is Status.PASSED
        score = scorer.Score(
            value=scorer.CORRECT if has_passed else scorer.INCORRECT,
            answer=str(record.status),
            explanation=storable(record.message) or None,
            metadata=_metadata(record),
        )
        return log.EvalSample(
            id=storable(record.record),
            epoch=1,
            input=told,
            target=str(Status.PASSED),
            messages=[model.ChatMessageUser(content=told), model.ChatMessageAssistant(content=answer)],
            output=model.ModelOutput.from_content(name, answer),
            scores={_SCORER: score},
            metadata=_metadata(record),
        )

    created = _created(records).isoformat()
    share = sum(record.status is Status.PASSED for record in records) / len(records)
    accuracy = log.EvalMetric(name="accuracy", value=share)
    made = log.EvalLog(
        status="success",
        eval=log.EvalSpec(
            created=created,
            task=_TASK,
            dataset=log.EvalDataset(name=_TASK, samples=len(records)),
            model=name,
            config=log.EvalConfig(),
            packages={_TASK: VERSION},
        ),
        results=log.EvalResults(
            total_samples=len(records),
            completed_samples=len(records),
            scores=[log.EvalScore(name=_SCORER, scorer=_SCORER, metrics={"accuracy": accuracy})],
        ),
        stats=log.EvalStats(started_at=created, completed_at=created),
        samples=[sample(record) for record in records],
    )
    with scratch_folder("harness-inspect-") as folder:
        path = folder / f"log{suffix}"
        log.write_eval_log(made, str(path), format=suffix[1:])
        return path.read_bytes()


def _metadata(record: EvaluationRecord) -> dict[str, Any]:
    fields = ("record", "run", "problem", "solution", "case", "device", "rule", "message", "created_at", "speedup")
    found = {name: getattr(record, name) for name in (*fields, "speedup_interval", "digest", "problem_digest")}
    return {"status": str(record.status), **_storable(plain(found))}


def _storable(value: Any) -> Any:
    if isinstance(value, dict):
        return {storable(key): _storable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_storable(item) for item in value]
    return storable(value) if isinstance(value, str) else value


def _input(record: EvaluationRecord) -> str:
    text = _text_of(record.problem_path, record.problem_digest)
    return storable(text or f"problem {record.problem} (sha256 {record.problem_digest})")


@functools.lru_cache(maxsize=64)
def _text_of(path: str, digest: str) -> str | None:
    """Returns a problem's text; None if the file is missing or has another one now."""
    try:
        text = problem_text(Path(path))
    except ProblemError:
        return None
    return text if hashlib.sha256(text.encode()).hexdigest() == digest else None


def _created(records: Sequence[EvaluationRecord]) -> datetime.datetime:
    return min((time for record in records if (time := time_of(record.created_at))), default=_EPOCH)
