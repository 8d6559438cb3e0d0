"""Memory for the blocks that a thread runs, and for the stacks of their warps; kept from launch to launch.

IR with ``@NAMES@`` that ``blocks.py`` fills in.
"""

from __future__ import annotations

__all__ = ["ARENA"]

# One thread's memory for blocks and stacks is kept from launch to launch, under a key of the thread.
ARENA = """
@cujit_arena_key = internal global i32 -1
@cujit_arena_once = internal global i32 0
declare i32 @pthread_once(ptr, ptr)
declare i32 @pthread_key_create(ptr, ptr)
declare ptr @pthread_getspecific(i32)
declare i32 @pthread_setspecific(i32, ptr)
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)
declare i32 @mprotect(ptr, i64, i32)
declare i32 @sched_yield()

define internal void @arena_end(ptr %arena) {
  %size = load i64, ptr %arena
  call i32 @munmap(ptr %arena, i64 %size)
  ret void
}

define internal void @arena_begin() {
  call i32 @pthread_key_create(ptr @cujit_arena_key, ptr @arena_end)
  ret void
}

; Memory for `count` blocks of `warps` stacks each: one page that says what there is, the blocks, then the stacks,
; each with a page below it that nobody may touch. Null where there is none.
define internal ptr @arena(i64 %count, i64 %warps, i64 %stack.bytes) {
entry:
  call i32 @pthread_once(ptr @cujit_arena_once, ptr @arena_begin)
  %key = load i32, ptr @cujit_arena_key
  %old = call ptr @pthread_getspecific(i32 %key)
  %none = icmp eq ptr %old, null
  br i1 %none, label %make, label %look
look:
  %old.blocks.at = getelementptr i64, ptr %old, i64 1
  %old.blocks = load i64, ptr %old.blocks.at
  %old.stacks.at = getelementptr i64, ptr %old, i64 2
  %old.stacks = load i64, ptr %old.stacks.at
  %old.bytes.at = getelementptr i64, ptr %old, i64 3
  %old.bytes = load i64, ptr %old.bytes.at
  %stacks = mul i64 %count, %warps
  %fits.blocks = icmp uge i64 %old.blocks, %count
  %fits.stacks = icmp uge i64 %old.stacks, %stacks
  %fits.bytes = icmp eq i64 %old.bytes, %stack.bytes
  %fits.both = and i1 %fits.blocks, %fits.stacks
  %fits = and i1 %fits.both, %fits.bytes
  br i1 %fits, label %have, label %drop
have:
  ret ptr %old
drop:
  call void @arena_end(ptr %old)
  call i32 @pthread_setspecific(i32 %key, ptr null)
  br label %make
make:
  %need = mul i64 %count, %warps
  %blocks.exact = mul i64 %count, #Block
  %blocks.more = add i64 %blocks.exact, 8191
  %blocks.bytes = and i64 %blocks.more, -4096
  %stacks.bytes = mul i64 %need, %stack.bytes
  %size = add i64 %blocks.bytes, %stacks.bytes
  ; PROT_READ | PROT_WRITE; MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
  %memory = call ptr @mmap(ptr null, i64 %size, i32 3, i32 16418, i32 -1, i64 0)
  %bad = icmp eq ptr %memory, inttoptr (i64 -1 to ptr)
  br i1 %bad, label %fail, label %fill
fill:
  store i64 %size, ptr %memory
  %blocks.at = getelementptr i64, ptr %memory, i64 1
  store i64 %count, ptr %blocks.at
  %stacks.at = getelementptr i64, ptr %memory, i64 2
  store i64 %need, ptr %stacks.at
  %bytes.at = getelementptr i64, ptr %memory, i64 3
  store i64 %stack.bytes, ptr %bytes.at
  %first.at = getelementptr i64, ptr %memory, i64 4
  store i64 %blocks.bytes, ptr %first.at
  %first = getelementptr i8, ptr %memory, i64 %blocks.bytes
  br label %guard
guard:
  %k = phi i64 [ 0, %fill ], [ %k.next, %guard ]
  %stack.offset = mul i64 %k, %stack.bytes
  %stack = getelementptr i8, ptr %first, i64 %stack.offset
  call i32 @mprotect(ptr %stack, i64 @GUARD@, i32 0)
  %k.next = add i64 %k, 1
  %more = icmp ult i64 %k.next, %need
  br i1 %more, label %guard, label %keep
keep:
  call i32 @pthread_setspecific(i32 %key, ptr %memory)
  ret ptr %memory
fail:
  ret ptr null
}
"""
