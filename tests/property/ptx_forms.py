"""Short kernels of PTX of which assemblers make something else than the text says, recorded on an H200.

Statements have words a to e, f32 x and y, 64 bits z, v and w, 16 bits h, g and i, and the predicates P and R.
``property.record_ptx`` records d, v, h and R of each thread after them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from property.ptx_more_forms import EDGES

__all__ = ["FORMS", "THREADS", "form_arguments", "form_text"]

THREADS, _WORDS = 256, 4


def _guarded() -> Iterator[str]:
    """Comparisons, tests and changes of the sign under a predicate."""
    for to in ("f32", "u32", "s32"):
        for of, operands in (("s32", "a, b"), ("u32", "a, 31"), ("f32", "a, b"), ("s64", "z, w"), ("f64", "z, w"),
                             ("s16", "h, g"), ("u16", "h, g"), ("b32", "a, b")):  # fmt: skip
            yield f"@P set.{'ne' if of == 'b32' else 'lt'}.{to}.{of} d, {operands};"
    yield "@!P set.gt.and.f32.s32 d, a, b, R;"
    yield "@P set.lt.f16.f16 h, h, g;"
    yield "@P set.lt.bf16.bf16 h, h, g;"
    yield "@P set.lt.f16x2.f16x2 d, a, b;"
    for kind in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
        yield f"@P testp.{kind}.f32 R, a;"
        yield f"@P testp.{kind}.f64 R, z;"
    for name in ("neg", "abs"):
        for kind, operands in (("f32", "d, a"), ("ftz.f32", "d, a"), ("f64", "v, w"), ("f16", "h, g"), ("bf16", "h, g"),
                               ("f16x2", "d, a"), ("bf16x2", "d, a")):  # fmt: skip
            yield f"@P {name}.{kind} {operands};"
    yield from ("@P dp4a.s32.u32 d, a, b, c;", "@P dp4a.u32.u32 d, a, b, 33;", "@P dp2a.lo.s32.s32 d, a, b, c;")
    yield from (
        "@P copysign.f32 d, a, b;",
        "@P cvt.rn.f32.s32 d, a;",
        "@P cvt.f32.f16 d, h;",
        "@P mul.f32 d, a, 0f3F800000;",
    )


def _by_one() -> Iterator[str]:
    """Products by 1 and -1, which are copies, and sums with them."""
    for one in ("0f3F800000", "0fBF800000"):
        yield f"mul.f32 d, a, {one};"
        yield f"mul.ftz.f32 d, a, {one};"
        yield f"mul.sat.f32 d, a, {one};"
        yield f"mul.rn.f32 d, a, {one};"
        yield f"mul.f32 y, a, {one}; mul.f32 x, b, c; add.f32 d, y, x;"
        yield f"mul.ftz.f32 y, a, {one}; mul.ftz.f32 x, b, c; add.ftz.f32 d, y, x;"
        yield f"mul.sat.f32 y, a, {one}; mul.f32 x, b, c; add.f32 d, y, x;"
        yield f"mov.b32 e, {one}; mul.f32 y, e, a; mul.f32 x, b, c; sub.f32 d, x, y;"
        yield f"mul.f32 y, a, b; mul.f32 x, y, {one}; add.f32 d, x, c;"
    for one in ("0d3FF0000000000000", "0dBFF0000000000000"):
        yield f"mul.f64 v, z, {one};"
        yield f"mul.f64 v, z, {one}; mul.f64 u, w, z; add.f64 v, v, u;"
    yield from (
        "mov.b16 i, 0x3C00; mul.f16 h, h, i;",
        "mov.b16 i, 0x3F80; mul.bf16 h, h, i;",
        "add.f32 d, a, 0f80000000;",
    )
    yield from ("mov.b16 i, 0xBC00; mul.f16 h, h, i;", "mov.b16 i, 0xBF80; mul.bf16 h, h, i;")
    yield from ("mov.b32 e, 0x3C003C00; mul.f16x2 d, a, e;", "mov.b32 e, 0x3F803F80; mul.bf16x2 d, a, e;")


def _scaled() -> Iterator[str]:
    """Products of a product and a power of two, which are one with a scale."""
    for k in (-4, -3, -2, -1, 1, 2, 3, 4):
        power = f"0f{(127 + k) << 23:08X}"
        yield f"mul.f32 y, a, b; mul.f32 d, y, {power};"
        yield f"mul.ftz.f32 y, a, b; mul.ftz.f32 d, y, {power};"
        yield f"mul.ftz.f32 y, a, b; mul.f32 d, y, {power};"
        yield f"mul.f32 y, a, b; mul.ftz.f32 d, y, {power};"
        yield f"mul.f32 y, a, b; mul.sat.f32 d, {power}, y;"
    for two in ("0f40000000", "0f3F000000"):
        yield f"mul.f32 y, a, b; mul.rn.f32 d, y, {two};"
        yield f"mul.rn.f32 y, a, b; mul.f32 d, y, {two};"
        yield f"mul.f32 y, a, b; @P mul.f32 d, y, {two};"
        yield f"mul.f32 y, a, b; @P bra L; st.local.u32 [m], a; L: mul.f32 d, y, {two};"
        yield f"mul.f32 y, a, b; mul.f32 x, y, {two}; mul.f32 d, x, {two};"
        yield f"mul.f32 y, a, b; mul.f32 x, y, {two}; add.f32 d, x, c;"
        yield f"mul.f32 y, a, b; mul.f32 x, y, {two}; fma.rn.f32 d, x, a, c;"
        yield f"mul.f32 y, a, b; mul.f32 x, y, {two}; add.rn.f32 d, x, y;"
        yield f"mul.f32 y, a, b; mov.b32 x, y; mul.f32 d, x, {two};"
        yield f"mov.b32 e, {two}; mul.f32 y, a, b; mul.f32 d, e, y;"
        yield f"mul.f32 y, a, {two}; mul.f32 d, y, b;"
        yield f"mul.f32 y, a, {two}; mul.f32 d, y, {two};"
        yield f"mul.f32 y, a, b; fma.rn.f32 d, y, {two}, c;"
        yield f"mul.f32 y, a, b; neg.f32 x, y; mul.f32 d, x, {two};"


def _others() -> Iterator[str]:
    """Invalid operations of constants, fields at the end of a word, and conversions of fields."""
    for name, operands in (("sub", "{0}, {0}"), ("mul", "{1}, {0}"), ("fma", "{1}, {0}, {1}"), ("div", "{1}, {1}")):
        yield f"{name}.rn.f64 v, {operands.format('0d7FF0000000000000', '0d0000000000000000')};"
        yield f"{name}.rn.f32 d, {operands.format('0f7F800000', '0f00000000')};"
    yield from (f"bfi.b32 d, a, b, {place}, {length};" for place in (0, 1, 30, 31) for length in (1, 31, 32, 33))
    for length in (8, 16):
        for place in (0, 8, 16):
            for sign, to in (("s", "u"), ("u", "s"), ("s", "s")):
                yield f"bfe.{sign}32 e, a, {place}, {length}; cvt.rp.f32.{to}32 d, e;"
    yield "bfe.s32 e, a, 0, 8; cvt.rn.f32.u32 d, e; xor.b32 d, d, e;"
    yield "bfe.s32 e, a, 0, 8; @P cvt.rn.f32.u32 d, e;"
    yield "bfe.s32 e, a, 0, 8; cvt.rn.f64.u32 v, e;"
    yield "bfe.s32 e, a, 0, 8; cvt.rn.f16.u32 h, e;"
    yield "cvt.s32.s8 e, a; cvt.rn.f32.u32 d, e;"


FORMS = (*_guarded(), *_by_one(), *_scaled(), *_others())


def form_text(number: int) -> str:
    """Write the kernel of a form."""
    return f""".version 8.6
.target sm_90
.address_size 64
.visible .entry f{number}(.param .u64 in, .param .u64 out)
{{
.reg .b64 p, o, z, v, w, u; .reg .b32 t, a, b, c, d, e; .reg .f32 x, y; .reg .b16 h, g, i; .reg .pred P, R;
.local .b32 m;
ld.param.u64 p, [in]; ld.param.u64 o, [out]; mov.u32 t, %tid.x;
and.b32 d, t, 127; mul.wide.u32 z, d, 4; add.u64 z, z, p; ld.global.u32 a, [z];
mad.lo.u32 d, t, 7, 3; and.b32 d, d, 127; mul.wide.u32 z, d, 4; add.u64 z, z, p; ld.global.u32 b, [z];
mul.lo.u32 d, t, 37; shr.u32 d, d, 1; and.b32 d, d, 127; mul.wide.u32 z, d, 4; add.u64 z, z, p; ld.global.u32 c, [z];
mov.b64 z, {{b, a}}; mov.b64 w, {{a, c}}; mov.b64 v, {{c, b}}; mov.b32 d, c; mov.b32 {{h, i}}, a; mov.b32 {{g, i}}, b;
shr.u32 e, t, 1; and.b32 e, e, 1; setp.ne.u32 P, e, 0; setp.gt.u32 R, a, c;
{FORMS[number]}
mul.wide.u32 z, t, 16; add.u64 o, o, z; st.global.u32 [o], d; st.global.u64 [o+4], v; mov.b32 d, {{h, h}};
@R xor.b32 d, d, 65536; st.global.u32 [o+12], d;
ret;
}}
""".replace("st.global.u64 [o+4], v;", "mov.b64 {a, b}, v; st.global.u32 [o+4], a; st.global.u32 [o+8], b;")


def form_arguments() -> list[np.ndarray[tuple[int], np.dtype[np.uint32]]]:
    """Give what a kernel gets: edges and floats whose products are of any size, and zeros that it writes to."""
    rng = np.random.default_rng(17)
    powers = rng.choice([-75, -64, -63, -62, -1, 0, 1, 62, 63, 64], 64)
    floats = (rng.uniform(-2, 2, 64) * 2.0**powers).astype(np.float32).view(np.uint32)
    return [np.concatenate([np.array(EDGES, np.uint32), floats]), np.zeros(THREADS * _WORDS, np.uint32)]
