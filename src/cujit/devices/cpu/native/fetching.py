"""One texture instruction of one lane, as LLVM IR: the nearest element, the mean of the neighbours, or all four."""

from __future__ import annotations

from cujit.devices.cpu.native.sampling import format_number
from cujit.devices.cpu.textures import TEXTURE_MARK

__all__ = ["fetching_text"]

_FETCHING = """
; The mean of the eight neighbours, by weights of 8 bits each; those of weight 0 are not looked at.
define internal void @texture_filtered(ptr %d, ptr %taps, ptr %out) noinline {
  %sums = alloca [4 x double]
  %colors = alloca [4 x i32]
  store [4 x double] zeroinitializer, ptr %sums
  %most = call double @texture_most(ptr %d)
  %is.integer = fcmp ogt double %most, 0.0
  br label %each
each:
  %n = phi i32 [ 0, %0 ], [ %n.next, %next ]
  %sx = and i32 %n, 1
  %n.half = lshr i32 %n, 1
  %sy = and i32 %n.half, 1
  %sz = lshr i32 %n, 2
  %w = call i32 @texture_weight(ptr %taps, i32 %sx, i32 %sy, i32 %sz)
  %none = icmp eq i32 %w, 0
  br i1 %none, label %next, label %add
add:
  %x = call i32 @texture_index(ptr %taps, i32 0, i32 %sx)
  %y = call i32 @texture_index(ptr %taps, i32 1, i32 %sy)
  %z = call i32 @texture_index(ptr %taps, i32 2, i32 %sz)
  call void @texture_texel(ptr %d, i32 %x, i32 %y, i32 %z, i1 false, i1 false, ptr %colors)
  %w.whole = uitofp i32 %w to double
  %w.part = fmul double %w.whole, 0x3F70000000000000 ; 2^-8
  br label %channel
channel:
  %c = phi i32 [ 0, %add ], [ %c.next, %channel ]
  %color.at = getelementptr float, ptr %colors, i32 %c
  %color = load float, ptr %color.at
  %color.wide = fpext float %color to double
  %color.units = fmul double %color.wide, %most
  %color.integer = call double @llvm.rint.f64(double %color.units)
  %color.used = select i1 %is.integer, double %color.integer, double %color.wide
  %part = fmul double %color.used, %w.part
  %sum.at = getelementptr double, ptr %sums, i32 %c
  %sum = load double, ptr %sum.at
  %sum.next = fadd double %sum, %part
  store double %sum.next, ptr %sum.at
  %c.next = add i32 %c, 1
  %c.more = icmp ult i32 %c.next, 4
  br i1 %c.more, label %channel, label %next
next:
  %n.next = add i32 %n, 1
  %n.more = icmp ult i32 %n.next, 8
  br i1 %n.more, label %each, label %round
round:
  %k = phi i32 [ 0, %next ], [ %k.next, %round ]
  %total.at = getelementptr double, ptr %sums, i32 %k
  %total = load double, ptr %total.at
  %rounded = call float @texture_rounded(double %total, double %most)
  %out.at = getelementptr float, ptr %out, i32 %k
  store float %rounded, ptr %out.at
  %k.next = add i32 %k, 1
  %k.more = icmp ult i32 %k.next, 4
  br i1 %k.more, label %round, label %end
end:
  ret void
}

declare double @llvm.rint.f64(double)

; The integer that 1.0 stands for, of integers that are read as floats; else 0. sRGB codes are no integers.
define internal double @texture_most(ptr %d) {
  %format = field i32 format
  %as.float = field i32 as_float
  %srgb = field i32 srgb
  %unit = icmp ne i32 %as.float, 0
  %plain = icmp eq i32 %srgb, 0
  %scaled = and i1 %unit, %plain
  br i1 %scaled, label %find, label %none
find:
  switch i32 %format, label %none [ @INTEGERS@ ]
@RETURNS@
none:
  ret double 0.0
}

; A mean as the float that is returned. Integers are filtered as such, and rounded half up to 1/65535 or, signed, to
; 1/32767. Source: measured on an H200; there 1 in 60 means of int8 is one such step lower.
define internal float @texture_rounded(double %total, double %most) {
  %is.integer = fcmp ogt double %most, 0.0
  br i1 %is.integer, label %integer, label %float
integer:
  %is.s8 = fcmp oeq double %most, 127.0
  %is.s16 = fcmp oeq double %most, 32767.0
  %is.signed = or i1 %is.s8, %is.s16
  %steps = select i1 %is.signed, double 32767.0, double 65535.0
  %scaled = fmul double %total, %steps
  %units = fdiv double %scaled, %most
  %half = fadd double %units, 0.5
  %whole = call double @llvm.floor.f64(double %half)
  %whole.f = fptrunc double %whole to float
  %steps.f = fptrunc double %steps to float
  %part = fdiv float %whole.f, %steps.f
  %high = call float @llvm.maxnum.f32(float %part, float -1.0)
  ret float %high
float:
  %rounded = fptrunc double %total to float
  ret float %rounded
}

; The weight of one neighbour in 1/256; those of all eight add up to 256. First x and z are combined, then y, each time
; rounded to 8 bits: half up, but half down in the first column. Source: measured on an H200, all cases of the tests.
define internal i32 @texture_weight(ptr %taps, i32 %sx, i32 %sy, i32 %sz) {
  %x.at = getelementptr %texture.tap, ptr %taps, i32 0, i32 2
  %y.at = getelementptr %texture.tap, ptr %taps, i32 1, i32 2
  %z.at = getelementptr %texture.tap, ptr %taps, i32 2, i32 2
  %x = load i32, ptr %x.at
  %y = load i32, ptr %y.at
  %z = load i32, ptr %z.at
  %xz.both = mul i32 %x, %z
  %xz.half = add i32 %xz.both, 128
  %xz = lshr i32 %xz.half, 8
  %second = icmp ne i32 %sx, 0
  %behind = icmp ne i32 %sz, 0
  %x.rest = sub i32 256, %x
  %column = select i1 %second, i32 %x, i32 %x.rest
  %z.rest = sub i32 %z, %xz
  %far = select i1 %second, i32 %xz, i32 %z.rest
  %near = sub i32 %column, %far
  %slice = select i1 %behind, i32 %far, i32 %near
  %lower.both = mul i32 %slice, %y
  %half.up = add i32 %sx, 127
  %lower.half = add i32 %lower.both, %half.up
  %lower = lshr i32 %lower.half, 8
  %upper = sub i32 %slice, %lower
  %is.lower = icmp ne i32 %sy, 0
  %result = select i1 %is.lower, i32 %lower, i32 %upper
  ret i32 %result
}

define internal i32 @texture_index(ptr %taps, i32 %axis, i32 %second) {
  %at = getelementptr %texture.tap, ptr %taps, i32 %axis, i32 %second
  %i = load i32, ptr %at
  ret i32 %i
}

; One component of the four neighbours, counter-clockwise from the lower left. Source: PTX ISA 9.1, "tld4".
define internal void @texture_gathered(ptr %d, ptr %taps, i32 %component, ptr %out) noinline {
  %colors = alloca [4 x i32]
  br label %each
each:
  %n = phi i32 [ 0, %0 ], [ %n.next, %each ]
  %n.half = lshr i32 %n, 1
  %sy = xor i32 %n.half, 1
  %n.up = add i32 %n, 1
  %n.up.half = lshr i32 %n.up, 1
  %sx = and i32 %n.up.half, 1
  %x = call i32 @texture_index(ptr %taps, i32 0, i32 %sx)
  %y = call i32 @texture_index(ptr %taps, i32 1, i32 %sy)
  %z = call i32 @texture_index(ptr %taps, i32 2, i32 0)
  call void @texture_texel(ptr %d, i32 %x, i32 %y, i32 %z, i1 false, i1 true, ptr %colors)
  %color.at = getelementptr i32, ptr %colors, i32 %component
  %color = load i32, ptr %color.at
  %out.at = getelementptr i32, ptr %out, i32 %n
  store i32 %color, ptr %out.at
  %n.next = add i32 %n, 1
  %more = icmp ult i32 %n.next, 4
  br i1 %more, label %each, label %end
end:
  ret void
}

declare float @llvm.fabs.f32(float)

; The face of a cube that a direction meets; %x.out and %y.out take the coordinates on it, from 0 to 1.
; Source: CUDA C++ Programming Guide, "Cubemap Textures", the table of faces.
define internal i32 @texture_face(float %x, float %y, float %z, ptr %x.out, ptr %y.out) noinline {
  %ax = call float @llvm.fabs.f32(float %x)
  %ay = call float @llvm.fabs.f32(float %y)
  %az = call float @llvm.fabs.f32(float %z)
  %x.to.y = fcmp oge float %ax, %ay
  %x.to.z = fcmp oge float %ax, %az
  %along.x = and i1 %x.to.y, %x.to.z
  %y.to.z = fcmp oge float %ay, %az
  %minus.x = fneg float %x
  %minus.y = fneg float %y
  %minus.z = fneg float %z
  br i1 %along.x, label %on.x, label %not.x
on.x:
  %x.back = fcmp olt float %x, 0.0
  %x.face = select i1 %x.back, i32 1, i32 0
  %x.s = select i1 %x.back, float %z, float %minus.z
  br label %found
not.x:
  br i1 %y.to.z, label %on.y, label %on.z
on.y:
  %y.back = fcmp olt float %y, 0.0
  %y.face = select i1 %y.back, i32 3, i32 2
  %y.t = select i1 %y.back, float %minus.z, float %z
  br label %found
on.z:
  %z.back = fcmp olt float %z, 0.0
  %z.face = select i1 %z.back, i32 5, i32 4
  %z.s = select i1 %z.back, float %minus.x, float %x
  br label %found
found:
  %face = phi i32 [ %x.face, %on.x ], [ %y.face, %on.y ], [ %z.face, %on.z ]
  %m = phi float [ %ax, %on.x ], [ %ay, %on.y ], [ %az, %on.z ]
  %s = phi float [ %x.s, %on.x ], [ %x, %on.y ], [ %z.s, %on.z ]
  %t = phi float [ %minus.y, %on.x ], [ %y.t, %on.y ], [ %minus.y, %on.z ]
  %s.part = fdiv float %s, %m
  %t.part = fdiv float %t, %m
  %s.up = fadd float %s.part, 1.0
  %t.up = fadd float %t.part, 1.0
  %s.unit = fmul float %s.up, 0.5
  %t.unit = fmul float %t.up, 0.5
  store float %s.unit, ptr %x.out
  store float %t.unit, ptr %y.out
  ret i32 %face
}

; The tap of one axis; %whole tells that the coordinate is an element number.
define internal void @texture_axis(
    ptr %d, i32 %word, i32 %shift, i32 %size, i32 %mode, i1 %whole, i1 %linear, ptr %tap) {
  %normalized = field i32 normalized
  br i1 %whole, label %number, label %float
number:
  call void @texture_whole_tap(i32 %word, i32 %shift, i32 %size, ptr %tap)
  ret void
float:
  call void @texture_float_tap(i32 %word, i32 %shift, i32 %size, i32 %mode, i32 %normalized, i1 %linear, ptr %tap)
  ret void
}

; %layered tells that there is a layer, %cube that x, y and z are a direction; %gather is a component, or -1.
define internal void @texture_fetch(
    ptr %d, ptr %data, i32 %lane, i32 %axes, i1 %layered, i1 %cube, i1 %whole, i32 %gather, ptr %out) noinline {
  %taps = alloca [3 x %texture.tap]
  %x.place = alloca i32
  %y.place = alloca i32
  %layer = lane i32 layer
  %x = lane i32 x
  %y = lane i32 y
  %z = lane i32 z
  %dx = lane i32 dx
  %dy = lane i32 dy
  %dz = lane i32 dz
  %width = field i32 width
  %height = field i32 height
  %depth = field i32 depth
  %mode.x = field i32 address_0
  %mode.y = field i32 address_1
  %mode.z = field i32 address_2
  %filter = field i32 filter
  %depth.last = sub i32 %depth, 1
  %smooth = icmp ne i32 %filter, 0
  %gathers = icmp sge i32 %gather, 0
  %smooth.or.gathers = or i1 %smooth, %gathers
  %not.whole = xor i1 %whole, true
  %linear = and i1 %smooth.or.gathers, %not.whole
  store i32 %x, ptr %x.place
  store i32 %y, ptr %y.place
  %layer.or.none = select i1 %layered, i32 %layer, i32 0
  br i1 %cube, label %project, label %flat
project:
  %x.f = bitcast i32 %x to float
  %y.f = bitcast i32 %y to float
  %z.f = bitcast i32 %z to float
  %face = call i32 @texture_face(float %x.f, float %y.f, float %z.f, ptr %x.place, ptr %y.place)
  %cubes = udiv i32 %depth, 6
  %cubes.last = sub i32 %cubes, 1
  %cube.index = call i32 @llvm.umin.i32(i32 %layer.or.none, i32 %cubes.last)
  %cube.first = mul i32 %cube.index, 6
  %cube.layer = add i32 %cube.first, %face
  br label %placed
flat:
  %flat.layer = call i32 @llvm.umin.i32(i32 %layer.or.none, i32 %depth.last)
  br label %placed
placed:
  %level.any = phi i32 [ %cube.layer, %project ], [ %flat.layer, %flat ]
  %level.in = call i32 @llvm.umin.i32(i32 %level.any, i32 %depth.last) ; a texture that is no cube has fewer
  ; By element numbers, a layer beyond the last reads zeros. Source: measured on an H200.
  %level.beyond = icmp ugt i32 %layer.or.none, %depth.last
  %level.missing = and i1 %level.beyond, %whole
  %level = select i1 %level.missing, i32 -1, i32 %level.in
  %x.word = load i32, ptr %x.place
  %y.word = load i32, ptr %y.place
  %tap.y = getelementptr %texture.tap, ptr %taps, i32 1
  %tap.z = getelementptr %texture.tap, ptr %taps, i32 2
  call void @texture_set_tap(ptr %tap.y, i32 0, i32 0, i32 0)
  call void @texture_set_tap(ptr %tap.z, i32 %level, i32 %level, i32 0)
  call void @texture_axis(ptr %d, i32 %x.word, i32 %dx, i32 %width, i32 %mode.x, i1 %whole, i1 %linear, ptr %taps)
  %plane = icmp uge i32 %axes, 2
  br i1 %plane, label %along.y, label %line
line:
  ; A line is a plane of height 1 that is read at y = 0, between its only row and what is before it: with a border, a
  ; filtered line is half the border. Its elements have no numbers. Source: measured on an H200.
  %is.row = xor i1 %layered, true
  br i1 %is.row, label %row, label %ready
row:
  %in.place = field i32 linear_memory
  %has.numbers = icmp ne i32 %in.place, 0
  %no.numbers = xor i1 %has.numbers, true
  %row.missing = and i1 %whole, %no.numbers
  %row.index = select i1 %row.missing, i32 -1, i32 0
  call void @texture_set_tap(ptr %tap.y, i32 %row.index, i32 %row.index, i32 0)
  br i1 %whole, label %ready, label %row.float
row.float:
  call void @texture_axis(ptr %d, i32 0, i32 0, i32 %height, i32 %mode.y, i1 false, i1 %linear, ptr %tap.y)
  br label %ready
along.y:
  call void @texture_axis(ptr %d, i32 %y.word, i32 %dy, i32 %height, i32 %mode.y, i1 %whole, i1 %linear, ptr %tap.y)
  %solid = icmp eq i32 %axes, 3
  br i1 %solid, label %along.z, label %ready
along.z:
  call void @texture_axis(ptr %d, i32 %z, i32 %dz, i32 %depth, i32 %mode.z, i1 %whole, i1 %linear, ptr %tap.z)
  br label %ready
ready:
  br i1 %gathers, label %gather.them, label %sample
gather.them:
  call void @texture_gathered(ptr %d, ptr %taps, i32 %gather, ptr %out)
  ret void
sample:
  br i1 %linear, label %mean, label %one
mean:
  call void @texture_filtered(ptr %d, ptr %taps, ptr %out)
  ret void
one:
  %i = call i32 @texture_index(ptr %taps, i32 0, i32 0)
  %j = call i32 @texture_index(ptr %taps, i32 1, i32 0)
  %k = call i32 @texture_index(ptr %taps, i32 2, i32 0)
  call void @texture_texel(ptr %d, i32 %i, i32 %j, i32 %k, i1 %whole, i1 true, ptr %out)
  ret void
}

define internal void @texture_lane(
    ptr %where, ptr %data, i32 %lane, i32 %axes, i1 %layered, i1 %cube, i1 %whole, i32 %gather) {
  %out = alloca [4 x i32]
  %handle = lane i64 handle
  %d = call ptr @texture_described(ptr %where, i32 %lane, i64 %handle, i64 @TEXTURE@)
  call void @texture_fetch(
    ptr %d, ptr %data, i32 %lane, i32 %axes, i1 %layered, i1 %cube, i1 %whole, i32 %gather, ptr %out)
  br label %each
each:
  %k = phi i32 [ 0, %0 ], [ %k.next, %each ]
  %word.at = getelementptr i32, ptr %out, i32 %k
  %word = load i32, ptr %word.at
  %wide = zext i32 %word to i64
  call void @texture_answer(ptr %data, i32 %lane, i32 %k, i64 %wide)
  %k.next = add i32 %k, 1
  %more = icmp ult i32 %k.next, 4
  br i1 %more, label %each, label %end
end:
  ret void
}
"""


def fetching_text() -> str:
    """Write the IR of one lane's lookup."""
    most = {"uint8": 255, "int8": 127, "uint16": 65535, "int16": 32767}
    integers = " ".join(f"i32 {format_number(name)}, label %{name}" for name in most)
    returns = "\n".join(f"{name}:\n  ret double {value}.0" for name, value in most.items())
    replaced = _FETCHING.replace("@INTEGERS@", integers).replace("@RETURNS@", returns)
    return replaced.replace("@TEXTURE@", str(TEXTURE_MARK))
