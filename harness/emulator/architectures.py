"""The GPU architectures whose launch limits the emulator knows.

The numbers come from the CUDA programming guide,
https://docs.nvidia.com/cuda/cuda-c-programming-guide/ ("Technical Specifications per Compute
Capability").
"""

from __future__ import annotations

from typing import NamedTuple


class Architecture(NamedTuple):
    """Limits of one compute capability.

    Attributes:
        shared_bytes: The shared memory of a block, with the attribute that allows more than 48 KB.
        threads: The resident threads of a multiprocessor.
        shared_bytes_per_sm: The shared memory of a multiprocessor.
    """

    shared_bytes: int
    threads: int
    shared_bytes_per_sm: int


_KB = 1024
ARCHITECTURES = {
    "sm_70": Architecture(96 * _KB, 2048, 96 * _KB),
    "sm_75": Architecture(64 * _KB, 1024, 64 * _KB),
    "sm_80": Architecture(163 * _KB, 2048, 164 * _KB),
    "sm_86": Architecture(99 * _KB, 1536, 100 * _KB),
    "sm_87": Architecture(163 * _KB, 1536, 164 * _KB),
    "sm_89": Architecture(99 * _KB, 1536, 100 * _KB),
    "sm_90": Architecture(227 * _KB, 2048, 228 * _KB),
    "sm_100": Architecture(227 * _KB, 2048, 228 * _KB),
    "sm_103": Architecture(227 * _KB, 2048, 228 * _KB),
    "sm_120": Architecture(99 * _KB, 1536, 100 * _KB),
}
#: The architecture to check for by default. It has the largest limits that are common.
DEFAULT = "sm_90"
