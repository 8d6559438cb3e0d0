"""Random PTX, as text alone: ``PtxProgram(seed).text``. What it computes ``property.ptx_interpreter`` says.

A kernel has registers of 16, 32 and 64 bits that instructions of every type share, nested branches, loops and
switches, an irreducible tangle, functions (recursive, and by pointer), warp instructions under partial masks, local and
shared memory, and atomics whose order does not matter. At the end each thread writes all its registers.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import numpy as np

from property.ptx_more_forms import EDGES

__all__ = ["BLOCK", "COUNTERS", "GRID", "INPUTS", "WORDS", "PtxProgram", "arguments", "module_of"]

BLOCK, GRID, WORDS, COUNTERS = 40, 1, 24, 8
"""Threads of a block (the last warp has eight), blocks, words that each thread writes, and counters after them."""
PRIVATE = 8
"""Words of global memory that a thread's own atomics change."""


def _inputs() -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """64 words: random, small, and of floats of every format and kind."""
    rng = np.random.default_rng(9)
    words = rng.integers(0, 1 << 32, 64, dtype=np.uint64).astype(np.uint32)
    words[:8] &= 0xFF
    words[8:24] = (rng.standard_normal(16) * 2.0 ** rng.integers(-6, 7, 16)).astype(np.float32).view(np.uint32)
    words[24:32] = (rng.standard_normal(16) * 4).astype(np.float16).view(np.uint32)
    words[32:40] = [0x7F800000, 0x80000000, 0xFFFFFFFF, 1, 0x7C00FC00, 0x3C00BC00, 0x3F803F80, 0x00800000]
    words[40:44] = [0x3FF00000, 0xC0080000, 0x40590000, 0x80000001]
    words.flags.writeable = False
    return words


INPUTS = _inputs()

# One choice of each bracket, then operands: R, H, Q write 32, 16 and 64 bits, the small ones read them; f and d read
# a number too, w none; n and N are a number other than zero, m and M a small one, b a byte. ``#f64`` makes every NaN
# the same one.
_FORMS = """
(add|sub).(u32|s32) R,r,r
(add|sub).sat.s32 R,r,r
(add|sub).(u64|s64) Q,q,q
(add|sub|mul.lo|mul.hi).(u16|s16) H,h,h
mul.(lo|hi).(u32|s32) R,r,r
mul.(lo|hi).(u64|s64) Q,q,q
mul.wide.(u16|s16) R,h,h
mul.wide.(u32|s32) Q,r,r
mad.(lo|hi).(u32|s32) R,r,r,r
mad.(lo|hi).(u64|s64) Q,q,q,q
mad.lo.(u16|s16) H,h,h,h
mad.wide.(u16|s16) R,h,h,r
mad.wide.(u32|s32) Q,r,r,q
mad.hi.sat.s32 R,r,r,r
mul24.(lo|hi).(u32|s32) R,r,r
mad24.(lo|hi).(u32|s32) R,r,r,r
sad.(u32|s32) R,r,r,r
sad.(u16|s16) H,h,h,h
div.(u32|s32) R,r,m
rem.(u32|s32) R,r,m
(div|rem).u32 R,r,n
(div|rem).u64 Q,q,N
(div|rem).s64 Q,q,M
(abs|neg).s32 R,r
(abs|neg).s64 Q,q
(abs|neg).s16 H,h
(min|max).(u32|s32) R,r,r
(min|max).(u64|s64) Q,q,q
(min|max).(u16|s16) H,h,h
(and|or|xor).b32 R,r,r
(and|or|xor).b64 Q,q,q
(and|or|xor).b16 H,h,h
(not|cnot).(b32) R,r
(not|cnot).(b64) Q,q
shl.b32 R,r,r
shr.(u32|s32|b32) R,r,r
shl.b64 Q,q,r
shr.(u64|s64) Q,q,r
shl.b16 H,h,r
shr.(u16|s16) H,h,r
shr.(u32|s32) R,r,b
shf.(l|r).(wrap|clamp).b32 R,r,r,r
(popc|clz).b32 R,r
(popc|clz).b64 R,q
bfind.(u32|s32) R,r
bfind.shiftamt.(u32|s32) R,r
bfind.(u64|s64) R,q
brev.b32 R,r
brev.b64 Q,q
bfe.(u32|s32) R,r,w,w
bfe.(u32|s32) R,r,b,b
bfe.(u64|s64) Q,q,b,b
bfi.b32 R,r,r,b,b
bfi.b64 Q,q,q,b,w
szext.(clamp|wrap).(u32|s32) R,r,r
bmsk.(clamp|wrap).b32 R,b,b
prmt.b32 R,r,r,r
prmt.b32.(f4e|b4e|rc8|ecl|ecr|rc16) R,r,r,r
lop3.b32 R,r,r,r,b
dp4a.(u32|s32).(u32|s32) R,r,r,r
dp2a.(lo|hi).(u32|s32).(u32|s32) R,r,r,r
slct.(u32|b32).s32 R,r,r,r
slct.(|ftz.)b32.f32 R,r,r,f
cvt.(u32|s32).(u16|s16) R,h
cvt.(u32|s32).(u8|s8) R,h
cvt.(u16|s16).(u32|s32) H,r
cvt.sat.(u16|s16).(u32|s32) H,r
cvt.sat.(u32|s32).(u64|s64) R,q
cvt.(u64|s64).(u32|s32) Q,r
cvt.(u32|s32).(u64|s64) R,q
cvt.(rn|rz|rm|rp).f32.(u32|s32) R,r
cvt.(rn|rz|rm|rp).f32.(u64|s64) R,q
cvt.(rn|rz).f64.(u64|s64) Q,q
cvt.(rn|rz|rm|rp).f16.(u32|s32) H,r
cvt.(rni|rzi|rmi|rpi).(|ftz.)(u32|s32).f32 R,f
cvt.(rni|rzi|rmi|rpi).(u64|s64).f32 Q,f
cvt.(rni|rzi|rmi|rpi).(u16|s16).f32 H,f
cvt.(rni|rzi|rmi|rpi).(u32|s32).f64 R,d
cvt.(rni|rzi|rmi|rpi).(u64|s64).f64 Q,d
cvt.(rni|rzi|rmi|rpi).(u32|s32).f16 R,h
cvt.(rni|rzi|rmi|rpi).f32.f32 R,f
cvt.(rn|rz|rm|rp).(|sat.)f32.f64 R,d
cvt.f64.f32 Q,f #f64
cvt.f32.f16 R,h
cvt.f32.bf16 R,h
cvt.(rn|rz).(f16|bf16).f32 H,f
cvt.(rn|rz).relu.(f16|bf16).f32 H,f
cvt.(rn|rz).(f16x2|bf16x2).f32 R,f,f
cvt.pack.sat.(u16|s16).s32 R,r,r
cvt.pack.sat.(u8|s8).s32.b32 R,r,r,r
set.(lt|eq|ge).(u32|s32).(u32|s32) R,r,r
set.(lt|ne|geu|num).(u32|f32).f32 R,f,f
set.(gt|le).f32.s32 R,r,r
set.(lt|geu).(f16x2.f16x2|bf16x2.bf16x2) R,w,w
(add|sub|mul).(|rn.|rz.|rm.|rp.)(|ftz.)(|sat.)f32 R,f,f
(add|sub|mul).f32 R,f,f
(fma|mad).(rn|rz|rm|rp).(|ftz.)(|sat.)f32 R,f,f,f
div.(rn|rz|rm|rp).(|ftz.)f32 R,f,f
(sqrt|rcp).(rn|rz|rm|rp).(|ftz.)f32 R,f
(min|max).(|ftz.)(|NaN.)f32 R,f,f
(min|max).NaN.xorsign.abs.f32 R,f,f
copysign.f32 R,f,f
(abs|neg).(|ftz.)f32 R,f #f32
(add|sub|mul).(|rn.|rz.|rm.|rp.)f64 Q,d,d #f64
(fma|mad).(rn|rz|rm|rp).f64 Q,d,d,d #f64
div.(rn|rz|rm|rp).f64 Q,d,d #f64
(sqrt|rcp).(rn|rz|rm|rp).f64 Q,d #f64
(min|max).f64 Q,d,d #f64
(abs|neg).f64 Q,d #f64
(add|sub|mul).(|rn.)(|ftz.)(|sat.)f16 H,h,h
(add|sub|mul).(|rn.)(|ftz.)(|sat.)f16x2 R,w,w
fma.rn.(|ftz.)(|sat.|relu.)f16 H,h,h,h
fma.rn.(|ftz.)(|sat.|relu.)f16x2 R,w,w,w
(min|max).(|ftz.)(|NaN.)(|xorsign.abs.)f16 H,h,h
(min|max).(|NaN.)f16x2 R,w,w
(add|sub|mul).(|rn.)bf16 H,h,h
(add|sub|mul).(|rn.)bf16x2 R,w,w
fma.rn.(|relu.)bf16 H,h,h,h
fma.rn.(|relu.)bf16x2 R,w,w,w
(min|max).(|NaN.)(|xorsign.abs.)bf16 H,h,h
(min|max).(|NaN.)bf16x2 R,w,w
(abs|neg).f16 H,h #f16
(abs|neg).bf16 H,h #bf16
mov.b32 R,{h_h}
mov.b64 Q,{r_r}
mov.b32 {H_H},r
mov.b64 {R_R},q
mov.b64 {H_H_H_H},q
selp.(b32|u32) R,r,r,p
selp.b64 Q,q,q,p
selp.b16 H,h,h,p
"""
_ALL = tuple(tuple(line.split()) for line in _FORMS.strip().splitlines())
_PARTS = (".b0", ".b1", ".b2", ".b3", ".h0", ".h1")
_TESTS = """
setp.(lt|le|gt|ge|eq|ne).(u32|s32) P,r,r
setp.(lo|ls|hi|hs).u32 P,r,r
setp.(lt|ge|eq|ne).(u64|s64) P,q,q
setp.(lt|gt|ne).(u16|s16) P,h,h
setp.(lt|le|gt|ge|eq|ne|ltu|leu|gtu|geu|equ|neu|num|nan).(|ftz.)f32 P,f,f
setp.(lt|geu|ne|nan).f64 P,d,d
setp.(lt|leu|eq|nan).(f16|bf16) P,h,h
setp.(lt|ge|eq).(and|or|xor).(u32|s32) PP,r,r,p
setp.(lt|geu).(and|or|xor).f32 PP,f,f,p
setp.(lt|neu).(f16x2|bf16x2) PP,w,w
testp.(finite|infinite|number|notanumber|normal|subnormal).f32 P,f
testp.(number|subnormal|normal).f64 P,d
""".strip().splitlines()
_CARRIES = (
    "add.cc.{0} {1}, {2}, {3};",
    "sub.cc.{0} {1}, {2}, {3};",
    "mad.lo.cc.{0} {1}, {2}, {3}, {4};",
    "mad.hi.cc.{0} {1}, {2}, {3}, {4};",
)
_NEXT = (
    "addc{5}.{0} {1}, {2}, {3};",
    "subc{5}.{0} {1}, {2}, {3};",
    "madc.lo{5}.{0} {1}, {2}, {3}, {4};",
    "madc.hi{5}.{0} {1}, {2}, {3}, {4};",
)
_SHARED_COUNTERS = ("add.u32", "xor.b32", "max.u32", "or.b32", "min.s32", "add.s32", "and.b32", "max.s32")
_OWN_ATOMICS = (
    "add.u32", "min.s32", "max.u32", "inc.u32", "dec.u32", "exch.b32", "cas.b32", "and.b32", "xor.b32",
    "add.noftz.f16x2", "add.noftz.bf16x2", "add.u64", "max.s64", "cas.b64",
)  # fmt: skip
_ARGUMENTS = ".param .b32 {}, .param .b64 {}, .param .b32 {}, .param .b32 {}, .param .align 8 .b8 {}[16]"
_REGISTERS = """.reg .b32 r<8>, s<8>, m0; .reg .b16 h<4>; .reg .b64 q<4>, z<8>; .reg .pred p<4>, x;
.local .align 16 .b8 mine[32];"""


class PtxProgram:
    """The program of a seed: functions, and a kernel; its names end in the seed's number.

    To find what two ways of running it differ in, ``length`` ends the kernel after so many statements. ``forms``
    are further ones, which it has as often as its own.
    """

    def __init__(self, seed: int, length: int = 99, forms: Sequence[tuple[str, ...]] = ()) -> None:
        self.seed = seed
        self.forms = forms
        self.length = length
        self.rng = random.Random(seed)
        self.lines: list[str] = []
        self.count = 0
        self.depth = 0
        self.in_function = -1
        functions = [self._function(n) for n in range(4)]
        self.in_function = -1
        text = self._kernel()
        for n in reversed(range(4)):  # a function calls those before it
            text = f"{functions[n]}\n{text}" if f"f{n}_{seed}" in text else text
        self.text = text

    # -- words -------------------------------------------------------------------------------------------

    def _add(self, text: str) -> None:
        self.lines.append(text)

    def _new(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def _chosen(self, form: str) -> str:
        return re.sub(r"\(([^()]*)\)", lambda m: self.rng.choice(m[1].split("|")), form)

    def _number(self, bits: int) -> str:
        rng = self.rng
        return str(rng.choice((0, 1, 2, 7, 31, 32, 33, 255, 0x8000, rng.getrandbits(bits), rng.getrandbits(bits))))

    def _read(self, letter: str) -> str:
        """Write one source; what has to be other than zero is computed first."""
        rng = self.rng
        if letter in ("n", "m", "N", "M"):
            kind, source, to = ("b32", "r", "s7") if letter in "nm" else ("b64", "q", "z7")
            value = f"{source}{rng.randrange(4)}"
            if letter in "mM":
                self._add(f"and.{kind} {to}, {value}, 127;")
                value = to
            self._add(f"or.{kind} {to}, {value}, 1;")
            return to
        if letter == "b":
            return str(rng.choice((0, 1, 5, 8, 16, 31, 32, 40, 63, 255)))
        if letter == "f" and rng.random() < 0.2:
            return f"0f{rng.choice((0x3F800000, 0xBF000000, 0x40490FDB, 0, 0x80000000, 0x7F800000, 0x00000003)):08X}"
        if letter == "d" and rng.random() < 0.2:
            return f"0d{rng.choice((0x3FF0 << 48, 0xC059 << 48, 0, 0x7FF0 << 48, 3)):016X}"
        if letter == "r" and rng.random() < 0.15:
            return self._number(32)
        if letter == "q" and rng.random() < 0.1:
            return self._number(63)
        stem = {"f": "r", "w": "r", "v": "r", "d": "q"}.get(letter, letter)
        part = rng.choice(("", *_PARTS)) if letter == "v" else ""
        return f"{stem}{rng.randrange(8 if stem == 'r' else 4)}{part}"

    def _operands(self, text: str) -> str:
        rng, written = self.rng, []
        for each in text.split(","):
            if each[0] == "{":
                letters = each[1:-1].split("_")
                count = 8 if letters[0] in "Rr" else 4
                names = [f"{letters[0].lower()}{n}" for n in rng.sample(range(count), len(letters))]
                written.append("{" + ", ".join(names) + "}")
            elif each == "PP":
                first, second = rng.sample(range(4), 2)
                written.append(f"p{first}|p{second}")
            elif each == "RP":
                written.append(f"r{rng.randrange(8)}|p{rng.randrange(4)}")
            elif each == "V":
                written.append(f"r{rng.randrange(8)}{rng.choice(_PARTS)}")
            elif each in "RHQP":
                written.append(f"{each.lower()}{rng.randrange(8 if each == 'R' else 4)}")
            else:
                written.append(self._read(each))
        return ", ".join(written)

    # -- statements --------------------------------------------------------------------------------------

    def _compute(self, form: tuple[str, ...] = ()) -> None:
        """One instruction, or one that a predicate guards."""
        form = form or self.rng.choice(self.forms if self.forms and self.rng.random() < 0.5 else _ALL)
        guard = self.rng.choice(("", "", "", "@p1 ", "@!p2 "))
        mnemonic, operands = self._chosen(form[0]), self._operands(form[1])
        self._add(f"{guard}{mnemonic} {operands};")
        if len(form) > 2:
            kind, target = form[2][1:], operands.split(",")[0]
            number = {"f32": "0x7fffffff", "f64": "0x7ff8000000000000"}.get(kind, "0x7fff")
            bits = {"f32": 32, "f64": 64}.get(kind, 16)
            self._add(f"setp.nan.{kind} x, {target}, {target}; selp.b{bits} {target}, {number}, {target}, x;")

    def _test(self) -> None:
        form = self.rng.choice(_TESTS).split()
        self._add(f"{self._chosen(form[0])} {self._operands(form[1])};")

    def _carry(self) -> None:
        rng = self.rng
        wide = rng.random() < 0.3
        kind, stem, count = (rng.choice(("u64", "s64")), "q", 4) if wide else (rng.choice(("u32", "s32")), "r", 8)
        for n in range(rng.randint(2, 4)):
            names = [f"{stem}{rng.randrange(count)}", *(self._read(stem) for _ in range(3))]
            cc = ".cc" if n < 2 else ""
            self._add(rng.choice(_NEXT if n else _CARRIES).format(kind, *names, cc))
            if rng.random() < 0.3:
                self._compute()

    def _statement(self, mask: str) -> None:
        rng = self.rng
        kinds = {"compute": 9, "test": 3, "carry": 1.5, "local": 1, "atomic": 1, "own": 1.2}
        if mask:
            kinds |= {"warp": 3.5}
        if self.depth < 2:
            kinds |= {"branch": 1.6, "loop": 0.7, "while": 0.6, "switch": 0.9, "tangle": 0.5}
        if self.in_function != 0:
            kinds |= {"call": 0.9}
        if mask == "m0" and self.in_function < 0 and self.depth == 0:
            kinds |= {"exchange": 1, "pointer": 0.5}
        kind = rng.choices(list(kinds), list(kinds.values()))[0]
        if kind in ("warp", "branch", "loop", "call"):
            getattr(self, f"_{kind}")(mask)
        else:
            getattr(self, f"_{kind}")()

    def _several(self, mask: str, least: int = 1, most: int = 3) -> None:
        self.depth += 1
        for _ in range(self.rng.randint(least, most)):
            self._statement(mask)
        self.depth -= 1

    def _branch(self, mask: str) -> None:
        """Take one of two ways; each has the mask of its threads, if there is one."""
        rng = self.rng
        self._test()
        k = self._new("")
        condition, own, other = f"g{k}", "", ""
        self._add(f".reg .pred {condition}; mov.pred {condition}, p{rng.randrange(4)};")
        if mask:
            own, other = f"m{k}", f"n{k}"
            self._add(f".reg .b32 {own}, {other}; vote.sync.ballot.b32 {own}, {condition}, {mask};")
            self._add(f"not.b32 {other}, {own}; and.b32 {other}, {other}, {mask};")
        self._add(f"@!{condition} bra ELSE{k};")
        self._several(own)
        if rng.random() < 0.15 and self.in_function >= 0 and not own:
            self._add("st.param.b32 [o], r1;")
            self._add("ret;")
        self._add(f"bra END{k};\nELSE{k}:")
        if rng.random() < 0.6:
            self._several(other)
        self._add(f"END{k}:")
        if own and rng.random() < 0.3:
            self._add(f"bar.warp.sync {mask};")

    def _loop(self, mask: str) -> None:
        """As often for every thread."""
        k = self._new("")
        counter = f"c{k}"
        self._add(f".reg .b32 {counter}; mov.b32 {counter}, 0;\nLOOP{k}:")
        self._several(mask)
        self._add(f"add.u32 {counter}, {counter}, 1; add.u32 r7, r7, {counter};")
        self._add(f"setp.lt.u32 x, {counter}, {self.rng.randint(2, 3)}; @x bra LOOP{k};")

    def _while(self) -> None:
        """As often as each thread's register says, with a way out of the middle."""
        k = self._new("")
        counter = f"c{k}"
        self._add(f".reg .b32 {counter}; and.b32 {counter}, r{self.rng.randrange(8)}, 3;\nWHILE{k}:")
        self._add(f"setp.eq.u32 x, {counter}, 0; @x bra DONE{k};")
        self._several("", 1, 2)
        if self.rng.random() < 0.5:
            self._test()
            self._add(f"@p{self.rng.randrange(4)} bra DONE{k};")
        self._add(f"sub.u32 {counter}, {counter}, 1; bra WHILE{k};\nDONE{k}:")

    def _switch(self) -> None:
        rng, k = self.rng, self._new("")
        targets = [f"CASE{k}_{rng.randrange(3)}" for _ in range(4)]
        self._add(f"TABLE{k}: .branchtargets {', '.join(targets)};")
        self._add(f"and.b32 s5, r{rng.randrange(8)}, 3; brx.idx s5, TABLE{k};")
        for n in range(3):
            self._add(f"CASE{k}_{n}:")
            self._several("", 1, 2)
            if rng.random() < 0.7:
                self._add(f"bra OUT{k};")
        self._add(f"OUT{k}:")

    def _tangle(self) -> None:
        """Blocks that jump to each other as they like, until the fuel is burnt."""
        rng, k = self.rng, self._new("")
        count = rng.randint(3, 5)
        self._add(f".reg .b32 u{k}; mov.b32 u{k}, {rng.randint(4, 9)};")
        self.depth += 2
        for n in range(count):
            self._add(f"KNOT{k}_{n}:")
            for _ in range(rng.randint(1, 2)):
                self._compute()
            self._test()
            self._add(f"sub.u32 u{k}, u{k}, 1; setp.eq.u32 x, u{k}, 0; @x bra FREE{k};")
            self._add(f"@p{rng.randrange(4)} bra KNOT{k}_{rng.randrange(count)};")
            if rng.random() < 0.6:
                self._add(f"bra KNOT{k}_{rng.randrange(count)};")
        self.depth -= 2
        self._add(f"FREE{k}:")

    def _call(self, mask: str) -> None:
        """Call a function of a lower number; the last one has warp instructions, and gets the mask of who comes."""
        n = self.rng.randrange(self.in_function if self.in_function >= 0 else 4 if mask else 3)
        self._called(f"f{n}_{self.seed}", mask or "0", str(self.rng.randrange(4)))

    def _called(self, function: str, mask: str, times: str) -> None:
        k, rng = self._new(""), self.rng
        prototype = f", TYPE{k}" if function.startswith("z") else ""
        if prototype:
            self._add(f"TYPE{k}: .callprototype (.param .b32 _) _ ({_ARGUMENTS.format(*'_____')});")
        declared = _ARGUMENTS.format(*(f"{letter}{k}" for letter in "abcde")).replace(",", ";")
        self._add(
            f"{{\n.param .b32 o{k}; {declared}; st.param.b32 [a{k}], r{rng.randrange(8)};\n"
            f"st.param.b64 [b{k}], q{rng.randrange(4)}; st.param.b32 [c{k}], {mask}; st.param.b32 [d{k}], {times};\n"
            f"st.param.b64 [e{k}], z1; st.param.b64 [e{k}+8], z2;\n"
            f"call (o{k}), {function}, (a{k}, b{k}, c{k}, d{k}, e{k}){prototype};\n"
            f"ld.param.b32 r{rng.randrange(8)}, [o{k}];\n}}"
        )

    def _pointer(self) -> None:
        """Call what a register of each thread names."""
        first, second = f"f0_{self.seed}", f"f2_{self.seed}"
        self._add(f"mov.u64 z5, {first}; mov.u64 z6, {second}; selp.b64 z5, z5, z6, p{self.rng.randrange(4)};")
        self._called("z5", "0", str(self.rng.randrange(3)))

    def _exchange(self) -> None:
        """Through shared memory, between barriers; sometimes by its generic address."""
        rng, by = self.rng, self.rng.randrange(1, BLOCK)
        kind, stem, size = rng.choice((("b32", "r", 4), ("b64", "q", 8), ("b16", "h", 2), ("b8", "h", 1)))
        name = f"{stem}{rng.randrange(4)}"
        self._add(f"mov.u32 s0, %tid.x; add.u32 s1, s0, {by}; rem.u32 s1, s1, {BLOCK};")
        self._add(f"mul.lo.u32 s0, s0, {size}; mul.lo.u32 s1, s1, {size}; mov.u32 s2, all_{self.seed};")
        self._add("add.u32 s0, s0, s2; add.u32 s1, s1, s2;")
        load, at = ("ld.shared", "s1") if rng.random() < 0.6 else ("ld", "z0")
        if at == "z0":
            self._add("cvt.u64.u32 z0, s1; cvta.shared.u64 z0, z0;")
        signed = {"b8": rng.choice(("u8", "s8")), "b16": rng.choice(("u16", "s16"))}.get(kind, kind)
        self._add(f"bar.sync 0; st.shared.{kind} [s0], {name}; bar.sync 0; {load}.{signed} {name}, [{at}]; bar.sync 0;")

    def _local(self) -> None:
        """Store and load some bytes of the thread's own, at a place that is computed."""
        rng = self.rng
        vector = rng.random() < 0.3
        size = 16 if vector else rng.choice((1, 2, 4, 8))
        for what in ("st", "ld"):
            self._add(f"and.b32 s3, r{rng.randrange(8)}, {32 - size & -size & 31}; cvt.u64.u32 z3, s3;")
            self._add("mov.u64 z4, mine; add.u64 z3, z3, z4;")
            if vector:
                several = "{" + ", ".join(f"r{n}" for n in rng.sample(range(8), 4)) + "}"
                self._add(f"st.local.v4.b32 [z3], {several};" if what == "st" else f"ld.local.v4.b32 {several}, [z3];")
                continue
            kind = {1: ("u8", "s8"), 2: ("u16", "s16"), 4: ("u32", "s32"), 8: ("b64",)}[size]
            name = f"{'q' if size == 8 else rng.choice('rh') if size < 4 else 'r'}{rng.randrange(4)}"
            kind_of = rng.choice(kind)
            self._add(f"st.local.{kind_of} [z3], {name};" if what == "st" else f"ld.local.{kind_of} {name}, [z3];")
        if rng.random() < 0.5:
            self._add(f"and.b32 s3, r{rng.randrange(8)}, 28; cvt.u64.u32 z3, s3; mov.u64 z4, table;")
            self._add(f"add.u64 z3, z3, z4; ld.const.u32 r{rng.randrange(8)}, [z3];")

    def _atomic(self) -> None:
        """Change a counter that all threads share, by its one operation; what it was before depends on their order."""
        n = self.rng.randrange(COUNTERS)
        guard = self.rng.choice(("", "@p0 ", "@!p3 "))
        value = f"r{self.rng.randrange(8)}"
        self._add(f"{guard}red.global.{_SHARED_COUNTERS[n]} [z1+{4 * n}], {value};")

    def _own(self) -> None:
        """Change a word of the thread's own, and keep what it was."""
        rng = self.rng
        operation = rng.choice(_OWN_ATOMICS)
        stem, place = ("q", 8 * rng.randrange(4)) if operation.endswith("64") else ("r", 4 * rng.randrange(8))
        values = [f"{stem}{rng.randrange(4)}" for _ in range(2 if operation.startswith("cas") else 1)]
        guard = rng.choice(("", "", "@p1 "))
        self._add(f"{guard}atom.global.{operation} {stem}{rng.randrange(4)}, [z2+{place}], {', '.join(values)};")

    def _warp(self, mask: str) -> None:
        rng = self.rng
        target, value = f"r{rng.randrange(8)}", f"r{rng.randrange(8)}"
        kind = rng.choice(("vote", "ballot", "match", "all", "redux", "shfl", "shfl", "shfl"))
        if kind == "vote":
            mode = rng.choice(("all", "any", "uni"))
            self._add(f"vote.sync.{mode}.pred p{rng.randrange(4)}, {rng.choice(('', '!'))}p{rng.randrange(4)}, {mask};")
        elif kind == "ballot":
            self._add(f"vote.sync.ballot.b32 {target}, {rng.choice(('', '!'))}p{rng.randrange(4)}, {mask};")
        elif kind == "match":
            self._add(f"and.b32 s4, {value}, {rng.choice((1, 3, 7))}; match.any.sync.b32 {target}, s4, {mask};")
        elif kind == "all":
            self._add(f"and.b32 s4, {value}, {rng.choice((0, 1))};")
            self._add(f"match.all.sync.b32 {target}|p{rng.randrange(4)}, s4, {mask};")
        elif kind == "redux":
            mode = rng.choice(("add.u32", "add.s32", "min.u32", "max.s32", "min.s32", "and.b32", "or.b32", "xor.b32"))
            self._add(f"redux.sync.{mode} {target}, {value}, {mask};")
        else:
            self._shuffle(mask, target, value)

    def _shuffle(self, mask: str, target: str, value: str) -> None:
        """Read a lane that the mask has, else the own one."""
        rng = self.rng
        to = f"{target}|p{rng.randrange(4)}" if rng.random() < 0.5 else target
        if rng.random() < 0.5:
            self._add(f"and.b32 s3, r{rng.randrange(8)}, 31; shr.u32 s4, {mask}, s3; and.b32 s4, s4, 1;")
            self._add("mov.u32 s5, %laneid; setp.ne.u32 x, s4, 0; selp.b32 s3, s3, s5, x;")
            self._add(f"shfl.sync.idx.b32 {to}, {value}, s3, 31, {mask};")
            return
        # In segments of 2, 4 or 8 lanes, if the mask has all lanes of the own segment; else by no lane at all.
        mode, most = rng.choice(("up", "down", "bfly")), rng.choice((1, 3, 7))
        every = (1 << (most + 1)) - 1
        self._add(f"mov.u32 s3, %laneid; and.b32 s3, s3, {31 - most}; shr.u32 s4, {mask}, s3;")
        self._add(f"and.b32 s4, s4, {every}; setp.eq.u32 x, s4, {every}; selp.b32 s3, {rng.randint(1, most)}, 0, x;")
        clamp = (31 - most) << 8 | (0 if mode == "up" else 31)
        self._add(f"shfl.sync.{mode}.b32 {to}, {value}, s3, {clamp}, {mask};")

    # -- functions and the kernel ------------------------------------------------------------------------

    def _function(self, n: int) -> str:
        """A function of a value, a wide value, a mask and how often it calls itself."""
        self.lines, self.in_function, self.depth, self.count = [], n, 1, 0
        name = f"f{n}_{self.seed}"
        self._add(f".func (.param .b32 o) {name}({_ARGUMENTS.format(*'abcde')})\n{{")
        self._add(_REGISTERS)
        self._add(".reg .b32 depth; ld.param.b32 r0, [a]; ld.param.b64 q0, [b]; ld.param.b32 m0, [c];")
        self._add("ld.param.b32 depth, [d]; ld.param.b64 z1, [e]; ld.param.b64 z2, [e+8];")
        self._spread("r0", "q0")
        for _ in range(self.rng.randint(3, 6)):
            self._statement("m0" if n == 3 else "")
        if n < 3 and self.rng.random() < 0.7:
            self._recursion(name)
        self._add("xor.b32 r1, r1, r2; add.u32 r1, r1, r3; st.param.b32 [o], r1; ret;\n}")
        return "\n".join(self.lines)

    def _recursion(self, name: str) -> None:
        """Call itself once or twice with a smaller depth."""
        k = self._new("")
        self._add(f"setp.eq.u32 x, depth, 0; @x bra FLAT{k}; sub.u32 depth, depth, 1;")
        for _ in range(self.rng.choice((1, 1, 2))):
            self._called(name, "0", "depth")
        self._add(f"FLAT{k}:")

    def _spread(self, word: str, wide: str) -> None:
        """Give every register a value of its own."""
        for n in range(1, 8):
            self._add(f"mad.lo.u32 r{n}, {word}, {2 * n + 1}, {n * 40503};")
        for n in range(1, 4):
            self._add(f"mad.lo.u64 q{n}, {wide}, {2 * n + 1}, {n * 0x9E3779B97F4A7C15 & (1 << 63) - 1};")
        self._add("mov.b32 {h0, h1}, r2; mov.b32 {h2, h3}, r5;")
        for n in range(4):
            self._add(f"and.b32 s0, r{n}, 1; setp.ne.u32 p{n}, s0, 0;")
        self._add("st.local.v4.b32 [mine], {r0, r1, r2, r3}; st.local.v4.b32 [mine+16], {r4, r5, r6, r7};")

    def _kernel(self) -> str:
        self.lines, self.depth, self.count = [], 0, 0
        rng = self.rng
        self._add(f".visible .entry k{self.seed}(.param .u64 in, .param .u64 out, .param .u64 more)\n{{")
        self._add(_REGISTERS)
        self._add(f".shared .align 16 .b8 all_{self.seed}[{8 * BLOCK}];")
        self._add(".reg .b64 pin, pout; ld.param.u64 pin, [in]; ld.param.u64 pout, [out]; ld.param.u64 z1, [more];")
        self._add("mov.u32 s0, %ctaid.x; mov.u32 s1, %ntid.x; mov.u32 s2, %tid.x; mad.lo.u32 s0, s0, s1, s2;")
        self._add(f"mul.wide.u32 z3, s0, {4 * PRIVATE}; add.u64 z2, z1, z3; add.u64 z2, z2, {4 * COUNTERS};")
        self._add(f"mul.wide.u32 z3, s0, {4 * WORDS}; add.u64 pout, pout, z3;")
        for n, step in ((0, 4), (4, 20)):
            self._add(f"mad.lo.u32 s3, s0, {step}, {7 * n}; and.b32 s3, s3, 60; mul.wide.u32 z3, s3, 4;")
            self._add(f"add.u64 z3, z3, pin; ld.global.v4.u32 {{r{n}, r{n + 1}, r{n + 2}, r{n + 3}}}, [z3];")
        self._add("mov.b64 q0, {r1, r0}; mov.b64 q1, {r3, r6}; mov.b64 q2, {r2, r7}; mov.b64 q3, {r4, r5};")
        self._add("mov.b32 {h0, h1}, r2; mov.b32 {h2, h3}, r5;")
        for n in range(4):
            self._add(f"and.b32 s3, r{n}, 1; setp.ne.u32 p{n}, s3, 0;")
        self._add("st.local.v4.b32 [mine], {r0, r1, r2, r3}; st.local.v4.b32 [mine+16], {r4, r5, r6, r7};")
        # The mask of the lanes that the warp has.
        self._add("and.b32 s3, s2, 31; sub.u32 s3, s2, s3; sub.u32 s3, s1, s3; min.u32 s3, s3, 32;")
        self._add("bmsk.clamp.b32 m0, 0, s3;")
        for _ in range(min(rng.randint(4, 8), self.length)):
            self._statement("m0")
        self._add("st.global.v4.u32 [pout], {r0, r1, r2, r3}; st.global.v4.u32 [pout+16], {r4, r5, r6, r7};")
        self._add("st.global.v2.u64 [pout+32], {q0, q1}; st.global.v2.u64 [pout+48], {q2, q3};")
        self._add("mov.b32 s0, {h0, h1}; mov.b32 s1, {h2, h3}; st.global.v2.u32 [pout+64], {s0, s1};")
        self._add("ld.local.v2.u32 {s0, s1}, [mine+8]; st.global.v2.u32 [pout+72], {s0, s1};")
        self._add("mov.u32 s0, 0; ld.local.u32 s1, [mine+28];")
        for n in range(4):
            self._add(f"@p{n} or.b32 s0, s0, {1 << n};")
        self._add("st.global.v2.u32 [pout+80], {s0, s1}; ret;\n}")
        return "\n".join(self.lines)


def arguments(*, edges: bool = False) -> list[np.ndarray[tuple[int], np.dtype[np.uint32]]]:
    """Give what a kernel gets: the inputs, zeros that it writes its words to, and the counters before own words."""
    inputs = np.array(EDGES, np.uint32) if edges else INPUTS
    others = np.resize(inputs, COUNTERS + GRID * BLOCK * PRIVATE)
    return [inputs.copy(), np.zeros(GRID * BLOCK * WORDS, np.uint32), others]


def module_of(programs: list[PtxProgram]) -> str:
    """Put programs into one text of PTX."""
    head = ".version 8.6\n.target sm_90\n.address_size 64\n"
    table = ", ".join(str(word) for word in INPUTS[::7][:8])
    return f"{head}.const .align 16 .b32 table[8] = {{{table}}};\n" + "\n".join(p.text for p in programs) + "\n"
