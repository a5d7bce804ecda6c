# ruff: noqa: E501 - the table keeps one answer a line
"""Tests ``extract`` on malformed answers: it writes a valid solution, or exits with code 2 and a reason."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.__main__ import main
from harness.errors import EXIT_USAGE, HarnessError
from tests.bad_input.conftest import PROBLEM, Place, solution

CODE = solution()
CUT = CODE[: CODE.index("        return Passing.apply")] + "        y = ("
SYNTAX = CODE.replace("def forward(self, x):", "def forward(self x):")
FENCED = f"```python\n{CODE}```\n"
LINES = CODE.count("\n")
OTHER = FENCED.replace("torch.tanh", "torch.sin")


class Refused(NamedTuple):
    """An answer's bytes, and words that the message must hold."""

    name: str
    answer: str | bytes
    words: list[str]


REFUSED = [
    Refused("empty", "", ["is empty", "the file that holds"]),
    Refused("blank", "\n \r\n\t\n", ["is empty"]),
    Refused("mark_alone", b"\xef\xbb\xbf", ["is empty"]),
    Refused("binary", b"\x7fELF\0\0", ["is not text: byte 4 is zero"]),
    Refused("utf_16", FENCED.encode("utf-16"), ["is UTF-16, not UTF-8", "iconv -f UTF-16 -t UTF-8"]),
    Refused("utf_32", FENCED.encode("utf-32"), ["is UTF-32"]),
    Refused("latin_1", b"Voil\xe0:\n" + FENCED.encode(), ["not UTF-8 text: byte 0xe0 in line 1", "iconv"]),
    Refused("latin_1_later", FENCED.encode() + b"\xff", [f"byte 0xff in line {LINES + 3}"]),
    Refused("prose", "I am sorry.\n\nIt cannot be done.", ["no complete code", "has no code fence", "line 3, in prose: 'It cannot be done.'"]),
    Refused("cut_in_prose", "First,\nthe kernel:\n" + "x" * 99, ["stops at line 3, in prose: '…xxx", "give a complete answer"]),
    Refused("cut_in_reasoning", "Hello\n<think>\n" + FENCED + "but then\n", [f"stops at line {LINES + 5}, inside the reasoning that begins at line 2: 'but then'", "only code after the reasoning"]),
    Refused("cut_in_code_of_reasoning", "<think>\n```python\nimport torch\nx = (", ["stops at line 4, inside the reasoning", "'x = ('"]),
    Refused("cut_in_code", f"<think>\n</think>\n```python\n{CUT}", ["inside a code block whose fence opens at line 3 and never closes: 'y = ('", "allow the model more output"]),
    Refused("cut_in_a_kernel", '```python\nimport torch\nCUDA = """\n__global__ void f(', ["stops at line 4, inside a code block whose fence opens at line 1", "'__global__ void f('"]),
    Refused("cut_behind_the_fence", "So:\n```python", ["stops at line 2, inside a code block whose fence opens at line 2"]),
    Refused("cut_without_a_fence", CUT, ["has no code fence", "does not parse as plain code: line", "'y = ('"]),
    Refused("never_closed", FENCED.removesuffix("```\n"), ["opens at line 1 and never closes", "is complete: if nothing was cut off, add a line ```"]),
    Refused("closed_too_short", "`````\n" + CODE + "```\n", ["opens at line 1 and never closes"]),
    Refused("closed_by_another", "```\n" + CODE + "~~~\n", ["opens at line 1 and never closes"]),
    Refused("only_drafts", "<think>\n" + FENCED + "</think>\nDone.\n", ["has no code fence", f"line {LINES + 5}, in prose: 'Done.'"]),
    Refused("only_drafts_and_nothing", FENCED + "</think>\n", [f"nothing follows the reasoning, which ends at line {LINES + 3}"]),
    Refused("only_before_the_reasoning", FENCED + "<think>\nno\n</think>\nyes\n", ["has no code fence"]),
    Refused("no_model", "```python\nimport torch\n```\n```cuda\nint x;\n```\n", ["lines 2-2, 5-5: none defines ModelNew by a class or an assignment"]),
    Refused("old_model", FENCED.replace("ModelNew", "Model"), ["defines Model and no ModelNew", "rename it"]),
    Refused("old_model_alone", CODE.replace("ModelNew", "Model"), ["no complete code: it defines Model and no ModelNew"]),
    Refused("function", "```python\ndef ModelNew(): pass\n```\n", ["none defines ModelNew"]),
    Refused("inner_class", "```python\ndef f():\n    class ModelNew: pass\n```\n", ["names ModelNew, but not at module level"]),
    Refused("imported", "```python\nfrom answer import ModelNew\n```\n", ["none defines ModelNew"]),
    Refused("empty_fence", "```\n```\n", ["line 1: none defines ModelNew"]),
    Refused("syntax", f"Hi\n```python\n{SYNTAX}```\n", [f"does not parse: line {SYNTAX[: SYNTAX.index('(self x')].count(chr(10)) + 3}", "'def forward(self x):'", "correct it"]),
    Refused("diff", "```diff\n+class ModelNew(nn.Module):\n+    pass\n```\n", ["lines 2-3: none defines ModelNew"]),
    Refused("unfinished_after_complete", FENCED + "Faster:\n```python\nimport torch\nx =", ["may be a draft", f"of lines 2-{LINES + 1}", f"stops at line {LINES + 6}", "remove what follows"]),
    Refused("broken_after_complete", FENCED + OTHER.replace("(self, x)", "(self x)"), ["may be a draft", f"of lines 2-{LINES + 1}", "does not parse: line"]),
    Refused("many_fields", "```python\nclass ModelNew: pass\nx = f'" + "{x}" * 10_000 + "'\n```\n", ["10,000 braces"]),
    Refused("nested_too_deeply", "```python\nclass ModelNew: pass\nx = " + "-" * 99_999 + "1\n```\n", ["nested too deeply"]),
    Refused("code_too_long", "```python\nclass ModelNew: pass\n" + "x = 1\n" * 200_000 + "```\n", ["more than 1,048,576 characters"]),
    Refused("fences_without_end", "```python\n~~~\n" * 20_000 + "```", ["too many code fences (```) never close"]),
    Refused("terminal_escapes", "```python\nclass ModelNew(\x1b[31m):\n```\n", ["\\x1b[31m"]),
]  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with one problem."""
    folder = tmp_path_factory.mktemp("answers")
    (folder / "problems").mkdir()
    (folder / "problems" / "tiny.py").write_text(PROBLEM)
    return folder


def refusal(root: Path, answer: bytes, name: str = "answer.txt") -> str:
    """The message of an answer that is refused, in this process; nothing is written."""
    (root / name).write_bytes(answer)
    before = sorted(root.rglob("*"))
    with pytest.raises(HarnessError) as caught:
        main.main(["extract", str(root / name), "--problem", "tiny", "--root", str(root)], standalone_mode=False)
    assert caught.value.exit_code == EXIT_USAGE
    assert sorted(root.rglob("*")) == before
    return str(caught.value)


@pytest.mark.parametrize("case", [pytest.param(one, id=one.name) for one in REFUSED])
def test_each_is_refused_in_one_line(case: Refused, root: Path) -> None:
    answer = case.answer if isinstance(case.answer, bytes) else case.answer.encode()
    message = refusal(root, answer)
    assert message.isprintable()
    assert "answer.txt" in message
    assert len(message) < 600
    for word in case.words:
        assert word in message, message


def test_the_command_line_says_it_and_writes_nothing(new_place: Place) -> None:
    with (new_place.root / "large.txt").open("wb") as file:
        file.truncate(50 << 20)
    new_place.write("cut.txt", "<think>\n" + FENCED)
    new_place.write("latin.txt", b"\xe9")
    os.mkfifo(new_place.root / "pipe.txt")
    (new_place.root / "folder.txt").mkdir()
    (new_place.root / "loop.txt").symlink_to("loop.txt")
    (new_place.root / "dangling.txt").symlink_to("nowhere")
    words = {
        "large.txt": "52,428,800 bytes",
        "cut.txt": "inside the reasoning",
        "latin.txt": "0xe9",
        "pipe.txt": "a pipe, not a regular file; give a text file, or - for standard input",
        "folder.txt": "a folder, not a regular file",
        "loop.txt": "symbolic links",
        "dangling.txt": "No such file",
        "missing.txt": "No such file",
        "cut.txt/x": "Not a directory",
        "..": "a folder",
        "x" * 300: "too long",
        "red\x1b[31m.txt": "red\\x1b[31m.txt",
        os.fsdecode(b"\xff.txt"): "\\udcff.txt",
        "": "cannot read answer",
    }
    before = sorted(new_place.root.rglob("*"))
    for name, word in words.items():
        ran = new_place("extract", "--problem", "tiny", "--json", "--", name)
        assert (ran.code, ran.out) == (2, ""), ran.err
        assert word in ran.err
        (line,) = ran.err.splitlines()
        assert line.startswith("error: ")
        assert line.isprintable()
    assert sorted(new_place.root.rglob("*")) == before
    assert new_place.left_behind() == []


def test_odd_names_are_written_and_judged(new_place: Place) -> None:
    for name in ("two words.txt", "größe 寸法.txt", os.fsdecode(b"bytes-\xff.txt"), "new\nline: coding=utf-7.txt"):
        new_place.write(name, FENCED + f"{name!a}\n")
        ran = new_place("extract", name, "--problem", "tiny")
        assert ran.code == 0, ran.err
        assert all(line.isprintable() for line in ran.err.splitlines())
    ran = new_place("evaluate", "tiny", "--case", "odd", "--device", "cpu", "--json")
    assert ran.code == 0, ran.out + ran.err
    assert sorted(row["solution"] for row in ran.rows) == [
        *("tiny/bytes_udcff", "tiny/grosse", "tiny/new_x0aline_coding_utf_7", "tiny/two_words"),
    ]


FRAGMENTS = [
    *("```", "```python", "```py", "````", "~~~", "    ```", "```cuda", "<think>", "</think>", "</think>```python"),
    *(
        "x",
        "class ModelNew:",
        "    pass",
        "class ModelNew: pass",
        "ModelNew = 1",
        "import torch",
        '"""',
        "'''",
        "# ```",
    ),
    *(
        "return",
        'CUDA = r"""',
        "__global__ void f() {}",
        "(",
        ")",
        "",
        "\\",
        "It's",
        "`<think>`",
        "</s>",
        "\x0c",
        "\x85",
    ),
]
ANSWERS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.binary(),
    st.lists(st.sampled_from(FRAGMENTS), max_size=30).map("\n".join),
    st.tuples(st.lists(st.sampled_from(FRAGMENTS), max_size=6), st.lists(st.sampled_from(FRAGMENTS), max_size=6)).map(
        lambda parts: "\n".join([*parts[0], "```python", "class ModelNew: pass", "```", *parts[1]])
    ),
)


def taken_of(root: Path, data: bytes) -> tuple[str | None, HarnessError | None]:
    """What is written for an answer, or why nothing is."""
    source, target = root / "any.txt", root / "any.py"
    source.write_bytes(data)
    target.unlink(missing_ok=True)
    arguments = ["extract", str(source), "--problem", "tiny", "--root", str(root), "-o", str(target)]
    try:
        assert main.main(arguments, standalone_mode=False) == 0
    except HarnessError as error:
        assert not target.exists()
        return None, error
    return target.read_bytes().decode(), None


@settings(max_examples=300)
@given(answer=ANSWERS)
@example(answer="```python\nclass ModelNew: pass\n```")
@example(answer="class ModelNew: pass")
@example(answer="<think>\n```\nclass ModelNew: pass\n```")
def test_any_text_gives_a_solution_or_one_line(root: Path, answer: str | bytes) -> None:
    data = answer if isinstance(answer, bytes) else answer.encode()
    text, error = taken_of(root, data)
    if error is not None:
        assert (error.exit_code, str(error).isprintable()) == (EXIT_USAGE, True)
        return
    assert text is not None
    defined = [getattr(node, "name", getattr(node, "id", None)) for node in ast.walk(ast.parse(text))]
    assert "ModelNew" in defined
    taken = text.split("\n", 4)[4].removesuffix("\n")
    lines = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert all(any(line in one for one in lines) for line in taken.split("\n"))
    unfinished = "<think>" in lines and not any("</think>" in line for line in lines)
    assert "<think>" in taken or not unfinished
