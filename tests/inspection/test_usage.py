"""Registers and spills of kernels, as values."""

from __future__ import annotations

from pathlib import Path

import pytest

import cujit
from cujit.errors import ArgumentError, FormatError
from cujit.inspection.usage import usage
from cujit.program import compile, link
from raising import raises

SOURCE = """
extern "C" __global__ void __launch_bounds__(1024, 2) spilling(double *p, int n) {
    double a[48];
    for (int i = 0; i < 48; i++) a[i] = p[i * n + threadIdx.x];
    for (int r = 0; r < n; r++)
        for (int i = 0; i < 48; i++) a[i] = a[(i + 1) % 48] * a[i] + r;
    for (int i = 0; i < 48; i++) p[i] = a[i];
}
extern "C" __global__ void empty() {}
"""


@pytest.mark.parametrize("route", ["ptx", "ltoir", "cubin"])
def test_registers_and_spills_are_read_for_every_cubin_route(route: str) -> None:
    if route == "cubin":
        cubin = compile(SOURCE, arch="sm_90", verbose=True)
    else:
        image = compile(SOURCE, to=route, arch="compute_90" if route == "ptx" else "lto_90")
        cubin = link([image], arch="sm_90", verbose=True)
    found = usage(cubin)
    assert set(found) == {"spilling", "empty"}
    assert found["spilling"].registers == 32
    assert (found["spilling"].spill_store_bytes or 0) > 100
    assert (found["spilling"].spill_load_bytes or 0) > 100
    assert (found["spilling"].stack_bytes or 0) > 100
    assert (found["empty"].spill_store_bytes, found["empty"].stack_bytes) == (0, 0)


def test_register_limit_reaches_the_assembler() -> None:
    ptx = compile("""extern "C" __global__ void k(float *p, int n) {
        float s[24];
        for (int i = 0; i < 24; i++) s[i] = p[i * n];
        for (int r = 0; r < n; r++) for (int i = 0; i < 24; i++) s[i] = s[(i + 5) % 24] * s[i] + r;
        for (int i = 0; i < 24; i++) p[i * n] = s[i];
    }""", to="ptx", arch="compute_90")  # fmt: skip
    free = usage(link([ptx], arch="sm_90"))["k"].registers
    tight = usage(link([ptx], arch="sm_90", maxrregcount=24))["k"].registers
    assert free is not None
    assert tight is not None
    assert tight <= 24 < free


def test_spills_are_unknown_without_the_log() -> None:
    assert usage(compile(SOURCE, arch="sm_90"))["spilling"].spill_store_bytes is None


def test_image_without_sass_has_no_registers() -> None:
    with raises(FormatError, "format", "ptx"):
        usage(compile(SOURCE, to="ptx"))


def test_cubin_may_be_bytes_or_a_path(tmp_path: Path) -> None:
    cubin = compile(SOURCE, arch="sm_90")
    path = cubin.save(tmp_path / "k.cubin")
    assert usage(path) == usage(str(path)) == usage(cubin.data) == usage(cubin)
    with raises(ArgumentError, "argument", "usage", "int"):
        usage(7)  # type: ignore[arg-type]


def test_static_kernels_with_equal_names_are_distinguished() -> None:
    parts = [
        cujit.compile(f"static __global__ void k(float *p) {{ {body} }}", arch="sm_90", rdc=True, names=["k"])
        for body in ("*p = 1;", "for (int i = 0; i < 9; ++i) p[i] = sinf(p[i + 9]);")
    ]
    linked = cujit.link(parts, arch="sm_90")
    used = cujit.usage(linked)
    assert list(used) == ["_Z1kPf", "_Z1kPf$2"]
    few, many = used["_Z1kPf"].registers, used["_Z1kPf$2"].registers
    assert few is not None
    assert many is not None
    assert few < many
    assert [kernel.name for kernel in cujit.inspect(linked).kernels] == list(used)
