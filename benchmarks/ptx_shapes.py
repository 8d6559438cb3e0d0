"""Texts of PTX by shape: each repeats one construct so often as asked. ``shapes.py`` and tests measure them."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable

__all__ = ["SHAPES", "Shape", "sized"]

_HEAD = ".version 8.6\n.target sm_90\n.address_size 64\n"
_REGISTERS = ".reg .b32 r<9>; .reg .b64 d<9>; .reg .pred p; .reg .f32 f<9>;"
_BEGIN = "ld.param.u64 d1, [out]; mov.u32 r1, %tid.x; mov.u32 r2, %ctaid.x; and.b32 r3, r1, 3;\n"
_END = "st.global.u32 [d1], r1;"

Shape = Callable[[int], str]


def _kernel(body: Iterable[str], before: str = "", registers: str = "", target: str = "") -> str:
    """Write a module with one kernel ``k``, and what comes before it."""
    head = _HEAD.replace("sm_90", target) if target else _HEAD
    text = "\n".join(body)
    entry = f".visible .entry k(.param .u64 out) {{\n{_REGISTERS}{registers}\n{_BEGIN}{text}\n{_END}\nret; }}\n"
    return head + before + entry


def _branches(count: int, register: str, to: Callable[[int], int]) -> list[str]:
    """Write blocks that each add, and that branch to another of them where a lane or block has some number."""
    return [f"L{i}: setp.eq.u32 p, {register}, {i}; add.u32 r1, r1, 3; @p bra L{to(i) % count};" for i in range(count)]


def _tree(count: int, calls: int) -> str:
    functions = (f".func f{i}() {{ {f'call f{i - 1}; ' * calls if i else ''}ret; }}\n" for i in range(max(count, 1)))
    return _kernel([f"setp.eq.u32 p, r2, 9; @p call f{count - 1};"], "".join(functions))


def _calls(count: int, statements: int) -> str:
    """Write a function of many statements that many places call."""
    body = "add.u32 a, a, 3; xor.b32 a, a, 5;" * (statements // 2)
    function = ".func (.param .b32 z) f(.param .b32 x) { .reg .b32 a; ld.param.b32 a, [x]; "
    function += f"{body} st.param.b32 [z], a; ret; }}\n"
    call = "{ .param .b32 x; .param .b32 z; st.param.b32 [x], r1; call (z), f, (x); ld.param.b32 r1, [z]; }"
    return _kernel([call] * count, function)


def _cycle(count: int) -> str:
    declared = "".join(f".func f{i}();\n" for i in range(count))
    defined = "".join(
        f".func f{i}() {{ call f{(i + 1) % count}; call f{i * 7 % count}; ret; }}\n" for i in range(count)
    )
    return _kernel(["setp.eq.u32 p, r2, 9; @p call f0;"], declared + defined)


def _written(count: int) -> str:
    """Write garbage: tokens of PTX, and others, in an order that a seed decides."""
    words = [
        *'{}[]()<>;:,@!|+-.%$"',
        "add",
        ".u32",
        "%r1",
        "0x7",
        "1.5",
        "L1:",
        "@p",
        ".reg",
        "/*",
        "*/",
        "//",
        "\n",
        "é",
    ]
    return _HEAD + " ".join(random.Random(count).choices(words, k=count))


def _values(count: int) -> str:
    return f".global .u32 g[{count}] = {{{', '.join(str(i) for i in range(count))}}};\n"


def _live(count: int) -> str:
    loads = (f"ld.global.u32 q{i}, [d1+{4 * (i % 64)}];" for i in range(count))
    sums = (f"add.u32 r1, r1, q{i};" for i in range(count))
    return _kernel([*loads, "bar.sync 0;", *sums], registers=f" .reg .b32 q<{count + 1}>;")


def _mma(count: int) -> str:
    """Write a product as quantised ones are: pipelined copies, fragments, dequantisation, and a tile of ``mma``."""
    tiles, body = 64, ["LOOP:"]
    sums = [[f"c{t}_{k}" for k in range(4)] for t in range(tiles)]
    names = ", ".join(name for tile in sums for name in tile)
    for n in range(count):
        if n % 16 == 0:
            stage = n // 16 % 4
            body += [f"cp.async.cg.shared.global [r8+{4096 * stage + 16 * k}], [d1+{16 * k}], 16;" for k in range(4)]
            body += ["cp.async.commit_group;", "cp.async.wait_group 2;", "bar.sync 0;"]
            body += [
                f"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{a{4 * k}, a{4 * k + 1}, a{4 * k + 2}, a{4 * k + 3}}}, "
                f"[r8+{4096 * stage + 512 * k}];"
                for k in range(4)
            ]
        if n % 4 == 0:
            body.append(f"ld.shared.v4.u32 {{q0, q1, q2, q3}}, [r8+{16384 + 16 * (n // 4 % 64)}];")
        body += [f"shr.u32 t0, q{n % 4}, {n % 4 * 4}; and.b32 t1, t0, 983055; or.b32 b0, t1, 1677747200;"]
        body += ["and.b32 t2, t0, 15728880; or.b32 b1, t2, 1677747200;"]
        body += ["sub.f16x2 b0, b0, s0;", "fma.rn.f16x2 b1, b1, s1, s2;", "mul.f16x2 b0, b0, s3;"]
        for k in range(4):  # zero points and scales of groups, as quantised products have them
            body += [f"ld.shared.u32 t0, [r8+{24576 + 4 * (4 * n + k) % 4096}];", "shr.u32 t1, t0, 8;"]
            body += ["lop3.b32 t2, t0, 983055, 1677747200, 234;", "lop3.b32 t1, t1, 15728880, 1677747200, 234;"]
            body += ["sub.f16x2 t2, t2, s0;", "fma.rn.f16x2 t1, t1, s1, t2;", f"mul.f16x2 b{k % 2}, b{k % 2}, t1;"]
        c = ", ".join(sums[n % tiles])
        a = ", ".join(f"a{4 * (n // 4 % 4) + k}" for k in range(4))
        body.append(f"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{{c}}}, {{{a}}}, {{b0, b1}}, {{{c}}};")
    body.append("add.u32 r2, r2, 1; setp.lt.u32 p, r2, 4; @p bra LOOP;")
    for t in range(tiles):
        body.append(f"st.global.v4.f32 [d1+{16 * t}], {{{', '.join(sums[t])}}};")
    registers = f" .reg .f32 {names}; .reg .b32 a<16>, b<2>, q<4>, t<3>, s<4>; .shared .align 16 .b8 tile[32768];"
    start = ["mov.u32 r8, tile; mov.u32 s0, 1677747200; mov.u32 s1, 738208768; mov.u32 s2, 3563638784;"]
    start += ["mov.u32 s3, 1006648320;", *(f"mov.f32 {name}, 0f00000000;" for name in names.split(", "))]
    return _kernel([*start, *body], registers=registers)


def _call(name: str) -> str:
    return f"{{ .param .b32 x; .param .b32 z; st.param.b32 [x], r1; call (z), {name}, (x); ld.param.b32 r1, [z]; }}"


def _adding(name: str, body: str) -> str:
    """Write a function that makes a number of another."""
    return (
        f".func (.param .b32 z) {name}(.param .b32 x) {{ .reg .b32 a; .reg .pred q; ld.param.b32 a, [x]; {body} "
        "st.param.b32 [z], a; ret; }\n"
    )


def _jumps_to_all(count: int, register: str) -> str:
    """Write blocks that each lead to all of them."""
    table = f"T: .branchtargets {', '.join(f'L{i}' for i in range(count))};"
    return _kernel([table, *(f"L{i}: add.u32 {register}, {register}, 1; brx.idx {register}, T;" for i in range(count))])


def _reversed(count: int, body: str) -> str:
    """Write blocks from the last one to the first."""
    blocks = [f"R{i}: {body} bra {f'R{i - 1}' if i else 'END'};" for i in range(count)]
    return _kernel([f"bra R{count - 1};", *blocks, "END:"])


def _by_address(count: int) -> str:
    """Write kernels that each call, by address, one of many functions."""
    functions = "".join(_adding(f"f{i}", "add.u32 a, a, 7;") for i in range(count))
    call = "{ .param .b32 x; .param .b32 z; .reg .b64 at; P: .callprototype (.param .b32 z) _ (.param .b32 x); "
    kernels = (
        f".visible .entry e{i}() {{ {call} mov.u64 at, f{i}; call (z), at, (x), P; }} ret; }}\n" for i in range(count)
    )
    return _kernel([], functions + "".join(kernels))


def _callers(count: int) -> str:
    """Write kernels that each call one long function."""
    function = _adding("f", "add.u32 a, a, 3; xor.b32 a, a, 5;" * max(count, 1))
    call = "{ .param .b32 x; .param .b32 z; call (z), f, (x); }"
    return _kernel([], function + "".join(f".visible .entry e{i}() {{ {call} ret; }}\n" for i in range(count)))


def _shared_tables(count: int) -> str:
    """Write jumps by tables of 64 targets, which all of them share."""
    targets = ", ".join(f"L{k}" for k in range(64))
    jumps = (f"T{i}: .branchtargets {targets}; setp.eq.u32 p, r1, {i}; @p brx.idx r3, T{i};" for i in range(count))
    return _kernel([*jumps, "bra END;", *(f"L{k}: xor.b32 r1, r1, {k};" for k in range(64)), "END:"])


def _joins(count: int) -> str:
    """Write ifs whose sides each change 32 registers."""
    sides = [" ".join(f"{op}.b32 q{k}, q{k}, r2;" for k in range(32)) for op in ("xor", "and")]
    ifs = (
        f"setp.eq.u32 p, r3, {i % 4}; @p bra A{i}; {sides[0]} bra B{i}; A{i}: {sides[1]} B{i}:"
        for i in range(max(count // 16, 1))
    )
    sums = (f"add.u32 r1, r1, q{k};" for k in range(32))
    return _kernel([*(f"mov.u32 q{k}, {k};" for k in range(32)), *ifs, *sums], registers=" .reg .b32 q<32>;")


def _nests(count: int) -> str:
    """Write nests of 60 loops, one behind the other."""
    nest = []
    for i in range(max(count // 60, 1)):
        nest += [f"N{i}_{k}:" for k in range(60)] + ["add.u32 r1, r1, 1;"]
        nest += [f"setp.lt.u32 p, r1, {k + i}; @p bra N{i}_{k};" for k in reversed(range(60))]
    return _kernel(nest)


def _through_arrays(count: int) -> str:
    """Write a chain of functions that each pass an array on."""
    functions = ""
    for i in range(max(count, 1)):
        on = f".param .b8 y[64]; st.param.b32 [y+60], a; call f{i - 1}, (y);" if i else ""
        functions += f".func f{i}(.param .align 4 .b8 x[64]) {{ .reg .b32 a; ld.param.b32 a, [x+60]; {on} ret; }}\n"
    return _kernel([f"{{ .param .align 4 .b8 x[64]; st.param.b32 [x+60], r1; call f{count - 1}, (x); }}"], functions)


def _locations(count: int) -> str:
    """Write lines of thousands of files, and of functions that are inlined at them."""
    files = "".join(f'.file {i + 1} "some/folder/of/headers/file{i}.cuh"\n' for i in range(count))
    names = "".join(f"I{i}:\n.b8 102, 0\n" for i in range(count))
    lines = (
        f".loc {i + 1} 9 1\n.loc {i + 1} 2 1, function_name I{i}, inlined_at {i + 1} 9 1\nadd.u32 r1, r1, 1;"
        for i in range(count)
    )
    return _kernel(lines, files) + f".section .debug_str {{\n{names}}}\n"


def _choices_of_calls(count: int) -> str:
    """Write functions that each call two others, one by a predicate and one by its opposite."""

    def body(i: int) -> str:
        begin = "{ .param .b32 u; .param .b32 v; st.param.b32 [u], a;"
        calls = (("@q", i - 1), ("@!q", i // 2))
        return f"setp.lt.u32 q, a, {i}; " + " ".join(
            f"{begin} {guard} call (v), f{callee}, (u); ld.param.b32 a, [v]; }}" for guard, callee in calls
        )

    functions = "".join(_adding(f"f{i}", body(i) if i else "add.u32 a, a, 7;") for i in range(max(count, 1)))
    return _kernel([_call(f"f{max(count, 1) - 1}")], functions)


def _scopes(count: int) -> str:
    """Write scopes inside each other, of which each reads what the one around it has declared."""
    opened = "".join(f"{{ .reg .b32 a{i}; add.u32 a{i}, a{i - 1}, {i}; " for i in range(1, 16))
    return _kernel([".reg .b32 a0;", *([f"mov.u32 a0, r1; {opened} mov.u32 r1, a15; {'}' * 15}"] * count)])


def _structures(count: int) -> str:
    """Write functions that take a structure and return one."""
    names = [f"a{k}" for k in range(6)]
    loads = " ".join(f"ld.param.b64 {name}, [x+{8 * k}];" for k, name in enumerate(names))
    stores = " ".join(f"st.param.b64 [z+{8 * k}], {name};" for k, name in enumerate(names[:4]))
    functions = (
        f".func (.param .align 8 .b8 z[32]) f{i}(.param .align 8 .b8 x[48]) "
        f"{{ .reg .b64 a<6>; {loads} add.u64 a0, a0, a5; xor.b64 a1, a1, a4; {stores} ret; }}\n"
        for i in range(count)
    )
    begin = "{ .param .align 8 .b8 x[48]; .param .align 8 .b8 z[32]; "
    begin += " ".join(f"st.param.b64 [x+{8 * k}], d{k + 2};" for k in range(6))
    end = " ".join(f"ld.param.b64 d{k + 2}, [z+{8 * k}];" for k in range(4)) + " }"
    return _kernel((f"{begin} call (z), f{i}, (x); {end}" for i in range(count)), "".join(functions))


def _deep_loops(count: int, register: str) -> str:
    """Write loops eight deep, which end where a counter reaches a register."""
    heads = "".join(f"mov.u32 q{k}, 0; L$_{k}: " for k in range(8))
    ends = "".join(
        f"add.u32 q{k}, q{k}, 1; setp.lt.u32 p, q{k}, {register}; @p bra L$_{k}; " for k in reversed(range(8))
    )
    nest = f"{heads} add.u32 r1, r1, 1; {ends}"
    return _kernel((nest.replace("$", str(i)) for i in range(count)), registers=" .reg .b32 q<8>;")


def _by_table(count: int) -> str:
    """Write calls of what a table of functions has."""
    functions = "".join(_adding(f"f{i}", "add.u32 a, a, 7;") for i in range(64))
    table = f".global .u64 t[64] = {{{', '.join(f'f{i}' for i in range(64))}}};\n"
    look = "mov.u64 d2, t; mad.wide.u32 d2, r3, 8, d2; ld.global.u64 d3, [d2];"
    call = _call("d3").replace("(x);", "(x), P;")
    prototype = "P: .callprototype (.param .b32 z) _ (.param .b32 x);"
    return _kernel([prototype, *([f"{look} {call}"] * count)], functions + table)


def _frames(count: int) -> str:
    """Write a chain of functions that each have a large array, and call the next one in a loop."""
    begin = ".local .align 16 .b8 s[16384]; .reg .b32 b; mov.u32 b, s; st.local.u32 [b], a; L:"
    call = "{{ .param .b32 u; .param .b32 v; st.param.b32 [u], a; call (v), f{}, (u); ld.param.b32 a, [v]; }}"
    end = "setp.lt.u32 q, a, 3; @q bra L;"
    bodies = ("add.u32 a, a, 7;", *(f"{begin} {call.format(i)} {end}" for i in range(count - 1)))
    return _kernel([_call(f"f{count - 1}")], "".join(_adding(f"f{i}", body) for i, body in enumerate(bodies)))


def _states(count: int) -> str:
    """Write a loop whose body finds the state that it is in by comparing it with each."""
    begin = "mov.u32 r4, 0; mov.u32 r5, 0; LOOP: add.u32 r5, r5, 1; setp.gt.u32 p, r5, 100; @p bra END;"
    state = "setp.ne.u32 p, r4, $; @p bra N$; mad.lo.u32 r4, r1, 77, $; xor.b32 r1, r1, $; bra LOOP; N$:"
    return _kernel([begin, *(state.replace("$", str(i)) for i in range(count)), "END:"])


_KINDS = ("add.u32", "mul.lo.u32", "xor.b32", "shl.b32", "min.s32", "sub.u32")


def _repeated(statement: str, count: int) -> str:
    wide = statement.replace("WIDE", ", ".join(f"w{k}" for k in range(32)))
    return _kernel((wide.replace("$", str(i)) for i in range(count)), *_AROUND)


_AROUND = (
    '.file 1 "a.cu"\n.extern .func (.param .b32 z) vprintf(.param .b64 x, .param .b64 y);\n',
    " .reg .b16 h; .reg .pred pp; .reg .f32 w<32>; .shared .align 128 .b8 q[8192]; .shared .b64 m;", "sm_90a",
)  # fmt: skip


_REPEATED = {
    "stores": "st.global.u32 [d1+$], r3;",
    "scattered": "mad.wide.u32 d2, r1, r3, d1; ld.global.u32 r4, [d2]; st.global.u32 [d2], r5;",
    "bytes in shared memory": "st.shared.u8 [r8], r1; ld.shared.s8 r1, [r8+1];",
    "guarded": "@p add.u32 r1, r1, 3; @!p xor.b32 r1, r1, r2;",
    "selections": "setp.lt.u32 p, r1, $; selp.b32 r1, r2, r1, p;",
    "early exits": "setp.eq.u32 p, r1, $; @p ret; add.u32 r1, r1, r2;",
    "vectors": "ld.global.v4.f32 {f1, f2, f3, f4}, [d1+16]; st.global.v4.f32 [d1+64], {f4, f3, f2, f1};",
    "packing": "mov.b64 d2, {r1, r2}; mov.b64 {r2, r1}, d2;",
    "carries": "add.cc.u32 r1, r1, r2; addc.cc.u32 r2, r2, r1; madc.hi.cc.u32 r3, r1, r2, r3; addc.u32 r4, r4, 0;",
    "divisions": "div.s32 r1, r1, r2; rem.u64 d2, d2, d3; div.s64 d2, d2, d4;",
    "roundings": "fma.rm.f32 f1, f1, f2, f3; div.rp.f32 f2, f1, f3; sqrt.rz.f32 f3, f2;",
    "functions of halves": "tanh.approx.f16x2 r1, r1; ex2.approx.f16x2 r2, r2; ex2.approx.ftz.bf16x2 r3, r3;",
    "small formats": "cvt.rn.satfinite.e4m3x2.f32 h, f1, f2; cvt.rn.f16x2.e4m3x2 r1, h; cvt.f32.f16 f1, h;",
    "sines": "sin.approx.f32 f1, f1; lg2.approx.f32 f2, f1; tanh.approx.f32 f3, f2; ex2.approx.f32 f1, f3;",
    "doubles": "fma.rn.f64 d5, d5, d6, d7; add.f64 d6, d5, d7; mul.f64 d7, d7, d6;",
    "video": (
        "vadd4.s32.s32.s32 r1, r1, r2, r3; vabsdiff4.u32.u32.u32.add r2, r1, r2, r3; dp4a.s32.s32 r3, r1, r2, r3;"
    ),
    "bit fields": (
        "bfe.s32 r1, r1, r2, r3; bfi.b32 r2, r1, r2, r3, r4; fns.b32 r5, r1, r2, r3; lop3.b32 r7, r1, r2, r3, 77;"
    ),
    "shuffles": ("shfl.sync.bfly.b32 r1, r1, 1, 31, -1; match.any.sync.b32 r3, r1, -1; redux.sync.add.u32 r4, r1, -1;"),
    "shuffles of some": "setp.lt.u32 p, r3, 2; @p bra S$; shfl.sync.bfly.b32 r1, r1, 1, 31, 12; S$:",
    "printing": (
        "{ .param .b64 x, y; .param .b32 z; st.param.b64 [x], d1; st.param.b64 [y], d1; "
        "call.uni (z), vprintf, (x, y); }"
    ),
    "fragments": "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {r1, r2, r3, r4, r5, r6, r7, r8}, [d1];",
    "matrices": (
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {r4, r5, r6, r7}, [r8]; "
        "stmatrix.sync.aligned.m8n8.x2.shared.b16 [r8], {r4, r5};"
    ),
    "warpgroups": (
        "wgmma.fence.sync.aligned; "
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {f1, f2, f3, f4}, d2, d3, 1, 1, 1, 0, 0; "
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
    ),
    "copies": "cp.async.ca.shared.global [r8], [d1], 4; cp.async.commit_group; cp.async.wait_group 0;",
    "bulk copies": "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r8], [d1], 16, [m];",
    "arrivals": "mbarrier.arrive.shared.b64 d2, [m];",
    "textures": "tex.2d.v4.f32.f32 {f1, f2, f3, f4}, [d2, {f5, f6}];",
    "generic": "cvta.to.global.u64 d2, d1; cvta.shared.u64 d3, d4; ld.u32 r4, [d2+$]; st.u32 [d3], r4;",
    "exchanges": (
        "atom.global.cas.b32 r4, [d1], r5, r6; red.global.add.f32 [d1], f1; atom.shared.add.u32 r4, [r8], 1;"
    ),
    "spins": "W$: ld.volatile.global.u32 r4, [d1]; setp.gt.u32 p, r4, 2000000000; @p bra W$;",
    "loops in a row": (
        "V$: add.u32 r4, r4, 1; ld.global.u32 r5, [d1]; add.u32 r1, r1, r5; setp.lt.u32 p, r4, $; @p bra V$;"
    ),
    "barriers in loops": (
        "V$: add.u32 r4, r4, 1; bar.sync 0; st.global.u32 [d1], r4; setp.lt.u32 p, r4, $; @p bra V$;"
    ),
    "barriers of some": "setp.lt.u32 p, r3, 2; @p bra V$; bar.sync 0; add.u32 r1, r1, 1; V$:",
    "ifs with else": "setp.lt.u32 p, r1, $; @p bra A$; mul.lo.u32 r1, r1, 3; bra B$; A$: xor.b32 r1, r1, 5; B$:",
    "windows line ends": "add.u32 r1, r1, 1;\r\n// nothing\r\n",
    "comments in comments": "/* /* // */ add.u32 r1, r1, 1; // /* */",
    "chain": "add.u32 r1, r1, 3; xor.b32 r1, r1, 5;",
    "chain of products": "fma.rn.f32 f1, f1, f2, f3; mul.f32 f1, f1, f1;",
    "chain of choices": "setp.lt.and.u32 p, r1, $, p; selp.b32 r1, r1, r2, p; @p xor.b32 r1, r1, r3;",
    "uniform chain": "setp.gt.u32 p, r2, $; selp.b32 r2, r5, r2, p; add.u32 r2, r2, 3;",
    "loops that store": (
        "mov.u32 r4, 0; V$: add.u32 r4, r4, 1; mad.wide.u32 d2, r4, 4, d1; ld.global.u32 r5, [d2]; "
        "add.u32 r1, r1, r5; st.global.u32 [d2+400], r1; setp.lt.u32 p, r4, r2; @p bra V$;"
    ),
    "divergent loops": "V$: sub.u32 r1, r1, 1; mul.lo.u32 r5, r5, r1; setp.gt.u32 p, r1, $; @p bra V$;",
    "waits for phases": "W$: mbarrier.try_wait.shared.b64 p, [m], d2; @!p bra W$; add.u64 d2, d2, 1;",
    "named barriers": "and.b32 r4, r2, 7; bar.sync r4, 64; barrier.cta.red.popc.aligned.u32 r5, 0, p;",
    "wide groups": "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {WIDE}, d2, d3, 1, 1, 1, 0, 0;",
    "wide copies": (
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [r8], [d1, {r2, r3}], [m];"
    ),
    "vectors of sums": "red.global.add.v4.f32 [d1+16], {f1, f2, f3, f4};",
    "vectors of words": "ld.global.v2.u64 {d2, d3}, [d1+16]; mov.b64 {r4, r5}, d2; st.shared.v2.u32 [r8], {r4, r5};",
    "labeled statements": "U$: add.u32 r1, r1, 1; U$_b: st.global.u32 [d1], r1;",
    "large local arrays": "{ .local .align 16 .b8 s[4096]; mov.u32 r4, s; st.local.u32 [r4], r1; }",
    "votes": "vote.sync.ballot.b32 r4, p, -1; vote.sync.any.pred p, p, -1; activemask.b32 r5;",
    "tables of each jump": (
        "T$: .branchtargets A$, B$, C$; brx.idx r3, T$; A$: xor.b32 r1, r1, 3; B$: mul.lo.u32 r1, r1, 5; "
        "C$: and.b32 r3, r1, 1;"
    ),
    "local indices": (
        "{ .local .align 4 .b8 s[1024]; mov.u32 r4, s; and.b32 r5, r1, 1020; add.u32 r5, r4, r5; "
        "st.local.u32 [r5], r1; ld.local.u32 r1, [r5]; }"
    ),
    "alternating barriers": (
        "setp.lt.u32 p, r1, 32; @p bra A$; bar.arrive 1, 64; bar.sync 2, 64; bra B$; "
        "A$: bar.sync 1, 64; bar.arrive 2, 64; B$: bar.sync 0; add.u32 r1, r1, 1;"
    ),
    "loops of barriers": (
        "mov.u32 r4, 0; V$: mov.u32 r5, 0; W$: bar.sync 0; add.u32 r5, r5, 1; setp.lt.u32 p, r5, 3; @p bra W$; "
        "add.u32 r4, r4, 1; setp.lt.u32 p, r4, r2; @p bra V$;"
    ),
    "exits in loops": (
        "V$: add.u32 r1, r1, 1; setp.eq.u32 p, r1, $; @p exit; setp.lt.u32 p, r1, $; @p bra V$; bar.sync 0;"
    ),
    "divisions of doubles": "rcp.rn.f64 d5, d5; sqrt.rn.f64 d6, d5; div.rn.f64 d7, d6, d5; rsqrt.approx.f64 d5, d7;",
    "pairs of predicates": "setp.lt.and.u32 p|pp, r1, $, !pp; selp.b32 r1, r1, r2, pp;",
    "inlined locations": ".loc 1 3 1, function_name $L, inlined_at 1 2 1\nadd.u32 r1, r1, 1;",
}
"""Statements that shapes repeat, by their names; ``$`` is the number of the turn."""


SHAPES: dict[str, Shape] = {
    "call tree": (lambda n: _tree(n, 2)),
    "call chain": (lambda n: _tree(n, 1)),
    "calls": (lambda n: _calls(n, 10)),
    "long calls": (lambda n: _calls(n, 290)),
    "cyclic calls": (_cycle),
    "exits": (
        lambda n: _kernel(
            ["L: add.u32 r2, r2, 1;"]
            + [f"setp.eq.u32 p, r1, {i + 99}; @p bra X{i % 400}; add.u32 r1, r1, r2;" for i in range(n)]
            + ["setp.lt.u32 p, r2, 9; @p bra L; bra END;"]
            + [f"X{i}: add.u32 r1, r1, {i}; bra END;" for i in range(min(n, 400))]
            + ["END:"]
        )
    ),
    "loop heads": (lambda n: _kernel(f"L{i}: setp.gt.u32 p, r1, {i + 99}; @p bra L{i};" for i in range(n))),
    "loop nest": (
        lambda n: _kernel(
            [f"L{i}:" for i in range(n)]
            + ["add.u32 r1, r1, 1;"]
            + [f"setp.gt.u32 p, r1, {i + 9999}; @p bra L{i};" for i in reversed(range(n))]
        )
    ),
    "nested loops": (
        lambda n: _kernel(
            [f"L{i}: add.u32 r1, r1, 1;" for i in range(n)]
            + [f"setp.gt.u32 p, r1, {i + 999999}; @p bra L{i};" for i in reversed(range(n))]
        )
    ),
    "nested ifs": (
        lambda n: _kernel(
            [f"setp.lt.u32 p, r1, {i}; @p bra E{i};" for i in range(n)]
            + [f"E{i}: add.u32 r1, r1, 1;" for i in reversed(range(n))]
        )
    ),
    "irreducible": (lambda n: _kernel(_branches(n, "r1", lambda i: i * 7919))),
    "irreducible uniform": (lambda n: _kernel(_branches(n, "r2", lambda i: i * 7919))),
    "diamonds": (lambda n: _kernel(f"setp.eq.u32 p, r1, {i}; @p bra A{i}; add.u32 r1, r1, 1; A{i}:" for i in range(n))),
    "wide switch": (
        lambda n: _kernel(
            [f"T: .branchtargets {', '.join(f'L{i}' for i in range(n))};", "brx.idx r3, T;"]
            + [f"L{i}: add.u32 r1, r1, {i};" for i in range(n)]
        )
    ),
    "undeclared": (lambda n: _kernel(f"add.u32 q{i}, q{i}, 1;" for i in range(n))),
    "wrong types": (lambda n: _kernel(f"add.u32 r1, d1, {i};" for i in range(n))),
    "refused": (lambda n: _kernel(["multimem.ld_reduce.global.add.u32 r1, [d1];"] * n)),
    "registers": (
        lambda n: _kernel(
            [f"ld.global.u32 q{i}, [d1+{i % 64 * 4}]; st.global.u32 [d1], q{i};" for i in range(n)],
            registers=f" .reg .b32 q<{n + 1}>;",
        )
    ),
    "live registers": (_live),
    "barriers": (lambda n: _kernel(f"add.u32 r1, r1, {i}; bar.sync 0; st.global.u32 [d1], r1;" for i in range(n))),
    "locations": (lambda n: _kernel((f".loc 1 {i + 1} 1\nadd.u32 r1, r1, 1;" for i in range(n)), '.file 1 "a.cu"\n')),
    "straight": (lambda n: _kernel(["mul.lo.u32 r1, r1, r2; add.u32 r2, r1, r2;"] * n)),
    "atomics": (lambda n: _kernel(["atom.global.add.u32 r1, [d1], r2;"] * n)),
    "mma": (_mma),
    "kernels": (lambda n: _kernel([], "".join(f".visible .entry e{i}(.param .u64 p) {{ ret; }}\n" for i in range(n)))),
    "functions": (
        lambda n: _kernel((f"call f{i};" for i in range(n)), "".join(f".func f{i}() {{ ret; }}\n" for i in range(n)))
    ),
    "variables": (
        lambda n: _kernel(
            (f"mov.u64 d2, g{i}; st.global.u32 [d2], 1;" for i in range(n)),
            "".join(f".global .u32 g{i};\n" for i in range(n)),
        )
    ),
    "scopes": (lambda n: _kernel(["{ .reg .b32 a; mov.u32 a, 1; }"] * n)),
    "nested scopes": (lambda n: _kernel(["{ .reg .b32 a; mov.u32 a, 1;" * n, "}" * n])),
    "braces": (lambda n: _HEAD + "{" * n),
    "initializer": (lambda n: _kernel([], _values(n))),
    "nested initializer": (lambda n: _kernel([], ".global .u32 g[1] = " + "{" * n + "1" + "}" * n + ";\n")),
    "addresses": (lambda n: _kernel([], f".global .u32 g;\n.global .u64 t[{n}] = {{{', '.join(['g+4'] * n)}}};\n")),
    "long label": (lambda n: _kernel([f"{'L' * n}: add.u32 r1, r1, 1; bra {'L' * n};"])),
    "long names": (lambda n: _kernel([f".reg .b32 {'q' * n}; mov.u32 {'q' * n}, 1;"])),
    "labels": (lambda n: _kernel(f"L{i}:" for i in range(n))),
    "parameters": (
        lambda n: _HEAD + f".visible .entry k({', '.join(f'.param .u32 p{i}' for i in range(n))}) {{ ret; }}\n"
    ),
    "arguments": (
        lambda n: _kernel(
            [f"call f, ({', '.join(['r1'] * n)});"],
            f".func f({', '.join(f'.reg .b32 a{i}' for i in range(n))}) {{ ret; }}\n",
        )
    ),
    "many registers": (lambda n: _kernel(f".reg .b32 q{i};" for i in range(n))),
    "register ranges": (lambda n: _kernel(f".reg .b32 q{i}_<1000000000>;" for i in range(n))),
    "shared variables": (lambda n: _kernel(f".shared .u32 s{i};" for i in range(n))),
    "locals": (lambda n: _kernel(f".local .u32 s{i}; mov.u32 r1, s{i};" for i in range(n))),
    "duplicates": (lambda n: _kernel([], ".global .u32 g;\n" * n)),
    "comments": (lambda n: _kernel(["// nothing\n/* nothing */"] * n)),
    "open comment": (lambda n: _kernel(["/*" * n])),
    "spaces": (lambda n: _kernel([" \t" * n])),
    "one line": (lambda n: _kernel([" add.u32 r1, r1, 1;" * n])),
    "empty statements": (lambda n: _kernel([";" * n])),
    "expression": (lambda n: _kernel([f"mov.u32 r1, {'(' * n}1{')' * n};"])),
    "sum": (lambda n: _kernel([f"mov.u32 r1, {'1+' * n}1;"])),
    "number": (lambda n: _kernel([f"mov.u32 r1, {'7' * n};"])),
    "operands": (lambda n: _kernel([f"add.u32 {', '.join(['r1'] * n)};"])),
    "group": (lambda n: _kernel([f"mov.b64 d1, {{{', '.join(['r1'] * n)}}};"])),
    "modifiers": (lambda n: _kernel(["add" + ".u32" * n + " r1, r1, r1;"])),
    "guards": (lambda n: _kernel(["@p " * n + "ret;"])),
    "garbage": (_written),
    "string": (lambda n: _kernel([f'.pragma "{"x" * n}";'])),
    "pragmas": (lambda n: _kernel(['.pragma "nounroll";'] * n)),
    "files": (lambda n: _kernel([], "".join(f'.file {i} "f{i}.cu"\n' for i in range(1, n)))),
    "sections": (lambda n: _kernel([], ".section .debug_info {\n" + ".b8 1\n" * n + "}\n")),
    "directives": (lambda n: _HEAD + ".visible .entry k() " + ".maxntid 64, 1, 1 " * n + "{ ret; }\n"),
    "tables": (
        lambda n: _kernel(
            [*(f"T{i}: .branchtargets L;" for i in range(n)), *(f"brx.idx r3, T{i};" for i in range(n)), "L:"]
        )
    ),
    "prototypes": (lambda n: _kernel(f"P{i}: .callprototype _ ();" for i in range(n))),
    "aliases": (
        lambda n: (
            _HEAD + ".func f0() { ret; }\n" + "".join(f".func f{i}();\n.alias f{i}, f{i - 1};\n" for i in range(1, n))
        )
    ),
    "declarations": (lambda n: _kernel([], "".join(f".extern .func f{i}();\n" for i in range(n)))),
    "tiny functions": lambda n: _kernel(
        (_call(f"f{i}") for i in range(n)), "".join(_adding(f"f{i}", "add.u32 a, a, 7;") for i in range(n))
    ),
    "uncalled functions": lambda n: _kernel([], "".join(_adding(f"f{i}", "add.u32 a, a, 7;") for i in range(n))),
    "recursive functions": lambda n: _kernel(
        ["call f0;"], "".join(f".func f{i}() {{ call f{i}; ret; }}\n" for i in range(n))
    ),
    "function loops": lambda n: _kernel(
        (_call(f"f{i}") for i in range(n)),
        "".join(_adding(f"f{i}", "L: add.u32 a, a, 1; setp.lt.u32 q, a, 3; @q bra L;") for i in range(n)),
    ),
    "guarded calls": lambda n: _kernel(["@p call f;"] * n, ".func f() { .reg .b32 a; mov.u32 a, 1; ret; }\n"),
    "calls by address": lambda n: _kernel(
        [*(f"F{i}: .callprototype _ ();" for i in range(n)), *(f"mov.u64 d2, f; call d2, F{i};" for i in range(n))],
        ".func f() { ret; }\n",
    ),
    "arguments in memory": lambda n: _kernel(
        [f"{{ .param .b8 x[{4 * n}];", *(f"st.param.b32 [x+{4 * i}], r1;" for i in range(n)), "call f, (x); }"],
        f".func f(.param .b8 x[{4 * n}]) {{ ret; }}\n",
    ),
    "uniform ladder": lambda n: _kernel(
        [f"setp.eq.u32 p, r2, {i}; @p bra.uni U{i};" for i in range(n)]
        + [f"U{i}: add.u32 r1, r1, 1;" for i in range(n)]
    ),
    "predicates": lambda n: _kernel(
        (f"setp.lt.u32 q{i}, r1, {i}; and.pred q{i}, q{i}, q{i - 1}; or.pred p, p, q{i};" for i in range(1, n)),
        registers=f" .reg .pred q<{n + 1}>;",
    ),
    "jumps to all": lambda n: _jumps_to_all(n, "r3"),
    "uniform jumps to all": lambda n: _jumps_to_all(n, "r2"),
    "interpreter": lambda n: _kernel(
        [f"T: .branchtargets {', '.join(f'L{i}' for i in range(n))};", "LOOP: and.b32 r3, r3, 63; brx.idx r3, T;"]
        + [f"L{i}: xor.b32 r1, r1, {i}; setp.gt.u32 p, r1, 77777; @p bra DONE; bra LOOP;" for i in range(n)]
        + ["DONE:"]
    ),
    "reversed": lambda n: _reversed(n, "add.u32 r1, r1, 3;"),
    "reversed exits": lambda n: _reversed(n, "setp.eq.u32 p, r1, 77; @p bra END;"),
    "early ends": lambda n: _kernel(
        [*(f"setp.eq.u32 p, r1, {i + 999}; @p bra END; add.u32 r1, r1, r2;" for i in range(n)), "END:"]
    ),
    "bytes": lambda n: _kernel([], f".global .b8 g[{n}] = {{{', '.join(str(i % 256) for i in range(n))}}};\n"),
    "doubles of constants": lambda n: _kernel(
        [], f".global .f64 g[{n}] = {{{', '.join(['0d3FF0000000000000'] * n)}}};\n"
    ),
    "shared tables": _shared_tables,
    "kernels that call by address": _by_address,
    "kernels that call": _callers,
    "functions by address": lambda n: _kernel(
        [
            "P: .callprototype (.param .b32 z) _ (.param .b32 x);",
            *(
                f"{{ .param .b32 x; .param .b32 z; mov.u64 d2, h{i}; st.param.b32 [x], r1; call (z), d2, (x), P; }}"
                for i in range(n)
            ),
        ],
        "".join(_adding(f"h{i}", "add.u32 a, a, 7;") for i in range(n)),
    ),
    "joins": _joins,
    "nests": _nests,
    "arrays through calls": _through_arrays,
    "locations of files": _locations,
    "parameters that are read": lambda n: (
        f"{_HEAD}.visible .entry k({', '.join(f'.param .u32 p{i}' for i in range(n))}) {{ .reg .b32 r<3>; .reg .b64 d; "
        + "".join(f"ld.param.u32 r1, [p{i}]; add.u32 r2, r2, r1; " for i in range(n))
        + "cvt.u64.u32 d, r2; st.global.u32 [d], r2; ret; }\n"
    ),
    "tables of addresses": lambda n: _kernel(
        (f"mov.u64 d2, g{i}; ld.global.u64 d3, [d2];" for i in range(n)),
        ".global .u64 g0;\n" + "".join(f".global .u64 g{i}[2] = {{g{i - 1}, g{i // 2}+8}};\n" for i in range(1, n)),
    ),
    "mangled names": lambda n: _kernel(
        (_call(f"_ZN{i}{'3abc' * 100}E") for i in range(n)),
        "".join(_adding(f"_ZN{i}{'3abc' * 100}E", "add.u32 a, a, 7;") for i in range(n)),
    ),
    "loop body": lambda n: _kernel(
        [
            "L: add.u32 r4, r4, 1;",
            *(f"ld.global.f32 f1, [d1+{4 * (i % 512)}]; fma.rn.f32 q{i % 64}, f1, f2, q{i % 64};" for i in range(n)),
            "setp.lt.u32 p, r4, 9; @p bra L;",
            *(f"st.global.f32 [d1+{4 * k}], q{k};" for k in range(64)),
        ],
        registers=" .reg .f32 q<64>;",
    ),
    "choices of calls": _choices_of_calls,
    "scopes inside each other": _scopes,
    "structures": _structures,
    "uniform loops eight deep": lambda n: _deep_loops(n, "r2"),
    "loops eight deep": lambda n: _deep_loops(n, "r1"),
    "calls by table": _by_table,
    "frames": _frames,
    "states": _states,
    "constants": lambda n: _kernel(
        (f"ld.const.u32 r4, [c{i}+4]; add.u32 r1, r1, r4;" for i in range(n)),
        "".join(f".const .align 4 .b32 c{i}[4] = {{{i}, 2, 3, 4}};\n" for i in range(n)),
    ),
    "texture references": lambda n: _kernel(
        (f"tex.2d.v4.f32.f32 {{f1, f2, f3, f4}}, [t{i}, {{f5, f6}}];" for i in range(n)),
        "".join(f".global .texref t{i};\n" for i in range(n)),
    ),
    "mixed block": lambda n: _kernel(
        (f"{_KINDS[i % 6]} q{i * 7 % 64}, q{i * 11 % 64}, q{i * 13 % 64};" for i in range(n)),
        registers=" .reg .b32 q<64>;",
    ),
    "kernels with barriers": lambda n: _kernel(
        [],
        "".join(
            f".visible .entry e{i}(.param .u64 p) {{ .reg .b32 a; .reg .b64 d; .reg .pred q; .shared .u32 s; "
            f"ld.param.u64 d, [p]; mov.u32 a, %tid.x; setp.gt.u32 q, a, {i}; @q bra E; st.shared.u32 [s], a; "
            "E: bar.sync 0; ld.shared.u32 a, [s]; st.global.u32 [d], a; ret; }\n"
            for i in range(n)
        ),
    ),
    "parameters by address": lambda n: (
        f"{_HEAD}.visible .entry k(.param .align 16 .b8 s[4000]) {{ .reg .b32 r<3>; .reg .b64 d<4>; "
        "mov.u32 r2, %tid.x; mov.b64 d1, s; "
        + "and.b32 r1, r2, 1020; cvt.u64.u32 d2, r1; add.u64 d2, d2, d1; ld.param.b32 r2, [d2]; " * n
        + "cvt.u64.u32 d1, r2; st.global.u32 [d1], r2; ret; }\n"
    ),
    "predicates that live": lambda n: _kernel(
        [
            *(f"setp.lt.u32 q{i}, r1, {i};" for i in range(n)),
            "bar.sync 0;",
            *(f"@q{i} add.u32 r1, r1, {i};" for i in range(n)),
        ],
        registers=f" .reg .pred q<{n + 1}>;",
    ),
    "several results": lambda n: _kernel(
        ["call (r1, r2, r3), f, (r3, r1, r2);"] * n,
        ".func (.reg .b32 x, .reg .b32 y, .reg .b32 z) f(.reg .b32 a, .reg .b32 b, .reg .b32 c) "
        "{ add.u32 x, a, b; xor.b32 y, b, c; sub.u32 z, c, a; ret; }\n",
    ),
    "long comment": lambda n: _kernel(["/*" + "*x /*" * n + "*/"]),
    **{name: functools.partial(_repeated, statement) for name, statement in _REPEATED.items()},
}
"""What writes each shape for a count."""


def sized(name: str, size: int) -> str:
    """Write a shape of about so many characters."""
    shape, count = SHAPES[name], 8
    while len(shape(2 * count)) < size and count < size:
        count *= 2
    return shape(max(count * size // len(shape(count)), 1))
