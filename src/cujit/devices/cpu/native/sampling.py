"""Where a coordinate lies along an axis, and what an element there holds, as LLVM IR."""

from __future__ import annotations

import math
import struct

from cujit.devices.cpu.textures import FORMATS, Descriptor

__all__ = ["format_number", "sampling_text"]


def sampling_text() -> str:
    """Write the IR: taps of an axis, and the words of an element."""
    return "\n".join((_srgb_table(), _AXES, _TEXELS))


def format_number(name: str) -> int:
    """Number of a dtype as ``Descriptor.format`` has it."""
    return FORMATS.index(name)


# -- coordinates ------------------------------------------------------------------------------------------

# A tap of an axis is { index, next index, weight of the next in 1/256 }; index -1 is outside, where the border is.
# Sources: CUDA C++ Programming Guide, "Texture Fetching": i = floor(x), or of x - 0.5 with the fraction in 8 bits for
# linear filtering; "Texture Memory": what each addressing mode reads. Coordinates are handled in f64, where x times
# a size is exact.
_AXES = """
%texture.tap = type [3 x i32]
declare double @llvm.floor.f64(double)
declare i32 @llvm.smin.i32(i32, i32)
declare i32 @llvm.smax.i32(i32, i32)
declare i32 @llvm.umin.i32(i32, i32)

define internal i32 @texture_resolve(i32 %mode, i32 %size, i32 %i) {
  switch i32 %mode, label %clamp [ i32 0, label %wrap i32 2, label %mirror i32 3, label %border ]
wrap:
  %w = srem i32 %i, %size
  %w.up = add i32 %w, %size
  %w.low = icmp slt i32 %w, 0
  %wrapped = select i1 %w.low, i32 %w.up, i32 %w
  ret i32 %wrapped
mirror:
  %period = shl i32 %size, 1
  %m = srem i32 %i, %period
  %m.up = add i32 %m, %period
  %m.low = icmp slt i32 %m, 0
  %m.in = select i1 %m.low, i32 %m.up, i32 %m
  %m.last = sub i32 %period, 1
  %m.back = sub i32 %m.last, %m.in
  %mirrored = call i32 @llvm.smin.i32(i32 %m.in, i32 %m.back)
  ret i32 %mirrored
border:
  %inside = icmp ult i32 %i, %size
  %kept = select i1 %inside, i32 %i, i32 -1
  ret i32 %kept
clamp:
  %last = sub i32 %size, 1
  %high = call i32 @llvm.smin.i32(i32 %i, i32 %last)
  %clamped = call i32 @llvm.smax.i32(i32 %high, i32 0)
  ret i32 %clamped
}

; Where a normalised coordinate lies in a texture of that size; whole periods are taken off first.
define internal double @texture_scaled(double %x, i32 %mode, double %size) {
  switch i32 %mode, label %scale [ i32 0, label %wrap i32 2, label %mirror ]
wrap:
  %turns = call double @llvm.floor.f64(double %x)
  %fraction = fsub double %x, %turns
  br label %scale
mirror:
  %half = fmul double %x, 0.5
  %pairs = call double @llvm.floor.f64(double %half)
  %whole = fmul double %pairs, 2.0
  %rest = fsub double %x, %whole
  br label %scale
scale:
  %within = phi double [ %x, %0 ], [ %fraction, %wrap ], [ %rest, %mirror ]
  %result = fmul double %within, %size
  ret double %result
}

define internal void @texture_float_tap(
    i32 %word, i32 %shift, i32 %size, i32 %mode, i32 %normalized, i1 %linear, ptr %tap) noinline {
  %narrow = bitcast i32 %word to float
  %x = fpext float %narrow to double
  %is.normalized = icmp ne i32 %normalized, 0
  br i1 %is.normalized, label %scale, label %ready
scale:
  %size.f = sitofp i32 %size to double
  %in.texels = call double @texture_scaled(double %x, i32 %mode, double %size.f)
  br label %ready
ready:
  %u = phi double [ %x, %0 ], [ %in.texels, %scale ]
  %above = fcmp oge double %u, -1.0e9
  %u.low = select i1 %above, double %u, double -1.0e9
  %below = fcmp ole double %u.low, 1.0e9
  %u.high = select i1 %below, double %u.low, double 1.0e9
  %number = fcmp ord double %u, 0.0
  %u.in = select i1 %number, double %u.high, double 0.0
  br i1 %linear, label %between, label %nearest
nearest:
  %floor = call double @llvm.floor.f64(double %u.in)
  %nearest.i = fptosi double %floor to i32
  br label %done
between:
  %parts = fmul double %u.in, 256.0
  %parts.back = fsub double %parts, 127.5
  %parts.floor = call double @llvm.floor.f64(double %parts.back)
  %fixed = fptosi double %parts.floor to i64
  %fixed.i = ashr i64 %fixed, 8
  %between.i = trunc i64 %fixed.i to i32
  %fixed.w = and i64 %fixed, 255
  %between.w = trunc i64 %fixed.w to i32
  br label %done
done:
  %base = phi i32 [ %nearest.i, %nearest ], [ %between.i, %between ]
  %weight = phi i32 [ 0, %nearest ], [ %between.w, %between ]
  %i = add i32 %base, %shift
  %i.next = add i32 %i, 1
  %first = call i32 @texture_resolve(i32 %mode, i32 %size, i32 %i)
  %second = call i32 @texture_resolve(i32 %mode, i32 %size, i32 %i.next)
  ; Beyond the edge both are the edge, and the weight is that of the clamped place: it counts where weights are rounded.
  %clamps = icmp eq i32 %mode, 1
  %one = icmp eq i32 %first, %second
  %beyond = and i1 %clamps, %one
  %weight.used = select i1 %beyond, i32 0, i32 %weight
  call void @texture_set_tap(ptr %tap, i32 %first, i32 %second, i32 %weight.used)
  ret void
}

; An element number: what lies outside reads as zeros.
define internal void @texture_whole_tap(i32 %word, i32 %shift, i32 %size, ptr %tap) {
  %i = add i32 %word, %shift
  %inside = icmp ult i32 %i, %size
  %kept = select i1 %inside, i32 %i, i32 -1
  call void @texture_set_tap(ptr %tap, i32 %kept, i32 -1, i32 0)
  ret void
}

define internal void @texture_set_tap(ptr %tap, i32 %first, i32 %second, i32 %weight) {
  store i32 %first, ptr %tap
  %second.at = getelementptr %texture.tap, ptr %tap, i32 0, i32 1
  store i32 %second, ptr %second.at
  %weight.at = getelementptr %texture.tap, ptr %tap, i32 0, i32 2
  store i32 %weight, ptr %weight.at
  ret void
}
"""

# -- elements ---------------------------------------------------------------------------------------------


def _bits_of(value: float) -> str:
    """Write a float so that LLVM reads it exactly: as the bits of a double."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


# The linear values of codes that are not the transfer function's, rounded to 8 bits.
_SRGB_ODD = {
    12: 60 / 2**14, 15: 78 / 2**14, 19: 107 / 2**14, 20: 115 / 2**14, 32: 236 / 2**14, 33: 250 / 2**14,
    65: 864 / 2**14, 66: 896 / 2**14, 68: 236 / 2**12, 70: 1000 / 2**14, 97: 1952 / 2**14, 184: 123 / 256,
    186: 126 / 256, 249: 242 / 256, 250: 244 / 256, 251: 246 / 256, 252: 250 / 256, 253: 252 / 256,
}  # fmt: skip


def _linear(code: int) -> float:
    """Decode sRGB as an H200 does: to 8 bits, with a line of slope 5/64 for small codes.

    Source: measured on all 256 codes. IEC 61966-2-1, the transfer function.
    """
    if code < 12:
        return code * 5 / 2**14
    value = code / 255
    linear: float = ((value + 0.055) / 1.055) ** 2.4
    unit: float = 2.0 ** (math.frexp(linear)[1] - 8)
    return _SRGB_ODD.get(code, round(linear / unit) * unit)


def _srgb_table() -> str:
    """The linear value of each sRGB code."""
    items = ", ".join(f"float {_bits_of(_linear(code))}" for code in range(256))
    return f"@texture_srgb = internal constant [256 x float] [{items}]"


# A channel as the word that the instruction returns. Normalised floats: CUDA C++ Programming Guide, "Texture Memory":
# unsigned integers are mapped to 0…1, signed ones to -1…1; the smallest one is -1 too.
_TEXELS = f"""
declare float @llvm.maxnum.f32(float, float)

define internal i32 @texture_as_unit(i32 %word, float %most, i1 %clamped) {{
  %f = sitofp i32 %word to float
  %part = fdiv float %f, %most
  %high = call float @llvm.maxnum.f32(float %part, float -1.0)
  %used = select i1 %clamped, float %high, float %part
  %bits = bitcast float %used to i32
  ret i32 %bits
}}

define internal i32 @texture_channel(ptr %d, ptr %at, i32 %index, i1 %clamped) noinline {{
  %format = field i32 format
  %as.float = field i32 as_float
  %unit = icmp ne i32 %as.float, 0
  switch i32 %format, label %wide [
    i32 {format_number("uint8")}, label %u8 i32 {format_number("int8")}, label %s8
    i32 {format_number("uint16")}, label %u16 i32 {format_number("int16")}, label %s16
    i32 {format_number("float16")}, label %f16 ]
u8:
  %u8.at = getelementptr i8, ptr %at, i32 %index
  %u8.raw = load i8, ptr %u8.at
  %u8.word = zext i8 %u8.raw to i32
  %srgb = field i32 srgb
  %coded = icmp ne i32 %srgb, 0
  %color = icmp ult i32 %index, 3
  %decode = and i1 %coded, %color
  br i1 %decode, label %table, label %narrow
table:
  %entry.at = getelementptr float, ptr @texture_srgb, i32 %u8.word
  %entry = load i32, ptr %entry.at
  ret i32 %entry
s8:
  %s8.at = getelementptr i8, ptr %at, i32 %index
  %s8.raw = load i8, ptr %s8.at
  %s8.word = sext i8 %s8.raw to i32
  br label %narrow
u16:
  %u16.at = getelementptr i16, ptr %at, i32 %index
  %u16.raw = load i16, ptr %u16.at
  %u16.word = zext i16 %u16.raw to i32
  br label %narrow
s16:
  %s16.at = getelementptr i16, ptr %at, i32 %index
  %s16.raw = load i16, ptr %s16.at
  %s16.word = sext i16 %s16.raw to i32
  br label %narrow
f16:
  %f16.at = getelementptr half, ptr %at, i32 %index
  %f16.raw = load half, ptr %f16.at
  %f16.wide = fpext half %f16.raw to float
  %f16.word = bitcast float %f16.wide to i32
  ret i32 %f16.word
wide:
  %wide.at = getelementptr i32, ptr %at, i32 %index
  %wide.word = load i32, ptr %wide.at
  ret i32 %wide.word
narrow:
  %word = phi i32 [ %u8.word, %u8 ], [ %s8.word, %s8 ], [ %u16.word, %u16 ], [ %s16.word, %s16 ]
  %most = phi float [ 255.0, %u8 ], [ 127.0, %s8 ], [ 65535.0, %u16 ], [ 32767.0, %s16 ]
  br i1 %unit, label %scale, label %plain
scale:
  %scaled = call i32 @texture_as_unit(i32 %word, float %most, i1 %clamped)
  ret i32 %scaled
plain:
  ret i32 %word
}}

; The four words of an element; -1 along an axis reads the border (or zeros, %whole). Channels that are not there are 0.
; What is filtered is clamped to -1 afterwards only.
define internal void @texture_texel(
    ptr %d, i32 %x, i32 %y, i32 %z, i1 %whole, i1 %clamped, ptr %out) noinline {{
  store [4 x i32] zeroinitializer, ptr %out
  %xy = or i32 %x, %y
  %xyz = or i32 %xy, %z
  %outside = icmp slt i32 %xyz, 0
  br i1 %outside, label %missing, label %there
missing:
  br i1 %whole, label %end, label %border
border:
  %border.at = getelementptr i8, ptr %d, i64 {Descriptor.border.offset}
  %colors = load [4 x i32], ptr %border.at
  store [4 x i32] %colors, ptr %out
  br label %end
there:
  %base = field i64 base
  %row = field i64 row
  %slice = field i64 slice
  %bytes = field i32 texel_bytes
  %x.wide = zext i32 %x to i64
  %bytes.wide = zext i32 %bytes to i64
  %x.bytes = mul i64 %x.wide, %bytes.wide
  %y.wide = zext i32 %y to i64
  %z.wide = zext i32 %z to i64
  %y.bytes = mul i64 %y.wide, %row
  %z.bytes = mul i64 %z.wide, %slice
  %xy.bytes = add i64 %x.bytes, %y.bytes
  %offset = add i64 %xy.bytes, %z.bytes
  %place = add i64 %base, %offset
  %at = inttoptr i64 %place to ptr
  %channels = field i32 channels
  br label %each
each:
  %c = phi i32 [ 0, %there ], [ %c.next, %each ]
  %word = call i32 @texture_channel(ptr %d, ptr %at, i32 %c, i1 %clamped)
  %out.at = getelementptr i32, ptr %out, i32 %c
  store i32 %word, ptr %out.at
  %c.next = add i32 %c, 1
  %more = icmp ult i32 %c.next, %channels
  br i1 %more, label %each, label %end
end:
  ret void
}}
"""
