"""Tests the documentation: its commands run, its tables are complete, and its links lead somewhere."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from harness.judge.integrity import every_rule
from harness.records.record import EvaluationRecord, Status

Harness = Callable[..., Any]
REPOSITORY = Path(__file__).resolve().parent.parent
PREFIX = "python -m harness "


def commands(document: str, *headings: str) -> list[list[str]]:
    """The harness's commands in the code blocks under some headings, ``&&`` taken apart."""
    text = (REPOSITORY / document).read_text()
    found = []
    for heading in headings:
        (section,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        blocks = [line.strip() for line in section.splitlines() if line.startswith("    ")]
        lines = [part.strip() for line in blocks for part in line.split("&&")]
        found += [shlex.split(line.removeprefix(PREFIX), comments=True) for line in lines if line.startswith(PREFIX)]
    return found


def words_of(text: str) -> set[str]:
    """What stands in backticks at the beginning of table rows."""
    return set(re.findall(r"^\| `([A-Za-z0-9_-]+)`", text, re.MULTILINE))


PAGES = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("benchmarks/*.md")])
LONGEST_PROSE = 100


def test_a_project_of_ones_own_does_what_the_pages_say(harness: Harness, tmp_path: Path, own_home: Path) -> None:
    """From an empty folder to a report, as Getting started and CONTRIBUTING show it."""
    shown = commands("docs/getting-started.md", "Start a project of your own", "Compare two candidates")
    assert [words[0] for words in shown] == [
        *("new", "validate", "new", "render", "render", "extract", "evaluate", "compare", "report"),
        "compare",
    ]
    for words in commands("CONTRIBUTING.md", "Add a problem", "Add a template"):
        assert words in shown or words == ["evaluate", "my_op/my_op"]  # Getting started evaluates all of my_op
    for words in shown:
        if words[0] == "extract":
            answer = (tmp_path / "problems" / "my_op.py").read_text().replace("class Model(", "class ModelNew(")
            (tmp_path / "answer.txt").write_text(f"Here it is:\n```python\n{answer}```\n")
        ran = harness(*words, cwd=tmp_path, HARNESS_DEVICE="cpu", HARNESS_HOME=str(own_home))
        assert ran.code == 0, f"{words}: {ran.out}{ran.err}"
        if words[0] == "evaluate":
            assert "3 passed, 0 failed" in ran.out
        elif words[0] == "compare":
            assert "my_op/narrow" in ran.out
            assert "no winner: that takes two that passed and have a measured speed" in ran.out
    text = (tmp_path / "report.html").read_text()
    assert "3 of 3 candidates passed" in text


def test_getting_started_extracts_an_answer(harness: Harness, tmp_path: Path) -> None:
    (tmp_path / "problems").mkdir()
    problem = (REPOSITORY / "problems" / "group_norm.py").read_text()
    (tmp_path / "problems" / "group_norm.py").write_text(problem)
    answer = problem.replace("class Model(", "class ModelNew(")
    (tmp_path / "answer.txt").write_text(f"<think>\nwell\n</think>\nHere:\n```python\n{answer}```\n")
    shown = commands("docs/getting-started.md", "Extract a model's answer")
    assert [words[0] for words in shown] == ["extract"] * 3
    for words in shown:
        ran = harness(*words, cwd=tmp_path, HARNESS_DEVICE="cpu")
        assert ran.code == 0, f"{words}: {ran.out}{ran.err}"
        assert ("PASSED" in ran.out) == ("--evaluate" in words)
    assert (tmp_path / "solutions" / "group_norm" / "answer.py").read_bytes() == (tmp_path / "mine.py").read_bytes()


def test_the_problem_that_the_page_shows_is_fit(harness: Harness, tmp_path: Path) -> None:
    (code,) = re.findall(
        r"^```python\n(.*?)^```$", (REPOSITORY / "docs" / "write-a-problem.md").read_text(), re.M | re.S
    )
    (tmp_path / "shown.py").write_text(code)
    ran = harness("validate", "shown.py", "--case", "odd", cwd=tmp_path, HARNESS_DEVICE="cpu")
    assert (ran.code, "FAILED" in ran.out) == (0, False), ran.out + ran.err


def test_the_parameters_that_the_page_shows_render(harness: Harness, tmp_path: Path) -> None:
    (table,) = re.findall(
        r"^```toml\n(.*?)^```$", (REPOSITORY / "docs" / "write-a-template.md").read_text(), re.M | re.S
    )
    for words in ("new problem my_op", "new template my_op --problem my_op"):
        assert harness(*words.split(), cwd=tmp_path).code == 0
    (tmp_path / "templates" / "my_op" / "params.toml").write_text(table)
    assert harness("render", "my_op", cwd=tmp_path).code == 0
    refused = harness("render", "my_op", "-p", "threads=1024", "-p", "unroll=8", "-o", "x.py", cwd=tmp_path)
    assert "a tile has at most 4096 floats" in refused.err


def test_the_readme_shows_the_test_command_and_is_short() -> None:
    readme = (REPOSITORY / "README.md").read_text()
    assert 'pip install -c constraints.txt -e ".[test]" && pytest' in readme
    assert len(readme.split()) < 700


@pytest.mark.parametrize(
    ("page", "script"),
    [("cli.md", "cli_reference.py"), ("record.md", "record_reference.py"), ("ptx.md", "ptx_reference.py")],
)
def test_a_reference_page_is_what_the_program_says(page: str, script: str) -> None:
    written = (REPOSITORY / "docs" / page).read_text()
    ran = subprocess.run([sys.executable, REPOSITORY / ".ci" / script], capture_output=True, text=True)
    assert written == ran.stdout, f"stale: python .ci/{script} > docs/{page}"


def test_every_status_and_rule_is_explained() -> None:
    explained = words_of((REPOSITORY / "docs" / "read-a-verdict.md").read_text())
    assert {*Status, *every_rule()} <= explained


def test_every_field_of_a_record_is_named() -> None:
    page = (REPOSITORY / "docs" / "library.md").read_text()
    assert {one.name for one in fields(EvaluationRecord)} <= set(re.findall(r"`([a-z0-9_]+)`", page))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        name, _, anchor = target.partition("#")
        if name.startswith("http"):
            continue
        found = (page.parent / name).resolve() if name else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


def test_what_the_index_lists_is_every_page() -> None:
    index = (REPOSITORY / "docs" / "README.md").read_text()
    moved = {"confinement.md", "integrity.md", "threat-model.md", "kernels/group_norm.md"}  # named in older places
    pages = {str(page.relative_to(REPOSITORY / "docs")) for page in REPOSITORY.glob("docs/**/*.md")}
    assert pages - moved - {"README.md"} <= set(re.findall(r"\]\(([^)#\s]+)", index))


def test_pages_that_the_code_names_exist() -> None:
    sources = [path for kind in ("py", "j2") for path in (REPOSITORY / "harness").rglob(f"*.{kind}")]
    named = {name for path in sources for name in re.findall(r"docs/[\w/-]+\.md", path.read_text())}
    assert named
    assert [name for name in sorted(named) if not (REPOSITORY / name).exists()] == []


def packages() -> list[list[str]]:
    """The rows of the architecture's table of packages, top first: what each holds, as dotted names."""
    page = (REPOSITORY / "docs" / "design" / "architecture.md").read_text()
    rows = re.findall(
        r"^\| (`[^|]+) \|", page.partition("## Packages")[2].partition("## The protocol")[0], re.MULTILINE
    )
    named = [re.findall(r"`([\w/.]+)`", row) for row in rows]
    return [[name.removesuffix(".py").strip("/").replace("/", ".") for name in row] for row in named]


def test_the_map_has_every_package() -> None:
    listed = {name.partition(".")[0] for row in packages() for name in row}
    assert {path.parent.name for path in REPOSITORY.glob("harness/*/__init__.py")} <= listed
    listed = {name.removeprefix("judge.") for row in packages() for name in row if name.startswith("judge.")}
    assert {path.parent.name for path in REPOSITORY.glob("harness/judge/*/__init__.py")} <= listed


def test_the_map_has_the_order_that_imports_keep() -> None:
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    harness, judge = (one["layers"] for one in settings["tool"]["importlinter"]["contracts"])
    places = {
        name.strip().removeprefix("harness."): (number, len(judge))
        for number, layer in enumerate(harness)
        for name in layer.split("|")
    }
    number, _ = places["judge"]
    places |= {
        f"judge.{name.strip()}": (number, place) for place, layer in enumerate(judge) for name in layer.split("|")
    }
    order = [places[name] for row in packages() for name in row]
    assert order == sorted(order)
    assert len(order) == len(places) - 1  # every one, and `judge` by its parts


def test_files_that_the_maps_name_exist() -> None:
    for page in ("README.md", "CONTRIBUTING.md", "docs/design/architecture.md", "docs/library.md", "docs/numerics.md"):
        named = re.findall(
            r"(?:harness|tests|templates|benchmarks)/[\w/]+\.(?:py|cpp|md)", (REPOSITORY / page).read_text()
        )
        assert [name for name in named if "test_x" not in name and not (REPOSITORY / name).exists()] == []


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.parent.name != "benchmarks"], ids=lambda page: page.name
)
def test_prose_is_wrapped(page: Path) -> None:
    lines = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL).splitlines()
    prose = [line for line in lines if not re.match(r"\||    |\[[\w-]+\]: http", line)]
    assert [line for line in prose if len(line) > LONGEST_PROSE and " " in line] == []


def test_the_library_does_what_its_page_says(home: Path, tmp_path: Path) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", (REPOSITORY / "docs" / "library.md").read_text(), re.M | re.S)
    (tmp_path / "ask.py").write_text(code)
    ran = subprocess.run(
        [sys.executable, "-W", "error", "ask.py"],
        cwd=tmp_path,
        env={**os.environ, "HARNESS_HOME": str(home), "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    first, plain, *others = ran.stdout.splitlines()
    assert (first, plain) == ("PASSED 0.0", "PASSED, no kernel of its own -1.0")
    assert sorted(line.split(" ")[:2] for line in others) == [[str(number), "WRONG_OUTPUT"] for number in range(3)]
