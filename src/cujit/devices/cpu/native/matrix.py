"""How a tensor core sums: eight rows of A times eight columns of B, and C, in one alignment.

The rule, of an H200 (driver 580, November 2026), for all products and the accumulator that one instruction of the
machine adds to one element of D:

* E is the largest of the exponent of C and, for each product that is not 0, the *sum of the exponents of its factors*;
  a subnormal number has the least exponent of its own format, whatever its leading zeros are, and so has a C of 0, but
  for that of an f16 sum of 8-bit floats in ``wgmma``;
* every exact product, and C, is cut toward zero to a multiple of ``2 ** (E - width)``, and these are added exactly;
* the sum is cut toward zero to f32, or rounded to nearest even to f16. A result of 0 is +0; at ``2 ** 128`` begins
  infinity. One product or C that is infinite or NaN decides as in any IEEE sum, and NaN is 0x7fffffff (0x7fff).

``width`` is 25, and 13 for 8-bit floats in ``wgmma``, whose f32 results also lose their last ten bits.
Source: measured; recorded in ``tests/goldens/sums.npz``, where every result is equal bit for bit.
"""

from __future__ import annotations

import struct

__all__ = ["SYMBOLS", "matrix_text"]

SYMBOLS = ("cujit_matrix_sum",)
"""What emitted kernels call."""

_LANES = 32
_LEAST, _LARGEST = -51, 62
"""Exponents of factors between which every product, and what it is scaled by, is a normal f32."""


def matrix_text() -> str:
    """Write the IR of ``cujit_matrix_sum``.

    ``d`` is C as two vectors of f32, which become D: in lane ``4 * g + t`` the elements of row g and of columns
    ``2 * t`` and ``2 * t + 1``. ``a`` and ``b`` are so many strips and columns of f32. A ``floor`` is the least
    exponent of a format, as f32 has it in its bits, and ``zero.c`` that of a C of 0, or 0. Of the result's bits
    ``mask`` are kept; where something is cut off an f32, ``last`` is set in its last bit: with 1 it rounds to f16 as
    the sum itself does. A factor in A whose bits are ``absent`` is a zero that makes no NaN with an infinity.
    """
    return "\n".join((_HEAD, _powers(), _largest(), _scaled(), _LAST, _exactly(), _finish()))


def _spread(name: str, value: str, type_: str, lane: int) -> str:
    picks = ", ".join(f"i32 {k // 4 * 4 + lane}" for k in range(_LANES))
    return f"  %{name} = shufflevector <32 x {type_}> {value}, <32 x {type_}> poison, <32 x i32> <{picks}>"


def _repeat(name: str, pointer: str, offset: int, type_: str) -> str:
    picks = ", ".join(f"i32 {k % 4}" for k in range(_LANES))
    return f"""  %{name}.at = getelementptr i8, ptr {pointer}, i64 {offset}
  %{name}.four = load <4 x {type_}>, ptr %{name}.at, align {4 if type_ == "i8" else 16}
  %{name} = shufflevector <4 x {type_}> %{name}.four, <4 x {type_}> poison, <32 x i32> <{picks}>"""


_HEAD = f"""
declare <32 x i32> @llvm.umax.v32i32(<32 x i32>, <32 x i32>)
declare <32 x i8> @llvm.uadd.sat.v32i8(<32 x i8>, <32 x i8>)
declare <32 x i8> @llvm.umin.v32i8(<32 x i8>, <32 x i8>)
declare i32 @llvm.umax.i32(i32, i32)
declare i32 @llvm.smax.i32(i32, i32)
declare i32 @llvm.vector.reduce.umax.v32i32(<32 x i32>)
declare double @llvm.fabs.f64(double)

; How far below 2 ** {_LARGEST} the power of two is in each number, with the floor below: in bytes, of which 255 is 0;
; and the most of these but for zeros.
define internal <32 x i32> @matrix_power(ptr %from, ptr %to, i32 %floor, <32 x i32> %most) alwaysinline {{
  %x = load <32 x i32>, ptr %from, align 128
  %one.floor = insertelement <32 x i32> poison, i32 %floor, i64 0
  %floors = shufflevector <32 x i32> %one.floor, <32 x i32> poison, <32 x i32> zeroinitializer
  %size = and <32 x i32> %x, splat (i32 2147483647)
  %none = icmp eq <32 x i32> %size, zeroinitializer
  %own = and <32 x i32> %x, splat (i32 2139095040)
  %raised = call <32 x i32> @llvm.umax.v32i32(<32 x i32> %own, <32 x i32> %floors)
  %under = sub <32 x i32> splat (i32 {(127 + _LARGEST) << 23}), %raised
  %steps = lshr <32 x i32> %under, splat (i32 23)
  %known = select <32 x i1> %none, <32 x i32> splat (i32 255), <32 x i32> %steps
  %bytes = trunc <32 x i32> %known to <32 x i8>
  store <32 x i8> %bytes, ptr %to, align 32
  %counts = select <32 x i1> %none, <32 x i32> zeroinitializer, <32 x i32> %steps
  %more = call <32 x i32> @llvm.umax.v32i32(<32 x i32> %most, <32 x i32> %counts)
  ret <32 x i32> %more
}}

; The exponent of a number as f32 has it in its bits, with the floor below; far less for 0.
define internal i32 @matrix_exponent(float %x, i32 %floor) alwaysinline {{
  %bits = bitcast float %x to i32
  %size = and i32 %bits, 2147483647
  %none = icmp eq i32 %size, 0
  %own = and i32 %bits, 2139095040
  %raised = call i32 @llvm.umax.i32(i32 %own, i32 %floor)
  %biased = lshr i32 %raised, 23
  %known = select i1 %none, i32 -1000, i32 %biased
  ret i32 %known
}}

define void @cujit_matrix_sum(ptr %d, ptr %a, ptr %b, i32 %strips, i32 %floor.a, i32 %floor.b,
                              i32 %floor.c, i32 %zero.c, i32 %width, i32 %mask, i32 %last, i32 %absent) {{
entry:
  %powers.a = alloca [512 x i8], align 32
  %powers.b = alloca [512 x i8], align 32
  %sums = alloca [512 x i8], align 256
  %d1 = getelementptr i8, ptr %d, i64 128
  br label %powers
"""


def _powers() -> str:
    """Write the loop that finds all powers of two, and chooses the way."""
    return f"""
powers:
  %p.k = phi i32 [ 0, %entry ], [ %p.next, %powers ]
  %p.most = phi <32 x i32> [ zeroinitializer, %entry ], [ %p.most.b, %powers ]
  %p.from = shl i32 %p.k, 7
  %p.to = shl i32 %p.k, 5
  %p.a = getelementptr i8, ptr %a, i32 %p.from
  %p.b = getelementptr i8, ptr %b, i32 %p.from
  %p.a.to = getelementptr i8, ptr %powers.a, i32 %p.to
  %p.b.to = getelementptr i8, ptr %powers.b, i32 %p.to
  %p.most.a = call <32 x i32> @matrix_power(ptr %p.a, ptr %p.a.to, i32 %floor.a, <32 x i32> %p.most)
  %p.most.b = call <32 x i32> @matrix_power(ptr %p.b, ptr %p.b.to, i32 %floor.b, <32 x i32> %p.most.a)
  %p.next = add i32 %p.k, 1
  %p.more = icmp ult i32 %p.next, %strips
  br i1 %p.more, label %powers, label %choose
choose:
  %one.floor.c = insertelement <32 x i32> poison, i32 %floor.c, i64 0
  %floors.c = shufflevector <32 x i32> %one.floor.c, <32 x i32> poison, <32 x i32> zeroinitializer
  %one.zero.c = insertelement <32 x i32> poison, i32 %zero.c, i64 0
  %zeros.c = shufflevector <32 x i32> %one.zero.c, <32 x i32> poison, <32 x i32> zeroinitializer
{_power_of_c(0)}
{_power_of_c(1)}
  %pc = call <32 x i32> @llvm.umax.v32i32(<32 x i32> %pc0, <32 x i32> %pc1)
  %most.c = call i32 @llvm.vector.reduce.umax.v32i32(<32 x i32> %pc)
  %special.c = icmp eq i32 %most.c, 2139095040
  %furthest = call i32 @llvm.vector.reduce.umax.v32i32(<32 x i32> %p.most.b)
  %beyond = icmp ugt i32 %furthest, {_LARGEST - _LEAST}
  %slow = or i1 %beyond, %special.c
  br i1 %slow, label %exactly, label %largest
"""


def _power_of_c(p: int) -> str:
    return f"""  %bits.c{p} = load <32 x i32>, ptr %d{p or ""}, align 128
  %size.c{p} = and <32 x i32> %bits.c{p}, splat (i32 2147483647)
  %none.c{p} = icmp eq <32 x i32> %size.c{p}, zeroinitializer
  %own.c{p} = and <32 x i32> %bits.c{p}, splat (i32 2139095040)
  %raised.c{p} = call <32 x i32> @llvm.umax.v32i32(<32 x i32> %own.c{p}, <32 x i32> %floors.c)
  %pc{p} = select <32 x i1> %none.c{p}, <32 x i32> %zeros.c, <32 x i32> %raised.c{p}"""


def _largest() -> str:
    """Write the loop that finds, for each element, how far its largest product of powers of two is below the most."""
    lines = [
        """
largest:
  %l.k = phi i32 [ 0, %choose ], [ %l.next, %largest ]
  %l.t0 = phi <32 x i8> [ splat (i8 -1), %choose ], [ %l.end0, %largest ]
  %l.t1 = phi <32 x i8> [ splat (i8 -1), %choose ], [ %l.end1, %largest ]
  %l.far = shl i32 %l.k, 5
  %l.a = getelementptr i8, ptr %powers.a, i32 %l.far
  %l.b = getelementptr i8, ptr %powers.b, i32 %l.far
  %l.x = load <32 x i8>, ptr %l.a, align 32"""
    ]
    for j in range(4):
        lines.append(_spread(f"l.x{j}", "%l.x", "i8", j))
        for p in range(2):
            n = f"l{j}{p}"
            before = f"%l.t{p}" if j == 0 else f"%l{j - 1}{p}.min"
            after = f"l.end{p}" if j == 3 else f"{n}.min"
            lines.append(_repeat(f"{n}.y", "%l.b", 4 * (2 * j + p), "i8"))
            lines.append(f"  %{n}.sum = call <32 x i8> @llvm.uadd.sat.v32i8(<32 x i8> %l.x{j}, <32 x i8> %{n}.y)")
            lines.append(f"  %{after} = call <32 x i8> @llvm.umin.v32i8(<32 x i8> {before}, <32 x i8> %{n}.sum)")
    lines.append("""  %l.next = add i32 %l.k, 1
  %l.more = icmp ult i32 %l.next, %strips
  br i1 %l.more, label %largest, label %scale""")
    return "\n".join(lines)


def _scale_of(p: int) -> str:
    """Write the power of two of each element's alignment, and what brings the last place that counts to 1."""
    return f"""  %below{p} = zext <32 x i8> %l.end{p} to <32 x i32>
  %none{p} = icmp eq <32 x i8> %l.end{p}, splat (i8 -1)
  %exponent{p} = sub <32 x i32> splat (i32 {127 + 2 * _LARGEST}), %below{p}
  %power{p} = shl <32 x i32> %exponent{p}, splat (i32 23)
  %of.products{p} = select <32 x i1> %none{p}, <32 x i32> splat (i32 {(127 + 2 * _LEAST) << 23}), <32 x i32> %power{p}
  %m{p} = call <32 x i32> @llvm.umax.v32i32(<32 x i32> %of.products{p}, <32 x i32> %pc{p})
  %scale.bits{p} = sub <32 x i32> %tops, %m{p}
  %scale{p} = bitcast <32 x i32> %scale.bits{p} to <32 x float>"""


def _scaled() -> str:
    """Write the loop that scales every product to units of the last place, cuts it and adds it."""
    lines = [
        f"""
scale:
  %top = add i32 %width, 254
  %top.bits = shl i32 %top, 23
  %top.one = insertelement <32 x i32> poison, i32 %top.bits, i64 0
  %tops = shufflevector <32 x i32> %top.one, <32 x i32> poison, <32 x i32> zeroinitializer
{_scale_of(0)}
{_scale_of(1)}
  br label %add
add:
  %a.k = phi i32 [ 0, %scale ], [ %a.next, %add ]
  %a.t0 = phi <32 x i32> [ zeroinitializer, %scale ], [ %add.end0, %add ]
  %a.t1 = phi <32 x i32> [ zeroinitializer, %scale ], [ %add.end1, %add ]
  %a.far = shl i32 %a.k, 7
  %a.a = getelementptr i8, ptr %a, i32 %a.far
  %a.b = getelementptr i8, ptr %b, i32 %a.far
  %a.x = load <32 x float>, ptr %a.a, align 128"""
    ]
    for j in range(4):
        lines.append(_spread(f"a.x{j}", "%a.x", "float", j))
        for p in range(2):
            n = f"a{j}{p}"
            before = f"%a.t{p}" if j == 0 else f"%a{j - 1}{p}.sum"
            after = f"add.end{p}" if j == 3 else f"{n}.sum"
            lines.append(_repeat(f"{n}.y", "%a.b", 16 * (2 * j + p), "float"))
            lines.append(f"""  %{n}.f = fmul <32 x float> %a.x{j}, %{n}.y
  %{n}.s = fmul <32 x float> %{n}.f, %scale{p}
  %{n}.i = fptosi <32 x float> %{n}.s to <32 x i32>
  %{after} = add <32 x i32> {before}, %{n}.i""")
    lines.append("""  %a.next = add i32 %a.k, 1
  %a.more = icmp ult i32 %a.next, %strips
  br i1 %a.more, label %add, label %ending""")
    return "\n".join(lines)


def _last_of(p: int) -> str:
    """Write how the sum of one half of the columns becomes a number, in f64; of C alone, C."""
    return f"""
  %c{p} = bitcast <32 x i32> %bits.c{p} to <32 x float>
  %c{p}.s = fmul <32 x float> %c{p}, %scale{p}
  %c{p}.i = fptosi <32 x float> %c{p}.s to <32 x i32>
  %c{p}.f = sitofp <32 x i32> %c{p}.i to <32 x double>
  %s{p}.f = sitofp <32 x i32> %add.end{p} to <32 x double>
  %t{p} = fadd <32 x double> %s{p}.f, %c{p}.f
  %m{p}.f = bitcast <32 x i32> %m{p} to <32 x float>
  %m{p}.d = fpext <32 x float> %m{p}.f to <32 x double>
  %unit{p} = fmul <32 x double> %m{p}.d, %units
  %v{p} = fmul <32 x double> %t{p}, %unit{p}
  %c{p}.d = fpext <32 x float> %c{p} to <32 x double>
  %c{p}.plus = fadd <32 x double> %c{p}.d, zeroinitializer
  %w{p} = select <32 x i1> %none{p}, <32 x double> %c{p}.plus, <32 x double> %v{p}
  %sums.at{p} = getelementptr i8, ptr %sums, i64 {256 * p}
  store <32 x double> %w{p}, ptr %sums.at{p}, align 256"""


_LAST = f"""
ending:
  %wide = zext i32 %width to i64
  %down = sub i64 1023, %wide
  %unit.bits = shl i64 %down, 52
  %unit.one = bitcast i64 %unit.bits to double
  %unit.v = insertelement <32 x double> poison, double %unit.one, i64 0
  %units = shufflevector <32 x double> %unit.v, <32 x double> poison, <32 x i32> zeroinitializer
{_last_of(0)}
{_last_of(1)}
  br label %finish
"""


def _exactly() -> str:
    """Write the way that takes all numbers: for each element alone, in f64 and 64-bit integers."""
    return f"""
exactly:
  br label %element
element:
  %i = phi i32 [ 0, %exactly ], [ %i.next, %have ]
  %group = and i32 %i, 28
  %thread = and i32 %i, 3
  %side = and i32 %i, 32
  %c.at = getelementptr float, ptr %d, i32 %i
  %c = load float, ptr %c.at
  %c.biased = call i32 @matrix_exponent(float %c, i32 %floor.c)
  %c.zero = lshr i32 %zero.c, 23
  %c.most = call i32 @llvm.smax.i32(i32 %c.biased, i32 %c.zero)
  %e.c.some = sub i32 %c.most, 127
  %c.d = fpext float %c to double
  %half.b = lshr i32 %side, 3
  %column = add i32 %half.b, %thread
  %count = shl i32 %strips, 2
  br label %first
first:
  %f.k = phi i32 [ 0, %element ], [ %f.next, %first ]
  %f.e = phi i32 [ %e.c.some, %element ], [ %f.most, %first ]
  %f.plain = phi double [ %c.d, %element ], [ %f.plain.next, %first ]
  %f.strip = lshr i32 %f.k, 2
  %f.j = and i32 %f.k, 3
  %f.start = shl i32 %f.strip, 5
  %f.a.lane = or i32 %group, %f.j
  %f.b.row = shl i32 %f.j, 3
  %f.b.lane = add i32 %f.b.row, %column
  %f.a.i = add i32 %f.start, %f.a.lane
  %f.b.i = add i32 %f.start, %f.b.lane
  %f.a.at = getelementptr float, ptr %a, i32 %f.a.i
  %f.b.at = getelementptr float, ptr %b, i32 %f.b.i
  %f.a = load float, ptr %f.a.at
  %f.b = load float, ptr %f.b.at
  %f.ea = call i32 @matrix_exponent(float %f.a, i32 %floor.a)
  %f.eb = call i32 @matrix_exponent(float %f.b, i32 %floor.b)
  %f.e.both = add i32 %f.ea, %f.eb
  %f.e.own = sub i32 %f.e.both, 254
  %f.most = call i32 @llvm.smax.i32(i32 %f.e, i32 %f.e.own)
  %f.a.d = fpext float %f.a to double
  %f.b.d = fpext float %f.b to double
  %f.product = fmul double %f.a.d, %f.b.d
  %f.with = fadd double %f.plain, %f.product
  %f.a.bits = bitcast float %f.a to i32
  %f.absent = icmp eq i32 %f.a.bits, %absent
  %f.plain.next = select i1 %f.absent, double %f.plain, double %f.with
  %f.next = add i32 %f.k, 1
  %f.more = icmp ult i32 %f.next, %count
  br i1 %f.more, label %first, label %known
known:
  %plain.size = call double @llvm.fabs.f64(double %f.plain.next)
  %is.number = fcmp olt double %plain.size, 0x7FF0000000000000
  br i1 %is.number, label %cut, label %have
cut:
  %up = sub i32 %width, %f.most
  %up.biased = add i32 %up, 1023
  %up.wide = zext i32 %up.biased to i64
  %up.bits = shl i64 %up.wide, 52
  %up.by = bitcast i64 %up.bits to double
  %c.up = fmul double %c.d, %up.by
  %c.whole = fptosi double %c.up to i64
  br label %second
second:
  %s.k = phi i32 [ 0, %cut ], [ %s.next, %second ]
  %s.sum = phi i64 [ %c.whole, %cut ], [ %s.total, %second ]
  %s.strip = lshr i32 %s.k, 2
  %s.j = and i32 %s.k, 3
  %s.start = shl i32 %s.strip, 5
  %s.a.lane = or i32 %group, %s.j
  %s.b.row = shl i32 %s.j, 3
  %s.b.lane = add i32 %s.b.row, %column
  %s.a.i = add i32 %s.start, %s.a.lane
  %s.b.i = add i32 %s.start, %s.b.lane
  %s.a.at = getelementptr float, ptr %a, i32 %s.a.i
  %s.b.at = getelementptr float, ptr %b, i32 %s.b.i
  %s.a = load float, ptr %s.a.at
  %s.b = load float, ptr %s.b.at
  %s.a.d = fpext float %s.a to double
  %s.b.d = fpext float %s.b to double
  %s.product = fmul double %s.a.d, %s.b.d
  %s.a.bits = bitcast float %s.a to i32
  %s.absent = icmp eq i32 %s.a.bits, %absent
  %s.own = select i1 %s.absent, double 0.0, double %s.product
  %s.up = fmul double %s.own, %up.by
  %s.whole = fptosi double %s.up to i64
  %s.total = add i64 %s.sum, %s.whole
  %s.next = add i32 %s.k, 1
  %s.more = icmp ult i32 %s.next, %count
  br i1 %s.more, label %second, label %added
added:
  %back = sub i64 2046, %up.wide
  %back.bits = shl i64 %back, 52
  %back.by = bitcast i64 %back.bits to double
  %added.f = sitofp i64 %s.total to double
  %added.v = fmul double %added.f, %back.by
  %added.size = call double @llvm.fabs.f64(double %added.v)
  %is.small = fcmp olt double %added.size, {_hex(2.0**-126)}
  br i1 %is.small, label %small, label %have
small:
  %small.up = fmul double %added.v, {_hex(2.0**149)}
  %small.i = fptosi double %small.up to i64
  %small.f = sitofp i64 %small.i to double
  %small.v = fmul double %small.f, {_hex(2.0**-149)}
  br label %have
have:
  %value = phi double [ %f.plain.next, %known ], [ %added.v, %added ], [ %small.v, %small ]
  %value.at = getelementptr double, ptr %sums, i32 %i
  store double %value, ptr %value.at
  %i.next = add i32 %i, 1
  %i.more = icmp ult i32 %i.next, 64
  br i1 %i.more, label %element, label %finish
"""


def _hex(value: float) -> str:
    """Write an f64 as LLVM reads it exactly."""
    return f"0x{struct.unpack('>Q', struct.pack('>d', value))[0]:016X}"


_CUT = (1 << 29) - 1
"""Bits of an f64 below those of an f32."""


def _finish() -> str:
    """Write how sums in f64 become f32: cut, with the last bit set for the rest where they round on to f16."""
    return f"""
finish:
  %mask.one = insertelement <32 x i32> poison, i32 %mask, i64 0
  %masks = shufflevector <32 x i32> %mask.one, <32 x i32> poison, <32 x i32> zeroinitializer
  %last.wide = zext i32 %last to i64
  %last.bit = shl i64 %last.wide, 29
  %last.one = insertelement <32 x i64> poison, i64 %last.bit, i64 0
  %lasts = shufflevector <32 x i64> %last.one, <32 x i64> poison, <32 x i32> zeroinitializer
{_finish_of(0)}
{_finish_of(1)}
  ret void
}}
"""


def _finish_of(p: int) -> str:
    return f"""  %f{p}.at = getelementptr i8, ptr %sums, i64 {256 * p}
  %f{p} = load <32 x i64>, ptr %f{p}.at, align 256
  %f{p}.kept = and <32 x i64> %f{p}, splat (i64 {~_CUT})
  %f{p}.rest = and <32 x i64> %f{p}, splat (i64 {_CUT})
  %f{p}.inexact = icmp ne <32 x i64> %f{p}.rest, zeroinitializer
  %f{p}.last = select <32 x i1> %f{p}.inexact, <32 x i64> %lasts, <32 x i64> zeroinitializer
  %f{p}.bits = or <32 x i64> %f{p}.kept, %f{p}.last
  %f{p}.d = bitcast <32 x i64> %f{p}.bits to <32 x double>
  %f{p}.f = fptrunc <32 x double> %f{p}.d to <32 x float>
  %f{p}.i = bitcast <32 x float> %f{p}.f to <32 x i32>
  %f{p}.masked = and <32 x i32> %f{p}.i, %masks
  %f{p}.nan = fcmp uno <32 x float> %f{p}.f, zeroinitializer
  %f{p}.out = select <32 x i1> %f{p}.nan, <32 x i32> splat (i32 2147483647), <32 x i32> %f{p}.masked
  store <32 x i32> %f{p}.out, ptr %d{p or ""}, align 128"""
