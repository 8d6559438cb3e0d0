"""The device heap: ``malloc`` and ``free`` as kernels call them, over libc's.

Sixteen bytes before each block say how large it is and that it is one, so that ``free`` of anything else is a fault
of the kernel and not the end of the process.
"""

from __future__ import annotations

from cujit.devices.cpu.native.faultkinds import FaultKind
from cujit.devices.cpu.native.lanes import with_lanes

__all__ = ["SYMBOLS", "heap_text"]

SYMBOLS = ("cujit_malloc", "cujit_free")
"""What emitted kernels call."""

_MOST = 1 << 47
"""Bytes beyond which there is no use in asking: user addresses of x86-64 and AArch64 end there."""

_MARK = 0x6375_6A69_7468_6570
"""Mixed with the block's address this is its mark."""

# Source for the alignment and for null: CUDA C++ Programming Guide, "Dynamic Global Memory Allocation".
_TEXT = """
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare i32 @llvm.cttz.i32(i32, i1)

; For each lane of `lanes`, `sizes[lane]` bytes aligned to 16, or null; the addresses go to `results`.
define void @cujit_malloc(i32 %lanes, ptr %sizes, ptr %results) {
entry:
  %some = icmp ne i32 %lanes, 0
  br i1 %some, label %each, label %return
each lane, from entry, again from each:
  %size.at = getelementptr i64, ptr %sizes, i32 %lane
  %size = load i64, ptr %size.at
  %block = call i64 @heap_take(i64 %size)
  %result.at = getelementptr i64, ptr %results, i32 %lane
  store i64 %block, ptr %result.at
  %more = icmp ne i32 %left.next, 0
  br i1 %more, label %each, label %return
return:
  ret void
}

define internal i64 @heap_take(i64 %size) {
entry:
  %whole = icmp ne i64 %size, 0
  %fits = icmp ule i64 %size, @MOST@
  %sound = and i1 %whole, %fits
  br i1 %sound, label %take, label %fail
take:
  %more = add i64 %size, 31
  %total = and i64 %more, -16
  %memory = call ptr @aligned_alloc(i64 16, i64 %total)
  %none = icmp eq ptr %memory, null
  br i1 %none, label %fail, label %keep
keep:
  store i64 %size, ptr %memory
  %block = getelementptr i8, ptr %memory, i64 16
  %block.int = ptrtoint ptr %block to i64
  %mark = xor i64 %block.int, @MARK@
  %mark.at = getelementptr i8, ptr %memory, i64 8
  store i64 %mark, ptr %mark.at
  ret i64 %block.int
fail:
  ret i64 0
}

; Free `blocks[lane]` for each lane of `lanes`; null is nothing to free. `first` is the warp's first thread.
define void @cujit_free(ptr %launch, i32 %lanes, ptr %blocks, i64 %number, i32 %first, i32 %line) {
entry:
  %some = icmp ne i32 %lanes, 0
  br i1 %some, label %each, label %return
each lane, from entry, again from next:
  %block.at = getelementptr i64, ptr %blocks, i32 %lane
  %block = load i64, ptr %block.at
  %null = icmp eq i64 %block, 0
  br i1 %null, label %next, label %look
look:
  %low = and i64 %block, 15
  %aligned = icmp eq i64 %low, 0
  br i1 %aligned, label %ask, label %bad
ask:
  %mark.int = sub i64 %block, 8
  %mark.at = inttoptr i64 %mark.int to ptr
  %right = xor i64 %block, @MARK@
  ; Of two threads that free one block, one is the first.
  %pair = cmpxchg ptr %mark.at, i64 %right, i64 0 acq_rel monotonic
  %mine = extractvalue { i64, i1 } %pair, 1
  br i1 %mine, label %give, label %bad
give:
  %memory.int = sub i64 %block, 16
  %memory = inttoptr i64 %memory.int to ptr
  call void @free(ptr %memory)
  br label %next
next:
  %more = icmp ne i32 %left.next, 0
  br i1 %more, label %each, label %return
bad:
  %thread = add i32 %first, %lane
  call void @cujit_fault(ptr %launch, i32 @BAD_FREE@, i64 %number, i32 %thread, i32 %line, i64 %block)
  unreachable
return:
  ret void
}
"""


def heap_text() -> str:
    """Write the IR; ``cujit_fault`` is another part's."""
    text = with_lanes(_TEXT).replace("@MOST@", str(_MOST)).replace("@MARK@", str(_MARK))
    return text.replace("@BAD_FREE@", str(int(FaultKind.BAD_FREE)))
