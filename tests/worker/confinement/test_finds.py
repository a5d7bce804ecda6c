"""Tests what a candidate finds in its memory, messages, environment, descriptors and GPU memory."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.judge.inputs.draws import derive_seed
from harness.judge.process.readable_files import readable_places

#: A candidate that passes, and looks meanwhile for what would let it pass without computing.
SEARCHER = '''
import ctypes, json, os, re, sys
import torch
import torch.nn as nn
from harness.wire import channel

NEEDLE_BYTES = 16
DRAWS = 7
ALLOWED = {allowed}
ON_GPU = {on_gpu}
numbers = set()
receive = channel.receive


def say(name, what):
    print(json.dumps([name, what]), flush=True)


def listening(*arguments):
    """Every message of the judge, before the worker has it."""
    data, descriptor = receive(*arguments)
    numbers.update(int(number) for number in re.findall(rb"[0-9]{6,}", data))
    return data, descriptor


channel.receive = listening


def numbers_of_callers():
    """Large numbers and long hexadecimal words in the variables of the worker's own functions."""
    frame = sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()):
            text = repr(getattr(value, "__dict__", value))
            numbers.update(int(number) for number in re.findall("[0-9]{6,}", text))
            yield from re.findall("[0-9a-f]{16,}", text)
        frame = frame.f_back


def raw(tensor):
    """The first bytes of a tensor, as they lie in memory."""
    part = tensor.detach().cpu()
    part = part.permute(sorted(range(part.dim()), key=part.stride, reverse=True)).contiguous()
    return ctypes.string_at(part.data_ptr(), NEEDLE_BYTES)


def maps():
    for line in open("/proc/self/maps"):
        parts = line.split(maxsplit=5)
        yield parts[0], parts[5].strip() if len(parts) > 5 else ""


def foreign_maps():
    """Files in its memory that are neither its own nor a program's."""
    allowed = (*ALLOWED, os.environ["HOME"], "[")
    return sorted({path for _, path in maps() if path and not path.startswith(allowed)})


def arena(x):
    """All bytes of the exchange arena."""
    if ON_GPU:
        base, size = range_of(x.data_ptr())
        content = ctypes.create_string_buffer(size)
        assert driver.cuMemcpyDtoH_v2(content, base, ctypes.c_size_t(size)) == 0
        return content.raw
    found = b""
    for span, path in maps():
        if "harness-arena" in path:
            start, end = (int(edge, 16) for edge in span.split("-"))
            found += ctypes.string_at(start, end - start)
    return found


def descriptors():
    named = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            named[number] = os.readlink("/proc/self/fd/" + number)
        except OSError:  # of the listing itself
            continue
    return named


class State:
    last = cotangent = b""
    earlier = []  # the arena since the last input came
    before = None  # the input before this one
    elements = None  # of the last input, sorted
    calls = 0
    over = False


def look_at_input(x):
    if raw(x) == State.last:
        return
    if not any(number >> 48 for number in numbers):
        return  # no seed came with it: a call aside, whose values came with the last input
    elements = x.detach().cpu().flatten().sort().values
    if State.elements is not None and torch.equal(elements, State.elements):
        return  # the same draw, of which some elements changed places
    State.elements = elements
    State.over = State.calls == DRAWS  # what comes now is timed, and to be as fast as it claims
    if State.over:
        return
    State.calls += 1
    content = arena(x)
    looked = [any(raw(x) in one for one in State.earlier), raw(x) in content, raw(x * 2) in content]
    say("input", [len(content), *looked])
    say("numbers", sorted(number for number in numbers if number >> 48))
    numbers.clear()
    State.last, State.earlier = raw(x), []
    if ON_GPU and State.calls in (2, DRAWS):
        look_at_device(x)
    State.before = x.detach().cpu().clone()


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        if not State.over:
            look_at_input(x)
        ctx.save_for_backward(x)
        if not State.over:
            State.earlier.append(arena(x))
        return x * 2

    @staticmethod
    def backward(ctx, cotangent):
        (x,) = ctx.saved_tensors
        if State.over:
            return cotangent * 2
        content = arena(x)
        State.earlier.append(content)
        fresh = raw(cotangent) != State.cotangent  # else it is its own answer that lies there
        if fresh and not bool((cotangent == cotangent.flatten()[0]).all()):  # one element, expanded
            say("gradient", [raw(cotangent) in content, raw(cotangent * 2) in content])
        State.cotangent = raw(cotangent)
        return cotangent * 2


class ModelNew(nn.Module):
    def forward(self, x):
        if not State.calls:
            say("descriptors", descriptors())
            State.place = x.data_ptr()
        if x.data_ptr() != State.place and x.is_leaf and not State.over:
            return x * 2  # on values of the worker's own, which lie in no arena
        return Double.apply(x)


if ON_GPU:
    driver = ctypes.CDLL("libcuda.so.1")


def range_of(address):
    """The allocation that a device address lies in: its first byte and its size."""
    torch.cuda.synchronize()  # which gives autograd's thread a context, too
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    code = driver.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(address))
    assert code == 0, code
    return base, size.value


def look_beyond(address, expected):
    """What the driver answers to reading at an address: its code, whether that is in an allocation of this process by
    its own account, and whether expected values lie there that torch has not put there for this process."""
    content = ctypes.create_string_buffer(1)
    code = driver.cuMemcpyDtoH_v2(content, ctypes.c_uint64(address), ctypes.c_size_t(1))
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    known = driver.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(address)) == 0
    spans = [(one["address"], one["address"] + one["total_size"]) for one in torch.cuda.memory_snapshot()]
    if code or not known or any(start <= address < end for start, end in spans):
        return [code, known, False]
    content = ctypes.create_string_buffer(min(size.value, 1 << 28))
    assert driver.cuMemcpyDtoH_v2(content, base, ctypes.c_size_t(len(content))) == 0
    return [code, known, expected in content.raw]


def look_at_device(x):
    base, size = range_of(x.data_ptr())
    say("beyond", [size, *(look_beyond(base.value + step, raw(x * 2)) for step in (size, -1))])
    handle = ctypes.create_string_buffer(64)
    say("legacy handle", driver.cuIpcGetMemHandle(handle, ctypes.c_uint64(x.data_ptr())))
    expected = (State.before.double() * 2).flatten()[:2].contiguous().view(torch.int64).tolist()
    torch.cuda.empty_cache()
    whole = max(1, (torch.cuda.mem_get_info()[0] >> 30) - 4)
    memory = torch.empty(whole << 27, dtype=torch.int64, device=x.device)
    hits = sum(int((part == word).sum()) for part in memory.split(1 << 27) for word in expected)
    memory[-1] = expected[0]
    sees = int((memory[-8:] == expected[0]).sum())
    del memory
    torch.cuda.empty_cache()
    say("fresh memory", [whole, hits, sees])


say("words of the callers", sorted(set(numbers_of_callers())))
say("environment", dict(os.environ))
say("arguments", open("/proc/self/cmdline").read().split("\\0"))
say("foreign maps", foreign_maps())
'''
SEED = "5eed5eed0123456789abcdef5eed5eed"
CREDENTIAL = "hunter2hunter2"
DEVICES = ["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)]
SYSTEM_LIBRARIES = ("/usr/", "/lib/", "/lib64/", "/opt/", "/memfd:harness-arena")
OF_THE_DRIVER = ("/dev/nvidia", "/dev/zero", "/memfd:", "anon_inode:")
ENVIRONMENT = {
    *("PATH", "LANG", "LC_ALL", "CXX", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "HOME", "USER"),
    "OMP_WAIT_POLICY",
    *("TMPDIR", "TORCH_EXTENSIONS_DIR", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"),
    *("PYTHONWARNINGS", "LC_CTYPE"),  # Python sets the last one itself
}
#: What torch and CUDA's driver put into the environment of their own process.
OF_TORCH = ("TORCH", "KINETO", "CUDA_", "NVIDIA_", "OMP_", "KMP_", "TRITON", "PYTORCH")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")


class Found:
    """What the candidate said, by name, in order; and the record."""

    def __init__(self, row: dict[str, Any], user_home: Path):
        self.row, self.user_home = row, user_home
        said = [json.loads(line) for line in row["log"].splitlines() if line.startswith('["')]
        self.said: dict[str, list[Any]] = {}
        for name, what in said:
            self.said.setdefault(name, []).append(what)


@pytest.fixture(scope="module", params=DEVICES)
def found(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, judged: Callable[..., Any]
) -> Found:
    """What the searcher found, in a judge that has credentials in its environment and its home."""
    folder, user_home = tmp_path_factory.mktemp("search"), tmp_path_factory.mktemp("user-home")
    (user_home / ".netrc").write_text(f"machine example.org login user password {CREDENTIAL}\n")
    on_gpu = request.param != "cpu"
    allowed = (*SYSTEM_LIBRARIES, *readable_places(), *(OF_THE_DRIVER if on_gpu else ()))
    solution = SEARCHER.replace("{allowed}", repr(allowed)).replace("{on_gpu}", repr(on_gpu))
    credentials = {"AWS_SECRET_ACCESS_KEY": CREDENTIAL, "HF_TOKEN": CREDENTIAL, "HARNESS_PASSWORD": CREDENTIAL}
    ran = judged(
        folder, solution, "--seed", SEED, device=request.param, HOME=str(user_home), NETRC=CREDENTIAL, **credentials
    )
    (row,) = ran.rows
    # It listens to the channel, which is found once all else has passed.
    assert (row["status"], row["rule"]) == ("CHEATED", "replaced-functions"), row["message"] + row["log"]
    return Found(row, user_home)


def test_its_memory_holds_no_file_of_others(found: Found) -> None:
    assert found.said["foreign maps"] == [[]]


def test_the_arena_holds_an_input_only_when_it_is_due_and_never_an_expected_value(found: Found) -> None:
    inputs = found.said["input"]
    assert len(inputs) >= 5
    for size, came_early, is_there, expected_is_there in inputs:
        assert size > 0
        assert is_there  # the search finds what is in the arena
        assert not came_early
        assert not expected_is_there
    gradients = found.said["gradient"]
    assert len(gradients) >= 5
    assert gradients == [[True, False]] * len(gradients)


def test_no_message_holds_a_seed_of_what_is_yet_to_come(found: Found) -> None:
    told = [set(numbers) for numbers in found.said["numbers"]]
    everything = set().union(*told)
    case = found.row["case"]
    drawn = {derive_seed(SEED, case, *words) for words in (("init",), ("shape",))}
    own = found.row["own_seed"]
    drawn |= {derive_seed(SEED, case, "draw", trial) for trial in range(4)}
    without_gradients = derive_seed(own, case, "draw", "without gradients")
    drawn |= {derive_seed(own, case, "draw", 4), without_gradients, derive_seed(str(without_gradients), "serving")}
    secrets = [(f"{SEED}:{case}", trial) for trial in range(4)] + [(f"{own}:{case}", trial) for trial in (5, 6, 4)]
    drawn |= {derive_seed(secret, "trial", trial, "cotangent") for secret, trial in secrets}
    assert not everything & drawn
    forward = [derive_seed(secret, "trial", trial, "forward") for secret, trial in secrets]
    for trial in range(len(secrets)):
        assert forward[trial] in told[trial]  # what seeds torch in its own trial is told, and seen here
        assert not set(forward[trial + 1 :]) & told[trial]


def test_no_secret_is_in_what_the_worker_was_given(found: Found) -> None:
    for name in ("words of the callers", "environment", "arguments"):
        (what,) = found.said[name]
        assert SEED not in json.dumps(what)
        assert CREDENTIAL not in json.dumps(what)
        assert str(found.user_home) not in json.dumps(what)


def test_its_environment_is_a_short_list(found: Found) -> None:
    (environment,) = found.said["environment"]
    assert {"HOME", "PATH", "TMPDIR"} <= set(environment)
    assert [name for name in environment if name not in ENVIRONMENT and not name.startswith(OF_TORCH)] == []
    assert environment["HOME"] == environment["TMPDIR"] != os.environ.get("HOME")


def test_its_descriptors_are_its_channel_and_its_output(found: Found) -> None:
    (descriptors,) = found.said["descriptors"]
    assert descriptors.pop("0") == "/dev/null"
    assert descriptors.pop("1") == descriptors.pop("2")
    kinds = sorted(path.partition(":")[0] for path in descriptors.values())
    if found.row["device"] == "cpu":
        assert kinds.count("socket") == 1
        others = [path for path in descriptors.values() if not path.startswith(("socket:", "/memfd:harness-arena"))]
        assert {Path(path).name for path in others} <= {"headers"}, others  # for its compilers, once they are built
    else:
        foreign = ("/root", "/home", "/work", "/var", "/etc", "/tmp", str(found.user_home))
        assert [path for path in descriptors.values() if path.startswith(foreign)] == []


def test_device_memory_ends_where_the_arena_does(found: Found) -> None:
    for size, after, before in found.said.get("beyond", []):
        assert size <= 4 << 20  # the arena, rounded up to what the driver hands out
        for code, is_own, holds_expected in (after, before):
            assert code != 0 or is_own  # what else is mapped there is this process's, by the driver's account
            assert not holds_expected
    assert 0 not in found.said.get("legacy handle", [])
    assert bool(found.said.get("beyond")) == (found.row["device"] != "cpu")


def test_fresh_device_memory_holds_nothing_of_the_judge(found: Found) -> None:
    for gibibytes, hits, sees in found.said.get("fresh memory", []):
        assert gibibytes > 0
        assert hits == 0
        assert sees == 1  # the search finds what is there
    assert bool(found.said.get("fresh memory")) == (found.row["device"] != "cpu")
