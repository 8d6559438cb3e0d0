"""The check for races, as native code; put together in ``checks``.

An access is ordered after another one if a chain of barriers, mbarriers or atomic operations leads from there to here;
within a warp any ``.sync`` operation of it orders.

Source for the clocks: C. Flanagan, S. N. Freund, "FastTrack: efficient and precise dynamic race detection", 2009.
"""

from __future__ import annotations

__all__ = ["CLOCKS", "RACES"]

RACES = """
; Whether two accesses of a byte are a race: `record` is the earlier one.
define internal i1 @unordered(ptr %place, ptr %record, i32 %thread, i32 %strong, i32 %sync, i32 %serial) {
entry:
  %other.next = load i32, ptr %record
  %none = icmp eq i32 %other.next, 0
  br i1 %none, label %no, label %someone
someone:
  %other = sub i32 %other.next, 1
  %same = icmp eq i32 %other, %thread
  br i1 %same, label %no, label %another
another:
  %flags = call i32 @word(ptr %record, i64 #Record.flags)
  %both = and i32 %flags, %strong
  %both.strong = and i32 %both, @STRONG@
  %atomics = icmp ne i32 %both.strong, 0
  br i1 %atomics, label %no, label %warps
warps:
  %warp = lshr i32 %thread, 5
  %other.warp = lshr i32 %other, 5
  %mates = icmp eq i32 %warp, %other.warp
  br i1 %mates, label %lanes, label %clocks
lanes:
  %other.sync = call i32 @word(ptr %record, i64 #Record.sync)
  %other.serial = call i32 @word(ptr %record, i64 #Record.serial)
  %unsynced = icmp eq i32 %other.sync, %sync
  %later = icmp ne i32 %other.serial, %serial
  %race = and i1 %unsynced, %later
  ret i1 %race
clocks:
  %tracker.at = getelementptr i8, ptr %place, i64 #Place.piece
  %tracker = load ptr, ptr %tracker.at
  %w = zext i32 %warp to i64
  %v = zext i32 %other.warp to i64
  %known.at = call ptr @clock_of(ptr %tracker, i64 %w, i64 %v)
  %known = load i32, ptr %known.at
  %clock = call i32 @word(ptr %record, i64 #Record.clock)
  %beyond = icmp ugt i32 %clock, %known
  ret i1 %beyond
no:
  ret i1 false
}

define internal void @note(ptr %record, i32 %thread, i32 %clock, i32 %sync, i32 %line, i32 %flags, i32 %serial) {
  %number = add i32 %thread, 1
  store i32 %number, ptr %record
  %clock.at = getelementptr i8, ptr %record, i64 #Record.clock
  store i32 %clock, ptr %clock.at
  %sync.at = getelementptr i8, ptr %record, i64 #Record.sync
  store i32 %sync, ptr %sync.at
  %line.at = getelementptr i8, ptr %record, i64 #Record.line
  store i32 %line, ptr %line.at
  %flags.at = getelementptr i8, ptr %record, i64 #Record.flags
  store i32 %flags, ptr %flags.at
  %serial.at = getelementptr i8, ptr %record, i64 #Record.serial
  store i32 %serial, ptr %serial.at
  ret void
}

; Which of the two records of readers a read takes: its own or a free one; else one of its warp, so that the other
; warp's stays; else the first if that is ordered before it.
define internal ptr @reader_for(ptr %place, ptr %entry.at, i32 %thread, i32 %sync) {
entry:
  %one = getelementptr i8, ptr %entry.at, i64 #Entry.first_reader
  %two = getelementptr i8, ptr %entry.at, i64 #Entry.second_reader
  %mine = add i32 %thread, 1
  %first = load i32, ptr %one
  %second = load i32, ptr %two
  %one.free = icmp eq i32 %first, 0
  %one.own = icmp eq i32 %first, %mine
  %one.good = or i1 %one.free, %one.own
  br i1 %one.good, label %take.one, label %ask.two
ask.two:
  %two.free = icmp eq i32 %second, 0
  %two.own = icmp eq i32 %second, %mine
  %two.good = or i1 %two.free, %two.own
  br i1 %two.good, label %take.two, label %warps
warps:
  %warp = lshr i32 %thread, 5
  %first.thread = sub i32 %first, 1
  %first.warp = lshr i32 %first.thread, 5
  %second.thread = sub i32 %second, 1
  %second.warp = lshr i32 %second.thread, 5
  %two.mate = icmp eq i32 %second.warp, %warp
  br i1 %two.mate, label %take.two, label %mate
mate:
  %one.mate = icmp eq i32 %first.warp, %warp
  br i1 %one.mate, label %take.one, label %strangers
strangers:
  %apart = call i1 @unordered(ptr %place, ptr %one, i32 %thread, i32 0, i32 %sync, i32 0)
  br i1 %apart, label %take.two, label %take.one
take.one:
  ret ptr %one
take.two:
  ret ptr %two
}

define internal void @race(ptr %place, i32 %lane, i32 %line, i64 %address, i64 %size, i32 %flags, ptr %record) noreturn
    noinline {
  %other = load i32, ptr %record
  %other.thread = sub i32 %other, 1
  %other.line = call i32 @word(ptr %record, i64 #Record.line)
  %other.flags = call i32 @word(ptr %record, i64 #Record.flags)
  %low = zext i32 %other.flags to i64
  %base = call i64 @field(ptr %place, i64 #Place.shared)
  %offset = sub i64 %address, %base
  %high = shl i64 %offset, 32
  %extra = or i64 %low, %high
  call void @fail(ptr %place, i32 @KIND_RACE@, i32 %lane, i32 %line, i64 %address, i64 %size, i32 %flags,
                  i32 @UNORDERED@, i32 %other.thread, i32 %other.line, i64 %extra)
  unreachable
}

; Whether a store of known values leaves a byte as it is: then nobody minds who was first.
define internal i1 @is_same(ptr %place, i32 %lane, i64 %address, i64 %k) {
entry:
  %data.at = getelementptr i8, ptr %place, i64 #Place.data
  %data = load ptr, ptr %data.at
  %none = icmp eq ptr %data, null
  br i1 %none, label %no, label %compare
compare:
  %bytes = call i64 @field(ptr %place, i64 #Place.part_bytes)
  %part = udiv i64 %k, %bytes
  %inside = urem i64 %k, %bytes
  %vector = mul i64 %bytes, 32
  %part.offset = mul i64 %part, %vector
  %lane.wide = zext i32 %lane to i64
  %lane.offset = mul i64 %lane.wide, %bytes
  %sum = add i64 %part.offset, %lane.offset
  %offset = add i64 %sum, %inside
  %new.at = getelementptr i8, ptr %data, i64 %offset
  %new = load i8, ptr %new.at
  %there.int = add i64 %address, %k
  %there = inttoptr i64 %there.int to ptr
  %old = load i8, ptr %there
  %same = icmp eq i8 %new, %old
  ret i1 %same
no:
  ret i1 false
}

define internal void @check_race(ptr %place, i32 %lane, i64 %address, i64 %size, i32 %flags, i32 %line, i32 %serial) {
entry:
  %inside = call i1 @in_shared(ptr %place, i64 %address, i64 %size)
  br i1 %inside, label %go, label %out
go:
  %watch = call ptr @watch(ptr %place)
  %tracker.at = getelementptr i8, ptr %place, i64 #Place.piece
  %tracker = load ptr, ptr %tracker.at
  %first = call i32 @word(ptr %place, i64 #Place.first)
  %thread = add i32 %first, %lane
  %warp.word = call i32 @word(ptr %place, i64 #Place.warp)
  %warp = zext i32 %warp.word to i64
  %clock.at = call ptr @clock_of(ptr %tracker, i64 %warp, i64 %warp)
  %clock = load i32, ptr %clock.at
  %syncs = getelementptr i8, ptr %tracker, i64 #Tracker.syncs
  %sync.at = getelementptr i32, ptr %syncs, i64 %warp
  %sync = load i32, ptr %sync.at
  %shared = call i64 @field(ptr %place, i64 #Place.shared)
  %offset = sub i64 %address, %shared
  %entries.offset = call i64 @field(ptr %watch, i64 #Watch.entries)
  %entries = getelementptr i8, ptr %tracker, i64 %entries.offset
  %write = and i32 %flags, @WRITE@
  %writes = icmp ne i32 %write, 0
  br label %byte
byte:
  %k = phi i64 [ 0, %go ], [ %k.next, %next ]
  %index = add i64 %offset, %k
  %entry.offset = mul i64 %index, #Entry
  %e = getelementptr i8, ptr %entries, i64 %entry.offset
  %written = call i1 @unordered(ptr %place, ptr %e, i32 %thread, i32 %flags, i32 %sync, i32 %serial)
  br i1 %written, label %value, label %kind
value:
  %unchanged = call i1 @is_same(ptr %place, i32 %lane, i64 %address, i64 %k)
  br i1 %unchanged, label %kind, label %bad.writer
bad.writer:
  call void @race(ptr %place, i32 %lane, i32 %line, i64 %address, i64 %size, i32 %flags, ptr %e)
  unreachable
kind:
  br i1 %writes, label %readers, label %reads
readers:
  %one = getelementptr i8, ptr %e, i64 #Entry.first_reader
  %one.bad = call i1 @unordered(ptr %place, ptr %one, i32 %thread, i32 %flags, i32 %sync, i32 %serial)
  br i1 %one.bad, label %bad.one, label %second
bad.one:
  call void @race(ptr %place, i32 %lane, i32 %line, i64 %address, i64 %size, i32 %flags, ptr %one)
  unreachable
second:
  %two = getelementptr i8, ptr %e, i64 #Entry.second_reader
  %two.bad = call i1 @unordered(ptr %place, ptr %two, i32 %thread, i32 %flags, i32 %sync, i32 %serial)
  br i1 %two.bad, label %bad.two, label %wrote
bad.two:
  call void @race(ptr %place, i32 %lane, i32 %line, i64 %address, i64 %size, i32 %flags, ptr %two)
  unreachable
wrote:
  store i32 0, ptr %one
  store i32 0, ptr %two
  ; A plain write that the same thread made just before says more than its atomic one.
  %mine = add i32 %thread, 1
  %before = load i32, ptr %e
  %own = icmp eq i32 %before, %mine
  %before.clock = call i32 @word(ptr %e, i64 #Record.clock)
  %recent = icmp eq i32 %before.clock, %clock
  %before.flags = call i32 @word(ptr %e, i64 #Record.flags)
  %before.strong = and i32 %before.flags, @STRONG@
  %plain = icmp eq i32 %before.strong, 0
  %strong = and i32 %flags, @STRONG@
  %is.strong = icmp ne i32 %strong, 0
  %own.recent = and i1 %own, %recent
  %weaker = and i1 %plain, %is.strong
  %keeps = and i1 %own.recent, %weaker
  br i1 %keeps, label %next, label %put
put:
  call void @note(ptr %e, i32 %thread, i32 %clock, i32 %sync, i32 %line, i32 %flags, i32 %serial)
  br label %next
reads:
  %reader = call ptr @reader_for(ptr %place, ptr %e, i32 %thread, i32 %sync)
  call void @note(ptr %reader, i32 %thread, i32 %clock, i32 %sync, i32 %line, i32 %flags, i32 %serial)
  br label %next
next:
  %k.next = add i64 %k, 1
  %more = icmp ult i64 %k.next, %size
  br i1 %more, label %byte, label %out
out:
  ret void
}

; Lanes of one store that write different values to the same shared memory: `parts` items of `bytes` bytes a lane lie
; in the place's data, each part one vector of the warp. After this the data count no more.
define void @cujit_check_same(ptr %place, i32 %lanes, i64 %parts, i32 %flags, i32 %line) {
entry:
  call void @enter(ptr %place)
  %data.at = getelementptr i8, ptr %place, i64 #Place.data
  %data = load ptr, ptr %data.at
  store ptr null, ptr %data.at
  %bytes = call i64 @field(ptr %place, i64 #Place.part_bytes)
  %size = mul i64 %parts, %bytes
  %addresses = getelementptr i8, ptr %place, i64 #Place.addresses
  %some = icmp ne i32 %lanes, 0
  br i1 %some, label %each, label %out
each lane, from entry, again from each.next:
  %at = getelementptr i64, ptr %addresses, i32 %lane
  %address = load i64, ptr %at
  %inside = call i1 @in_shared(ptr %place, i64 %address, i64 %size)
  %others = icmp ne i32 %left.next, 0
  %go = and i1 %inside, %others
  br i1 %go, label %pair, label %each.next
pair:
  %rest = phi i32 [ %left.next, %each ], [ %rest.next, %pair.next ]
  %mate = call i32 @llvm.cttz.i32(i32 %rest, i1 false)
  %rest.less = sub i32 %rest, 1
  %rest.next = and i32 %rest, %rest.less
  %mate.at = getelementptr i64, ptr %addresses, i32 %mate
  %mate.address = load i64, ptr %mate.at
  %distance = sub i64 %mate.address, %address
  %distance.back = sub i64 0, %distance
  %near = icmp ult i64 %distance, %size
  %near.back = icmp ult i64 %distance.back, %size
  %overlap = or i1 %near, %near.back
  br i1 %overlap, label %judge, label %pair.next
judge:
  %same = icmp eq i64 %distance, 0
  br i1 %same, label %part, label %bad
part:
  %p = phi i64 [ 0, %judge ], [ %p.next, %part.next ]
  %vector = mul i64 %bytes, 32
  %part.offset = mul i64 %p, %vector
  %part.data = getelementptr i8, ptr %data, i64 %part.offset
  %lane.wide = zext i32 %lane to i64
  %mate.wide = zext i32 %mate to i64
  %lane.offset = mul i64 %lane.wide, %bytes
  %mate.offset = mul i64 %mate.wide, %bytes
  %lane.value = getelementptr i8, ptr %part.data, i64 %lane.offset
  %mate.value = getelementptr i8, ptr %part.data, i64 %mate.offset
  br label %byte
byte:
  %k = phi i64 [ 0, %part ], [ %k.next, %byte.same ]
  %x.at = getelementptr i8, ptr %lane.value, i64 %k
  %x = load i8, ptr %x.at
  %y.at = getelementptr i8, ptr %mate.value, i64 %k
  %y = load i8, ptr %y.at
  %equal = icmp eq i8 %x, %y
  br i1 %equal, label %byte.same, label %bad
byte.same:
  %k.next = add i64 %k, 1
  %k.more = icmp ult i64 %k.next, %bytes
  br i1 %k.more, label %byte, label %part.next
part.next:
  %p.next = add i64 %p, 1
  %p.more = icmp ult i64 %p.next, %parts
  br i1 %p.more, label %part, label %pair.next
bad:
  %first = call i32 @word(ptr %place, i64 #Place.first)
  %mate.thread = add i32 %first, %mate
  %base = call i64 @field(ptr %place, i64 #Place.shared)
  %offset = sub i64 %address, %base
  %low = zext i32 %flags to i64
  %high = shl i64 %offset, 32
  %extra = or i64 %low, %high
  call void @fail(ptr %place, i32 @KIND_RACE@, i32 %lane, i32 %line, i64 %address, i64 %size, i32 %flags,
                  i32 @DIFFERENT@, i32 %mate.thread, i32 %line, i64 %extra)
  unreachable
pair.next:
  %pair.more = icmp ne i32 %rest.next, 0
  br i1 %pair.more, label %pair, label %each.next
each.next:
  br i1 %others, label %each, label %out
out:
  ret void
}
"""

CLOCKS = """
; to = the later of both, clock by clock.
define internal void @join(ptr %to, ptr %from) {
entry:
  br label %each
each:
  %k = phi i64 [ 0, %entry ], [ %k.next, %each ]
  %to.at = getelementptr i32, ptr %to, i64 %k
  %x = load i32, ptr %to.at
  %from.at = getelementptr i32, ptr %from, i64 %k
  %y = load i32, ptr %from.at
  %later = call i32 @llvm.umax.i32(i32 %x, i32 %y)
  store i32 %later, ptr %to.at
  %k.next = add i64 %k, 1
  %more = icmp ult i64 %k.next, @WARPS@
  br i1 %more, label %each, label %out
out:
  ret void
}
declare i32 @llvm.umax.i32(i32, i32)

define internal ptr @own_clock(ptr %place) {
  %tracker.at = getelementptr i8, ptr %place, i64 #Place.piece
  %tracker = load ptr, ptr %tracker.at
  %warp.word = call i32 @word(ptr %place, i64 #Place.warp)
  %warp = zext i32 %warp.word to i64
  %row = call ptr @clock_of(ptr %tracker, i64 %warp, i64 0)
  ret ptr %row
}

; What this warp did so far is known to whoever takes it over from `clock`.
define internal void @release(ptr %place, ptr %clock) {
  %row = call ptr @own_clock(ptr %place)
  call void @join(ptr %clock, ptr %row)
  %warp = call i32 @word(ptr %place, i64 #Place.warp)
  %own.at = getelementptr i32, ptr %row, i32 %warp
  %own = load i32, ptr %own.at
  %next = add i32 %own, 1
  store i32 %next, ptr %own.at
  ret void
}

; The clock of an object at an address: objects far apart may have one in common, which hides races and makes none.
define internal ptr @object_of(ptr %place, i64 %address) {
  %tracker.at = getelementptr i8, ptr %place, i64 #Place.piece
  %tracker = load ptr, ptr %tracker.at
  %word = lshr i64 %address, 2
  %index = urem i64 %word, @OBJECTS@
  %first = mul i64 %index, @WARPS@
  %objects = getelementptr i8, ptr %tracker, i64 #Tracker.objects
  %clock = getelementptr i32, ptr %objects, i64 %first
  ret ptr %clock
}

define internal ptr @arrival_at(ptr %place, i32 %id) {
  %tracker.at = getelementptr i8, ptr %place, i64 #Place.piece
  %tracker = load ptr, ptr %tracker.at
  %warp = call i32 @word(ptr %place, i64 #Place.warp)
  %row = mul i32 %warp, @SLOTS@
  %index = add i32 %row, %id
  %arrivals = getelementptr i8, ptr %tracker, i64 #Tracker.arrivals
  %at = getelementptr i32, ptr %arrivals, i32 %index
  ret ptr %at
}

; A barrier has a clock for each of two generations: warps may be one ahead.
define internal ptr @slot_of(ptr %place, i32 %id, i32 %generation) {
  %tracker.at = getelementptr i8, ptr %place, i64 #Place.piece
  %tracker = load ptr, ptr %tracker.at
  %odd = and i32 %generation, 1
  %pair = shl i32 %id, 1
  %index.word = or i32 %pair, %odd
  %index = zext i32 %index.word to i64
  %offset = mul i64 %index, #Slot
  %slots = getelementptr i8, ptr %tracker, i64 #Tracker.slots
  %slot = getelementptr i8, ptr %slots, i64 %offset
  ret ptr %slot
}

; Threads of this warp are about to arrive at a barrier.
define void @cujit_check_arrive(ptr %place, i32 %id) {
entry:
  call void @enter(ptr %place)
  %state.at = getelementptr i8, ptr %place, i64 #Place.state
  %state = load ptr, ptr %state.at
  %cluster = icmp eq i32 %id, @CLUSTER_BARRIER@
  br i1 %cluster, label %group, label %block
group:
  %group.at = getelementptr i8, ptr %state, i64 #Block.group
  %of.group = load ptr, ptr %group.at
  %group.generation.at = getelementptr i8, ptr %of.group, i64 #Group.generation
  %group.generation = load i32, ptr %group.generation.at
  br label %go
block:
  %low = and i32 %id, 15
  %index = zext i32 %low to i64
  %offset = mul i64 %index, #Barrier
  %barriers = getelementptr i8, ptr %state, i64 #Block.barriers
  %barrier = getelementptr i8, ptr %barriers, i64 %offset
  %block.generation = call i32 @word(ptr %barrier, i64 #Barrier.generation)
  br label %go
go:
  %generation = phi i32 [ %group.generation, %group ], [ %block.generation, %block ]
  %number = phi i32 [ %id, %group ], [ %low, %block ]
  %arrival = call ptr @arrival_at(ptr %place, i32 %number)
  store i32 %generation, ptr %arrival
  %slot = call ptr @slot_of(ptr %place, i32 %number, i32 %generation)
  %clock = getelementptr i8, ptr %slot, i64 #Slot.clock
  %of = load i32, ptr %slot
  %current = icmp eq i32 %of, %generation
  br i1 %current, label %join, label %clear
clear:
  call void @llvm.memset.p0.i64(ptr %slot, i8 0, i64 #Slot, i1 false)
  store i32 %generation, ptr %slot
  br label %join
join:
  call void @release(ptr %place, ptr %clock)
  ret void
}

; Threads of this warp go on behind a barrier.
define void @cujit_check_pass(ptr %place, i32 %id) {
entry:
  call void @enter(ptr %place)
  %cluster = icmp eq i32 %id, @CLUSTER_BARRIER@
  %low = and i32 %id, 15
  %number = select i1 %cluster, i32 %id, i32 %low
  %arrival = call ptr @arrival_at(ptr %place, i32 %number)
  %generation = load i32, ptr %arrival
  %slot = call ptr @slot_of(ptr %place, i32 %number, i32 %generation)
  %of = load i32, ptr %slot
  %current = icmp eq i32 %of, %generation
  br i1 %current, label %take, label %out
take:
  %row = call ptr @own_clock(ptr %place)
  %clock = getelementptr i8, ptr %slot, i64 #Slot.clock
  call void @join(ptr %row, ptr %clock)
  br label %out
out:
  call void @synced(ptr %place)
  ret void
}

; Lanes of this warp have met.
define void @cujit_check_synced(ptr %place) {
  call void @enter(ptr %place)
  call void @synced(ptr %place)
  ret void
}

define internal void @synced(ptr %place) {
  %tracker.at = getelementptr i8, ptr %place, i64 #Place.piece
  %tracker = load ptr, ptr %tracker.at
  %warp = call i32 @word(ptr %place, i64 #Place.warp)
  %syncs = getelementptr i8, ptr %tracker, i64 #Tracker.syncs
  %at = getelementptr i32, ptr %syncs, i32 %warp
  %old = load i32, ptr %at
  %new = add i32 %old, 1
  store i32 %new, ptr %at
  ret void
}
"""
