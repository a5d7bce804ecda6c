"""What is to be said of integrity rules that had another mode than by default."""

from __future__ import annotations

from collections.abc import Sequence

from harness.records.record import EvaluationRecord
from harness.records.rules import changed_rules, rules_text, weakened


def rule_lines(records: Sequence[EvaluationRecord]) -> list[str]:
    """What integrity rules the user changed, and what a pass is worth where that made them weaker."""
    lines = dict[str, None]()
    for record in records:
        if changed := changed_rules(record.policy):
            lines[f"rules: {rules_text(changed)}"] = None
        if weak := weakened(record.policy):
            what = f"{', '.join(weak)} not enforced"
            lines[f"weakened: {what}; such a pass does not count where the default rules are asked for"] = None
    return list(lines)
