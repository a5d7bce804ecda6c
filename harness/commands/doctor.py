"""``doctor``: shows what this machine has for judging, what it lacks, and how to get that."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from harness.errors import EXIT_HARNESS, EXIT_PASSED
from harness.project.paths import harness_home
from harness.project.settings import option
from harness.report.terminal import wrapped

if TYPE_CHECKING:
    from harness.doctor.checks import MachineCheck
    from harness.doctor.diagnosis import Diagnosis
    from harness.timing.ceilings import Ceilings

_NEEDS = {"cpu": "the CPU emulator", "cuda": "a GPU", "both": "every device"}


@click.command("doctor")
@option("device")
@option("home")
@click.option("--calibrate", is_flag=True, help="Measure and store the GPU's peak rates instead of checking.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
def command(device: str, home: str | None, calibrate: bool, as_json: bool) -> int:
    """Check what this machine has for judging, and say how to get what is missing.

    The command looks at versions, compilers, packages, memory and disk. It also builds and runs a
    small kernel. MISSING marks something that the chosen device needs; the exit code is 3 then.
    "absent" marks something that only another device needs.

    With --calibrate the command measures the GPU's peak rates instead, within seconds: bandwidths
    and the rates of matrix products. The speed of light of a problem follows from them
    (docs/measuring.md). Nothing else should run on the GPU meanwhile.

    \b
    Examples:
      python -m harness doctor
      python -m harness doctor --device cuda:0 --json
      python -m harness doctor --device cuda:0 --calibrate
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    from harness.doctor import calibration
    from harness.doctor.diagnosis import examine

    if calibrate:
        measured = calibration.calibrate(device, harness_home(home))
        print(json.dumps(asdict(measured)) if as_json else ceilings_table(measured))
        return EXIT_PASSED
    diagnosis = examine(device, harness_home(home))
    if as_json:
        checks = [asdict(check) for check in diagnosis.checks]
        print(json.dumps({"device": diagnosis.device, "ok": diagnosis.ok, "checks": checks}))
    else:
        print(wrapped(table(diagnosis), hang=9))
    return EXIT_PASSED if diagnosis.ok else EXIT_HARNESS


def table(diagnosis: Diagnosis) -> str:
    """Formats one aligned line per check, and whether the device can judge."""
    width = max(len(check.name) for check in diagnosis.checks)
    lines = [f"{_word(check):7}  {check.name:{width}}  {_details(check)}" for check in diagnosis.checks]
    missing = [check.name for check in diagnosis.checks if check.ok is False]
    lines.append(f"{diagnosis.device}: " + (f"does not work: missing {', '.join(missing)}" if missing else "works"))
    return "\n".join(lines)


def ceilings_table(ceilings: Ceilings) -> str:
    """Formats the device, one aligned line per rate, and the time of the measurement."""
    figures = ceilings.figures()
    width = max(len(name) for name in figures)
    lines = [f"{name:{width}}  {figure}" for name, figure in figures.items()]
    return "\n".join([f"{ceilings.device}, {ceilings.software}", *lines, f"measured {ceilings.measured_at}"])


def _word(check: MachineCheck) -> str:
    return {True: "ok", False: "MISSING", None: "absent"}[check.ok]


def _details(check: MachineCheck) -> str:
    if check.ok:
        return check.found
    return f"{check.found} (for {_NEEDS[check.needed_for]}): {check.remedy}"
