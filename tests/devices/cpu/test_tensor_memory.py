"""Tensor memory of the CPU device: where registers lie in it, by layouts of another kind, and what is wrong use of it.

No result was ever compared with hardware.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import cujit
from cujit.devices.device import Device
from cujit.errors import KernelFaultError
from instructions.scene import Scene, entry, run_scene
from instructions.tensor_layouts import COUNTS, LANE, moved_cells
from raising import raises

pytestmark = pytest.mark.usefixtures("unoptimised")

Array = npt.NDArray[Any]

COLUMNS, LANES = 512, 128
REGISTERS = {"16x128b": 2, "16x256b": 4}
ALLOC = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [place], {};"
DEALLOC = "tcgen05.dealloc.cta_group::1.sync.aligned.b32 {}, {};"
HEAD = """.reg .pred first; .reg .b32 i, warp, lane, t, at, step, r<129>; .reg .b64 a;
    .shared .align 4 .b32 place; mov.u32 i, %tid.x; shr.u32 warp, i, 5; and.b32 lane, i, 31;
    setp.eq.u32 first, warp, 0;"""
START = f"""{HEAD} @first {ALLOC.format(512)} bar.sync 0; ld.shared.b32 t, [place]; shl.b32 at, warp, 21;
    add.u32 t, t, at;"""
AWAIT = "tcgen05.wait::ld.sync.aligned;"
END = f"tcgen05.wait::st.sync.aligned; bar.sync 0; @first {DEALLOC.format('t', 512)}"


def kernel(body: str, pointers: int = 1) -> str:
    return entry(body, pointers, target="sm_100a", version="8.8")


def names(count: int) -> str:
    return "{" + ", ".join(f"r{k}" for k in range(count)) + "}"


def whole(load: bool) -> str:
    """Fill tensor memory from p0, or read it to there: column after column of 128 words."""
    move = "ld" if load else "st"
    lines = [f"mad.wide.u32 a, i, 4, p0; mov.u32 step, 0; mov.u32 at, t; {move.upper()}:"]
    if load:
        lines.append(f"tcgen05.ld.sync.aligned.32x32b.x64.b32 {names(64)}, [at]; {AWAIT}")
    lines += [
        f"st.global.b32 [a+{512 * k}], r{k};" if load else f"ld.global.b32 r{k}, [a+{512 * k}];" for k in range(64)
    ]
    if not load:
        lines.append(f"tcgen05.st.sync.aligned.32x32b.x64.b32 [at], {names(64)};")
    lines.append(f"add.u32 at, at, 64; add.u64 a, a, {64 * 512}; add.u32 step, step, 1; setp.lt.u32 first, step, 8;")
    lines.append(f"@first bra {move.upper()}; setp.eq.u32 first, warp, 0;")
    return "\n".join(lines)


def forms(shape: str) -> list[tuple[int, bool, int]]:
    """Repetitions, whether halves are packed, and the columns between the upper and the lower lanes."""
    most = COUNTS[shape]
    return [
        (times, packs, 2 * times + 1 if shape == "16x32bx2" else 0)
        for times in (1 << k for k in range(most.bit_length()))
        for packs in (False, True)
    ]


def moved(shape: str, times: int, packs: bool, split: int) -> Array | None:
    """Cells that a form moves from column 0 on; None where there are not as many columns."""
    found = moved_cells(shape, times, split, packs)
    return None if int((found % LANE).max()) >= COLUMNS else found


def word_of(operation: str, shape: str, times: int, packs: bool) -> str:
    pack = f".{'' if operation == 'ld' else 'un'}pack::16b" if packs else ""
    return f"tcgen05.{operation}.sync.aligned.{shape}.x{times}{pack}.b32"


@pytest.mark.parametrize("shape", COUNTS)
def test_loads_read_the_cells_of_shape_algebra(cpu: Device, shape: str) -> None:
    cells = np.random.default_rng(1).integers(0, 1 << 32, (COLUMNS, LANES), np.uint32)
    body, wanted = [START, whole(False), "bar.sync 0;"], []
    offset = 0
    for times, packs, split in forms(shape):
        places = moved(shape, times, packs, split)
        if places is None:
            continue
        count, more = places.shape[1], f", {split}" if shape == "16x32bx2" else ""
        body.append(f"{word_of('ld', shape, times, packs)} {names(count)}, [t]{more}; {AWAIT}")
        body.append(f"mad.wide.u32 a, i, 4, p1; add.u64 a, a, {offset};")
        body += [f"st.global.b32 [a+{512 * k}], r{k};" for k in range(count)]
        offset += 512 * count
        for k in range(count):
            for warp in range(4):
                own = cells[places[:, k] % LANE, places[:, k] // LANE + 32 * warp]
                wanted.append(own[:, 0] & 0xFFFF | own[:, 1] << 16 if packs else own[:, 0])
    scene = Scene("loads", kernel("\n".join([*body, END]), 2), (cells, np.zeros(offset // 4, np.uint32)), 1, 128)
    np.testing.assert_array_equal(run_scene(cpu, scene)[1], np.concatenate(wanted))


@pytest.mark.parametrize(("shape", "packs"), [(shape, packs) for shape in COUNTS for packs in (False, True)])
def test_stores_write_the_cells_of_shape_algebra(cpu: Device, shape: str, packs: bool) -> None:
    most = max(times for times, p, split in forms(shape) if p == packs and moved(shape, times, p, split) is not None)
    for times in (1, most):
        split = next(s for t, p, s in forms(shape) if (t, p) == (times, packs))
        places = moved(shape, times, packs, split)
        assert places is not None
        count, more = places.shape[1], f" {split}," if shape == "16x32bx2" else ""
        body = [START, whole(False), "bar.sync 0;"]
        body += [f"mad.lo.u32 r{k}, i, {1009 + 2 * k}, {k * 65537};" for k in range(count)]
        body += [f"{word_of('st', shape, times, packs)} [t],{more} {names(count)};", whole(True)]
        before = np.random.default_rng(2).integers(0, 1 << 32, (COLUMNS, LANES), np.uint32)
        expected = before.copy()
        for k in range(count):
            for warp in range(4):
                values = (np.arange(32 * warp, 32 * warp + 32, dtype=np.uint32) * (1009 + 2 * k) + k * 65537).astype(
                    np.uint32
                )
                for half in range(places.shape[2]):
                    at = places[:, k, half]
                    stored = values >> 16 * half & 0xFFFF if packs else values
                    expected[at % LANE, at // LANE + 32 * warp] = stored
        scene = Scene("stores", kernel("\n".join([*body, END])), (before,), 1, 128)
        np.testing.assert_array_equal(run_scene(cpu, scene)[0], expected)


def test_sixteen_lanes_may_be_the_upper_half(cpu: Device) -> None:
    body = f"""{START} {whole(False)} bar.sync 0; add.u32 at, t, {16 * LANE};
        tcgen05.ld.sync.aligned.16x256b.x1.b32 {names(4)}, [at]; {AWAIT} mad.wide.u32 a, i, 16, p1;
        st.global.v4.b32 [a], {names(4)}; {END}"""
    cells = np.arange(COLUMNS * LANES, dtype=np.uint32).reshape(COLUMNS, LANES)
    got = run_scene(cpu, Scene("upper", kernel(body, 2), (cells, np.zeros((LANES, 4), np.uint32)), 1, 128))[1]
    places = moved_cells("16x256b", 1, 0, packs=False)[:, :, 0]
    lanes = places // LANE + 16
    np.testing.assert_array_equal(got, np.concatenate([cells[places % LANE, lanes + 32 * w] for w in range(4)]))


FLOATS = np.array([0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, np.nan, -np.nan, 1e-40, -7.0], np.float32)
REDUCED = [
    *((f"{name}{more}.f32", name, more) for name in ("min", "max") for more in ("", ".abs", ".NaN", ".abs.NaN")),
    *((f"{name}.{type_}", name, type_) for name in ("min", "max") for type_ in ("u32", "s32")),
]


def reduced(values: Array, name: str, more: str) -> Array:
    """Reduce each row: a NaN loses, or with ``.NaN`` wins; -0 is below 0."""
    if more in ("u32", "s32"):
        own = values.view(np.int32) if more == "s32" else values
        return np.asarray(getattr(own, name)(axis=1).view(np.uint32))
    found = []
    for row in values.view(np.float32):
        own = np.abs(row) if ".abs" in more else row
        numbers = own[~np.isnan(own)]
        is_nan = len(numbers) < len(own) if ".NaN" in more else not len(numbers)
        ordered = sorted(numbers, key=lambda x: (x, not np.signbit(x)))
        found.append(np.uint32(0x7FFFFFFF) if is_nan else ordered[0 if name == "min" else -1].view(np.uint32))
    return np.array(found, np.uint32)


@pytest.mark.parametrize("shape", ["32x32b", "16x32bx2"])
@pytest.mark.parametrize(("words", "name", "more"), REDUCED)
def test_loads_reduce_what_each_thread_loads(cpu: Device, shape: str, words: str, name: str, more: str) -> None:
    rng = np.random.default_rng(3)
    cells = FLOATS[rng.integers(0, len(FLOATS), (COLUMNS, LANES))].view(np.uint32)
    cells[:, 40:80] = rng.integers(0, 1 << 32, (COLUMNS, 40), np.uint32)
    cells[:, 5] = np.float32(np.nan).view(np.uint32)
    split, offset = (9, ", 9") if shape == "16x32bx2" else (0, "")
    body = [START, whole(False), "bar.sync 0;"]
    expected = []
    for k, times in enumerate((2, 4, 128)):
        body.append(f"tcgen05.ld.red.sync.aligned.{shape}.x{times}.{words} {names(times)}, r128, [t]{offset}; {AWAIT}")
        body.append("mad.wide.u32 a, i, 4, p1;")
        body += [f"st.global.b32 [a+{1024 * k + 512 * n}], r{at};" for n, at in enumerate((times - 1, 128))]
        places = moved_cells(shape, times, split, packs=False)[:, :, 0]
        loaded = np.concatenate([cells[places % LANE, places // LANE + 32 * warp] for warp in range(4)])
        expected += [loaded[:, -1], reduced(loaded, name, more)]
    text = kernel("\n".join([*body, END]), 2).replace("sm_100a", "sm_103a")
    got = run_scene(cpu, Scene("reduced", text, (cells, np.zeros((6, 128), np.uint32)), 1, 128))[1]
    np.testing.assert_array_equal(got, expected)


def test_unwritten_tensor_memory_is_not_a_number(cpu: Device) -> None:
    load = f"tcgen05.ld.sync.aligned.32x32b.x1.b32 {{r0}}, [t]; {AWAIT}"
    body = f"{START} {load} mad.wide.u32 a, i, 4, p0; st.global.b32 [a], r0; {END}"
    assert np.isnan(run_scene(cpu, Scene("raw", kernel(body), (np.zeros(128, np.float32),), 1, 128))[0]).all()


@pytest.mark.parametrize("stored", ["", "t", "t+1"])
def test_load_of_unwritten_tensor_memory_is_found(stored: str) -> None:
    """Two columns are loaded; that one of them was stored is enough."""
    store = f"tcgen05.st.sync.aligned.32x32b.x1.b32 [{stored}], {{i}};" if stored else ""
    load = "tcgen05.ld.sync.aligned.32x32b.x2.b32 {r0, r1}, [t];"
    scene = Scene("unwritten", kernel(f"{START} {store}\n{load} {END}"), (np.zeros(1),), 1, 128)
    if stored:
        run_scene(cujit.cpu(check="init"), scene)
        return
    with raises(KernelFaultError, "fault-tensor-memory", "never wrote", "2 columns", "tcgen05.ld"):
        run_scene(cujit.cpu(check="init"), scene)


@pytest.mark.parametrize("frees", [0, 1])
def test_columns_are_given_out_again(cpu: Device, frees: int) -> None:
    """A warp that asks for more than there is waits for the other one."""
    body = f"""{HEAD} .shared .align 4 .b32 other; .reg .b32 u; setp.eq.u32 first, warp, {frees};
        @first {ALLOC.format(512)} bar.sync 0; @first bra FIRST;
        tcgen05.alloc.cta_group::1.sync.aligned.b32 [other], 64; ld.shared.b32 t, [other]; {DEALLOC.format("t", 64)}
        bra DONE;
        FIRST: ld.shared.b32 t, [place]; {DEALLOC.format("t", 512)}
        {ALLOC.format(32)} ld.shared.b32 u, [place]; {DEALLOC.format("u", 32)}
        DONE:"""
    run_scene(cpu, Scene("again", kernel(body), (np.zeros(1),), 1, 64))


@pytest.mark.parametrize(
    ("check", "statement"),
    [
        ("memory", "@first tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [place+64], 32;"),
        (
            "race",
            "setp.eq.u32 first, i, 40; @first st.shared.b32 [place], i;\nsetp.eq.u32 first, warp, 0;\n"
            f"@first {ALLOC.format(32)}",
        ),
        ("memory", "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [place+64];"),
    ],
)
def test_checks_see_copies_to_shared_memory(check: str, statement: str) -> None:
    with raises(KernelFaultError, f"fault-{check}", "tcgen05"):
        run_scene(cujit.cpu(check=check), Scene("seen", kernel(f"{HEAD}\n{statement}"), (np.zeros(1),), 1, 128))


# -- loads that nobody waited for -------------------------------------------------------------------------

FETCH = "tcgen05.ld.sync.aligned.32x32b.x2.b32 {{{}}}, [t];"
EARLY = {
    "no wait": f"{FETCH.format('r0, r1')}\n/* here */ add.u32 r2, r0, r0;",
    "a read of the second one": f"{FETCH.format('r0, r1')}\n/* here */ @first add.u32 r2, r1, r1;",
    "an address": f"{FETCH.format('r0, r1')} and.b32 r2, i, 0;\n/* here */ st.global.b32 [a], r0;",
    "a wait before the load": f"{AWAIT} {FETCH.format('r0, r1')}\n/* here */ not.b32 r2, r1;",
    "a copy of a register": (f"{FETCH.format('r0, r1')} mov.b64 a, {{r0, r1}};\n/* here */ not.b64 a, a;"),
    "a wait on the other side": (
        f"{FETCH.format('r0, r1')} @first bra SKIP; {AWAIT} SKIP:\n/* here */ add.u32 r2, r0, 1;"
    ),
    "another load after the wait": (
        f"{FETCH.format('r0, r1')} {AWAIT} {FETCH.format('r2, r3')} add.u32 r0, r0, 1;\n/* here */ add.u32 r0, r0, r2;"
    ),
    "a load of the turn before": f"""mov.u32 r0, 0; mov.u32 step, 0; AGAIN:\n/* here */ add.u32 r2, r0, 1;
        {FETCH.format("r0, r1")} add.u32 step, step, 1; setp.lt.u32 first, step, 3; @first bra AGAIN;""",
}
IN_TIME = {
    "a read that a compiler moved": f"{FETCH.format('r0, r1')} add.u32 r2, r0, r1; {AWAIT}",
    "a wait behind a copy": f"{FETCH.format('r0, r1')} mov.b32 r2, r0; {AWAIT} not.b32 r3, r2;",
    "a wait for several": f"{FETCH.format('r0, r1')} {FETCH.format('r2, r3')} {AWAIT} add.u32 r0, r1, r2;",
    "a load of other registers": f"{FETCH.format('r0, r1')} {AWAIT} {FETCH.format('r2, r3')} add.u32 r0, r1, r1;",
    "registers that are written again": f"{FETCH.format('r0, r1')} mov.u32 r0, 1; add.u32 r2, r0, r0;",
    "a wait in each turn": f"""mov.u32 r0, 0; mov.u32 step, 0; AGAIN: add.u32 r2, r0, 1;
        {FETCH.format("r0, r1")} {AWAIT} add.u32 step, step, 1; setp.lt.u32 first, step, 3; @first bra AGAIN;""",
    "a wait on the way of the reader": f"""mov.u32 r0, 1; @!first bra SKIP; {FETCH.format("r0, r1")}
        SKIP: setp.ne.u32 first, i, i; @first bra DONE; {AWAIT} add.u32 r2, r0, 1; DONE:""",
    "a read that no thread executes": f"{FETCH.format('r0, r1')} setp.ne.u32 first, i, i; @first add.u32 r2, r0, 1;",
}  # fmt: skip
FILLED = "mov.b64 a, p0; tcgen05.st.sync.aligned.32x32b.x2.b32 [t], {i, i}; tcgen05.wait::st.sync.aligned;"
OVER = f"bar.sync 0; {AWAIT} setp.eq.u32 first, warp, 0; {END}"


@pytest.mark.verbatim
@pytest.mark.parametrize("name", EARLY)
def test_registers_are_not_read_before_the_wait(cpu: Device, name: str) -> None:
    text = kernel(f"{START} {FILLED} {EARLY[name]} {OVER}")
    line = next(k for k, each in enumerate(text.splitlines(), 1) if each.startswith("/* here */"))
    with raises(KernelFaultError, "fault-tensor-memory", "may not have written", "tcgen05.ld", "wait::ld") as e:
        run_scene(cpu, Scene("early", text, (np.zeros(1),), 1, 128))
    assert e.value.line == line


@pytest.mark.parametrize("name", IN_TIME)
def test_registers_may_be_read_after_the_wait(cpu: Device, name: str) -> None:
    run_scene(cpu, Scene("in time", kernel(f"{START} {FILLED} {IN_TIME[name]} {OVER}"), (np.zeros(1),), 1, 128))


def test_each_warp_waits_for_its_own_loads(cpu: Device) -> None:
    skips = f"{FETCH.format('r0, r1')} @first bra SKIP; {AWAIT} SKIP: bar.sync 0; add.u32 r2, r0, 1;"
    body = f"{START} {FILLED} {skips} {OVER}"
    with raises(KernelFaultError, "fault-tensor-memory", "may not have written", "tcgen05.ld"):
        run_scene(cpu, Scene("own", kernel(body), (np.zeros(1),), 1, 128))


# -- wrong uses -------------------------------------------------------------------------------------------

LOAD = "tcgen05.ld.sync.aligned.32x32b.x1.b32 {{r0}}, [{}];"
HERE = "/* here */"
PERMIT = "relinquish_alloc_permit"
GONE = f"{START} bar.sync 0; @first {DEALLOC.format('t', 512)} bar.sync 0;"
MISTAKES = {
    "before alloc": (f"{HEAD} shl.b32 t, warp, 21;\n{HERE} {LOAD.format('t')}", "column 0"),
    "after dealloc": (f"{GONE}\n{HERE} {LOAD.format('t')}", "column 0"),
    "beyond the last column": (f"{START}\n{HERE} {LOAD.format('t+512')} {END}", "512"),
    "behind the allocation": (
        f"{HEAD} @first {ALLOC.format(32)} bar.sync 0; shl.b32 t, warp, 21;\n{HERE} {LOAD.format('t+32')}", "column 32"
    ),
    "lanes of another warp": (f"{START} mov.u32 t, 0;\n{HERE} {LOAD.format('t')}", "lane 0"),
    "upper lanes of 32": (f"{START}\n{HERE} @first {LOAD.format('t+1048576')}", "lane 16"),
    "columns that cannot be allocated": (f"{HEAD}\n{HERE} @first {ALLOC.format(48)}", "48"),
    "more columns than there are": (f"{HEAD} @first {ALLOC.format(512)}\n{HERE} @first {ALLOC.format(32)}", "32"),
    "alloc without the permit": (
        f"{HEAD} @first tcgen05.{PERMIT}.cta_group::1.sync.aligned;\n{HERE} @first {ALLOC.format(32)}", PERMIT
    ),
    "dealloc of a part": (f"{START}\n{HERE} @first {DEALLOC.format('t', 32)}", "32"),
    "dealloc twice": (f"{GONE}\n{HERE} @first {DEALLOC.format('t', 512)}", "deallocated"),
    "dealloc forgotten": (f"{HEAD}\n{HERE} @first {ALLOC.format(64)}", "64 allocated"),
}  # fmt: skip


@pytest.mark.verbatim
@pytest.mark.parametrize("name", MISTAKES)
def test_wrong_uses_end_the_launch_at_their_line(cpu: Device, name: str) -> None:
    body, word = MISTAKES[name]
    text = kernel(body)
    line = next(k for k, each in enumerate(text.splitlines(), 1) if each.startswith(HERE))
    with raises(KernelFaultError, "fault-tensor-memory", word, "tcgen05") as e:
        run_scene(cpu, Scene("wrong", text, (np.zeros(1),), 2, 128))
    assert (e.value.kind, e.value.line) == ("tensor_memory", line)
    assert e.value.help
    run_scene(cpu, Scene("right", kernel(f"{START} {END}"), (np.zeros(1),), 2, 128))  # nothing of it is left
