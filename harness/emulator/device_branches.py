"""Decides the branches of ``#if`` that ask for the architecture of device code."""

from __future__ import annotations

import re
from collections.abc import Collection

from harness.emulator.lexer import Kind, Token
from harness.emulator.shared_memory import Scopes
from harness.emulator.syntax import Code, names_in

#: The value of ``__CUDA_ARCH__`` in such a branch.
ARCHITECTURE = "900"

_WORD = re.compile(r"#[ \t]*(?P<word>ifdef|ifndef|if|elif|else|endif)\b")
_NAMED = re.compile(r"\b__CUDA_ARCH__\b")
_FOR_HOSTS = re.compile(r"#[ \t]*ifndef[ \t]+__CUDA_ARCH__\b|!\s*defined\s*\(?\s*__CUDA_ARCH__\b")
_DEFINED = re.compile(r"#[ \t]*ifdef[ \t]+__CUDA_ARCH__\b|\bdefined\s*(?:\(\s*__CUDA_ARCH__\s*\)|__CUDA_ARCH__\b)")


def decide_device_branches(code: Code, device_macros: Collection[str]) -> None:
    """Decides such branches as for compute capability 9.0.

    The emulator compiles host and device code at once, so ``__CUDA_ARCH__`` stays undefined. The
    preprocessor decides as for hosts where a branch is for them: after ``!defined``, in a host
    function with an ``#else``, and where ``#ifdef`` with an ``#else`` has a version for each.

    Args:
        code: A CUDA source. The function changes what its directives write.
        device_macros: Macros that expand to ``__global__`` or ``__device__``.
    """
    directives = [at for at, token in enumerate(code.tokens) if token.kind is Kind.DIRECTIVE]
    if not any(_NAMED.search(code.tokens[at].text) for at in directives):
        return
    host_bodies = _host_bodies(code, {"__global__", "__device__", *device_macros})
    opened: list[tuple[list[Token], bool]] = []
    for at in directives:
        token = code.tokens[at]
        found = _WORD.match(token.text)
        if found is None:
            continue
        if found["word"].startswith("if"):
            opened.append(([token], any(at in body for body in host_bodies)))
        elif opened and found["word"] != "endif":
            opened[-1][0].append(token)
        elif opened:
            _decide(*opened.pop())


def _host_bodies(code: Code, marks: Collection[str]) -> list[range]:
    """Returns the tokens in the bodies of functions that are not for the device.

    Args:
        code: A CUDA source.
        marks: The names that mark functions for the device.
    """
    places = [*code.places, len(code.tokens)]
    return [
        range(places[opening], places[closing])
        for header, opening, closing in Scopes(code).functions
        if names_in(code.span(header, opening)).isdisjoint(marks)
    ]


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
