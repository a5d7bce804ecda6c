"""Tests ``profile`` on the CPU emulator: launches without times, and no profile without a pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Harness = Callable[..., Any]
REPOSITORY = Path(__file__).resolve().parents[2]
SOLUTION = REPOSITORY / "solutions" / "group_norm" / "fused.py"


def test_launches_are_listed_by_direction_without_times(harness: Harness) -> None:
    ran = harness("profile", "group_norm/fused", "--case", "odd", "--device", "cpu")
    assert ran.code == 0, ran.err
    forward, backward = ran.out.split("\n\n")
    assert forward.startswith("forward of group_norm/fused, case odd, on cpu")
    assert [line.split() for line in forward.splitlines()[1:]] == [
        ["kernel", "whose", "launches", "total", "ms", "share"],
        ["normalise_groups", "own", "1", "-", "-"],
        ["total", "1", "-", "-"],
    ]
    assert [line.split()[0] for line in backward.splitlines()[2:5]] == ["group_gradients", "affine_gradients", "total"]
    assert "times on the CPU emulator mean nothing" in backward


def test_json_holds_the_same_and_nothing_is_stored(harness: Harness, own_home: Path) -> None:
    (row,) = harness("profile", SOLUTION, "--device", "cpu", "--json", HARNESS_HOME=str(own_home)).rows
    assert (row["problem"], row["solution"], row["status"]) == ("group_norm", "group_norm/fused", "PASSED")
    assert row["case"] == "flat_2d"  # the smallest of those that fit
    assert [(use["name"], use["whose"], use["launches"]) for use in row["directions"]["backward"]] == [
        ("group_gradients", "own", 1),
        ("affine_gradients", "own", 1),
    ]
    assert all(use["device_ms"] is use["share"] is None for found in row["directions"].values() for use in found)
    assert not (own_home / "store.db").exists()
    assert (own_home / "builds").is_dir()


def test_a_setting_makes_a_case_of_its_own(harness: Harness) -> None:
    ran = harness("profile", SOLUTION, "--device", "cpu", "--json", *("--set", "batch_size=1"), *("--set", "dim1=3"),
                  *("--set", "dim2=5"))  # fmt: skip
    (row,) = ran.rows
    assert (row["case"], row["constants"]) == ("custom", {"batch_size": 1, "dim1": 3, "dim2": 5})


def test_what_does_not_pass_has_no_profile(harness: Harness, tmp_path: Path) -> None:
    problem = (REPOSITORY / "problems" / "group_norm.py").read_text()
    wrong = tmp_path / "wrong.py"
    wrong.write_text(problem.replace("class Model(", "class ModelNew(").replace("self.gn(x)", "self.gn(x) * 2"))
    options = ("profile", wrong, "--problem", "group_norm", "--case", "odd", "--device", "cpu")
    ran = harness(*options)
    assert ran.code == 1
    assert "wrong.py odd: WRONG_OUTPUT, so it has no profile" in ran.out
    assert "relative L2 error" in ran.out
    told = harness(*options, "--json")
    (row,) = told.rows
    assert (told.code, row["status"], row["directions"]) == (1, "WRONG_OUTPUT", {})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "SOLUTION"),
        (["group_norm"], "names 3 solutions; name one of them: group_norm/fused, group_norm/plain, "),
        (["group_norm/fusd"], "Did you mean 'fused'"),
        (["missing.py"], "no such file: missing.py"),
        (["group_norm/fused", "--case", "od"], "Did you mean 'odd'"),
        (["group_norm/fused", "--case", "odd", "--set", "batch_size=2"], "cannot be used together"),
        (["group_norm/fused", "--set", "batch_size=2", "--set", "batch_size=3"], "sets 'batch_size' twice"),
        (["group_norm/fused", "--set", "batchsize=2"], "Did you mean 'batch_size'"),
        (["group_norm/fused", "--device", "tpu"], "'tpu'"),
        (["group_norm/fused", "--ncu", "--device", "cpu"], "the CPU emulator has no hardware counters"),
    ],
)
def test_wrong_usage_is_told_and_ends_with_2(harness: Harness, arguments: list[str], words: str) -> None:
    ran = harness("profile", *arguments, HARNESS_DEVICE="cpu")
    assert ran.code == 2
    assert words in ran.err
    assert "Traceback" not in ran.err
    assert ran.out == ""


def test_a_problem_that_ends_its_process_ends_not_the_command(harness: Harness, tmp_path: Path) -> None:
    problem = tmp_path / "ends.py"
    problem.write_text(
        "import os\n"
        + (REPOSITORY / "problems" / "group_norm.py")
        .read_text()
        .replace("    return [", "    os._exit(7)\n    return [")
    )
    ran = harness("profile", SOLUTION, "--problem", problem, "--case", "odd", "--device", "cpu")
    assert ran.code == 3
    assert f"{problem}: the process that judges ended (exit code 7)" in ran.err
    assert "Traceback" not in ran.err


def test_a_problem_without_a_case_for_the_cpu_is_told(harness: Harness, tmp_path: Path) -> None:
    problem = tmp_path / "large.py"
    problem.write_text(
        "import torch\n"
        "def get_inputs(): return [torch.randn(64, 16384)]\n"
        "def get_init_inputs(): return []\n"
        "class Model(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.linear = torch.nn.Linear(16384, 16384)\n"
        "    def forward(self, x):\n"
        "        return self.linear(x)\n"
    )
    ran = harness("profile", SOLUTION, "--problem", problem, "--device", "cpu")
    assert ran.code == 2
    assert "large does not fit the CPU, even with" in ran.err
    assert "choose smaller sizes with --set" in ran.err


def test_a_bad_problem_ends_with_2(harness: Harness, tmp_path: Path) -> None:
    problem = tmp_path / "bad.py"
    text = (REPOSITORY / "problems" / "group_norm.py").read_text()
    problem.write_text(text.replace("return self.gn(x)", "raise SystemExit(0)"))
    ran = harness("profile", SOLUTION, "--problem", problem, "--device", "cpu", "--case", "odd")
    assert ran.code == 2
    assert "bad.py" in ran.err
    assert "Traceback" not in ran.err


def test_without_nsight_compute_the_ways_to_get_it_are_told(harness: Harness, tmp_path: Path) -> None:
    ran = harness("profile", "group_norm/fused", "--ncu", "--device", "cuda:0", PATH=str(tmp_path))
    assert ran.code == 3
    for words in ("CUDA toolkit", "developer.nvidia.com", "conda install -c nvidia nsight-compute"):
        assert words in ran.err


def test_help_says_that_counters_are_read_unconfined(harness: Harness) -> None:
    ran = harness("profile", "--help")
    assert "UNCONFINED, as you" in " ".join(ran.out.split())
