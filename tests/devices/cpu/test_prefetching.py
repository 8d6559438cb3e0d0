"""Which loads have the cache fetch what the next warp loads, and which have not."""

from __future__ import annotations

import pytest

from cujit.devices.cpu.frontend.layout import ModuleLayout
from cujit.devices.cpu.ir.refusals import Refusals
from cujit.devices.cpu.pipeline import ir_of, prepare
from cujit.devices.shapes import Dim3
from cujit.formats.ptx.parser import parse
from devices.cpu.launching import ptx_of

FETCH = "call void @llvm.prefetch.p0("
BEGIN = "mul.wide.u32 d0, r0, {size}; add.u64 d1, p1, d0; mov.u32 r1, 0; LOOP:"
WIDE = BEGIN.format(size=16)
END = "add.u32 r1, r1, 1; setp.lt.u32 q0, r1, 8; @q0 bra LOOP; st.global.u32 [at], r2;"


def _fetched(code: str) -> list[str]:
    """List the offsets, in bytes, of what is fetched."""
    module = parse(ptx_of(code, 2))
    body = prepare(module.entries[0], ModuleLayout(module, Refusals()), Refusals())
    lines = [line.strip() for line in ir_of(body, Dim3(256, 1, 1)).splitlines()]
    places = {line.split(" = ")[0]: line.split()[-1] for line in lines if " = getelementptr i8, " in line}
    return [places[line.removeprefix(FETCH + "ptr ").split(",")[0]] for line in lines if line.startswith(FETCH)]


@pytest.mark.parametrize(
    ("load", "size", "offsets"),
    [
        ("ld.global.u32 r2, [d1]", 4, ["128", "192"]),
        ("ld.u32 r2, [d1]", 4, ["128", "192"]),
        ("ld.global.v2.u32 {r2, r3}, [d1]", 8, ["256", "320", "384", "448"]),
        ("ld.global.u8 r2, [d1]", 1, ["32"]),
    ],
)
def test_memory_loop_prefetches_the_row_of_the_next_warp(load: str, size: int, offsets: list[str]) -> None:
    assert _fetched(f"{BEGIN.format(size=size)} {load}; add.u64 d1, d1, 65536; {END}") == offsets


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("mul.wide.u32 d0, r0, 4; add.u64 d1, p1, d0; ld.global.u32 r2, [d1];", id="no loop"),
        pytest.param(f"{BEGIN} ld.global.u32 r2, [d1]; {END}", id="the same place"),
        pytest.param(f"{BEGIN} ld.global.u32 r2, [p1]; add.u64 p1, p1, 65536; {END}", id="of all lanes"),
        pytest.param(f"{BEGIN} ld.shared.u32 r2, [d1]; add.u64 d1, d1, 128; {END}", id="shared"),
        pytest.param(f"{WIDE} ld.global.v4.u32 {{r2, r3, r4, r5}}, [d1]; add.u64 d1, d1, 65536; {END}", id="wide"),
    ],
)
def test_other_loads_prefetch_nothing(code: str) -> None:
    assert _fetched(code.replace("{size}", "4")) == []
