"""The checks of member masks and of barriers, as native code; put together in ``checks``."""

from __future__ import annotations

__all__ = ["SYNC"]

SYNC = """
; Each lane's member mask is in `values`; `live` are the lanes that have not exited.
define void @cujit_check_members(ptr %place, i32 %lanes, i32 %live, i32 %line) {
entry:
  call void @enter(ptr %place)
  %masks = getelementptr i8, ptr %place, i64 #Place.values
  %some = icmp ne i32 %lanes, 0
  br i1 %some, label %each, label %out
each lane, from entry, again from next:
  %at = getelementptr i64, ptr %masks, i32 %lane
  %mask.wide = load i64, ptr %at
  %mask = trunc i64 %mask.wide to i32
  %shifted = lshr i32 %mask, %lane
  %own = trunc i32 %shifted to i1
  br i1 %own, label %others, label %left.out
left.out:
  call void @fail(ptr %place, i32 @KIND_SYNC@, i32 %lane, i32 %line, i64 0, i64 0, i32 0, i32 @NOT_NAMED@,
                  i32 %mask, i32 0, i64 0)
  unreachable
others:
  %every = icmp eq i32 %mask, -1
  %dead = xor i32 %live, -1
  %gone = and i32 %mask, %dead
  %none = icmp eq i32 %gone, 0
  %good = or i1 %every, %none
  br i1 %good, label %next, label %missing
missing:
  %gone.wide = zext i32 %gone to i64
  call void @fail(ptr %place, i32 @KIND_SYNC@, i32 %lane, i32 %line, i64 0, i64 0, i32 0, i32 @MISSING@,
                  i32 %mask, i32 0, i64 %gone.wide)
  unreachable
next:
  %more = icmp ne i32 %left.next, 0
  br i1 %more, label %each, label %out
out:
  ret void
}

; Each lane's source of a shuffle is in `addresses` (-1: itself), its member mask in `values`.
define void @cujit_check_origins(ptr %place, i32 %lanes, i32 %live, i32 %line) {
entry:
  call void @enter(ptr %place)
  %origins = getelementptr i8, ptr %place, i64 #Place.addresses
  %masks = getelementptr i8, ptr %place, i64 #Place.values
  %some = icmp ne i32 %lanes, 0
  br i1 %some, label %each, label %out
each lane, from entry, again from next:
  %at = getelementptr i64, ptr %origins, i32 %lane
  %origin.wide = load i64, ptr %at
  %origin = trunc i64 %origin.wide to i32
  %mask.at = getelementptr i64, ptr %masks, i32 %lane
  %mask.wide = load i64, ptr %mask.at
  %mask = trunc i64 %mask.wide to i32
  %real = icmp ult i32 %origin, 32
  br i1 %real, label %look, label %next
look:
  %bit = shl i32 1, %origin
  %named = and i32 %bit, %mask
  %alive = and i32 %bit, %live
  %is.named = icmp ne i32 %named, 0
  %is.dead = icmp eq i32 %alive, 0
  %bad = and i1 %is.named, %is.dead
  br i1 %bad, label %missing, label %next
missing:
  %bit.wide = zext i32 %bit to i64
  call void @fail(ptr %place, i32 @KIND_SYNC@, i32 %lane, i32 %line, i64 0, i64 0, i32 0, i32 @NO_ORIGIN@,
                  i32 %mask, i32 0, i64 %bit.wide)
  unreachable
next:
  %more = icmp ne i32 %left.next, 0
  br i1 %more, label %each, label %out
out:
  ret void
}

; A barrier with its number and count of threads (0: all); `lanes` of the `live` ones came, which must be all or none
; if it is `aligned`.
define void @cujit_check_barrier(ptr %place, i32 %lanes, i32 %live, i32 %number, i32 %threads, i1 %aligned, i32 %line) {
entry:
  call void @enter(ptr %place)
  %none = icmp eq i32 %lanes, 0
  br i1 %none, label %out, label %look
look:
  %lane = call i32 @llvm.cttz.i32(i32 %lanes, i1 false)
  %known = icmp ult i32 %number, 16
  br i1 %known, label %count, label %bad.number
bad.number:
  %number.wide = zext i32 %number to i64
  call void @fail(ptr %place, i32 @KIND_SYNC@, i32 %lane, i32 %line, i64 0, i64 0, i32 0, i32 @NUMBER@,
                  i32 0, i32 0, i64 %number.wide)
  unreachable
count:
  %rest = and i32 %threads, 31
  %whole = icmp eq i32 %rest, 0
  br i1 %whole, label %together, label %bad.count
bad.count:
  %threads.wide = zext i32 %threads to i64
  call void @fail(ptr %place, i32 @KIND_SYNC@, i32 %lane, i32 %line, i64 0, i64 0, i32 0, i32 @COUNT@,
                  i32 0, i32 0, i64 %threads.wide)
  unreachable
together:
  %here = xor i32 %lanes, -1
  %away = and i32 %live, %here
  %all = icmp eq i32 %away, 0
  %loose = xor i1 %aligned, true
  %good = or i1 %all, %loose
  br i1 %good, label %out, label %bad.part
bad.part:
  %away.wide = zext i32 %away to i64
  call void @fail(ptr %place, i32 @KIND_SYNC@, i32 %lane, i32 %line, i64 0, i64 0, i32 0, i32 @PART@,
                  i32 %lanes, i32 0, i64 %away.wide)
  unreachable
out:
  ret void
}
"""
