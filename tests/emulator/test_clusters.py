"""Tests clusters of blocks, and copies of boxes of tensors, in all orders of threads and in the checking mode."""

from __future__ import annotations

import ctypes
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from .native import INVALID_VALUE, ORDERS, SUCCESS, Emulator, ints

SOURCE = Path(__file__).with_name("clusters.cu")
INVALID_CLUSTER_SIZE = 912
UINT8, UINT16, INT32, FLOAT16, FLOAT32, FLOAT64 = 0, 1, 3, 6, 7, 8
BYTES = {UINT8: 1, UINT16: 2, INT32: 4, FLOAT16: 2, FLOAT32: 4, FLOAT64: 8}


@pytest.fixture(scope="session", params=[False, True], ids=["fast", "check"])
def built(request: pytest.FixtureRequest, native: Callable[..., Emulator]) -> Emulator:
    return native(SOURCE, bool(request.param))


@pytest.fixture(params=ORDERS)
def emulator(request: pytest.FixtureRequest, built: Emulator) -> Iterator[Emulator]:
    built.begin()
    built.runtime.cuemu_set_order(ORDERS[request.param], 3)
    yield built
    assert built.reports() == []
    built.reset()


@pytest.mark.parametrize(("cluster", "grid"), [((2, 1, 1), (4, 1, 1)), ((2, 2, 1), (4, 2, 3)), ((1, 2, 2), (3, 4, 2))])
def test_a_block_knows_its_place_in_its_cluster(
    emulator: Emulator, cluster: tuple[int, ...], grid: tuple[int, ...]
) -> None:
    blocks = grid[0] * grid[1] * grid[2]
    found = ints(14 * blocks)
    assert emulator.kernels.run_places(found, *cluster, *grid) == SUCCESS
    for number, (z, y, x) in enumerate(itertools.product(*(range(size) for size in reversed(grid)))):
        index = tuple(at % size for at, size in zip((x, y, z), cluster, strict=True))
        rank = (index[2] * cluster[1] + index[1]) * cluster[0] + index[0]
        identity = tuple(at // size for at, size in zip((x, y, z), cluster, strict=True))
        count = tuple(whole // size for whole, size in zip(grid, cluster, strict=True))
        expected = (rank, cluster[0] * cluster[1] * cluster[2], *index, *cluster, *identity, *count)
        assert tuple(found[14 * number : 14 * (number + 1)]) == expected


@pytest.mark.parametrize("blocks", [4, 8, 400])
def test_blocks_of_a_cluster_read_each_others_shared_memory(emulator: Emulator, blocks: int) -> None:
    found = ints(blocks)
    emulator.kernels.run_rounds(found, blocks)
    for block in range(blocks):
        first = block // 4 * 4
        own = sum(range(first + 1, first + 5)) * 16
        assert found[block] == own * 10 + block % 4 + (1000000 if block % 4 == 3 else 0)


def test_a_block_copies_and_arrives_in_another_one(emulator: Emulator) -> None:
    found = ints(32)
    emulator.kernels.run_across(found)
    assert list(found) == [3 * i for i in range(32)]


def test_a_cluster_has_as_many_blocks_as_the_device_allows(built: Emulator) -> None:
    built.begin()
    found = ints(14 * 16)
    assert built.kernels.active_clusters(16, 0) == -1
    assert built.kernels.run_places(found, 16, 1, 1, 16, 1, 1) == INVALID_CLUSTER_SIZE
    assert "a cluster of (16,1,1) blocks; the limit is 8" in str(built.only_report("launch", "places")["message"])
    assert built.kernels.run_places(found, 2, 2, 1, 4, 3, 1) == INVALID_CLUSTER_SIZE
    assert "no whole number of clusters of (2,2,1)" in str(built.only_report("launch", "places")["message"])
    built.reset()


def test_a_larger_cluster_is_asked_for(built: Emulator) -> None:
    built.begin()
    found = ints(14 * 16)
    assert built.kernels.active_clusters(2, 0) == 132
    assert built.kernels.allow_any_cluster(1) == SUCCESS
    assert built.kernels.active_clusters(16, 0) == 132 * 2 // 16
    assert built.kernels.run_places(found, 16, 1, 1, 16, 1, 1) == SUCCESS
    built.kernels.allow_any_cluster(0)
    built.reset()


class Tensor:
    """A tensor of random bytes with a tensor map, the innermost dimension first.

    In an interleaved layout an element is a slice of 16 or 32 bytes of channels.
    """

    def __init__(self, kind: int, sizes: Sequence[int], padding: int = 0, interleave: int = 0):
        self.kind, self.sizes, self.interleave = kind, tuple(sizes), interleave
        width = 16 * interleave or BYTES[kind]
        self.strides = [width]
        for size in sizes[:-1]:
            row = self.strides[-1] * size
            self.strides.append((row + 15) // 16 * 16 + padding)
        count = self.strides[-1] * sizes[-1]
        chosen = random.Random(5)
        self.data = bytes(chosen.randrange(1, 120) for _ in range(count))
        self.memory = ctypes.create_string_buffer(count + 32)
        self.address = (ctypes.addressof(self.memory) + 31) // 32 * 32
        ctypes.memmove(self.address, self.data, count)

    def encode(
        self, emulator: Emulator, box: Sequence[int], steps: Sequence[int] = (), swizzle: int = 0, fill: int = 0
    ) -> int:
        rank = len(self.sizes)
        status: int = emulator.kernels.encode(
            self.kind,
            rank,
            ctypes.c_void_p(self.address),
            (ctypes.c_uint64 * rank)(*self.sizes),
            (ctypes.c_uint64 * max(rank - 1, 1))(*self.strides[1:]),
            (ctypes.c_uint32 * rank)(*box),
            (ctypes.c_uint32 * rank)(*(steps or [1] * rank)),
            self.interleave,
            swizzle,
            fill,
        )
        return status

    def element(self, at: Sequence[int]) -> bytes:
        """The bytes of an element; none outside the tensor."""
        if not all(0 <= index < size for index, size in zip(at, self.sizes, strict=True)):
            return b""
        place = sum(index * stride for index, stride in zip(at, self.strides, strict=True))
        return self.data[place : place + self.strides[0]]

    def box(self, at: Sequence[int], box: Sequence[int], steps: Sequence[int], swizzle: int, beside: bytes) -> bytes:
        """What a copy of a box leaves in shared memory at a multiple of 1024."""
        taken = list(steps) if self.interleave else [1, *steps[1:]]
        extents = [-(-size // step) for size, step in zip(box, taken, strict=True)]
        if self.interleave:
            extents[-2] = 1
        straight = b"".join(
            self.element([first + index * step for first, index, step in zip(at, reversed(place), taken, strict=True)])
            or beside
            for place in itertools.product(*(range(extent) for extent in reversed(extents)))
        )
        result = bytearray(len(straight))
        for offset in range(0, len(straight), 16):
            place = offset ^ (offset >> 7 & (1 << swizzle) - 1) << 4
            result[place : place + 16] = straight[offset : offset + 16]
        return bytes(result)


CASES = [
    (UINT8, (100,), (64,), (1,), 0, (50,)),
    (FLOAT32, (40, 20), (32, 16), (1, 1), 3, (-3, 8)),
    (FLOAT16, (64, 9), (32, 8), (1, 1), 2, (16, 4)),
    (UINT16, (24, 10), (16, 4), (1, 1), 1, (8, -2)),
    (INT32, (10, 4, 3), (8, 4, 2), (1, 1, 1), 0, (4, 0, 2)),
    (FLOAT64, (6, 3, 4, 2), (4, 2, 3, 2), (1, 2, 2, 1), 0, (1, 0, 1, 1)),
    (FLOAT16, (16, 3, 2, 3, 2), (8, 2, 2, 2, 2), (1, 1, 1, 2, 1), 0, (9, 1, 0, 0, 1)),
    (FLOAT32, (33, 5), (8, 4), (1, 1), 3, (30, 3)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_box_arrives_with_zeros_beside_the_tensor(emulator: Emulator, case: tuple[int, tuple[int, ...], ...]) -> None:
    kind, sizes, box, steps, swizzle, at = case
    tensor = Tensor(kind, sizes, padding=16)
    assert tensor.encode(emulator, box, steps, swizzle) == SUCCESS
    expected = tensor.box(at, box, steps, swizzle, bytes(BYTES[kind]))
    target = ctypes.create_string_buffer(len(expected))
    places = [*at, *[0] * (5 - len(at))]
    emulator.kernels.run_load_box(len(sizes), *places, len(expected), target)
    assert target.raw == expected


# Sizes and places are those of W, H, D, slices of channels, and N.
INTERLEAVED_CASES = [
    (1, FLOAT16, (9, 3, 2), (8, 2, 2), (1, 1, 1), 0, (1, 0, 0)),
    (1, UINT16, (9, 5, 3, 2), (8, 3, 40, 1), (1, 1, 1, 1), 0, (6, -1, 2, 1)),
    (1, UINT8, (9, 5, 4, 2), (16, 4, 4, 2), (2, 2, 3, 1), 3, (-2, 1, 0, 0)),
    (1, FLOAT32, (5, 3, 2, 3, 2), (4, 3, 2, 2, 2), (1, 1, 1, 2, 1), 2, (2, -1, 1, 0, 1)),
    (2, UINT16, (7, 3, 2), (8, 2, 2), (2, 1, 1), 1, (1, 0, 0)),
    (2, FLOAT64, (5, 3, 2, 3, 2), (4, 3, 2, 5, 2), (1, 1, 1, 2, 1), 1, (2, -1, 1, 0, 1)),
]


@pytest.mark.parametrize("case", INTERLEAVED_CASES, ids=str)
def test_a_box_of_an_interleaved_tensor_has_one_slice_of_channels(
    emulator: Emulator, case: tuple[int, int, tuple[int, ...], ...]
) -> None:
    interleave, kind, sizes, box, steps, swizzle, at = case
    tensor = Tensor(kind, sizes, padding=32, interleave=interleave)
    assert tensor.encode(emulator, box, steps, swizzle) == SUCCESS
    expected = tensor.box(at, box, steps, swizzle, bytes(16 * interleave))
    target = ctypes.create_string_buffer(len(expected))
    emulator.kernels.run_load_box(len(sizes), *at, *[0] * (5 - len(at)), len(expected), target)
    assert target.raw == expected


@pytest.mark.parametrize(
    ("interleave", "sizes", "box", "shift", "padding"),
    [
        (1, (8, 4), (8, 1), 0, 0),
        (1, (8, 4, 2), (3, 1, 1), 0, 0),
        (2, (8, 4, 2), (8, 1, 1), 16, 0),
        (2, (8, 4, 2), (8, 1, 1), 0, 16),
        (3, (8, 4, 2), (8, 1, 1), 0, 0),
    ],
)
def test_an_interleaved_tensor_map_that_an_h200_s_driver_refuses(
    built: Emulator, interleave: int, sizes: Sequence[int], box: Sequence[int], shift: int, padding: int
) -> None:
    tensor = Tensor(FLOAT16, sizes, interleave=interleave)
    tensor.address += shift
    tensor.strides[1] += padding
    assert tensor.encode(built, box) == INVALID_VALUE
    tensor = Tensor(FLOAT16, (8, 4, 2), interleave=1)
    tensor.address += 16
    tensor.strides[1] += 16
    assert tensor.encode(built, (256, 1, 1), swizzle=1) == SUCCESS


@pytest.mark.parametrize(("kind", "interleave"), [(FLOAT16, 0), (FLOAT32, 0), (FLOAT64, 0), (FLOAT32, 1)])
def test_a_box_may_have_an_h200_s_nan_beside_the_tensor(emulator: Emulator, kind: int, interleave: int) -> None:
    tensor = Tensor(kind, (5, 3, 1), interleave=interleave)
    box = (8, 4, 1)
    assert tensor.encode(emulator, box, fill=1) == SUCCESS
    expected = tensor.box((0, 0, 0), box, (1, 1, 1), 0, b"\xf7\x7f" * ((16 * interleave or BYTES[kind]) // 2))
    target = ctypes.create_string_buffer(len(expected))
    emulator.kernels.run_load_box(3, 0, 0, 0, 0, 0, len(expected), target)
    assert target.raw == expected


def test_a_store_may_not_begin_before_the_tensor(built: Emulator) -> None:
    built.begin()
    tensor = Tensor(UINT16, (16, 7))
    assert tensor.encode(built, (8, 5)) == SUCCESS
    built.kernels.run_store_box(0, -1, 80, bytes(80))
    report = built.only_report("out-of-bounds", "store_box")
    assert "begins at -1 in dimension 1" in str(report["message"])
    built.reset()


@pytest.mark.parametrize("swizzle", range(4))
def test_a_box_is_stored_inside_the_tensor_only(emulator: Emulator, swizzle: int) -> None:
    tensor = Tensor(UINT16, (20, 7), padding=32)
    box = (8, 5)
    assert tensor.encode(emulator, box, swizzle=swizzle) == SUCCESS
    source = bytes(range(100, 180))
    emulator.kernels.run_store_box(16, 4, len(source), source)
    left = ctypes.string_at(tensor.address, len(tensor.data))
    for y in range(7):
        for x in range(20):
            place = y * tensor.strides[1] + 2 * x
            inside = x >= 16 and y >= 4
            offset = (y - 4) * 16 + (x - 16) * 2
            offset ^= (offset >> 7 & (1 << swizzle) - 1) << 4
            expected = source[offset : offset + 2] if inside else tensor.data[place : place + 2]
            assert left[place : place + 2] == expected
    assert left[40:48] == tensor.data[40:48]


@pytest.mark.parametrize(
    ("kind", "sizes", "box", "steps", "swizzle", "fill"),
    [
        (99, (32, 8), (8, 8), (1, 1), 0, 0),
        (FLOAT32, (32, 8), (8, 0), (1, 1), 0, 0),
        (FLOAT32, (32, 8), (8, 257), (1, 1), 0, 0),
        (FLOAT32, (32, 8), (6, 8), (1, 1), 0, 0),
        (FLOAT32, (32, 8), (64, 8), (1, 1), 3, 0),
        (FLOAT32, (32, 8), (16, 8), (1, 1), 1, 0),
        (FLOAT32, (32, 8), (8, 8), (1, 9), 0, 0),
        (FLOAT32, (32, 8), (8, 8), (1, 0), 0, 0),
        (FLOAT32, (32, 8), (8, 8), (1, 1), 4, 0),
        (INT32, (32, 8), (8, 8), (1, 1), 0, 1),
        (FLOAT32, (0, 8), (8, 8), (1, 1), 0, 0),
    ],
)
def test_a_tensor_map_that_the_driver_refuses_is_an_invalid_value(
    built: Emulator, kind: int, sizes: Sequence[int], box: Sequence[int], steps: Sequence[int], swizzle: int, fill: int
) -> None:
    tensor = Tensor(FLOAT32, [max(size, 1) for size in sizes])
    tensor.kind, tensor.sizes = kind, tuple(sizes)
    assert tensor.encode(built, box, steps, swizzle, fill) == INVALID_VALUE


def test_a_tensor_map_needs_aligned_strides_and_an_aligned_tensor(built: Emulator) -> None:
    tensor = Tensor(FLOAT32, (32, 8))
    assert tensor.encode(built, (8, 8)) == SUCCESS
    tensor.strides[1] += 8
    assert tensor.encode(built, (8, 8)) == INVALID_VALUE
    tensor.strides[1] += 8
    tensor.address += 8
    assert tensor.encode(built, (8, 8)) == INVALID_VALUE


def test_other_functions_of_the_driver_are_not_found(built: Emulator) -> None:
    not_found = 1
    assert built.kernels.entry_point_of(b"cuMemAlloc_v2") == not_found


def test_a_copy_needs_a_tensor_map_of_its_dimensions(built: Emulator) -> None:
    built.begin()
    tensor = Tensor(FLOAT32, (32, 8))
    assert tensor.encode(built, (8, 8)) == SUCCESS
    built.kernels.run_load_box(3, 0, 0, 0, 0, 0, 256, ctypes.create_string_buffer(256))
    message = str(built.only_report("uninitialised", "load_box")["message"])
    assert "the tensor map has 2 dimensions, the instruction 3" in message
    built.reset()
