"""Recognises sources that differ only in layout and comments, so that none is judged twice."""

from __future__ import annotations

import ast
import functools
import hashlib
import re

from harness.answers.code import parse

# What nobody closes is no comment. It is matched up to the end all the same: to look for the end once more at each
# further "/*" would take minutes.
_CPP_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|(?P<unclosed>\Z))", re.DOTALL)
_SPACES = re.compile(r"[ \t]+")


@functools.lru_cache(maxsize=4096)
def normal_digest(source: str) -> str:
    """Returns a digest that two sources share if only comments, blanks and docstrings' layout differ.

    Strings of several lines count as C++. A source that is not valid Python stands for itself.
    """
    text = source
    if parse(source).parses:
        try:
            text = ast.dump(_Plain().visit(ast.parse(source)))
        except (RecursionError, MemoryError, ValueError):  # too deep to walk
            text = source
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _blank(found: re.Match[str]) -> str:
    return " " if found["unclosed"] is None else found[0]


class _Plain(ast.NodeTransformer):
    """Removes comments, blank lines and runs of blanks from strings that hold C++."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, str) and "\n" in node.value:
            lines = (_SPACES.sub(" ", line).strip() for line in _CPP_COMMENT.sub(_blank, node.value).split("\n"))
            return ast.Constant("\n".join(line for line in lines if line))
        return node
