"""Tests which functions of torch a library names, read from symbol tables of untrusted files."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from harness.compilation.elf import undefined_symbols
from harness.judge.evidence import links as reading
from harness.judge.evidence.links import Links, links

SOURCE = """
namespace at { struct Tensor; void enableRecordFunction(bool); }
namespace at::native { void native_group_norm(const Tensor&); void empty_like(const Tensor&); }
namespace at::native::a::b::c::d::e::f::g::h::i::j::k::l::m::n::o::p { void deep(const Tensor&); }
namespace at::_ops { struct addmm_ { static void call(const Tensor&); }; }
namespace at::_ops { struct cumsum_out { static void call(const Tensor&); }; }
namespace at::_ops { struct mm { static void call(const Tensor&); static void redispatch(const Tensor&); }; }
extern "C" void* dlsym(void*, const char*);
extern "C" void sgemm_(...);
extern "C" void cblas_dgemv(...);
extern "C" void my_gemm_(...);
void all(const at::Tensor& x) {
    USED
}
"""


def library(folder: Path, used: str) -> Path:
    (folder / "own.cpp").write_text(SOURCE.replace("USED", used))
    subprocess.run(["g++", "-std=c++20", "-fPIC", "-shared", folder / "own.cpp", "-o", folder / "own.so"], check=True)
    return folder / "own.so"


@pytest.mark.parametrize(
    ("used", "found"),
    [
        ("at::native::native_group_norm(x);", Links(direct=("at::native::native_group_norm",))),
        ("at::native::empty_like(x);", Links()),
        (
            "at::native::a::b::c::d::e::f::g::h::i::j::k::l::m::n::o::p::deep(x);",
            Links(direct=("at::native::a::b::c::d::e::f::g::h::i::j::k::l::m::n",)),
        ),
        ("at::_ops::mm::call(x);", Links(heavy=("mm",))),
        ("at::_ops::addmm_::call(x);", Links(heavy=("addmm",))),
        ("at::_ops::cumsum_out::call(x);", Links(heavy=("cumsum",))),
        ("at::_ops::mm::redispatch(x);", Links(direct=("at::_ops::mm::redispatch",))),
        ("sgemm_(1);", Links(direct=("sgemm_",))),
        ("cblas_dgemv(1);", Links(direct=("cblas_dgemv",))),
        ("my_gemm_(1);", Links()),
        ('dlsym(nullptr, "x");', Links(hidden=("dlsym",))),
        ("at::enableRecordFunction(false);", Links(hidden=("at::enableRecordFunction",), is_counted=False)),
    ],
)
def test_what_a_library_names_of_torch_is_found(used: str, found: Links, tmp_path: Path) -> None:
    assert links([library(tmp_path, used)]) == found


def test_a_damaged_library_is_told(tmp_path: Path) -> None:
    whole = library(tmp_path, "at::_ops::mm::call(x);").read_bytes()
    broken = tmp_path / "broken.so"
    for content in (b"", b"\x7fELF\x02\x01", whole[:100], whole[: len(whole) // 2], b"#!" + whole):
        broken.write_bytes(content)
        assert undefined_symbols(broken) is None
    assert links([broken]) == Links(hidden=("a library without a readable symbol table",))


def test_many_links_to_one_file_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = library(tmp_path, "at::_ops::mm::call(x);")
    others = [tmp_path / f"{number}.so" for number in range(200)]
    for other in others:
        os.link(one, other)
    read: list[Path] = []
    monkeypatch.setattr(reading, "undefined_symbols", lambda path: read.append(path) or undefined_symbols(path))
    assert links([one, *others]) == Links(heavy=("mm",))
    assert read == [one]


def test_libraries_that_take_too_long_to_read_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_READ_S", -1.0)
    found = links([library(tmp_path, "at::_ops::mm::call(x);")])
    assert not found.is_counted
    assert "more libraries than the judge reads" in found.hidden[0]
