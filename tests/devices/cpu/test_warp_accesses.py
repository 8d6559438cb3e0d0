"""How loads and stores of a warp are done: by what their lanes access, each in its own way."""

import re

import numpy as np
import pytest

from cujit.devices.cpu.analysis.fission import fission
from cujit.devices.cpu.analysis.patterns import Pattern, _laid_out, vector_access
from cujit.devices.cpu.analysis.uniformity import analyse
from cujit.devices.cpu.control.regions import boundaries
from cujit.devices.cpu.frontend.layout import ModuleLayout
from cujit.devices.cpu.ir.refusals import Refusals
from cujit.devices.cpu.pipeline import ir_of, prepare
from cujit.devices.device import Device
from cujit.devices.shapes import Dim3
from cujit.formats.ptx.parser import parse
from cujit.loading import jit

HEAD = ".version 8.3\n.target sm_90\n.address_size 64\n"
PREPARED = """ld.param.u64 p, [p0]; mov.u32 b, box; mov.u32 t, %tid.x; mov.u32 y, %tid.y;
mul.lo.u32 u, t, t; setp.lt.u32 q, t, u; shl.b32 o4, t, 2; add.u32 side, b, o4; shl.b32 o8, t, 3; add.u32 pair, b, o8;
mul.lo.u32 o12, t, 12; add.u32 apart, b, o12; shl.b32 oy, y, 2; add.u32 row, b, oy; shl.b32 ou, u, 2;
add.u32 own, b, ou; mul.wide.u32 d, t, 4; add.u64 wide, p, d;"""

WAYS = {
    "uniform": r"load i32, ptr|llvm\.ctlz",
    "vector": r"llvm\.masked\.(load|store)\.v32i32",
    "pairs": r"llvm\.masked\.(load|store)\.v64i32",
    "apart": r"@load\.i32\.apart\.12\(",
    "each lane": r"@cujit_(gather|scatter)_32\(",
    "16 bytes": r"@cujit\.(load|store)\.wide\.",
    "blended": r"store <32 x i32> %[^,]*, ptr %[^,]*, align 4",
    "window": r"load <8 x i32>, ptr",
    "either": r"br i1 %.*, label %contiguous",
}


def ways(code: str, *shape: int) -> set[str]:
    """Name the ways that are in the code of a kernel with loads or stores."""
    text = f"""{HEAD}.visible .entry k(.param .u64 p0) {{ .reg .pred q; .reg .b64 p, d, wide; .reg .b128 w;
    .reg .b32 b, t, u, x, y, z, o4, o8, o12, oy, ou, side, pair, apart, row, own, far, other;
    .shared .align 16 .b8 box[5000];
    {PREPARED} {code} ret; }}"""
    module, refusals = parse(text), Refusals()
    body = prepare(module.entries[0], ModuleLayout(module, refusals), refusals)
    assert not refusals.items
    ir = ir_of(body, Dim3(*shape or (32,)))
    main = "".join(re.findall(r"\nwarp\.start:\n.*?\nwarp\.end:\n", ir, re.DOTALL))
    return {name for name, pattern in WAYS.items() if re.search(pattern, main)}


@pytest.mark.parametrize(
    ("code", "way"),
    [
        ("ld.shared.u32 x, [b];", {"uniform"}),
        ("@q ld.shared.u32 x, [b];", {"uniform"}),
        ("ld.shared.u32 x, [side];", {"vector"}),
        ("@q ld.shared.u32 x, [side+64];", {"vector"}),
        ("ld.shared.v2.u32 {x, z}, [pair];", {"pairs"}),
        ("ld.shared.u32 x, [apart];", {"apart"}),
        ("@q ld.shared.u32 x, [apart];", {"each lane"}),
        ("ld.shared.v2.u32 {x, z}, [apart];", {"each lane"}),
        ("ld.shared.u32 x, [own];", {"each lane"}),
        ("ld.shared.b128 w, [b];", {"16 bytes"}),
    ],
)
def test_load_is_chosen_by_what_its_lanes_read(code: str, way: set[str]) -> None:
    assert ways(code) == way


@pytest.mark.parametrize(
    ("code", "way"),
    [
        ("st.shared.u32 [b], t;", {"uniform"}),
        ("st.shared.u32 [side], u;", {"vector"}),
        ("@q st.shared.u32 [side], u;", {"blended"}),
        ("@q st.shared.v4.u32 [side], {t, u, t, u};", {"each lane"}),
        ("st.shared.v2.u32 [pair], {t, u};", {"pairs"}),
        ("st.shared.u32 [apart], t;", {"each lane"}),
        ("st.shared.u32 [own], t;", {"each lane"}),
        ("mov.b128 w, {p, p}; st.shared.b128 [b], w;", {"16 bytes"}),
    ],
)
def test_store_is_chosen_by_what_its_lanes_write(code: str, way: set[str]) -> None:
    assert ways(code) == way


def test_common_data_of_a_row_of_lanes_is_loaded_once() -> None:
    assert ways("ld.shared.u32 x, [row];", 16, 2) == {"uniform"}


def test_row_of_lanes_has_a_quotient_and_each_lane_a_remainder(device: Device) -> None:
    source = """template <int SIZE> __global__ void split(const int *x, int *quotient, int *rest) {
        unsigned t = threadIdx.x;
        quotient[t] = x[t / SIZE] * 64 + t / SIZE;
        rest[t] = x[t % SIZE] * 64 + t % SIZE;
    }"""
    sizes, t = (2, 4, 8, 16, 32, 64), np.arange(64, dtype=np.int32)
    module = jit(source, names=[f"split<{size}>" for size in sizes], device=device)
    for size in sizes:
        quotient, rest = device.zeros(64, np.int32), device.zeros(64, np.int32)
        module[f"split<{size}>"][1, 64](device.array(t[::-1]), quotient, rest)
        for got, place in ((quotient, t // size), (rest, t % size)):
            np.testing.assert_array_equal(got.numpy(), (63 - place) * 64 + place)


@pytest.mark.parametrize("code", ["ld.relaxed.gpu.global.b128 w, [wide];", "st.relaxed.gpu.global.b128 [wide], w;"])
def test_strong_16_byte_words_are_atomic_at_any_address(code: str) -> None:
    assert ways(code) == {"16 bytes"}


@pytest.mark.parametrize("code", ["ld.global.u32 x, [wide];", "@q st.global.u32 [wide], u;"])
def test_wrapping_addresses_select_the_code_at_run_time(code: str) -> None:
    assert ways(code) == {"vector"}, "the lanes of a warp count from a multiple of 32: none wraps alone"
    from_anywhere = "cvt.u32.u64 far, p; add.u32 other, far, t; mul.wide.u32 d, other, 4; add.u64 wide, p, d;"
    assert ways(from_anywhere + code) == {"vector", "each lane", "either"}


def test_permuted_lanes_load_the_vectors_that_hold_them() -> None:
    swap = "xor.b32 z, t, 1; shl.b32 far, z, 2; add.u32 other, b, far;"
    assert ways(f"st.shared.u32 [apart], t; bar.sync 0; {swap} ld.shared.u32 x, [other];", 64) == {
        "window",
        "each lane",
    }


@pytest.mark.parametrize(("align", "places"), [(64, range(1, 33)), (4, range(32))])
def test_vectors_are_aligned_to_their_size_if_it_is_known(align: int, places: range) -> None:
    swapped = [places[lane ^ 1] for lane in range(32)]
    found = _laid_out(Pattern(align, tuple(4 * place for place in swapped)), 0, 4)
    assert found is not None
    assert found.places == tuple(swapped), "each of the vectors holds 16"


def test_pairs_in_a_distance_loop_are_in_the_same_vectors() -> None:
    """So that what one store of a pair leaves in registers need not come out of memory for the other."""
    text = f"""{HEAD}.visible .entry k(.param .u64 p0) {{ .reg .pred q; .reg .b32 b, t, d, x, y, low, high, r<8>;
    .shared .align 16 .b8 box[4096]; mov.u32 t, %tid.x; mov.u32 b, box; mov.u32 d, 16;
    LOOP: bar.sync 0; sub.u32 r0, d, 1; and.b32 r1, r0, t; shl.b32 r2, t, 1; sub.u32 r3, r2, r1; shl.b32 r4, r3, 2;
    add.u32 low, b, r4; shl.b32 r5, d, 2; add.u32 high, low, r5; ld.shared.u32 x, [low]; ld.shared.u32 y, [high];
    st.shared.u32 [low], y; st.shared.u32 [high], x; shr.u32 d, d, 1; setp.ne.u32 q, d, 0; @q bra LOOP; ret; }}"""
    module = parse(text)
    body, block = prepare(module.entries[0], ModuleLayout(module, Refusals()), Refusals()), Dim3(64)
    cut = fission(body, analyse(body.program, body.graph, block), block)
    assert cut is not None
    (versions,) = [region.versions for region in cut.regions if region.versions]
    for distance in (1, 2, 4):
        found = [vector_access(op, versions[distance].patterns) for op in versions[distance].graph.ops]
        starts = sorted(access.start for access in found if access is not None)
        assert starts == [-4 * distance, -4 * distance, 0, 0], distance


@pytest.mark.parametrize(
    ("offset", "stored", "rows"),
    [
        (32, "side", 2), (-4, "side", 2), (124, "side", 2),
        # whole rows; what is stored lies elsewhere; rows begin anywhere
        (128, "side", 1), (32, "own", 1), (0, "side", 1),
    ],
)  # fmt: skip
def test_load_across_two_rows_reads_both_after_a_store(offset: int, stored: str, rows: int) -> None:
    text = f"""{HEAD}.visible .entry k() {{ .reg .b32 b, t, u, o, x, side, own; .shared .align 16 .b8 box[4096];
    mov.u32 t, %tid.x; mov.u32 b, box; mul.lo.u32 u, t, t; and.b32 u, u, 127; shl.b32 u, u, 2; add.u32 own, b, u;
    shl.b32 o, t, 2; add.u32 side, b, o; st.shared.u32 [side], t; bar.sync 0;
    ld.shared.u32 x, [side+{offset}]; add.u32 x, x, 1; st.shared.u32 [{stored}], x; ret; }}"""
    module, block = parse(text), Dim3(64)
    body = prepare(module.entries[0], ModuleLayout(module, Refusals()), Refusals())
    cut = fission(body, analyse(body.program, body.graph, block), block)
    assert cut is not None
    vectors = boundaries(cut)["region.1"].vectors()
    (access,) = [found for op, found in vectors.items() if op.opcode == "ld"]
    places = [4 * place + access.start for place in access.places]
    assert (len(access.used), places) == (rows, [offset + 4 * lane for lane in range(32)])
