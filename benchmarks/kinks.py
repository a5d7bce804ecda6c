"""Does an honest solution pass whatever is drawn? Evaluate it under many secrets, and count what was done about kinks.

    python benchmarks/kinks.py --problem P --solutions a.py b.py --case full --device cuda:0 --evaluations 50

Prints one JSON object: for each solution how many evaluations passed, the redrawn samples and remaining elements of
each, and the message of each that failed. Exits with 1 where one did not pass. Secrets are 1, 2, 3, ... in hex, so that
a run can be repeated; nothing is answered from the store.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any


def evaluate(options: argparse.Namespace, solution: str, secret: str) -> dict[str, Any]:
    """One evaluation; its record."""
    command = [
        sys.executable,
        "-m",
        "harness",
        "evaluate",
        solution,
        "--problem",
        options.problem,
        "--case",
        options.case,
    ]
    command += ["--device", options.device, "--seed", secret, "--json", "--fresh", *options.more]
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    lines = finished.stdout.splitlines()
    if finished.returncode not in (0, 1) or len(lines) != 1:
        raise SystemExit(f"{' '.join(command)}\nended with {finished.returncode} and {len(lines)} records")
    row: dict[str, Any] = json.loads(lines[0])
    print(solution, secret, row["status"], row["kinks"], f"{row['total_s']:.1f} s", file=sys.stderr, flush=True)
    return row


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the records of one solution say together."""
    return {
        "passed": sum(row["status"] == "PASSED" for row in rows),
        "total": len(rows),
        "redrawn": [row["kinks"].get("redrawn") for row in rows],
        "remaining": [row["kinks"].get("remaining") for row in rows],
        "seconds": [round(row["total_s"], 1) for row in rows],
        "failures": [
            {"seed": row["seed"], "status": row["status"], "message": row["message"]}
            for row in rows
            if row["status"] != "PASSED"
        ],
    }


def main() -> int:
    """Evaluate, print, and say whether all passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problem", required=True)
    parser.add_argument("--solutions", nargs="+", required=True)
    parser.add_argument("--case", default="full")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--evaluations", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=1, help="evaluations at a time; speeds then mean nothing")
    parser.add_argument("--output", type=Path, help="write the JSON object there as well")
    parser.add_argument("more", nargs="*", help="further options of evaluate, after --")
    options = parser.parse_args()
    found: dict[str, Any] = {
        "problem": options.problem,
        "case": options.case,
        "device": options.device,
        "solutions": {},
    }
    for solution in options.solutions:
        secrets = [f"{number:x}" for number in range(1, options.evaluations + 1)]
        with ThreadPoolExecutor(options.jobs) as pool:
            rows = list(pool.map(lambda secret, solution=solution: evaluate(options, solution, secret), secrets))
        found["solutions"][solution] = summary(rows)
    text = json.dumps(found, indent=2)
    print(text)
    if options.output:
        options.output.write_text(text + "\n")
    return int(any(each["passed"] < each["total"] for each in found["solutions"].values()))


if __name__ == "__main__":
    sys.exit(main())
