"""Tests the path of a GPU with an evaluator that is given: short runs, finals, the winner's file, the words."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest
from click.testing import CliRunner

from harness.commands.tune import command
from harness.errors import LimitExceeded, UsageError
from harness.evaluator import Answer, Entry
from harness.records.kernels import CompiledKernel
from harness.records.record import EvaluationRecord, PrecisionClass, Status
from harness.rendering.stamp import parse_stamp

SAMPLES = 40


class FakeEvaluator:
    """Stands for ``Evaluator`` on a GPU that nobody has: the times follow from the parameters."""

    opened: ClassVar[list[dict[str, Any]]] = []
    asked: ClassVar[list[Entry]] = []
    #: The time of a setting, by its parameters; None if it fails in full.
    time_ms: Callable[[dict[str, Any]], float | None]

    def __init__(self, device: str, home: Path, **options: Any):
        self.device, self._options = device, options
        FakeEvaluator.opened.append(options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def stream(self, entries: Iterable[Entry], ahead: int | None = None) -> Iterator[Answer]:
        for entry in entries:
            FakeEvaluator.asked.append(entry)
            stamp = parse_stamp(str(entry.candidate))
            assert stamp is not None
            is_short = entry.trials is not None
            built = () if "plan" in stamp.parameters else compiled(int(str(stamp.parameters["width"])))
            if words := entry.limits_of_kernels.excess(built) if entry.limits_of_kernels else "":
                yield Answer(entry, (), LimitExceeded(words))
                continue
            made = []
            for case in entry.cases or ("full",):
                time_ms = FakeEvaluator.time_ms({**stamp.parameters, "case": case})
                passes = stamp.parameters.get("kind", "right") == "right" and (time_ms is not None or is_short)
                one = replace(record(str(entry.name), time_ms or 0.5, passes), case=case)
                best = (entry.to_beat or {}).get(case, 0.0)
                if 0 < 1.1 * 2.0 / (time_ms or 0.5) < best:
                    one = replace(one, message=f"note: speed (forward) is of 6 pairs only: behind {best}")
                width = int(str(stamp.parameters.get("width", 8)))
                peaks = {"forward": {"candidate": 100 * 2**20 // width, "eager": 2**20}}
                made.append(replace(one, peak_bytes=peaks))
            yield Answer(entry, tuple(made))


def compiled(width: int) -> tuple[CompiledKernel, ...]:
    """What nvcc would say of a setting's only kernel: it spills where more than 16 values are held."""
    spilled = max(0, width - 16) * 4
    return (CompiledKernel("tile", "sm_90", 8 * width, 0, spilled, spilled, 0, None),)


def record(name: str, time_ms: float, passes: bool) -> EvaluationRecord:
    """A record; a negative time is one that the judge could not measure."""
    draw = random.Random(name)
    is_timed = passes and time_ms > 0
    mine = [time_ms * (1 + 0.001 * draw.uniform(-1, 1)) for _ in range(SAMPLES)]
    return EvaluationRecord(
        problem="tanh", solution=name, case="full", device="cuda:0", status=Status.PASSED if passes else Status.CRASHED,
        message="" if time_ms > 0 else "note: speed was not measured: no memory",
        seed="", digest="d", problem_digest="p", precision_class=PrecisionClass.FP32, record="abc123",
        created_at="9999", environment={"gpu": "Imagined GPU"}, forward_ms=time_ms,
        speedup={"forward": 2.0 / time_ms} if is_timed else None,
        samples={"forward": {"candidate": {"samples_ms": mine}, "eager": {"samples_ms": [2.0] * SAMPLES}}},
    )  # fmt: skip


@pytest.fixture
def tune(make_project: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs ``tune tanh`` on the imagined GPU; the times come from a function."""
    root = make_project()
    monkeypatch.setattr("harness.tuning.run.Evaluator", FakeEvaluator)
    monkeypatch.setattr(FakeEvaluator, "opened", [])
    monkeypatch.setattr(FakeEvaluator, "asked", [])
    monkeypatch.chdir(root)

    def run(time_ms: Callable[[dict[str, Any]], float | None], *options: str) -> Any:
        monkeypatch.setattr(FakeEvaluator, "time_ms", staticmethod(time_ms), raising=False)
        words = ["tanh", "--device", "cuda:0", "--home", str(tmp_path / "home"), "--root", str(root), *options]
        return CliRunner().invoke(command, words, standalone_mode=False, catch_exceptions=False)

    return run


def test_the_fastest_wins_is_written_and_explained(tune: Callable[..., Any]) -> None:
    ran = tune(lambda setting: 0.5 + setting["step"] / 10 + abs(setting["width"] - 16) / 16, "--write", "best")
    assert ran.return_value == 0
    assert "tanh on Imagined GPU, case full: 26 of 26 valid settings, strategy pattern, seed 0" in ran.stdout
    assert "winner: step=1 width=16" in ran.stdout
    assert "after 1 settings: 0.6000 of eager's time, default" in ran.stdout
    assert "10 passed, 16 failed" in ran.stdout
    assert "correctness only" not in ran.stdout
    stamp = parse_stamp(Path("solutions/tanh/best.py").read_text())
    assert stamp is not None
    assert (stamp.intact, stamp.parameters["step"], stamp.parameters["width"]) == (True, 1, 16)
    assert len(FakeEvaluator.opened) == 1
    *_, last, best, default = [(one.trials, one.fresh) for one in FakeEvaluator.asked]
    assert (last, best, default) == ((1, False), (None, False), (None, False))


def test_later_settings_are_to_beat_the_fastest_one_so_far(tune: Callable[..., Any]) -> None:
    ran = tune(lambda setting: setting["width"] / 16, "-p", "kind=right", "--strategy", "exhaustive")
    assert "7 settings were timed in fewer pairs, since they are far behind the fastest one" in ran.stdout
    in_search = [one for one in FakeEvaluator.asked if one.trials == 1 and not one.fresh]
    finals = [one for one in FakeEvaluator.asked if one not in in_search]
    assert finals
    assert not any(one.to_beat for one in [in_search[0], *finals])
    speedups = [one.to_beat["full"] for one in in_search[1:]]
    assert speedups == sorted(speedups)
    assert speedups[-1] == pytest.approx(2.0 / 0.5, rel=0.01)


def test_a_setting_whose_kernels_exceed_a_limit_does_not_run(tune: Callable[..., Any]) -> None:
    params = Path("templates/tanh/params.toml")
    params.write_text(
        'problem = "tanh"\n[limits]\nspilled_bytes = "32 * step"\n' + params.read_text().partition("\n")[2]
    )
    ran = tune(lambda setting: 8 / setting["width"], "-p", "kind=right", "--json")
    told = json.loads(ran.stdout)
    missing = [one for one in told["trials"] if one["status"] == "NOT_RUN"]
    assert {(one["settings"]["step"], one["settings"]["width"]) for one in missing} == {(1, 32)}
    assert [one["message"] for one in missing] == ["nvcc gives tile spilled_bytes=64, and the limit is 32"]
    assert told["finals"]["winner"]["width"] == 32  # with a step of 2, which may spill 64 bytes
    assert ran.return_value == 0
    ran = tune(lambda setting: 8 / setting["width"], "-p", "kind=right")
    assert "9 passed, 1 failed: 1 NOT_RUN" in ran.stdout
    assert all(one.limits_of_kernels is None for one in FakeEvaluator.asked if one.trials is None)  # in the finals


def test_against_memory_all_settings_are_timed_alike(tune: Callable[..., Any]) -> None:
    pytest.importorskip("optuna")
    tune(lambda setting: setting["width"] / 16, "-p", "kind=right", "--against", "memory")
    assert all(not one.to_beat for one in FakeEvaluator.asked)


def test_of_equal_settings_the_default_wins(tune: Callable[..., Any]) -> None:
    ran = tune(lambda _: 1.0, "--json")
    told = json.loads(ran.stdout)
    assert told["finals"]["winner"] == told["start"]
    assert {one["verdict"] for one in told["finals"]["finalists"]} == {"SAME"}
    assert told["influence"][0]["share"] == 0
    assert told["best_so_far"][0]["settings_judged"] == 1


def test_one_that_fails_in_full_is_no_winner(tune: Callable[..., Any]) -> None:
    ran = tune(lambda setting: None if setting["width"] == 16 else 1.0, "--write", "best", "-p", "kind=right")
    assert "out of the finals: width=16 failed in full, or lost its time" in ran.stdout
    assert "winner: default" in ran.stdout
    assert Path("solutions/tanh/best.py").exists()
    ran = tune(lambda setting: None, "--write", "none", "-p", "kind=right")
    assert "no winner: no finalist passed in full with a time" in ran.stdout
    assert ran.return_value == 1
    assert not Path("solutions/tanh/none.py").exists()


def test_a_budget_is_kept_and_nothing_right_is_no_winner(tune: Callable[..., Any]) -> None:
    ran = tune(lambda _: 1.0, "-p", "kind=wrong,crash", "--budget", "3", "--strategy", "random")
    assert "3 of 8 valid settings" in ran.stdout
    assert "0 passed, 3 failed: 3 CRASHED" in ran.stdout
    assert ran.return_value == 1
    assert len(FakeEvaluator.opened) == 1


def test_settings_that_pass_without_a_time_say_why(tune: Callable[..., Any]) -> None:
    ran = tune(lambda _: -1.0, "-p", "kind=right", "--budget", "2")
    assert "2 settings passed without a time: speed was not measured: no memory" in ran.stdout
    assert ran.return_value == 1


def test_settings_that_nothing_beats_in_time_and_memory_are_told(tune: Callable[..., Any]) -> None:
    pytest.importorskip("optuna")
    ran = tune(lambda setting: 0.5 + setting["width"] / 16, "--against", "memory", "-p", "kind=right", "--json")
    told = json.loads(ran.stdout)
    assert told["strategy"] == "nsga2"
    widths = [one["width"] for one in told["front"]]
    assert widths == sorted(set(widths))
    assert len(widths) > 1
    assert {one["peak_bytes"] for one in told["trials"]} == {
        100 * 2**20 // one["settings"]["width"] for one in told["trials"]
    }
    ran = tune(lambda setting: 0.5 + setting["width"] / 16, "--against", "memory", "-p", "kind=right")
    assert "not beaten in both" in ran.stdout
    assert "peak MiB" in ran.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--strategy", "nsga2"), "belong together"),
        (("--strategy", "random", "--against", "error"), "belong together"),
        (("--against", "error", "--device", "cpu"), "--against needs a GPU"),
    ],
)
def test_a_second_objective_has_its_strategy_and_a_gpu(
    tune: Callable[..., Any], options: tuple[str, ...], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        tune(lambda _: 1.0, *options)
