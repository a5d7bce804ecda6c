"""Tests ``compare``: its operands, the winner, and what it refuses."""

from __future__ import annotations

import random
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.records.record import EvaluationRecord, PrecisionClass, Status
from harness.records.store import Store
from harness.timing.statistics import latency, median_interval, paired_ratios

Harness = Callable[..., Any]
REPOSITORY = Path(__file__).resolve().parents[2]


def measured(solution: str, candidate_ms: float, seed: int, spread: float = 0.02, **changes: Any) -> EvaluationRecord:
    """A record as a GPU gives it: 30 noisy pairs in either direction, eager at 10 and 20 ms."""
    noise = random.Random(seed)
    samples, speedups, medians, eager_medians = {}, {}, {}, {}
    for direction, factor in (("forward", 1.0), ("forward_backward", 2.0)):
        mine = [candidate_ms * factor * noise.uniform(1 - spread, 1 + spread) for _ in range(30)]
        eager = [10.0 * factor * noise.uniform(1 - spread, 1 + spread) for _ in range(30)]
        samples[direction] = {"candidate": vars(latency(mine, mine)), "eager": vars(latency(eager, eager))}
        speedups[direction] = median_interval(paired_ratios(mine, eager)).ratio
        medians[f"{direction}_ms"] = samples[direction]["candidate"]["median_ms"]
        eager_medians[f"{direction}_ms"] = samples[direction]["eager"]["median_ms"]
    record = EvaluationRecord(
        problem="norm",
        solution=solution,
        case="full",
        device="cuda:0",
        status=Status.PASSED,
        message="",
        seed="ab",
        digest=solution,
        problem_digest="p",
        precision_class=PrecisionClass.FP32,
        speedup=speedups,
        samples=samples,
        baselines={"eager": eager_medians},
        environment={"gpu": "NVIDIA H200", "torch": "2.13"},
        record=f"{seed:012x}",
        run="run-00000001",
        created_at="2026-01-01T00:00:00+00:00",
        **medians,
    )
    return replace(record, **changes)


def home_with(tmp_path: Path, records: Sequence[EvaluationRecord]) -> dict[str, str]:
    home = tmp_path / "home"
    with Store(home, writable=True) as store:
        for record in records:
            store.add(record, "")
    return {"HARNESS_HOME": str(home)}


SLOW, FAST = measured("norm/slow", 8.0, 0xAAAA), measured("norm/fast", 5.0, 0xBBBB)
TWIN = measured("norm/twin", 5.0, 0xCCCC)
WRONG = replace(measured("norm/wrong", 1.0, 0xDDDD), status=Status.WRONG_OUTPUT)
ELSEWHERE = replace(FAST, record="eeee" * 3, environment={"gpu": "NVIDIA L4"})
SMALL = replace(FAST, record="ffff" * 3, case="odd")
NAMES = {name: record.record for name, record in (
    ("slow", SLOW), ("fast", FAST), ("twin", TWIN), ("wrong", WRONG), ("elsewhere", ELSEWHERE), ("small", SMALL),
)}  # fmt: skip
EVERYTHING = (SLOW, FAST, TWIN, WRONG, ELSEWHERE, SMALL)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return home_with(tmp_path_factory.mktemp("compare"), EVERYTHING)


@pytest.mark.parametrize(
    ("names", "order", "winner"),
    [
        (("slow", "fast"), ["norm/fast", "norm/slow"], "norm/fast"),
        (("fast", "twin"), ["norm/fast", "norm/twin"], None),
        (("wrong", "slow"), ["norm/slow", "norm/wrong"], None),
        (("wrong", "slow", "fast"), ["norm/fast", "norm/slow", "norm/wrong"], "norm/fast"),
    ],
)
def test_the_fastest_comes_first_and_wins_only_beyond_noise(
    harness: Harness, environment: dict[str, str], names: tuple[str, ...], order: list[str], winner: str | None
) -> None:
    arguments = [NAMES[name] for name in names]
    (row,) = harness("compare", *arguments, "--json", **environment).rows
    (group,) = row["groups"]
    found = [one["candidate"].partition(" ")[0] for one in group["rows"]]
    if winner is None and "wrong" not in names:
        assert sorted(found) == order
    else:
        assert found == order
    winners = {lead["winner"] and lead["winner"].partition(" ")[0] for lead in group["leads"].values()}
    assert winners <= {winner} if group["leads"] else winner is None
    ran = harness("compare", *arguments, **environment)
    assert ran.code == 0
    assert ("wins" in ran.out) is (winner is not None)
    assert ("no winner" in ran.out) is (winner is None)


def test_the_interval_is_that_of_paired_speedups(harness: Harness, environment: dict[str, str]) -> None:
    (row,) = harness("compare", NAMES["slow"], NAMES["fast"], "--json", **environment).rows
    lead = row["groups"][0]["leads"]["forward"]
    low, high = lead["interval"]
    assert 1.55 < low < lead["ratio"] < high < 1.65
    assert lead["ratio"] == pytest.approx(FAST.speedup["forward"] / SLOW.speedup["forward"])  # type: ignore[index]


def test_the_samples_count_whatever_a_file_says_of_their_ratio(harness: Harness, tmp_path: Path) -> None:
    for name, record in (("a", replace(SLOW, speedup={"forward": 99.0})), ("b", replace(SLOW, **_latency(FAST)))):
        (tmp_path / f"{name}.jsonl").write_text(replace(record, solution="norm/x").to_json())
    ran = harness("compare", tmp_path / "a.jsonl", tmp_path / "b.jsonl", "--json")
    leads = ran.rows[0]["groups"][0]["leads"]
    assert {lead["winner"] for lead in leads.values()} == {str(tmp_path / "b.jsonl")}
    assert all(lead["interval"][0] > 1 for lead in leads.values())


def _latency(record: EvaluationRecord) -> dict[str, Any]:
    return {"samples": record.samples, "speedup": None}


def test_markdown_is_a_table(harness: Harness, environment: dict[str, str]) -> None:
    ran = harness("compare", NAMES["slow"], NAMES["fast"], "--markdown", **environment)
    lines = ran.out.splitlines()
    assert lines[0] == "### norm full on NVIDIA H200"
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 4
    assert len({line.count("|") for line in table}) == 1
    assert table[2].startswith("| norm/fast")
    assert any(line.startswith("- forward: norm/fast") for line in lines)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["{slow}", "{elsewhere}"], 2, "different devices (NVIDIA H200, NVIDIA L4)"),
        (["{slow}", "{elsewhere}", "--force"], 0, "note: different devices"),
        (["{slow}", "{elsewhere}", "--force"], 0, "norm full on NVIDIA H200 and NVIDIA L4\n"),
        (["{slow}", "{elsewhere}", "--force", "--markdown"], 0, "norm/fast (eeeeeeeeeeee) on NVIDIA L4 |"),
        (["{fast}", "{small}"], 2, "different cases (full, odd)"),
        (["{fast}", "{small}", "--force"], 0, "note: different cases"),
        (["{fast}"], 2, "at least two"),
        (["{fast}", "{fast}"], 2, "at least two"),
        ([], 2, "Missing argument"),
        (["{fast}", "run-00000001"], 2, "compare runs with runs"),
        (["{fast}", "run-12345678"], 2, "no run 'run-12345678'"),
        (["{fast}", "123456"], 2, "no record '123456'"),
        (["{fast}", "group_norm/fuse"], 2, "Did you mean 'fused'?"),
        (["{fast}", "group_norm/fused"], 2, "evaluate group_norm/fused`"),
        (["{fast}", "group_norm", "--case", "odd"], 2, "evaluate group_norm --case odd`"),
        (["{fast}", "group_norm", "--case", "small"], 2, "evaluate group_norm`"),
        (["{fast}", "group_norm", "--case", "ood"], 2, "no case 'ood'. Did you mean 'odd'?"),
        (["{fast}", "{slow}", "--json", "--markdown"], 2, "cannot be used together"),
        (["run-00000001", "run-00000001"], 2, "at least two"),
        (["norm/a", "norm/b"], 2, "is not a problem"),
    ],
)
def test_what_is_compared_and_what_is_refused(
    harness: Harness, environment: dict[str, str], arguments: list[str], code: int, words: str
) -> None:
    ran = harness("compare", *(argument.format(**NAMES) for argument in arguments), **environment)
    assert (ran.code, words in ran.out + ran.err) == (code, True), ran.out + ran.err
    assert "Traceback" not in ran.err
    assert not (code == 2 and ran.out)


def test_runs_are_compared_solution_by_solution(harness: Harness, environment: dict[str, str], tmp_path: Path) -> None:
    later = tmp_path / "later.jsonl"
    records = [replace(measured("norm/slow", 4.0, 7), run="run-2"), measured("norm/new", 4.0, 8)]
    later.write_text("".join(record.to_json(stored=False) + "\n\n" for record in records))
    earlier = tmp_path / "earlier.jsonl"
    earlier.write_text("".join(record.to_json() + "\n" for record in (SLOW, FAST)))
    ran = harness("compare", earlier, later, "--json", **environment)
    (group,) = ran.rows[0]["groups"]
    assert group["title"] == "norm/slow full on NVIDIA H200"
    assert [one["candidate"] for one in group["rows"]] == [str(later), str(earlier)]
    assert "left out" in ran.err
    assert "norm/fast" in ran.err
    assert "norm/new" in ran.err
    exported = harness("export", "--jsonl", "-o", tmp_path / "all.jsonl", **environment)
    assert exported.code == 0
    ran = harness("compare", tmp_path / "all.jsonl", later, "--case", "full", **environment)
    assert ran.code == 0
    ran = harness("compare", tmp_path / "all.jsonl", later, "--case", "none", **environment)
    assert ran.code == 2
    assert "nothing in common to compare among the cases none" in ran.err


GROUP_NORM = ("fused", "plain", "streamed")


def test_the_command_to_judge_a_solution_first_works_as_it_is_typed(
    harness: Harness, own_home: Path, tmp_path: Path
) -> None:
    """For a name with a space, a problem that has no name here, and a folder that no problem is named after."""
    root, problem = tmp_path / "root", tmp_path / "elsewhere.py"
    (root / "problems").mkdir(parents=True)
    drafts = root / "solutions" / "my drafts"
    drafts.mkdir(parents=True)
    problem.write_text((REPOSITORY / "problems" / "group_norm.py").read_text())
    for name in ("a.py", "b.py"):
        (drafts / name).write_text("")
    home = ("--home", str(own_home))
    ran = harness("compare", drafts / "a.py", drafts / "b.py", "--problem", problem, "--root", root, *home)
    assert ran.code == 2
    words = shlex.split(ran.err.split("`")[1])
    assert words[:4] == ["python", "-m", "harness", "evaluate"]
    judged = harness(*words[3:], "--device", "cpu", "--case", "odd", "--json")
    assert [row["status"] for row in judged.rows] == ["LOAD_ERROR"]


def test_solutions_are_compared_by_their_newest_records(harness: Harness, own_home: Path) -> None:
    environment = {"HARNESS_HOME": str(own_home)}
    chosen = ("--device", "cpu", "--case", "odd", "--forward-only")
    assert harness("evaluate", "group_norm", *chosen, **environment).code == 0
    ran = harness("compare", *(f"group_norm/{name}" for name in GROUP_NORM), **environment)
    assert ran.code == 0, ran.err
    assert "group_norm odd on CPU emulator" in ran.out
    assert "no winner: that takes two that passed and have a measured speed" in ran.out
    both = harness("compare", "group_norm", **environment)
    assert both.out == ran.out


@pytest.mark.parametrize(
    ("names", "share", "code", "words"),
    [
        (("fast", "slow"), "5%", 1, "forward: norm/slow (00000000aaaa) is 0.6"),
        (("fast", "slow"), "0.5", 0, ""),
        (("slow", "fast"), "5%", 0, ""),
        (("fast", "twin"), "5%", 0, ""),
        (("slow", "wrong"), "5%", 1, "WRONG_OUTPUT, norm/slow (00000000aaaa) passed"),
        (("slow", "fast"), "5 apples", 2, "is not a share: write 5% or 0.05"),
        (("slow", "fast"), "120%", 2, "is not a share"),
        (("slow", "fast"), "nan", 2, "is not a share"),
    ],
)
def test_what_has_become_slower_fails_where_that_is_wanted(
    harness: Harness, environment: dict[str, str], names: tuple[str, ...], share: str, code: int, words: str
) -> None:
    ran = harness("compare", *(NAMES[name] for name in names), "--fail-on", share, **environment)
    assert ran.code == code, ran.err
    assert words in ran.err
    assert bool(words) == bool(ran.err)


@pytest.mark.parametrize(
    ("candidate_ms", "spread", "verdict"),
    [(5.0, 0.02, "FASTER"), (20.0, 0.02, "SLOWER"), (10.0, 0.001, "SAME"), (10.0, 0.2, "UNCLEAR")],
)
def test_a_verdict_over_eager_follows_from_the_interval(
    harness: Harness, tmp_path: Path, candidate_ms: float, spread: float, verdict: str
) -> None:
    records = [measured("norm/one", candidate_ms, 0xABC0, spread), measured("norm/other", 3.0, 0xABC1)]
    environment = home_with(tmp_path, records)
    (row,) = harness("compare", *(record.record for record in records), "--json", **environment).rows
    (found,) = [one for one in row["groups"][0]["rows"] if one["candidate"].startswith("norm/one")]
    assert found["over_eager"]["forward"]["verdict"] == verdict
    ran = harness("compare", *(record.record for record in records), **environment)
    assert verdict in ran.out
