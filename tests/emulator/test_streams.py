"""Streams and events, as programs that use cuda.bindings find them."""

from __future__ import annotations

import sys
import textwrap

from emulator.programs import PRELUDE, emulated, program


def test_streams_report_their_flags() -> None:
    program("""
    s = ok(d.cuStreamCreateWithPriority(1, -3))
    plain = ok(d.cuStreamCreate(0))
    assert int(ok(d.cuStreamGetFlags(s))) == 1 and ok(d.cuStreamGetPriority(s)) == -3
    assert int(ok(d.cuStreamGetFlags(plain))) == 0 and ok(d.cuStreamGetPriority(plain)) == 0
    assert ok(d.cuStreamGetPriority(ok(d.cuStreamCreateWithPriority(0, -99)))) == -5
    assert ok(d.cuStreamGetPriority(ok(d.cuStreamCreateWithPriority(0, 7)))) == 0
    assert int(ok(d.cuStreamGetCtx(s))) == int(context) and int(ok(d.cuStreamGetDevice(s))) == 0
    ctx, green = ok(d.cuStreamGetCtx_v2(s))
    assert int(ctx) == int(context) and not int(green)
    legacy, own = d.CUstream(1), d.CUstream(2)
    ids = [ok(d.cuStreamGetId(each)) for each in (s, plain, legacy, own)]
    assert len(set(ids)) == 4 and ok(d.cuStreamGetId(d.CUstream(0))) == ids[2] and ok(d.cuStreamGetId(own)) == ids[3]
    others = []
    thread = threading.Thread(target=lambda: (d.cuCtxSetCurrent(context), others.extend(
        ok(d.cuStreamGetId(each)) for each in (legacy, own))))
    thread.start(); thread.join()
    assert others[0] == ids[2] and others[1] not in ids
    flavoured, found = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
    assert flavoured.cuStreamGetId_ptsz(None, ctypes.byref(found)) == 0 and found.value == ids[3]
    for each in (s, plain, legacy, own, d.CUstream(0)):
        ok(d.cuStreamQuery(each)), ok(d.cuStreamSynchronize(each))
        assert int(ok(d.cuStreamIsCapturing(each))) == 0
    ok(d.cuStreamDestroy(s))
    """)


def test_stream_attributes_are_stored_and_copied() -> None:
    program("""
    kinds = d.CUlaunchAttributeID
    a, b = ok(d.cuStreamCreate(0)), ok(d.cuStreamCreateWithPriority(0, -2))
    policy = kinds.CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY
    assert ok(d.cuStreamGetAttribute(b, kinds.CU_LAUNCH_ATTRIBUTE_PRIORITY)).priority == -2
    value = d.CUstreamAttrValue()
    value.syncPolicy = d.CUsynchronizationPolicy.CU_SYNC_POLICY_SPIN
    ok(d.cuStreamSetAttribute(a, policy, value))
    ok(d.cuStreamCopyAttributes(b, a))
    assert int(ok(d.cuStreamGetAttribute(b, policy)).syncPolicy) == 2
    value.priority = -4
    ok(d.cuStreamSetAttribute(b, kinds.CU_LAUNCH_ATTRIBUTE_PRIORITY, value))
    assert ok(d.cuStreamGetPriority(b)) == -4
    assert name(d.cuStreamGetAttribute(a, kinds.CU_LAUNCH_ATTRIBUTE_COOPERATIVE)) == "INVALID_VALUE"
    """)


def test_invalid_streams_and_events_fail_as_on_a_gpu() -> None:
    program("""
    s, e = ok(d.cuStreamCreate(0)), ok(d.cuEventCreate(0))
    gone, past = ok(d.cuStreamCreate(0)), ok(d.cuEventCreate(0))
    ok(d.cuStreamDestroy(gone)), ok(d.cuEventDestroy(past))
    invalid = [
        d.cuStreamDestroy(gone), d.cuStreamQuery(gone), d.cuStreamSynchronize(gone), d.cuStreamGetFlags(gone),
        d.cuStreamDestroy(d.CUstream(0)), d.cuStreamQuery(d.CUstream(int(e))), d.cuStreamQuery(d.CUstream(12345)),
        d.cuEventRecord(e, gone), d.cuStreamWaitEvent(gone, e, 0),
        d.cuEventQuery(d.CUevent(0)), d.cuEventElapsedTime(e, past),
        d.cuStreamGetAttribute(gone, d.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PRIORITY),
    ]
    assert {name(each) for each in invalid} == {"INVALID_HANDLE"}, [name(each) for each in invalid]
    destroyed = [
        d.cuEventDestroy(past), d.cuEventQuery(past), d.cuEventSynchronize(past), d.cuEventRecord(past, s),
        d.cuStreamWaitEvent(s, past, 0),
    ]
    assert {name(each) for each in destroyed} == {"CONTEXT_IS_DESTROYED"}, [name(each) for each in destroyed]
    assert name(d.cuEventRecordWithFlags(e, s, 1)) == name(d.cuStreamWaitEvent(s, e, 1)) == "ILLEGAL_STATE"
    wrong = [
        d.cuStreamCreate(2), d.cuEventCreate(8), d.cuEventCreate(4), d.cuEventRecordWithFlags(e, s, 2),
    ]
    assert {name(each) for each in wrong} == {"INVALID_VALUE"}, [name(each) for each in wrong]
    lib = ctypes.CDLL("libcuda.so.1")
    handle = ctypes.c_void_p(int(s))
    for call in ("cuStreamGetFlags", "cuStreamGetPriority", "cuStreamGetId", "cuStreamGetCtx", "cuStreamIsCapturing"):
        assert getattr(lib, call)(handle, None) == 1, call
    assert lib.cuLaunchHostFunc(handle, None, None) == lib.cuStreamAddCallback(handle, None, None, 0) == 1
    assert lib.cuLaunchHostFunc(ctypes.c_void_p(int(gone)), ctypes.c_void_p(1), None) == 400
    assert lib.cuStreamCreate(None, 0) == lib.cuEventCreate(None, 0) == lib.cuStreamEndCapture(handle, None) == 1
    other = ok(d.cuCtxCreate(None, 0, 0))
    theirs = ok(d.cuStreamCreate(0))
    assert name(d.cuEventRecord(e, theirs)) == "INVALID_HANDLE"
    ok(d.cuStreamQuery(s)), ok(d.cuStreamWaitEvent(theirs, e, 0))
    ok(d.cuCtxPopCurrent()), ok(d.cuCtxPopCurrent())
    for call in (d.cuStreamCreate(0), d.cuEventCreate(0), d.cuStreamQuery(d.CUstream(0))):
        assert name(call) == "INVALID_CONTEXT"
    ok(d.cuStreamQuery(s)), ok(d.cuEventQuery(e)), ok(d.cuEventRecord(e, s))
    ok(d.cuCtxDestroy(other))
    assert name(d.cuStreamQuery(theirs)) == "INVALID_HANDLE"
    ok(d.cuStreamBeginCapture(s, d.CUstreamCaptureMode(0))), ok(d.cuDevicePrimaryCtxReset(0))
    assert name(d.cuStreamEndCapture(s)) == "INVALID_HANDLE"
    assert name(d.cuEventQuery(e)) == "CONTEXT_IS_DESTROYED"
    """)


def test_events_have_clock_times() -> None:
    program("""
    import time
    s, first, last, silent = ok(d.cuStreamCreate(0)), *(ok(d.cuEventCreate(flags)) for flags in (0, 1, 2))
    assert name(d.cuEventElapsedTime(first, last)) == "INVALID_HANDLE"
    ok(d.cuEventQuery(first)), ok(d.cuEventSynchronize(first)), ok(d.cuStreamWaitEvent(s, first, 0))
    began = time.monotonic()
    ok(d.cuEventRecord(first, s))
    time.sleep(0.02)
    ok(d.cuEventRecordWithFlags(last, d.CUstream(2), 0))
    most = (time.monotonic() - began) * 1e3
    assert 20 <= ok(d.cuEventElapsedTime(first, last)) <= most
    assert -most <= ok(d.cuEventElapsedTime(last, first)) <= -20
    assert ok(d.cuEventElapsedTime(first, first)) == 0
    ok(d.cuEventRecord(silent, s)), ok(d.cuEventQuery(silent))
    assert name(d.cuEventElapsedTime(first, silent)) == "INVALID_HANDLE"
    lib, out = ctypes.CDLL("libcuda.so.1"), ctypes.c_float()
    for call in (lib.cuEventElapsedTime, lib.cuEventElapsedTime_v2):
        assert call(ctypes.byref(out), ctypes.c_void_p(int(first)), ctypes.c_void_p(int(last))) == 0 and out.value >= 20
        assert call(None, ctypes.c_void_p(int(first)), ctypes.c_void_p(int(last))) == 400
    """)


def test_host_functions_may_raise_but_not_call_the_driver() -> None:
    done = emulated(
        sys.executable,
        "-c",
        PRELUDE
        + textwrap.dedent("""
    lib, said = ctypes.CDLL("libcuda.so.1"), []
    s = ok(d.cuStreamCreate(0))
    handle = ctypes.c_void_p(int(s))

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def host(data):
        count = ctypes.c_int()
        answers = lib.cuStreamQuery(handle), lib.cuDeviceGetCount(ctypes.byref(count)), lib.cuCtxSynchronize()
        said.append((data, *answers))

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    def callback(stream, status, data):
        said.append((stream == handle.value, status, data, lib.cuStreamSynchronize(handle)))

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def raises(data):
        raise ValueError("on purpose")

    assert lib.cuLaunchHostFunc(handle, host, ctypes.c_void_p(41)) == 0
    assert lib.cuLaunchHostFunc_v2(handle, host, ctypes.c_void_p(42), 1) == 0
    assert lib.cuLaunchHostFunc_ptsz(None, host, ctypes.c_void_p(43)) == 0
    assert lib.cuLaunchHostFunc_v2(handle, host, ctypes.c_void_p(42), 9) == 1
    assert lib.cuStreamAddCallback(handle, callback, ctypes.c_void_p(5), 0) == 0
    assert lib.cuStreamAddCallback(handle, callback, ctypes.c_void_p(5), 1) == 1
    assert said == [(41, 600, 800, 800), (42, 600, 800, 800), (43, 600, 800, 800), (True, 0, 5, 800)], said
    assert lib.cuLaunchHostFunc(handle, raises, None) == 0
    ok(d.cuStreamQuery(s)), ok(d.cuCtxSynchronize())
    print("went on")
    """),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "went on"
    assert "ValueError: on purpose" in done.stderr


def test_hot_calls_need_no_python_lock() -> None:
    program("""
    import ctypes
    lib, s = ctypes.PyDLL("libcuda.so.1"), ctypes.c_void_p(int(ok(d.cuStreamCreate(0))))
    event, out = ctypes.c_void_p(int(ok(d.cuEventCreate(0)))), ctypes.c_float()
    from cujit.emulator.process import emulation
    calls = [("cuStreamQuery", s), ("cuStreamSynchronize", s), ("cuEventRecord", event, s), ("cuEventQuery", event),
             ("cuEventSynchronize", event), ("cuEventElapsedTime", ctypes.byref(out), event, event),
             ("cuStreamWaitEvent", s, event, 0), ("cuCtxSynchronize",)]
    before = sum(emulation().call_counts.values())
    for call, *given in calls:
        assert getattr(lib, call)(*given) == 0, call
    assert sum(emulation().call_counts.values()) == before
    """)
