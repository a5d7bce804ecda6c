"""Tests how trials call a candidate."""

from __future__ import annotations

from harness.judge.inputs.situations import LOSS_SCALE, SCALED, usage_of

SECRET = "5eed" * 8


def test_what_trials_freeze() -> None:
    assert usage_of(1, ["x"], ["scale", "shift"], SECRET).frozen == ("x",)
    assert usage_of(3, ["x"], ["scale"], SECRET).frozen == ("scale",)
    assert usage_of(1, ["x"], [], SECRET).frozen == ()
    assert len(usage_of(1, ["x", "y"], [], SECRET).frozen) == 1
    assert usage_of(3, [], ["scale"], SECRET).frozen == ()
    several = [(1, ["x", "y"], ["scale"]), (3, ["x"], ["scale", "shift"])]
    for trial, inputs, parameters in several:
        names = inputs if trial == 1 else parameters
        chosen = {usage_of(trial, inputs, parameters, str(secret)).frozen for secret in range(40)}
        assert chosen == {(names[0],), (names[1],), tuple(names)}
    assert usage_of(1, ["x"], [], SECRET).scale == LOSS_SCALE
    assert usage_of(1, ["x"], [], SECRET).without({SCALED}).scale == 1
    aside = usage_of(2, ["x"], [], SECRET)
    assert "once more, on other values" in aside.notes[0]
