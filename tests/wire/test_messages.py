"""Tests the protocol's schema: it carries every message and nothing else."""

from __future__ import annotations

import fcntl
import json
import math
import os
import socket
import sys

import pytest
import torch

from harness.wire import channel
from harness.wire.arena import GUARD_BYTES, Arena, Layout, create_shared_file, map_file, region_bytes
from harness.wire.commands import COMMANDS, Forward
from harness.wire.encoding import SchemaError, decode, encode
from harness.wire.replies import REPLIES, Failed, Report
from harness.wire.tensors import Region, Value
from harness.wire.values import UnsupportedValue, decode_plain, encode_plain

FORWARD = Forward(
    (Value(Region(256, (2, 3), "float32"), None), Value(None, "3")),
    (("gn.weight", Region(512, (3,), "float32")),),
    (Region(4096, (), "float32"),),
    (("running_mean", Region(8192, (3,), "float32")),),
    True,
    "reverse",
    12,
    2,
    ("gn.weight",),
    "another",
    3,
)


def test_a_message_survives_the_wire() -> None:
    assert decode(encode(FORWARD), COMMANDS) == FORWARD
    failed = Failed("runtime", "forward", "words", "", (Report("race", None, 3, "m", "r", "[]"),))
    assert decode(encode(failed), REPLIES) == failed


def mutated(**changes: object) -> bytes:
    return json.dumps({**json.loads(encode(FORWARD)), **changes}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b'{"type": "Exec"}',
        b'{"type": 3}',
        b"[" * 100_000,
        encode(Failed("runtime", "", "", "", ())),
        mutated(differentiate=1),
        mutated(differentiate=None),
        mutated(surplus=1),
        mutated(order_seed="12"),
        mutated(inputs=[{"region": None}]),
        mutated(outputs=[[1, 2, 3]]),
        mutated(state=[["a"]]),
        mutated(outputs=[{"offset": True, "shape": [], "dtype": "float32"}]),
        mutated(order_seed=1 << 63),
        mutated(order_seed=-(1 << 63) - 1),
        mutated(outputs=[{"offset": 0, "shape": [1 << 64], "dtype": "float32", "order": []}]),
    ],
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(SchemaError):
        decode(data, COMMANDS)


@pytest.mark.parametrize("number", [(1 << 63) - 1, -(1 << 63)])
def test_integers_of_64_bits_cross(number: int) -> None:
    assert decode(mutated(order_seed=number), COMMANDS).order_seed == number


def test_frames_arrive_whole_and_with_their_descriptor() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel.send(ours, b"x" * 1000, theirs.fileno())
        data, descriptor = channel.receive(theirs)
        assert data == b"x" * 1000
        assert descriptor is not None
        socket.socket(fileno=descriptor).close()
        reader = channel.FrameReader(theirs)
        ours.sendall(b"\0\0\0\3ab")
        reader.feed()
        assert reader.take() is None
        ours.sendall(b"c\0\0\0\1d")
        reader.feed()
        assert [reader.take(), reader.take(), reader.take()] == [b"abc", b"d", None]
        ours.sendall(b"\xff\xff\xff\xff")
        reader.feed()
        with pytest.raises(channel.FrameError):
            reader.take()


def test_the_end_of_the_stream_is_told() -> None:
    ours, theirs = socket.socketpair()
    ours.close()
    with theirs, pytest.raises(channel.ChannelClosed):
        channel.receive(theirs)


@pytest.mark.parametrize(
    "value", [None, True, 3, 2.5, "a", [1, (2, [3])], {"k": (1,), 3: None}, math.inf, (), {}, torch.float16]
)
def test_plain_values_keep_their_types(value: object) -> None:
    back = decode_plain(encode_plain(value))
    assert back == value
    assert type(back) is type(value)


def test_other_values_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedValue, match="object"):
        encode_plain([object()])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has files whose size can be sealed")
@pytest.mark.parametrize("size", [0, 1 << 20])
def test_nobody_can_resize_the_file_that_holds_the_arena(size: int) -> None:
    """A shorter file would end whoever reads the rest of a mapping; a new seal would refuse the judge's writes."""
    descriptor = create_shared_file(1 << 16)
    memory = map_file(os.dup(descriptor), 1 << 16)
    with pytest.raises(PermissionError):
        os.ftruncate(descriptor, size)
    with pytest.raises(PermissionError):
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    os.close(descriptor)
    memory.fill_(7)
    assert int(memory.sum(dtype=torch.int64)) == 7 << 16


def test_regions_share_memory_and_guards_show_what_is_written_past_them() -> None:
    layout = Layout()
    first = layout.add((3, 5), torch.float32)
    second = layout.add((0,), torch.int64)
    third = layout.add((7,), torch.bool)
    arena = Arena(map_file(create_shared_file(layout.total_bytes), layout.total_bytes))
    for start, end in layout.guards():
        assert end - start >= GUARD_BYTES
        arena.fill(start, end)
    arena.tensor(first).fill_(2)
    arena.tensor(third).fill_(True)
    assert arena.tensor(first).sum() == 30
    assert arena.tensor(second).shape == (0,)
    assert all(arena.first_damage(*guard) is None for guard in layout.guards())
    end = first.offset + region_bytes(first.shape, first.dtype)
    arena.tensor(Region(end - 60, (16,), "float32")).fill_(1)
    assert [arena.first_damage(*guard) for guard in layout.guards()].count(None) == 3
