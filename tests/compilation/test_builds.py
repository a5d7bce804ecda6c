"""Tests builds that are killed half-way or run twice at once, on the emulator and on a GPU."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch.utils import cpp_extension

from harness.compilation.cache import MAX_FIGURES_BYTES, BuildCache
from harness.compilation.cuda import CudaLoader
from harness.compilation.elf import undefined_symbols
from harness.compilation.errors import BuildFailed

REPOSITORY = Path(__file__).resolve().parents[2]
HONEST = REPOSITORY / "tests" / "faults" / "group_norm.py"
DEVICES = ["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)]


def command(device: str) -> list[str]:
    return [
        *(sys.executable, "-m", "harness", "evaluate", str(HONEST), "--problem", "group_norm", "--case", "odd"),
        *("--device", device, "--json"),
    ]


def environment(home: Path, scratch: Path) -> dict[str, str]:
    scratch.mkdir(exist_ok=True)
    return {**os.environ, "HARNESS_HOME": str(home), "TMPDIR": str(scratch), "PYTHONPATH": str(REPOSITORY)}


def start(device: str, home: Path, scratch: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(device),
        cwd=REPOSITORY,
        env=environment(home, scratch),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def wait_for_a_build(running: subprocess.Popen[str], scratch: Path) -> None:
    """Until a compiler's scratch files lie in a worker's build folder."""
    while running.poll() is None:
        # Not by a pattern: that fails where a folder vanishes meanwhile.
        workers = [walked for folder in scratch.glob("harness-worker-*") for walked in os.walk(folder)]
        if any(name.endswith((".cpp", ".cu", ".ninja", ".o")) for *_, names in workers for name in names):
            return
    pytest.fail("the command ended before it built anything")


@pytest.mark.parametrize("device", DEVICES)
def test_a_killed_build_neither_blocks_nor_poisons_the_next(
    device: str, tmp_path: Path, own_home: Path, harness: Callable[..., Any]
) -> None:
    scratch = tmp_path / "scratch"
    running = start(device, own_home, scratch)
    wait_for_a_build(running, scratch)
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate()
    assert not list(own_home.glob("builds/*/*.so"))
    ran = harness(*command(device)[3:], HARNESS_HOME=str(own_home))
    assert [row["status"] for row in ran.rows] == ["PASSED"], ran.out + ran.err
    assert len(list(own_home.glob("builds/*/*.so"))) == 1
    warm = harness(*command(device)[3:], "--fresh", HARNESS_HOME=str(own_home))
    assert [(row["status"], row["build_s"]) for row in warm.rows] == [("PASSED", 0.0)]


@pytest.mark.parametrize("device", DEVICES)
def test_two_processes_may_build_the_same_thing_at_once(device: str, tmp_path: Path, own_home: Path) -> None:
    both = [start(device, own_home, tmp_path / f"scratch{number}") for number in range(2)]
    outputs = [running.communicate()[0] for running in both]
    assert [running.returncode for running in both] == [0, 0], outputs
    assert len(list(own_home.glob("builds/*/*.so"))) == 1
    assert not list(own_home.glob("builds/*/*.partial"))


def test_a_build_for_a_gpu_links_torchs_cpp_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the compiler finds libstdc++.a first, a stream of the library ended the process."""
    home = tmp_path / "cuda"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "nvcc").touch()
    for name in ("PATH", "TORCH_CUDA_ARCH_LIST", "LIBRARY_PATH"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    monkeypatch.setenv("CUDA_HOME", str(home))
    compiler = tmp_path / "g++"
    compiler.write_text('#!/bin/sh\nexec g++ -static-libstdc++ "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", None)
    (tmp_path / "solution.py").write_text("")
    loader = CudaLoader(tmp_path / "solution.py", {}, tmp_path / "out", lambda *_: None, capability=(9, 0))
    source = "#include <sstream>\nvoid say() { std::ostringstream words; words << 7; throw words.str(); }"
    loader.load_inline(name="says", cpp_sources=source, no_implicit_headers=True, is_python_module=False)
    (library,) = loader.loaded
    assert {"__cxa_throw", "_ZNSolsEi"} <= (undefined_symbols(library) or frozenset())


def test_ninja_ends_the_other_compilers_when_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two steps that run side by side, the second never ends by itself."""
    for name in ("PATH", "CUDA_HOME", "TORCH_CUDA_ARCH_LIST", "LIBRARY_PATH"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    home = tmp_path / "cuda"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "nvcc").touch()
    (home / "lib").mkdir()
    (home / "lib" / "libcudart.so").touch()
    monkeypatch.setenv("CUDA_HOME", str(home))
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", None)
    (tmp_path / "build.ninja").write_text(
        "rule fails\n  command = until test -e begun; do :; done; echo 'a.cu(1): error: \\n' $$0; exit 1\n"
        "rule hangs\n  command = touch begun; while :; do sleep 1; done\n"
        "build a: fails\nbuild b: hangs\n"
    )

    def load_inline(name: str, cpp_sources: str, cuda_sources: str = "", **_: Any) -> None:
        ran = subprocess.run(["ninja", "-v", "-j", "2"], cwd=tmp_path, capture_output=True, check=False)
        try:
            raise subprocess.CalledProcessError(ran.returncode, "ninja", ran.stdout)
        except subprocess.CalledProcessError as error:
            raise RuntimeError("Error building extension") from error

    monkeypatch.setattr(cpp_extension, "load_inline", load_inline)
    solution = tmp_path / "solution.py"
    solution.write_text("")
    loader = CudaLoader(solution, {}, tmp_path / "out", lambda *_: None, capability=(9, 0))
    with pytest.raises(BuildFailed, match=r"a.cu\(1\): error: ") as caught:
        loader.load_inline(name="m", cpp_sources="", no_implicit_headers=True)
    assert "FAILED: " in caught.value.log
    assert r"a.cu(1): error: \n" in caught.value.log
    assert list(loader.refused) == [caught.value.key]
    (tmp_path / "build.ninja").unlink()
    with pytest.raises(BuildFailed, match=r"a\.cu"):  # ninja does not run again
        loader.load_inline(name="m", cpp_sources="", no_implicit_headers=True)


FAKE_NVCC = """\
#!/bin/sh
for word; do test "$before" = -o && out=$word; before=$word; done
case "$*" in *"-Xptxas -v"*) ;; *) exit 9 ;; esac
test -n "$FAILS" && echo 'cuda.cu(1): error: no' && echo '    int x' && failed=1
echo "ptxas info    : Compiling entry function '_Z4leanPf' for 'sm_90'"
echo '    976 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads'
echo 'ptxas info    : Used 64 registers, used 1 barriers, 1024 bytes smem'
test -n "$failed" && exit 1
echo 'int of_cuda;' | cc -fPIC -x c -c - -o "$out"
"""


@pytest.mark.parametrize("fails", [False, True])
def test_a_build_for_a_gpu_keeps_what_nvcc_says_of_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    for name in ("PATH", "TORCH_CUDA_ARCH_LIST", "LIBRARY_PATH"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    monkeypatch.setenv("FAILS", "1" if fails else "")
    home = tmp_path / "cuda"
    (home / "bin").mkdir(parents=True)
    (home / "lib64").mkdir()
    (home / "include").mkdir()
    (home / "include" / "cuda_runtime.h").touch()  # or a toolkit of the machine comes first
    (home / "bin" / "nvcc").write_text(FAKE_NVCC)
    (home / "bin" / "nvcc").chmod(0o755)
    for name in ("cudart", "c10_cuda", "torch_cuda"):
        library = home / "lib64" / f"lib{name}.so"
        subprocess.run(["cc", "-shared", "-o", library, "-x", "c", "-"], input=b"", check=True)
    monkeypatch.setenv("LIBRARY_PATH", str(home / "lib64"))
    monkeypatch.setenv("CUDA_HOME", str(home))
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", None)
    (tmp_path / "solution.py").write_text("")
    loader = CudaLoader(tmp_path / "solution.py", {}, tmp_path / "out", lambda *_: None, capability=(9, 0))
    sources = {"cpp_sources": "int of_cpp;", "cuda_sources": "int of_cuda;", "no_implicit_headers": True}
    if fails:
        with pytest.raises(BuildFailed) as failed:
            loader.load_inline(name="figures", is_python_module=False, **sources)
        assert "    int x" in failed.value.log
        assert "ptxas info" not in failed.value.log
        assert "bytes stack frame" not in failed.value.log
        return
    loader.load_inline(name="figures", is_python_module=False, **sources)
    ((key, library),) = loader.built.items()
    cache = BuildCache(tmp_path / "builds")
    assert cache.keep("digest", key, library)
    assert cache.keep("digest", key, library.with_suffix(".ptxas"))
    assert list(cache.libraries("digest")) == [key]
    (kernel,) = cache.kernels("digest")
    assert (kernel.name, kernel.registers, kernel.shared_bytes, kernel.spilled_bytes) == ("lean", 64, 1024, 28)


def test_figures_of_kernels_are_no_way_around_the_cache_s_limits(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    cache, figures = BuildCache(tmp_path / "builds"), tmp_path / "out" / f"{'a' * 16}.ptxas"
    figures.write_bytes(b"x" * (MAX_FIGURES_BYTES + 1))
    assert not cache.keep("digest", "a" * 16, figures)
    figures.write_bytes(b"\xff\xfe no figures\nptxas info    : Used 64 registers")
    assert cache.keep("digest", "a" * 16, figures)
    assert cache.kernels("digest") == cache.kernels("unknown") == ()
    figures.unlink()
    figures.symlink_to("/etc/passwd")
    assert not cache.keep("digest", "b" * 16, figures)
