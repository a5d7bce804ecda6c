"""Tests ``evaluate``: selectors, cases, settings, outputs and exit codes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Harness = Callable[..., Any]
REPOSITORY = Path(__file__).resolve().parents[2]
HONEST = REPOSITORY / "tests" / "faults" / "group_norm.py"
PROMISED_KEYS = {
    *("problem", "solution", "case", "device", "status", "message", "outputs", "gradients", "precision_class"),
    *("forward_ms", "forward_backward_ms", "baselines", "speedup", "seed", "digest", "environment"),
    *("peak_bytes", "floor", "modes", "device_state", "stages_s"),
}


def test_everything_that_fits_passes_and_the_rest_is_named(harness: Harness) -> None:
    ran = harness("evaluate", "group_norm/fused", "group_norm_half", "--device", "cpu")
    assert ran.code == 0, ran.out
    assert ran.out.count("PASSED") >= 2
    assert len(ran.out.splitlines()) <= 40  # one screen
    assert ran.out.splitlines()[-1].startswith(f"{ran.out.count('PASSED')} passed, 0 failed (")
    assert "left out case 'full'" in ran.err


def test_a_row_holds_what_is_promised(harness: Harness) -> None:
    ran = harness("evaluate", HONEST, "--problem", "group_norm", "--case", "odd", "--json")
    (row,) = ran.rows
    assert set(row) >= PROMISED_KEYS
    assert (row["problem"], row["case"], row["device"], row["status"]) == ("group_norm", "odd", "cpu", "PASSED")
    assert row["forward_ms"] is None
    assert row["speedup"] is None
    assert row["precision_class"] == "fp32"
    assert row["environment"]["torch"]
    again = harness("evaluate", HONEST, "--problem", "group_norm", "--case", "odd", "--json", "--seed", row["seed"])
    (same,) = again.rows
    assert same["digest"] == row["digest"]
    assert same["digests"].keys() == row["digests"].keys()
    for name, bits in row["digests"].items():  # the last trial is on a draw that no other evaluation gets
        assert same["digests"][name][:-1] == bits[:-1], name


def test_a_setting_makes_one_case_of_its_own(harness: Harness) -> None:
    ran = harness(
        "evaluate", HONEST, "--problem", "problems/group_norm.py", "--set", "batch_size=2", "--set", "dim1=3",
        "--set", "dim2=5", "--json",
    )  # fmt: skip
    (row,) = ran.rows
    assert row["case"] == "custom"
    assert row["constants"] == {"batch_size": 2, "dim1": 3, "dim2": 5}
    assert row["outputs"][0]["shape"] == [2, 64, 3, 5]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["group_nrom"], "Did you mean 'group_norm'"),
        (["group_norm/nothing"], "has no solution 'nothing'"),
        (["missing.py"], "no such file: missing.py"),
        ([str(HONEST)], "--problem"),
        ([str(HONEST), "--problem", "group"], "no problem 'group'"),
        (["--case", "ful"], "Did you mean 'full'"),
        (["--set", "batchsize=3"], "Did you mean 'batch_size'"),
        (["--set", "batch_size"], "NAME=VALUE"),
        (["--set", "batch_size=3", "--case", "odd"], "cannot be used together"),
        (["--device", "tpu"], "'tpu'"),
        (["--no-timing", "--baseline", "compile"], "--baseline and --no-timing cannot be used together"),
        (["--no-timing", "--fail-below", "1.2"], "--fail-below and --no-timing cannot be used together"),
        (["--timeout", "0"], "--timeout"),
        (["--seed", "xyz"], "hex"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_wrong_usage_is_told_and_ends_with_2(harness: Harness, arguments: list[str], words: str) -> None:
    ran = harness("evaluate", *arguments)
    assert ran.code == 2
    assert words in ran.err
    assert "Traceback" not in ran.err
    assert ran.out == ""


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("return self.gn(x)", "return self.gn(x)[0, 0] / undefined", "undefined"),
        ("return [torch.rand(shape).mul_(scale)]", "return torch.rand(shape)", "returned Tensor, not a list"),
        ("return [torch.rand(shape).mul_(scale)]", "raise OSError('no data')", "no data"),
        ("return [features, num_groups]", "return [features, object()]", "object"),
        ("return self.gn(x)", "return {self.gn(x)}", "output is set"),
        ("num_groups = 8", "num_groups = 7", "divisible"),
        ("class Model", "class Madel", "defines no Model"),
    ],
)
def test_a_bad_problem_ends_with_2(harness: Harness, tmp_path: Path, old: str, new: str, words: str) -> None:
    text = (REPOSITORY / "problems" / "group_norm.py").read_text()
    assert old in text
    path = tmp_path / "broken.py"
    path.write_text(text.replace(old, new))
    case = [] if "num_groups = 7" in new else ["--case", "odd"]
    ran = harness("evaluate", HONEST, "--problem", path, *case, *(["--case", "cpu"] if not case else []))
    assert ran.code == 2
    assert words in ran.err
    assert "Traceback" not in ran.err


def test_a_bad_problem_does_not_keep_the_others_from_finishing(harness: Harness, tmp_path: Path) -> None:
    (tmp_path / "problems").mkdir()
    good = (REPOSITORY / "problems" / "group_norm.py").read_text()
    (tmp_path / "problems" / "a_bad.py").write_text(good.replace("return self.gn(x)", "return self.gn(undefined)"))
    (tmp_path / "problems" / "good.py").write_text(good)
    for name in ("a_bad", "good"):
        (tmp_path / "solutions" / name).mkdir(parents=True)
        shutil.copy(HONEST, tmp_path / "solutions" / name / "plain.py")
    ran = harness("evaluate", "--case", "odd", "--json", cwd=tmp_path)
    assert ran.code == 2
    assert "a_bad.py:" in ran.err
    assert [row["solution"] for row in ran.rows] == ["good/plain"]
    assert ran.rows[0]["status"] == "PASSED"


def test_without_a_compiler_the_package_is_named(harness: Harness, tmp_path: Path) -> None:
    ran = harness("evaluate", "--case", "odd", PATH=str(tmp_path), CXX="", HARNESS_HOME=str(tmp_path / "home"))
    assert ran.code == 3
    assert "apt-get install g++" in ran.err
    assert "Traceback" not in ran.err


def test_an_unwritable_home_is_told(harness: Harness, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = harness("evaluate", "--case", "odd", HARNESS_HOME=str(tmp_path / "file" / "home"))
    assert ran.code == 3
    assert str(tmp_path / "file") in ran.err
    assert "Traceback" not in ran.err


def test_reference_parameters_may_be_matched_by_map_or_shape_and_made_by_own_arguments(
    harness: Harness, tmp_path: Path
) -> None:
    text = HONEST.read_text()
    text = text.replace("self.gn = nn.GroupNorm(num_groups, num_features)", "\n".join([
        "self.groups = num_groups",
        "        self.shift = nn.Parameter(torch.rand(num_features))",
        "        self.gain = nn.Parameter(torch.rand(num_features))",
    ]))  # fmt: skip
    used = "self.gn.weight, self.gn.bias, self.gn.num_groups, self.gn.eps"
    text = text.replace(used, "self.gain, self.shift, self.groups, 1e-5")
    swapped = tmp_path / "swapped.py"
    swapped.write_text(text)
    mapped = tmp_path / "mapped.py"
    mapped.write_text(text + "\n\nPARAMETER_MAP = {'gain': 'gn.weight', 'shift': 'gn.bias'}\n")
    own = tmp_path / "own.py"
    own.write_text(
        HONEST.read_text().replace("def __init__(self, num_features, num_groups)", "def __init__(self, sizes)")
        .replace("super().__init__()\n", "super().__init__()\n        num_features, num_groups = sizes\n")
        + "\n\nfeatures = 64\nnum_groups = 8\n\n\ndef get_init_inputs():\n    return [(features, num_groups)]\n"
    )  # fmt: skip
    ran = harness("evaluate", swapped, mapped, own, "--problem", "group_norm", "--case", "odd", "--json")
    statuses = {Path(row["solution"]).stem: row["status"] for row in ran.rows}
    assert statuses == {"swapped": "WRONG_OUTPUT", "mapped": "PASSED", "own": "PASSED"}, ran.out


DRIVER = """
import sys

sys.argv = ["harness", *sys.argv[1:]]
from harness.__main__ import run

code = run()
print("the driver has imported torch:", "torch" in sys.modules, file=sys.stderr)
sys.exit(code)
"""


def test_the_driver_imports_no_torch(home: Path) -> None:
    """Lanes import it, for seconds each; the driver would need as long beside them."""
    arguments = ["evaluate", "group_norm/fused", "--case", "odd", "--device", "cpu", "--fresh"]
    ran = subprocess.run(
        [sys.executable, "-c", DRIVER, *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "HARNESS_HOME": str(home), "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert "the driver has imported torch: False" in ran.stderr
