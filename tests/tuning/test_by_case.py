"""Tests plans by case and held-out cases, with times that are given: on the imagined GPU of ``test_tune_gpu_path``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.errors import UsageError
from harness.rendering.stamp import parse_stamp
from harness.tuning.results import read_recorded
from tests.tuning.test_tune_gpu_path import FakeEvaluator, tune

__all__ = ["tune"]

BY_CASE = ("-p", "kind=right", "-p", "step=1", "--case", "small", "--case", "large", "--by-case")


@pytest.fixture(autouse=True)
def _more_cases(tune: Callable[..., Any]) -> None:
    path = Path("problems/tanh.py")
    path.write_text(path.read_text().replace('"large": {"n": 64}', '"large": {"n": 64}, "huge": {"n": 512}'))


def times(setting: dict[str, Any], plan_ms: float = 1.0) -> float:
    """The small case wants narrow settings, all others wide ones; eager takes 2 ms."""
    if "plan" in setting:
        return plan_ms if setting["case"] == "huge" else 1.0
    return float(setting["width"] / 8 if setting["case"] == "small" else 32 / setting["width"])


def test_a_plan_by_case_is_written_and_chooses_by_shape(tune: Callable[..., Any]) -> None:
    ran = tune(times, *BY_CASE, "--held-out", "huge", "--write", "by_shape")
    assert ran.return_value == 0
    assert "plan: case small: step=1 (record abc123)" in ran.stdout
    assert "plan: case large: step=1 width=32 (record abc123)" in ran.stdout
    assert "case huge: the result over the default: 4.0" in ran.stdout
    text = Path("solutions/tanh/by_shape.py").read_text()
    stamp = parse_stamp(text)
    assert stamp is not None
    assert stamp.intact
    assert "case small: step=1 (record abc123)" in str(stamp.parameters["plan"])
    made: dict[str, Any] = {}
    exec(compile(text, "by_shape.py", "exec"), made)
    assert made["module_for"](((8,),)) is made["setting_1"]()
    for length in (64, 500):
        assert made["module_for"](((length,),)) is made["setting_2"]()
    given = torch.tensor([0.5, 1.0])
    assert torch.equal(made["ModelNew"]()(given), torch.tanh(given))
    again = tune(times, *BY_CASE, "--write", "by_shape")  # a plan may be replaced, unless somebody edited it
    assert again.return_value == 0
    Path("solutions/tanh/by_shape.py").write_text(text + "# edited\n")
    with pytest.raises(UsageError, match="is edited by hand"):
        tune(times, *BY_CASE, "--write", "by_shape")


def test_a_plan_that_is_slower_than_the_default_elsewhere_is_not_written(tune: Callable[..., Any]) -> None:
    ran = tune(lambda setting: times(setting, 5.0), *BY_CASE, "--held-out", "huge", "--write", "by_shape")
    assert ran.return_value == 1
    assert "SLOWER" in ran.stdout
    assert "not confirmed: the result failed on a case or is slower than the default there" in ran.stdout
    assert not Path("solutions/tanh/by_shape.py").exists()


def test_the_file_has_all_searches_the_plan_and_what_confirms_it(
    tune: Callable[..., Any],
    tmp_path: Path,
) -> None:
    ran = tune(times, *BY_CASE, "--held-out", "huge", "--json", "-o", str(tmp_path / "out.json"))
    told = json.loads(ran.stdout)
    assert json.loads((tmp_path / "out.json").read_text()) == told
    assert [one["cases"] for one in told["searches"]] == [["small"], ["large"]]
    assert [(one["case"], one["settings"]["width"], one["record"]) for one in told["plan"]] == [
        ("small", 8, "abc123"),
        ("large", 32, "abc123"),
    ]
    assert [(one["case"], one["verdict"]) for one in told["held_out"]][-1] == ("huge", "FASTER")
    with pytest.raises(UsageError, match="is no file of a search"):
        read_recorded(tmp_path / "out.json")


def test_one_setting_for_all_is_confirmed_on_held_out_cases(tune: Callable[..., Any]) -> None:
    options = ("-p", "kind=right", "-p", "step=1", "--case", "large", "--held-out", "small", "--write", "wide_one")
    ran = tune(times, *options)
    assert ran.return_value == 1
    assert "winner: step=1 width=32" in ran.stdout
    assert "case small: the result over the default: 0.25" in ran.stdout
    assert not Path("solutions/tanh/wide_one.py").exists()
    fails = tune(lambda one: None if one["case"] == "small" and one["width"] == 32 else times(one), *options)
    assert "case small: the result over the default: CRASHED" in fails.stdout
    assert fails.return_value == 1


def test_one_setting_that_wins_on_every_case_is_one_setting(tune: Callable[..., Any]) -> None:
    ran = tune(lambda setting: setting["width"] / 8, *BY_CASE, "--write", "one")
    assert "one setting wins on every case" in ran.stdout
    stamp = parse_stamp(Path("solutions/tanh/one.py").read_text())
    assert stamp is not None
    assert stamp.parameters["width"] == 8
    assert all("result" not in str(one.name) for one in FakeEvaluator.asked)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--case", "small", "--by-case"), "--by-case needs at least two cases"),
        (("--case", "small", "--case", "small", "--by-case"), "--by-case needs at least two cases"),
        (("--case", "small", "--held-out", "small"), "the search sees this case"),
        (("--case", "small", "--held-out", "tiny"), "no case 'tiny'"),
        (("--held-out", "small", "--device", "cpu"), "--held-out needs a GPU"),
        (("--case", "small", "--case", "large", "--by-case", "--against", "error"), "leave out --against"),
    ],
)
def test_what_cannot_be_held_out_is_told(tune: Callable[..., Any], options: tuple[str, ...], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        tune(times, *options)
