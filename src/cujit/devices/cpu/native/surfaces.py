"""One surface instruction of one lane, as LLVM IR."""

from __future__ import annotations

from cujit.devices.cpu.native.exchange import BOUNDS, OPERATIONS, Exchange
from cujit.devices.cpu.native.faultkinds import FaultKind
from cujit.devices.cpu.native.sampling import format_number
from cujit.devices.cpu.program import WARP
from cujit.devices.cpu.textures import SURFACE_MARK

__all__ = ["surfaces_text"]

_SURFACE_LANE = f"""
define internal ptr @texture_value(ptr %data, i32 %lane, i32 %k) {{
  %all = getelementptr i8, ptr %data, i64 {Exchange.values.offset}
  %row = mul i32 %k, {WARP}
  %n = add i32 %row, %lane
  %at = getelementptr i64, ptr %all, i32 %n
  ret ptr %at
}}

define internal void @texture_answer(ptr %data, i32 %lane, i32 %k, i64 %word) {{
  %at = call ptr @texture_value(ptr %data, i32 %lane, i32 %k)
  store i64 %word, ptr %at
  ret void
}}

; Clamp to 0 … %last.
define internal i64 @texture_into(i64 %i, i64 %last) {{
  %over = icmp sgt i64 %i, %last
  %high = select i1 %over, i64 %last, i64 %i
  %under = icmp slt i64 %high, 0
  %low = select i1 %under, i64 0, i64 %high
  ret i64 %low
}}

; %unit is the size that x counts in (0: elements). The access has %count times %bytes bytes, of an element for
; `format`.
define internal void @surface_lane(
    ptr %where, ptr %data, i32 %lane, i32 %operation, i32 %axes, i1 %layered, i32 %unit, i32 %bytes, i32 %count,
    i32 %bounds) {{
  %handle = lane i64 handle
  %d = call ptr @texture_described(ptr %where, i32 %lane, i64 %handle, i64 {SURFACE_MARK})
  %layer = lane i32 layer
  %x.word = lane i32 x
  %y.word = lane i32 y
  %z.word = lane i32 z
  %width = field i32 width
  %height = field i32 height
  %depth = field i32 depth
  %texel = field i32 texel_bytes
  %base = field i64 base
  %row = field i64 row
  %slice = field i64 slice
  %by.texel = icmp eq i32 %unit, 0
  %scale = select i1 %by.texel, i32 %texel, i32 %unit
  %scale.wide = zext i32 %scale to i64
  %x.wide = sext i32 %x.word to i64
  %x = mul i64 %x.wide, %scale.wide
  %plane = icmp uge i32 %axes, 2
  %y.or.none = select i1 %plane, i32 %y.word, i32 0
  %y = sext i32 %y.or.none to i64
  %solid = icmp eq i32 %axes, 3
  %z.or.none = select i1 %solid, i32 %z.word, i32 0
  %z.wide = sext i32 %z.or.none to i64
  %layer.wide = zext i32 %layer to i64
  %z = select i1 %layered, i64 %layer.wide, i64 %z.wide
  %wanted = mul i32 %bytes, %count
  %size = select i1 %by.texel, i32 %texel, i32 %wanted
  %size.wide = zext i32 %size to i64
  %width.wide = zext i32 %width to i64
  %texel.wide = zext i32 %texel to i64
  %row.bytes = mul i64 %width.wide, %texel.wide
  %x.last = sub i64 %row.bytes, %size.wide
  %height.wide = zext i32 %height to i64
  %y.last = sub i64 %height.wide, 1
  %depth.wide = zext i32 %depth to i64
  %z.last = sub i64 %depth.wide, 1
  %x.near = call i64 @texture_into(i64 %x, i64 %x.last)
  %y.near = call i64 @texture_into(i64 %y, i64 %y.last)
  %z.near = call i64 @texture_into(i64 %z, i64 %z.last)
  %y.offset = mul i64 %y.near, %row
  %z.offset = mul i64 %z.near, %slice
  %yz.offset = add i64 %y.offset, %z.offset
  %offset = add i64 %yz.offset, %x.near
  %place = add i64 %base, %offset
  %at = inttoptr i64 %place to ptr
  %x.inside = icmp eq i64 %x, %x.near
  %y.inside = icmp eq i64 %y, %y.near
  %z.inside = icmp eq i64 %z, %z.near
  %fits = icmp sge i64 %x.last, 0
  %xy.inside = and i1 %x.inside, %y.inside
  %xyz.inside = and i1 %xy.inside, %z.inside
  %inside = and i1 %xyz.inside, %fits
  %below = sub i64 %size.wide, 1
  %odd = and i64 %x.near, %below
  %aligned = icmp eq i64 %odd, 0
  br i1 %inside, label %good, label %outside
outside:
  %clamps = icmp eq i32 %bounds, {BOUNDS.index("clamp")}
  %clamps.in = and i1 %clamps, %fits
  br i1 %clamps.in, label %good, label %beyond
beyond:
  %drops = icmp eq i32 %bounds, {BOUNDS.index("zero")}
  br i1 %drops, label %nothing, label %trap
nothing:
  call void @texture_answer(ptr %data, i32 %lane, i32 0, i64 0)
  call void @texture_answer(ptr %data, i32 %lane, i32 1, i64 0)
  call void @texture_answer(ptr %data, i32 %lane, i32 2, i64 0)
  call void @texture_answer(ptr %data, i32 %lane, i32 3, i64 0)
  ret void
trap:
  call void @texture_fault(ptr %where, i32 %lane, i32 {int(FaultKind.TRAP)}, i64 %place)
  unreachable
good:
  br i1 %aligned, label %go, label %misaligned
misaligned:
  call void @texture_fault(ptr %where, i32 %lane, i32 {int(FaultKind.MISALIGNED)}, i64 %place)
  unreachable
go:
  switch i32 %operation, label %reduce [
    i32 {OPERATIONS.index("load")}, label %load i32 {OPERATIONS.index("store")}, label %store
    i32 {OPERATIONS.index("format")}, label %format ]
load:
  call void @surface_load(ptr %data, i32 %lane, ptr %at, i32 %bytes, i32 %count)
  ret void
store:
  call void @surface_store(ptr %data, i32 %lane, ptr %at, i32 %bytes, i32 %count)
  ret void
format:
  call void @texture_format(ptr %d, ptr %data, i32 %lane, ptr %at, i32 %count)
  ret void
reduce:
  %kind = call i32 @texture_signed_or_not(ptr %d, i32 %operation)
  call void @surface_reduce(ptr %data, i32 %lane, ptr %at, i32 %bytes, i32 %kind)
  ret void
}}

; What min or max of the surface's own format is.
define internal i32 @texture_signed_or_not(ptr %d, i32 %operation) {{
  %format = field i32 format
  %odd = and i32 %format, 1
  %signed = icmp ne i32 %odd, 0
  %least = icmp eq i32 %operation, {OPERATIONS.index("min")}
  %most = icmp eq i32 %operation, {OPERATIONS.index("max")}
  %min = select i1 %signed, i32 {OPERATIONS.index("smin")}, i32 {OPERATIONS.index("umin")}
  %max = select i1 %signed, i32 {OPERATIONS.index("smax")}, i32 {OPERATIONS.index("umax")}
  %one = select i1 %most, i32 %max, i32 %operation
  %result = select i1 %least, i32 %min, i32 %one
  ret i32 %result
}}

; Words to a whole element, converted to its format; integers are clamped, and channels that did not come are 0.
define internal void @texture_format(ptr %d, ptr %data, i32 %lane, ptr %at, i32 %count) noinline {{
  %format = field i32 format
  %channels = field i32 channels
  br label %each
each:
  %k = phi i32 [ 0, %0 ], [ %k.next, %stored ]
  %has = icmp ult i32 %k, %count
  %value.at = call ptr @texture_value(ptr %data, i32 %lane, i32 %k)
  %wide = load i64, ptr %value.at
  %came = trunc i64 %wide to i32
  %word = select i1 %has, i32 %came, i32 0
  switch i32 %format, label %as.word [
    i32 {format_number("uint8")}, label %as.u8 i32 {format_number("int8")}, label %as.s8
    i32 {format_number("uint16")}, label %as.u16 i32 {format_number("int16")}, label %as.s16
    i32 {format_number("float16")}, label %as.f16 ]
as.u8:
  %u8.in = call i32 @llvm.umin.i32(i32 %word, i32 255)
  br label %byte
as.s8:
  %s8.high = call i32 @llvm.smin.i32(i32 %word, i32 127)
  %s8.in = call i32 @llvm.smax.i32(i32 %s8.high, i32 -128)
  br label %byte
byte:
  %byte.wide = phi i32 [ %u8.in, %as.u8 ], [ %s8.in, %as.s8 ]
  %byte.narrow = trunc i32 %byte.wide to i8
  %byte.at = getelementptr i8, ptr %at, i32 %k
  store i8 %byte.narrow, ptr %byte.at
  br label %stored
as.u16:
  %u16.in = call i32 @llvm.umin.i32(i32 %word, i32 65535)
  br label %short
as.s16:
  %s16.high = call i32 @llvm.smin.i32(i32 %word, i32 32767)
  %s16.in = call i32 @llvm.smax.i32(i32 %s16.high, i32 -32768)
  br label %short
as.f16:
  %float = bitcast i32 %word to float
  %half = fptrunc float %float to half
  %half.bits = bitcast half %half to i16
  %half.wide = zext i16 %half.bits to i32
  br label %short
short:
  %short.wide = phi i32 [ %u16.in, %as.u16 ], [ %s16.in, %as.s16 ], [ %half.wide, %as.f16 ]
  %short.narrow = trunc i32 %short.wide to i16
  %short.at = getelementptr i16, ptr %at, i32 %k
  store i16 %short.narrow, ptr %short.at
  br label %stored
as.word:
  %word.at = getelementptr i32, ptr %at, i32 %k
  store i32 %word, ptr %word.at
  br label %stored
stored:
  %k.next = add i32 %k, 1
  %more = icmp ult i32 %k.next, %channels
  br i1 %more, label %each, label %end
end:
  ret void
}}
"""


def surfaces_text() -> str:
    """Write the IR."""
    return "\n".join((_SURFACE_LANE, _moves(), _reductions()))


def _moves() -> str:
    """Loads and stores of 1 to 4 neighbouring elements of each size."""
    texts = []
    for name in ("load", "store"):
        cases = [_move(name, bits) for bits in (8, 16, 32, 64)]
        labels = " ".join(f"i32 {bits // 8}, label %b{bits}" for bits in (8, 16, 32, 64))
        texts.append(f"""
define internal void @surface_{name}(ptr %data, i32 %lane, ptr %at, i32 %bytes, i32 %count) noinline {{
  br label %each
each:
  %k = phi i32 [ 0, %0 ], [ %k.next, %next ]
  %value.at = call ptr @texture_value(ptr %data, i32 %lane, i32 %k)
  switch i32 %bytes, label %next [ {labels} ]
{"".join(cases)}next:
  %k.next = add i32 %k, 1
  %more = icmp ult i32 %k.next, %count
  br i1 %more, label %each, label %end
end:
  ret void
}}
""")
    return "".join(texts)


def _move(name: str, bits: int) -> str:
    n, t = f"%b{bits}", f"i{bits}"
    place = f"b{bits}:\n  {n}.at = getelementptr {t}, ptr %at, i32 %k\n"
    if name == "load":
        wide = f"  {n}.wide = zext {t} {n}.raw to i64\n" if bits < 64 else f"  {n}.wide = add i64 {n}.raw, 0\n"
        body = f"  {n}.raw = load {t}, ptr {n}.at\n{wide}  store i64 {n}.wide, ptr %value.at\n"
    else:
        body = f"  {n}.raw = load {t}, ptr %value.at\n  store {t} {n}.raw, ptr {n}.at\n"
    return f"{place}{body}  br label %next\n"


def _reductions() -> str:
    """Atomic operations on words of 32 and 64 bits. The low half of a value is its first word."""
    steps = {"add": "add", "and": "and", "or": "or", "smin": "min", "umin": "umin", "smax": "max", "umax": "umax"}
    labels, cases = [], []
    for bits in (32, 64):
        for name, step in steps.items():
            here = f"{name}{bits}"
            labels.append(f"i32 {OPERATIONS.index(name) * 16 + bits // 8}, label %{here}")
            cases.append(f"{here}:\n  atomicrmw {step} ptr %at, i{bits} %v{bits} monotonic\n  ret void\n")
    return f"""
define internal void @surface_reduce(ptr %data, i32 %lane, ptr %at, i32 %bytes, i32 %operation) noinline {{
  %value.at = call ptr @texture_value(ptr %data, i32 %lane, i32 0)
  %v64 = load i64, ptr %value.at
  %v32 = trunc i64 %v64 to i32
  %high = shl i32 %operation, 4
  %case = or i32 %high, %bytes
  switch i32 %case, label %none [ {" ".join(labels)} ]
{"".join(cases)}none:
  unreachable
}}
"""
