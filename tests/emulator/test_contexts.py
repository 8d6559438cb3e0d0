"""Contexts: the primary one and others, of one thread and of a thousand."""

from __future__ import annotations

from pathlib import Path

from cujit.emulator import library_files
from emulator.programs import compiled, emulated, python
from emulator.test_device import ASKS

STARTS = ASKS + "CU = lambda: int(ok(d.cuCtxGetCurrent()))\n"


def test_primary_context_lives_while_it_is_retained() -> None:
    python(
        STARTS
        + """
state = lambda: ok(d.cuDevicePrimaryCtxGetState(device))
assert state() == (0, 0)
assert refused(d.cuDevicePrimaryCtxRelease(device)) == "INVALID_CONTEXT"
assert refused(d.cuMemAlloc(8)) == refused(d.cuCtxGetDevice()) == "INVALID_CONTEXT"
first = ok(d.cuDevicePrimaryCtxRetain(device))
assert int(ok(d.cuDevicePrimaryCtxRetain(device))) == int(first) and state() == (0, 1)
ok(d.cuDevicePrimaryCtxSetFlags(device, 4))
assert state() == (4, 1) and refused(d.cuDevicePrimaryCtxSetFlags(device, 3)) == "INVALID_VALUE"
ok(d.cuCtxSetCurrent(first))
assert CU() == int(first) and int(ok(d.cuCtxGetDevice())) == 0 and ok(d.cuCtxGetFlags()) == 4
assert refused(d.cuCtxDestroy(first)) == "INVALID_CONTEXT"
pointer = ok(d.cuMemAlloc(100))
ok(d.cuDevicePrimaryCtxRelease(device))
ok(d.cuMemsetD8(pointer, 0, 100))
ok(d.cuDevicePrimaryCtxRelease(device))
assert state()[1] == 0 and refused(d.cuMemsetD8(pointer, 0, 100)) == "CONTEXT_IS_DESTROYED"
# What it owned is gone when it begins again, under the same handle.
assert int(ok(d.cuDevicePrimaryCtxRetain(device))) == int(first)
assert refused(d.cuMemsetD8(pointer, 0, 100)) == refused(d.cuMemFree(pointer)) == "INVALID_VALUE"
ok(d.cuMemAlloc(100))
ok(d.cuDevicePrimaryCtxReset(device))
assert state()[1] == 0 and refused(d.cuCtxSynchronize()) == "CONTEXT_IS_DESTROYED"
ok(d.cuDevicePrimaryCtxRetain(device))
free, total = ok(d.cuMemGetInfo())
assert free == total
"""
    )


def test_created_contexts_own_their_objects() -> None:
    python(
        STARTS
        + """
assert refused(d.cuCtxCreate(None, 0x300, device)) == refused(d.cuCtxCreate(None, 6, device)) == "INVALID_VALUE"
assert refused(d.cuCtxCreate(None, 0, 1)) == "INVALID_DEVICE"
one = ok(d.cuCtxCreate(None, 1, device))
kept = ok(d.cuMemAlloc(1 << 20))
two = ok(d.cuCtxCreate(None, 0, device))
assert CU() == int(two) and ok(d.cuCtxGetFlags()) == 0
gone, host = ok(d.cuMemAlloc(1 << 20)), ok(d.cuMemHostAlloc(100, 0))
assert ok(d.cuCtxGetId(one)) != ok(d.cuCtxGetId(two)) == ok(d.cuCtxGetId(None))
assert ok(d.cuCtxGetApiVersion(one)) == 3020
import ctypes
old = ctypes.c_void_p()  # as programs of CUDA 3.1 made them
assert ctypes.CDLL("libcuda.so.1").cuCtxCreate(ctypes.byref(old), 2, 0) == 0 and CU() == old.value
assert ok(d.cuCtxGetApiVersion(old.value)) == 3010 and ok(d.cuCtxGetFlags()) == 2
ok(d.cuCtxDestroy(old.value))
ok(d.cuCtxSetFlags(2)); assert ok(d.cuCtxGetFlags()) == 2
assert int(ok(d.cuCtxPopCurrent())) == int(two) and CU() == int(one)
ok(d.cuCtxPushCurrent(two))
ok(d.cuCtxDestroy(two))
assert CU() == int(one)
assert refused(d.cuCtxDestroy(two)) == refused(d.cuCtxPushCurrent(two)) == refused(d.cuCtxSetCurrent(two))
assert refused(d.cuCtxDestroy(two)) == refused(d.cuCtxGetId(two)) == "INVALID_CONTEXT"
assert refused(d.cuCtxGetDevice_v2(two)) == refused(d.cuCtxSynchronize_v2(two)) == "INVALID_CONTEXT"
assert refused(d.cuMemFree(gone)) == refused(d.cuMemFreeHost(host)) == "INVALID_VALUE"
ok(d.cuMemsetD8(kept, 1, 1 << 20))
assert int(ok(d.cuCtxAttach(0))) == int(one)
ok(d.cuCtxDetach(one)); ok(d.cuMemsetD8(kept, 1, 1 << 20)); ok(d.cuCtxDetach(one))
assert CU() == 0 and refused(d.cuMemFree(kept)) == "INVALID_VALUE"
assert refused(d.cuCtxPopCurrent()) == "INVALID_CONTEXT"
"""
    )


def test_limits_and_preferences_belong_to_a_context() -> None:
    python(
        STARTS
        + """
ok(d.cuCtxCreate(None, 0, device))
limit = d.CUlimit
known = [ok(d.cuCtxGetLimit(each)) for each in limit if int(each) in (0, 1, 2, 4, 5, 6, 7, 8)]
assert known == [1 << 10, 1 << 20, 8 << 20, 2048, 64, 0, 0, 0]
ok(d.cuCtxSetLimit(limit.CU_LIMIT_STACK_SIZE, 4096))
assert ok(d.cuCtxGetLimit(limit.CU_LIMIT_STACK_SIZE)) == 4096
ok(d.cuCtxSetLimit(limit.CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 1000))
assert ok(d.cuCtxGetLimit(limit.CU_LIMIT_MAX_L2_FETCH_GRANULARITY)) == 128
assert refused(d.cuCtxGetLimit(limit.CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH)) == "UNSUPPORTED_LIMIT"
assert refused(d.cuCtxGetLimit(limit.CU_LIMIT_MAX)) == "INVALID_VALUE"
assert refused(d.cuCtxSetLimit(limit.CU_LIMIT_MAX, 1)) == "INVALID_VALUE"
ok(d.cuCtxSetCacheConfig(d.CUfunc_cache.CU_FUNC_CACHE_PREFER_L1))
assert ok(d.cuCtxGetCacheConfig()) == d.CUfunc_cache.CU_FUNC_CACHE_PREFER_L1
assert int(ok(d.cuCtxGetSharedMemConfig())) == 1
assert ok(d.cuCtxGetStreamPriorityRange()) == (0, -5)
ok(d.cuCtxResetPersistingL2Cache())
sm = d.CUexecAffinityType.CU_EXEC_AFFINITY_TYPE_SM_COUNT
assert refused(d.cuCtxGetExecAffinity(sm)) == "UNSUPPORTED_EXEC_AFFINITY"
one = ok(d.cuCtxGetCurrent())
assert refused(d.cuCtxEnablePeerAccess(one, 0)) == "PEER_ACCESS_UNSUPPORTED"
assert refused(d.cuCtxDisablePeerAccess(one)) == "PEER_ACCESS_NOT_ENABLED"
ok(d.cuCtxCreate(None, 0, device))
assert ok(d.cuCtxGetLimit(limit.CU_LIMIT_STACK_SIZE)) == 1024
assert ok(d.cuCtxGetCacheConfig()) == d.CUfunc_cache.CU_FUNC_CACHE_PREFER_NONE
"""
    )


def test_1000_c_threads_have_their_own_contexts_and_memory(tmp_path: Path) -> None:
    program = compiled(
        tmp_path / "threads",
        """
        #include <pthread.h>
        #include <stdio.h>
        #include <string.h>
        typedef unsigned long long u64;
        int cuInit(unsigned), cuCtxCreate_v2(void **, unsigned, int), cuCtxGetCurrent(void **), cuCtxDestroy_v2(void *);
        int cuMemAlloc_v2(u64 *, u64), cuMemFree_v2(u64), cuMemsetD8_v2(u64, unsigned char, u64);
        int cuMemcpyDtoH_v2(void *, u64, u64), cuMemGetInfo_v2(u64 *, u64 *), cuCtxSynchronize(void);
        enum { THREADS = 1000, BYTES = 3000 };
        static pthread_barrier_t barrier;
        static u64 given[THREADS];
        static void *contexts[THREADS];
        static long bad;
        #define GOOD(call) if (call) __atomic_add_fetch(&bad, 1, 5)
        static void *work(void *number) {
          long me = (long)number;
          void *mine = 0, *now = 0;
          GOOD(cuCtxSynchronize() != 201);
          GOOD(cuCtxCreate_v2(&mine, 0, 0));
          GOOD(cuMemAlloc_v2(&given[me], BYTES));
          GOOD(cuMemsetD8_v2(given[me], (unsigned char)me, BYTES));
          contexts[me] = mine;
          pthread_barrier_wait(&barrier);
          unsigned char back[BYTES];
          GOOD(cuMemcpyDtoH_v2(back, given[me], BYTES));
          for (int k = 0; k < BYTES; k++) GOOD(back[k] != (unsigned char)me);
          GOOD(cuCtxGetCurrent(&now) || now != mine);
          for (int k = 0; k < me; k++) GOOD(contexts[k] == mine);
          pthread_barrier_wait(&barrier);
          if (me % 2) GOOD(cuMemFree_v2(given[me]));
          GOOD(cuCtxDestroy_v2(mine));
          GOOD(cuCtxGetCurrent(&now) || now);
          return 0;
        }
        int main(void) {
          pthread_t threads[THREADS];
          pthread_attr_t small;
          void *mine;
          u64 left, total;
          pthread_attr_init(&small);
          pthread_attr_setstacksize(&small, 1 << 18);
          pthread_barrier_init(&barrier, 0, THREADS);
          GOOD(cuInit(0));
          for (long k = 0; k < THREADS; k++) GOOD(pthread_create(&threads[k], &small, work, (void *)k));
          for (long k = 0; k < THREADS; k++) pthread_join(threads[k], 0);
          GOOD(cuCtxCreate_v2(&mine, 0, 0) || cuMemGetInfo_v2(&left, &total) || left != total);
          printf("%ld", bad);
        }
        """,
        library_files.folder() / library_files.SONAME,
        "-lpthread",
    )
    done = emulated(program)
    assert (done.returncode, done.stdout) == (0, "0"), done.stderr
