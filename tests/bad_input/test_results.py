"""Tests ``compare`` and ``show`` on files and names that are not results: message and exit code, no traceback."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from harness.records.record import RECORD_VERSION, EvaluationRecord, PrecisionClass, Status
from harness.records.store import Store
from tests.bad_input.conftest import Place

LATENCY = {"samples_ms": [1.0, 1.1], "median_ms": 1.0, "low_ms": 1.0, "high_ms": 1.1, "window_ms": 3.0}
RECORD = EvaluationRecord(
    problem="tiny",
    solution="tiny/one",
    case="odd",
    device="cuda:0",
    status=Status.PASSED,
    message="",
    seed="ab",
    digest="d1",
    problem_digest="d2",
    precision_class=PrecisionClass.FP32,
    samples={"forward": {"candidate": LATENCY, "eager": LATENCY}},
    speedup={"forward": 1.0},
    record="abcd00000000",
    run="run-00000001",
    created_at="2026-01-01T00:00:00+00:00",
)
GOOD = RECORD.to_json()


def changed(**fields: Any) -> str:
    """A line of results with some fields replaced."""
    return json.dumps({**json.loads(GOOD), **fields})


def samples(**fields: Any) -> str:
    """A line of results whose candidate's latency has some fields replaced."""
    return changed(samples={"forward": {"candidate": {**LATENCY, **fields}, "eager": LATENCY}})


FILES: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "holds no records"),
    "blank": ("\n \n", "holds no records"),
    "text": ("solution  status\nfused  PASSED\n", "text.jsonl:1: not JSON"),
    "binary": (bytes(range(256)), "cannot read results"),
    "list": ("[1, 2]\n", "list.jsonl:1: an evaluation record is a JSON object, not list"),
    "other": ('{"name": "x"}\n', "not an evaluation record: it has no 'version'"),
    "newer": (changed(version=RECORD_VERSION + 1), f"layout {RECORD_VERSION + 1}"),
    "truncated": (f"{GOOD}\n{GOOD[:400]}", "truncated.jsonl:2: not JSON"),
    "deep": ("[" * 100_000 + "]" * 100_000, "not JSON"),
    "lacking": (json.dumps({"version": 1, "problem": "p"}), "record has no 'solution'"),
    "number": (changed(solution=3), "record.solution is int, but must be str"),
    "status": (changed(status="FINE"), "record.status is 'FINE', but must be one of PASSED"),
    "reports": (changed(outputs={"a": 1}), "record.outputs is dict"),
    "report": (changed(outputs=[{"name": "y"}]), "has no 'shape'"),
    "huge_number": (changed(total_s=10**400), "too large"),
    "flat_samples": (changed(samples={"forward": 5}), "record.samples['forward'] is int, but must be dict"),
    "no_samples": (samples(samples_ms="fast"), "samples_ms is str, but must be list"),
    "zero_samples": (samples(samples_ms=[0, 1]), "samples of forward candidate are not latencies"),
    "unpaired": (samples(samples_ms=[1.0, 1.0, 1.0]), "some have no partner"),
    "no_median": (samples(median_ms=None), "median_ms is NoneType, but must be a number"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_holds_no_results_is_told_with_its_line(place: Place, name: str) -> None:
    text, words = FILES[name]
    place.write("good.jsonl", GOOD)
    place.write(f"{name}.jsonl", text)
    ran = place("compare", "good.jsonl", f"{name}.jsonl")
    assert (ran.code, ran.out) == (2, "")
    assert f"{name}.jsonl" in ran.err
    assert words in ran.err
    assert "Traceback" not in ran.err


def test_good_files_are_compared(place: Place) -> None:
    place.write("good.jsonl", GOOD)
    place.write("windows.jsonl", "\ufeff".join(["", GOOD.replace("\n", "")]) + "\r\n\r\n")
    ran = place("compare", "good.jsonl", "windows.jsonl")
    assert ran.code == 0, ran.err


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("abcd", 2, "2 records begin with 'abcd'"),
        ("abcd0", 0, "record abcd00000000"),
        ("abce", 2, "no record 'abce'"),
        ("ABCD0", 2, "no record 'ABCD0'"),
        ("", 2, "no record ''"),
        ("%", 2, "no record '%'"),
        ("abcd00000000'--", 2, "no record"),
        (os.fsdecode(b"\xff"), 2, "no record"),
        ("run-00000001", 2, "no record 'run-00000001'"),
    ],
)
def test_a_name_means_one_record_or_is_told(new_place: Place, name: str, code: int, words: str) -> None:
    with Store(new_place.home, writable=True) as store:
        for record in ("abcd00000000", "abcd11111111"):
            store.add(EvaluationRecord.from_json(changed(record=record)), "")
    ran = new_place("show", name)
    assert (ran.code, words in ran.out + ran.err) == (code, True), ran.err
    assert "Traceback" not in ran.err
    if code and name:
        ran = new_place("compare", "abcd0", name)
        assert ran.code == 2
        assert "Traceback" not in ran.err
