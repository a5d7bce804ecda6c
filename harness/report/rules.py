"""What is to be said of integrity rules that had another mode than by default."""

from __future__ import annotations

from collections.abc import Sequence

from harness.records.record import EvaluationRecord
from harness.records.rules import rules_text, weakened
from harness.records.run_config import RunConfig


def rule_lines(records: Sequence[EvaluationRecord]) -> list[str]:
    """What integrity rules the user changed, and what a pass is worth where that made them weaker."""
    lines = dict[str, None]()
    for record in records:
        rules = RunConfig.of(record).rules
        if rules:
            lines[f"rules: {rules_text(rules)}"] = None
        if weak := weakened(rules):
            what = f"{', '.join(weak)} not enforced"
            lines[f"weakened: {what}; such a pass does not count where the default rules are asked for"] = None
    return list(lines)
