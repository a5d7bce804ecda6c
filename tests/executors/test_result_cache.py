"""Tests what a command takes from earlier ones: verdicts, earlier passes and times of baselines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.executors.result_cache import ResultCache
from harness.project.problems import read_problem
from harness.project.solutions import Candidate, read_solution
from harness.records.record import FEWER_PAIRS, EvaluationRecord, PrecisionClass, Status
from harness.records.store import Store

REPOSITORY = Path(__file__).resolve().parent.parent.parent
CANDIDATE = Candidate(
    problem=read_problem(REPOSITORY / "problems" / "group_norm.py"),
    solution=read_solution(REPOSITORY / "solutions" / "group_norm" / "fused.py", "group_norm/fused"),
)
STATE = {"before": {"max_sm_mhz": 1980, "power_limit_w": 700.0}}
TIMED = EvaluationRecord(
    problem="group_norm",
    solution="group_norm/fused",
    case="full",
    device="cuda:0",
    status=Status.PASSED,
    message="",
    seed="ab",
    digest=CANDIDATE.solution.digest,
    problem_digest=CANDIDATE.problem.digest,
    precision_class=PrecisionClass.FP32,
    speedup={"forward": 1.6},
    baselines={
        "eager": {"forward_ms": 9.0},
        "compile": {"forward_ms": 5.3, "prepare_s": 11.0, "speedup": {"forward": (0.9, 0.8, 1.0)}},
        "compile-max-autotune": {"failure": "out of memory"},
    },
    environment={"torch": "2.11", "gpu": "NVIDIA H200", "driver": "580"},
    device_state=STATE,
)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[ResultCache]:
    """A ledger over an empty store."""
    with Store(tmp_path, writable=True) as store:
        yield ResultCache(store, "run-0", fresh=False, seed=None)


def test_baselines_that_were_not_timed_come_from_the_newest_record_of_the_same_kind(ledger: ResultCache) -> None:
    first = ledger.keep(CANDIDATE, TIMED)
    assert first.baselines == TIMED.baselines
    other = replace(TIMED, solution="mine", digest="d9", baselines={"eager": {"forward_ms": 9.1}})
    kept = ledger.keep(CANDIDATE, other).baselines
    assert kept["eager"] == {"forward_ms": 9.1}
    assert kept["compile"] == {"forward_ms": 5.3, "prepare_s": 11.0, "kept_from": first.record}
    assert set(kept) == {"eager", "compile"}  # a failure may have had reasons of its own
    # What was kept is not passed on as if it had been timed there.
    assert ledger.keep(CANDIDATE, other).baselines["compile"]["kept_from"] == first.record
    newer = ledger.keep(CANDIDATE, replace(TIMED, baselines={**TIMED.baselines, "compile": {"forward_ms": 5.2}}))
    assert ledger.keep(CANDIDATE, other).baselines["compile"] == {"forward_ms": 5.2, "kept_from": newer.record}


@pytest.mark.parametrize(
    "change",
    [
        {"problem_digest": "other"},
        {"case": "odd"},
        {"constants": {"batch_size": 2}},
        {"environment": {**TIMED.environment, "driver": "590"}},
        {"environment": {**TIMED.environment, "torch": "2.13"}},
        {"environment": {**TIMED.environment, "harness_code": "other"}},
        {"device_state": {"before": {"max_sm_mhz": 1500, "power_limit_w": 700.0}}},
        {"policy": {"tf32": "forbid"}},
        {"baselines": {}},
    ],
    ids=str,
)
def test_baselines_of_other_conditions_are_not_taken(ledger: ResultCache, change: dict[str, Any]) -> None:
    ledger.keep(CANDIDATE, TIMED)
    asked = replace(TIMED, **{"baselines": {"eager": {"forward_ms": 9.1}}, **change})
    assert set(ledger.keep(CANDIDATE, asked).baselines) <= {"eager"}


@pytest.mark.parametrize(
    ("kept", "has_passed"),
    [
        ({}, True),
        ({"policy": {"timeout_s": 60.0, "baselines": ["eager", "compile"]}}, True),
        ({"policy": {"timeout_s": 60.0, "timing": False}, "speedup": None}, False),
        ({"policy": {"timeout_s": 60.0, "trials": 1}}, False),  # one trial proves nothing by itself
        ({"policy": {"timeout_s": 60.0, "forward_only": True}}, False),
        ({"digest": "other"}, False),
        ({"problem_digest": "other"}, False),
        ({"case": "odd"}, False),
        ({"environment": {**TIMED.environment, "harness_code": "older"}}, False),
        ({"status": Status.WRONG_OUTPUT}, False),
        ({"speedup": None}, True),
    ],
    ids=str,
)
def test_what_has_passed_before(ledger: ResultCache, kept: dict[str, Any], has_passed: bool) -> None:
    plain = replace(TIMED, policy={"timeout_s": 60.0})
    ledger.keep(CANDIDATE, replace(plain, **kept))
    asked = replace(plain, policy={"timeout_s": 60.0, "baselines": ["eager", "compile"]}, status=Status.HARNESS_ERROR)
    assert ledger.has_passed(asked) is has_passed


@pytest.mark.parametrize(("policy", "is_answered"), [({}, False), ({"timing": False}, True)], ids=str)
def test_a_verdict_without_speed_answers_who_asked_for_none(
    ledger: ResultCache, policy: dict[str, Any], is_answered: bool
) -> None:
    kept = ledger.keep(CANDIDATE, replace(TIMED, policy=policy, speedup=None))
    assert ledger.recall(replace(kept, status=Status.HARNESS_ERROR), may_be_short=False) == (
        kept if is_answered else None
    )
    assert ledger.recall(replace(kept, policy={"timeout_s": 60.0}), may_be_short=False) is None


def test_to_pass_untimed_says_nothing_against_a_cheat_that_timing_found(ledger: ResultCache) -> None:
    ledger.keep(CANDIDATE, TIMED)
    assert ledger.recall(TIMED, may_be_short=False) is not None
    cheat = {"status": Status.CHEATED, "rule": "clock", "policy": {"trials": 1}, "speedup": None}
    ledger.keep(CANDIDATE, replace(TIMED, **cheat))  # type: ignore[arg-type]
    ledger.keep(CANDIDATE, replace(TIMED, policy={"timing": False}, speedup=None))
    assert ledger.recall(TIMED, may_be_short=False) is None
    assert not ledger.has_passed(TIMED)


def test_a_timing_that_ended_early_answers_no_one_who_asks_for_a_whole_one(ledger: ResultCache) -> None:
    short = ledger.keep(CANDIDATE, replace(TIMED, message=f"note: speed (forward) is of 6 {FEWER_PAIRS}: enough"))
    assert ledger.recall(TIMED, may_be_short=True) == short
    assert ledger.recall(TIMED, may_be_short=False) is None
    whole = ledger.keep(CANDIDATE, TIMED)
    assert ledger.recall(TIMED, may_be_short=False) == whole


@pytest.mark.parametrize(("others", "is_answered"), [((), True), ((77,), False)])
def test_a_direction_that_was_lost_beside_others_on_the_gpu_is_asked_for_again(
    ledger: ResultCache, others: tuple[int, ...], is_answered: bool
) -> None:
    latency = {"samples_ms": [1.0, 1.0], "median_ms": 1.0, "low_ms": 1.0, "high_ms": 1.0}
    samples = {"forward": {"candidate": latency}, "forward_backward": {"uncertified": latency}}
    state = {**STATE, "after": {"other_pids": others}}
    kept = ledger.keep(CANDIDATE, replace(TIMED, samples=samples, device_state=state))
    assert (ledger.recall(TIMED, may_be_short=False) is not None) is is_answered
    assert kept.speedup == TIMED.speedup


@pytest.mark.parametrize("policy", [{}, {"trials": 1}, {"baselines": ["eager", "compile"], "trials": 1}], ids=str)
def test_a_later_failure_counts_against_an_earlier_pass(ledger: ResultCache, policy: dict[str, Any]) -> None:
    plain = replace(TIMED, policy={"timeout_s": 60.0})
    passed = ledger.keep(CANDIDATE, plain)
    assert ledger.has_passed(plain)
    assert ledger.recall(plain, may_be_short=False) == passed
    ledger.keep(CANDIDATE, replace(plain, policy={**plain.policy, **policy}, status=Status.CRASHED))
    assert not ledger.has_passed(plain)
    again = ledger.recall(plain, may_be_short=False)
    assert again is None or again.status is Status.CRASHED


@pytest.mark.parametrize(
    ("status", "message", "is_kept"),
    [
        (Status.CRASHED, "signal SIGKILL ended the process (perhaps the system ran out of memory)", False),
        (Status.CRASHED, "signal SIGSEGV ended the process", True),
        (Status.BUILD_ERROR, "g++: fatal error: Terminated signal terminated program cc1plus", False),
        (Status.BUILD_ERROR, "kernel.h:1: error: kernel.h: Input/output error", False),
        (Status.BUILD_ERROR, "<cuda_sources>:3: error: expected ';'", True),
        (Status.LOAD_ERROR, "ToolchainError: The disk is full: /tmp has no room for a build.", False),
        (Status.RUNTIME_ERROR, "the disk of /tmp is full: write less, or free space if other programs used it", False),
        (Status.RUNTIME_ERROR, "forward: line 3: RuntimeError: too large", True),
    ],
)
def test_what_the_machine_may_have_done_is_judged_again(
    ledger: ResultCache, status: Status, message: str, is_kept: bool
) -> None:
    kept = ledger.keep(CANDIDATE, replace(TIMED, status=status, message=message, speedup=None, baselines={}))
    found = ledger.recall(kept, may_be_short=False)
    assert (found is not None) == is_kept
