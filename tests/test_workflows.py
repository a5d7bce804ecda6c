"""Tests the workflows that readers copy: they are YAML of the form that GitHub takes, and their commands exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from harness.__main__ import main

REPOSITORY = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((REPOSITORY / "docs" / "workflows").glob("*.yml"))
PREFIX = ["python", "-m", "harness"]


def steps_of(path: Path) -> list[dict[str, Any]]:
    """The steps of a workflow's only job."""
    (job,) = yaml.safe_load(path.read_text())["jobs"].values()
    steps: list[dict[str, Any]] = job["steps"]
    return steps


def commands_of(path: Path) -> Iterator[tuple[list[str], str | None]]:
    """The harness's commands in a workflow, each with the file that its output goes to."""
    for step in steps_of(path):
        words = shlex.split(step.get("run", ""))
        if words[:3] == PREFIX:
            end = words.index(">") if ">" in words else len(words)
            yield words[3:end], words[end + 1] if ">" in words else None


def test_there_is_one_for_each_kind_of_machine() -> None:
    assert [path.name for path in WORKFLOWS] == ["cpu.yml", "gpu.yml"]
    page = (REPOSITORY / "docs" / "ci.md").read_text()
    assert all(f"(workflows/{path.name})" in page for path in WORKFLOWS)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_what_github_needs(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert set(workflow[True]) == {"push", "pull_request"}  # YAML 1.1 reads the key `on` so
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert {"runs-on", "timeout-minutes", "steps"} <= job.keys()
    for step in steps_of(path):
        assert ("run" in step) != ("uses" in step), step
        assert "uses" not in step or re.fullmatch(r"actions/[\w/-]+@v\d+", step["uses"]), step


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_the_commands_of_a_workflow_parse(path: Path) -> None:
    text = path.read_text()
    found = list(commands_of(path))
    assert len(found) == text.count(" ".join(PREFIX)) > 0
    written = re.findall(r"cp \S+ (\S+)", text)
    for (name, *arguments), output in found:
        command = main.get_command(click.Context(main), name)
        assert command is not None, name
        context = command.make_context(name, arguments)
        assert "results.xml" in text or context.params.get("junit") is None
        assert all(Path(one).name in written for one in context.params.get("operands", ())), arguments
        written += [output] if output else []


def test_an_option_that_does_not_exist_would_be_found() -> None:
    command = main.get_command(click.Context(main), "compare")
    assert command is not None
    with pytest.raises(click.NoSuchOption):
        command.make_context("compare", ["a.jsonl", "b.jsonl", "--fail-above", "5%"])


def test_the_machine_decides_the_device() -> None:
    devices = {
        path.name: [words[words.index("--device") + 1] for words, _ in commands_of(path) if "--device" in words]
        for path in WORKFLOWS
    }
    assert devices == {"cpu.yml": ["cpu"], "gpu.yml": ["cuda"]}
    for path in WORKFLOWS:
        (evaluated,) = [words for words, _ in commands_of(path) if words[0] == "evaluate"]
        assert {"--junit", "--github"} <= set(evaluated)
