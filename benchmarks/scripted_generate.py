"""Runs ``generate`` by a script from end to end, and says whether each stage did its part.

    python -m benchmarks.scripted_generate --device cuda:0
    python -m benchmarks.scripted_generate --device cpu

Instead of a model, ``--command`` asks this file, which answers with settings of the template ``group_norm``: ``fused``
with a wrong factor, then slow ``two_kernels``, then ``fused``, then ``streamed``. For each stage it prints what was
seen. On the CPU the search ends at the first pass, so nothing is said there of speeds. Exit code 1 if a stage did not
do its part.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import program, say
from harness.device.devices import guess
from harness.project.paths import harness_home
from harness.records.record import EvaluationRecord
from harness.records.store import Store
from harness.rendering.render_templates import find_template, render_text
from harness.rendering.values import Value

REPOSITORY = Path(__file__).resolve().parents[1]
PROBLEM = "group_norm"
#: The settings that are answered, and what is wrong in the first one: the first text stands there as the second one.
SETTINGS: tuple[dict[str, Value], ...] = (
    {"fusion": "fused"},
    {"fusion": "two_kernels", "vector_width": 1, "unroll": 1},
    {"fusion": "fused", "threads": 1024},
    {"fusion": "streamed"},
)
SLIP = ("group_rstd = 1.0f /", "group_rstd = 2.0f /")
Row = Mapping[str, Any]
Finding = tuple[str, bool, object]


def answer(folder: Path) -> str:
    """Returns the next answer; the folder's file counts them."""
    counter = folder / "asked"
    number = int(counter.read_text()) if counter.exists() else 0
    counter.write_text(str(number + 1))
    (folder / f"prompt_{number + 1}.md").write_bytes(sys.stdin.buffer.read())
    declaration = find_template(REPOSITORY, PROBLEM)
    text = render_text(REPOSITORY, declaration, SETTINGS[min(number, len(SETTINGS) - 1)])
    if not number and SLIP[0] not in text:
        raise SystemExit(f"the template has no {SLIP[0]!r} any more: choose another slip")
    return f"A scripted idea.\n\n```python\n{text if number else text.replace(*SLIP)}```\n"


def findings(
    rows: Sequence[Row], records: Mapping[str, EvaluationRecord], prompts: Sequence[str], *, on_cpu: bool
) -> Iterator[Finding]:
    """Yields for each stage its name, whether it did its part, and what was seen.

    Args:
        rows: The lines of ``generate --json``.
        records: The records that they name.
        prompts: What was sent.
        on_cpu: Whether the emulator judged.
    """
    searched, last = [row for row in rows if row["gate"] is None], rows[-1]
    device = prompts[0].partition("# Device")[2].partition("# Example")[0].strip("\n ~`")
    yield "the prompt tells the device", ("emulator" in device) is on_cpu and "compute capability" in device, device
    first = [records[name] for name in searched[0]["records"]]
    seen = [f"{one.status} on {one.device}" for one in first]
    yield (
        "the wrong answer is refused on the emulator",
        seen != [] and not any(one.device != "cpu" or one.status == "PASSED" for one in first),
        ", ".join(seen),
    )
    told = prompts[1].partition("# Its result")[2]
    yield "the repair is told the result", str(searched[0]["status"]) in told, searched[0]["status"]
    statuses = [row["status"] for row in searched[1:]]
    yield "the right answers pass", set(statuses) == {"PASSED"}, statuses
    yield "the winner passes the gate on every case", last["winner"], last["gate"]
    if on_cpu:
        return
    rewards = [row["reward"] for row in searched]
    yield "rewards are above 0", any(one is not None and one > 0 for one in rewards), rewards
    improved = "\n".join(prompts[2:])
    yield (
        "prompts tell times, kernels and the speed of light",
        ("speedup over eager" in improved and "speed of light" in improved),
        improved.partition("Times and kernels:")[2][:2000],
    )
    gate = last["gate"] or {}
    yield "the winner is timed beside the runner-up", bool(gate.get("leads")), gate.get("leads")


def work() -> int:
    """Runs the script; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--home", help="as of generate")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows and what was seen there")
    parser.add_argument("--answer", type=Path, metavar="DIR", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answer is not None:
        print(answer(options.answer))
        return 0
    home, began = harness_home(options.home), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="scripted-generate-") as scratch:
        asked = [sys.executable, "-m", "benchmarks.scripted_generate", "--answer", scratch]
        command = [sys.executable, "-m", "harness", "generate", PROBLEM, "--command", shlex.join(asked), "--json"]
        with subprocess.Popen(
            [*command, "--device", options.device, "--candidates", "4", "--run", f"{scratch}/run", "--home", str(home)],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdout=subprocess.PIPE,
            text=True,
        ) as generating:
            assert generating.stdout is not None
            rows = []
            for line in generating.stdout:
                row = json.loads(line)
                rows.append(row)
                say(f"{time.monotonic() - began:.0f} s: {row['status']}, reward {row['reward']}, gate {row['gate']}")
        prompts = [path.read_text() for path in sorted(Path(scratch).glob("prompt_*.md"))]
    if not rows or len(prompts) < 2:
        print(f"generate ended with {generating.returncode} after {len(prompts)} prompts and {len(rows)} rows")
        return 1
    with Store(home) as store:
        records = {name: store.get(name) for row in rows for name in row["records"]}
    found = list(findings(rows, records, prompts, on_cpu=guess(options.device) == "cpu"))
    for name, holds, seen in found:
        print(f"{'ok ' if holds else 'NOT'} {name}: {seen}")
    if options.json is not None:
        options.json.write_text(json.dumps({"rows": rows, "seen": found}, indent=1) + "\n")
    return 0 if all(holds for _, holds, _ in found) else 1


if __name__ == "__main__":
    sys.exit(program(work))
