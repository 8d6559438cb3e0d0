"""The checks as native code: what emitted kernels call for each access and each synchronisation.

A warp has a ``Place`` on its stack, which says where it runs and takes the lanes' addresses. A block has a piece of
memory behind the shared memory of the blocks that run side by side: a ``Tracker`` (the clocks of its warps), one byte
for each byte of shared memory that says whether it was written, and an ``Entry`` for each with its last accesses.

"""

from __future__ import annotations

import ctypes
import re

from cujit.devices.cpu.native.checkmemory import INIT, MEMORY
from cujit.devices.cpu.native.checkraces import CLOCKS, RACES
from cujit.devices.cpu.native.checkstate import (
    CLUSTER_BARRIER,
    OBJECTS,
    PATTERN,
    SLOTS,
    Access,
    Code,
    Entry,
    Place,
    Record,
    Slot,
    Space,
    Span,
    Tracker,
    Watch,
    checks_bits,
)
from cujit.devices.cpu.native.checksync import SYNC
from cujit.devices.cpu.native.faultkinds import FaultKind
from cujit.devices.cpu.native.lanes import with_lanes
from cujit.devices.cpu.native.state import WARPS, with_offsets

__all__ = ["SYMBOLS", "checks_text"]

SYMBOLS = (
    "cujit_check_access",
    "cujit_check_same",
    "cujit_check_filled",
    "cujit_check_cleared",
    "cujit_check_arrive",
    "cujit_check_pass",
    "cujit_check_synced",
    "cujit_check_members",
    "cujit_check_origins",
    "cujit_check_barrier",
    "cujit_check_malloc",
    "cujit_check_free",
)
"""What emitted kernels call."""

# -- failing, and where things are ------------------------------------------------------------------------

_FAIL = """
declare i32 @llvm.cttz.i32(i32, i1)
declare ptr @llvm.frameaddress.p0(i32)
declare ptr @llvm.returnaddress(i32)
declare ptr @realloc(ptr, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
@pattern = internal constant [16 x i8] @PATTERN@

define internal void @fail(ptr %place, i32 %kind, i32 %lane, i32 %line, i64 %address, i64 %size, i32 %flags, i32 %code,
                           i32 %other.thread, i32 %other.line, i64 %extra) noreturn noinline {
entry:
  %launch.at = getelementptr i8, ptr %place, i64 #Place.launch
  %launch = load ptr, ptr %launch.at
  %first = call i1 @cujit_claim(ptr %launch, i32 %kind)
  br i1 %first, label %tell, label %stop
tell:
  %block.at = getelementptr i8, ptr %place, i64 #Place.block
  %block = load i64, ptr %block.at
  %thread.at = getelementptr i8, ptr %place, i64 #Place.first
  %thread.first = load i32, ptr %thread.at
  %thread = add i32 %thread.first, %lane
  call void @cujit_fault_here(ptr %launch, i64 %block, i32 %thread, i32 %line, i64 %address)
  %more = getelementptr i8, ptr %launch, i64 #Launch.fault_more
  store i64 %size, ptr %more
  %flags.wide = zext i32 %flags to i64
  %more.flags = getelementptr i64, ptr %more, i64 1
  store i64 %flags.wide, ptr %more.flags
  %code.wide = zext i32 %code to i64
  %more.code = getelementptr i64, ptr %more, i64 2
  store i64 %code.wide, ptr %more.code
  %other.wide = zext i32 %other.thread to i64
  %more.thread = getelementptr i64, ptr %more, i64 3
  store i64 %other.wide, ptr %more.thread
  %line.wide = zext i32 %other.line to i64
  %more.line = getelementptr i64, ptr %more, i64 4
  store i64 %line.wide, ptr %more.line
  %more.extra = getelementptr i64, ptr %more, i64 5
  store i64 %extra, ptr %more.extra
  br label %stop
stop:
  call void @cujit_stop()
  unreachable
}

define internal i64 @field(ptr %place, i64 %offset) alwaysinline {
  %at = getelementptr i8, ptr %place, i64 %offset
  %value = load i64, ptr %at
  ret i64 %value
}

define internal i32 @word(ptr %place, i64 %offset) alwaysinline {
  %at = getelementptr i8, ptr %place, i64 %offset
  %value = load i32, ptr %at
  ret i32 %value
}

define internal ptr @watch(ptr %place) alwaysinline {
  %at = getelementptr i8, ptr %place, i64 #Place.watch
  %value = load ptr, ptr %at
  ret ptr %value
}

; Whether `size` bytes at `offset` lie within `limit`.
define internal i1 @within(i64 %offset, i64 %size, i64 %limit) alwaysinline {
  %begins = icmp ule i64 %offset, %limit
  %left = sub i64 %limit, %offset
  %fits = icmp ule i64 %size, %left
  %good = and i1 %begins, %fits
  ret i1 %good
}

; The tracker of a block, by its place among those that run side by side.
define internal ptr @piece(ptr %place, i64 %side) {
  %watch = call ptr @watch(ptr %place)
  %group = call i64 @field(ptr %place, i64 #Place.group)
  %behind = call i64 @field(ptr %watch, i64 #Watch.shared_total)
  %bytes = call i64 @field(ptr %watch, i64 #Watch.piece_bytes)
  %offset = mul i64 %side, %bytes
  %base = add i64 %group, %behind
  %at = add i64 %base, %offset
  %piece = inttoptr i64 %at to ptr
  ret ptr %piece
}

; Where the emitted code says that it is may be a new warp, a new block, a new launch: make their memory ready.
define internal void @enter(ptr %place) alwaysinline {
entry:
  %launch.at = getelementptr i8, ptr %place, i64 #Place.launch
  %launch = load ptr, ptr %launch.at
  %poked.at = getelementptr i8, ptr %launch, i64 #Launch.poked
  %poked = load volatile i32, ptr %poked.at
  %asked = icmp ne i32 %poked, 0
  br i1 %asked, label %pause, label %look
pause:
  ; Before the instruction behind the call.
  %back = call ptr @llvm.returnaddress(i32 0)
  %back.int = ptrtoint ptr %back to i64
  %pc = sub i64 %back.int, 1
  call void @cujit_pause(ptr %launch, i64 %pc)
  br label %look
look:
  %block = call i64 @field(ptr %place, i64 #Place.block)
  %seen = call i64 @field(ptr %place, i64 #Place.seen_block)
  %warp = call i32 @word(ptr %place, i64 #Place.warp)
  %seen.warp = call i32 @word(ptr %place, i64 #Place.seen_warp)
  %same.block = icmp eq i64 %block, %seen
  %same.warp = icmp eq i32 %warp, %seen.warp
  %same = and i1 %same.block, %same.warp
  br i1 %same, label %out, label %begin
begin:
  call void @begin(ptr %place, i64 %block, i32 %warp)
  br label %out
out:
  ret void
}

define internal void @begin(ptr %place, i64 %block, i32 %warp) noinline {
entry:
  %seen.at = getelementptr i8, ptr %place, i64 #Place.seen_block
  store i64 %block, ptr %seen.at
  %seen.warp.at = getelementptr i8, ptr %place, i64 #Place.seen_warp
  store i32 %warp, ptr %seen.warp.at
  %first = shl i32 %warp, 5
  %first.at = getelementptr i8, ptr %place, i64 #Place.first
  store i32 %first, ptr %first.at
  %launch.at = getelementptr i8, ptr %place, i64 #Place.launch
  %launch = load ptr, ptr %launch.at
  %watch.at = getelementptr i8, ptr %launch, i64 #Launch.checks
  %watch = load ptr, ptr %watch.at
  %own.watch = getelementptr i8, ptr %place, i64 #Place.watch
  store ptr %watch, ptr %own.watch
  %state.at = getelementptr i8, ptr %place, i64 #Place.state
  %state = load ptr, ptr %state.at
  ; Blocks whose warps have no stacks run one after the other, in the same shared memory.
  %alone = icmp eq ptr %state, null
  br i1 %alone, label %find, label %ask.side
ask.side:
  %side.said = call i32 @word(ptr %state, i64 #Block.side)
  br label %find
find:
  %side.word = phi i32 [ 0, %entry ], [ %side.said, %ask.side ]
  %side.at = getelementptr i8, ptr %place, i64 #Place.side
  store i32 %side.word, ptr %side.at
  %side = zext i32 %side.word to i64
  %stride = call i64 @field(ptr %watch, i64 #Watch.shared_stride)
  %before = mul i64 %side, %stride
  %shared = call i64 @field(ptr %place, i64 #Place.shared)
  %group = sub i64 %shared, %before
  %group.at = getelementptr i8, ptr %place, i64 #Place.group
  store i64 %group, ptr %group.at
  %piece = call ptr @piece(ptr %place, i64 %side)
  %own.piece = getelementptr i8, ptr %place, i64 #Place.piece
  store ptr %piece, ptr %own.piece
  %checks = call i32 @word(ptr %watch, i64 #Watch.checks)
  %bytes = call i64 @field(ptr %watch, i64 #Watch.piece_bytes)
  %some = icmp ne i64 %bytes, 0
  br i1 %some, label %ask, label %locals
ask:
  %owner = load i64, ptr %piece
  %serial = call i64 @field(ptr %watch, i64 #Watch.serial)
  %mine = add i64 %serial, %block
  %known = icmp eq i64 %owner, %mine
  br i1 %known, label %locals, label %clear
clear:
  call void @llvm.memset.p0.i64(ptr %piece, i8 0, i64 %bytes, i1 false)
  store i64 %mine, ptr %piece
  br label %clocks
clocks:
  %w = phi i64 [ 0, %clear ], [ %w.next, %clocks ]
  %clock = call ptr @clock_of(ptr %piece, i64 %w, i64 %w)
  store i32 1, ptr %clock
  %w.next = add i64 %w, 1
  %more = icmp ult i64 %w.next, @WARPS@
  br i1 %more, label %clocks, label %locals
locals:
  %local.each = call i64 @field(ptr %watch, i64 #Watch.local_bytes)
  %local.warp = mul i64 %local.each, 32
  %own.local = getelementptr i8, ptr %place, i64 #Place.kernel_local
  %called = call i32 @word(ptr %place, i64 #Place.called)
  %is.called = icmp ne i32 %called, 0
  br i1 %is.called, label %function, label %kernel
function:
  %block.local = call i64 @field(ptr %state, i64 #Block.local)
  %warp.wide = zext i32 %warp to i64
  %local.offset = mul i64 %warp.wide, %local.warp
  %kernel.local = add i64 %block.local, %local.offset
  store i64 %kernel.local, ptr %own.local
  ret void
kernel:
  %local = call i64 @field(ptr %place, i64 #Place.local)
  store i64 %local, ptr %own.local
  %init = and i32 %checks, @INIT@
  %inits = icmp ne i32 %init, 0
  br i1 %inits, label %clear.local, label %out
clear.local:
  %local.total = call i64 @field(ptr %watch, i64 #Watch.local_total)
  %shadow.int = add i64 %local, %local.total
  %shadow = inttoptr i64 %shadow.int to ptr
  call void @llvm.memset.p0.i64(ptr %shadow, i8 0, i64 %local.warp, i1 false)
  br label %out
out:
  ret void
}

; What warp `w` knows of warp `v`.
define internal ptr @clock_of(ptr %tracker, i64 %w, i64 %v) alwaysinline {
  %row = mul i64 %w, @WARPS@
  %index = add i64 %row, %v
  %clocks = getelementptr i8, ptr %tracker, i64 #Tracker.clocks
  %at = getelementptr i32, ptr %clocks, i64 %index
  ret ptr %at
}
"""

# -- accesses ---------------------------------------------------------------------------------------------

_ACCESS = """
; `lanes` access `size` bytes each (0: as many as `values` say) at `addresses`.
define void @cujit_check_access(ptr %place, i32 %lanes, i64 %size, i32 %flags, i32 %line) {
entry:
  call void @enter(ptr %place)
  %watch = call ptr @watch(ptr %place)
  %checks = call i32 @word(ptr %watch, i64 #Watch.checks)
  %memory = and i32 %checks, @MEMORY@
  %is.memory = icmp ne i32 %memory, 0
  %race = and i32 %checks, @RACE@
  %is.race = icmp ne i32 %race, 0
  %init = and i32 %checks, @INIT@
  %is.init = icmp ne i32 %init, 0
  %addresses = getelementptr i8, ptr %place, i64 #Place.addresses
  %values = getelementptr i8, ptr %place, i64 #Place.values
  %acquire = and i32 %flags, @ACQUIRE@
  %acquires = icmp ne i32 %acquire, 0
  %release = and i32 %flags, @RELEASE@
  %releases = icmp ne i32 %release, 0
  %takes = and i1 %acquires, %is.race
  %gives = and i1 %releases, %is.race
  br i1 %is.race, label %count, label %begin
count:
  %tracker.at = getelementptr i8, ptr %place, i64 #Place.piece
  %tracker = load ptr, ptr %tracker.at
  %serial.at = getelementptr i8, ptr %tracker, i64 #Tracker.serial
  %serial.old = load i32, ptr %serial.at
  %serial.new = add i32 %serial.old, 1
  store i32 %serial.new, ptr %serial.at
  br label %begin
begin:
  %serial = phi i32 [ 0, %entry ], [ %serial.new, %count ]
  %some = icmp ne i32 %lanes, 0
  br i1 %some, label %each, label %out
each lane, from begin, again from next:
  %at = getelementptr i64, ptr %addresses, i32 %lane
  %address = load i64, ptr %at
  %own.at = getelementptr i64, ptr %values, i32 %lane
  %own = load i64, ptr %own.at
  %fixed = icmp ne i64 %size, 0
  %bytes = select i1 %fixed, i64 %size, i64 %own
  %nothing = icmp eq i64 %bytes, 0
  br i1 %nothing, label %next, label %ask.memory
ask.memory:
  br i1 %is.memory, label %do.memory, label %ask.acquire
do.memory:
  call void @check_memory(ptr %place, i32 %lane, i64 %address, i64 %bytes, i32 %flags, i32 %line)
  br label %ask.acquire
ask.acquire:
  br i1 %takes, label %do.acquire, label %ask.init
do.acquire:
  %clock = call ptr @object_of(ptr %place, i64 %address)
  %row = call ptr @own_clock(ptr %place)
  call void @join(ptr %row, ptr %clock)
  ; Lanes of one warp may wait for each other in this way, too.
  call void @synced(ptr %place)
  br label %ask.init
ask.init:
  br i1 %is.init, label %do.init, label %ask.race
do.init:
  call void @check_init(ptr %place, i32 %lane, i64 %address, i64 %bytes, i32 %flags, i32 %line)
  br label %ask.race
ask.race:
  br i1 %is.race, label %do.race, label %ask.release
do.race:
  call void @check_race(ptr %place, i32 %lane, i64 %address, i64 %bytes, i32 %flags, i32 %line, i32 %serial)
  br label %ask.release
ask.release:
  br i1 %gives, label %do.release, label %next
do.release:
  %object = call ptr @object_of(ptr %place, i64 %address)
  call void @release(ptr %place, ptr %object)
  br label %next
next:
  %more = icmp ne i32 %left.next, 0
  br i1 %more, label %each, label %out
out:
  ret void
}
"""

_STRUCTURES = {c.__name__: c for c in (Entry, Place, Record, Slot, Span, Tracker, Watch)}
_FIELD = re.compile(rf"#({'|'.join(_STRUCTURES)})\.(\w+)")
_WHOLE = re.compile(rf"#({'|'.join(_STRUCTURES)})\b")


def _numbers() -> dict[str, object]:
    numbers: dict[str, object] = {name.upper(): bit for name, bit in checks_bits().items()}
    numbers |= {f"KIND_{k.name}": int(k) for k in FaultKind if k > FaultKind.CHECK}
    numbers |= {a.name: int(a) for a in (*Access, *Space)} | {c.name: int(c) for c in Code}
    numbers["PATTERN"] = "[" + ", ".join(f"i8 {b}" for b in PATTERN) + "]"
    return numbers | {
        "WARPS": WARPS, "OBJECTS": OBJECTS, "SLOTS": SLOTS, "CLUSTER_BARRIER": CLUSTER_BARRIER,
    }  # fmt: skip


def checks_text() -> str:
    """Write the IR; ``cujit_claim``, ``cujit_fault_here`` and ``cujit_stop`` are another part's."""
    text = with_lanes("\n".join((_FAIL, MEMORY, INIT, RACES, CLOCKS, SYNC, _ACCESS)))
    for name, number in _numbers().items():
        text = text.replace(f"@{name}@", str(number))
    text = _FIELD.sub(lambda m: str(getattr(_STRUCTURES[m[1]], m[2]).offset), text)
    return with_offsets(_WHOLE.sub(lambda m: str(ctypes.sizeof(_STRUCTURES[m[1]])), text))
