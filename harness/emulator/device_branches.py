"""Decides the branches of ``#if`` that ask for the architecture of device code."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from harness.emulator.lexer import Kind, Token

#: The value of ``__CUDA_ARCH__`` in such a branch.
ARCHITECTURE = "900"

_WORD = re.compile(r"#[ \t]*(?P<word>ifdef|ifndef|if|elif|else|endif)\b")
_NAMED = re.compile(r"\b__CUDA_ARCH__\b")
_FOR_HOSTS = re.compile(r"#[ \t]*ifndef[ \t]+__CUDA_ARCH__\b|!\s*defined\s*\(?\s*__CUDA_ARCH__\b")
_DEFINED = re.compile(r"#[ \t]*ifdef[ \t]+__CUDA_ARCH__\b|\bdefined\s*(?:\(\s*__CUDA_ARCH__\s*\)|__CUDA_ARCH__\b)")
#: What may stand between a function's parameters and its body, beside a type that it returns.
_AFTER_PARAMETERS = frozenset({"const", "noexcept", "override", "final", "mutable", "&", "&&"})


def decide_device_branches(tokens: Sequence[Token], device_macros: Collection[str]) -> None:
    """Decides such branches as for compute capability 9.0.

    The emulator compiles host and device code at once, so ``__CUDA_ARCH__`` stays undefined. The
    preprocessor decides as for hosts where a branch is for them: after ``!defined``, in a host
    function with an ``#else``, and where ``#ifdef`` with an ``#else`` has a version for each.

    Args:
        tokens: All tokens of a CUDA source. The function changes what they write.
        device_macros: Names of macros that mark device functions.
    """
    opened: list[list[Token]] = []
    functions = _Functions({"__global__", "__device__", *device_macros})
    of_hosts: list[bool] = []
    for token in tokens:
        found = _WORD.match(token.text) if token.kind is Kind.DIRECTIVE else None
        if found is None:
            functions.see(token)
        elif found["word"].startswith("if"):
            opened.append([token])
            of_hosts.append(functions.is_in_host_function)
        elif opened and found["word"] != "endif":
            opened[-1].append(token)
        elif opened:
            _decide(opened.pop(), of_hosts.pop())


class _Functions:
    """Follows in which function a token is.

    Args:
        marks: The names that mark device functions.
    """

    def __init__(self, marks: Collection[str]):
        self._marks = frozenset(marks)
        self._header: list[str] = []
        self._inside: list[bool | None] = []

    @property
    def is_in_host_function(self) -> bool:
        """Whether the tokens seen so far end in a function that is not for the device."""
        return next((of_hosts for of_hosts in self._inside if of_hosts is not None), False)

    def see(self, token: Token) -> None:
        """Takes the next token."""
        if not token.is_code:
            return
        if token.text == "{":
            self._inside.append(self._marks.isdisjoint(self._header) if self._is_function() else None)
        elif token.text == "}" and self._inside:
            self._inside.pop()
        elif token.text != ";":
            self._header.append(token.text)
            return
        self._header = []

    def _is_function(self) -> bool:
        """Tells whether the tokens before a ``{`` are a function's, not those of a class or a namespace."""
        if ")" not in self._header:
            return False
        end = self._header[len(self._header) - self._header[::-1].index(")") :]
        return "->" in end or _AFTER_PARAMETERS.issuperset(end)


def _decide(branches: list[Token], is_in_host_function: bool) -> None:
    has_else = any(re.match(r"#[ \t]*else\b", token.text) for token in branches)
    if any(_FOR_HOSTS.search(token.text) for token in branches):
        return
    is_compared = any(_NAMED.search(_DEFINED.sub("", token.text)) for token in branches)
    if has_else and (is_in_host_function or not is_compared):
        return
    for token in branches:
        if _NAMED.search(token.text):
            known = _DEFINED.sub(lambda match: "#if 1" if match[0].startswith("#") else "1", token.text)
            token.written = _NAMED.sub(ARCHITECTURE, known)
