"""How blocks are taken and their warps take turns.

IR with ``@NAMES@`` that ``blocks.py`` fills in.
"""

from __future__ import annotations

__all__ = ["RUN", "TURNS"]

# Blocks are taken from the launch's counter, `chunk` at a time, and run `together` at a time.
RUN = """
define void @cujit_run_blocks(ptr %launch, ptr %shared, ptr %local, ptr %plan) {
entry:
  %group = alloca [#Group x i8], align 16
  %blocks.at = getelementptr i8, ptr %launch, i64 #Launch.blocks
  %blocks = load i64, ptr %blocks.at
  %next.at = getelementptr i8, ptr %launch, i64 #Launch.next
  %chunk.at = getelementptr i8, ptr %launch, i64 #Launch.chunk
  %chunk = load i64, ptr %chunk.at
  %together.at = getelementptr i8, ptr %launch, i64 #Launch.together
  %together.said = load i64, ptr %together.at
  %together = call i64 @llvm.umax.i64(i64 %together.said, i64 1)
  %warps.at = getelementptr i8, ptr %plan, i64 #Plan.warps
  %warps.word = load i32, ptr %warps.at
  %warps = zext i32 %warps.word to i64
  %bytes.at = getelementptr i8, ptr %plan, i64 #Plan.stack_bytes
  %bytes = load i64, ptr %bytes.at
  %arena = call ptr @arena(i64 %together, i64 %warps, i64 %bytes)
  %none = icmp eq ptr %arena, null
  br i1 %none, label %return, label %fetch
fetch:
  %first = atomicrmw add ptr %next.at, i64 %chunk monotonic
  %some = icmp ult i64 %first, %blocks
  br i1 %some, label %take, label %return
take:
  %end = add i64 %first, %chunk
  %limit = call i64 @llvm.umin.i64(i64 %end, i64 %blocks)
  br label %next
next:
  %at = phi i64 [ %first, %take ], [ %at.next, %next ]
  %left = sub i64 %limit, %at
  %count = call i64 @llvm.umin.i64(i64 %together, i64 %left)
  call void @run_group(ptr %launch, ptr %shared, ptr %local, ptr %plan, ptr %arena, ptr %group, i64 %at, i64 %count)
  %at.next = add i64 %at, %count
  %more = icmp ult i64 %at.next, %limit
  br i1 %more, label %next, label %fetch
return:
  ret void
}
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define internal void @run_group(ptr %launch, ptr %shared, ptr %local, ptr %plan, ptr %arena, ptr %group,
                                i64 %first, i64 %count) {
entry:
  %blocks = getelementptr i8, ptr %arena, i64 64
  %stacks.offset.at = getelementptr i64, ptr %arena, i64 4
  %stacks.offset = load i64, ptr %stacks.offset.at
  %stacks = getelementptr i8, ptr %arena, i64 %stacks.offset
  %plan.threads.at = getelementptr i8, ptr %plan, i64 #Plan.threads
  %threads = load i32, ptr %plan.threads.at
  %plan.warps.at = getelementptr i8, ptr %plan, i64 #Plan.warps
  %warps = load i32, ptr %plan.warps.at
  %plan.local.at = getelementptr i8, ptr %plan, i64 #Plan.local_bytes
  %local.bytes = load i64, ptr %plan.local.at
  %plan.stack.at = getelementptr i8, ptr %plan, i64 #Plan.stack_bytes
  %stack.bytes = load i64, ptr %plan.stack.at
  %plan.body.at = getelementptr i8, ptr %plan, i64 #Plan.body
  %body = load ptr, ptr %plan.body.at
  %stride.at = getelementptr i8, ptr %launch, i64 #Launch.shared_stride
  %stride = load i64, ptr %stride.at
  call void @llvm.memset.p0.i64(ptr %group, i8 0, i64 #Group, i1 false)
  store ptr %blocks, ptr %group
  %group.count.at = getelementptr i8, ptr %group, i64 #Group.count
  store i64 %count, ptr %group.count.at
  %warps.wide = zext i32 %warps to i64
  %local.stride = mul i64 %warps.wide, %local.bytes
  %size = call i64 @cluster_size(ptr %launch)
  br label %set
set:
  %k = phi i64 [ 0, %entry ], [ %k.next, %set.done ]
  %offset = mul i64 %k, #Block
  %b = getelementptr i8, ptr %blocks, i64 %offset
  call void @llvm.memset.p0.i64(ptr %b, i8 0, i64 #Block, i1 false)
  %b.launch = getelementptr i8, ptr %b, i64 #Block.launch
  store ptr %launch, ptr %b.launch
  %rank.wide = urem i64 %k, %size
  call void @join(ptr %b, i64 %rank.wide, i64 %size, i64 %k, i64 %count, i32 %threads)
  %shared.offset = mul i64 %k, %stride
  %shared.here = getelementptr i8, ptr %shared, i64 %shared.offset
  %b.shared = getelementptr i8, ptr %b, i64 #Block.shared
  store ptr %shared.here, ptr %b.shared
  %local.offset = mul i64 %k, %local.stride
  %local.here = getelementptr i8, ptr %local, i64 %local.offset
  %b.local = getelementptr i8, ptr %b, i64 #Block.local
  store ptr %local.here, ptr %b.local
  %number = add i64 %first, %k
  %b.number = getelementptr i8, ptr %b, i64 #Block.number
  store i64 %number, ptr %b.number
  %b.threads = getelementptr i8, ptr %b, i64 #Block.threads
  store i32 %threads, ptr %b.threads
  %b.warps = getelementptr i8, ptr %b, i64 #Block.warps
  store i32 %warps, ptr %b.warps
  %rank = trunc i64 %rank.wide to i32
  %b.rank = getelementptr i8, ptr %b, i64 #Block.rank
  store i32 %rank, ptr %b.rank
  %side = trunc i64 %k to i32
  %b.side = getelementptr i8, ptr %b, i64 #Block.side
  store i32 %side, ptr %b.side
  call void @place(ptr %launch, ptr %b, i64 %number)
  %before = mul i64 %k, %warps.wide
  br label %warp
warp:
  %w = phi i64 [ 0, %set ], [ %w.next, %warp ]
  %index = add i64 %before, %w
  %index.next = add i64 %index, 1
  %top.offset = mul i64 %index.next, %stack.bytes
  ; Stacks begin at different places in their pages, so that they do not share the same lines of the caches.
  %colour = and i64 %w, 15
  %colour.bytes = mul i64 %colour, 2240
  %top.lower = sub i64 %top.offset, %colour.bytes
  %frame.offset = sub i64 %top.lower, 72
  %frame = getelementptr i8, ptr %stacks, i64 %frame.offset
  %frame.number = getelementptr i64, ptr %frame, i64 2
  store i64 %w, ptr %frame.number
  %frame.argument = getelementptr i64, ptr %frame, i64 3
  store ptr %b, ptr %frame.argument
  %frame.function = getelementptr i64, ptr %frame, i64 4
  store ptr @warp_main, ptr %frame.function
  %frame.begin = getelementptr i64, ptr %frame, i64 6
  store ptr @cujit_begin, ptr %frame.begin
  %w.offset = mul i64 %w, #Warp
  %w.first = getelementptr i8, ptr %b, i64 #Block.warp
  %w.at = getelementptr i8, ptr %w.first, i64 %w.offset
  store ptr %frame, ptr %w.at
  %w.end = getelementptr i8, ptr %stacks, i64 %top.offset
  %w.end.at = getelementptr i8, ptr %w.at, i64 #Warp.stack_end
  store ptr %w.end, ptr %w.end.at
  %w.next = add i64 %w, 1
  %w.more = icmp ult i64 %w.next, %warps.wide
  br i1 %w.more, label %warp, label %set.done
set.done:
  %b.body = getelementptr i8, ptr %b, i64 #Block.body
  store ptr %body, ptr %b.body
  %k.next = add i64 %k, 1
  %k.more = icmp ult i64 %k.next, %count
  br i1 %k.more, label %set, label %turns
turns:
  %group.at = getelementptr i8, ptr %shared, i64 -@GROUP_PLACE@
  store ptr %group, ptr %group.at
  call void @take_turns(ptr %launch, ptr %group, i64 %count, ptr %shared)
  ret void
}

; A size of the launch along one axis, by the offset of its field; what is not said is 1.
define internal i64 @extent(ptr %launch, i64 %field) {
  %at = getelementptr i8, ptr %launch, i64 %field
  %word = load i32, ptr %at
  %wide = zext i32 %word to i64
  %size = call i64 @llvm.umax.i64(i64 %wide, i64 1)
  ret i64 %size
}

define internal i64 @cluster_size(ptr %launch) {
  %x = call i64 @extent(ptr %launch, i64 #Launch.cluster_x)
  %y = call i64 @extent(ptr %launch, i64 #Launch.cluster_y)
  %z = call i64 @extent(ptr %launch, i64 #Launch.cluster_z)
  %xy = mul i64 %x, %y
  %size = mul i64 %xy, %z
  ret i64 %size
}

; What a block notes of one of its warps.
define internal ptr @warp_of(ptr %block, i32 %warp) {
  %index = zext i32 %warp to i64
  %offset = mul i64 %index, #Warp
  %first = getelementptr i8, ptr %block, i64 #Block.warp
  %w = getelementptr i8, ptr %first, i64 %offset
  ret ptr %w
}

; Block `k` of `count` joins its cluster of `size` blocks, whose first one keeps what they share.
define internal void @join(ptr %b, i64 %rank, i64 %size, i64 %k, i64 %count, i32 %threads) {
entry:
  %back = mul i64 %rank, -#Block
  %first = getelementptr i8, ptr %b, i64 %back
  %cluster = getelementptr i8, ptr %first, i64 #Block.own_cluster
  %b.group = getelementptr i8, ptr %b, i64 #Block.group
  store ptr %cluster, ptr %b.group
  %leads = icmp eq i64 %rank, 0
  br i1 %leads, label %begin, label %out
begin:
  store ptr %b, ptr %cluster
  %left = sub i64 %count, %k
  %blocks = call i64 @llvm.umin.i64(i64 %size, i64 %left)
  %count.at = getelementptr i8, ptr %cluster, i64 #Group.count
  store i64 %blocks, ptr %count.at
  %blocks.word = trunc i64 %blocks to i32
  %all = mul i32 %threads, %blocks.word
  %threads.at = getelementptr i8, ptr %cluster, i64 #Group.threads
  store i32 %all, ptr %threads.at
  br label %out
out:
  ret void
}

; Where a block lies in the grid: blocks are numbered cluster by cluster, inside a cluster by rank.
define internal void @place(ptr %launch, ptr %b, i64 %number) {
  %gx = call i64 @extent(ptr %launch, i64 #Launch.grid_x)
  %gy = call i64 @extent(ptr %launch, i64 #Launch.grid_y)
  %cx = call i64 @extent(ptr %launch, i64 #Launch.cluster_x)
  %cy = call i64 @extent(ptr %launch, i64 #Launch.cluster_y)
  %cz = call i64 @extent(ptr %launch, i64 #Launch.cluster_z)
  %size = call i64 @cluster_size(ptr %launch)
  %cluster = udiv i64 %number, %size
  %rank = urem i64 %number, %size
  %row = udiv i64 %gx, %cx
  %column = udiv i64 %gy, %cy
  %cluster.x = urem i64 %cluster, %row
  %rest = udiv i64 %cluster, %row
  %cluster.y = urem i64 %rest, %column
  %cluster.z = udiv i64 %rest, %column
  %inner.x = urem i64 %rank, %cx
  %rank.rest = udiv i64 %rank, %cx
  %inner.y = urem i64 %rank.rest, %cy
  %inner.z = udiv i64 %rank.rest, %cy
  %first.x = mul i64 %cluster.x, %cx
  %x.wide = add i64 %first.x, %inner.x
  %x = trunc i64 %x.wide to i32
  %b.x = getelementptr i8, ptr %b, i64 #Block.ctaid_x
  store i32 %x, ptr %b.x
  %first.y = mul i64 %cluster.y, %cy
  %y.wide = add i64 %first.y, %inner.y
  %y = trunc i64 %y.wide to i32
  %b.y = getelementptr i8, ptr %b, i64 #Block.ctaid_y
  store i32 %y, ptr %b.y
  %first.z = mul i64 %cluster.z, %cz
  %z.wide = add i64 %first.z, %inner.z
  %z = trunc i64 %z.wide to i32
  %b.z = getelementptr i8, ptr %b, i64 #Block.ctaid_z
  store i32 %z, ptr %b.z
  %plane = mul i64 %gy, %z.wide
  %line.y = add i64 %plane, %y.wide
  %line = mul i64 %line.y, %gx
  %linear = add i64 %line, %x.wide
  %b.number = getelementptr i8, ptr %b, i64 #Block.number
  store i64 %linear, ptr %b.number
  ret void
}

; Where a warp begins, on its own stack.
define internal void @warp_main(ptr %block, i32 %warp) {
  %body.at = getelementptr i8, ptr %block, i64 #Block.body
  %body = load ptr, ptr %body.at
  call void %body(ptr %block, i32 %warp)
  %done.at = getelementptr i8, ptr %block, i64 #Block.done
  %done = load i32, ptr %done.at
  %done.next = add i32 %done, 1
  store i32 %done.next, ptr %done.at
  call void @leave(ptr %block, i32 %warp, i32 @DONE@)
  unreachable
}

; Let another warp of the block run, the next in turn that can; the scheduler where there is none, and where this one
; only spins (it may wait for another block).
define internal void @leave(ptr %block, i32 %warp, i32 %state) {
entry:
  %w = call ptr @warp_of(ptr %block, i32 %warp)
  %state.at = getelementptr i8, ptr %w, i64 #Warp.state
  store i32 %state, ptr %state.at
  %changes.at = getelementptr i8, ptr %block, i64 #Block.changes
  %changes = load i32, ptr %changes.at
  %seen.at = getelementptr i8, ptr %w, i64 #Warp.seen
  store i32 %changes, ptr %seen.at
  %warps.at = getelementptr i8, ptr %block, i64 #Block.warps
  %warps = load i32, ptr %warps.at
  %spins = icmp eq i32 %state, @SPINNING@
  br i1 %spins, label %give.up, label %next
next:
  %before = phi i32 [ %warp, %entry ], [ %i, %skip ]
  %up = add i32 %before, 1
  %wraps = icmp eq i32 %up, %warps
  %i = select i1 %wraps, i32 0, i32 %up
  %round = icmp eq i32 %i, %warp
  br i1 %round, label %give.up, label %look
look:
  %other = call ptr @warp_of(ptr %block, i32 %i)
  %other.state.at = getelementptr i8, ptr %other, i64 #Warp.state
  %other.state = load i32, ptr %other.state.at
  %other.seen.at = getelementptr i8, ptr %other, i64 #Warp.seen
  %other.seen = load i32, ptr %other.seen.at
  %ready = icmp eq i32 %other.state, @READY@
  %waits = icmp eq i32 %other.state, @WAITING@
  %changed = icmp ne i32 %other.seen, %changes
  %freed = and i1 %waits, %changed
  %runs = or i1 %ready, %freed
  br i1 %runs, label %go, label %skip
skip:
  br label %next
go:
  %running.at = getelementptr i8, ptr %block, i64 #Block.running
  store i32 %i, ptr %running.at
  %stack = load ptr, ptr %other
  call void @cujit_switch(ptr %w, ptr %stack)
  ret void
give.up:
  %scheduler.at = getelementptr i8, ptr %block, i64 #Block.scheduler
  %scheduler = load ptr, ptr %scheduler.at
  call void @cujit_switch(ptr %w, ptr %scheduler)
  ret void
}
"""

TURNS = """
define internal void @take_turns(ptr %launch, ptr %group, i64 %count, ptr %shared) {
entry:
  %place = getelementptr i8, ptr %shared, i64 -@PLACE@
  %blocks = load ptr, ptr %group
  br label %turn
turn:
  %patience = phi i32 [ 0, %entry ], [ 0, %judge ], [ %patience.next, %idle ], [ 0, %yield ]
  br label %block
block:
  %k = phi i64 [ 0, %turn ], [ %k.next, %block.end ]
  %moved = phi i1 [ false, %turn ], [ %moved.out, %block.end ]
  %spun = phi i1 [ false, %turn ], [ %spun.out, %block.end ]
  %open = phi i1 [ false, %turn ], [ %open.out, %block.end ]
  %offset = mul i64 %k, #Block
  %b = getelementptr i8, ptr %blocks, i64 %offset
  %done.at = getelementptr i8, ptr %b, i64 #Block.done
  %warps.at = getelementptr i8, ptr %b, i64 #Block.warps
  %changes.at = getelementptr i8, ptr %b, i64 #Block.changes
  %scheduler.at = getelementptr i8, ptr %b, i64 #Block.scheduler
  %warps = load i32, ptr %warps.at
  %done = load i32, ptr %done.at
  %over = icmp eq i32 %done, %warps
  br i1 %over, label %block.end, label %warps.begin
warps.begin:
  br label %warp
warp:
  %i = phi i32 [ 0, %warps.begin ], [ %i.next, %warp.end ]
  %moved.in = phi i1 [ %moved, %warps.begin ], [ %moved.now, %warp.end ]
  %spun.in = phi i1 [ %spun, %warps.begin ], [ %spun.now, %warp.end ]
  %w = call ptr @warp_of(ptr %b, i32 %i)
  %state.at = getelementptr i8, ptr %w, i64 #Warp.state
  %state = load i32, ptr %state.at
  switch i32 %state, label %warp.end [
    i32 @READY@, label %go
    i32 @WAITING@, label %look
    i32 @SPINNING@, label %spin
  ]
look:
  %seen.at = getelementptr i8, ptr %w, i64 #Warp.seen
  %seen = load i32, ptr %seen.at
  %changes = load i32, ptr %changes.at
  %same = icmp eq i32 %seen, %changes
  br i1 %same, label %warp.end, label %go
spin:
  br label %go
go:
  %spins = phi i1 [ true, %spin ], [ false, %look ], [ false, %warp ]
  %stack = load ptr, ptr %w
  %number.at = getelementptr i8, ptr %b, i64 #Block.number
  %number = load i64, ptr %number.at
  store i64 %number, ptr %place
  %running.at = getelementptr i8, ptr %b, i64 #Block.running
  store i32 %i, ptr %running.at
  call void @cujit_switch(ptr %scheduler.at, ptr %stack)
  %moves = xor i1 %spins, true
  br label %warp.end
warp.end:
  %moved.go = phi i1 [ false, %warp ], [ false, %look ], [ %moves, %go ]
  %spun.go = phi i1 [ false, %warp ], [ false, %look ], [ %spins, %go ]
  %moved.now = or i1 %moved.in, %moved.go
  %spun.now = or i1 %spun.in, %spun.go
  %i.next = add i32 %i, 1
  %i.more = icmp ult i32 %i.next, %warps
  br i1 %i.more, label %warp, label %warps.end
warps.end:
  br label %block.end
block.end:
  %moved.out = phi i1 [ %moved, %block ], [ %moved.now, %warps.end ]
  %spun.out = phi i1 [ %spun, %block ], [ %spun.now, %warps.end ]
  %open.out = phi i1 [ %open, %block ], [ true, %warps.end ]
  %k.next = add i64 %k, 1
  %k.more = icmp ult i64 %k.next, %count
  br i1 %k.more, label %block, label %turn.end
turn.end:
  br i1 %open.out, label %judge, label %return
judge:
  br i1 %moved.out, label %turn, label %stuck
stuck:
  br i1 %spun.out, label %idle, label %dead
idle:
  %patience.next = add i32 %patience, 1
  %long = icmp uge i32 %patience.next, @PATIENCE@
  br i1 %long, label %look.up, label %turn
look.up:
  ; Another thread may have failed while this one waits for what it will not do now.
  %fault.at = getelementptr i8, ptr %launch, i64 #Launch.fault_kind
  %fault = load volatile i32, ptr %fault.at
  %failed = icmp ne i32 %fault, 0
  %poked.at = getelementptr i8, ptr %launch, i64 #Launch.poked
  %poked = load volatile i32, ptr %poked.at
  %asked = icmp ne i32 %poked, 0
  %stops = or i1 %failed, %asked
  br i1 %stops, label %pause, label %yield
pause:
  call void @cujit_pause(ptr %launch, i64 0)
  br label %yield
yield:
  call i32 @sched_yield()
  br label %turn
dead:
  call void @deadlock(ptr %launch, ptr %group)
  br label %return
return:
  ret void
}

; The blocks as they are go into the launch for the error to read: where each warp waits.
define internal void @deadlock(ptr %launch, ptr %group) {
entry:
  %blocks = load ptr, ptr %group
  %number.at = getelementptr i8, ptr %blocks, i64 #Block.number
  %number = load i64, ptr %number.at
  %count.at = getelementptr i8, ptr %group, i64 #Group.count
  %count = load i64, ptr %count.at
  %size = mul i64 %count, #Block
  %copy = call ptr @malloc(i64 %size)
  call void @llvm.memcpy.p0.p0.i64(ptr %copy, ptr %blocks, i64 %size, i1 false)
  %claimed = call i32 @cujit_claim(ptr %launch, i32 @DEADLOCK@)
  %mine = icmp ne i32 %claimed, 0
  br i1 %mine, label %tell, label %drop
tell:
  %more.at = getelementptr i8, ptr %launch, i64 #Launch.fault_more
  store ptr %copy, ptr %more.at
  %more.count = getelementptr i64, ptr %more.at, i64 1
  store i64 %count, ptr %more.count
  call void @cujit_fault_here(ptr %launch, i64 %number, i32 -1, i32 0, i64 0)
  br label %stop
drop:
  call void @free(ptr %copy)
  br label %stop
stop:
  call void @cujit_stop()
  ret void
}
declare void @free(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare ptr @malloc(i64)
"""
