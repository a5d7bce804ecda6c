"""Tests a run's configuration: what a record keeps, and reading old and new records."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.executors.plan import CaseChoice, Planner
from harness.executors.protocol import Service
from harness.judge.evaluation.blank_records import blank_record
from harness.judge.policy import Policy
from harness.judge.process.time_limits import Limits
from harness.project.problems import read_problem
from harness.project.settings import SETTINGS
from harness.project.solutions import Candidate, read_solution
from harness.records.identity import identity
from harness.records.record import EvaluationRecord, PrecisionClass, Status
from harness.records.rules import Mode, weakened
from harness.records.run_config import DEFAULT_BUILD_TIMEOUT_S, DEFAULT_TIMEOUT_S, RunConfig, of_the_verdict
from harness.report.single import repeat_commands

REPOSITORY = Path(__file__).resolve().parent.parent.parent
CANDIDATE = Candidate(
    problem=read_problem(REPOSITORY / "problems" / "group_norm.py"),
    solution=read_solution(REPOSITORY / "solutions" / "group_norm" / "fused.py", "group_norm/fused"),
)
RECORD = EvaluationRecord(
    problem="group_norm",
    solution="group_norm/fused",
    case="odd",
    device="cuda:0",
    status=Status.PASSED,
    message="",
    seed="5eed",
    digest="d1",
    problem_digest="d2",
    precision_class=PrecisionClass.FP32,
)
#: Each field away from its default, with what it needs beside it to be written.
CHANGES: dict[str, dict[str, Any]] = {
    "timeout_s": {"timeout_s": 7.5},
    "build_timeout_s": {"build_timeout_s": 90.0},
    "forward_only": {"forward_only": True},
    "timing": {"timing": False},
    "precision": {"precision": "relaxed"},
    "rules": {"rules": {"clock": Mode.REPORT, "flags": Mode.OFF, "live-threads": Mode.ENFORCE}},
    "check": {"check": "sm_86", "nvcc": ""},
    "baselines": {"baselines": ("eager", "compile")},
    "require_confinement": {"require_confinement": True},
    "seed": {"seed": "ab12"},
    "trials": {"trials": 1},
    "replay": {"replay": True},
    "preset": {"preset": "kernelbench"},
    "tf32": {"tf32": "forbid"},
    "compat": {"compat": True},
    "exhaustive": {"exhaustive": True},
    "nvcc": {"check": "sm_90", "nvcc": "13.0.88"},
}
ALL: dict[str, Any] = {name: value for change in CHANGES.values() for name, value in change.items()}


def test_each_field_is_changed_here() -> None:
    fields = {one.name: one for one in dataclasses.fields(RunConfig)}
    assert CHANGES.keys() == fields.keys() == ALL.keys()
    assert all(ALL[name] != getattr(RunConfig(), name) for name in fields)
    assert all(one.kw_only for one in fields.values())


@pytest.mark.parametrize("change", [*CHANGES.values(), ALL, {}], ids=[*CHANGES, "all", "none"])
def test_a_configuration_survives_a_record(change: dict[str, Any]) -> None:
    config = RunConfig(**{"timeout_s": 60.0, "build_timeout_s": 300.0, **change})
    record = replace(RECORD, policy=config.to_policy("cuda:0"), seed=config.seed or "")
    kept = EvaluationRecord.from_json(record.to_json())
    assert RunConfig.of(kept) == replace(config, seed=kept.seed)
    assert RunConfig.of(kept).to_policy("cuda:0") == kept.policy


#: Fields that came later, of which a policy shows nothing by default.
LATER = {"compat", "exhaustive", "preset", "tf32"}
#: Configurations with the policies that versions of before wrote for them, whose identities stores are full of.
WRITTEN: dict[str, tuple[RunConfig, str, list[tuple[str, Any]]]] = {
    "default": (
        RunConfig(),
        "cuda:0",
        [("forward_only", False), ("timeout_s", 60.0), ("build_timeout_s", 300.0)],
    ),
    "whole seconds": (
        RunConfig(timeout_s=30, build_timeout_s=40),
        "cpu",
        [("forward_only", False), ("timeout_s", 30), ("build_timeout_s", 40)],
    ),
    "untimed on the CPU": (
        RunConfig(timing=False, timeout_s=5.0),
        "cpu",
        [("forward_only", False), ("timeout_s", 5.0), ("build_timeout_s", 300.0)],
    ),
    "all": (
        RunConfig(**{name: value for name, value in ALL.items() if name not in LATER}),
        "cuda:0",
        [
            ("forward_only", True),
            ("timeout_s", 7.5),
            ("build_timeout_s", 90.0),
            ("timing", False),
            ("require_confinement", True),
            ("baselines", ["eager", "compile"]),
            ("precision", "relaxed"),
            ("rules", {"clock": "report", "flags": "off", "live-threads": "enforce"}),
            ("replay", True),
            ("check", "sm_90"),
            ("nvcc", "13.0.88"),
            ("trials", 1),
        ],
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_the_keys_and_values_of_a_policy_stay(name: str) -> None:
    config, device, written = WRITTEN[name]
    policy = config.to_policy(device)
    assert list(policy.items()) == written
    assert all(type(value) is type(told) for value, (_, told) in zip(policy.values(), written, strict=True))


def test_the_identity_of_an_evaluation_stays() -> None:
    policy = RunConfig(rules={"clock": Mode.REPORT}, timing=False).to_policy("cuda:0")
    known = {"forward_only": False, "timeout_s": 60.0, "build_timeout_s": 300.0, "timing": False}
    known["rules"] = {"clock": "report"}  # type: ignore[assignment]
    assert identity(replace(RECORD, policy=policy)) == identity(replace(RECORD, policy=known))
    expected = "48ae927895033ccd41f2199e97cd2dd6bb5b937912cac6c22b64d6736306f424"
    assert identity(replace(RECORD, policy=policy)) == expected


OLD: dict[str, tuple[dict[str, Any], RunConfig]] = {
    "first": ({"forward_only": False}, RunConfig()),
    "empty": ({}, RunConfig()),
    "limits": (
        {"forward_only": True, "timeout_s": 30, "build_timeout_s": 120.0},
        RunConfig(forward_only=True, timeout_s=30.0, build_timeout_s=120.0),
    ),
    "refused": (
        {"forward_only": False, "timeout_s": 60.0, "refused": ["no-own-kernel", "flags"]},
        RunConfig(timeout_s=60.0, rules={"no-own-kernel": Mode.ENFORCE, "flags": Mode.ENFORCE}),
    ),
    "refused and rules": (
        {"refused": ["flags"], "rules": {"flags": "off", "clock": "report"}},
        RunConfig(rules={"flags": Mode.OFF, "clock": Mode.REPORT}),
    ),
    "checked before nvcc": ({"check": "sm_86"}, RunConfig(check="sm_86")),
    "checked without nvcc": ({"check": "sm_86", "nvcc": ""}, RunConfig(check="sm_86", nvcc="")),
    "one trial": ({"trials": 1, "timing": False}, RunConfig(trials=1, timing=False)),
    "strange": ({"timeout_s": "soon", "baselines": 3, "trials": "few", "later": {}}, RunConfig()),
}


@pytest.mark.parametrize("name", OLD)
def test_policies_of_old_records_read_right(name: str) -> None:
    policy, config = OLD[name]
    assert RunConfig.of(replace(RECORD, policy=policy, seed="ab")) == replace(config, seed="ab")


def test_a_mode_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(ValueError, match="whisper"):
        RunConfig.from_policy({"rules": {"clock": "whisper"}})


def test_rules_of_an_old_record_that_enforced_more_are_not_weakened() -> None:
    assert weakened(RunConfig.from_policy({"refused": ["flags"]}).rules) == {}
    found = weakened(RunConfig.from_policy({"rules": {"clock": "report", "flags": "off"}}).rules)
    assert found == {"clock": Mode.REPORT}


def test_the_command_that_repeats_a_record_says_all_that_the_user_chose() -> None:
    *_, words = repeat_commands(replace(RECORD, policy=RunConfig(**ALL).to_policy("cuda:0")))
    told = (
        "--no-timing --require-confinement --precision relaxed --preset kernelbench "
        "--tf32 forbid --compat --check --arch sm_90 --exhaustive "
        "--rules clock=report,flags=off,live-threads=enforce --baseline eager --baseline compile "
        "--timeout 7.5 --build-timeout 90 --fresh"
    )
    assert words.endswith(told)
    first, second = repeat_commands(RECORD)
    assert first == "python -m harness show  --source > judged.py"  # the file is not there
    assert second.endswith("--device cuda:0 --seed 5eed --case odd --fresh")


def test_a_verdict_depends_on_neither_trials_nor_speed() -> None:
    config = RunConfig(**ALL)
    other = replace(config, trials=None, timing=True, baselines=("eager",))
    assert of_the_verdict(config.to_policy("cuda:0")) == of_the_verdict(other.to_policy("cuda:0"))
    outputs = replace(config, preset="")  # which would set forward_only
    judged = replace(outputs, forward_only=False)
    assert of_the_verdict(outputs.to_policy("cuda:0")) != of_the_verdict(judged.to_policy("cuda:0"))


LIMITS: dict[str, tuple[RunConfig, dict[str, Any], Limits]] = {
    "nobody says": (RunConfig(), {}, Limits(60.0, 300.0)),
    "the problem says": (RunConfig(), {"timeout_s": 9.0, "build_timeout_s": 8.0}, Limits(9.0, 8.0)),
    "the user says": (
        RunConfig(timeout_s=3.0, build_timeout_s=4.0),
        {"timeout_s": 9.0, "build_timeout_s": 8.0},
        Limits(3.0, 4.0),
    ),
    "each says one": (RunConfig(timeout_s=3.0), {"timeout_s": 9.0, "build_timeout_s": 8.0}, Limits(3.0, 8.0)),
}


@pytest.mark.parametrize("name", LIMITS)
def test_the_user_s_limits_count_before_the_problem_s(name: str) -> None:
    config, own, limits = LIMITS[name]
    candidate = candidate_of(**own)
    planner = Planner(CaseChoice(("odd",), {}), on_cpu=True, config=config)
    assert planner.job(candidate).limits == limits
    assert Planner(CaseChoice(("odd",), {}), on_cpu=True).job(candidate).limits is None


def candidate_of(**own: Any) -> Candidate:
    """The candidate of a problem that sets limits of its own."""
    return replace(CANDIDATE, problem=replace(CANDIDATE.problem, **own))


def test_the_defaults_are_those_of_the_settings() -> None:
    assert SETTINGS["timeout"].default == DEFAULT_TIMEOUT_S
    assert SETTINGS["build-timeout"].default == DEFAULT_BUILD_TIMEOUT_S


@pytest.mark.parametrize("name", CHANGES)
def test_a_settled_configuration_keeps_each_choice(name: str) -> None:
    config = RunConfig(**CHANGES[name])
    policy = Policy.settled(config, "cuda:1")
    assert {one.name: getattr(policy, one.name) for one in dataclasses.fields(RunConfig)} == vars(config)
    assert policy.secret == config.seed if config.seed else len(policy.secret) == 32
    assert policy.limits == Limits(*config.seconds())


def test_a_blank_record_tells_the_limits_of_its_candidate() -> None:
    policy = replace(Policy.settled(RunConfig(timeout_s=5.0), "cpu"), limits=Limits(11.0, 12.0))
    blank = blank_record(CANDIDATE, policy, {}, "odd", {})
    assert blank.policy == {"forward_only": False, "timeout_s": 11.0, "build_timeout_s": 12.0}
    assert blank.seed == policy.secret


def test_a_service_holds_one_configuration() -> None:
    names = {one.name for one in dataclasses.fields(Service)}
    assert "config" in names
    assert not names & {one.name for one in dataclasses.fields(RunConfig)}


def test_a_configuration_needs_neither_torch_nor_the_judge() -> None:
    program = (
        "import sys, harness.records.run_config\n"
        "print([name for name in sys.modules if name == 'torch' or name.startswith('harness.judge')])"
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
