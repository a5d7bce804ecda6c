"""Print the figures of ``evaluate --json`` lines from standard input, one line a record."""

from __future__ import annotations

import json
import sys
from typing import Any


def figures_of(row: dict[str, Any]) -> str:
    """A record's status, build and times, in milliseconds."""
    parts = [f"{row['solution']} {row['case']} {row['status']}"]
    if row["status"] != "PASSED":
        parts.append(row["message"][:300])
    parts.append(f"build {row['build_s']:.1f} s, reference in {row['reference_pieces']} pieces")
    for name, sides in row["samples"].items():
        mine, eager = sides["candidate"], sides["eager"]
        parts.append(
            f"{name} {mine['median_ms']:.3f} ms [{mine['low_ms']:.3f}, {mine['high_ms']:.3f}], "
            f"eager {eager['median_ms']:.3f} ms [{eager['low_ms']:.3f}, {eager['high_ms']:.3f}], "
            f"speedup {row['speedup'][name]:.3f}, {len(mine['samples_ms'])} pairs"
        )
    return "; ".join(parts)


if __name__ == "__main__":
    for line in sys.stdin:
        print(figures_of(json.loads(line)))
