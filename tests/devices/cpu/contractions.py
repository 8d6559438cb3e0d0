"""Kernels with products and sums, and what is rounded in them, as text: for ``mul`` of a and b, then ``add`` of c:

(a*b+c) if both round, [a*b+c] if one ``fma`` does both; terms and factors are sorted, signs of products in front.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

from cujit.devices.cpu.analysis.contraction import contracted
from cujit.devices.cpu.frontend.layout import ModuleLayout
from cujit.devices.cpu.ir.program import KernelProgram, MemoryOperand, Op, Operand, Reg
from cujit.devices.cpu.ir.refusals import Refusals
from cujit.devices.cpu.pipeline import prepare
from cujit.formats.ptx.parser import parse

TYPES = {"f16": "b16", "bf16": "b16", "f16x2": "b32", "bf16x2": "b32", "f32": "f32", "f64": "f64"}
"""Types of sums on sm_90, and of the registers that hold them."""

FORMS = {
    "first term": "mul.T y, a, b; add.T x, y, c;",
    "second term": "mul.T y, a, b; add.T x, c, y;",
    "minuend": "mul.T y, a, b; sub.T x, y, c;",
    "subtrahend": "mul.T y, a, b; sub.T x, c, y;",
    "product .rn": "mul.rn.T y, a, b; add.T x, y, c;",
    "sum .rn": "mul.T y, a, b; add.rn.T x, y, c;",
    "doubled": "mul.T y, a, b; add.T x, y, y;",
    "a square": "mul.T y, a, a; add.T x, y, a;",
    "two sums": "mul.T y, a, b; add.T x, y, c; add.T z, y, d; store z;",
    "a sum and a store": "mul.T y, a, b; add.T x, y, c; store y;",
    "a sum and a guarded store": "mul.T y, a, b; @P store y; add.T x, y, c;",
    "a sum and a product": "mul.T y, a, b; add.T x, y, c; mul.T z, y, d; store z;",
    "a sum and nothing": "mul.T y, a, b; mul.T z, y, d; add.T x, y, c;",
    "two products": "mul.T y, a, b; mul.T z, c, d; add.T x, y, z;",
    "two equal products": "mul.T y, a, b; mul.T z, b, a; add.T x, y, z;",
    "moved": "mul.T y, a, b; mov.B z, y; add.T x, z, c;",
    "negated product": "mul.T y, a, b; neg.T z, y; add.T x, z, c;",
    "negated product, stored": "mul.T y, a, b; neg.T z, y; add.T x, z, c; store z;",
    "negated addend": "mul.T y, a, b; neg.T z, c; add.T x, y, z;",
    "magnitude of the product": "mul.T y, a, b; abs.T z, y; add.T x, z, c;",
    "magnitude of the addend": "mul.T y, a, b; abs.T z, c; add.T x, y, z;",
    "overwritten factor": "mul.T y, a, b; add.T a, c, d; add.T x, y, a;",
    "guarded sum": "mul.T y, a, b; mov.B x, d; @P add.T x, y, c;",
    "guarded product": "mov.B y, d; @P mul.T y, a, b; add.T x, y, c;",
    "guarded both": "mov.B x, d; mov.B y, d; @P mul.T y, a, b; @P add.T x, y, c;",
    "guarded copy": "mul.T y, a, b; mov.B z, d; @P mov.B z, y; add.T x, z, c;",
    "selected": "mul.T y, a, b; selp.B z, y, d, P; add.T x, z, c;".replace("selp.B", "selp.W"),
    "in a branch": "mul.T y, a, b; mov.B x, d; @P bra L; add.T x, y, c; L:",
    "behind a branch": "mul.T y, a, b; @P bra L; store d; L: add.T x, y, c;",
    "of both branches": "@P bra L; mul.T y, a, b; bra M; L: mul.T y, a, c; M: add.T x, y, d;",
    "inside both branches": "@P bra L; mul.T y, a, b; add.T x, y, c; bra M; L: mul.T y, a, c; add.T x, y, d; M:",
    "behind a label": "mul.T y, a, b; L: add.T x, y, c;",
    "behind a jump": "mul.T y, a, b; bra.uni L; L: add.T x, y, c;",
    "in a loop": "mov.B x, c; L: mul.T y, x, b; add.T x, y, d; ld.volatile.global.u32 i, [p]; setp.ne.u32 P, i, 0; "
    "@P bra L;",
    "into a loop": "mul.T y, a, b; mov.B x, c; L: add.T x, y, x; ld.volatile.global.u32 i, [p]; "
    "setp.ne.u32 P, i, 0; @P bra L;",
    "around a loop": "mov.B x, c; mov.B y, d; L: add.T x, y, x; mul.T y, x, b; ld.volatile.global.u32 i, [p]; "
    "setp.ne.u32 P, i, 0; @P bra L; store y;",
    "exit between": "mul.T y, a, b; @P exit; add.T x, y, c;",
    "product .ftz": "mul.ftz.T y, a, b; add.T x, y, c;",
    "sum .ftz": "mul.T y, a, b; add.ftz.T x, y, c;",
    "both .ftz": "mul.ftz.T y, a, b; add.ftz.T x, y, c;",
    "product .sat": "mul.sat.T y, a, b; add.T x, y, c;",
    "sum .sat": "mul.T y, a, b; add.sat.T x, y, c;",
    "both .ftz, sum .sat": "mul.ftz.T y, a, b; add.ftz.sat.T x, y, c;",
    "product .rz": "mul.rz.T y, a, b; add.T x, y, c;",
    "sum .rm": "mul.T y, a, b; add.rm.T x, y, c;",
    "a constant factor": "mul.T y, a, K; add.T x, y, c;",
    "a constant addend": "mul.T y, a, b; add.T x, y, K;",
    "two constant factors": "mov.B d, K; mul.T y, d, K; add.T x, y, c;",
    "a power of two": "mul.T y, a, 2; add.T x, y, c;",
}
"""What stands before the sum that goes to ``x``. T is the type, B and W the registers' types, K a constant."""

BETWEEN = (
    *("bar.sync 0", "bar.sync 1, 64", "bar.arrive 1, 64", "barrier.sync 0", "bar.red.popc.u32 i, 0, P"),
    *("bar.warp.sync -1", "membar.cta", "membar.gl", "membar.sys", "fence.acq_rel.gpu", "fence.acq_rel.cta"),
    *(
        "fence.sc.cta",
        "fence.gpu",
        "fence.proxy.alias",
        "fence.proxy.async",
        "fence.proxy.tensormap::generic.release.gpu",
    ),
    *("fence.acquire.sync_restrict::shared::cluster.cluster", "fence.acq_rel.cluster"),
    *("fence.mbarrier_init.release.cluster", "brkpt", "@P trap", "pmevent 3", "nanosleep.u32 100", "activemask.b32 i"),
    *("atom.global.add.u32 i, [p], i", "red.global.add.u32 [p], i", "atom.acq_rel.gpu.global.add.u32 i, [p], i"),
    *("atom.shared.add.f32 z, [s], d", "ld.acquire.gpu.global.u32 i, [p]", "st.release.gpu.global.u32 [p], i"),
    *("ld.volatile.global.u32 i, [p]", "shfl.sync.bfly.b32 i, i, 1, 31, -1", "vote.sync.ballot.b32 i, P, -1"),
    *("match.any.sync.b32 i, i, -1", "redux.sync.add.u32 i, i, -1", "elect.sync _|W, -1", "mov.u32 i, %clock"),
    *(
        "cp.async.wait_all",
        "cp.async.bulk.wait_group 0",
        "mbarrier.try_wait.shared.b64 W, [s], 0",
        "griddepcontrol.wait",
    ),
    *("griddepcontrol.launch_dependents", "barrier.cluster.arrive", "barrier.cluster.wait", "wgmma.fence.sync.aligned"),
    *(
        "setmaxnreg.inc.sync.aligned.u32 64",
        "prefetch.global.L2 [p]",
        "sin.approx.f32 z, d; store z",
        "store d",
        "store i",
    ),
    *(f"{name}.f32 z, d, a; store z" for name in ("div.rn", "div.rz", "div.rn.ftz", "div.full", "div.approx")),
    *(f"{name}.f32 z, d; store z" for name in ("sqrt.rn", "sqrt.approx", "rcp.rn.ftz", "rcp.approx", "rsqrt.approx")),
    *(f"{name}.{kind}32 i, i, s" for name in ("div", "rem") for kind in "su"),
    *(f"{name}.{kind}64 p, p, q" for name in ("div", "rem", "mul.lo") for kind in "su"),
    *(
        "bfind.u64 i, p",
        "bfind.shiftamt.s64 i, q",
        "bfind.u32 i, s",
        "rem.u16 h, h, h",
        "rem.s32 i, i, 7",
        "div.u32 i, i, 7",
        "rem.s64 p, p, 7",
        "div.rn.f64 p, p, q",
        "rcp.rn.f64 p, p",
    ),
    *("sqrt.rn.f64 p, p", "rsqrt.approx.f64 p, p", "rcp.approx.ftz.f64 p, p", "rsqrt.approx.ftz.f64 p, p"),
)
"""Statements between a product and its sum."""


def body_of(form: str, type_: str = "f32") -> str:
    """Write the body of a kernel around a form: ``a`` to ``d`` are loaded, ``x`` is stored."""
    held = TYPES[type_]
    size = int(held[1:]) // 8
    constant = {"f32": "0f3FC00000", "f64": "0d3FF8000000000000"}.get(type_, "c")
    two = {"f32": "0f40000000", "f64": "0d4000000000000000"}.get(type_, "c")
    text = form.replace(".T", f".{type_}").replace(".B", f".{held}").replace(".W", f".b{held[1:]}")
    text = text.replace(" K", f" {constant}").replace(" 2;", f" {two};").replace("a, 2;", f"a, {two};")
    text = text.replace("store i", "st.global.u32 [q+80], i").replace("store", f"st.global.{held} [q+{size}],")
    loads = "".join(f"ld.global.{held} {name}, [p+{k * size}]; " for k, name in enumerate("abcd"))
    return (
        f".reg .b64 p, q; .reg .{held} a, b, c, d, x, y, z; .reg .pred P, W; .reg .b32 i, s; .reg .b16 h;\n"
        ".shared .align 8 .b64 S; mov.u32 s, S; ld.param.u64 p, [from]; ld.param.u64 q, [to]; ld.param.u32 i, [n];\n"
        f"cvt.u16.u32 h, i; setp.gt.u32 P, i, 5; {loads}\n{text}\n"
        f"st.global.{held} [q], x; st.global.b32 [q+88], i; st.global.b64 [q+96], p; st.global.b16 [q+104], h; ret;"
    )


def forms_of(type_: str) -> dict[str, str]:
    """Give the bodies of the forms that a type has, by name."""
    few = {"f16": (".rz", ".rm"), "f16x2": (".rz", ".rm"), "f64": (".ftz", ".sat"), "f32": ()}
    lacks = few.get(type_, (".ftz", ".sat", ".rz", ".rm"))
    lacks += ("store z;",) if type_ in ("f16", "bf16") else ()  # ptxas makes a pair of two sums
    lacks += ("mul.T y, a, K", "y, K;", "a, 2;", "selp", "d, K") if type_ not in ("f32", "f64") else ()
    return {name: body_of(text, type_) for name, text in FORMS.items() if not any(word in text for word in lacks)}


def random_body(seed: int) -> str:
    """Write products, sums and copies of f32 at random, few of the products used by nothing but sums."""
    rng = random.Random(seed)
    dense, count = seed % 2, rng.randint(5, 16)
    made, lines = [f"r{k}" for k in range(5)], [f"ld.global.f32 r{k}, [p+{4 * k}];" for k in range(5)]
    kinds = ["mul"] * 3 + ["add"] * 4 + ["sub"] * 2 + ["neg", "mov"]
    for k in range(count):
        kind = ("mul" if k < count // 3 else rng.choice(("add", "sub"))) if dense else rng.choice(kinds)
        a, b = (
            rng.sample(made[5:] if dense and k > count // 3 else made[-7:], 2) if len(made) > 6 else rng.sample(made, 2)
        )
        words = (
            ""
            if kind in ("neg", "mov") or dense
            else rng.choice([""] * 7 + [".rn", ".ftz"] + [".sat"] * (kind != "mul"))
        )
        to = rng.choice(made[5:]) if len(made) > 8 and not dense and rng.random() < 0.2 else f"r{5 + k}"
        lines.append(
            f"{kind}{words}.f32 {to}, {a};" if kind in ("neg", "mov") else f"{kind}{words}.f32 {to}, {a}, {b};"
        )
        made = [name for name in made if name != to] + [to]
    results = made[5 + count // 3 :] if dense else made[-3:]
    lines += [f"st.global.f32 [q+{4 * k}], {name};" for k, name in enumerate(results)]
    return (
        ".reg .b64 p, q; .reg .f32 r<32>;\nld.param.u64 p, [from]; ld.param.u64 q, [to];\n"
        + "\n".join(lines)
        + "\nret;"
    )


def module_of(bodies: Mapping[str, str], version: str = "8.6", target: str = "sm_90a") -> str:
    """Write a module of kernels."""
    head = f".version {version}\n.target {target}\n.address_size 64\n"
    parameters = "(.param .u64 from, .param .u64 to, .param .u32 n)"
    return head + "\n".join(f".visible .entry {name}{parameters}\n{{\n{body}\n}}" for name, body in bodies.items())


def programs_of(text: str) -> dict[str, KernelProgram]:
    """Contract the kernels of a module."""
    ptx, refusals, found = parse(text), Refusals(), {}
    layout = ModuleLayout(ptx, refusals)
    for entry in ptx.entries:
        body = prepare(entry, layout, refusals)
        found[entry.name] = contracted(body.program, body.graph)
    assert not refusals.items, refusals.items
    return found


# -- what is rounded ----------------------------------------------------------------------------------------------


def negative(value: str) -> str:
    """Change the sign."""
    return value.removeprefix("-") if value.startswith("-") else f"-{value}"


def product_of(a: str, b: str, words: str = "") -> str:
    """Write a product; its sign stands in front."""
    sign = "-" * (a.startswith("-") != b.startswith("-"))
    return f"{sign}({'*'.join(sorted((a.lstrip('-'), b.lstrip('-'))))}){words}"


def sum_of(a: str, b: str, words: str = "") -> str:
    """Write a sum."""
    return f"({'+'.join(sorted((a, b)))}){words}"


def fused(a: str, b: str, c: str, words: str = "") -> str:
    """Write a product and a sum that are rounded once."""
    return f"[{product_of(a, b)}+{c}]{words}"


def results_of(ops: Iterable[Op]) -> list[str]:
    """Write what operations of f32 without branches store, by address."""
    held: dict[int, str] = {}
    stored: dict[int, str] = {}

    def value(operand: Operand) -> str:
        return held.get(operand.index, "nothing") if isinstance(operand, Reg) else str(operand)

    for op in ops:
        words = "".join(f".{word.upper()}" for word in op.form.words if word in ("ftz", "sat"))
        if op.space == "global" and op.opcode in ("ld", "st"):
            assert isinstance(op.sources[0], MemoryOperand)
            if op.opcode == "st":
                stored[op.sources[0].offset] = value(op.sources[1])
            elif isinstance(op.results[0], Reg):
                held[op.results[0].index] = f"m{op.sources[0].offset}"
        elif "f32" in op.types or op.name == "mov.b32":
            held[op.written[0].index] = _computed(op.opcode, [value(source) for source in op.sources], words)
    return [stored[at] for at in sorted(stored)]


def _computed(opcode: str, values: list[str], words: str) -> str:
    if opcode in ("mov", "neg"):
        return values[0] if opcode == "mov" else negative(values[0])
    if opcode == "sub":
        values[1] = negative(values[1])
    if opcode == "fma":
        return fused(values[0], values[1], values[2], words)
    return (product_of if opcode == "mul" else sum_of)(values[0], values[1], words)
