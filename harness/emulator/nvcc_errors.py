"""Reads nvcc's errors: whose fault each one is, and the solution's line.

The front end (EDG), the host compiler that preprocesses for it, ptxas and nvcc itself each have
their own message formats.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.compilation.ptxas import demangled
from harness.emulator.diagnostics import SourceLocation, SourceLocator, diagnostics, is_own
from harness.system.text import kernel_name, shortened

SHOWN_ERRORS = 3
#: The limit for reading. A compiler gives up after some hundred errors, so a far longer log is not
#: its own.
MAX_READ_CHARACTERS = 1_000_000
#: The limit for ptxas errors. For each one the module searches the code that ptxas read, and one
#: mistake in a function can cause many.
MAX_PTXAS_ERRORS = 50
MAX_ERROR_CHARACTERS, MAX_LINE_CHARACTERS = 600, 200

_ERROR = re.compile(
    r"^(?P<file>\S.*?)\((?P<line>\d+)\): (?:catastrophic |internal )?error(?: #[\w-]+)?: (?P<message>.*)$"
)
_LED_HERE = re.compile(r"at line (?P<line>\d+)(?: of (?:\"(?P<quoted>[^\"]+)\"|(?P<file>\S.*)))?\s*$")
_IN_ENTRY = re.compile(r"^ptxas (?:error|fatal)\s*: (?P<message>.*[Ee]ntry function '(?P<kernel>[^']+)'.*)$")
_IN_PTX = re.compile(r"^ptxas (?P<file>\S+), line (?P<line>\d+); (?:error|fatal)\s*: (?P<message>.*)$")
_OF_PTXAS = re.compile(r"^(?:ptxas|nvlink) (?:error|fatal)\s*: (?P<message>.*)$")
_OF_NVCC = re.compile(r"^nvcc (?:error|fatal)\s*: (?P<message>.*)$")
_OUTCOMES = ("Ptx assembly aborted due to errors",)
#: ptxas messages about a source. Other ptxas messages without a place are about the machine.
_OF_THE_SOURCE = re.compile(r"Unresolved extern|uses too much|too many|exceeds|undefined", re.IGNORECASE)
_MISSING_HEADER = re.compile(r"(?P<header>\S+): No such file|could not open source file \"(?P<quoted>[^\"]+)\"")
#: Names that the stand-ins lack or refuse if a toolkit has no headers of the libraries. Such an
#: error does not count against the source.
_LIBRARY = re.compile(
    r"cuemu-unsupported|\"(?:cublas|cusparse|cusolver|cudnn|cufft|curand|nccl|CUBLAS_|CUSPARSE_)|\b(?:at|c10)::cuda\b"
)
_UNKNOWN_OPTION = re.compile(
    r"[Uu]nknown option|not defined for option|[Rr]edefinition of argument|requires an argument"
)

SOURCE, MACHINE = "source", "machine"


@dataclass(frozen=True)
class NvccError:
    """An error of nvcc's.

    Attributes:
        message: The message.
        fault: ``source`` or ``machine``.
        place: The place: the author's line if one led there; None if no place is known.
        kernel: The kernel that it is about, if known.
    """

    message: str
    fault: str
    place: SourceLocation | None = None
    kernel: str | None = None


def nvcc_errors(log: str, locator: SourceLocator, own_files: Sequence[str], ptx: Path) -> list[NvccError]:
    """Reads the errors from nvcc's output.

    Args:
        log: nvcc's output for one source.
        locator: The locator of the solution's lines.
        own_files: Other files that the author wrote (for ``load``).
        ptx: The input of ptxas, with marks of the source's lines. The file is missing if nvcc
            failed before ptxas.

    Returns:
        The errors in their order, at least one.
    """
    found: list[NvccError] = []
    lines = log[:MAX_READ_CHARACTERS].splitlines()
    of_front_end: list[tuple[str, list[SourceLocation]]] = []
    for line in lines:
        if error := _ERROR.match(line):
            of_front_end.append((error["message"], [SourceLocation(error["file"], int(error["line"]))]))
        elif of_front_end and (led := _LED_HERE.search(line)):
            places = of_front_end[-1][1]
            places.append(SourceLocation(led["quoted"] or led["file"] or places[0].file, int(led["line"])))
        elif len(found) < MAX_PTXAS_ERRORS and (fault := _of_ptxas(line, ptx)):
            found.append(fault)
    found += [_placed(message, places, locator, own_files) for message, places in of_front_end]
    of_host_compiler = diagnostics("\n".join(lines))
    found += [_placed(error.message, [error.place, *error.via], locator, own_files) for error in of_host_compiler]
    if not found:
        said = next((error["message"] for error in map(_OF_NVCC.match, lines) if error), "")
        if said:
            found.append(NvccError(said, SOURCE if _UNKNOWN_OPTION.search(said) else MACHINE))
    telling = [error for error in found if error.message not in _OUTCOMES] or found
    # A later error at the same place repeats the first one. Inlined code fails in every kernel.
    first_at = {error.place or error.message: error for error in reversed(telling)}
    distinct = [error for error in telling if first_at[error.place or error.message] is error]
    return distinct or [NvccError(" ".join(lines[-SHOWN_ERRORS:]).strip() or "nvcc failed without a message", MACHINE)]


def in_words(errors: Sequence[NvccError], locator: SourceLocator) -> str:
    """Describes the first few errors, each with the solution's line.

    Args:
        errors: The errors, at least one.
        locator: The locator of the solution's lines.
    """
    shown = []
    for error in errors[:SHOWN_ERRORS]:
        text = f"error: {shortened(error.message, MAX_ERROR_CHARACTERS)}"
        if error.place is not None:
            where = "line " if error.place.file == locator.path else f"{error.place.file}:"
            text = f"{where}{error.place.line}: {text}"
            source_line = locator.source_line(error.place)
            text += f"\n    {shortened(source_line.strip(), MAX_LINE_CHARACTERS)}" if source_line is not None else ""
        shown.append(text)
    if len(errors) > SHOWN_ERRORS:
        shown.append(f"… and {len(errors) - SHOWN_ERRORS} more error(s)")
    return "\n".join(shown)


def _placed(
    message: str, places: Sequence[SourceLocation], locator: SourceLocator, own_files: Sequence[str]
) -> NvccError:
    own = next((place for place in places if is_own(place, locator) or place.file in own_files), None)
    error = NvccError(message, SOURCE if own is not None else MACHINE, own or places[0])
    if missing := _MISSING_HEADER.search(message):
        header = missing["header"] or missing["quoted"]
        return replace(error, message=f"this machine has no header {header}", fault=MACHINE)
    if _LIBRARY.search(message):
        return replace(error, message=f"{message} (CUDA's library headers are missing)", fault=MACHINE)
    return error


def _of_ptxas(line: str, ptx: Path) -> NvccError | None:
    """Returns the error in a line of ptxas.

    An error in a kernel or its code is the source's fault.
    """
    if error := _IN_ENTRY.match(line):
        kernel = kernel_name(demangled(error["kernel"]))
        message = error["message"].replace(error["kernel"], kernel)
        return NvccError(message, SOURCE, _line_marked(ptx, entry=error["kernel"]), kernel)
    if error := _IN_PTX.match(line):
        return NvccError(error["message"], SOURCE, _line_marked(ptx, line=int(error["line"])))
    if error := _OF_PTXAS.match(line):
        message = re.sub(r"_Z\w+", lambda name: kernel_name(demangled(name[0])), error["message"])
        return NvccError(message, SOURCE if _OF_THE_SOURCE.search(message) else MACHINE)
    return None


_MARK = re.compile(r"\s*\.loc\s+(?P<file>\d+) (?P<line>\d+)")
_FILE = re.compile(r"\s*\.file\s+(?P<number>\d+) \"(?P<name>(?:[^\"\\]|\\.)*)\"")


def _line_marked(ptx: Path, *, entry: str = "", line: int = 0) -> SourceLocation | None:
    """Returns the source line of a line of PTX, or of a kernel's first line.

    None if it has no mark.
    """
    try:
        lines = ptx.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    if entry:
        start = next(
            (at for at, text in enumerate(lines) if re.search(rf"\.entry {re.escape(entry)}\b", text)), len(lines)
        )
        marks = (_MARK.match(text) for text in lines[start:])
    else:
        marks = (_MARK.match(text) for text in reversed(lines[:line]))
    mark = next(filter(None, marks), None)
    if mark is None:
        return None
    files = {told["number"]: told["name"] for told in map(_FILE.match, lines) if told}
    return SourceLocation(files[mark["file"]], int(mark["line"])) if mark["file"] in files else None
