from __future__ import annotations

import pytest

from harness.errors import TemplateError
from harness.rendering.constraints import Constraint

SETTINGS = {"threads": 128, "width": 4, "mode": "fused", "fast": True, "factor": 0.5}


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("threads % 32 == 0", True),
        ("threads % 48 == 0", False),
        ("32 <= threads < 1024", True),
        ("32 <= threads < 128", False),
        ("threads * width + 1 - 2 // 1 == 511", True),
        ("threads / width == 32", True),
        ("mode == 'fused' and fast", True),
        ("mode == 'fused' and not fast", False),
        ("mode == 'two' or width > 1", True),
        ("mode in ('one', 'two')", False),
        ("width not in [1, 2]", True),
        ("width != 4", False),
        ("-width < 0", True),
        ("factor >= 0.5", True),
        # `or` stops at what decides: the rest need not be computable.
        ("fast or width // 0 == 1", True),
    ],
)
def test_rule_is_evaluated(rule: str, expected: bool) -> None:
    assert Constraint(rule, "m").holds(SETTINGS, "params.toml") is expected


@pytest.mark.parametrize(
    ("rule", "pieces"),
    [
        ("threads %", ["not an expression"]),
        ("", ["not an expression"]),
        ("__import__('os').system('true')", ["__import__", "Allowed"]),
        ("threads.bit_length() > 1", ["bit_length", "Allowed"]),
        ("(lambda: threads)()", ["lambda", "Allowed"]),
        ("[n for n in (1, 2)] == threads", ["for n in", "Allowed"]),
        ("threads ** 999999 > 1", ["**", "Allowed"]),
        ("threads << 9999999 > 1", ["<<", "Allowed"]),
        ("mode[0] == 'f'", ["mode[0]", "Allowed"]),
        ("threads is 128", ["is 128", "Compare with"]),
        ("thread % 32 == 0", ["'thread'", "Did you mean 'threads'?"]),
        ("threads // (width - 4) == 1", ["cannot be computed"]),
        ("mode < 3", ["mixes text and numbers"]),
        ("mode * 3 == 'x'", ["mixes text and numbers"]),
        ("threads in 5", ["cannot be computed"]),
    ],
)
def test_other_code_is_refused(rule: str, pieces: list[str]) -> None:
    with pytest.raises(TemplateError) as refused:
        Constraint(rule, "m").holds(SETTINGS, "params.toml")
    for piece in ["params.toml", *pieces]:
        assert piece in str(refused.value)
