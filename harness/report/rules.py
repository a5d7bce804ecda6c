"""Describes the integrity rules whose mode is not the default."""

from __future__ import annotations

from collections.abc import Sequence

from harness.records.record import EvaluationRecord
from harness.records.rules import changed_rules, rules_text, weakened


def rule_lines(records: Sequence[EvaluationRecord]) -> list[str]:
    """Describes the rules that a user changed, and what a pass under weaker rules is worth."""
    lines = dict[str, None]()
    for record in records:
        if changed := changed_rules(record.policy):
            lines[f"rules: {rules_text(changed)}"] = None
        if weak := weakened(record.policy):
            what = f"{', '.join(weak)} not enforced"
            lines[f"weakened: {what}; such a pass does not count where the default rules are asked for"] = None
    return list(lines)
