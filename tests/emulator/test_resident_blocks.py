"""Tests resident blocks: the grid's barrier, limits of cooperative launches, and waits between blocks."""

from __future__ import annotations

import ctypes
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from .native import LAUNCH_FAILURE, SUCCESS, Emulator, ints, line_of

SOURCE = Path(__file__).with_name("resident_blocks.cu")
COOPERATIVE_LAUNCH_TOO_LARGE = 720
#: Blocks and threads that fill the device.
FULL = (132 * 8, 256)


def address_space() -> int:
    """The bytes that this process has mapped."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


@pytest.fixture(scope="session", params=[False, True], ids=["fast", "check"])
def built(request: pytest.FixtureRequest, native: Callable[..., Emulator]) -> Emulator:
    return native(SOURCE, bool(request.param))


@pytest.mark.parametrize(("blocks", "threads"), [(1, 32), (7, 64), (40, 96), (200, 256)])
def test_the_grids_barrier_orders_all_blocks(ordered: Emulator, blocks: int, threads: int) -> None:
    count = 6
    sums = ints(count * blocks, range(blocks))
    assert ordered.kernels.run_steps(sums, count, blocks, threads) == SUCCESS
    expected = list(range(blocks))
    for step in range(1, count):
        total = sum(expected[:blocks]) % 1000
        expected = [total + block for block in range(blocks)]
        assert list(sums[step * blocks : (step + 1) * blocks]) == expected
    assert ordered.reports() == []


def test_a_full_device_needs_little_more_address_space(emulator: Emulator) -> None:
    """A candidate's address space is limited once the runtime is loaded, by much less than all stacks take."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (address_space() + (3 << 29), before[1]))
    try:
        sums = ints(2 * FULL[0], range(FULL[0]))
        assert emulator.kernels.run_steps(sums, 2, *FULL) == SUCCESS
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert emulator.reports() == []


def test_many_blocks_leave_no_memory_behind(emulator: Emulator) -> None:
    for number in range(15):
        assert emulator.kernels.run_steps(ints(200, range(200)), 1, 200, 32) == SUCCESS
        if number == 2:
            before = address_space()
    assert address_space() - before < 200 << 20


def test_a_thread_that_has_ended_is_not_waited_for_at_the_grids_barrier(ordered: Emulator) -> None:
    out = ints(1)
    assert ordered.kernels.run_threads_leave(out) == SUCCESS
    assert out[0] == 3 * 40
    assert ordered.reports() == []


@pytest.mark.parametrize("first_to_leave", [1, 4])
def test_a_block_that_ends_before_the_grids_barrier_is_a_deadlock(ordered: Emulator, first_to_leave: int) -> None:
    out = ints(5)
    ordered.kernels.run_leaves(out, first_to_leave, 5)
    report = ordered.only_report("deadlock", "leaves")
    assert list(out) == [1] * first_to_leave + [0] * (5 - first_to_leave)
    assert report["line"] == line_of(SOURCE, "this_grid().sync", "void leaves")
    waiting, ended = f"{first_to_leave} block", f"{5 - first_to_leave} block"
    assert waiting in report["message"]
    assert f"{ended}{'s have' if first_to_leave < 4 else ' has'} ended" in report["message"]
    assert ordered.last_error() == LAUNCH_FAILURE


def test_all_blocks_may_reach_the_barrier_or_none(ordered: Emulator) -> None:
    out = ints(5)
    assert ordered.kernels.run_leaves(out, 5, 5) == SUCCESS
    assert list(out) == [2] * 5
    out = ints(5)
    assert ordered.kernels.run_leaves(out, 0, 5) == SUCCESS
    assert list(out) == [0] * 5
    assert ordered.reports() == []


def test_the_grids_barrier_and_the_blocks_are_divergence(ordered: Emulator) -> None:
    ordered.kernels.run_two_barriers()
    report = ordered.only_report("divergence", "two_barriers")
    lines = {access["line"] for access in report["accesses"]}
    assert lines == {line_of(SOURCE, text, "void two_barriers") for text in ("__syncthreads", "this_grid().sync")}


def test_the_grids_barrier_in_an_ordinary_launch_is_reported(ordered: Emulator) -> None:
    ordered.kernels.run_ordinary(ints(4), 4)
    report = next(report for report in ordered.reports() if report["kind"] == "launch")
    assert "cudaLaunchCooperativeKernel" in report["remedy"]
    assert report["line"] == line_of(SOURCE, "this_grid().sync", "void leaves")
    assert ordered.last_error() == LAUNCH_FAILURE


@pytest.mark.parametrize(
    ("threads", "shared_bytes", "each"),
    [(1024, 0, 2), (64, 0, 32), (48, 0, 32), (32, 100 * 1024, 2), (32, 227 * 1024, 1), (33, 7000, 29)],
)
def test_a_cooperative_launch_holds_as_many_blocks_as_are_resident(
    emulator: Emulator, threads: int, shared_bytes: int, each: int
) -> None:
    most = emulator.kernels.most_blocks(threads, shared_bytes)
    assert most == 132 * each
    ran = ints(1)
    shared = max(shared_bytes, 4)
    assert emulator.kernels.run_idle(ran, most, threads, shared) == SUCCESS
    assert ran[0] == most
    assert emulator.kernels.run_idle(ran, most + 1, threads, shared) == COOPERATIVE_LAUNCH_TOO_LARGE
    assert ran[0] == most
    message = emulator.only_report("launch", "idle")["message"]
    assert message.startswith("too many blocks in cooperative launch")
    assert f"{most} fit the device at once" in message
    assert emulator.last_error() == COOPERATIVE_LAUNCH_TOO_LARGE
    assert emulator.last_error() == SUCCESS


@pytest.mark.parametrize("by", range(5), ids=["compare-and-swap", "atomic-add", "nanosleep", "fence", "volatile"])
@pytest.mark.parametrize("step", [1, -1], ids=["later", "earlier"])
def test_a_block_that_waits_for_another_makes_room_for_it(ordered: Emulator, step: int, by: int) -> None:
    blocks = 50
    flags, order = ints(blocks), ints(blocks)
    ordered.kernels.run_chain(flags, order, blocks, 96, step, by)
    expected = list(range(blocks))
    assert list(order) == (expected if step < 0 else expected[::-1])
    assert ordered.reports() == []


@pytest.mark.parametrize("by", range(4), ids=["barrier", "vote", "shuffle", "shared-memory"])
@pytest.mark.parametrize("step", [1, -1], ids=["later", "earlier"])
def test_a_block_whose_threads_all_wait_for_another_makes_room_for_it(ordered: Emulator, step: int, by: int) -> None:
    blocks = 20
    flags, order = ints(blocks), ints(blocks)
    ordered.kernels.run_chain_of_all(flags, order, blocks, 64, step, by)
    expected = list(range(blocks))
    assert list(order) == (expected if step < 0 else expected[::-1])
    assert ordered.reports() == []


@pytest.mark.parametrize("threads", [32, 20, 64])
def test_the_lanes_of_a_branch_find_each_other(ordered: Emulator, threads: int) -> None:
    out = (ctypes.c_uint * threads)()
    ordered.kernels.run_branches(out, threads)
    for thread in range(threads):
        lanes = [lane for lane in range(32) if thread // 32 * 32 + lane < threads]
        together = [lane for lane in lanes if (lane % 4 == 1) == (thread % 4 == 1)]
        assert out[thread] == sum(1 << lane for lane in together)
    assert ordered.reports() == []
