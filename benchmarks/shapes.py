"""How load and first launch on the CPU device grow with the text, shape by shape: ``shapes.py [NAME [COUNT]]``.

``shapes.py --load BYTES`` loads a text of that size of every shape under limits, and fails if one misses them.

Each shape repeats one construct. It is loaded and compiled in several counts, each in a process of its own, without the
cache: CPU seconds of ``load`` and of the first launch, the most memory, and how the seconds grow. If they are
``bytes ** exponent``, fitted to the logarithms, an exponent of 1 tells that they are linear in the text. A shape that
an assembler refuses may be refused as well: then the seconds are those until the error.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable

import numpy as np

import cujit

__all__ = ["SHAPES", "Shape", "measured"]

LIMIT_S = 120
"""CPU seconds after which a shape is given up."""

LOAD_S, LOAD_BYTES = 10, 1 << 30
"""CPU seconds and bytes of memory in which a megabyte of any text is loaded or refused."""

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


SHAPES: dict[str, tuple[Shape, int]] = {
    "call tree": (lambda n: _tree(n, 2), 16),
    "call chain": (lambda n: _tree(n, 1), 200),
    "calls": (lambda n: _calls(n, 10), 400),
    "long calls": (lambda n: _calls(n, 290), 50),
    "cyclic calls": (_cycle, 200),
    "exits": (
        lambda n: _kernel(
            ["L: add.u32 r2, r2, 1;"]
            + [f"setp.eq.u32 p, r1, {i + 99}; @p bra X{i % 400}; add.u32 r1, r1, r2;" for i in range(n)]
            + ["setp.lt.u32 p, r2, 9; @p bra L; bra END;"]
            + [f"X{i}: add.u32 r1, r1, {i}; bra END;" for i in range(min(n, 400))]
            + ["END:"]
        ),
        100,
    ),
    "loop heads": (
        lambda n: _kernel(f"L{i}: setp.gt.u32 p, r1, {i + 99}; @p bra L{i};" for i in range(n)),
        200,
    ),
    "loop nest": (
        lambda n: _kernel(
            [f"L{i}:" for i in range(n)]
            + ["add.u32 r1, r1, 1;"]
            + [f"setp.gt.u32 p, r1, {i + 9999}; @p bra L{i};" for i in reversed(range(n))]
        ),
        100,
    ),
    "nested loops": (
        lambda n: _kernel(
            [f"L{i}: add.u32 r1, r1, 1;" for i in range(n)]
            + [f"setp.gt.u32 p, r1, {i + 999999}; @p bra L{i};" for i in reversed(range(n))]
        ),
        50,
    ),
    "nested ifs": (
        lambda n: _kernel(
            [f"setp.lt.u32 p, r1, {i}; @p bra E{i};" for i in range(n)]
            + [f"E{i}: add.u32 r1, r1, 1;" for i in reversed(range(n))]
        ),
        100,
    ),
    "irreducible": (lambda n: _kernel(_branches(n, "r1", lambda i: i * 7919)), 100),
    "irreducible uniform": (lambda n: _kernel(_branches(n, "r2", lambda i: i * 7919)), 200),
    "diamonds": (
        lambda n: _kernel(f"setp.eq.u32 p, r1, {i}; @p bra A{i}; add.u32 r1, r1, 1; A{i}:" for i in range(n)),
        200,
    ),
    "wide switch": (
        lambda n: _kernel(
            [f"T: .branchtargets {', '.join(f'L{i}' for i in range(n))};", "brx.idx r3, T;"]
            + [f"L{i}: add.u32 r1, r1, {i};" for i in range(n)]
        ),
        200,
    ),
    "undeclared": (lambda n: _kernel(f"add.u32 q{i}, q{i}, 1;" for i in range(n)), 1000),
    "wrong types": (lambda n: _kernel(f"add.u32 r1, d1, {i};" for i in range(n)), 1000),
    "refused": (lambda n: _kernel(["multimem.ld_reduce.global.add.u32 r1, [d1];"] * n), 1000),
    "constant memory": (lambda n: _kernel([], f".const .b8 g[{n}];\n"), 1_000_000_000),
    "global memory": (lambda n: _kernel([], f".global .b8 g[{n}];\n"), 1_000_000_000),
    "registers": (
        lambda n: _kernel(
            [f"ld.global.u32 q{i}, [d1+{i % 64 * 4}]; st.global.u32 [d1], q{i};" for i in range(n)],
            registers=f" .reg .b32 q<{n + 1}>;",
        ),
        400,
    ),
    "live registers": (_live, 200),
    "barriers": (
        lambda n: _kernel(f"add.u32 r1, r1, {i}; bar.sync 0; st.global.u32 [d1], r1;" for i in range(n)),
        50,
    ),
    "locations": (
        lambda n: _kernel((f".loc 1 {i + 1} 1\nadd.u32 r1, r1, 1;" for i in range(n)), '.file 1 "a.cu"\n'),
        1000,
    ),
    "straight": (lambda n: _kernel(["mul.lo.u32 r1, r1, r2; add.u32 r2, r1, r2;"] * n), 400),
    "atomics": (lambda n: _kernel(["atom.global.add.u32 r1, [d1], r2;"] * n), 200),
    "mma": (_mma, 16),
    "kernels": (
        lambda n: _kernel([], "".join(f".visible .entry e{i}(.param .u64 p) {{ ret; }}\n" for i in range(n))),
        500,
    ),
    "functions": (
        lambda n: _kernel((f"call f{i};" for i in range(n)), "".join(f".func f{i}() {{ ret; }}\n" for i in range(n))),
        400,
    ),
    "variables": (
        lambda n: _kernel(
            (f"mov.u64 d2, g{i}; st.global.u32 [d2], 1;" for i in range(n)),
            "".join(f".global .u32 g{i};\n" for i in range(n)),
        ),
        400,
    ),
    "scopes": (lambda n: _kernel(["{ .reg .b32 a; mov.u32 a, 1; }"] * n), 500),
    "nested scopes": (lambda n: _kernel(["{ .reg .b32 a; mov.u32 a, 1;" * n, "}" * n]), 50),
    "braces": (lambda n: _HEAD + "{" * n, 5000),
    "initializer": (lambda n: _kernel([], _values(n)), 1000),
    "nested initializer": (lambda n: _kernel([], ".global .u32 g[1] = " + "{" * n + "1" + "}" * n + ";\n"), 1000),
    "addresses": (
        lambda n: _kernel([], f".global .u32 g;\n.global .u64 t[{n}] = {{{', '.join(['g+4'] * n)}}};\n"),
        1000,
    ),
    "long label": (lambda n: _kernel([f"{'L' * n}: add.u32 r1, r1, 1; bra {'L' * n};"]), 1000),
    "long names": (lambda n: _kernel([f".reg .b32 {'q' * n}; mov.u32 {'q' * n}, 1;"]), 1000),
    "labels": (lambda n: _kernel(f"L{i}:" for i in range(n)), 1000),
    "parameters": (
        lambda n: _HEAD + f".visible .entry k({', '.join(f'.param .u32 p{i}' for i in range(n))}) {{ ret; }}\n",
        500,
    ),
    "arguments": (
        lambda n: _kernel(
            [f"call f, ({', '.join(['r1'] * n)});"],
            f".func f({', '.join(f'.reg .b32 a{i}' for i in range(n))}) {{ ret; }}\n",
        ),
        500,
    ),
    "many registers": (lambda n: _kernel(f".reg .b32 q{i};" for i in range(n)), 1000),
    "register ranges": (lambda n: _kernel(f".reg .b32 q{i}_<1000000000>;" for i in range(n)), 1000),
    "shared variables": (lambda n: _kernel(f".shared .u32 s{i};" for i in range(n)), 500),
    "locals": (lambda n: _kernel(f".local .u32 s{i}; mov.u32 r1, s{i};" for i in range(n)), 500),
    "duplicates": (lambda n: _kernel([], ".global .u32 g;\n" * n), 1000),
    "comments": (lambda n: _kernel(["// nothing\n/* nothing */"] * n), 1000),
    "open comment": (lambda n: _kernel(["/*" * n]), 1000),
    "spaces": (lambda n: _kernel([" \t" * n]), 5000),
    "one line": (lambda n: _kernel([" add.u32 r1, r1, 1;" * n]), 1000),
    "empty statements": (lambda n: _kernel([";" * n]), 1000),
    "expression": (lambda n: _kernel([f"mov.u32 r1, {'(' * n}1{')' * n};"]), 1000),
    "sum": (lambda n: _kernel([f"mov.u32 r1, {'1+' * n}1;"]), 1000),
    "number": (lambda n: _kernel([f"mov.u32 r1, {'7' * n};"]), 1000),
    "operands": (lambda n: _kernel([f"add.u32 {', '.join(['r1'] * n)};"]), 1000),
    "group": (lambda n: _kernel([f"mov.b64 d1, {{{', '.join(['r1'] * n)}}};"]), 1000),
    "modifiers": (lambda n: _kernel(["add" + ".u32" * n + " r1, r1, r1;"]), 1000),
    "guards": (lambda n: _kernel(["@p " * n + "ret;"]), 1000),
    "garbage": (_written, 1000),
    "string": (lambda n: _kernel([f'.pragma "{"x" * n}";']), 1000),
    "pragmas": (lambda n: _kernel(['.pragma "nounroll";'] * n), 1000),
    "files": (lambda n: _kernel([], "".join(f'.file {i} "f{i}.cu"\n' for i in range(1, n))), 1000),
    "sections": (lambda n: _kernel([], ".section .debug_info {\n" + ".b8 1\n" * n + "}\n"), 1000),
    "directives": (lambda n: _HEAD + ".visible .entry k() " + ".maxntid 64, 1, 1 " * n + "{ ret; }\n", 500),
    "tables": (
        lambda n: _kernel(
            [*(f"T{i}: .branchtargets L;" for i in range(n)), *(f"brx.idx r3, T{i};" for i in range(n)), "L:"]
        ),
        300,
    ),
    "prototypes": (lambda n: _kernel(f"P{i}: .callprototype _ ();" for i in range(n)), 500),
    "aliases": (
        lambda n: (
            _HEAD + ".func f0() { ret; }\n" + "".join(f".func f{i}();\n.alias f{i}, f{i - 1};\n" for i in range(1, n))
        ),
        300,
    ),
    "declarations": (lambda n: _kernel([], "".join(f".extern .func f{i}();\n" for i in range(n))), 1000),
}
"""What writes each shape for a count, and the least count; larger ones are twice and four times that."""


def measured(name: str, count: int) -> tuple[int, float, float, int, str]:
    """Return bytes of text, CPU seconds of load and launch, MB of memory at most, and the error's class or ``ok``."""
    text = SHAPES[name][0](count)
    device = cujit.cpu()
    data = device.zeros(1 << 16, "u1")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome, begin = "ok", time.process_time()
    loaded = begin
    try:
        kernel = cujit.load(text, device)["k"]
        loaded = time.process_time()
        kernel.prepare(1, 64)(data) if "constant" not in name else None
    except cujit.errors.CujitError as e:
        outcome = type(e).__name__
    end = time.process_time()
    loaded = loaded if loaded > begin else end
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    return len(text), loaded - begin, end - loaded, peak, outcome


def _apart(name: str, count: int) -> tuple[int, float] | None:
    """Measure a shape in a process of its own, print that, and return its bytes and seconds."""
    try:
        done = subprocess.run(
            [sys.executable, __file__, name, str(count)], stdout=subprocess.PIPE, text=True, check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S)),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        done = None
    if done is None or done.returncode:
        print(f"{name:20} {count:7} not done in {LIMIT_S} s of CPU", flush=True)
        return None
    print(done.stdout, end="", flush=True)
    words = done.stdout.removeprefix(name).split()
    return int(words[1]), float(words[3]) + float(words[6])


def sized(name: str, size: int) -> str:
    """Write a shape of about so many characters."""
    shape, count = SHAPES[name][0], 8
    while len(shape(2 * count)) < size and count < size:
        count *= 2
    return shape(max(count * size // len(shape(count)), 1))


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (LOAD_S, LOAD_S))
    resource.setrlimit(resource.RLIMIT_DATA, (LOAD_BYTES, LOAD_BYTES))


def sweep(size: int) -> list[str]:
    """Load every shape at that size in a process of its own, and name those that miss ``LOAD_S`` or ``LOAD_BYTES``."""
    missed = []
    for name in SHAPES:
        if "memory" in name:  # which are one line, whatever their size
            continue
        done = subprocess.run(
            [sys.executable, __file__, "--load", name, str(size)], stdout=subprocess.PIPE, text=True, check=False,
            preexec_fn=_limit,
        )  # fmt: skip
        print(done.stdout.strip() or f"{name:20} ended by {done.returncode}", flush=True)
        if done.returncode:
            missed.append(name)
    return missed


def load_one(name: str, size: int) -> None:
    """Load one shape, or have it refused by an error of cujit's, and print what that took."""
    text, device, outcome = sized(name, size), cujit.cpu(1), "ok"
    begin = time.process_time()
    try:
        cujit.load(text, device)
    except cujit.errors.CujitError as e:
        outcome = type(e).__name__
    seconds, peak = time.process_time() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{name:20} {len(text):8} bytes {seconds:7.2f} s load {peak:6} MB  {outcome}")


def main() -> None:
    """Measure every shape in processes of their own, one of them, or one count in this one."""
    os.environ["CUJIT_CACHE"] = "0"
    if sys.argv[1:2] == ["--load"]:
        if len(sys.argv) > 3:
            load_one(sys.argv[2], int(sys.argv[3]))
        else:
            sys.exit(f"missed: {', '.join(missed)}" if (missed := sweep(int(sys.argv[2]))) else 0)
        return
    if len(sys.argv) > 2:
        name, count = sys.argv[1], int(sys.argv[2])
        size, load, launch, peak, outcome = measured(name, count)
        print(f"{name:20} {count:7} {size:8} bytes {load:7.2f} s load {launch:7.2f} s launch {peak:6} MB  {outcome}")
        return
    for name, (_, least) in SHAPES.items():
        if sys.argv[1:] in ([], [name]):
            found = [each for times in (1, 2, 4) if (each := _apart(name, least * times)) is not None]
            if len(found) > 1:
                sizes, seconds = zip(*found, strict=True)
                exponent = np.polyfit(np.log(sizes), np.log(seconds), 1)[0] if sizes[0] < sizes[-1] * 0.9 else 0
                print(f"{name:20} seconds grow as bytes ** {exponent:.2f}", flush=True)


if __name__ == "__main__":
    main()
