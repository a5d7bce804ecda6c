"""Records that others wrote: every field, at each depth, of every other type, in every command that reads records."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.executors import replay
from harness.executors.result_cache import is_final
from harness.project.problems import read_problem
from harness.records.identity import fitness_key, identity
from harness.records.record import EvaluationRecord
from harness.records.store import Store
from harness.report import agreement, benchmark, speed_comparison
from harness.report.comparison_table import print_groups
from harness.report.export_rows import csv_lines
from harness.report.single import sections
from harness.report.table import print_table
from tests.commands.test_compare import measured

Harness = Callable[..., Any]
Place = tuple[str | int, ...]
TEXT = "the text of a solution"
LATENCY = {"samples_ms": [1.0, 1.25], "median_ms": 1.0, "low_ms": 1.0, "high_ms": 1.25, "window_ms": 3.0}
CERTIFICATE = {
    "calls": 4, "candidate_ms": 1.0, "at_least_ms": 0.9, "eager_ms": 2.0, "eager_at_least_ms": 1.9, "overhead_ms": 0.1,
    "resolution_ms": 0.05, "windows": {"candidate": {"calls": 4, "short_ms": [1.0], "long_ms": [2.0]}},
}  # fmt: skip
TENSOR = {
    "name": "output", "shape": [2, 3], "dtype": "float32", "ok": False, "l2_error": 0.5, "l2_budget": 0.1,
    "max_error": 0.5, "max_budget": 0.1, "share": 5.0, "trial": 1, "cotangent": "normal", "note": "a note",
    "worst_index": [1, 2], "received": 1.0, "expected": 2.0, "eager": 2.0, "allowed": 0.1, "wrong": 3, "pattern": "all",
}  # fmt: skip
READING = {"max_sm_mhz": 1980, "power_limit_w": 700.0, "other_pids": [7], "strangers": 0, "throttle": ["power"]}
#: A record that has every field, with every kind of object in it.
FULL: dict[str, Any] = {
    **json.loads(measured("tiny/one", 5.0, 0xAAAA).to_json()),
    "constants": {"n": [1, {"a": 2.5}]},
    "settings": ["n=(1, {'a': 2.5})"],
    "case": "custom",
    "message": "note: speed (forward) is low\nmore",
    "outputs": [TENSOR],
    "gradients": [{**TENSOR, "name": "x"}],
    "trials": 5,
    "baselines": {
        "eager": {"forward_ms": 2.0, "forward_backward_ms": 4.0, "speedup": {"forward": [2.0, 1.9, 2.1]}},
        "compile": {"forward_ms": 1.5, "speedup": {"forward": [1.5, 1.4, 1.6]}, "prepare_s": 3.0, "note": "slow"},
        "compile-tf32": {"failure": "no memory"},
        "eager-tf32": {"forward_ms": 1.9, "kept_from": "abcdef012345"},
    },
    "speedup_interval": {"forward": [1.9, 2.1]},
    "samples": {"forward": {"candidate": LATENCY, "eager": LATENCY}, "forward_backward": {"uncertified": LATENCY}},
    "certified": {"forward": CERTIFICATE},
    "peak_bytes": {"forward": {"candidate": 1000, "eager": 2000}},
    "floor": {
        "forward": {
            "bytes": 10, "flops": 20, "floor_ms": 0.5, "bound": "bytes", "intensity": 2.0, "share": [0.5, 0.4, 0.6]
        }
    },
    "modes": {"forward": {"queued": {"candidate_ms": 1.0, "eager_ms": 2.0, "overhead_ms": 0.1}, "graph": {}}},
    "device_state": {
        "driver": "580", "before": READING, "after": READING, "flags": ["hot"],
        "during": {"sm_mhz": {"min": 1, "max": 2}, "max_power_w": 5.0, "max_temperature_c": 50},
    },
    "stages_s": {"inputs": 1.0},
    "findings": [
        {"kind": "race", "kernel": "k", "line": 3, "accesses": [{"thread": [0, 0, 0]}], "remedy": "r", "message": "m",
         "level": "error"},
    ],
    "build_log": "/nowhere/log",
    "policy": {
        "forward_only": False, "timeout_s": 60.0, "build_timeout_s": 300.0, "timing": True, "require_confinement": True,
        "baselines": ["eager", "compile"], "precision": "relaxed", "rules": {"clock": "report"}, "refused": ["flags"],
        "replay": True, "check": "sm_90", "nvcc": "13.0", "trials": 1,
    },
    "solution_path": "/nowhere/one.py",
    "problem_path": "/nowhere/tiny.py",
    "kinks": {"redrawn": 1, "remaining": 0},
    "kernels": {"forward": [{"name": "k", "calls": 1, "own": True, "device_ms": 0.5}]},
    "copies": {"forward": [{"name": "Memset", "calls": 1, "device_ms": 0.5, "bytes": 10}]},
    "operators": {"forward": {"mm": 1}},
    "own_share": 0.9,
    "confinement": {"landlock": "", "seccomp": "missing"},
    "further_draws": {"shifted": "passed"},
    "robustness": {"batch": "passed"},
    "compiled": {
        "arch": "sm_90", "compiler": "13.0", "error": "", "seconds": 1.0,
        "kernels": [
            {"name": "k", "arch": "sm_90", "registers": 32, "shared_bytes": 0, "stack_bytes": 0, "spill_store_bytes": 0,
             "spill_load_bytes": 0, "constant_bytes": None},
        ],
    },
    "digests": {"output": ["abcd"]},
    "replay": {
        "of": "abcdef012345", "outcome": "same verdict", "why": "because",
        "environment": {"torch": {"then": "1", "now": "2"}},
        "differences": [{"field": "output: share", "then": 1.0, "now": 2.0}],
        "spread": {"runs": 4, "tensors": {"output": {"differing": 1, "l2": 0.1, "max": 0.2}}},
    },
    "unfit": ["too easy"],
}  # fmt: skip
GOOD = EvaluationRecord.from_json(json.dumps(FULL))
#: JSON's NaN and Infinity are no strings, and its integers have no bound.
VALUES = {
    "null": None, "a string": "x\ud800\0\x1b\n", "a number": 3, "a negative number": -2.5, "zero": 0,
    "a huge number": 10**400, "a large number": 1e308, "true": True, "a list": [1, [None]], "an empty list": [],
    "a dict": {"a": {"b": 1}}, "an empty dict": {}, "NaN": float("nan"), "infinity": float("inf"), "a NaN": "nan",
}  # fmt: skip


def places(value: Any, here: Place = ()) -> Iterator[Place]:
    """Every place in a record."""
    if here:
        yield here
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(inner, (*here, key))


PLACES = list(places(FULL))


def with_value(place: Place, value: Any) -> str:
    """The record with another value in one place."""
    changed = copy.deepcopy(FULL)
    owner: Any = changed
    for key in place[:-1]:
        owner = owner[key]
    owner[place[-1]] = value
    return json.dumps(changed)


def parsed(text: str) -> tuple[EvaluationRecord | None, str]:
    """A record, or why it is none."""
    try:
        return EvaluationRecord.from_json(text), ""
    except ValueError as error:
        return None, str(error)


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("statistics", "scores"):
        monkeypatch.setattr(f"harness.timing.{module}.RESAMPLES", 40)


def read_everywhere(record: EvaluationRecord) -> None:
    """Do with a record in this process what the commands do with it."""
    assert "\n\n".join(sections(record))
    print_table([(record, True)], io.StringIO())
    groups = [
        speed_comparison.group("both", [speed_comparison.ComparedRecord(name, record) for name in "ab"], force=True)
    ]
    print_groups(groups)
    assert speed_comparison.markdown(groups)
    assert json.dumps(speed_comparison.as_json(groups))
    assert list(groups[0].regressions(0.05)) == []
    assert "".join(csv_lines([record]))
    assert EvaluationRecord.from_json(record.to_json()).to_json() == record.to_json()
    assert benchmark.markdown([record], "command").encode("utf-8", "backslashreplace")
    assert json.dumps(benchmark.as_json([record], "command"), allow_nan=False)
    assert agreement.markdown_agreement(agreement.overlap([record], [GOOD]))
    assert len(identity(record)) == len(fitness_key(record)) == 64
    assert is_final(record) in (True, False)
    assert replay.compared(record, GOOD)["outcome"]
    assert replay.compared(GOOD, record)["outcome"]


def test_a_good_record_is_read_everywhere() -> None:
    read_everywhere(GOOD)
    read_everywhere(replace(GOOD, device="cpu", case="odd"))


@pytest.mark.parametrize("kind", VALUES)
def test_any_value_in_any_place_is_read_or_refused_by_name(kind: str) -> None:
    refused = 0
    for place in PLACES:
        record, why = parsed(with_value(place, VALUES[kind]))
        if record is None:
            assert "record" in why, place
            refused += 1
            continue
        try:
            read_everywhere(record)
        except Exception as error:
            raise AssertionError(f"{kind} at {place}") from error
    assert refused > len(PLACES) / 10


def test_a_record_may_have_keys_of_later_versions_and_lack_what_was_not_measured() -> None:
    more = {**FULL, "new": 1, "policy": {**FULL["policy"], "new": [1]}}
    assert EvaluationRecord.from_json(json.dumps(more)).policy["new"] == [1]
    needed = {"problem", "solution", "case", "device", "status", "message", "seed", "digest", "problem_digest"}
    for name in FULL.keys() - needed - {"version", "precision_class"}:
        read_everywhere(EvaluationRecord.from_json(json.dumps({key: FULL[key] for key in FULL if key != name})))


DEEP = json.loads("[" * 400 + "]" * 400)
REFUSED = {
    "number": ({"solution": 3}, "record.solution is int, but must be str"),
    "status": ({"status": "FINE"}, "record.status is 'FINE', but must be one of PASSED, WRONG_OUTPUT"),
    "rules": (
        {"policy": {"rules": {"clock": "never"}}},
        "record.policy.rules['clock'] is 'never', but must be one of off",
    ),
    "interval": ({"speedup_interval": {"forward": [1.0]}}, "record.speedup_interval['forward'] has 1 items"),
    "baseline": ({"baselines": {"eager": 3}}, "record.baselines['eager'] is int, but must be Baseline"),
    "floor": ({"floor": {"forward": {"share": "all"}}}, "record.floor['forward'].share is str"),
    "certificate": ({"certified": {"forward": {}}}, "record.certified['forward'] has no 'calls'"),
    "deep": ({"constants": {"n": DEEP}}, "nested more than 50 levels deep"),
    "huge": ({"trials": 1 << 63}, "record.trials is too large"),
    "time limit": ({"policy": {"timeout_s": -1}}, "time limit of -1 s is none"),
    "trials": ({"policy": {"trials": 0}}, "0 trials are no number of trials"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_every_command_tells_which_record_is_wrong_and_where(
    harness: Harness, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, words = REFUSED[name]
    body = json.dumps({**FULL, **change})
    (tmp_path / "good.jsonl").write_text(json.dumps(FULL))
    (tmp_path / "bad.jsonl").write_text(f"{json.dumps(FULL)}\n{body}\n")
    ran = harness("compare", tmp_path / "good.jsonl", tmp_path / "bad.jsonl")
    assert (ran.code, "Traceback" in ran.err) == (2, False), ran.err
    assert "bad.jsonl:2: " in ran.err
    assert words in ran.err
    if name != "number":  # one store is enough to see that every command says the same
        return
    home = tmp_path / "home"
    with Store(home, writable=True) as store:
        store.add(replace(GOOD, record="abcd00000000"), "text")
    path = changed_row(home, body=body)
    for words_of in COMMANDS:
        ran = harness(*words_of, HARNESS_HOME=str(home))
        assert (ran.code, "Traceback" in ran.err) == (3, False), (words_of, ran.err)
        assert f"{path}: cannot read record abcd00000000: " in ran.err
        assert words in ran.err
    ran = harness("store", "merge", home, HARNESS_HOME=str(tmp_path / "other"))
    assert (ran.code, words in ran.err, "Traceback" in ran.err) == (3, True, False), ran.err


COMMANDS = (
    ["show", "abcd"],
    ["show", "abcd", "--json"],
    ["list", "records"],
    ["export", "--csv"],
    ["export", "--jsonl"],
    ["compare", "abcd", "abcd0"],
    ["evaluate", "--replay", "abcd"],
    ["benchmark", "--against", "run-00000001"],
)


def changed_row(home: Path, **columns: Any) -> Path:
    """Change a record's row, as no harness would; returns the store's path."""
    path = home / "store.db"
    with sqlite3.connect(path) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        for name, value in columns.items():
            connection.execute(f"UPDATE records SET {name} = ?", (value,))
    connection.close()
    return path


@pytest.mark.parametrize("column", ["record", "run", "created_at", "status", "device", "body"])
def test_bytes_in_a_column_are_told(harness: Harness, tmp_path: Path, column: str) -> None:
    with Store(tmp_path, writable=True) as store:
        store.add(GOOD, "text")
    changed_row(tmp_path, **{column: b"\xff\0"})
    for words in (["list", "runs", "--json"], ["list", "records", "--json"], ["store", "merge", tmp_path]):
        home = tmp_path / "other" if words[0] == "store" else tmp_path
        ran = harness(*words, HARNESS_HOME=str(home))
        assert "Traceback" not in ran.err, ran.err
        assert ran.code == 0 or "store.db" in ran.err, ran.err


@pytest.mark.parametrize("path", ["/x\0y", "/\ud800", "/" + "x" * 5000, "", ".", "/dev/zero"])
def test_paths_that_no_file_can_have(harness: Harness, tmp_path: Path, path: str) -> None:
    record = replace(GOOD, record="abcd00000000", problem_path=path, solution_path=path, build_log=path, digest=path)
    with Store(tmp_path, writable=True) as store:
        store.add(record, "text")
    for words in (["show", "abcd"], ["show", "abcd", "--source"], ["evaluate", "--replay", "abcd", "--device", "cpu"]):
        ran = harness(*words, HARNESS_HOME=str(tmp_path))
        assert "Traceback" not in ran.err, ran.err
        assert ran.code == (2 if "--replay" in words else 0), ran.err


def test_a_replay_of_a_record_for_another_problem_is_refused(harness: Harness, tmp_path: Path) -> None:
    """A case, constants and baselines that the problem or this harness does not have."""
    problem = Path(__file__).resolve().parents[2] / "problems" / "group_norm.py"
    known = {"problem_path": str(problem), "problem_digest": read_problem(problem).digest, "record": "abcd00000000"}
    known["digest"] = hashlib.sha256(TEXT.encode()).hexdigest()
    for change, words in (
        ({"case": "gone"}, "gone"),
        ({"case": "custom", "settings": ("nothing=3",)}, "nothing"),
        ({"case": "custom", "settings": ("no setting",)}, "no setting"),
        ({"case": "custom", "settings": (), "constants": {"nothing": 3}}, "nothing"),
        ({"case": "odd", "policy": {"baselines": ["rocket"]}}, "rocket"),
    ):
        home = tmp_path / str(len(os.listdir(tmp_path)))  # noqa: PTH208
        with Store(home, writable=True) as store:
            store.add(replace(GOOD, **known, **change), TEXT)  # type: ignore[arg-type]
        ran = harness("evaluate", "--replay", "abcd", "--device", "cpu", HARNESS_HOME=str(home))
        assert (ran.code, "Traceback" in ran.err, words in ran.err) == (2, False, True), (change, ran.err)
