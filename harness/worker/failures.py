"""Translates a candidate's exception into the protocol's terms."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from harness.compilation.errors import BuildError, BuildFailed, BuildKilled, Unsupported
from harness.system.text import words_of

#: The number of failed builds that the worker reports, and the length of each line.
MAX_REFUSED, MAX_REFUSED_CHARACTERS = 20, 10_000
_MEMORY_WORDS = ("can't allocate memory", "std::bad_alloc", "Cannot allocate memory", "out of memory")
_NO_BACKWARD_WORDS = "must implement either the backward or vjp method"


def kind_of(error: BaseException, otherwise: str) -> str:
    """Returns the kind of an error.

    Returns:
        ``build``, ``unsupported``, ``memory``, ``no_gradient``, or ``otherwise``.
    """
    build = build_error(error)
    if isinstance(build, Unsupported):
        return "unsupported"
    if isinstance(build, BuildKilled):
        return "memory"
    if build is not None:
        return "build"
    text = words_of(error)
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or any(word in text for word in _MEMORY_WORDS):
        return "memory"
    if _NO_BACKWARD_WORDS in text:
        return "no_gradient"
    return otherwise


def describe(error: BaseException, solution: str) -> str:
    """Describes an error in a few lines, with the last of the solution's own lines involved."""
    build = build_error(error)
    if build is not None:
        return words_of(build).removeprefix(f"{type(build).__name__}: ")
    words = words_of(error)
    if isinstance(error, SystemExit):
        code = repr(error.code) if isinstance(error.code, int | str | None) else type(error.code).__name__
        words = f"the solution called sys.exit({code})"
    if isinstance(error, SyntaxError) and error.filename == solution:
        return f"line {error.lineno}: {words}"
    # Unlike extract_tb this reads no source files, for which there may be no memory.
    places = traceback.walk_tb(error.__traceback__)
    lines = [line for frame, line in places if frame.f_code.co_filename == solution]
    return f"line {lines[-1]}: {words}" if lines else words


def build_log(error: BaseException) -> str:
    """Returns the compiler's full output, or an empty string if no compiler failed."""
    build = build_error(error)
    return build.log if isinstance(build, BuildFailed) else ""


def build_key(error: BaseException) -> str:
    """Returns the key of the build that a compiler refused, or an empty string if none did."""
    build = build_error(error)
    return build.key if isinstance(build, BuildFailed) else ""


def build_error(error: BaseException) -> BuildError | None:
    """Returns the build error that an exception is, or that caused it; None if there is none."""
    return next((link for link in _chain(error) if isinstance(link, BuildError)), None)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def noted(load: Callable[..., Any], solution: str, lines: list[str]) -> Callable[..., Any]:
    """Wraps an extension loader so that the first telling line of each failure is kept.

    A solution may swallow the exception.

    Args:
        load: The loader.
        solution: The solution file.
        lines: The lines so far, to which the wrapper adds.
    """

    @functools.wraps(load)
    def noting(*positional: Any, **options: Any) -> Any:
        try:
            return load(*positional, **options)
        except Exception as error:
            words = describe(error, solution).replace(f"{Path(solution).parent}/", "").splitlines()
            told = next((line for line in words if "error" in line), words[0] if words else "")
            if told not in lines and len(lines) < MAX_REFUSED:
                lines.append(told.strip()[:MAX_REFUSED_CHARACTERS])
            raise

    return noting
