"""Forms of PTX that only recorded programs have: an H200 says what they compute, and no interpreter of the tests does.

The letters are those of ``ptx_programs``, and ``v`` and ``V`` for a register with a part of it, ``RP`` for two results.
"""

from __future__ import annotations

__all__ = ["EDGES", "MORE", "SUMS"]

_MORE = """
(vadd|vsub|vabsdiff|vmin|vmax).(u32|s32).(u32|s32).(u32|s32|u32.sat|s32.sat) R,v,v
(vadd|vsub|vabsdiff|vmin|vmax).(u32|s32).(u32|s32).(u32|s32|u32.sat|s32.sat) V,v,v,w
(vadd|vsub|vabsdiff|vmin|vmax).(u32|s32).(u32|s32).(u32|s32|u32.sat|s32.sat).(add|min|max) R,v,v,w
(vshl|vshr).(u32|s32).(u32|s32).u32.(|sat.)(clamp|wrap) R,v,v
(vshl|vshr).(u32|s32).(u32|s32).u32.(|sat.)(clamp|wrap) V,v,v,w
(vshl|vshr).(u32|s32).(u32|s32).u32.(|sat.)(clamp|wrap).(add|min|max) R,v,v,w
vset.(u32|s32).(u32|s32).(eq|ne|lt|le|gt|ge) R,v,v
vset.(u32|s32).(u32|s32).(eq|ne|lt|le|gt|ge) V,v,v,w
vset.(u32|s32).(u32|s32).(eq|ne|lt|le|gt|ge).(add|min|max) R,v,v,w
vmad.(u32|s32).(u32|s32).(u32|s32)(|.po)(|.sat)(|.shr7|.shr15) R,v,v,w
(vadd|vsub|vavrg|vabsdiff|vmin|vmax)(2|4).(u32|s32).(u32|s32).(u32|s32|u32.sat|s32.sat|u32.add|s32.add) R,w,w,w
vset(2|4).(u32|s32).(u32|s32).(eq|ne|lt|le|gt|ge)(|.add) R,w,w,w
(add|min|max).(u16x2|s16x2) R,w,w
min.relu.s32 R,w,w
max.relu.(s32|s16x2) R,w,w
lop3.(or|and).b32 RP,w,w,w,b,p
cvt.pack.sat.(u4|s4|u2|s2).s32.b32 R,r,r,r
cvt.rn.satfinite.(|relu.)(e4m3x2|e5m2x2).f32 H,f,f
cvt.rn.satfinite.(|relu.)(e4m3x2|e5m2x2).f16x2 H,w
cvt.rn.(|relu.)f16x2.(e4m3x2|e5m2x2) R,h
cvt.(rna|rn|rz|rn.relu|rz.relu).tf32.f32 R,f
cvt.(rni|rzi|rmi|rpi).f16.f16 H,h #f16
cvt.(rni|rzi|rmi|rpi).f64.f64 Q,d #f64
cvt.(rn|rz|rm|rp).bf16.(u32|s32) H,r
cvt.(rn|rz|rm|rp).(f16|bf16).(u16|s16) H,h
cvt.(rn|rz|rm|rp).(f16|bf16).(u64|s64) H,q
cvt.(rni|rzi|rmi|rpi).(u32|s32).bf16 R,h
cvt.(rni|rzi|rmi|rpi).(u64|s64).f16 Q,h
cvt.(rni|rzi|rmi|rpi).(u16|s16).(f16|bf16) H,h
cvt.(rni|rzi|rmi|rpi).(u8|s8).f32 R,f
cvt.(rn|rz|rm|rp).f16.f64 H,d #f16
cvt.(rn|rz|rm|rp).(|sat.)f16.f32 H,f #f16
cvt.f64.f16 Q,h #f64
cvt.(rni|rzi|rmi|rpi).(ftz.|sat.)f32.f32 R,f
cvt.(|ftz.|sat.|ftz.sat.)f32.f32 R,f #f32
fma.rn.oob.(|relu.)(f16|bf16) H,h,h,h
fma.rn.oob.(|relu.)(f16x2|bf16x2) R,w,w,w
fma.rn.(|relu.)(f16|bf16) H,h,h,h
(min|max).(|NaN.)(|xorsign.abs.)(f16x2|bf16x2) R,w,w
(abs|neg).f16x2 R,w
bfe.(u64|s64) Q,q,w,w
bfi.b64 Q,q,q,w,w
"""
_SUMS = """
(mul|add|sub).f32 R,f,f
(mul|add|sub).f32 R,w,w
(mul|mul|add|sub).f32 R,w,w
(mul|add|sub).(|ftz.|rn.)f32 R,w,w
(add|sub).sat.f32 R,w,w
(mul|add|sub).f64 Q,d,d
(mul|add|sub).(f16|bf16) H,h,h
(mul|add|sub).(f16|bf16) H,h,h
(mul|add|sub).(f16x2|bf16x2) R,w,w
fma.rn.(f32|f16x2) R,w,w,w
neg.f32 R,w
neg.(f16|bf16) H,h
neg.f64 Q,d
mov.b32 R,w
mov.b64 Q,d
mov.b16 H,h
"""
MORE, SUMS = (tuple(tuple(line.split()) for line in text.strip().splitlines()) for text in (_MORE, _SUMS))
EDGES = (
    0x00000000, 0x00000001, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF, 0xFFFFFFFE, 0x7FFFFFFE,
    0x00007FFF, 0x00008000, 0x0000FFFF, 0x00010000, 0x7FFF8000, 0x80007FFF, 0xFF80007F, 0x80FF7F01,
    0x0000001F, 0x00000020, 0x00000021, 0x0000003F, 0x00000040, 0x000000FF, 0x00000100, 0xFFFF0000,
    0x3F800000, 0xBF800000, 0x00800000, 0x007FFFFF, 0x80000003, 0x7F7FFFFF, 0x7F800000, 0xFF800000,
    0x7FC00000, 0x7FFFFFFF, 0xFF800001, 0x4F000000, 0xCF000000, 0x4F7FFFFF, 0x4F800000, 0x5F000000,
    0x3F000000, 0x3FC00000, 0x40200000, 0xBF000000, 0x4B000001, 0x4B7FFFFF, 0x33800000, 0x34000000,
    0x04000400, 0x03FF0001, 0x7BFFFBFF, 0x7C00FC00, 0x7E00FE01, 0x00018001, 0x3C003C01, 0x3F803F81,
    0x7FF00000, 0xFFF00000, 0x7FF80000, 0x00100000, 0x000FFFFF, 0x7FEFFFFF, 0x41DFFFFF, 0x43E00000,
)  # fmt: skip
"""Edges: of integers of 8, 16, 32 and 64 bits, of shifts and fields, and of numbers of every format."""
