"""Tests the script that counts the judge's mistakes: its candidates, and its recognition of a mistake."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harness.project.problems import read_problem

REPOSITORY = Path(__file__).resolve().parents[2]
VARIANTS = (REPOSITORY / "benchmarks" / "variants").glob("*.py.j2")
PROBLEMS = sorted({path.name.partition(".")[0] for path in VARIANTS} - {"pieces"})
TEN_BIT, SEVEN_BIT = (f"x: its precision is of class {name}, which is not allowed" for name in ("10-bit", "7-bit"))
STUDIES = ("honest", "wrong", "rounded")


@pytest.fixture(autouse=True)
def _from_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripts import each other, as ``python -m`` has it."""
    monkeypatch.syspath_prepend(str(REPOSITORY))


def module(name: str) -> ModuleType:
    return importlib.import_module(f"benchmarks.{name}")


def row(study: str, expected: bool, **fields: Any) -> Any:
    blank = module("verdicts").Row(study, "p", "kind", "odd", "1", "PASSED", expected, 0.5, None, (), "", 1.0)
    return replace(blank, **fields)


# ------------------------------------------------------------------ candidates


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("study", STUDIES)
def test_every_kind_is_a_file_of_its_own_that_imports(study: str, problem: str) -> None:
    kinds = module(f"variants.{study}").kinds_of(problem)
    sources = {}
    for kind in kinds:
        text = module("variants.kind").source(problem, kind)
        space: dict[str, Any] = {}
        exec(compile(text, f"{kind.name}.py", "exec"), space)
        assert space["ModelNew"].__doc__ or space["ModelNew"].__bases__
        assert text.startswith(f'"""{problem}, {kind.name}: ')
        sources[kind.name] = text.partition('"""\n')[2]
    assert len(set(sources.values())) == len(sources) == len(kinds)


def test_there_are_fifty_honest_ones_that_need_no_gpu() -> None:
    honest = [kind for problem in PROBLEMS for kind in module("variants.honest").kinds_of(problem) if not kind.device]
    assert len(honest) >= 50


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_kind_replaces_functions_that_there_are(problem: str) -> None:
    """A misspelt one would replace nothing: the wrong candidate would be right."""
    kinds = module("variants.kind")
    plain = kinds.source(problem, module("variants.honest").TWO_PASS)
    for study in STUDIES:
        for kind in module(f"variants.{study}").kinds_of(problem):
            space: dict[str, Any] = {}
            exec(plain, space)
            before = dict(space)
            exec(kind.text, space)
            changed = [name for name in before if name != "__builtins__" and space[name] is not before[name]]
            assert changed or not kind.text, kind.name


def test_cases_left_out_are_cases() -> None:
    known = {case for problem in PROBLEMS for case in read_problem(REPOSITORY / "problems" / f"{problem}.py").cases}
    for problem in PROBLEMS:
        for kind in module("variants.wrong").kinds_of(problem):
            assert kind.but <= known, kind.name


# ------------------------------------------------------------------ what is judged


def test_rounds_go_through_kinds_and_cases() -> None:
    verdicts, kind = module("verdicts"), module("variants.kind").Kind
    kinds = [kind(f"kind_{number}", "", but=frozenset({"b"} if number == 3 else ())) for number in range(7)]
    problem = read_problem(REPOSITORY / "problems" / "group_norm.py")
    planned = list(verdicts.plan("wrong", problem, ["a", "b", "c"], kinds, 28))
    assert [one.name for _, _, one in planned] == [one.name for one in kinds] * 4
    assert [seed for _, seed, _ in planned] == [seed for seed in "1234" for _ in range(7)]
    met: dict[str, set[str]] = {}
    for case, _, one in planned:
        met.setdefault(one.name, set()).add(case)
    assert met.pop("kind_3") <= {"a", "c"}
    assert all(cases == {"a", "b", "c"} for cases in met.values())
    assert len({(case, seed) for case, seed, _ in planned}) < len(planned) / 2  # several files a command


def test_a_kind_that_fits_no_case_is_told() -> None:
    verdicts, kind = module("verdicts"), module("variants.kind").Kind
    problem = read_problem(REPOSITORY / "problems" / "group_norm.py")
    with pytest.raises(Exception, match="group_norm: none is no wrong candidate in any of these cases"):
        list(verdicts.plan("wrong", problem, ["a"], [kind("none", "", but=frozenset({"a"}))], 1))


@pytest.mark.parametrize(
    ("study", "precision", "problem", "status", "message", "level", "expected"),
    [
        ("honest", None, "group_norm", "PASSED", "", "report", True),
        ("honest", None, "group_norm", "PASSED", "", "error", False),
        ("honest", None, "group_norm", "WRONG_OUTPUT", "", "report", False),
        ("wrong", None, "group_norm", "WRONG_GRADIENT", "", "report", True),
        ("wrong", None, "group_norm", "PASSED", "", "report", False),
        ("wrong", None, "group_norm", "CRASHED", "", "report", False),
        ("rounded", "10-bit", "group_norm", "WRONG_OUTPUT", TEN_BIT, "report", True),
        ("rounded", "10-bit", "group_norm", "WRONG_OUTPUT", SEVEN_BIT, "report", False),
        ("rounded", "7-bit", "group_norm", "WRONG_OUTPUT", f"{TEN_BIT}\n{SEVEN_BIT}", "report", False),
        ("rounded", "10-bit", "group_norm", "WRONG_OUTPUT", f"{TEN_BIT}\n{SEVEN_BIT}", "report", True),
        ("rounded", "10-bit", "group_norm", "PASSED", "", "report", False),
        ("rounded", "10-bit", "conv_transpose2d_gelu_group_norm", "PASSED", "", "report", True),
        ("rounded", "10-bit", "conv_transpose2d_gelu_group_norm", "WRONG_OUTPUT", "", "report", False),
        ("rounded", "7-bit", "conv_transpose2d_gelu_group_norm", "PASSED", "", "report", False),
    ],
)
def test_a_verdict_is_as_expected(
    study: str, precision: str | None, problem: str, status: str, message: str, level: str, expected: bool
) -> None:
    kind = module("variants.kind").Kind("kind", "", precision=precision)
    record = {"status": status, "message": message, "findings": [{"kind": "race", "level": level}]}
    read = read_problem(REPOSITORY / "problems" / f"{problem}.py")
    assert module("verdicts").as_expected(study, kind, read, record) is expected


# ------------------------------------------------------------------ figures


@pytest.mark.parametrize(("events", "total", "bound"), [(0, 200, 0.014867), (1, 200, 0.0234985), (3, 3, 1.0)])
def test_the_upper_bound_is_exact(events: int, total: int, bound: float) -> None:
    assert module("verdicts").upper_bound(events, total) == pytest.approx(bound, rel=1e-4)


def test_a_mistake_is_counted_and_told() -> None:
    rows = [row("honest", True)] * 3 + [row("wrong", True), row("wrong", False, case="cpu", message="it passed")]
    told = module("verdicts").report(rows)
    assert "not as expected: wrong, p, kind, cpu, seed 1: PASSED: it passed" in told
    assert "| honest | 1 | 1 | 3 | 0 | 0.00% | 63.16% |" in told
    assert "| wrong | 1 | 2 | 2 | 1 | 50.00% | 97.47% |" in told


@pytest.mark.parametrize(
    ("study", "kinds", "end"),
    [("honest", ["welford"], "PASSED"), ("wrong", ["eps_twice", "lost_carry"], "WRONG_OUTPUT")],
)
def test_honest_ones_pass_and_wrong_ones_do_not(
    study: str, kinds: list[str], end: str, tmp_path: Path, home: Path
) -> None:
    problems = ["group_norm", "gemm_group_norm_min_bias_add"]
    given = [*problems, "--study", study, "--case", "odd", "--device", "cpu", "--no-solutions", "--jobs", "2"]
    given += ["--evaluations", str(2 * len(kinds)), *(word for kind in kinds for word in ("--kind", kind))]
    options = module("verdicts").arguments().parse_args([*given, "--json", str(tmp_path / "found.json")])
    found: list[Any] = []
    module("verdicts").run(options, REPOSITORY, home, tmp_path, found)
    assert {(one.problem, one.kind): one.status for one in found} == {
        (problem, kind): end for problem in problems for kind in kinds
    }
    assert all(one.expected for one in found)
    assert len(json.loads((tmp_path / "found.json").read_text())["rows"]) == len(found) == 2 * len(kinds)


def test_a_problem_without_variants_is_told() -> None:
    command = [sys.executable, "-m", "benchmarks.verdicts", "unknown", "--device", "cpu"]
    ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "error: no variants of unknown; there are some of group_norm" in ran.stderr
