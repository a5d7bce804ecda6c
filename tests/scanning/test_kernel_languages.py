"""Tests what a solution's text says about the languages of its kernels, without running it."""

from __future__ import annotations

import pytest

from harness.scanning.kernel_languages import KernelLanguages, kernel_languages
from harness.scanning.scan import MOST_CHARACTERS

BODY = "(x):\n    pass\n"


@pytest.mark.parametrize(
    ("text", "kernels"),
    [
        (f"import triton\n@triton.jit\ndef own{BODY}", {"own"}),
        (f"import triton\n@triton.autotune(configs=[], key=[])\n@triton.jit(debug=True)\ndef own{BODY}", {"own"}),
        (f"import triton as tr\n@tr.jit\ndef own{BODY}", {"own"}),
        (f"from triton import jit\n@jit\ndef own{BODY}", {"own"}),
        (f"from triton.runtime.jit import jit as kernel\n@kernel\ndef own{BODY}", {"own"}),
        (f"import triton\ndef body{BODY}own = triton.jit(body)\n", {"body"}),
        (f"import triton\nclass Kernels:\n    @triton.jit\n    def own(x):\n        pass\ndef plain{BODY}", {"own"}),
        (
            "try:\n    import triton\n    @triton.jit\n    def own(x):\n        pass\nexcept ImportError:\n    pass\n",
            {"own"},
        ),
        # the hostile or harmless look-alikes
        ("# @triton.jit\nimport triton\n", set()),
        ('SOURCE = """\nimport triton\n@triton.jit\ndef own(x): pass\n"""\n', set()),
        (f"import torch\n@torch.jit.script\ndef triton{BODY}", set()),
        (f"from mine import triton\n@triton.jit\ndef own{BODY}", set()),
        (f"from numba import jit\n@jit\ndef own{BODY}", set()),
        ("import triton\n@triton.jit\ndef broken(", set()),
    ],
)
def test_kernels_are_functions_that_triton_compiles(text: str, kernels: set[str]) -> None:
    assert kernel_languages(text).triton == kernels


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("import torch\nimport triton\nimport triton.language as tl\n", {"triton": 2}),
        ("from triton.language import load\n", {"triton": 1}),
        ("import cupy as cp\nfrom numba import cuda\nimport cutlass.cute as cute, tilelang\n",
         {"cupy": 1, "numba": 2, "cutlass": 3, "tilelang": 3}),
        ("try:\n    import triton\nexcept ImportError:\n    triton = None\n", {}),
        ("def forward(x):\n    import cupy\n", {}),
        ("from . import triton\nimport tritonclient\nimport numpy\n", {}),
        ("# import triton\n'import triton'\n", {}),
    ],
)  # fmt: skip
def test_a_package_is_needed_if_nothing_replaces_its_import(text: str, needs: dict[str, int]) -> None:
    assert kernel_languages(text).needs == needs


def test_a_text_that_the_scan_skips_says_nothing() -> None:
    text = f"import triton\n@triton.jit\ndef own{BODY}"
    assert kernel_languages(text + "#" * MOST_CHARACTERS) == KernelLanguages()
