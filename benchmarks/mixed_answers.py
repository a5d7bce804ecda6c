"""How many of a model's own answers a minute, and how many were built before their turn.

    python -m benchmarks.mixed_answers --problem KernelBench/KernelBench --device cuda:0 runs/my_model
    python -m benchmarks.mixed_answers --problem KernelBench/KernelBench --device cpu runs/my_model -- --forward-only

The folder and the problems are as of ``evaluate --answers``. Nothing is built beforehand unless ``--home`` says where.
Prints each verdict as it comes, then candidates a minute, processor seconds, statuses and seconds by stage. A candidate
that builds nothing, or whose build the text alone refuses, counts as built before its turn. Exit code 1 without a
verdict.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.throughput import REPOSITORY, rates, utilisation


def main() -> int:
    """Run the script; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("answers", type=Path, help="the folder of answers")
    parser.add_argument("--problem", required=True, help="as of evaluate")
    parser.add_argument("--device", default="cuda:0", help="as of evaluate")
    parser.add_argument("--home", type=Path, help="a HARNESS_HOME to judge in [default: a scratch one]")
    parser.add_argument("options", nargs="*", help="further options of evaluate, behind --")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mixed-answers-") as scratch, utilisation(options.device) as busy:
        program = [sys.executable, "-m", "harness", "evaluate", "--answers", str(options.answers), "--json"]
        started = time.monotonic()
        process = subprocess.Popen(
            [*program, "--problem", options.problem, "--device", options.device, *options.options],
            env={
                **os.environ,
                "HARNESS_HOME": str((options.home or Path(scratch) / "home").resolve()),
                "PYTHONPATH": str(REPOSITORY),
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        rows: list[dict[str, Any]] = []
        for line in process.stdout:
            row = json.loads(line)
            at = time.monotonic() - started
            print(f"{at:7.1f} s {row['status'] or 'no verdict':13} {row['solution']}", file=sys.stderr)
            if row["status"] is not None:
                rows.append(row)
        process.wait()
        seconds = time.monotonic() - started
    if not rows:
        return 1
    rates(rows, seconds, busy)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor_s = used.ru_utime + used.ru_stime
    print(f"processor seconds: {processor_s:.0f}, {processor_s / len(rows):.1f} a candidate")
    print(f"statuses: {dict(Counter(row['status'] for row in rows).most_common())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
