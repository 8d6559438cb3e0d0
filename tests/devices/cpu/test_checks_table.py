"""Every instruction that touches memory is seen by the checks: the instruction table is walked, row by row.

A row has cases in which it accesses memory that is not there, memory that another warp writes, and memory that nobody
wrote. A row without a case fails, unless ``APART`` says why it needs none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest

import cujit
from cujit.devices.cpu.run.tensormap import TensorMap
from cujit.devices.device import Device
from cujit.errors import KernelFaultError
from cujit.formats.ptx.isa.semantics import TABLE, Effect
from refused_rows import IN_TENSOR, NOT_EXECUTED
from sweeps import part

pytestmark = pytest.mark.usefixtures("unoptimised")


class Case(NamedTuple):
    """An operation at ``{s}`` and ``{z}`` in shared memory, 2 KiB apart, and at ``{g}`` in global memory.

    ``reads`` are those that it reads, by letter; ``who`` does it: a thread, a warp, a group of four warps.
    ``object`` has an mbarrier at ``{s}``.
    """

    text: str
    reads: str = ""
    who: str = "thread"
    version: str = "8.2"
    target: str = "sm_90a"
    object: bool = False

    @property
    def operands(self) -> str:
        """The letters of all its places."""
        return "".join(letter for letter in "szgm" if f"{{{letter}}}" in self.text)


_A4, _F4 = "{a0, a1, a2, a3}", "{f0, f1, f2, f3}"
_DESC = "shr.u32 r1, {s}, 4; and.b32 r1, r1, 0x3fff; cvt.u64.u32 d1, r1; or.b64 d1, d1, 0x0000001000080000;"
_DESC += "shr.u32 r2, {z}, 4; and.b32 r2, r2, 0x3fff; cvt.u64.u32 d2, r2; or.b64 d2, d2, 0x0000001000080000;"
_TAIL = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
_DECIDES = "setp.eq.u32 q2, r1, 1; @q2 bra SKIP;"
_WAITS = "cp.async.wait_all; ld.shared.u32 r1, [{s}];" + _DECIDES
_OUT = "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"


def _b100(text: str, reads: str = "") -> Case:
    return Case(text, reads, version="8.7", target="sm_100a")


def _wgmma(form: str, d: str, tail: str, *, sparse: bool = False) -> Case:
    name = f"wgmma.mma_async{'.sp' * sparse}.sync.aligned.m64n8{form}"
    more = ", r3, 0" if sparse else ""
    text = f"{_DESC} mov.u32 r3, 0xeeeeeeee; wgmma.fence.sync.aligned; {name} {d}, d1, d2{more}, {tail}; {_TAIL}"
    return Case(text, "sz", "group")


CASES: dict[str, tuple[Case, ...]] = {
    "ld|ldu": (Case("ld.shared.u32 r1, [{s}];" + _DECIDES, "s"), Case("ldu.global.u32 r1, [{g}];" + _DECIDES, "g")),
    "red .mbarrier::complete_tx::bytes": (
        Case("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [{s}], r1, [bar];", "s"),
    ),
    "red": (
        Case("red.shared.add.u32 [{s}], r1;", "s"),
        _b100("red.async.release.gpu.global.add.u32 [{g}], r1;", "g"),
    ),
    "cp .reduce .tensor": (
        Case("cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.tile.bulk_group [{m}, {r0}], [{s}];" + _OUT, "sm"),
    ),
    "cp .reduce .mbarrier::complete_tx::bytes": (
        Case(
            "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 "
            "[{s}], [{z}], 64, [bar];",
            "sz",
        ),
    ),
    "cp .reduce": (
        Case("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [{g}], [{s}], 64;" + _OUT, "sg"),
    ),
    "atom .cas": (Case("atom.shared.cas.b32 r1, [{s}], r1, r2;", "s"),),
    "atom": (Case("atom.shared.add.u32 r1, [{s}], r1;", "s"), Case("atom.global.add.u32 r1, [{g}], r1;", "g")),
    "cp .mbarrier": (Case("cp.async.mbarrier.arrive.noinc.shared.b64 [{s}];", "s", object=True),),
    "tensormap .cp_fenceproxy": (
        Case(
            "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [{g}], [{s}], 128;",
            "s",
            "warp",
            "8.3",
        ),
    ),
    "wmma .store": (
        Case(
            "wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [{s}], {f0, f1, f2, f3, f4, f5, f6, f7}, 16;",
            "",
            "warp",
        ),
    ),
    "stmatrix": (
        Case("mad.lo.u32 r1, lane, 16, {s}; stmatrix.sync.aligned.m8n8.x1.shared.b16 [r1], {a0};", "", "warp"),
    ),
    "st .mbarrier::complete_tx::bytes": (
        Case("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [{s}], r1, [bar];", "", version="8.1"),
    ),
    "st .async": (_b100("st.async.release.gpu.global.u32 [{g}], r1;", ""),),
    "st .bulk": (Case("mov.b64 d1, 64; st.bulk.weak.shared::cta [{s}], d1, 0;", "", version="8.6", target="sm_100"),),
    "st": (Case("st.shared.u32 [{s}], t;"), Case("st.global.u32 [{g}], t;")),
    "cp .tensor .mbarrier::complete_tx::bytes": (
        Case(
            "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
            "[{s}], [{m}, {r0}], [bar];",
            "m",
        ),
        Case(
            "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
            "[{s}], [{m}, {r0}], [bar], h1;",
            "m",
        ),
    ),
    "cp .tensor": (
        Case("cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [{m}, {r0}], [{s}];" + _OUT, "s"),
    ),
    "cp .bulk .shared::cluster .shared::cta": (
        Case("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [{s}], [{z}], 64, [bar];", "z"),
    ),
    "cp .bulk .mbarrier::complete_tx::bytes": (
        Case("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{s}], [{g}], 64, [bar];", "g"),
        Case(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
            "[{s}], [{g}], 64, [bar], h1;",
            "g",
        ),
    ),
    "cp .bulk .ignore_oob": (
        Case(
            "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.ignore_oob [{s}], [{g}], 64, 4, 8, [bar];",
            "g",
            version="9.2",
        ),
    ),
    "cp .bulk .cp_mask": (
        _b100("cp.async.bulk.global.shared::cta.bulk_group.cp_mask [{g}], [{s}], 64, h1;" + _OUT, "s"),
    ),
    "cp .bulk": (Case("cp.async.bulk.global.shared::cta.bulk_group [{g}], [{s}], 64;" + _OUT, "s"),),
    "cp .ca": (Case("cp.async.ca.shared.global [{s}], [{g}], 8;" + _WAITS, "g"),),
    "cp .cg": (Case("cp.async.cg.shared.global [{s}], [{g}], 16;" + _WAITS, "g"),),
    "tensormap .box_dim|global_dim|global_stride|element_stride": (
        Case("tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [{s}], 0, r1;", "s", version="8.3"),
    ),
    "tensormap .elemtype|interleave_layout|swizzle_mode|swizzle_atomicity|fill_mode": (
        Case("tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [{s}], 7;", "s", version="8.3"),
    ),
    "tensormap": (
        Case("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [{s}], d0;", "s", version="8.3"),
        Case("tensormap.replace.tile.global_address.global.b1024.b64 [{g}], d0;", "g", version="8.3"),
    ),
    "clusterlaunchcontrol .try_cancel .multicast::cluster::all": (
        _b100(
            "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"
            ".multicast::cluster::all.b128 [{s}], [bar];"),
    ),
    "clusterlaunchcontrol .try_cancel": (
        _b100(
            "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [{s}], [bar];"),
    ),
    "wmma .load .c": (
        Case(
            "wmma.load.c.sync.aligned.row.m16n16k16.shared.f32 {f0, f1, f2, f3, f4, f5, f6, f7}, [{s}], 16;"
            "setp.eq.f32 q2, f0, 0f3F800000; @q2 bra SKIP;",
            "s",
            "warp",
        ),
    ),
    "wmma .load": (
        Case(
            "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {a0, a1, a2, a3, a4, a5, a6, a7}, [{s}], 16;"
            "setp.eq.u32 q2, a0, 1; @q2 bra SKIP;",
            "s",
            "warp",
        ),
    ),
    "ldmatrix": (
        Case(
            "mad.lo.u32 r1, lane, 16, {s}; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {r1}, [r1];" + _DECIDES, "s", "warp"
        ),
    ),
    "wgmma .mma_async .sp": (
        _wgmma("k32.f32.f16.f16", _F4, "1, 1, 1, 0, 0", sparse=True),
        _wgmma("k64.f32.e4m3.e4m3", _F4, "1, 1, 1", sparse=True),
        _wgmma("k64.s32.s8.s8", _A4, "1", sparse=True),
    ),
    "wgmma .mma_async": (
        _wgmma("k16.f32.bf16.bf16", _F4, "1, 1, 1, 0, 0"),
        _wgmma("k16.f32.bf16.bf16", _F4, "1, 1, 1, 1, 1"),
        _wgmma("k8.f32.tf32.tf32", _F4, "1, 1, 1"),
        _wgmma("k32.s32.u8.u8", _A4, "1"),
    ),
    "mbarrier .init": (Case("mbarrier.init.shared.b64 [{s}], 1;"),),
    "mbarrier .inval": (Case("mbarrier.inval.shared.b64 [{s}];", "s", object=True),),
    "mbarrier .arrive|arrive_drop .expect_tx .shared::cluster": (
        Case("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [{s}], 8;", "s", object=True),
    ),
    "mbarrier .arrive|arrive_drop .shared::cluster": (
        Case("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [{s}];", "s", object=True),
    ),
    "mbarrier .arrive|arrive_drop .noComplete": (
        Case("mbarrier.arrive.noComplete.shared.b64 d1, [{s}], 1;", "s", object=True),
    ),
    "mbarrier .arrive|arrive_drop .expect_tx": (
        Case("mbarrier.arrive.expect_tx.shared.b64 d1, [{s}], 8;", "s", object=True),
    ),
    "mbarrier .arrive|arrive_drop": (Case("mbarrier.arrive.shared.b64 d1, [{s}];", "s", object=True),),
    "mbarrier .expect_tx|complete_tx": (
        Case("mbarrier.expect_tx.relaxed.cta.shared.b64 [{s}], 8;", "s", object=True),
    ),
    "mbarrier .try_wait .parity": (Case("mbarrier.try_wait.parity.shared.b64 q2, [{s}], 0;", "s", object=True),),
    "mbarrier .try_wait": (Case("mbarrier.try_wait.shared.b64 q2, [{s}], d0;", "s", object=True),),
    "mbarrier .test_wait .parity": (Case("mbarrier.test_wait.parity.shared.b64 q2, [{s}], 0;", "s", object=True),),
    "mbarrier .check_layout": (
        Case("mbarrier.check_layout.layout::v0.shared.b64 q2, [{s}];", "s", object=True, version="9.3"),
    ),
    "mbarrier .test_wait": (Case("mbarrier.test_wait.shared.b64 q2, [{s}], d0;", "s", object=True),),
}  # fmt: skip

_TEXTURES = "its mode says what becomes of an element that is not there, and texels are written when they are made"
_SURFACES = f"{_TEXTURES}; .trap ends the launch with and without checks: test_textures.py"
_HINT = "a hint: it neither reads nor writes"
APART = {
    "stacksave": "it reads the pointer of the stack, and no memory",
    "stackrestore": "it moves the pointer of the stack",
    "alloca": "it takes memory of the stack, which accesses of the thread are held to",
    "tex .level": _TEXTURES, "tex .grad": _TEXTURES, "tex|tld4": _TEXTURES, "suld": _SURFACES, "txq .level": _TEXTURES,
    "txq|suq": _TEXTURES, "sust": _SURFACES, "sured": _SURFACES,
    "call.arguments": "the callee's own instructions read them",
    "call.function|call.exit": "the callee's own instructions access memory",
    **dict.fromkeys(NOT_EXECUTED, "it is not executed"),
    **IN_TENSOR,
    "applypriority .bulk": _HINT, "applypriority .tensor": _HINT,
    "atom.put|atom.run": "halves of an atomic operation, which no kernel under checks has",
    "shared.clear": "the device does it",
    "cp .prefetch": _HINT, "cp .prefetch .tensor": _HINT, "prefetch|prefetchu": _HINT, "applypriority|discard": _HINT,
    "fence .tensormap::generic .acquire": "it orders accesses of others",
}  # fmt: skip


def test_every_row_with_a_memory_effect_has_cases() -> None:
    accesses = (Effect.READS, Effect.WRITES, Effect.UPDATES)
    rows = [
        row for row in TABLE if row.effect in accesses or (set("mt") & set(row.reads) and row.effect is not Effect.PURE)
    ]
    forms = {row.form for row in rows}
    assert forms - CASES.keys() - APART.keys() == set(), (
        "instructions that touch memory, and no check is shown to see it"
    )
    assert (CASES.keys() | APART.keys()) - forms == set()
    assert CASES.keys() & APART.keys() == set()


# -- the kernel -----------------------------------------------------------------------------------------------

_KERNEL = """.version {version}
.target {target}
.address_size 64
.visible .entry k(.param .u64 p, .param .align 64 .b8 map[128]) {{
.shared .align 1024 .b8 s[4096]; .shared .align 8 .b64 bar;
.reg .b32 t, w, lane, sa, za, far, r<8>, a<8>; .reg .f32 f<8>; .reg .b64 ga, gfar, tm, d<4>; .reg .b16 h1;
.reg .pred q<4>;
mov.u32 t, %tid.x; shr.u32 w, t, 5; mov.u32 lane, %laneid; mov.u32 sa, s; add.u32 za, sa, 2048;
add.u32 far, sa, 0x10000; ld.param.u64 ga, [p]; add.u64 gfar, ga, 0x1000000; mov.b64 tm, map; cvta.param.u64 tm, tm;
mov.b16 h1, 1; mov.u32 r0, 0; mov.b64 d0, 0; setp.eq.u32 q1, t, 0;
@q1 mbarrier.init.shared.b64 [bar], {count};
{fill}
fence.proxy.async; bar.sync 0;
setp.ge.u32 q1, {first}; @q1 bra SKIP;
{before}
{text}
{after}
SKIP: setp.ne.u32 q1, t, 128; @q1 bra END;
{other}
END: ret; }}"""
_FILL = "mad.lo.u32 r1, t, 8, {at}; st.shared.v2.u32 [r1], {{r0, r0}};\n"
_FIRST = {"thread": "t, 1", "warp": "w, 1", "group": "w, 4"}


_EXPECT = "mbarrier.arrive.expect_tx.shared.b64 d0, [bar], {size};"
_WAIT = "WAIT: mbarrier.try_wait.parity.shared.b64 q2, [bar], 0; @!q2 bra WAIT;"


def _run(
    case: Case,
    device: Device,
    *,
    fills: str = "sz",
    away: str = "",
    races: str = "",
    raw: bool = False,
    waits: bool = False,
) -> None:
    """Launch a case: ``fills`` are written before, what is ``away`` is not there, warp 4 writes what ``races``.

    If it ``waits``, the thread of a bulk copy waits for what the copy signals.
    """
    signals = waits and "bulk" in case.text and "[bar]" in case.text
    size = 128 if "tensor" in case.text else 64
    places_of = {"s": "sa", "z": "za", "g": "ga", "m": "tm"}
    places = places_of | {letter: "gfar" if letter == "g" else "far" for letter in away if letter != "m"}
    fill = "".join(_FILL.format(at=places_of[letter]) for letter in fills)
    if case.object:
        fill = "@q1 mbarrier.init.shared.b64 [sa], 64;" if "s" in fills else ""
    other = "".join(f"st.shared.u32 [{places_of[letter]}], t;" for letter in races)
    done = case.text
    for letter, place in places.items():
        done = done.replace(f"{{{letter}}}", place)
    text = _KERNEL.format(
        version=case.version,
        target=case.target,
        fill=fill,
        first=_FIRST[case.who],
        text=done,
        other=other,
        count=1 if signals else 64,
        before=_EXPECT.format(size=size) if signals else "",
        after=_WAIT if signals else "",
    )
    array = (device.empty if raw else device.zeros)(1024, np.uint32)
    fields = TensorMap.from_buffer_copy(bytes(device.tensor_map(array, 32)))
    if "m" in away:
        fields.global_address = 1 << 16
    cujit.load(text, device)["k"].prepare(1, 256, cluster=1)(array, np.frombuffer(bytes(fields), "V128")[0])


def _all() -> Iterator[tuple[str, Case]]:
    for form, cases in CASES.items():
        for k, case in enumerate(cases):
            yield f"{form} {k}", case


ALL = dict(_all())


def _found_of(case: Case) -> list[str]:
    """List the checks that find something in a case."""
    needs = {"memory": case.operands, "race": set(case.operands) & set("sz"), "init": case.reads}
    return [check for check, letters in needs.items() if letters]


_CHOSEN = [(name, check) for name, case in ALL.items() for check in part(_found_of(case), 3, name)]
"""In each case one check finds something, so that an instruction that no check sees any more is found by every run."""


def _with(check: str) -> list[str]:
    return [name for name, chosen in _CHOSEN if chosen == check]


@pytest.mark.parametrize("name", part(ALL, 3))
def test_correct_cases_have_no_findings(name: str) -> None:
    _run(ALL[name], cujit.cpu(check="all"), waits=True)


def _found(case: Case, check: str, **how: object) -> KernelFaultError:
    with pytest.raises(KernelFaultError) as caught:
        _run(case, cujit.cpu(check=check), **how)  # type: ignore[arg-type]
    return caught.value


@pytest.mark.parametrize("name", _with("memory"))
def test_out_of_bounds_cases_are_found(name: str) -> None:
    case = ALL[name]
    for letter in case.operands:
        error = _found(case, "memory", away=letter)
        assert error.kind == "memory", (letter, str(error))


@pytest.mark.parametrize("name", _with("race"))
def test_race_is_found(name: str) -> None:
    case = ALL[name]
    for letter in set(case.operands) & set("sz"):
        error = _found(case, "race", races=letter)
        assert error.kind == "race", (letter, str(error))


@pytest.mark.parametrize("name", _with("init"))
def test_unwritten_memory_cases_are_found(name: str) -> None:
    case = ALL[name]
    for letter in case.reads:
        error = _found(case, "init", fills="sz".replace(letter, ""), raw=letter in "gm")
        assert error.kind == "init", (letter, str(error))
