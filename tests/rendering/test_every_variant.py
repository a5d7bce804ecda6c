"""Tests properties of every variant; those on demand are judged here, since no command judges all of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.cpp_extension

from harness.project.solutions import find_problem
from harness.rendering.render_templates import find_template, template_names

REPOSITORY = Path(__file__).resolve().parents[2]
DECLARED = [find_template(REPOSITORY, name) for name in template_names(REPOSITORY)]
VARIANTS = {
    f"{template.problem}/{variant.name}": variant for template in DECLARED for variant in template.variants.values()
}
ON_DEMAND = [name for name, variant in VARIANTS.items() if variant.on_demand]


@pytest.fixture
def path(name: str, solution_of: Callable[[str, str], Path]) -> Path:
    return solution_of(*name.split("/"))


each_variant = pytest.mark.parametrize("name", VARIANTS)

# What KernelBench's own evaluator puts in front of a candidate's source before it executes it.
FRONT = "import os\nos.environ['TORCH_USE_CUDA_DSA'] = '1'\n"


@each_variant
def test_a_solution_loads_behind_lines_that_others_put_in_front(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its annotations are evaluated, too: nothing puts that off."""
    monkeypatch.setenv("TORCH_USE_CUDA_DSA", "0")
    monkeypatch.setattr(torch.utils.cpp_extension, "load_inline", lambda **_: None)
    loaded: dict[str, Any] = {"__name__": "candidate"}
    exec(compile(FRONT + path.read_text(), str(path), "exec", dont_inherit=True), loaded)
    assert issubclass(loaded["ModelNew"], torch.nn.Module)


def pieces(text: str) -> list[str]:
    """The functions, types and constants of the C++ sources in a solution, without comments, one a piece."""
    sources = re.findall(r'^[A-Z_]+ = r?"""\n(.*?)"""', text, flags=re.DOTALL | re.MULTILINE)
    code = [re.sub(r"//[^\n]*", "", source) for source in sources]
    return [piece for source in code for piece in re.split(r"\n\s*\n(?=[^ \n}])", source)]


def names(piece: str) -> set[str]:
    """What a piece defines: names before a parenthesis, and of types and constants, on lines that are not indented."""
    found = set()
    for line in piece.splitlines():
        if re.match(r"[ #}]", line) and not re.match(r" {4}\w+\(", line):
            continue
        found |= set(re.findall(r"(?:(?:struct|class) |using |constexpr [\w:<>]+ |\b)(\w+)(?=\(|;| \{| =)", line))
    return found - {"if", "for", "return", "namespace", "__launch_bounds__", "static_assert"}


@each_variant
def test_nothing_is_emitted_that_no_operator_reaches(path: Path) -> None:
    every = pieces(path.read_text())
    defined = [names(piece) for piece in every]
    roots = re.compile("STABLE_TORCH_LIBRARY|PYBIND11_MODULE|std::vector<torch::Tensor> forward")
    reached = {i for i, piece in enumerate(every) if roots.search(piece) or not defined[i]}
    assert reached
    waiting = list(reached)
    while waiting:
        words = set(re.findall(r"\w+", every[waiting.pop()]))
        fresh = {i for i, found in enumerate(defined) if i not in reached and found & words}
        reached |= fresh
        waiting += fresh
    assert [sorted(defined[i]) for i in range(len(every)) if i not in reached] == []


def test_committed_are_all_but_those_on_demand() -> None:
    committed = {f"{path.parent.name}/{path.stem}" for path in (REPOSITORY / "solutions").glob("*/*.py")}
    assert committed == VARIANTS.keys() - set(ON_DEMAND)


@pytest.fixture(scope="session")
def rows_of(
    harness: Callable[..., Any], solution_of: Callable[[str, str], Path], made_once: Callable[..., Any]
) -> Callable[[str], dict[str, list[dict[str, Any]]]]:
    """Judges a problem's variants on demand in its small cases and with the checks, a batch each."""

    def judged(problem: str) -> dict[str, list[dict[str, Any]]]:
        paths = [solution_of(*name.split("/")) for name in ON_DEMAND if name.startswith(f"{problem}/")]
        # Every other of the small cases: the committed variants take all.
        cases = sorted(find_problem(REPOSITORY, problem).cases.keys() - {"full", "cpu"})[::2]
        chosen = [word for case in cases for word in ("--case", case)]
        ran = harness("evaluate", *paths, "--problem", problem, "--device", "cpu", "--json", *chosen)
        checked = harness("check", *paths, "--problem", problem, "--case", "odd", "--json")
        assert ran.rows, ran.err
        assert checked.rows, checked.err
        found: dict[str, list[dict[str, Any]]] = {path.stem: [] for path in paths}
        for row in (*ran.rows, *checked.rows):
            found[Path(row["solution_path"]).stem].append(row)
        return found

    return lambda problem: made_once(f"on_demand_{problem}", lambda: judged(problem))


@pytest.mark.parametrize("name", ON_DEMAND)
def test_a_variant_on_demand_passes_small_cases_and_the_checks(
    name: str, rows_of: Callable[[str], dict[str, list[dict[str, Any]]]]
) -> None:
    problem, variant = name.split("/")
    *rows, checked = rows_of(problem)[variant]
    assert len({row["case"] for row in rows}) >= 3
    assert checked["policy"]["check"]
    for row in (*rows, checked):
        assert row["status"] == "PASSED", row["message"]
    assert [finding for finding in checked["findings"] if finding["level"] == "error"] == []
