"""Tests ``evaluate --replay``: it repeats an evaluation and reports whether the result is the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.emulator.toolchain import build_runtime
from harness.executors.replay import ReplayOutcome, compared
from harness.records.record import EvaluationRecord
from harness.records.store import Store

Harness = Callable[..., Any]
PROBLEM = """
import torch, torch.nn as nn

shape = (6, 3)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return torch.tanh(x * self.w)


def get_inputs():
    return [torch.randn(shape + ())]


def get_init_inputs():
    return []
"""
HONEST = PROBLEM.replace("Model(nn", "ModelNew(nn")
#: An error of up to nine rounding units, as atomics make: anew in every call, or once in a process.
NOISE = "torch.frombuffer(bytearray(os.urandom(18)), dtype=torch.uint8).reshape(6, 3).float() * 4e-9"
SOLUTIONS = {
    "honest": HONEST,
    "noisy": HONEST.replace("torch.tanh(x * self.w)", f"torch.tanh(x * self.w) * (1 + {NOISE})"),
    "moody": HONEST.replace("torch.tanh(x * self.w)", "torch.tanh(x * self.w) * (1 + MOOD)") + f"\n\nMOOD = {NOISE}\n",
    "wrong": HONEST.replace("torch.tanh", "torch.sin"),
}


class Place:
    """A problem, some solutions and a home; everything has been evaluated once.

    Attributes:
        rows: What came of it, by solution.
    """

    def __init__(self, harness: Harness, folder: Path, home: Path):
        self._harness = harness
        self.home, self.folder, self.problem = folder / "home", folder, folder / "tiny.py"
        self.home.mkdir()
        build_runtime(home / "emulator")
        (self.home / "emulator").symlink_to(home / "emulator")  # built once for all tests
        self.problem.write_text(PROBLEM)
        for name, text in SOLUTIONS.items():
            (folder / f"{name}.py").write_text(f"import os\n{text}")
        paths = [folder / f"{name}.py" for name in SOLUTIONS]
        ran = self("evaluate", *paths, "--problem", self.problem, "--json", "--set", "shape=(6, 3)")
        self.rows = {Path(row["solution_path"]).stem: row for row in ran.rows}

    def __call__(self, *arguments: str | Path) -> Any:
        return self._harness(*arguments, HARNESS_HOME=str(self.home), HARNESS_DEVICE="cpu")

    def replayed(self, name: str, *options: str | Path) -> tuple[int, dict[str, Any]]:
        """Exit code and row of a solution's replay."""
        ran = self("evaluate", "--replay", self.rows[name]["record"][:8], "--json", *options)
        assert ran.code in (0, 1), ran.err
        (row,) = ran.rows
        return ran.code, row


@pytest.fixture(scope="module")
def place(harness: Harness, home: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The place."""
    return Place(harness, tmp_path_factory.mktemp("replay"), home)


@pytest.mark.parametrize("name", ["honest", "wrong"])
def test_a_deterministic_candidate_comes_out_the_same_bit_for_bit(place: Place, name: str) -> None:
    before = place.rows[name]
    (place.folder / f"{name}.py").write_text("gone = True\n")  # what was judged is in the store
    code, row = place.replayed(name)
    assert (code, row["replay"]["outcome"], row["replay"]["differences"]) == (0, "identical", [])
    assert row["replay"]["of"] == before["record"]
    assert row["replay"]["spread"] == {"runs": 4, "tensors": {}}
    for key in ("status", "outputs", "gradients", "digests", "findings", "seed", "digest", "solution", "settings"):
        assert row[key] == before[key], key
    assert set(row["digests"]) == {"given", "output", "gradient of x", "gradient of w"}
    assert len(set(row["digests"]["output"])) == row["trials"]
    shown = place("show", row["record"]).out
    assert f"replay of {before['record']}: identical" in shown
    assert "4 runs on the same inputs agree bit for bit" in shown


def test_a_replay_never_answers_for_an_evaluation(place: Place) -> None:
    _, row = place.replayed("noisy")
    options = ("--problem", place.problem, "--json", "--set", "shape=(6, 3)")
    (answer,) = place("evaluate", place.folder / "noisy.py", *options).rows
    assert (answer["stored"], answer["record"]) == (True, place.rows["noisy"]["record"])
    assert answer["record"] != row["record"]
    assert row["policy"] == {**answer["policy"], "replay": True}


def test_where_results_vary_their_spread_is_told_beside_the_budgets(place: Place) -> None:
    ran = place("evaluate", "--replay", place.rows["noisy"]["record"])
    assert ran.code == 0, ran.out + ran.err
    assert "PASSED replay" in ran.out
    assert "same verdict: the candidate is not deterministic" in ran.out
    assert "not deterministic: 4 runs on the same inputs differ" in ran.out
    assert "output: 3 of 3 differ from the first, relative L2 up to" in ran.out
    assert "(budget 3.8e-06)" in ran.out
    assert "output: digests: " in ran.out  # an error's size may be the same by chance


def test_a_candidate_that_is_another_in_every_process_comes_out_different(place: Place) -> None:
    code, row = place.replayed("moody")
    assert (code, row["status"], row["replay"]["outcome"]) == (1, "PASSED", "different")
    assert row["replay"]["spread"] == {"runs": 4, "tensors": {}}
    assert "output: the bits differ from the record's, but runs on the same inputs agree" in row["replay"]["why"]
    assert "output: digests" in [one["field"] for one in row["replay"]["differences"]]


def test_another_problem_repeats_nothing(place: Place, tmp_path: Path) -> None:
    record = place.rows["wrong"]["record"]
    try:
        place.problem.write_text(PROBLEM + "# changed\n")
        ran = place("evaluate", "--replay", record)
        assert (ran.code, ran.out) == (2, "")
        assert "its problem has changed" in ran.err
        (tmp_path / "kept.py").write_text(PROBLEM)
        assert place.replayed("wrong", "--problem", tmp_path / "kept.py")[0] == 0
        place.problem.unlink()
        ran = place("evaluate", "--replay", record)
        assert (ran.code, "is missing" in ran.err) == (2, True)
    finally:
        place.problem.write_text(PROBLEM)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--replay", "0000"], "no record '0000'"),
        (["--replay", "{record}", "--seed", "ab"], "leave out --seed"),
        (["--replay", "{record}", "--forward-only"], "leave out --forward-only"),
        (["--replay", "{record}", "group_norm"], "leave out a selector"),
    ],
)
def test_what_is_judged_and_how_is_the_record_s(place: Place, arguments: list[str], words: str) -> None:
    record = place.rows["honest"]["record"]
    ran = place("evaluate", *(one.format(record=record) for one in arguments))
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err


def test_elsewhere_the_verdict_counts_and_not_the_bits(place: Place) -> None:
    with Store(place.home) as store:
        then: EvaluationRecord = store.get(place.rows["honest"]["record"])
    now = replace(then, digests={**then.digests, "output": ("0" * 16,) * 5})
    assert compared(then, now)["outcome"] == ReplayOutcome.DIFFERENT
    elsewhere = replace(now, environment={**then.environment, "gpu": "NVIDIA L4"}, device="cuda:0")
    told = compared(then, elsewhere)
    assert told["outcome"] == ReplayOutcome.SAME_VERDICT
    assert told["environment"]["device"] == {"then": "cpu", "now": "cuda"}
    assert "within their budgets" in told["why"]
    failing = replace(elsewhere, outputs=(replace(then.outputs[0], ok=False),))
    assert compared(then, failing)["outcome"] == ReplayOutcome.DIFFERENT
    unsteady = {"spread": {"runs": 4, "tensors": {"output": {"differing": 1, "l2": 1e-8, "max": 1e-7}}}}
    assert compared(then, replace(now, replay=unsteady))["outcome"] == ReplayOutcome.SAME_VERDICT
    others = replace(now, digests={**now.digests, "given": ("0" * 16,) * 5}, replay=unsteady)
    assert compared(then, others)["outcome"] == ReplayOutcome.DIFFERENT
