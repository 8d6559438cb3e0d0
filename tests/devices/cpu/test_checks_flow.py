"""No instruction loses what ``check="init"`` follows: the instruction table is walked, row by row, operand by operand.

Each register that a form reads gets a value that nobody wrote, one at a time. The finding has to come at the
instruction, or when the host copies what it made. A row without a form fails, unless ``APART`` says why it needs none.
"""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest

import cujit
from cujit.arch.support import dotted
from cujit.devices.cpu.control.rules import all_rules
from cujit.devices.cpu.ir.program import Op
from cujit.devices.device import Device
from cujit.errors import KernelFaultError, PtxSyntaxError
from cujit.formats.ptx.concrete import concrete_forms
from cujit.formats.ptx.isa.semantics import TABLE, form_of
from cujit.formats.ptx.isa.table import NEWEST_PTX, rows
from raising import raises
from refused_rows import IN_TENSOR, NOT_EXECUTED
from sweeps import part
from toolkits.minimal import minimal

pytestmark = pytest.mark.usefixtures("unoptimised")

_KINDS = {"r": "b32", "rd": "b64", "h": "b16", "f": "f32", "fd": "f64", "c": "b8", "p": "pred", "q": "b128"}
_HEAD = """.version {version}
.target {target}
.address_size 64
.global .align 128 .b8 a[256]; .const .align 16 .b8 c[64];
.visible .entry k(.param .u64 out, .param .align 64 .b8 p[128]) .reqnctapercluster 1, 1, 1 {{
.shared .align 128 .b8 s[1024]; .shared .align 8 .b64 mb; .local .align 16 .b8 l[64]; .shared .align 16 .b8 raw[512];
.reg .b32 %r<200>, t; .reg .b16 %h<32>; .reg .f32 %f<200>; .reg .f64 %fd<64>;
.reg .b64 %rd<32>, %rd99, %rd98; .reg .pred %p<8>, no; .reg .b128 %q<16>; .reg .b8 %c<4>;
mov.u32 t, %tid.x; ld.param.u64 %rd99, [out]; mad.wide.u32 %rd99, t, 64, %rd99;
mad.lo.u32 %r199, t, 8, 0; mov.u32 %r198, s; add.u32 %r198, %r198, %r199;
st.shared.v2.u32 [%r198], {{t, t}}; mov.u32 %r198, 0; mov.u32 %r199, 0;
st.local.v4.u32 [l], {{t, t, t, t}}; setp.ne.u32 no, t, 0; @!no mbarrier.init.shared.b64 [mb], 64; bar.sync 0;
"""


def _name(register: str) -> tuple[str, str]:
    found = re.fullmatch(r"%([a-z]+)(\d+)", register)
    assert found
    return found[1], found[2]


def _clean(register: str, fill: str) -> str:
    """Write what gives a register a value that is there; "" is the number of the register."""
    kind, number = _name(register)
    fill = fill or number
    if kind == "p":
        return f"setp.eq.u32 {register}, {'t, 99' if fill == '0' else 't, t'};"
    if kind == "q":
        return f"mov.b64 %rd98, {fill}; mov.b128 {register}, {{%rd98, %rd98}};"
    if kind == "c":
        return f"mov.b32 %r197, {fill}; cvt.u8.u32 {register}, %r197;"
    if kind in ("f", "fd"):
        bits = {"0": "0f3F800000", "-1": "0f40400000"}.get(fill, "0f41000000")
        return (
            f"mov.f32 {register}, {bits};" if kind == "f" else f"mov.f32 %f199, {bits}; cvt.f64.f32 {register}, %f199;"
        )
    return f"mov.{_KINDS[kind]} {register}, {fill};"


def _raw(register: str) -> str:
    kind, _ = _name(register)
    if kind == "p":
        return f"ld.shared.u32 %r196, [raw]; setp.eq.u32 {register}, %r196, 77;"
    return f"ld.shared.{_KINDS[kind]} {register}, [raw];"


def _kept(register: str, at: int) -> str:
    kind, _ = _name(register)
    if kind == "p":
        return f"selp.u32 %r195, 1, 0, {register}; st.global.u32 [%rd99+{at}], %r195;"
    return f"st.global.{_KINDS[kind]} [%rd99+{at}], {register};"


def _split(statement: str) -> tuple[list[str], list[str]]:
    """Find the registers that a statement writes, and those that it reads."""
    name, _, operands = statement.partition(" ")
    parts = re.findall(r"\{[^}]*\}|\[[^]]*\]|[^,\s;]+", operands)
    opcode = name.split(".")[0]
    writes = bool(parts) and not parts[0].startswith("[") and opcode not in _NO_RESULT and parts[0] != "_"
    if opcode in ("bar", "barrier"):
        writes = ".red." in name
    made = re.findall(r"%[a-z]+\d+", parts[0]) if writes else []
    groups = [re.findall(r"%[a-z]+\d+", part) for part in parts[1 if writes and opcode != "wgmma" else 0 :]]
    # Of a group the last stands for all.
    return made, sorted({register for group in groups for register in group[-1:]})


_NO_RESULT = ("st", "red", "nanosleep", "brx", "bra", "call", "stackrestore", "pmevent", "setmaxnreg")


def _kernel(statement: str, raw: str, fill: str, target: str) -> str:
    made, _ = _split(statement)
    named = dict.fromkeys(re.findall(r"%[a-z]+\d+", statement))
    lines = [_clean(register, fill) for register in named if register != raw]
    lines += [_raw(raw), statement]
    lines += ["wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"] * statement.startswith("wgmma.mma")
    lines += [_kept(register, 8 * k) for k, register in enumerate(made[-5:])]
    lines += ["ld.shared.v2.u32 {%r190, %r191}, [s];", _kept("%r190", 48), _kept("%r191", 52)]
    lines += ["ld.global.v2.u32 {%r190, %r191}, [a];", _kept("%r190", 40), _kept("%r191", 44)]
    lines += ["ld.local.v2.u32 {%r190, %r191}, [l];", _kept("%r190", 56), _kept("%r191", 60)]
    return _HEAD.format(version=dotted(NEWEST_PTX), target=target) + "\n".join(lines) + "\nret; }\n"


@functools.cache
def _target(statement: str) -> str:
    """Choose a target that has a statement."""
    if statement.startswith("wgmma"):
        return "sm_90a"
    if "block_scale" in statement:
        return "sm_120a"
    try:
        cujit.load(_kernel(statement, "%r199", "", "sm_100a"), cujit.cpu(1))
    except PtxSyntaxError as error:
        if "came with sm_107f" in str(error):
            return "sm_107f"
    return "sm_100a"


def is_found(statement: str, raw: str, device: Device) -> bool:
    """Tell whether the check finds one raw register of a statement, for one of several values of the others."""
    target = _target(statement)
    for fill in ("", "0", "-1"):
        out = device.zeros(2048, np.uint32)
        kernel = cujit.load(_kernel(statement, raw, fill, target), device)["k"]
        try:
            kernel.prepare(1, 128 if target == "sm_90a" else 32)(out, np.zeros(1, "V128")[0])
            out.numpy()
        except KernelFaultError as error:
            if error.kind != "init":
                raise
            return True
    return False


@functools.cache
def statements() -> dict[str, str]:
    """Write a statement for each row of the table that has one here."""
    found: dict[str, str] = {}
    for row in rows():
        for words in concrete_forms(row):
            op = Op(form_of(row.opcode, *words))
            text = minimal(row.opcode, words)
            old = row.opcode in ("wmma", "mma") and "aligned" not in words
            if (
                text is None
                or all_rules().find(op) is None
                or old
                or (row.opcode == "wgmma" and not re.search("m64n8k|fence|wait|commit", text))
            ):
                continue
            found.setdefault(op.form.meaning.form, text)
    return found


_OLD = "gone since sm_70, which no GPU with the shared memory of these kernels is older than"
_INNER = "no PTX: what a pass makes of others, whose operands are followed where it begins"
APART = {
    "shfl": _OLD, "vote": _OLD, "istypep": "it asks for the kind of an object, and reads no value",
    "mov.join|mov.split": _INNER, "param.get|param.put": _INNER, "call.arguments": _INNER,
    "access.begin|access.end": _INNER,
    "atom.put|atom.run": _INNER, "warpgroup.meet": _INNER, "shared.clear": _INNER, "label": _INNER,
    "call.function|call.exit": "the callee's instructions follow what they are given: test_raw_values_pass_calls",
    **dict.fromkeys(NOT_EXECUTED | {"mul .f16x2 .bf16x2", "spcompress|spdecompress", "trace"}, "it is not executed"),
    **IN_TENSOR, "tcgen05 .wait::ld|wait::st": "it reads nothing",
    "tcgen05 .fence::before_thread_sync|fence::after_thread_sync": "it reads nothing",
    "mov.vector": _INNER,
    "bra": "a raw guard is reported: test_checks_raw.py", "brx": "test_raw_index_of_a_jump_is_found",
    "ret|exit": "it reads a guard alone", "call": "a guard and a name", "call.extern": "test_raw_arguments_are_found",
}  # fmt: skip
_HINT = "a hint, which changes no value"
APART |= dict.fromkeys(
    (
        "prefetch|prefetchu",
        "cp .prefetch",
        "cp .prefetch .tensor",
        "nanosleep",
        "applypriority|discard",
        "applypriority .bulk",
        "applypriority .tensor",
    ),
    _HINT,
)
IGNORED = {
    ("lop3", "%r3"): "the table 5 gives the same for both values of it",
    ("createpolicy .range", "%rd2"): "no policy has an effect here, nor on what a GPU computes",
}
"""Registers that decide nothing."""


def test_every_row_has_a_statement() -> None:
    forms = {row.form for row in TABLE}
    assert forms - statements().keys() == APART.keys() - statements().keys()
    assert APART.keys() - forms == set()


_EVERY = 4
_SHARES = len(part(range(_EVERY), _EVERY))


@pytest.mark.parametrize("share", range(_SHARES))
def test_unwritten_values_are_tracked_through_every_operand(share: int) -> None:
    device = cujit.cpu(1, check="init")
    points = [
        (text, register)
        for form, text in statements().items()
        for register in (_split(text)[1] if form not in APART else ())
        if (form, register) not in IGNORED
    ]
    assert [point for point in part(points, _EVERY)[share::_SHARES] if not is_found(*point, device)] == []


# -- what has no form of its own -------------------------------------------------------------------------------


def _cuda(body: str, before: str = "") -> cujit.Artifact:
    text = f"""#include <mma.h>
    #include <stdio.h>
    {before}
    extern "C" __global__ void k(int *out, int n) {{ __shared__ __align__(128) int s[1024]; int t = threadIdx.x;
    for (int i = t; i < n; i += 32) s[i] = 3; __syncwarp(); {body} }}"""
    return cujit.compile(text, arch="compute_80")


def _found(body: str, n: int, before: str = "", words: str = "") -> bool | str:
    """Launch a kernel after ``n`` words of shared memory were written; tell whether that is found in some words."""
    device = cujit.cpu(2, check="init")
    out = device.zeros(1024, np.int32)
    try:
        cujit.load(_cuda(body, before), device)["k"][1, 32](out, np.int32(n))
        out.numpy()
    except KernelFaultError as error:
        return (error.kind == "init" and words in str(error)) or str(error)
    return False


_PRINTS = {
    "a number": 'if (t == 3) printf("%d\\n", s[40]);',
    "the second": 'if (t == 3) printf("%s %d %lld\\n", "x", t, (long long)s[40]);',
    "a float behind padding": 'if (t == 3) printf("%d %f\\n", t, __int_as_float(s[40]));',
    "a width": 'if (t == 3) printf("%*d\\n", s[40] & 7, t);',
}


@pytest.mark.parametrize("name", _PRINTS)
def test_raw_arguments_are_found(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert _found(_PRINTS[name], 40, words="it is printed") is True
    assert not _found(_PRINTS[name], 41)
    capfd.readouterr()


def test_argument_that_is_only_stored_has_no_finding(capfd: pytest.CaptureFixture[str]) -> None:
    # The buffer of the arguments holds a raw value that no specification of the format takes.
    assert not _found('if (t == 3) printf("%d\\n", t, s[40]);', 40)
    capfd.readouterr()


def test_raw_values_pass_calls() -> None:
    before = "__device__ __noinline__ int g(int x, int n) { return n > 99 ? g(x, n - 1) : x * 2; }"
    assert _found("out[t] = g(s[40], n);", 40, before)
    assert not _found("out[t] = g(s[40], n);", 41, before)


def test_raw_index_of_a_jump_is_found() -> None:
    body = "mov.u32 %r1, %r196; bra NEXT; NEXT: brx.idx %r1, T; A: B: "
    text = _kernel("mov.u32 %r2, %r1;", "%r1", "0", "sm_90").replace("mov.u32 %r2, %r1;", f"mov.u32 %r196, %r1; {body}")
    text = text.replace("bar.sync 0;\n", "bar.sync 0;\nT: .branchtargets A, B;\n", 1)
    device = cujit.cpu(1, check="init")
    with raises(KernelFaultError, "fault-init", "bra NEXT"):
        cujit.load(text, device)["k"][1, 32](device.zeros(2048, np.uint32), np.zeros(1, "V128")[0])


# -- matrices: padded tiles ------------------------------------------------------------------------------------

_WMMA = """using namespace nvcuda::wmma;
fragment<matrix_a, M, N, 16, half, LAYOUT> a; fragment<matrix_b, M, N, 16, half, col_major> b;
fragment<accumulator, M, N, 16, float> c;
half *h = (half *)s; float *f = (float *)(s + 512);
for (int i = t; i < 16 * COLUMNS; i += 32) h[512 + i] = __float2half(1.0f);
__syncwarp(); load_matrix_sync(a, h, LEAD); load_matrix_sync(b, h + 512, 16); fill_fragment(c, 0.0f);
mma_sync(c, a, b, c); store_matrix_sync(f, c, N, mem_row_major); __syncwarp();
for (int i = t; i < M * N; i += 32) if (USED) out[i] = (int)f[i];"""


@pytest.mark.parametrize("shape", [(16, 16), (32, 8), (8, 32)])
@pytest.mark.parametrize("layout", ["row_major", "col_major"])
def test_padded_rows_pass_wmma_and_its_store(shape: tuple[int, int], layout: str) -> None:
    m, n = shape
    rows = m - 4
    # In memory by rows, the last rows are missing; by columns they are all there but for the last columns of A.
    lead, words = (16, rows * 8) if layout == "row_major" else (m, 12 * m // 2)
    body = _WMMA.replace("LAYOUT", layout).replace("LEAD", str(lead)).replace("M,", f"{m},").replace("N,", f"{n},")
    body = body.replace("M * N", str(m * n)).replace("c, N", f"c, {n}").replace("COLUMNS", str(n))
    used = f"i / {n} < {rows}"
    assert _found(body.replace("USED", "true"), words, words="stored by kernel k") is True
    if layout == "row_major":
        assert not _found(body.replace("USED", used), words)
    assert not _found(body.replace("USED", "true"), m * 8)


_ROWS = {
    "ldmatrix": 'asm volatile("ldmatrix.sync.aligned.m8n8.x1TRANS.shared.b16 {%0}, [%1];" : "=r"(v) : "r"(at));',
}
_ROWS["ldmatrix and movmatrix"] = (
    _ROWS["ldmatrix"] + 2 * 'asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(v));'
)


@pytest.mark.parametrize("name", _ROWS)
@pytest.mark.parametrize("turned", ["", ".trans"])
def test_uninitialized_rows_move_with_the_rows(name: str, turned: str) -> None:
    # Rows 5 to 7 of eight are missing: by rows lanes 20 to 31 have them, transposed all lanes have some.
    load = _ROWS[name].replace("TRANS", turned)
    body = f"int v; unsigned at = (unsigned)__cvta_generic_to_shared(s + t % 8 * 4); {load} if (t < USED) out[t] = v;"
    whole, some = (20, 21) if not turned else (0, 4)
    assert not _found(body.replace("USED", str(whole)), 20)
    assert _found(body.replace("USED", str(some)), 20)
    assert not _found(body.replace("USED", "32"), 32)
