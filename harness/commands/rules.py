"""``evaluate --rules``: what an evaluation looks for in a candidate's conduct, and what comes of it."""

from __future__ import annotations

import json
from collections.abc import Mapping

from harness.judge.integrity import every_rule
from harness.project.settings import SETTINGS
from harness.records.rules import Mode

#: What ``--rules`` without a value stands for.
LISTED = SETTINGS["rules"].flag


def print_rules(changed: Mapping[str, Mode], as_json: bool) -> None:
    """Print every rule on stdout: what comes of it now, by default, and what it is broken by.

    Args:
        changed: The rules whose mode is not the default here.
        as_json: One JSON object a line.
    """
    rules = every_rule().values()
    width = max(len(rule.name) for rule in rules)
    for rule in rules:
        mode = changed.get(rule.name, rule.default)
        if as_json:
            told = {"rule": rule.name, "mode": str(mode), "default": str(rule.default), "meaning": rule.meaning}
            print(json.dumps(told))
        else:
            by_default = "" if mode == rule.default else f" (by default {rule.default})"
            print(f"{rule.name:{width}}  {mode:7}  {rule.meaning}{by_default}")
