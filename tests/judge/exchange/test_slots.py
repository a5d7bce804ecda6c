"""Tests the slots of timed calls' results."""

from __future__ import annotations

import pytest
import torch

from harness.judge.exchange.exchange import Exchange, TensorForm
from harness.judge.exchange.slots import Slots
from harness.judge.process.candidate_stopped import CandidateStopped
from harness.records.record import Status


@pytest.mark.parametrize("elements", [300, 1 << 18])
def test_results_that_change_after_the_bell_are_not_taken(elements: int) -> None:
    x = torch.randn(elements)
    exchange = Exchange([], [x], [], [TensorForm(x.shape, x.dtype)], {}, input_names={}, device=torch.device("cpu"))
    slots = Slots(exchange, exchange.outputs, (), 2, torch.device("cpu"))
    places = slots.result_places(seed=1)
    for number in range(2):
        slots.poison(number)  # none, then the first's
        before = slots.sampled_results(number, places)
        (taken,) = slots.results(number, places, before)
        assert taken.shape == (elements,)
        slots.write(number, [x], [])
    slots.poison(2)
    with pytest.raises(CandidateStopped) as stopped:
        slots.results(1, places, before)
    assert (stopped.value.status, stopped.value.rule) == (Status.CHEATED, "late_write")
    slots.close()
    exchange.close()
