"""Tests the code in the documentation: each command parses, and each block is run or has a reason why not."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

from harness.__main__ import main
from tests.records.test_reading import GOOD
from tests.test_docs import PAGES, REPOSITORY

Harness = Callable[..., Any]


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    language: str
    text: str


def fenced() -> Iterator[Block]:
    """The fenced blocks of all pages."""
    for path in PAGES:
        page = str(path.relative_to(REPOSITORY))
        for language, text in re.findall(r"^```(\S*)\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL):
            yield Block(page, language, text)


def shown_commands() -> Iterator[tuple[str, str]]:
    """Every command of the harness in an indented block, with its page."""
    for path in PAGES:
        page = str(path.relative_to(REPOSITORY))
        text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
        lines = re.sub(r"\\\n\s*", " ", text).splitlines()
        for line in (line for line in lines if line.startswith("    ")):
            for part in re.split(r"&&|\||;", line):
                if found := re.match(r"\s*(?:- run: |\$ )?(?:\w+=\S+ )*python -m harness (.*)", part):
                    yield page, found[1]


def words_of(command: str) -> list[str]:
    """A command's arguments, without its comment and redirections."""
    words = shlex.split(command, comments=True)
    return words[: next((place for place, word in enumerate(words) if word.startswith((">", "<", "2>"))), None)]


def parse(words: list[str]) -> None:
    """Parses a command as the program does, without running it."""
    command: click.Command = main
    context = main.make_context("harness", words[:1], resilient_parsing=True)
    name, rest = "harness", words
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name, rest = rest[0], rest[1:]
        found = command.get_command(context, name)
        assert found is not None, f"no command {name!r}"
        command = found
    command.make_context(name, list(rest), parent=context)


RELU = """\
import torch

batch_size, dim = 4096, 393216


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(batch_size, dim)]


def get_init_inputs():
    return []
"""
PARAMETERS = """\
problem = "my_op"
parameters.threads = {type = "int", default = 64, choices = [64], meaning = "threads per block"}
parameters.unroll = {type = "int", default = 4, choices = [1, 4], meaning = "floats per thread"}
parameters.scale = {type = "float", default = 0.5, range = [0.0, 1.0], meaning = "a factor"}
variants.my_op = {default = true}
"""
#: Gives the loop of the page a queue, and prints what it puts back.
AROUND_QUEUE = """\
import json, queue
from harness import Entry, Evaluator

{loop}
if __name__ == "__main__":
    asked, results = queue.Queue(), queue.Queue()
    for entry in (Entry("group_norm/plain", cases=["odd"], tag="one"), None):
        asked.put(entry)
    work(asked, results)
    tag, (record,) = results.get()
    print(tag, json.loads(record)["status"], results.empty())
"""

COMMANDS = sorted(set(shown_commands()))
#: The blocks that a test runs, by page and language; the test, or why the block is not run.
RUN = {
    ("docs/gallery.md", "python"): "tests/gallery/test_gallery.py",
    ("docs/gallery.md", "sh"): "tests/gallery/test_gallery.py",
    (
        "docs/generate.md",
        "python",
    ): "tests/generation/test_search.py: test_the_page_s_proposer_finds_a_winner_that_can_be_adopted",
    ("docs/library.md", "python"): "test_docs.py: test_the_library_does_what_its_page_says",
    ("docs/library.md", ""): "test_a_worker_of_a_queue_judges",
    ("docs/serve.md", "python"): "tests/service/test_docs_serve.py",
    ("docs/record.md", "python"): "test_the_page_of_records_checks_a_record",
    ("docs/write-a-problem.md", "python"): "test_docs.py: test_the_problem_that_the_page_shows_is_fit",
    ("docs/write-a-problem.md", "toml"): "test_shown_cases_are_the_problem_s",
    ("docs/write-a-template.md", "cuda"): "test_a_shown_part_renders",
    ("docs/write-a-template.md", "toml"): "test_docs.py: test_the_parameters_that_the_page_shows_render",
    ("docs/ptx.md", "text"): "test_docs.py: test_a_reference_page_is_what_the_program_says",
    ("docs/api.md", "{eval-rst}"): "Sphinx reads it when it builds the site",
}


def block(page: str, language: str) -> str:
    """The text of the one block of a page in a language."""
    (found,) = [one.text for one in fenced() if (one.page, one.language) == (page, language)]
    return found


def test_every_block_is_run_or_has_a_reason() -> None:
    assert {(one.page, one.language) for one in fenced()} == RUN.keys()


def test_commands_are_found() -> None:
    assert len(COMMANDS) > 100
    assert {"docs/cli.md", "README.md", "docs/getting-started.md"} <= {page for page, _ in COMMANDS}


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=lambda word: word)
def test_a_shown_command_parses(page: str, command: str) -> None:
    try:
        parse(words_of(command))
    except click.ClickException as error:
        pytest.fail(f"{page}: {command}: {error.format_message()}")


@pytest.mark.parametrize("command", ["evaluate --no-such-option", "no-such-command", "show", "store merge"])
def test_a_wrong_command_does_not_parse(command: str) -> None:
    with pytest.raises((click.ClickException, AssertionError)):
        parse(words_of(command))


def test_shown_cases_are_the_problem_s(harness: Harness, tmp_path: Path) -> None:
    (tmp_path / "19_ReLU.py").write_text(RELU)
    (tmp_path / "cases.toml").write_text(block("docs/write-a-problem.md", "toml"))
    ran = harness("validate", "19_ReLU.py", "--device", "cpu", cwd=tmp_path)
    assert ran.code == 0, ran.out + ran.err
    assert "runs with batch_size=3, dim=37" in ran.out


def test_a_shown_part_renders(harness: Harness, tmp_path: Path) -> None:
    for words in ("new problem my_op", "new template my_op --problem my_op"):
        assert harness(*words.split(), cwd=tmp_path).code == 0
    template = tmp_path / "templates" / "my_op"
    (template / "part.cuh").write_text(block("docs/write-a-template.md", "cuda"))
    (template / "params.toml").write_text(PARAMETERS)
    (template / "solution.py.j2").write_text('CUDA = r"""\n{% include "my_op/part.cuh" %}\n"""\n')
    common = template.parent / "common"
    common.mkdir(exist_ok=True)
    (common / "block_reduce.cuh").write_text("// the sum of a block\n")
    ran = harness("render", "my_op", "-o", "rendered.py", cwd=tmp_path)
    assert ran.code == 0, ran.err
    rendered = (tmp_path / "rendered.py").read_text()
    for line in ("kThreads = 64;", "kScale = 0.5f;", "#pragma unroll 4\n", "// the sum of a block"):
        assert line in rendered


def test_a_worker_of_a_queue_judges(home: Path, tmp_path: Path) -> None:
    loop = block("docs/library.md", "").replace('device="all"', 'device="cpu"')  # "all" needs a GPU
    (tmp_path / "worker.py").write_text(AROUND_QUEUE.format(loop=loop))
    variables = {**os.environ, "HARNESS_HOME": str(home), "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-W", "error", "worker.py"]
    ran = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "one PASSED True\n"), ran.stderr


def test_the_page_of_records_checks_a_record() -> None:
    code = [sys.executable, "-c", block("docs/record.md", "python")]
    record = GOOD.to_json()
    for text, is_valid in ((record, True), (json.dumps({**json.loads(record), "trials": "five"}), False)):
        ran = subprocess.run(code, input=f"{text}\n", cwd=REPOSITORY, capture_output=True, text=True)
        assert (ran.returncode == 0) == is_valid, ran.stderr
        assert is_valid or "ValidationError" in ran.stderr
