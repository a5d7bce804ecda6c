"""Maps addresses in a checked build to the solution's lines with binutils' ``addr2line``."""

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
    """Adds lines to the accesses that the runtime knows only by their code address.

    Args:
        reports: The runtime's reports. An access may have ``code``: a library and an offset in it.

    Returns:
        The reports with ``line`` (0 if unknown) in place of ``code``, also in messages. Of reports
        with the same kind, kernel and lines the first one stays.
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
        # One line may consist of several instructions, each with its own report.
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
    """Returns the solution's lines of the calls that return to these offsets, if known."""
    program = shutil.which("addr2line")
    if program is None:
        return {}
    # A return address follows the call and may belong to the next line.
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
    """Returns the line, unless the file is a header of the emulator, torch or the system."""
    found = _PLACE.match(text)
    if found is None or found["file"].startswith(_header_folders()):
        return None
    return int(found["line"])


def _header_folders() -> tuple[str, ...]:
    # Not all of /usr: a program can run below /usr/src and have its sources there.
    return (f"{EMULATOR}/", f"{torch_paths().root}/", "/usr/include/", "/usr/lib/", "/usr/local/include/")
