"""Decides the branches of ``#if`` that ask for the architecture of device code and have no ``#else``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from harness.emulator.lexer import Kind, Token

#: The value of ``__CUDA_ARCH__`` in such a branch.
ARCHITECTURE = "900"

_WORD = re.compile(r"#[ \t]*(?P<word>ifdef|ifndef|if|elif|else|endif)\b")
_NAMED = re.compile(r"\b__CUDA_ARCH__\b")
_FOR_HOSTS = re.compile(r"#[ \t]*ifndef[ \t]+__CUDA_ARCH__\b|!\s*defined\s*\(?\s*__CUDA_ARCH__\b")
_DEFINED = re.compile(r"#[ \t]*ifdef[ \t]+__CUDA_ARCH__\b|\bdefined\s*(?:\(\s*__CUDA_ARCH__\s*\)|__CUDA_ARCH__\b)")


def decide_device_branches(tokens: Sequence[Token]) -> None:
    """Decides such branches as for compute capability 9.0.

    The emulator compiles host and device code at once, so ``__CUDA_ARCH__`` stays undefined. Where
    a branch has an ``#else`` or is for hosts, the preprocessor takes what that says.

    Args:
        tokens: All tokens of a CUDA source. The function changes what they write.
    """
    opened: list[list[Token]] = []
    for token in tokens:
        found = _WORD.match(token.text) if token.kind is Kind.DIRECTIVE else None
        if found is None:
            continue
        if found["word"].startswith("if"):
            opened.append([token])
        elif opened and found["word"] != "endif":
            opened[-1].append(token)
        elif opened:
            _decide(opened.pop())


def _decide(branches: list[Token]) -> None:
    has_else = any(re.match(r"#[ \t]*else\b", token.text) for token in branches)
    if has_else or any(_FOR_HOSTS.search(token.text) for token in branches):
        return
    for token in branches:
        if _NAMED.search(token.text):
            known = _DEFINED.sub(lambda match: "#if 1" if match[0].startswith("#") else "1", token.text)
            token.written = _NAMED.sub(ARCHITECTURE, known)
