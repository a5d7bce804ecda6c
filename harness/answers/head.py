"""The comment at the head of an extracted solution: which answer it came from."""

from __future__ import annotations

import shlex

from harness.answers.choice import Extract
from harness.answers.reading import STANDARD_INPUT, RawAnswer


def with_head(answer: RawAnswer, extract: Extract, problem: str) -> str:
    """The solution file's text: the code under four lines of comment.

    It depends on answer and problem alone, so that the same answer gives the same file wherever it lies. It is no
    stamp of a rendered file (``harness.rendering.stamp``), also where the code itself begins with one. Python looks for
    an encoding in the first two lines, which therefore hold nothing of the answer's.

    Args:
        answer: The answer.
        extract: Its code.
        problem: The problem's name.
    """
    file = "standard input" if answer.name == STANDARD_INPUT else answer.name
    named = f"./{answer.name}" if answer.name.startswith("-") and answer.name != STANDARD_INPUT else answer.name
    command = shlex.join(["python", "-m", "harness", "extract", named, "--problem", problem])
    return (
        "# Extracted from a language model's answer; below this head its code stands as it was.\n"
        f"# digest of the answer: sha256:{answer.digest}\n"
        f"# file: {file}, lines {extract.first}-{extract.last}\n"
        f"# command: {command}\n"
        f"{extract.code}"
    )
