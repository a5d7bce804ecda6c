"""Puts text by others into a prompt so that it cannot leave its place there.

A template of a prompt may print two things: text that ``fenced`` made, and anything else as one
line of inline code. So a name or a message never begins a line of its own, and a source cannot
close its fence.
"""

from __future__ import annotations

import re

from harness.system.text import one_line, printable, shortened

#: The most characters of a text in a prompt.
MAX_INLINE_CHARACTERS = 300
#: Tokens by which chat templates separate turns; a server may read them within a message, too.
_TURNS = re.compile(r"<(?=[|\uff5c]|/?s>|/?think\w*>|(?:start|end)_of_turn>|[be]os>)|\[(?=/?INST\])", re.IGNORECASE)


class Fenced(str):
    """A text that stands in a prompt as it is."""


def fenced(text: str, language: str = "") -> Fenced:
    """Returns a fenced block whose fence is longer than any in the text.

    Args:
        text: The text. Control characters other than tab and newline come out as escapes.
        language: The language to name at the opening fence; a word.
    """
    inside = _without_turns(printable(text)).rstrip("\n")
    longest = max(map(len, re.findall("`+", inside)), default=0)
    fence = "`" * max(3, longest + 1)
    return Fenced(f"{fence}{language}\n{inside}\n{fence}")


def inline(value: object) -> object:
    """Returns numbers and fenced text as they are, and any other text as one line of inline code."""
    if isinstance(value, Fenced | int | float):
        return value
    text = shortened(_without_turns(one_line(str(value))), MAX_INLINE_CHARACTERS).replace("`", "'")
    return f"`{text}`"


def _without_turns(text: str) -> str:
    return _TURNS.sub(lambda match: f"{match[0]} ", text)
