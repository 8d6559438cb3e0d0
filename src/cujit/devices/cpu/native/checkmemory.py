"""The checks of addresses and of memory that was never written, as native code; put together in ``checks``."""

from __future__ import annotations

__all__ = ["INIT", "MEMORY"]

MEMORY = """
@heap.lock = internal global i32 0
@heap.spans = internal global ptr null
@heap.count = internal global i64 0
@heap.room = internal global i64 0

define internal void @lock() {
entry:
  br label %try
try:
  %was = atomicrmw xchg ptr @heap.lock, i32 1 acquire
  %free = icmp eq i32 %was, 0
  br i1 %free, label %out, label %try
out:
  ret void
}

define internal void @unlock() {
  store atomic i32 0, ptr @heap.lock release, align 4
  ret void
}

; How many of `count` sorted spans begin at or before an address.
define internal i64 @rank_in(ptr %spans, i64 %count, i64 %address) {
entry:
  br label %look
look:
  %low = phi i64 [ 0, %entry ], [ %low.next, %step ]
  %high = phi i64 [ %count, %entry ], [ %high.next, %step ]
  %more = icmp ult i64 %low, %high
  br i1 %more, label %step, label %out
step:
  %sum = add i64 %low, %high
  %middle = lshr i64 %sum, 1
  %offset = mul i64 %middle, #Span
  %span = getelementptr i8, ptr %spans, i64 %offset
  %begin = load i64, ptr %span
  %before = icmp ule i64 %begin, %address
  %up = add i64 %middle, 1
  %low.next = select i1 %before, i64 %up, i64 %low
  %high.next = select i1 %before, i64 %high, i64 %middle
  br label %look
out:
  ret i64 %low
}

; The span that has all of an access, or null.
define internal ptr @span_in(ptr %spans, i64 %count, i64 %address, i64 %size) {
entry:
  %rank = call i64 @rank_in(ptr %spans, i64 %count, i64 %address)
  %none = icmp eq i64 %rank, 0
  br i1 %none, label %fail, label %look
look:
  %index = sub i64 %rank, 1
  %offset = mul i64 %index, #Span
  %span = getelementptr i8, ptr %spans, i64 %offset
  %begin = load i64, ptr %span
  %end = call i64 @field(ptr %span, i64 #Span.end)
  %inside = sub i64 %address, %begin
  %limit = sub i64 %end, %begin
  %good = call i1 @within(i64 %inside, i64 %size, i64 %limit)
  br i1 %good, label %have, label %fail
have:
  ret ptr %span
fail:
  ret ptr null
}

define internal ptr @span_of(ptr %place, i64 %address, i64 %size) {
  %watch = call ptr @watch(ptr %place)
  %spans.at = getelementptr i8, ptr %watch, i64 #Watch.spans
  %spans = load ptr, ptr %spans.at
  %count = call i64 @field(ptr %watch, i64 #Watch.count)
  %span = call ptr @span_in(ptr %spans, i64 %count, i64 %address, i64 %size)
  ret ptr %span
}

; What there is of an access in global memory: 0 nothing, 1 memory, 2 memory that was freed.
define internal i32 @global_state(ptr %place, i64 %address, i64 %size) {
entry:
  %span = call ptr @span_of(ptr %place, i64 %address, i64 %size)
  %none = icmp eq ptr %span, null
  br i1 %none, label %heap, label %known
known:
  %freed = call i64 @field(ptr %span, i64 #Span.freed)
  br label %judge
heap:
  call void @lock()
  %spans = load ptr, ptr @heap.spans
  %count = load i64, ptr @heap.count
  %own = call ptr @span_in(ptr %spans, i64 %count, i64 %address, i64 %size)
  %missing = icmp eq ptr %own, null
  br i1 %missing, label %unknown, label %found
unknown:
  call void @unlock()
  ret i32 0
found:
  %heap.freed = call i64 @field(ptr %own, i64 #Span.freed)
  call void @unlock()
  br label %judge
judge:
  %gone = phi i64 [ %freed, %known ], [ %heap.freed, %found ]
  %was.freed = icmp ne i64 %gone, 0
  %state = select i1 %was.freed, i32 2, i32 1
  ret i32 %state
}

define internal i1 @in_shared(ptr %place, i64 %address, i64 %size) {
  %watch = call ptr @watch(ptr %place)
  %shared = call i64 @field(ptr %place, i64 #Place.shared)
  %limit = call i64 @field(ptr %watch, i64 #Watch.shared_limit)
  %offset = sub i64 %address, %shared
  %good = call i1 @within(i64 %offset, i64 %size, i64 %limit)
  ret i1 %good
}

; The shared memory of the cluster's blocks.
define internal i1 @in_cluster(ptr %place, i64 %address, i64 %size) {
entry:
  %watch = call ptr @watch(ptr %place)
  %cluster = call i64 @field(ptr %place, i64 #Place.cluster)
  %blocks = call i64 @field(ptr %watch, i64 #Watch.cluster_blocks)
  %stride = call i64 @field(ptr %watch, i64 #Watch.shared_stride)
  %limit = call i64 @field(ptr %watch, i64 #Watch.shared_limit)
  %offset = sub i64 %address, %cluster
  %all = mul i64 %blocks, %stride
  %near = icmp ult i64 %offset, %all
  br i1 %near, label %look, label %own
look:
  %inside = urem i64 %offset, %stride
  %good = call i1 @within(i64 %inside, i64 %size, i64 %limit)
  ret i1 %good
own:
  %mine = call i1 @in_shared(ptr %place, i64 %address, i64 %size)
  ret i1 %mine
}

; The thread's local memory: of this function, of the kernel, and, where a kernel calls functions or takes memory on
; the stack, all of its stack.
define internal i1 @in_local(ptr %place, i32 %lane, i64 %address, i64 %size) noinline {
entry:
  %lane.wide = zext i32 %lane to i64
  %local = call i64 @field(ptr %place, i64 #Place.local)
  %bytes = call i64 @field(ptr %place, i64 #Place.local_bytes)
  %own.skip = mul i64 %lane.wide, %bytes
  %own.base = add i64 %local, %own.skip
  %own.offset = sub i64 %address, %own.base
  %own = call i1 @within(i64 %own.offset, i64 %size, i64 %bytes)
  br i1 %own, label %good, label %kernel
kernel:
  %watch = call ptr @watch(ptr %place)
  %kernel.local = call i64 @field(ptr %place, i64 #Place.kernel_local)
  %kernel.bytes = call i64 @field(ptr %watch, i64 #Watch.local_bytes)
  %kernel.skip = mul i64 %lane.wide, %kernel.bytes
  %kernel.base = add i64 %kernel.local, %kernel.skip
  %kernel.offset = sub i64 %address, %kernel.base
  %kernels = call i1 @within(i64 %kernel.offset, i64 %size, i64 %kernel.bytes)
  br i1 %kernels, label %good, label %stack
stack:
  %stack.bytes = call i64 @field(ptr %watch, i64 #Watch.stack_bytes)
  %frame = call ptr @llvm.frameaddress.p0(i32 0)
  %frame.int = ptrtoint ptr %frame to i64
  %stack.offset = sub i64 %address, %frame.int
  %stacks = call i1 @within(i64 %stack.offset, i64 %size, i64 %stack.bytes)
  ret i1 %stacks
good:
  ret i1 true
}

define internal i1 @in_parameters(ptr %place, i64 %address, i64 %size) {
  %watch = call ptr @watch(ptr %place)
  %launch.at = getelementptr i8, ptr %place, i64 #Place.launch
  %launch = load ptr, ptr %launch.at
  %parameters = call i64 @field(ptr %launch, i64 #Launch.parameters)
  %bytes = call i64 @field(ptr %watch, i64 #Watch.parameter_bytes)
  %offset = sub i64 %address, %parameters
  %good = call i1 @within(i64 %offset, i64 %size, i64 %bytes)
  ret i1 %good
}

define internal void @check_memory(ptr %place, i32 %lane, i64 %address, i64 %size, i32 %flags, i32 %line) {
entry:
  %align.log = lshr i32 %flags, 24
  %align = shl i32 1, %align.log
  %align.mask = sub i32 %align, 1
  %align.wide = zext i32 %align.mask to i64
  %low = and i64 %address, %align.wide
  %aligned = icmp eq i64 %low, 0
  br i1 %aligned, label %where, label %misaligned
misaligned:
  %align.bytes = zext i32 %align to i64
  call void @fail(ptr %place, i32 @KIND_MEMORY@, i32 %lane, i32 %line, i64 %address, i64 %size, i32 %flags,
                  i32 @MISALIGNED@, i32 0, i32 0, i64 %align.bytes)
  unreachable
where:
  %space.high = lshr i32 %flags, 8
  %space = and i32 %space.high, 15
  switch i32 %space, label %generic [
    i32 @SHARED@, label %shared  i32 @LOCAL@, label %local  i32 @GLOBAL@, label %global
    i32 @CLUSTER@, label %cluster  i32 @PARAM@, label %generic
  ]
shared:
  %shared.good = call i1 @in_shared(ptr %place, i64 %address, i64 %size)
  br i1 %shared.good, label %out, label %bad
cluster:
  %cluster.good = call i1 @in_cluster(ptr %place, i64 %address, i64 %size)
  br i1 %cluster.good, label %out, label %bad
local:
  %local.good = call i1 @in_local(ptr %place, i32 %lane, i64 %address, i64 %size)
  br i1 %local.good, label %out, label %bad
generic:
  %any.shared = call i1 @in_cluster(ptr %place, i64 %address, i64 %size)
  br i1 %any.shared, label %out, label %generic.local
generic.local:
  %any.local = call i1 @in_local(ptr %place, i32 %lane, i64 %address, i64 %size)
  br i1 %any.local, label %out, label %global
global:
  %parameter = call i1 @in_parameters(ptr %place, i64 %address, i64 %size)
  br i1 %parameter, label %out, label %allocated
allocated:
  %state = call i32 @global_state(ptr %place, i64 %address, i64 %size)
  switch i32 %state, label %out [ i32 0, label %bad  i32 2, label %freed ]
freed:
  call void @fail(ptr %place, i32 @KIND_MEMORY@, i32 %lane, i32 %line, i64 %address, i64 %size, i32 %flags,
                  i32 @FREED@, i32 0, i32 0, i64 0)
  unreachable
bad:
  %base = call i64 @field(ptr %place, i64 #Place.shared)
  call void @fail(ptr %place, i32 @KIND_MEMORY@, i32 %lane, i32 %line, i64 %address, i64 %size, i32 %flags,
                  i32 @OUTSIDE@, i32 0, i32 0, i64 %base)
  unreachable
out:
  ret void
}

; Blocks of the device's malloc: `addresses` are what it gave, `values` the sizes.
define void @cujit_check_malloc(ptr %place, i32 %lanes) {
entry:
  call void @enter(ptr %place)
  %some = icmp ne i32 %lanes, 0
  br i1 %some, label %each, label %out
each lane, from entry, again from next:
  %addresses = getelementptr i8, ptr %place, i64 #Place.addresses
  %address.at = getelementptr i64, ptr %addresses, i32 %lane
  %address = load i64, ptr %address.at
  %values = getelementptr i8, ptr %place, i64 #Place.values
  %size.at = getelementptr i64, ptr %values, i32 %lane
  %size = load i64, ptr %size.at
  %null = icmp eq i64 %address, 0
  br i1 %null, label %next, label %add
add:
  call void @lock()
  call void @heap_add(i64 %address, i64 %size)
  call void @unlock()
  br label %next
next:
  %more = icmp ne i32 %left.next, 0
  br i1 %more, label %each, label %out
out:
  ret void
}

; Put a block in its place; freed blocks that lay there are forgotten.
define internal void @heap_add(i64 %begin, i64 %size) {
entry:
  %end = add i64 %begin, %size
  br label %look
look:
  %spans = load ptr, ptr @heap.spans
  %count = load i64, ptr @heap.count
  %last = sub i64 %end, 1
  %rank = call i64 @rank_in(ptr %spans, i64 %count, i64 %last)
  %none = icmp eq i64 %rank, 0
  br i1 %none, label %room, label %ask
ask:
  %before = sub i64 %rank, 1
  %before.offset = mul i64 %before, #Span
  %span = getelementptr i8, ptr %spans, i64 %before.offset
  %span.end = call i64 @field(ptr %span, i64 #Span.end)
  %overlaps = icmp ugt i64 %span.end, %begin
  br i1 %overlaps, label %drop, label %room
drop:
  %after = getelementptr i8, ptr %span, i64 #Span
  %behind = sub i64 %count, %rank
  %behind.bytes = mul i64 %behind, #Span
  call void @llvm.memmove.p0.p0.i64(ptr %span, ptr %after, i64 %behind.bytes, i1 false)
  %fewer = sub i64 %count, 1
  store i64 %fewer, ptr @heap.count
  br label %look
room:
  %have = load i64, ptr @heap.room
  %full = icmp eq i64 %count, %have
  br i1 %full, label %grow, label %put
grow:
  %double = shl i64 %have, 1
  %wanted = add i64 %double, 1024
  %bytes = mul i64 %wanted, #Span
  %memory = call ptr @realloc(ptr %spans, i64 %bytes)
  %failed = icmp eq ptr %memory, null
  br i1 %failed, label %out, label %grown
grown:
  store ptr %memory, ptr @heap.spans
  store i64 %wanted, ptr @heap.room
  br label %put
put:
  %all = load ptr, ptr @heap.spans
  %offset = mul i64 %rank, #Span
  %here = getelementptr i8, ptr %all, i64 %offset
  %there = getelementptr i8, ptr %here, i64 #Span
  %rest = sub i64 %count, %rank
  %rest.bytes = mul i64 %rest, #Span
  call void @llvm.memmove.p0.p0.i64(ptr %there, ptr %here, i64 %rest.bytes, i1 false)
  call void @llvm.memset.p0.i64(ptr %here, i8 0, i64 #Span, i1 false)
  store i64 %begin, ptr %here
  %end.at = getelementptr i8, ptr %here, i64 #Span.end
  store i64 %end, ptr %end.at
  %more = add i64 %count, 1
  store i64 %more, ptr @heap.count
  br label %out
out:
  ret void
}

; Blocks that are about to be freed.
define void @cujit_check_free(ptr %place, i32 %lanes) {
entry:
  call void @enter(ptr %place)
  %some = icmp ne i32 %lanes, 0
  br i1 %some, label %each, label %out
each lane, from entry, again from next:
  %addresses = getelementptr i8, ptr %place, i64 #Place.addresses
  %address.at = getelementptr i64, ptr %addresses, i32 %lane
  %address = load i64, ptr %address.at
  call void @lock()
  %spans = load ptr, ptr @heap.spans
  %count = load i64, ptr @heap.count
  %span = call ptr @span_in(ptr %spans, i64 %count, i64 %address, i64 1)
  %none = icmp eq ptr %span, null
  br i1 %none, label %next, label %mark
mark:
  %freed.at = getelementptr i8, ptr %span, i64 #Span.freed
  store i64 1, ptr %freed.at
  br label %next
next:
  call void @unlock()
  %more = icmp ne i32 %left.next, 0
  br i1 %more, label %each, label %out
out:
  ret void
}
"""

INIT = """
; Where the marks of an access are, one byte a byte; null where nobody keeps any. `global` gets whether what is in
; memory counts too: others than kernels write there.
define internal ptr @marks_of(ptr %place, i64 %address, i64 %size, ptr %global) {
entry:
  store i1 false, ptr %global
  %watch = call ptr @watch(ptr %place)
  %group = call i64 @field(ptr %place, i64 #Place.group)
  %total = call i64 @field(ptr %watch, i64 #Watch.shared_total)
  %shared.offset = sub i64 %address, %group
  %shared = call i1 @within(i64 %shared.offset, i64 %size, i64 %total)
  br i1 %shared, label %in.shared, label %ask.local
in.shared:
  %stride = call i64 @field(ptr %watch, i64 #Watch.shared_stride)
  %side = udiv i64 %shared.offset, %stride
  %inside = urem i64 %shared.offset, %stride
  %piece = call ptr @piece(ptr %place, i64 %side)
  %tracker = getelementptr i8, ptr %piece, i64 #Tracker
  %shared.mark = getelementptr i8, ptr %tracker, i64 %inside
  ret ptr %shared.mark
ask.local:
  %local = call i64 @field(ptr %place, i64 #Place.kernel_local)
  %local.each = call i64 @field(ptr %watch, i64 #Watch.local_bytes)
  %local.warp = mul i64 %local.each, 32
  %local.offset = sub i64 %address, %local
  %in.local = call i1 @within(i64 %local.offset, i64 %size, i64 %local.warp)
  br i1 %in.local, label %locals, label %ask.global
locals:
  %local.total = call i64 @field(ptr %watch, i64 #Watch.local_total)
  %local.at = add i64 %address, %local.total
  %local.mark = inttoptr i64 %local.at to ptr
  ret ptr %local.mark
ask.global:
  %span = call ptr @span_of(ptr %place, i64 %address, i64 %size)
  %none = icmp eq ptr %span, null
  br i1 %none, label %nobody, label %look
look:
  %marks = call i64 @field(ptr %span, i64 #Span.marks)
  %kept = icmp ne i64 %marks, 0
  br i1 %kept, label %globals, label %nobody
globals:
  store i1 true, ptr %global
  %begin = load i64, ptr %span
  %global.offset = sub i64 %address, %begin
  %global.at = add i64 %marks, %global.offset
  %global.mark = inttoptr i64 %global.at to ptr
  ret ptr %global.mark
nobody:
  ret ptr null
}

; Whether an element was never written: no byte of it is marked, and in global memory the sixteen bytes around hold
; what was put there when the memory was made, but for those that are marked.
define internal i1 @is_raw(i64 %address, ptr %mark, i64 %size, i1 %global) {
entry:
  br label %byte
byte:
  %k = phi i64 [ 0, %entry ], [ %k.next, %next ]
  %at = getelementptr i8, ptr %mark, i64 %k
  %written = load i8, ptr %at
  %clean = icmp eq i8 %written, 0
  br i1 %clean, label %next, label %no
next:
  %k.next = add i64 %k, 1
  %more = icmp ult i64 %k.next, %size
  br i1 %more, label %byte, label %content
content:
  br i1 %global, label %around, label %yes
around:
  %low = and i64 %address, 15
  %start = sub i64 %address, %low
  %back = sub i64 0, %low
  %marks = getelementptr i8, ptr %mark, i64 %back
  %memory = inttoptr i64 %start to ptr
  br label %compare
compare:
  %j = phi i64 [ 0, %around ], [ %j.next, %same ]
  %there.at = getelementptr i8, ptr %memory, i64 %j
  %there = load i8, ptr %there.at
  %was.at = getelementptr i8, ptr @pattern, i64 %j
  %was = load i8, ptr %was.at
  %equal = icmp eq i8 %there, %was
  %marked.at = getelementptr i8, ptr %marks, i64 %j
  %marked = load i8, ptr %marked.at
  %known = icmp ne i8 %marked, 0
  %agrees = or i1 %equal, %known
  br i1 %agrees, label %same, label %no
same:
  %j.next = add i64 %j, 1
  %again = icmp ult i64 %j.next, 16
  br i1 %again, label %compare, label %yes
yes:
  ret i1 true
no:
  ret i1 false
}

define internal void @check_init(ptr %place, i32 %lane, i64 %address, i64 %size, i32 %flags, i32 %line) {
entry:
  %global.at = alloca i1
  %mark = call ptr @marks_of(ptr %place, i64 %address, i64 %size, ptr %global.at)
  %none = icmp eq ptr %mark, null
  br i1 %none, label %out, label %ask
ask:
  %global = load i1, ptr %global.at
  %read = and i32 %flags, @READ@
  %reads = icmp ne i32 %read, 0
  br i1 %reads, label %elements, label %written
elements:
  %element.high = lshr i32 %flags, 16
  %element.word = and i32 %element.high, 255
  %element = zext i32 %element.word to i64
  br label %each
each:
  %k = phi i64 [ 0, %elements ], [ %k.next, %next ]
  %at = add i64 %address, %k
  %mark.at = getelementptr i8, ptr %mark, i64 %k
  %raw = call i1 @is_raw(i64 %at, ptr %mark.at, i64 %element, i1 %global)
  br i1 %raw, label %bad, label %next
bad:
  %base = call i64 @field(ptr %place, i64 #Place.shared)
  call void @fail(ptr %place, i32 @KIND_INIT@, i32 %lane, i32 %line, i64 %at, i64 %element, i32 %flags,
                  i32 @RAW@, i32 0, i32 0, i64 %base)
  unreachable
next:
  %k.next = add i64 %k, %element
  %more = icmp ult i64 %k.next, %size
  br i1 %more, label %each, label %written
written:
  %write = and i32 %flags, @WRITE@
  %writes = icmp ne i32 %write, 0
  br i1 %writes, label %set, label %out
set:
  call void @llvm.memset.p0.i64(ptr %mark, i8 1, i64 %size, i1 false)
  br label %out
out:
  ret void
}

; The device set a shared variable to zeros.
define void @cujit_check_cleared(ptr %place, i64 %address, i64 %size) {
entry:
  call void @enter(ptr %place)
  %global = alloca i1
  %mark = call ptr @marks_of(ptr %place, i64 %address, i64 %size, ptr %global)
  %none = icmp eq ptr %mark, null
  br i1 %none, label %out, label %set
set:
  call void @llvm.memset.p0.i64(ptr %mark, i8 1, i64 %size, i1 false)
  br label %out
out:
  ret void
}

; Something wrote shared memory that says not where: all of it counts as written.
define void @cujit_check_filled(ptr %place) {
entry:
  call void @enter(ptr %place)
  %watch = call ptr @watch(ptr %place)
  %total = call i64 @field(ptr %watch, i64 #Watch.shared_total)
  %stride = call i64 @field(ptr %watch, i64 #Watch.shared_stride)
  %blocks = udiv i64 %total, %stride
  br label %each
each:
  %k = phi i64 [ 0, %entry ], [ %k.next, %each ]
  %piece = call ptr @piece(ptr %place, i64 %k)
  %marks = getelementptr i8, ptr %piece, i64 #Tracker
  call void @llvm.memset.p0.i64(ptr %marks, i8 1, i64 %stride, i1 false)
  %k.next = add i64 %k, 1
  %more = icmp ult i64 %k.next, %blocks
  br i1 %more, label %each, label %out
out:
  ret void
}
"""
