"""Translates a candidate's exception into the protocol's terms."""

from __future__ import annotations

import functools
import re
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from harness.compilation.errors import BuildError, BuildFailed, BuildKilled, Unsupported
from harness.device.kernel_packages import INSTALL
from harness.system.text import words_of

#: The number of failed builds that the worker reports, and the length of each line.
MAX_REFUSED, MAX_REFUSED_CHARACTERS = 20, 10_000
_MEMORY_WORDS = ("can't allocate memory", "std::bad_alloc", "Cannot allocate memory", "out of memory")
#: What torch's stable C++ interface says of any call that failed, such as one that allocates.
_STABLE_WORDS = "API call failed"
#: Triton's errors for a kernel that its compiler, or the assembler behind it, refuses.
_REFUSED_BY_TRITON = {"triton.compiler.errors.CompilationError", "triton.runtime.errors.PTXASError"}
#: The error in which Triton's interpreter wraps any other.
_INTERPRETER = "triton.runtime.errors.InterpreterError"
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
    if build is not None or any(_names(link) & _REFUSED_BY_TRITON for link in _chain(error)):
        return "build"
    if any(map(_is_beyond_this_machine, _chain(error))):
        return "unsupported"
    text = words_of(error)
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or any(word in text for word in _MEMORY_WORDS):
        return "memory"
    if _STABLE_WORDS in text and torch.cuda.is_available() and torch.cuda.memory_stats().get("num_ooms", 0):
        return "memory"
    if _NO_BACKWARD_WORDS in text:
        return "no_gradient"
    return otherwise


def _names(error: BaseException) -> set[str]:
    """Returns the full names of an error's class and of its bases."""
    return {f"{one.__module__}.{one.__name__}" for one in type(error).__mro__}


def _is_beyond_this_machine(error: BaseException) -> bool:
    """Tells whether a package of kernels is missing, or Triton's interpreter cannot run a kernel."""
    if isinstance(error, ModuleNotFoundError):
        return (error.name or "").partition(".")[0] in INSTALL
    cause = error.__cause__
    is_interpreted = _INTERPRETER in _names(error) and cause is not None and _INTERPRETER not in _names(cause)
    return is_interpreted and not _is_of_the_kernel(cause)


def _is_of_the_kernel(error: BaseException | None) -> bool:
    """Tells whether Triton's compiler would refuse a kernel, too.

    It refuses a name that does not exist and what the checks of its language refuse. Other errors
    may come from values that the interpreter holds as Python's or NumPy's.
    """
    if error is None or isinstance(error, NameError):
        return True
    if isinstance(error, AttributeError):
        return "module 'triton" in words_of(error)
    raised_in = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)][-1:]
    is_check = isinstance(error, ValueError) or type(error).__name__ == "IncompatibleTypeErrorImpl"
    return is_check and any("/triton/language/" in name for name in raised_in)


def describe(error: BaseException, solution: str) -> str:
    """Describes an error in a few lines, with the last of the solution's own lines involved.

    A compiler's places in the solution have the line alone, since the file may be a temporary copy.
    """
    build = build_error(error)
    if build is not None:
        words = words_of(build).removeprefix(f"{type(build).__name__}: ")
        words = words.replace(f"{Path(solution).parent}/", "")
        return re.sub(rf"(?m)^{re.escape(Path(solution).name)}:(\d+)", r"line \1", words)
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
            words = describe(error, solution).splitlines()
            told = next((line for line in words if "error" in line), words[0] if words else "")
            if told not in lines and len(lines) < MAX_REFUSED:
                lines.append(told.strip()[:MAX_REFUSED_CHARACTERS])
            raise

    return noting
