"""Kinds of a lower precision class: they round what products multiply, group norm's what it reads.

Half-precision operands with float32 sums and TF32 are one class, ``10-bit``; bfloat16 operands are ``7-bit``. The
emulated ones round to the nearest and multiply in float32, anywhere; those on the device are tensor cores' own.
"""

from __future__ import annotations

from benchmarks.variants.kind import GROUP_NORM, Kind, left_out

EMULATED = (
    Kind(
        "fp16",
        "operands rounded to half precision",
        """
def operand(x):
    return x.half().float()
""",
        precision="10-bit",
    ),
    Kind(
        "tf32",
        "operands rounded to TF32",
        """
def operand(x):
    bits = x.contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)
""",
        precision="10-bit",
    ),
    Kind(
        "tf32_cut",
        "operands cut to TF32",
        """
def operand(x):
    return (x.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)
""",
        precision="10-bit",
    ),
    Kind(
        "bf16",
        "operands rounded to bfloat16",
        """
def operand(x):
    return x.bfloat16().float()
""",
        precision="7-bit",
    ),
)
ON_DEVICE = (
    Kind(
        "fp16_device",
        "half-precision operands, float32 sums and results",
        """
def product(a, b):
    return torch.mm(a.half(), b.half(), out_dtype=torch.float32)
""",
        device="cuda",
        precision="10-bit",
    ),
    Kind(
        "tf32_device",
        "products with TF32 switched on",
        """
def product(a, b):
    flags = torch.backends.cuda.matmul
    before = flags.fp32_precision
    flags.fp32_precision = "tf32"
    try:
        return a @ b
    finally:
        flags.fp32_precision = before
""",
        device="cuda",
        precision="10-bit",
    ),
    Kind(
        "bf16_device",
        "bfloat16 operands, float32 sums and results",
        """
def product(a, b):
    return torch.mm(a.bfloat16(), b.bfloat16(), out_dtype=torch.float32)
""",
        device="cuda",
        precision="7-bit",
    ),
)
#: Products of one term: torch takes no tensor core for these, so that TF32 changes nothing, and what rounding does to
#: them is one number's chance, which can be that of the next class.
ONE_TERM = frozenset({"one_feature_in"})


def kinds_of(problem: str) -> tuple[Kind, ...]:
    """The kinds of a problem; group norm has no products for tensor cores."""
    if problem == GROUP_NORM:
        return EMULATED
    return (*EMULATED, *left_out(ON_DEVICE, {kind.name: ONE_TERM for kind in ON_DEVICE}))
