"""The float64 reference convolves by matrix products on a GPU, and by cuDNN where these do not fit."""

import subprocess
import sys

import pytest
import torch

from harness.judge.reference.torch_settings import ExactConvolutions


class Evaluation:
    """Fits memory with cuDNN alone; keeps whether cuDNN was on at each call."""

    def __init__(self):
        self.with_cudnn = []

    def __call__(self):
        self.with_cudnn.append(torch.backends.cudnn.enabled)
        if not torch.backends.cudnn.enabled:
            raise torch.OutOfMemoryError("products do not fit")
        return "result"


@pytest.fixture
def evaluation():
    return Evaluation()


def test_what_does_not_fit_as_products_is_evaluated_by_cudnn_from_then_on(evaluation):
    convolutions = ExactConvolutions(torch.device("cuda"))
    assert [convolutions.call(evaluation), convolutions.call(evaluation)] == ["result", "result"]
    assert evaluation.with_cudnn == [False, True, True]


def test_what_must_not_run_twice_fails_once(evaluation):
    convolutions = ExactConvolutions(torch.device("cuda"))
    with pytest.raises(torch.OutOfMemoryError):
        convolutions.call(evaluation, can_repeat=False)
    assert convolutions.call(evaluation, can_repeat=False) == "result"
    assert evaluation.with_cudnn == [False, True]


def test_the_setting_is_as_before_behind_it():
    assert ExactConvolutions(torch.device("cuda")).call(lambda: torch.backends.cudnn.enabled) is False
    assert torch.backends.cudnn.enabled


def test_nothing_changes_without_a_gpu():
    assert ExactConvolutions(torch.device("cpu")).call(lambda: torch.backends.cudnn.enabled)


PROGRAM = """
import torch
from harness.judge.reference.torch_settings import ExactConvolutions

torch.backends.cudnn.conv.fp32_precision = "ieee"
print(ExactConvolutions(torch.device("cuda")).call(lambda: torch.backends.cudnn.enabled), torch.backends.cudnn.enabled)
"""


def test_a_problem_may_have_set_the_precision_of_convolutions():
    # In a process of its own, since torch has no way back from this setting.
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert ran.stdout == "False True\n", ran.stderr
