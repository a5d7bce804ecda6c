"""Tells whether torch's own headers could mend a CUDA unit that failed with their stand-ins.

Such a unit is compiled again with torch's headers, which takes g++ ten times as long. That is in
vain if torch's headers nowhere have the names in the errors, and define no macro that is on those
lines and that the stand-ins lack.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from harness.compilation.torch_headers import LEAN, SELECTION
from harness.emulator.compiler import INCLUDE, INCLUDE_TORCH, Compiler, TorchPaths, python_include
from harness.emulator.diagnostics import diagnostics
from harness.emulator.flags import TORCH_DEFINITIONS
from harness.emulator.sources import CPP_HEADERS, CUDA_HEADERS, PRELUDE, implicit_headers

#: The file, beside precompiled headers, with all names in torch's headers, and in its second line the macros that the
#: stand-ins lack.
FILE = "words.txt"

_MACRO = re.compile(r"^#define (\w+)", re.MULTILINE)
_WORD = re.compile(r"[A-Za-z_]\w*")
_QUOTED = re.compile(r"'([^']*)'")
#: What a message is about, where it names more: the member of a class or namespace; and g++'s guess, which it is not.
_MEMBER = re.compile(r"no member named ('\w+')|^('\w+') is not a member of ")
_GUESS = re.compile(r"; did you mean '[^']*'\?$")
_LINE = re.compile(r'#line (\d+) "(.*)"$')
#: The lines before an error that may be behind it.
_LINES_BEFORE = 3
#: Errors that another overload, specialisation or definition of a known name could mend, and one
#: whose cause may be anywhere.
_OPEN = re.compile(
    r"no match|convert|too (?:few|many)|incomplete|operator|deduc|template argument|ambiguous|end of input"
)
#: Errors about the types that their messages quote, but for an operator and an expression.
_OF_TYPES = re.compile(
    r"^(?:no match for|no matching function for call to|invalid operands of types|invalid conversion from"
    r"|cannot convert|invalid cast from type|conversion from|incompatible types in assignment of) "
)
_OF_NO_TYPE = re.compile(r"'operator[^']*'| in '.*'(?= \(operand types? )")
#: Words of types that no header of torch's gives operators, conversions or functions: C++'s own, and CUDA's.
_NATIVE = re.compile(
    r"const|volatile|void|bool|(?:un)?signed|u?(?:char|short|int|long|longlong)[1-4]?|(?:float|double)[1-4]?|__\w+"
)
_MISSING_FILE = "No such file or directory"
_OWN_CHECK = "static assertion failed"


def preprocessors(compiler: Compiler, torch: TorchPaths, folder: Path) -> list[list[str]]:
    """Returns the commands that write the preprocessed texts of torch's headers and of the stand-ins.

    Args:
        compiler: The compiler that builds solutions.
        torch: The place of torch's headers.
        folder: The folder for the texts.
    """
    source, empty = folder / "words.h", folder / "words.select"
    source.write_text(implicit_headers((PRELUDE, *CPP_HEADERS, *CUDA_HEADERS)), encoding="utf-8")
    empty.mkdir()
    (empty / SELECTION).touch()
    common = [*compiler.command, *compiler.common_flags(), *TORCH_DEFINITIONS, "-O2", "-E", "-dD", "-P", "-x", "c++"]
    places = [f"-I{INCLUDE}", f"-I{INCLUDE_TORCH / 'cuda'}"]
    theirs = [*torch.include_flags, "-isystem", str(python_include()), "-DTORCH_API_INCLUDE_EXTENSION_H"]
    return [
        [*common, *places, *stand_ins, *theirs, str(source), "-o", str(folder / name)]
        for name, stand_ins in (("real.i", []), ("lean.i", [f"-I{empty}", f"-I{LEAN}"]))
    ]


def write(texts: Path, folder: Path) -> None:
    """Writes ``FILE``.

    Args:
        texts: The folder of the preprocessed texts.
        folder: The folder for the file.
    """
    real, lean = ((texts / name).read_text(encoding="utf-8", errors="replace") for name in ("real.i", "lean.i"))
    names, macros = set(_WORD.findall(real)), set(_MACRO.findall(real)) - set(_MACRO.findall(lean))
    (folder / FILE).write_text("\n".join(" ".join(sorted(words)) for words in (names, macros)), encoding="utf-8")


@dataclass(frozen=True)
class Words:
    """Names in torch's own headers.

    Attributes:
        names: All of them.
        macros: The macros that the stand-ins lack.
    """

    names: frozenset[str]
    macros: frozenset[str]


def read(folder: Path | None) -> Words | None:
    """Returns the names in torch's own headers; None if they are not known.

    Args:
        folder: The folder of precompiled headers.
    """
    try:
        lines = [] if folder is None else (folder / FILE).read_text(encoding="utf-8").split("\n")
    except OSError:
        return None
    return Words(*(frozenset(line.split()) for line in lines)) if len(lines) == 2 else None


def could_mend(output: str, text: str, words: Words) -> bool:
    """Tells whether torch's own headers could mend at least one error.

    Args:
        output: What the compiler said of a unit with stand-ins.
        text: The unit.
        words: The names in torch's own headers.
    """
    errors = diagnostics(output)
    lines = _lines(text)
    for error in errors:
        place = error.place
        if error.message.endswith(_MISSING_FILE):
            continue
        if error.message.startswith(_OWN_CHECK) and Path(place.file).is_relative_to(INCLUDE):
            continue
        near = [lines.get((place.file, place.line - before), "") for before in range(_LINES_BEFORE + 1)]
        if not near[0]:
            return True
        is_open = _OPEN.search(error.message) or not words.names.isdisjoint(_named(error.message))
        if is_open and not _is_of_native_types(error.message):
            return True
        if not words.macros.isdisjoint(_WORD.findall(" ".join(near))):
            return True
    return not errors


def _is_of_native_types(message: str) -> bool:
    """Tells whether an operator, conversion or function is missing whose types all are C++'s or CUDA's own."""
    types = _QUOTED.findall(_OF_NO_TYPE.sub("", message)) if _OF_TYPES.match(message) else []
    return types != [] and all(_NATIVE.fullmatch(word) for one in types for word in _WORD.findall(one))


def _named(message: str) -> list[str]:
    """Returns the names that a compiler lacks by its message; none if it lacks a token of the grammar."""
    if message.startswith("expected "):
        return []
    message = _GUESS.sub("", message)
    member = _MEMBER.search(message)
    about = member[1] or member[2] if member is not None else message
    return [name for quoted in _QUOTED.findall(about) for name in _WORD.findall(quoted)]


def _lines(text: str) -> dict[tuple[str, int], str]:
    """Returns the lines of a unit by the file and number that its ``#line`` directives give them."""
    found: dict[tuple[str, int], str] = {}
    file, number = "", 0
    for line in text.split("\n"):
        if directive := _LINE.match(line):
            number, file = int(directive[1]), directive[2].replace('\\"', '"').replace("\\\\", "\\")
        else:
            found[file, number] = line
            number += 1
    return found
