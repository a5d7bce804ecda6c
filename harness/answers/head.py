"""Writes the comment at the head of an extracted solution, which names its answer."""

from __future__ import annotations

import shlex

from harness.answers.choice import Extract
from harness.answers.reading import STANDARD_INPUT, RawAnswer


def with_head(answer: RawAnswer, extract: Extract, problem: str) -> str:
    """Returns the text of the solution file: four lines of comment, then the code.

    The text depends only on the answer and the problem, so the same answer gives the same file in
    any folder. The head is no stamp of a rendered file (``harness.rendering.stamp``), even if the
    code begins with one. Python looks for an encoding declaration in the first two lines, so those
    contain no text of the answer.

    Args:
        answer: The answer.
        extract: The answer's code.
        problem: The problem's name.
    """
    file = "standard input" if answer.name == STANDARD_INPUT else answer.name
    named = f"./{answer.name}" if answer.name.startswith("-") and answer.name != STANDARD_INPUT else answer.name
    command = shlex.join(["python", "-m", "harness", "extract", named, "--problem", problem])
    return (
        "# Extracted from a language model's answer. The code below this header is unchanged.\n"
        f"# digest of the answer: sha256:{answer.digest}\n"
        f"# file: {file}, lines {extract.first}-{extract.last}\n"
        f"# command: {command}\n"
        f"{extract.code}"
    )
