"""Random CUDA C++ programs, and an oracle: a slow interpreter of theirs, lane by lane, that knows nothing of cujit.

A program is a tree: ``Program(seed).source`` writes it as C++, ``run`` interprets it. It has nested branches with warp
functions under partial masks, loops, switches, calls, local arrays, shared memory between barriers, integers of 32 and
64 bits, floats, and atomics whose order does not matter. ``Program(seed, more=True)`` has half, bf16, double and
recursion, too.

A change of what a seed gives needs the programs recorded again (``tests/goldens/programs.json``).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from property.exact import FORMATS, Number, add, divide, fma, multiply, read, smaller, square_root

__all__ = ["BLOCK", "GRID", "WORDS", "Program", "inputs"]

BLOCK, GRID, WORDS, COUNTERS = 64, 2, 4, 8
"""Threads of a block, blocks, words that each thread writes, and counters behind these."""
M32, M64 = (1 << 32) - 1, (1 << 64) - 1
NAN = 0x7FFFFFFF
Tree = tuple[Any, ...]
Lane = dict[str, Any]


def inputs() -> np.ndarray[Any, Any]:
    """64 words of every kind: small, large, floats near 1, infinities and NaNs."""
    rng = np.random.default_rng(3)
    words = rng.integers(0, 1 << 32, 64, dtype=np.uint64)
    words[:16] &= np.uint64(0xFF)
    words[16:40] = (rng.standard_normal(24) * 2.0 ** rng.integers(-6, 7, 24)).astype(np.float32).view(np.uint32)
    words[40:46] = [0x7F800000, 0xFF800000, 0x80000000, 1, 0x7F7FFFFF, 0x00800000]
    return words.astype(np.uint32)


# -- what operations do ------------------------------------------------------------------------------------


def _signed(x: int) -> int:
    return x - (1 << 32) if x >> 31 else x


def _float(bits: int) -> np.float32:
    return np.uint32(bits).view(np.float32)


def _bits(value: Any) -> int:
    x = np.float32(value)
    return NAN if np.isnan(x) else int(x.view(np.uint32))


def _exactly(kind: str, do: Callable[..., Number]) -> Callable[..., int]:
    """Compute exactly with values of a format, and round once."""
    return lambda *bits: FORMATS[kind].write(do(*(read(each, FORMATS[kind]) for each in bits)))


def _between(source: str, to: str) -> Callable[[int], int]:
    """Round from one format to another."""
    return lambda bits: FORMATS[to].write(read(bits, FORMATS[source]))


def _smaller(a: int, b: int, sign: int) -> int:
    x, y = _float(a), _float(b)
    if np.isnan(x) or np.isnan(y):
        return NAN if np.isnan(x) and np.isnan(y) else b if np.isnan(x) else a
    if x == y:
        return a | b if sign > 0 else a & b
    return a if (x < y) == (sign > 0) else b


def _to_unsigned(a: int) -> int:
    x = float(_float(a))
    return 0 if np.isnan(x) or x <= 0 else M32 if x >= 2**32 else int(x)


def _permuted(a: int, b: int, s: int) -> int:
    both = a | b << 32
    return sum(((both >> 8 * (s >> 4 * k & 7)) & 0xFF) << 8 * k for k in range(4))


def _divided(a: int, b: int, *, rest: bool) -> int:
    x, y = _signed(a | 1), b & 255 | 1
    quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
    return (x - y * quotient if rest else quotient) & M32


# name: (how C++ writes it, what it does); u is unsigned, l unsigned long long, f float. Types: result, sources.
OPS: dict[str, tuple[str, str, Callable[..., int]]] = {
    "add": ("u:uu", "({0} + {1})", lambda a, b: a + b & M32),
    "sub": ("u:uu", "({0} - {1})", lambda a, b: a - b & M32),
    "mul": ("u:uu", "({0} * {1})", lambda a, b: a * b & M32),
    "and": ("u:uu", "({0} & {1})", lambda a, b: a & b),
    "or": ("u:uu", "({0} | {1})", lambda a, b: a | b),
    "xor": ("u:uu", "({0} ^ {1})", lambda a, b: a ^ b),
    "shl": ("u:uu", "({0} << ({1} & 31))", lambda a, b: a << (b & 31) & M32),
    "shr": ("u:uu", "({0} >> ({1} & 31))", lambda a, b: a >> (b & 31)),
    "sar": ("u:uu", "(unsigned)((int){0} >> ({1} & 31))", lambda a, b: (_signed(a) >> (b & 31)) & M32),
    "div": ("u:uu", "({0} / ({1} | 1))", lambda a, b: a // (b | 1)),
    "rem": ("u:uu", "({0} % ({1} | 1))", lambda a, b: a % (b | 1)),
    "sdiv": ("u:uu", "(unsigned)((int)({0} | 1) / (int)({1} & 0xff | 1))", lambda a, b: _divided(a, b, rest=False)),
    "srem": ("u:uu", "(unsigned)((int)({0} | 1) % (int)({1} & 0xff | 1))", lambda a, b: _divided(a, b, rest=True)),
    "min": ("u:uu", "min({0}, {1})", min),
    "smax": ("u:uu", "(unsigned)max((int){0}, (int){1})", lambda a, b: max(_signed(a), _signed(b)) & M32),
    "popc": ("u:u", "(unsigned)__popc({0})", lambda a: bin(a).count("1")),
    "clz": ("u:u", "(unsigned)__clz({0})", lambda a: 32 - a.bit_length()),
    "brev": ("u:u", "__brev({0})", lambda a: int(f"{a:032b}"[::-1], 2)),
    "mulhi": ("u:uu", "__umulhi({0}, {1})", lambda a, b: a * b >> 32),
    "smulhi": ("u:uu", "(unsigned)__mulhi((int){0}, (int){1})", lambda a, b: (_signed(a) * _signed(b) >> 32) & M32),
    "perm": ("u:uuu", "__byte_perm({0}, {1}, {2} & 0x7777)", lambda a, b, s: _permuted(a, b, s & 0x7777)),
    "funnel": ("u:uuu", "__funnelshift_l({0}, {1}, {2})", lambda a, b, s: ((b << 32 | a) << (s & 31) >> 32) & M32),
    "byte": ("u:u", "(unsigned)(int)(signed char){0}", lambda a: ((a & 255) - (256 if a & 128 else 0)) & M32),
    "short": ("u:u", "(unsigned)(unsigned short){0}", lambda a: a & 0xFFFF),
    "low": ("u:l", "(unsigned){0}", lambda a: a & M32),
    "high": ("u:l", "(unsigned)({0} >> 32)", lambda a: a >> 32),
    "wide": ("l:uu", "((unsigned long long){0} << 32 | {1})", lambda a, b: a << 32 | b),
    "widen": ("l:uu", "((unsigned long long){0} * {1})", lambda a, b: a * b),
    "ladd": ("l:ll", "({0} + {1})", lambda a, b: a + b & M64),
    "lsub": ("l:ll", "({0} - {1})", lambda a, b: a - b & M64),
    "lmul": ("l:ll", "({0} * {1})", lambda a, b: a * b & M64),
    "lmulhi": ("l:ll", "__umul64hi({0}, {1})", lambda a, b: a * b >> 64),
    "lshr": ("l:lu", "({0} >> ({1} & 63))", lambda a, b: a >> (b & 63)),
    "lshl": ("l:lu", "({0} << ({1} & 63))", lambda a, b: a << (b & 63) & M64),
    "lxor": ("l:ll", "({0} ^ {1})", lambda a, b: a ^ b),
    "ldiv": ("l:ll", "({0} / ({1} | 1))", lambda a, b: a // (b | 1)),
    "fadd": ("f:ff", "({0} + {1})", lambda a, b: _bits(_float(a) + _float(b))),
    "fsub": ("f:ff", "({0} - {1})", lambda a, b: _bits(_float(a) - _float(b))),
    "fmul": ("f:ff", "({0} * {1})", lambda a, b: _bits(_float(a) * _float(b))),
    "fdiv": ("f:ff", "({0} / {1})", lambda a, b: _bits(_float(a) / _float(b))),
    "fma": ("f:fff", "fmaf({0}, {1}, {2})", _exactly("f32", fma)),
    "fsqrt": ("f:f", "sqrtf({0})", lambda a: _bits(np.sqrt(_float(a)))),
    "fmin": ("f:ff", "fminf({0}, {1})", lambda a, b: _smaller(a, b, 1)),
    "fmax": ("f:ff", "fmaxf({0}, {1})", lambda a, b: _smaller(a, b, -1)),
    "tofloat": ("f:u", "(float){0}", lambda a: _bits(np.float64(a))),
    "stofloat": ("f:u", "(float)(int){0}", lambda a: _bits(np.float64(_signed(a)))),
    "touint": ("u:f", "__float2uint_rz({0})", _to_unsigned),
    "asuint": ("u:f", "__float_as_uint({0})", lambda a: a),
}  # fmt: skip
_HALVES = {"h": ("f16", "half"), "b": ("bf16", "bfloat16")}
MORE_OPS: dict[str, tuple[str, str, Callable[..., int]]] = {
    "dadd": ("d:dd", "({0} + {1})", _exactly("f64", add)),
    "dmul": ("d:dd", "({0} * {1})", _exactly("f64", multiply)),
    "ddiv": ("d:dd", "({0} / {1})", _exactly("f64", divide)),
    "dfma": ("d:ddd", "fma({0}, {1}, {2})", _exactly("f64", fma)),
    "dsqrt": ("d:d", "sqrt({0})", _exactly("f64", square_root)),
    "dmin": ("d:dd", "fmin({0}, {1})", _exactly("f64", lambda x, y: smaller(x, y, min))),
    "todouble": ("d:f", "(double){0}", _between("f32", "f64")),
    "udouble": ("d:u", "(double){0}", lambda a: FORMATS["f64"].write(Fraction(a) or 0.0)),
    "narrow": ("f:d", "narrow({0})", _between("f64", "f32")),
    "dbits": ("l:d", "bits_of({0})", lambda a: FORMATS["f64"].write(read(a, FORMATS["f64"]))),
}
for _kind, (_format, _name) in _HALVES.items():
    MORE_OPS |= {
        f"{_kind}add": (f"{_kind}:{_kind * 2}", "__hadd({0}, {1})", _exactly(_format, add)),
        f"{_kind}mul": (f"{_kind}:{_kind * 2}", "__hmul({0}, {1})", _exactly(_format, multiply)),
        f"{_kind}fma": (f"{_kind}:{_kind * 3}", "__hfma({0}, {1}, {2})", _exactly(_format, fma)),
        f"{_kind}max": (f"{_kind}:{_kind * 2}", "__hmax({0}, {1})", _exactly(_format, lambda x, y: smaller(x, y, max))),
        f"{_kind}of": (f"{_kind}:f", f"__float2{_name}_rn({{0}})", _between("f32", _format)),
        f"{_kind}bits": (f"u:{_kind}", f"(unsigned)__{_name}_as_ushort({{0}})", lambda a: a),
        f"as{_kind}": (f"{_kind}:u", f"__ushort_as_{_name}((unsigned short){{0}})", lambda a: a & 0xFFFF),
    }
MORE_OPS["fromh"] = ("f:h", "__half2float({0})", _between("f16", "f32"))
MORE_OPS["fromb"] = ("f:b", "__bfloat162float({0})", lambda a: a << 16)
CONDITIONS: dict[str, tuple[str, str, Callable[..., bool]]] = {
    "lt": ("uu", "({0} < {1})", lambda a, b: a < b),
    "slt": ("uu", "((int){0} < (int){1})", lambda a, b: _signed(a) < _signed(b)),
    "eq": ("uu", "(({0} & 3) == ({1} & 3))", lambda a, b: a & 3 == b & 3),
    "bit": ("uu", "({0} >> ({1} & 31) & 1)", lambda a, b: bool(a >> (b & 31) & 1)),
    "llt": ("ll", "({0} < {1})", lambda a, b: a < b),
    "flt": ("ff", "({0} < {1})", lambda a, b: bool(_float(a) < _float(b))),
    "fge": ("ff", "!({0} < {1})", lambda a, b: not _float(a) < _float(b)),
}
MORE_CONDITIONS: dict[str, tuple[str, str, Callable[..., bool]]] = {
    f"{kind}lt": (kind * 2, text, lambda a, b, f=form: read(a, FORMATS[f]) < read(b, FORMATS[f]))
    for kind, form, text in (
        ("h", "f16", "__hlt({0}, {1})"), ("b", "bf16", "__hlt({0}, {1})"), ("d", "f64", "({0} < {1})"),
    )
}  # fmt: skip
_ALL: dict[str, tuple[str, str, Callable[..., Any]]] = {**OPS, **MORE_OPS, **CONDITIONS, **MORE_CONDITIONS}
VARIABLES = {"u": 4, "l": 2, "f": 3}
MORE_VARIABLES = VARIABLES | {"h": 3, "b": 2, "d": 3}
# What each kind is in C++, and how it comes of a word of the input, or of bits.
_TYPES = {
    "u": ("unsigned", "{0}", "{0}u"),
    "l": ("unsigned long long", "(unsigned long long){0} * 0x100000001ull", "{0}ull"),
    "f": ("float", "__uint_as_float({0})", "__uint_as_float({0}u)"),
    "h": ("__half", "__ushort_as_half((unsigned short){0})", "__ushort_as_half({0})"),
    "b": ("__nv_bfloat16", "__ushort_as_bfloat16((unsigned short)({0} >> 16))", "__ushort_as_bfloat16({0})"),
    "d": ("double", "__longlong_as_double((long long)((unsigned long long){0} << 32))", "__longlong_as_double({0}ll)"),
}
HEADERS = """#include <cuda_fp16.h>
#include <cuda_bf16.h>
static __device__ unsigned long long bits_of(double x) { return x == x ? __double_as_longlong(x) : 0x7ff8ull << 48; }
static __device__ float narrow(double x) { return x == x ? (float)x : __uint_as_float(0x7fffffff); }
"""
"""What programs with ``more=True`` begin with: a NaN of f64 has bits of its own, which are made the same."""


def _bits_of(kind: str, eighths: int) -> int:
    """Give the bits of so many eighths as a float, a half, a bfloat16 or a double."""
    return FORMATS[{"f": "f32", "h": "f16", "b": "bf16", "d": "f64"}[kind]].write(Fraction(eighths, 8) or 0.0)


class Program:
    """The program of a seed."""

    def __init__(self, seed: int, *, more: bool = False) -> None:
        self.rng = random.Random(seed)
        self.more = more
        self.ops = OPS | MORE_OPS if more else OPS
        self.conditions = CONDITIONS | MORE_CONDITIONS if more else CONDITIONS
        self.variables = MORE_VARIABLES if more else VARIABLES
        self.masks = 0
        self.recursions = [self._recursion() for _ in range(2 if more else 0)]
        self.functions = [self._expression("u", 3, ("a", "b")) for _ in range(2)]
        self.body = self._statements(0, self.rng.randint(5, 9), "m0")

    # -- making one ----------------------------------------------------------------------------------------

    def _expression(self, kind: str, depth: int, names: Sequence[str] = ()) -> Tree:
        rng = self.rng
        if depth == 0 or rng.random() < 0.15:
            if rng.random() < 0.25 or (names and kind != "u"):
                small = rng.choice((0, 1, 2, 7, 31, 255, rng.getrandbits(32)))
                return ("number", kind, small if kind in "ul" else _bits_of(kind, small % 1000))
            if names:
                return ("name", rng.choice(names))
            return ("name", f"{kind}{rng.randrange(self.variables[kind])}")
        if self.more and not names and kind == "u" and rng.random() < 0.1:
            a, b, times = (self._expression("u", depth - 1) for _ in range(3))
            return ("recurse", rng.randrange(2), a, b, times)
        if not names and kind == "u" and rng.random() < 0.1:
            return ("call", rng.randrange(2), self._expression("u", depth - 1), self._expression("u", depth - 1))
        if not names and kind == "u" and rng.random() < 0.1:
            return ("element", self._expression("u", depth - 1))
        if rng.random() < 0.12:
            either = (self._expression(kind, depth - 1, names) for _ in range(2))
            return ("choose", self._condition(depth - 1, names), *either)
        name = rng.choice([n for n, (types, _, _) in self.ops.items() if types[0] == kind])
        return ("op", name, *(self._expression(each, depth - 1, names) for each in self.ops[name][0][2:]))

    def _condition(self, depth: int, names: Sequence[str] = ()) -> Tree:
        name = self.rng.choice(list(self.conditions))
        return ("op", name, *(self._expression(kind, max(depth, 0), names) for kind in self.conditions[name][0]))

    def _recursion(self) -> tuple[Tree, Tree, bool, Tree]:
        """What a function returns at the end, what it calls itself with, whether it does so twice, what of both."""
        end, down, up = (self._expression("u", 2, ("a", "b")) for _ in range(3))
        return end, down, self.rng.random() < 0.5, up

    def _statements(self, level: int, count: int, mask: str) -> list[Tree]:
        return [self._statement(level, mask) for _ in range(count)]

    def _statement(self, level: int, mask: str) -> Tree:
        rng, few = self.rng, self.rng.randint(1, 3)
        chance = rng.random()
        if level < 3 and chance < 0.2:
            self.masks += 1
            own, other = f"m{self.masks}", f"n{self.masks}"
            arms = (self._statements(level + 1, few, own), self._statements(level + 1, rng.randint(0, 2), other))
            return ("if", self._condition(2), mask, own, other, *arms)
        if level < 3 and chance < 0.28:
            return ("for", rng.randint(2, 4), f"k{level}", self._statements(level + 1, few, mask))
        if level < 3 and chance < 0.34:
            return ("while", self._expression("u", 2), f"w{level}", [self._assignment() for _ in range(few)])
        if level < 3 and chance < 0.4:
            cases = [[self._assignment() for _ in range(rng.randint(1, 2))] for _ in range(4)]
            return ("switch", self._expression("u", 2), cases, [rng.random() < 0.3 for _ in range(4)])
        if level == 0 and chance < 0.5:
            return ("exchange", rng.randrange(4), rng.randrange(1, BLOCK))
        if chance < 0.62:
            kinds = ["first", "ballot", "any", "all", "add", "max", "xor", "match"]
            kinds += ["up", "down", "butterfly"] * (level == 0)
            target = f"u{rng.randrange(4)}"
            return (
                "warp",
                rng.choice(kinds),
                target,
                mask,
                self._expression("u", 2),
                self._condition(1),
                rng.randrange(1, 32),
            )
        if chance < 0.7:
            rng.randrange(5)
            return ("atomic", rng.randrange(COUNTERS), self._expression("u", 2))
        if chance < 0.78:
            return ("store", self._expression("u", 1), self._expression("u", 3))
        return self._assignment()

    def _assignment(self) -> Tree:
        kind = self.rng.choice("uulfhhbbdd" if self.more else "uuulff")
        return ("set", f"{kind}{self.rng.randrange(self.variables[kind])}", self._expression(kind, 3))

    # -- as C++ --------------------------------------------------------------------------------------------

    @property
    def source(self) -> str:
        """The program in C++: a kernel ``k(const unsigned* in, unsigned* out)``."""
        lines = [
            f"__device__ __noinline__ unsigned call{n}(unsigned a, unsigned b) {{ return {_written(tree)}; }}"
            for n, tree in enumerate(self.functions)
        ]
        for n, (end, down, twice, up) in enumerate(self.recursions):
            again = f"a ^= recurse{n}(b, a, times - 1);" if twice else ""
            lines.append(
                f"__device__ __noinline__ unsigned recurse{n}(unsigned a, unsigned b, unsigned times) {{"
                f"if (times == 0) return {_written(end)}; a = recurse{n}({_written(down)}, b, times - 1); {again}"
                f"return {_written(up)}; }}"
            )
        lines += [
            'extern "C" __global__ void k(const unsigned* in, unsigned* out) {',
            f"__shared__ unsigned s[{BLOCK}]; unsigned a[8];",
            f"unsigned t = threadIdx.x, g = blockIdx.x * {BLOCK} + t;",
            f"unsigned* counters = out + {GRID * BLOCK * WORDS};",
            "unsigned m0 = 0xffffffffu; for (int n = 0; n < 8; n++) a[n] = in[(g + n) & 63];",
        ]
        for kind, count in self.variables.items():
            type_, of_word, _ = _TYPES[kind]
            for n in range(count):
                lines.append(f"{type_} {kind}{n} = {of_word.format(f'in[(g * {2 * n + 1} + {n}) & 63]')};")
        if self.more:
            lines.append("#define MORE + __half_as_ushort(h0) * 7 + __bfloat16_as_ushort(b0) * 11 "
                         "+ (unsigned)(bits_of(d0) >> 32) * 13 + (unsigned)bits_of(d1)")  # fmt: skip
        lines += [text for statement in self.body for text in _lines(statement)]
        lines += [f"out[g * {WORDS}] = u0 ^ u1 * 3;", f"out[g * {WORDS} + 1] = u2 + u3 * 5{' MORE' * self.more};"]
        lines.append(f"out[g * {WORDS} + 2] = (unsigned)(l0 ^ l1 >> 32) + a[g & 7];")
        lines.append(
            f"out[g * {WORDS} + 3] = __float_as_uint(f0) ^ __float_as_uint(f1) * 3 ^ __float_as_uint(f2) * 5; }}"
        )
        return "\n".join(lines) + "\n"

    # -- interpreted ---------------------------------------------------------------------------------------

    def run(self) -> np.ndarray[Any, Any]:
        """The words that all threads write, and the counters."""
        words, counters = [int(w) for w in inputs()], [0] * COUNTERS
        out: list[int] = []
        with np.errstate(all="ignore"):
            for block in range(GRID):
                lanes = [self._begin(words, block * BLOCK + t, t) for t in range(BLOCK)]
                for statement in self.body:
                    for first in range(0, BLOCK, 32) if statement[0] != "exchange" else ():
                        self._do(statement, lanes[first : first + 32], counters)
                    if statement[0] == "exchange":
                        _, variable, distance = statement
                        stored = [lane[f"u{variable}"] for lane in lanes]
                        for t, lane in enumerate(lanes):
                            lane[f"u{variable}"] = stored[(t + distance) % BLOCK]
                out += [word for lane in lanes for word in self._results(lane)]
        return np.array(out + counters, np.uint64).astype(np.uint32)

    def _begin(self, words: list[int], g: int, t: int) -> Lane:
        lane: Lane = {"t": t, "g": g, "array": [words[(g + n) & 63] for n in range(8)]}
        made = {"l": lambda w: w * 0x100000001 & M64, "h": lambda w: w & 0xFFFF, "b": lambda w: w >> 16,
                "d": lambda w: w << 32}  # fmt: skip
        for kind, count in self.variables.items():
            for n in range(count):
                lane[f"{kind}{n}"] = made.get(kind, int)(words[(g * (2 * n + 1) + n) & 63])
        return lane

    def _results(self, lane: Lane) -> list[int]:
        u, f = [lane[f"u{n}"] for n in range(4)], [lane[f"f{n}"] for n in range(3)]
        more = 0
        if self.more:
            d = [FORMATS["f64"].write(read(lane[f"d{n}"], FORMATS["f64"])) for n in range(2)]
            more = lane["h0"] * 7 + lane["b0"] * 11 + (d[0] >> 32) * 13 + d[1]
        return [
            u[0] ^ u[1] * 3 & M32,
            u[2] + u[3] * 5 + more & M32,
            ((lane["l0"] ^ lane["l1"] >> 32) + lane["array"][lane["g"] & 7]) & M32,
            f[0] ^ (f[1] * 3 & M32) ^ (f[2] * 5 & M32),
        ]

    def _value(self, tree: Tree, lane: Lane) -> Any:
        if tree[0] == "number":
            return tree[2]
        if tree[0] == "name":
            return lane[tree[1]]
        if tree[0] == "call":
            a, b = (self._value(each, lane) for each in tree[2:])
            return self._value(self.functions[tree[1]], {"a": a, "b": b})
        if tree[0] == "recurse":
            a, b, times = (self._value(each, lane) for each in tree[2:])
            return self._recursed(self.recursions[tree[1]], a, b, times & 3)
        if tree[0] == "element":
            return lane["array"][self._value(tree[1], lane) & 7]
        if tree[0] == "choose":
            return self._value(tree[2] if self._value(tree[1], lane) else tree[3], lane)
        return _ALL[tree[1]][2](*(self._value(each, lane) for each in tree[2:]))

    def _recursed(self, function: tuple[Tree, Tree, bool, Tree], a: int, b: int, times: int) -> int:
        end, down, twice, up = function
        if times == 0:
            return int(self._value(end, {"a": a, "b": b}))
        a = self._recursed(function, self._value(down, {"a": a, "b": b}), b, times - 1)
        a ^= self._recursed(function, b, a, times - 1) if twice else 0
        return int(self._value(up, {"a": a, "b": b}))

    def _do(self, statement: Tree, lanes: list[Lane], counters: list[int]) -> None:
        """Do a statement in the lanes that come there together, in the order of lanes."""
        kind, *rest = statement
        if kind == "if":
            condition, _, _, _, *arms = rest
            chosen = [bool(self._value(condition, lane)) for lane in lanes]
            for arm, wanted in zip(arms, (True, False), strict=True):
                some = [lane for lane, which in zip(lanes, chosen, strict=True) if which == wanted]
                for inner in arm if some else ():
                    self._do(inner, some, counters)
        elif kind == "for":
            for n in range(rest[0]):
                for lane in lanes:
                    lane["u3"] = lane["u3"] + n & M32
                for inner in rest[2]:
                    self._do(inner, lanes, counters)
        elif kind == "warp":
            self._together(rest, lanes)
        else:
            for lane in lanes:
                self._alone(kind, rest, lane, counters)

    def _alone(self, kind: str, rest: list[Any], lane: Lane, counters: list[int]) -> None:
        if kind == "set":
            lane[rest[0]] = self._value(rest[1], lane)
        elif kind == "store":
            place = self._value(rest[0], lane) & 7
            lane["array"][place] = self._value(rest[1], lane)
        elif kind == "while":
            for _ in range(self._value(rest[0], lane) & 7):
                for inner in rest[2]:
                    self._alone("set", list(inner[1:]), lane, counters)
        elif kind == "switch":
            at, falls = self._value(rest[0], lane) & 3, True
            while falls and at < 4:
                for inner in rest[1][at]:
                    self._alone("set", list(inner[1:]), lane, counters)
                falls, at = rest[2][at], at + 1
        elif kind == "atomic":
            place, tree = rest
            value, old = self._value(tree, lane), counters[place]
            new = {"Add": old + value & M32, "Xor": old ^ value, "Max": max(old, value), "Or": old | value}
            # Each counter has one operation, so that their order does not matter.
            counters[place] = new[_OPERATIONS[place]]

    def _together(self, rest: list[Any], lanes: list[Lane]) -> None:
        kind, target, _, tree, condition, distance = rest
        values = [self._value(tree, lane) for lane in lanes]
        truths = [bool(self._value(condition, lane)) for lane in lanes]
        numbers = [lane["t"] & 31 for lane in lanes]
        ballot = sum(1 << n for n, truth in zip(numbers, truths, strict=True) if truth)
        total = 0
        for value in values:
            total = (total + value & M32) if kind == "add" else total ^ value if kind == "xor" else max(total, value)
        one = {"first": values[0], "ballot": ballot, "any": int(any(truths)), "all": int(all(truths))}
        for k, lane in enumerate(lanes):
            if kind in one:
                lane[target] = one[kind]
            elif kind in ("add", "max", "xor"):
                lane[target] = total
            elif kind == "match":
                same = (n for n, value in zip(numbers, values, strict=True) if value & 3 == values[k] & 3)
                lane[target] = sum(1 << n for n in same)
            else:
                source = {"up": k - distance, "down": k + distance, "butterfly": k ^ distance}[kind]
                lane[target] = values[source] if 0 <= source < 32 else values[k]


_OPERATIONS = ("Add", "Xor", "Max", "Or") * (COUNTERS // 4)


def _written(tree: Tree) -> str:
    if tree[0] == "number":
        return _TYPES[tree[1]][2].format(tree[2])
    if tree[0] == "name":
        return str(tree[1])
    if tree[0] == "call":
        return f"call{tree[1]}({_written(tree[2])}, {_written(tree[3])})"
    if tree[0] == "recurse":
        return f"recurse{tree[1]}({_written(tree[2])}, {_written(tree[3])}, {_written(tree[4])} & 3)"
    if tree[0] == "element":
        return f"a[{_written(tree[1])} & 7]"
    if tree[0] == "choose":
        return f"({_written(tree[1])} ? {_written(tree[2])} : {_written(tree[3])})"
    return _ALL[tree[1]][1].format(*map(_written, tree[2:]))


def _lines(statement: Tree) -> list[str]:
    kind, *rest = statement
    if kind == "set":
        return [f"{rest[0]} = {_written(rest[1])};"]
    if kind == "store":
        return [f"{{ unsigned e = {_written(rest[0])} & 7; a[e] = {_written(rest[1])}; }}"]
    if kind == "if":
        condition, mask, own, other, first, second = rest
        inside = [[line for each in arm for line in _lines(each)] for arm in (first, second)]
        head = (
            f"{{ bool c = {_written(condition)}; unsigned {own} = __ballot_sync({mask}, c), {other} = {mask} & ~{own};"
        )
        return [head, "if (c) {", *inside[0], "} else {", *inside[1], "} __syncwarp(" + mask + "); }"]
    if kind == "for":
        head = f"for (unsigned {rest[1]} = 0; {rest[1]} < {rest[0]}; {rest[1]}++) {{ u3 += {rest[1]};"
        return [head, *(line for each in rest[2] for line in _lines(each)), "}"]
    if kind == "while":
        head = f"{{ unsigned {rest[1]} = {_written(rest[0])} & 7; while ({rest[1]}--) {{"
        return [head, *(line for each in rest[2] for line in _lines(each)), "} }"]
    if kind == "switch":
        lines = [f"switch ({_written(rest[0])} & 3) {{"]
        for n, (arm, falls) in enumerate(zip(rest[1], rest[2], strict=True)):
            lines += [f"case {n}:", *(line for each in arm for line in _lines(each)), "" if falls else "break;"]
        return [*lines, "}"]
    if kind == "exchange":
        name = f"u{rest[0]}"
        return [f"s[t] = {name}; __syncthreads(); {name} = s[(t + {rest[1]}) % {BLOCK}]; __syncthreads();"]
    if kind == "atomic":
        return [f"atomic{_OPERATIONS[rest[0]]}(&counters[{rest[0]}], {_written(rest[1])});"]
    return [_warp(*rest)]


def _warp(kind: str, target: str, mask: str, tree: Tree, condition: Tree, distance: int) -> str:
    value, truth = _written(tree), _written(condition)
    return (
        f"__syncwarp({mask}); {target} = "
        + {
            "first": f"__shfl_sync({mask}, {value}, __ffs({mask}) - 1)",
            "ballot": f"__ballot_sync({mask}, {truth})",
            "any": f"__any_sync({mask}, {truth}) != 0",
            "all": f"__all_sync({mask}, {truth}) != 0",
            "add": f"__reduce_add_sync({mask}, {value})",
            "max": f"__reduce_max_sync({mask}, {value})",
            "xor": f"__reduce_xor_sync({mask}, {value})",
            "match": f"__match_any_sync({mask}, {value} & 3)",
            "up": f"__shfl_up_sync({mask}, {value}, {distance})",
            "down": f"__shfl_down_sync({mask}, {value}, {distance})",
            "butterfly": f"__shfl_xor_sync({mask}, {value}, {distance})",
        }[kind]
        + ";"
    )
