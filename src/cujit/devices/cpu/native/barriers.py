"""Barriers of a block and of a cluster, and the exits of threads.

IR with ``@NAMES@`` that ``blocks.py`` fills in.
"""

from __future__ import annotations

__all__ = ["BARRIERS", "CLUSTERS", "READS"]

_READ = """
define i32 @cujit_barrier_{name}(ptr %block, i32 %id) {{
  %barrier = call ptr @barrier_of(ptr %block, i32 %id)
  %at = getelementptr i8, ptr %barrier, i64 #Barrier.{field}
  %value = load i32, ptr %at
  ret i32 %value
}}
"""

# What a barrier says, for lanes that look later: by the name of the function the field that it reads.
_FIELDS = {"generation": "generation", "count": "last_count", "any": "last_any", "missing": "last_missing"}
READS = "".join(_READ.format(name=name, field=field) for name, field in _FIELDS.items())

BARRIERS = """
; Something has happened that may let a waiting warp go on.
define internal void @changed(ptr %block) {
  %changes.at = getelementptr i8, ptr %block, i64 #Block.changes
  %changes = load i32, ptr %changes.at
  %changes.next = add i32 %changes, 1
  store i32 %changes.next, ptr %changes.at
  ret void
}

define internal ptr @barrier_of(ptr %block, i32 %id) {
  %low = and i32 %id, @LAST_BARRIER@
  %index = zext i32 %low to i64
  %offset = mul i64 %index, #Barrier
  %first = getelementptr i8, ptr %block, i64 #Block.barriers
  %barrier = getelementptr i8, ptr %first, i64 %offset
  ret ptr %barrier
}

; Open a barrier at which enough threads have arrived.
define internal void @try_open(ptr %block, ptr %barrier) {
  %arrived = load i32, ptr %barrier
  %expected.at = getelementptr i8, ptr %barrier, i64 #Barrier.expected
  %expected = load i32, ptr %expected.at
  %threads.at = getelementptr i8, ptr %block, i64 #Block.threads
  %threads = load i32, ptr %threads.at
  %exited.at = getelementptr i8, ptr %block, i64 #Block.exited
  %exited = load i32, ptr %exited.at
  %alive = sub i32 %threads, %exited
  %every = icmp eq i32 %expected, 0
  %need = select i1 %every, i32 %alive, i32 %expected
  %enough = icmp uge i32 %arrived, %need
  %someone = icmp ne i32 %arrived, 0
  %opens = and i1 %enough, %someone
  br i1 %opens, label %open, label %out
open:
  %count.at = getelementptr i8, ptr %barrier, i64 #Barrier.count
  %count = load i32, ptr %count.at
  %any.at = getelementptr i8, ptr %barrier, i64 #Barrier.any
  %any = load i32, ptr %any.at
  %missing.at = getelementptr i8, ptr %barrier, i64 #Barrier.missing
  %missing = load i32, ptr %missing.at
  %last.count = getelementptr i8, ptr %barrier, i64 #Barrier.last_count
  store i32 %count, ptr %last.count
  %last.any = getelementptr i8, ptr %barrier, i64 #Barrier.last_any
  store i32 %any, ptr %last.any
  %last.missing = getelementptr i8, ptr %barrier, i64 #Barrier.last_missing
  store i32 %missing, ptr %last.missing
  store i32 0, ptr %barrier
  store i32 0, ptr %expected.at
  store i32 0, ptr %count.at
  store i32 0, ptr %any.at
  store i32 0, ptr %missing.at
  %generation.at = getelementptr i8, ptr %barrier, i64 #Barrier.generation
  %generation = load i32, ptr %generation.at
  %generation.next = add i32 %generation, 1
  store i32 %generation.next, ptr %generation.at
  call void @changed(ptr %block)
  br label %out
out:
  ret void
}

; `lanes` of a warp arrive, `holding` of them with a predicate that holds; `threads` is how many the barrier is for
; (0: all of the block). The generation that they wait to see the end of is returned.
define i32 @cujit_barrier_arrive(ptr %block, i32 %id, i32 %threads, i32 %lanes, i32 %holding) {
  %barrier = call ptr @barrier_of(ptr %block, i32 %id)
  %generation.at = getelementptr i8, ptr %barrier, i64 #Barrier.generation
  %generation = load i32, ptr %generation.at
  %here = call i32 @llvm.ctpop.i32(i32 %lanes)
  %arrived = load i32, ptr %barrier
  %arrived.next = add i32 %arrived, %here
  store i32 %arrived.next, ptr %barrier
  %expected.at = getelementptr i8, ptr %barrier, i64 #Barrier.expected
  store i32 %threads, ptr %expected.at
  %held = and i32 %lanes, %holding
  %held.count = call i32 @llvm.ctpop.i32(i32 %held)
  %count.at = getelementptr i8, ptr %barrier, i64 #Barrier.count
  %count = load i32, ptr %count.at
  %count.next = add i32 %count, %held.count
  store i32 %count.next, ptr %count.at
  %any.at = getelementptr i8, ptr %barrier, i64 #Barrier.any
  %any = load i32, ptr %any.at
  %any.next = or i32 %any, %held
  store i32 %any.next, ptr %any.at
  %not = xor i32 %holding, -1
  %lacking = and i32 %lanes, %not
  %missing.at = getelementptr i8, ptr %barrier, i64 #Barrier.missing
  %missing = load i32, ptr %missing.at
  %missing.next = or i32 %missing, %lacking
  store i32 %missing.next, ptr %missing.at
  call void @try_open(ptr %block, ptr %barrier)
  ret i32 %generation
}
declare i32 @llvm.ctpop.i32(i32)

define internal void @note(ptr %block, i32 %warp, i32 %id, i32 %line, i32 %lanes) {
  %w = call ptr @warp_of(ptr %block, i32 %warp)
  %line.at = getelementptr i8, ptr %w, i64 #Warp.line
  store i32 %line, ptr %line.at
  %lanes.at = getelementptr i8, ptr %w, i64 #Warp.lanes
  store i32 %lanes, ptr %lanes.at
  %barrier.at = getelementptr i8, ptr %w, i64 #Warp.barrier
  store i32 %id, ptr %barrier.at
  ret void
}

define void @cujit_barrier_wait(ptr %block, i32 %warp, i32 %id, i32 %generation, i32 %line, i32 %lanes) {
entry:
  %barrier = call ptr @barrier_of(ptr %block, i32 %id)
  %generation.at = getelementptr i8, ptr %barrier, i64 #Barrier.generation
  %early = load i32, ptr %generation.at
  %closed = icmp eq i32 %early, %generation
  br i1 %closed, label %tell, label %out
tell:
  call void @note(ptr %block, i32 %warp, i32 %id, i32 %line, i32 %lanes)
  br label %wait
wait:
  call void @leave(ptr %block, i32 %warp, i32 @WAITING@)
  %now = load i32, ptr %generation.at
  %still = icmp eq i32 %now, %generation
  br i1 %still, label %wait, label %out
out:
  ret void
}

; Wait until something of the block changes.
define void @cujit_wait(ptr %block, i32 %warp, i32 %line, i32 %lanes) {
  call void @note(ptr %block, i32 %warp, i32 -1, i32 %line, i32 %lanes)
  call void @leave(ptr %block, i32 %warp, i32 @WAITING@)
  ret void
}

; Let others run; come back in any case.
define void @cujit_spin(ptr %block, i32 %warp, i32 %line, i32 %lanes) {
  call void @note(ptr %block, i32 %warp, i32 -1, i32 %line, i32 %lanes)
  call void @leave(ptr %block, i32 %warp, i32 @SPINNING@)
  ret void
}

; Threads leave for good: barriers for all threads wait for fewer.
define void @cujit_exit(ptr %block, i32 %warp, i32 %lanes) {
entry:
  %here = call i32 @llvm.ctpop.i32(i32 %lanes)
  %exited.at = getelementptr i8, ptr %block, i64 #Block.exited
  %exited = load i32, ptr %exited.at
  %exited.next = add i32 %exited, %here
  store i32 %exited.next, ptr %exited.at
  %group.at = getelementptr i8, ptr %block, i64 #Block.group
  %group = load ptr, ptr %group.at
  %gone.at = getelementptr i8, ptr %group, i64 #Group.exited
  %gone = load i32, ptr %gone.at
  %gone.next = add i32 %gone, %here
  store i32 %gone.next, ptr %gone.at
  call void @forget_arrivals(ptr %group, ptr %block, i32 %warp, i32 %lanes)
  %first = getelementptr i8, ptr %block, i64 #Block.barriers
  %everyone.at = getelementptr i8, ptr %block, i64 #Block.threads
  %everyone = load i32, ptr %everyone.at
  %last = icmp eq i32 %exited.next, %everyone
  br i1 %last, label %cluster, label %each.begin
each.begin:
  br label %each
each:
  %k = phi i64 [ 0, %each.begin ], [ %k.next, %each.end ]
  %offset = mul i64 %k, #Barrier
  %barrier = getelementptr i8, ptr %first, i64 %offset
  %arrived = load i32, ptr %barrier
  %someone = icmp ne i32 %arrived, 0
  br i1 %someone, label %try, label %each.end
try:
  call void @try_open(ptr %block, ptr %barrier)
  br label %each.end
each.end:
  %k.next = add i64 %k, 1
  %more = icmp ult i64 %k.next, @BARRIERS@
  br i1 %more, label %each, label %cluster
cluster:
  %waiting.at = getelementptr i8, ptr %group, i64 #Group.arrived
  %waiting = load i32, ptr %waiting.at
  %some = icmp ne i32 %waiting, 0
  br i1 %some, label %try.cluster, label %out
try.cluster:
  call void @try_open_cluster(ptr %group)
  br label %out
out:
  ret void
}
"""

CLUSTERS = """
define internal void @try_open_cluster(ptr %group) {
entry:
  %arrived.at = getelementptr i8, ptr %group, i64 #Group.arrived
  %arrived = load i32, ptr %arrived.at
  %exited.at = getelementptr i8, ptr %group, i64 #Group.exited
  %exited = load i32, ptr %exited.at
  %threads.at = getelementptr i8, ptr %group, i64 #Group.threads
  %threads = load i32, ptr %threads.at
  %alive = sub i32 %threads, %exited
  %enough = icmp uge i32 %arrived, %alive
  br i1 %enough, label %open, label %out
open:
  store i32 0, ptr %arrived.at
  %generation.at = getelementptr i8, ptr %group, i64 #Group.generation
  %generation = load i32, ptr %generation.at
  %generation.next = add i32 %generation, 1
  store i32 %generation.next, ptr %generation.at
  %blocks = load ptr, ptr %group
  %count.at = getelementptr i8, ptr %group, i64 #Group.count
  %count = load i64, ptr %count.at
  br label %each
each:
  %k = phi i64 [ 0, %open ], [ %k.next, %each ]
  %offset = mul i64 %k, #Block
  %b = getelementptr i8, ptr %blocks, i64 %offset
  call void @changed(ptr %b)
  %k.next = add i64 %k, 1
  %more = icmp ult i64 %k.next, %count
  br i1 %more, label %each, label %out
out:
  ret void
}

; Threads that arrived and left before the barrier opened are not counted twice.
define internal void @forget_arrivals(ptr %group, ptr %block, i32 %warp, i32 %lanes) {
entry:
  %generation.at = getelementptr i8, ptr %group, i64 #Group.generation
  %generation = load i32, ptr %generation.at
  %kept = call ptr @arrival_of(ptr %block, i32 %warp)
  %last = load i32, ptr %kept
  %current = icmp eq i32 %last, %generation
  br i1 %current, label %forget, label %out
forget:
  %lanes.at = getelementptr i32, ptr %kept, i64 1
  %there = load i32, ptr %lanes.at
  %both = and i32 %there, %lanes
  %twice = call i32 @llvm.ctpop.i32(i32 %both)
  %stay = xor i32 %there, %both
  store i32 %stay, ptr %lanes.at
  %arrived.at = getelementptr i8, ptr %group, i64 #Group.arrived
  %arrived = load i32, ptr %arrived.at
  %arrived.next = sub i32 %arrived, %twice
  store i32 %arrived.next, ptr %arrived.at
  br label %out
out:
  ret void
}

define i32 @cujit_cluster_arrive(ptr %block, i32 %warp, i32 %lanes) {
  %group.at = getelementptr i8, ptr %block, i64 #Block.group
  %group = load ptr, ptr %group.at
  %generation.at = getelementptr i8, ptr %group, i64 #Group.generation
  %generation = load i32, ptr %generation.at
  %here = call i32 @llvm.ctpop.i32(i32 %lanes)
  %arrived.at = getelementptr i8, ptr %group, i64 #Group.arrived
  %arrived = load i32, ptr %arrived.at
  %arrived.next = add i32 %arrived, %here
  store i32 %arrived.next, ptr %arrived.at
  %kept = call ptr @arrival_of(ptr %block, i32 %warp)
  %last = load i32, ptr %kept
  %same = icmp eq i32 %last, %generation
  %lanes.at = getelementptr i32, ptr %kept, i64 1
  %before = load i32, ptr %lanes.at
  %with = select i1 %same, i32 %before, i32 0
  %all = or i32 %with, %lanes
  store i32 %all, ptr %lanes.at
  store i32 %generation, ptr %kept
  call void @try_open_cluster(ptr %group)
  ret i32 %generation
}

define internal ptr @arrival_of(ptr %block, i32 %warp) {
  %w = call ptr @warp_of(ptr %block, i32 %warp)
  %at = getelementptr i8, ptr %w, i64 #Warp.cluster_generation
  ret ptr %at
}

; The generation in which these lanes of a warp arrived last. Where none of them was among the last to arrive, all
; arrived in one before, which others of the warp have seen the end of.
define i32 @cujit_cluster_arrival(ptr %block, i32 %warp, i32 %lanes) {
  %at = call ptr @arrival_of(ptr %block, i32 %warp)
  %generation = load i32, ptr %at
  %lanes.at = getelementptr i32, ptr %at, i64 1
  %there = load i32, ptr %lanes.at
  %both = and i32 %there, %lanes
  %none = icmp eq i32 %both, 0
  %before = sub i32 %generation, 1
  %own = select i1 %none, i32 %before, i32 %generation
  ret i32 %own
}

define i32 @cujit_cluster_generation(ptr %block) {
  %group.at = getelementptr i8, ptr %block, i64 #Block.group
  %group = load ptr, ptr %group.at
  %at = getelementptr i8, ptr %group, i64 #Group.generation
  %generation = load i32, ptr %at
  ret i32 %generation
}

define void @cujit_cluster_wait(ptr %block, i32 %warp, i32 %generation, i32 %line, i32 %lanes) {
entry:
  %group.at = getelementptr i8, ptr %block, i64 #Block.group
  %group = load ptr, ptr %group.at
  %generation.at = getelementptr i8, ptr %group, i64 #Group.generation
  br label %look
look:
  %now = load i32, ptr %generation.at
  %closed = icmp eq i32 %now, %generation
  br i1 %closed, label %wait, label %out
wait:
  call void @note(ptr %block, i32 %warp, i32 -1, i32 %line, i32 %lanes)
  call void @leave(ptr %block, i32 %warp, i32 @WAITING@)
  br label %look
out:
  ret void
}
"""
