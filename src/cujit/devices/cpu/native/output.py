"""What kernels say: ``vprintf`` and failed assertions, kept for Python to read after the launch.

``Launch.output`` is the record that was made last; each names the one before it. A record holds copies of all that
the format speaks of, for the kernel's memory may change or be gone when Python reads it. Python formats
(``printing.py``); here the format is only walked over, to know how wide the arguments are and which are strings.
"""

from __future__ import annotations

import ctypes
import re

from cujit.devices.cpu.launch import Launch
from cujit.devices.cpu.native.faultkinds import FaultKind
from cujit.devices.cpu.native.lanes import with_lanes

__all__ = ["NULL_TEXT", "SYMBOLS", "Assertion", "Record", "output_text"]

SYMBOLS = ("cujit_vprintf", "cujit_assert")
"""What emitted kernels call."""

NULL_TEXT = (1 << 64) - 1
"""The length of a string whose address is null."""


class Record(ctypes.Structure):
    """One call of ``vprintf``, followed by its data.

    These are: the format (``format_bytes``), then from the next multiple of 8 on ``values`` words, one for each
    argument as it lay in memory (a string's is its length in bytes), then the bytes of the strings in turn.
    """

    _fields_ = (
        ("previous", ctypes.c_uint64),
        ("block", ctypes.c_uint64),
        ("thread", ctypes.c_uint64),
        ("format_bytes", ctypes.c_uint64),
        ("values", ctypes.c_uint64),
        ("text_bytes", ctypes.c_uint64),
    )


class Assertion(ctypes.Structure):
    """A failed assertion: the lengths in bytes of its texts, which follow in this order, and the source line."""

    _fields_ = (
        ("message", ctypes.c_uint64),
        ("file", ctypes.c_uint64),
        ("function", ctypes.c_uint64),
        ("line", ctypes.c_uint64),
    )


_LONGEST = 1 << 20
"""Bytes of a format or a string that are kept."""

# A specification, once `%` was read: flags, width, precision and size in any order until a letter ends it. That is more
# than C allows; what is no good to C is printed as it stands, and its arguments are passed over all the same.
# Arguments lie at multiples of their size, 4 or 8 bytes (CUDA C++ Programming Guide, "Formatted Output"; the layout
# is what NVRTC 13.5 stores). `values` is null where only counts are asked for.
_WALK = """
declare i64 @strnlen(ptr, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i64 @llvm.umin.i64(i64, i64)

define internal void @print_put(ptr %values, ptr %count.at, i64 %value) {
entry:
  %count = load i64, ptr %count.at
  %next = add i64 %count, 1
  store i64 %next, ptr %count.at
  %none = icmp eq ptr %values, null
  br i1 %none, label %return, label %put
put:
  %at = getelementptr i64, ptr %values, i64 %count
  store i64 %value, ptr %at
  br label %return
return:
  ret void
}

define internal i64 @print_take(ptr %arguments, ptr %offset.at, i64 %size) {
entry:
  %offset = load i64, ptr %offset.at
  %last = sub i64 %size, 1
  %more = add i64 %offset, %last
  %mask = sub i64 0, %size
  %start = and i64 %more, %mask
  %end = add i64 %start, %size
  store i64 %end, ptr %offset.at
  %at = getelementptr i8, ptr %arguments, i64 %start
  %wide = icmp eq i64 %size, 8
  br i1 %wide, label %long, label %short
long:
  %eight = load i64, ptr %at, align 1
  ret i64 %eight
short:
  %four = load i32, ptr %at, align 1
  %four.wide = zext i32 %four to i64
  ret i64 %four.wide
}

; Go through a format of `length` bytes. At most `most` values and `room` bytes of text are written.
define internal void @print_walk(ptr %format, i64 %length, ptr %arguments, ptr %values, ptr %text, i64 %most, i64 %room,
                                 ptr %count.at, ptr %used.at) {
entry:
  %offset.at = alloca i64
  store i64 0, ptr %offset.at
  store i64 0, ptr %count.at
  store i64 0, ptr %used.at
  br label %plain
plain:
  %p = phi i64 [ 0, %entry ], [ %p.next, %plain.go ], [ %q.next, %inside.go ], [ %q.next, %string.done ],
               [ %q.next, %value ]
  %out = icmp uge i64 %p, %length
  br i1 %out, label %return, label %plain.go
plain.go:
  %p.at = getelementptr i8, ptr %format, i64 %p
  %c = load i8, ptr %p.at
  %p.next = add i64 %p, 1
  %percent = icmp eq i8 %c, 37
  br i1 %percent, label %inside, label %plain
inside:
  %q = phi i64 [ %p.next, %plain.go ], [ %q.next, %flag ], [ %q.next, %dot ], [ %q.next, %digit ],
               [ %q.next, %star ], [ %q.next, %long ]
  %limit = phi i64 [ -1, %plain.go ], [ %limit, %flag ], [ 0, %dot ], [ %limit.digit, %digit ],
                   [ %limit.star, %star ], [ %limit, %long ]
  %dotted = phi i1 [ false, %plain.go ], [ %dotted, %flag ], [ true, %dot ], [ %dotted, %digit ],
                   [ %dotted, %star ], [ %dotted, %long ]
  %size = phi i64 [ 4, %plain.go ], [ %size, %flag ], [ %size, %dot ], [ %size, %digit ], [ %size, %star ],
                  [ 8, %long ]
  %ends = icmp uge i64 %q, %length
  %full.at = load i64, ptr %count.at
  %full = icmp uge i64 %full.at, %most
  %over = or i1 %ends, %full
  br i1 %over, label %return, label %inside.go
inside.go:
  %q.at = getelementptr i8, ptr %format, i64 %q
  %d = load i8, ptr %q.at
  %q.next = add i64 %q, 1
  switch i8 %d, label %plain [
    @FLAG@
    i8 46, label %dot
    i8 42, label %star
    @DIGIT@
    @LONG@
    @WHOLE@
    i8 99, label %four
    @EIGHT@
    i8 115, label %string
  ]
flag:
  br label %inside
dot:
  br label %inside
long:
  br label %inside
digit:
  ; The precision counts for strings, which need no zero at their end then.
  %ten = mul i64 %limit, 10
  %low = sub i8 %d, 48
  %low.wide = zext i8 %low to i64
  %number = add i64 %ten, %low.wide
  %number.small = call i64 @llvm.umin.i64(i64 %number, i64 @LONGEST@)
  %limit.digit = select i1 %dotted, i64 %number.small, i64 %limit
  br label %inside
star:
  %given = call i64 @print_take(ptr %arguments, ptr %offset.at, i64 4)
  call void @print_put(ptr %values, ptr %count.at, i64 %given)
  %given.word = trunc i64 %given to i32
  %given.wide = sext i32 %given.word to i64
  %limit.star = select i1 %dotted, i64 %given.wide, i64 %limit
  br label %inside
four:
  br label %value
eight:
  br label %value
whole:
  br label %value
value:
  %bytes = phi i64 [ 4, %four ], [ 8, %eight ], [ %size, %whole ]
  %taken = call i64 @print_take(ptr %arguments, ptr %offset.at, i64 %bytes)
  call void @print_put(ptr %values, ptr %count.at, i64 %taken)
  br label %plain
string:
  %address = call i64 @print_take(ptr %arguments, ptr %offset.at, i64 8)
  %null = icmp eq i64 %address, 0
  br i1 %null, label %string.null, label %string.look
string.null:
  call void @print_put(ptr %values, ptr %count.at, i64 @NULL@)
  br label %string.done
string.look:
  %string.at = inttoptr i64 %address to ptr
  %used = load i64, ptr %used.at
  %left = sub i64 %room, %used
  %left.small = call i64 @llvm.umin.i64(i64 %left, i64 @LONGEST@)
  %most.bytes = call i64 @llvm.umin.i64(i64 %left.small, i64 %limit)
  %string.length = call i64 @strnlen(ptr %string.at, i64 %most.bytes)
  call void @print_put(ptr %values, ptr %count.at, i64 %string.length)
  %used.next = add i64 %used, %string.length
  store i64 %used.next, ptr %used.at
  %counting = icmp eq ptr %text, null
  br i1 %counting, label %string.done, label %string.copy
string.copy:
  %to = getelementptr i8, ptr %text, i64 %used
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %string.at, i64 %string.length, i1 false)
  br label %string.done
string.done:
  br label %plain
return:
  ret void
}
"""

# Source for the results: CUDA C++ Programming Guide, "Formatted Output": the number of arguments, -1 for a format that
# is null, -2 for an internal error.
_PRINT = """
declare ptr @malloc(i64)
declare void @free(ptr)
declare i32 @llvm.cttz.i32(i32, i1)

define internal i32 @print_one(ptr %launch, i64 %format.int, i64 %arguments.int, i64 %block, i32 %thread) {
entry:
  %count.at = alloca i64
  %used.at = alloca i64
  %format = inttoptr i64 %format.int to ptr
  %arguments = inttoptr i64 %arguments.int to ptr
  %null = icmp eq i64 %format.int, 0
  br i1 %null, label %no.format, label %measure
no.format:
  ret i32 -1
measure:
  %length = call i64 @strnlen(ptr %format, i64 @LONGEST@)
  call void @print_walk(ptr %format, i64 %length, ptr %arguments, ptr null, ptr null, i64 -1, i64 -1, ptr %count.at,
                        ptr %used.at)
  %count = load i64, ptr %count.at
  %used = load i64, ptr %used.at
  %format.more = add i64 %length, 7
  %format.bytes = and i64 %format.more, -8
  %values.bytes = mul i64 %count, 8
  %head = add i64 %format.bytes, #Record
  %with.values = add i64 %head, %values.bytes
  %total = add i64 %with.values, %used
  %record = call ptr @malloc(i64 %total)
  %none = icmp eq ptr %record, null
  br i1 %none, label %no.memory, label %fill
no.memory:
  ret i32 -2
fill:
  %copy = getelementptr i8, ptr %record, i64 #Record
  call void @llvm.memcpy.p0.p0.i64(ptr %copy, ptr %format, i64 %length, i1 false)
  %values = getelementptr i8, ptr %copy, i64 %format.bytes
  %text = getelementptr i8, ptr %values, i64 %values.bytes
  call void @print_walk(ptr %copy, i64 %length, ptr %arguments, ptr %values, ptr %text, i64 %count, i64 %used,
                        ptr %count.at, ptr %used.at)
  %count.now = load i64, ptr %count.at
  %used.now = load i64, ptr %used.at
  %block.at = getelementptr i8, ptr %record, i64 #Record.block
  store i64 %block, ptr %block.at
  %thread.at = getelementptr i8, ptr %record, i64 #Record.thread
  %thread.wide = zext i32 %thread to i64
  store i64 %thread.wide, ptr %thread.at
  %length.at = getelementptr i8, ptr %record, i64 #Record.format_bytes
  store i64 %length, ptr %length.at
  %values.at = getelementptr i8, ptr %record, i64 #Record.values
  store i64 %count.now, ptr %values.at
  %used.place = getelementptr i8, ptr %record, i64 #Record.text_bytes
  store i64 %used.now, ptr %used.place
  %output.at = getelementptr i8, ptr %launch, i64 #Launch.output
  br label %join
join:
  %before = load atomic ptr, ptr %output.at monotonic, align 8
  store ptr %before, ptr %record
  %pair = cmpxchg ptr %output.at, ptr %before, ptr %record acq_rel monotonic
  %joined = extractvalue { ptr, i1 } %pair, 1
  br i1 %joined, label %done, label %join
done:
  %result = trunc i64 %count.now to i32
  ret i32 %result
}

; For each lane of `lanes`, in order, print by `formats[lane]` what lies at `arguments[lane]`.
define void @cujit_vprintf(ptr %launch, i32 %lanes, ptr %formats, ptr %arguments, ptr %results, i64 %block,
                           i32 %first) {
entry:
  %some = icmp ne i32 %lanes, 0
  br i1 %some, label %each, label %return
each lane, from entry, again from each:
  %thread = add i32 %first, %lane
  %format.at = getelementptr i64, ptr %formats, i32 %lane
  %format = load i64, ptr %format.at
  %arguments.at = getelementptr i64, ptr %arguments, i32 %lane
  %argument = load i64, ptr %arguments.at
  %result = call i32 @print_one(ptr %launch, i64 %format, i64 %argument, i64 %block, i32 %thread)
  %result.at = getelementptr i32, ptr %results, i32 %lane
  store i32 %result, ptr %result.at
  %more = icmp ne i32 %left.next, 0
  br i1 %more, label %each, label %return
return:
  ret void
}
"""

_ASSERT = """
define internal i64 @text_length(ptr %text) {
entry:
  %none = icmp eq ptr %text, null
  br i1 %none, label %nothing, label %look
nothing:
  ret i64 0
look:
  %length = call i64 @strnlen(ptr %text, i64 @LONGEST@)
  ret i64 %length
}

; `line` is the PTX's, `source.line` the assertion's own.
define void @cujit_assert(ptr %launch, i64 %block, i32 %thread, i32 %line, ptr %message, ptr %file, i32 %source.line,
                          ptr %function) noreturn {
entry:
  %message.bytes = call i64 @text_length(ptr %message)
  %file.bytes = call i64 @text_length(ptr %file)
  %function.bytes = call i64 @text_length(ptr %function)
  %two = add i64 %message.bytes, %file.bytes
  %three = add i64 %two, %function.bytes
  %total = add i64 %three, #Assertion
  %record = call ptr @malloc(i64 %total)
  %none = icmp eq ptr %record, null
  br i1 %none, label %claim, label %fill
fill:
  store i64 %message.bytes, ptr %record
  %file.at = getelementptr i8, ptr %record, i64 #Assertion.file
  store i64 %file.bytes, ptr %file.at
  %function.at = getelementptr i8, ptr %record, i64 #Assertion.function
  store i64 %function.bytes, ptr %function.at
  %line.at = getelementptr i8, ptr %record, i64 #Assertion.line
  %line.wide = zext i32 %source.line to i64
  store i64 %line.wide, ptr %line.at
  %text = getelementptr i8, ptr %record, i64 #Assertion
  call void @llvm.memcpy.p0.p0.i64(ptr %text, ptr %message, i64 %message.bytes, i1 false)
  %text.file = getelementptr i8, ptr %text, i64 %message.bytes
  call void @llvm.memcpy.p0.p0.i64(ptr %text.file, ptr %file, i64 %file.bytes, i1 false)
  %text.function = getelementptr i8, ptr %text.file, i64 %file.bytes
  call void @llvm.memcpy.p0.p0.i64(ptr %text.function, ptr %function, i64 %function.bytes, i1 false)
  br label %claim
claim:
  %first = call i1 @cujit_claim(ptr %launch, i32 @ASSERT@)
  br i1 %first, label %tell, label %drop
tell:
  call void @cujit_fault_here(ptr %launch, i64 %block, i32 %thread, i32 %line, i64 0)
  %more = getelementptr i8, ptr %launch, i64 #Launch.fault_more
  store ptr %record, ptr %more
  call void @cujit_stop()
  unreachable
drop:
  call void @free(ptr %record)
  call void @cujit_stop()
  unreachable
}
"""


def _cases(letters: str, label: str) -> str:
    return " ".join(f"i8 {ord(c)}, label %{label}" for c in letters)


def output_text() -> str:
    """Write the IR; ``cujit_claim`` and what goes with it are another part's."""
    numbers = {
        "LONGEST": str(_LONGEST),
        "NULL": str(NULL_TEXT - (1 << 64)),
        "ASSERT": str(int(FaultKind.ASSERT)),
        "FLAG": _cases("-+ #h", "flag"),
        "DIGIT": _cases("0123456789", "digit"),
        "LONG": _cases("ljztqL", "long"),
        "WHOLE": _cases("diouxX", "whole"),
        "EIGHT": _cases("fFeEgGaAp", "eight"),
    }
    text = re.sub(r"@([A-Z]+)@", lambda m: numbers[m[1]], with_lanes(_WALK + _PRINT + _ASSERT))
    structures = {"Record": Record, "Assertion": Assertion, "Launch": Launch}
    text = re.sub(r"#(\w+)\.(\w+)", lambda m: str(getattr(structures[m[1]], m[2]).offset), text)
    return re.sub(r"#(\w+)", lambda m: str(ctypes.sizeof(structures[m[1]])), text)
