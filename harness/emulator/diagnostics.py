"""Explains a failed build to the author: the telling lines, with the solution's own file and line.

The compiler reads rewritten text. ``#line`` directives that name the solution file make it count in
the author's lines. ``SourceLocator`` finds those lines, and ``build_error`` reads the compiler's
output.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.compilation.errors import BuildError, Unsupported, failed_build
from harness.emulator.compiler import INCLUDE_TORCH, torch_paths
from harness.emulator.missing_functions import missing_function

_SHOWN_ERRORS = 3
_MARKER = "cuemu-unsupported:"
_SOURCE_LABELS = ("<cuda_sources", "<cpp_sources", "<functions")


@dataclass(frozen=True)
class SourceLocation:
    """A line of a file, as ``#line`` names it."""

    file: str
    line: int


@dataclass(frozen=True)
class _Constant:
    """A string constant of the solution whose lines are lines of the file."""

    text: str
    line: int


class SourceLocator:
    """Finds the lines of a CUDA or C++ source string in a solution file.

    Args:
        path: The solution file, as messages should name it.
        text: The file's content. In a text that is not Python the locator finds nothing.
    """

    def __init__(self, path: Path | str, text: str):
        self.path = str(path)
        self._lines = text.splitlines()
        self._constants = _string_constants(text)

    def places(self, source: str, label: str) -> list[SourceLocation]:
        """Returns the place of each line of a source.

        The method locates a source exactly if it is one string constant, or constants joined
        together. It locates an f-string by its first constant piece. So a line that the f-string's
        fields lengthened counts as a line of the label.

        Args:
            source: The text passed to the build.
            label: The file name for lines that the solution does not contain, such as
                ``<cuda_sources[0]>``.

        Returns:
            One place for each line of ``source`` (the number of its line breaks plus one).
        """
        lines = source.split("\n")
        found: list[SourceLocation] = []
        offset = 0
        while len(found) < len(lines):
            constant = self._longest_at(source, offset)
            count = constant.text.count("\n") if constant else 0
            if constant is None or (count == 0 and offset + len(constant.text) < len(source)):
                found.append(SourceLocation(label, len(found) + 1))
                offset += len(lines[len(found) - 1]) + 1
                continue
            ends_the_source = offset + len(constant.text) >= len(source)
            tail_stays = ends_the_source or not constant.text.endswith("\n")
            taken = count + 1 if tail_stays else count
            for index in range(taken):
                offset += len(lines[len(found)]) + 1
                found.append(SourceLocation(self.path, constant.line + index))
        return found[: len(lines)]

    def source_line(self, place: SourceLocation) -> str | None:
        """Returns a line of the solution; None for another file or a missing line."""
        if place.file == self.path and 0 < place.line <= len(self._lines):
            return self._lines[place.line - 1]
        return None

    def _longest_at(self, source: str, offset: int) -> _Constant | None:
        fitting = [constant for constant in self._constants if source.startswith(constant.text, offset)]
        return max(fitting, key=lambda constant: len(constant.text), default=None)


def _string_constants(text: str) -> list[_Constant]:
    """Returns the non-empty string constants whose line breaks are those of the file."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    constants: list[_Constant] = []
    pieces = {id(value) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for value in node.values}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.strip()):
            continue
        end = node.end_lineno or node.lineno
        same_lines = end - node.lineno == node.value.count("\n")
        if id(node) in pieces:
            constants.extend(_piece_of_format(text, node))
        elif same_lines and (node.value.count("\n") or len(node.value) > 8):
            constants.append(_Constant(node.value, node.lineno))
    return constants


def _piece_of_format(text: str, node: ast.Constant) -> list[_Constant]:
    """Finds a constant piece of an f-string in the text.

    Before Python 3.12 the piece has the position of the whole f-string, so the function searches
    for it.
    """
    value = str(node.value)
    segment = text.splitlines()[node.lineno - 1 :]
    doubled = value.replace("{", "{{").replace("}", "}}")
    offset = "\n".join(segment).find(doubled)
    if offset < 0 or value.count("\n") < 1:
        return []
    return [_Constant(value, node.lineno + "\n".join(segment)[:offset].count("\n"))]


@dataclass(frozen=True)
class Diagnostic:
    """One error of the compiler.

    Attributes:
        place: The place where the compiler reports it.
        message: The compiler's message, without ``error:``.
        via: The places that led there, the nearest first: instantiations, includes, the use of a
            macro.
    """

    place: SourceLocation
    message: str
    via: tuple[SourceLocation, ...]


_ERROR = re.compile(r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<message>.*)$")
_INCLUDED = re.compile(r"(?:In file included|^\s+) from (?P<file>[^:\n]+):(?P<line>\d+)")
_REQUIRED = re.compile(
    r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:\d+:)?\s+"
    r"(?:required (?:from|by)|(?:note: )?(?:in expansion of macro|in instantiation of|in definition of macro))"
)
# CUDA libraries that a source may call without including their headers, since torch's headers
# include them.
_LIBRARIES = {
    "cublas": "cuBLAS",
    "cudnn": "cuDNN",
    "curand": "cuRAND",
    "cusparse": "cuSPARSE",
    "cusolver": "cuSOLVER",
    "cufft": "cuFFT",
    "nccl": "NCCL",
    "thrust": "Thrust",
    "cub": "CUB",
    "cutlass": "CUTLASS",
    "cute": "CuTe",
}
_LIBRARY_REMEDY = "write the operation as a kernel, or call torch's in Python"
_MISSING_LIBRARY = re.compile(
    r"'(?=(?P<name>(?:cub|thrust)::\w+)?)"
    r"(?P<prefix>cublas|cudnn|curand|cusparse|cusolver|cufft|nccl|thrust|cub|cutlass|cute"
    r"|CUBLAS(?=_)|CUDNN(?=_))(?:[A-Z_]\w*)?(?:::[^']*)?'"
    r"[^']*(?:not declared|not been declared|does not name a type|is not a type)"
)
# A part that the stand-in for a library's header lacks.
_MISSING_MEMBER = re.compile(
    r"'(?P<name>\w+)' (?:is not a member of|in namespace) '(?P<space>(?:cub|cuda|thrust)(?:::\w+)*)'"
)
_MISSING_IN_TORCH = re.compile(
    r"'(?P<name>\w+)' (?:is not a member of|in namespace) '(?P<space>(?:at|c10)::cuda(?:::\w+)*)'"
)
_TORCH_FOR_CUDA = ("ATen/cuda", "c10/cuda")
# An operator or a conversion that torch's builds switch off.
_SWITCHED_OFF = re.compile(
    r"(?:no match for 'operator|cannot convert|conversion from|invalid cast|invalid 'static_cast'|no matching function"
    r" for call to '__(?:half|nv_bfloat16)\().*(?:__half|__nv_bfloat16)"
)
_SWITCH_ON = (
    "torch builds 16-bit floats without operators (__half, __half2) and conversions (__half, __nv_bfloat16): call"
    " __hmul, __half2float, __float2half and the like, or give -U__CUDA_NO_HALF_OPERATORS__ and its kind in"
    " extra_cuda_cflags"
)
# CUDA headers without a stand-in in the emulator.
_MISSING_HEADER = re.compile(
    r"(?P<header>(?:cub|thrust|cutlass|cute|cuda|cooperative_groups|nvtx3|nv)/\S+"
    r"|(?:cu(?:blas|dnn|rand|sparse|solver|fft|da|tensor|pti)\w*|nvrtc\w*|nvToolsExt|nccl|mma|\w*texture\w*|sm_\d+\w*)"
    r"\.(?:h|hpp|cuh)): No such file"
)
#: g++'s message for a kernel launch, which is rewritten in the author's text alone.
_TORCH_HEADER = re.compile(r"/torch/include/(?P<header>[\w./-]+)$")
_LAUNCH = "expected primary-expression before '<' token"
_HEADER_REMEDY = "write the part that you need in the kernel, or call torch's operator in Python"
_CHANGED_MEANING = "changes meaning of"
_LINKER = re.compile(r"(undefined reference to|multiple definition of|cannot find -l\S+|ld(?:\.\w+)?: )")


def diagnostics(log: str) -> list[Diagnostic]:
    """Reads the errors from the output of g++ or clang++.

    Args:
        log: The compiler's standard error.

    Returns:
        The errors in their order.
    """
    found: list[Diagnostic] = []
    instantiated: list[SourceLocation] = []
    included_from: list[SourceLocation] = []
    for line in log.splitlines():
        if error := _ERROR.match(line):
            place = SourceLocation(error["file"], int(error["line"]))
            found.append(Diagnostic(place, error["message"].strip(), (*instantiated, *included_from)))
            instantiated, included_from = [], []
        elif required := _REQUIRED.match(line):
            place = SourceLocation(required["file"], int(required["line"]))
            if "required" in line:
                instantiated.append(place)
            elif found:
                last = found[-1]
                found[-1] = Diagnostic(last.place, last.message, (*last.via, place))
        elif included := _INCLUDED.search(line):
            if line.startswith("In file included"):
                included_from = []
            included_from.append(SourceLocation(included["file"], int(included["line"])))
    return found


def is_own(place: SourceLocation, locator: SourceLocator) -> bool:
    """Returns whether a place is in the author's source.

    That is the solution file, or a source that the locator did not find in it.
    """
    return place.file == locator.path or place.file.startswith(_SOURCE_LABELS)


def build_error(log: str, locator: SourceLocator, own_files: Sequence[str] = ()) -> BuildError:
    """Returns the error to raise for a failed compiler run.

    Args:
        log: The compiler's output.
        locator: The locator of the solution's lines.
        own_files: Other files that the author wrote (for ``load``).

    Returns:
        ``Unsupported`` if the source uses something that the emulator refuses by name, else
        ``BuildFailed`` or ``BuildKilled``.
    """
    errors = diagnostics(log)

    def author_place(error: Diagnostic) -> SourceLocation:
        for place in (error.place, *error.via):
            if is_own(place, locator) or place.file in own_files:
                return place
        return error.place

    for error in errors:
        if _MARKER in error.message:
            place = author_place(error)
            construct, remedy = _marker(error.message)
            return Unsupported(construct, place.file, place.line, remedy)
    for error in errors:
        if header := _MISSING_HEADER.search(error.message):
            place = author_place(error)
            return Unsupported(f"<{header['header']}>", place.file, place.line, _HEADER_REMEDY)
        if member := _MISSING_MEMBER.search(error.message):
            place = author_place(error)
            return Unsupported(f"{member['space']}::{member['name']}", place.file, place.line, _LIBRARY_REMEDY)
        if (member := _MISSING_IN_TORCH.search(error.message)) and _is_lacking(member["name"]):
            place = author_place(error)
            return Unsupported(f"{member['space']}::{member['name']}", place.file, place.line, _LIBRARY_REMEDY)
        if missing := _MISSING_LIBRARY.search(error.message):
            place = author_place(error)
            construct = missing["name"] or _LIBRARIES[missing["prefix"].lower()]
            return Unsupported(construct, place.file, place.line, _LIBRARY_REMEDY)
        if lacking := missing_function(error.message):
            place = author_place(error)
            return Unsupported(lacking[0], place.file, place.line, lacking[1])
        if (launching := _TORCH_HEADER.search(error.place.file)) and _LAUNCH in error.message:
            place = author_place(error)
            return Unsupported(f"<{launching['header']}> (it has launches)", place.file, place.line, _HEADER_REMEDY)
    return failed_build(_message(log, errors, author_place_of=[author_place(e) for e in errors], locator=locator), log)


def needs_permission(log: str) -> bool:
    """Tells whether all errors are about ``using Name = Name<T>`` in a class, which nvcc accepts.

    Args:
        log: The output of g++, which accepts it with ``-fpermissive``.
    """
    errors = diagnostics(log)
    return bool(errors) and all(_CHANGED_MEANING in error.message for error in errors)


def _is_lacking(name: str) -> bool:
    """Tells whether torch's headers for CUDA have a name that the emulator's stand-ins lack."""
    word = re.compile(rf"\b{re.escape(name)}\b")

    def has(root: Path) -> bool:
        headers = (header for folder in _TORCH_FOR_CUDA for header in (root / folder).rglob("*.*h"))
        return any(word.search(header.read_text(encoding="utf-8", errors="replace")) for header in headers)

    return has(torch_paths().root / "include") and not has(INCLUDE_TORCH / "cuda")


def _marker(message: str) -> tuple[str, str]:
    """Returns construct and remedy from ``cuemu-unsupported: construct: remedy``, quoted or not."""
    marked = message.split(_MARKER, 1)[1].strip()
    construct, _, remedy = marked.partition(": ")
    trailing = " \"'\N{RIGHT SINGLE QUOTATION MARK}]"
    return construct.strip(trailing), remedy.strip(trailing) or "write it in another way"


def _message(log: str, errors: list[Diagnostic], author_place_of: list[SourceLocation], locator: SourceLocator) -> str:
    shown: list[str] = []
    for error, place in list(zip(errors, author_place_of, strict=True))[:_SHOWN_ERRORS]:
        text = f"{place.file}:{place.line}: error: {error.message}"
        if place != error.place:
            text += f" (in {Path(error.place.file).name}:{error.place.line})"
        source_line = locator.source_line(place)
        shown.append(text if source_line is None else f"{text}\n    {source_line.strip()}")
    if len(errors) > _SHOWN_ERRORS:
        shown.append(f"… and {len(errors) - _SHOWN_ERRORS} more error(s) in the build log.")
    if any(_SWITCHED_OFF.search(error.message) for error in errors):
        shown.append(_SWITCH_ON)
    if shown:
        return "\n".join(shown)
    telling = [line.strip() for line in log.splitlines() if _LINKER.search(line)][:_SHOWN_ERRORS]
    if telling:
        return "\n".join(telling)
    return "\n".join(log.strip().splitlines()[-_SHOWN_ERRORS:]) or "the compiler failed without a message"
