"""From addresses in a checked build to lines of the solution, by ``addr2line`` of the compiler's own binutils."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

from harness.emulator.compiler import EMULATOR, torch_paths

_PLACE = re.compile(r"(?P<file>.+):(?P<line>\d+)(?: \(discriminator \d+\))?$")
_UNKNOWN = "an unknown line"


def with_lines(reports: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runtime's reports with the lines of accesses that it knows by their code alone.

    Args:
        reports: As the runtime tells them; an access may have ``code``, a library and an offset in it.

    Returns:
        The same, ``code`` replaced by ``line`` (0 where it is not known), also in messages; of those that are alike in
        kind, kernel and lines the first.
    """
    wanted: dict[str, set[int]] = {}
    for access in (access for report in reports for access in report["accesses"]):
        if "code" in access:
            library, offset = access["code"]
            wanted.setdefault(library, set()).add(offset)
    found = {library: _lines(library, sorted(offsets)) for library, offsets in wanted.items()}
    kept: dict[tuple[Any, ...], dict[str, Any]] = {}
    for report in (_resolved(report, found) for report in reports):
        lines = sorted(access["line"] for access in report["accesses"])
        # One line may be several instructions, each of which has been told of.
        key = (report["kind"], report["kernel"], *lines) if any(lines) else (report["kind"], report["message"])
        kept.setdefault(key, report)
    return list(kept.values())


def _resolved(report: dict[str, Any], found: dict[str, dict[int, int]]) -> dict[str, Any]:
    accesses = []
    for access in report["accesses"]:
        access = dict(access)
        if "code" in access:
            library, offset = access.pop("code")
            access["line"] = found[library].get(offset, 0)
        accesses.append(access)
    message = report["message"]
    for number, access in enumerate(accesses):
        words = str(access["line"]) if access["line"] else _UNKNOWN
        message = message.replace(f"line {{{number}}}", f"line {words}" if access["line"] else words)
    line = report["line"] or (accesses[0]["line"] if accesses else 0)
    return {**report, "accesses": accesses, "message": message, "line": line}


def _lines(library: str, offsets: Sequence[int]) -> dict[int, int]:
    """The solution's lines of the calls that return to these offsets; what is not known is left out."""
    program = shutil.which("addr2line")
    if program is None:
        return {}
    # A return address is behind the call, and may belong to the next line.
    addresses = [hex(offset - 1) for offset in offsets]
    command = [program, "-a", "-i", "-e", library, *addresses]
    finished = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    lines: dict[int, int] = {}
    place = -1
    for text in finished.stdout.decode(errors="replace").splitlines():
        if text.startswith("0x"):
            place += 1
        elif 0 <= place < len(offsets) and offsets[place] not in lines and (line := _own_line(text)):
            lines[offsets[place]] = line
    return lines


def _own_line(text: str) -> int | None:
    """The line, if the file is none of the emulator's, torch's or the system's headers."""
    found = _PLACE.match(text)
    if found is None or found["file"].startswith(_header_folders()):
        return None
    return int(found["line"])


def _header_folders() -> tuple[str, ...]:
    # Not all of /usr: programs may run, and have their sources named, below /usr/src.
    return (f"{EMULATOR}/", f"{torch_paths().root}/", "/usr/include/", "/usr/lib/", "/usr/local/include/")
