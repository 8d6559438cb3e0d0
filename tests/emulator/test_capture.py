"""Streams that are captured: what becomes a node, who waits for whom, and what may not be done meanwhile."""

from __future__ import annotations

from emulator.programs import program

HOST = """
lib = ctypes.CDLL("libcuda.so.1")
said = []

@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def host(data):
    said.append(data)

def call(stream, number):
    return lib.cuLaunchHostFunc(ctypes.c_void_p(int(stream)), host, ctypes.c_void_p(number))

MODES = d.CUstreamCaptureMode
GLOBAL, LOCAL, RELAXED = (MODES(k) for k in range(3))

def begin(stream, mode=GLOBAL):
    ok(d.cuStreamBeginCapture(stream, mode))

def stream(flags=1):
    return ok(d.cuStreamCreate(flags))

def status(stream):
    return int(ok(d.cuStreamIsCapturing(stream)))

def event():
    return ok(d.cuEventCreate(2))

def in_thread(work):
    result = []
    thread = threading.Thread(target=lambda: (d.cuCtxSetCurrent(context), result.append(work())))
    thread.start(); thread.join()
    return result[0]
"""


def captures(code: str) -> None:
    lines = code.splitlines()
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    program(HOST + "\n".join(line[indent:] for line in lines))


def test_captured_work_becomes_nodes_and_does_not_run() -> None:
    captures("""
    s = stream()
    begin(s)
    assert status(s) == 1 and call(s, 1) == call(s, 2) == 0 and said == []
    assert call(stream(), 9) == 0 and said == [9]  # another stream is not captured
    state, number, graph, nodes, edges, count = ok(d.cuStreamGetCaptureInfo(s))
    assert int(state) == 1 and number and count == len(nodes) == 1
    graph = ok(d.cuStreamEndCapture(s))
    assert int(graph) and status(s) == 0
    from cujit.emulator.nodes import GRAPHS
    order = GRAPHS[int(graph)].ordered()
    assert [node.params.data for node in order] == [1, 2] and list(order[1].before) == [order[0]]
    assert said == [9]
    # every form of the calls that begin and inform
    handle, word, big = ctypes.c_void_p(int(s)), ctypes.c_uint(), ctypes.c_uint64()
    assert lib.cuStreamBeginCapture(handle) == 0
    assert lib.cuStreamGetCaptureInfo(handle, ctypes.byref(word), ctypes.byref(big)) == 0 and word.value == 1
    assert lib.cuStreamGetCaptureInfo(handle, None, ctypes.byref(big)) == 1
    again = ctypes.c_uint64()
    assert lib.cuStreamGetCaptureInfo_v2(handle, ctypes.byref(word), ctypes.byref(again), None, None, None) == 0
    assert big.value == again.value != number
    assert lib.cuStreamEndCapture(handle, ctypes.byref(big)) == 0
    assert lib.cuStreamGetCaptureInfo(handle, ctypes.byref(word), ctypes.byref(big)) == 0 and word.value == 0
    """)


def test_events_fork_and_join_streams() -> None:
    captures("""
    a, b, c = stream(), stream(), stream(0)
    fork, back, back2 = event(), event(), event()
    begin(a)
    call(a, 1)
    ok(d.cuEventRecord(fork, a)), ok(d.cuStreamWaitEvent(b, fork, 0)), ok(d.cuStreamWaitEvent(c, fork, 0))
    assert status(b) == status(c) == 1
    assert int(ok(d.cuStreamGetCaptureInfo(b))[1]) == int(ok(d.cuStreamGetCaptureInfo(a))[1])
    call(b, 2), call(c, 3), call(a, 4)
    ok(d.cuEventRecord(back, b)), ok(d.cuEventRecord(back2, c))
    ok(d.cuStreamWaitEvent(a, back, 0)), ok(d.cuStreamWaitEvent(a, back2, 0))
    call(a, 5)
    graph = ok(d.cuStreamEndCapture(a))
    assert status(a) == status(b) == status(c) == 0
    from cujit.emulator.nodes import GRAPHS
    found = {node.params.data: node for node in GRAPHS[int(graph)].nodes}
    before = {number: sorted(each.params.data for each in node.before) for number, node in found.items()}
    assert before == {1: [], 2: [1], 3: [1], 4: [1], 5: [2, 3, 4]}, before
    # the event was recorded in a capture that has ended
    assert name(d.cuEventQuery(fork)) == name(d.cuEventSynchronize(fork)) == "INVALID_VALUE"
    assert name(d.cuStreamWaitEvent(b, fork, 0)) == "INVALID_VALUE"
    ok(d.cuEventRecord(fork, b)), ok(d.cuEventQuery(fork))
    # a stream of a fork goes, after it was joined
    begin(a)
    ok(d.cuEventRecord(fork, a)), ok(d.cuStreamWaitEvent(b, fork, 0))
    call(b, 1)
    ok(d.cuEventRecord(back, b)), ok(d.cuStreamWaitEvent(a, back, 0)), ok(d.cuStreamDestroy(b))
    assert int(ok(d.cuStreamEndCapture(a)))
    # and one that goes before it was joined
    t = stream()
    begin(a)
    ok(d.cuEventRecord(fork, a)), ok(d.cuStreamWaitEvent(t, fork, 0))
    call(t, 1)
    ok(d.cuStreamDestroy(t))
    assert name(d.cuStreamEndCapture(a)) == "STREAM_CAPTURE_UNJOINED"
    # external events are nodes
    begin(a)
    ok(d.cuEventRecordWithFlags(fork, a, 1)), ok(d.cuStreamWaitEvent(a, back2, 1))
    graph = ok(d.cuStreamEndCapture(a))
    assert [node.kind.name for node in GRAPHS[int(graph)].ordered()] == ["EVENT_RECORD", "WAIT_EVENT"]
    """)


def test_other_streams_run_during_a_capture() -> None:
    captures("""
    import time
    captured, free, third = stream(), stream(), stream()
    first, second, memory = event(), ok(d.cuEventCreate(0)), ok(d.cuMemAlloc(4))
    source, target = ctypes.c_uint32(7), ctypes.c_uint32()
    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def pause(data):
        time.sleep(0.05)
    begin(captured, RELAXED)
    ok(d.cuEventRecord(second, free))
    before = ok(d.cuEventCreate(0))
    ok(d.cuEventRecord(before, free))
    ok(d.cuMemcpyHtoDAsync(memory, ctypes.addressof(source), 4, free))
    assert lib.cuLaunchHostFunc(ctypes.c_void_p(int(free)), pause, None) == 0
    ok(d.cuEventRecord(first, free)), ok(d.cuEventRecord(second, free))
    ok(d.cuStreamWaitEvent(third, first, 0))
    ok(d.cuMemcpyDtoHAsync(ctypes.addressof(target), memory, 4, third))
    ok(d.cuStreamQuery(third)), ok(d.cuStreamSynchronize(third)), ok(d.cuEventSynchronize(second))
    assert target.value == 7 and ok(d.cuEventElapsedTime(before, second)) >= 50  # ms
    assert status(third) == status(free) == 0 and status(captured) == 1
    assert ok(d.cuStreamGetCaptureInfo(captured))[-1] == 0  # none of it became a node
    graph = ok(d.cuStreamEndCapture(captured))
    ok(d.cuEventQuery(first)), ok(d.cuStreamWaitEvent(free, first, 0))
    """)


def test_dependencies_of_the_next_node_can_be_changed() -> None:
    captures("""
    from cujit.emulator.nodes import GRAPHS
    s = stream()
    begin(s)
    call(s, 1), call(s, 2)
    first = ok(d.cuStreamGetCaptureInfo(s))[3][0]
    graph = ok(d.cuStreamGetCaptureInfo(s))[2]
    one, two = GRAPHS[int(graph)].nodes
    ok(d.cuStreamUpdateCaptureDependencies(s, [d.CUgraphNode(one.handle)], None, 1, 1))
    call(s, 3)
    ok(d.cuStreamUpdateCaptureDependencies(s, [d.CUgraphNode(two.handle)], None, 1, 0))
    call(s, 4)
    assert name(d.cuStreamUpdateCaptureDependencies(s, [], None, 0, 2)) == "INVALID_VALUE"
    other = ok(d.cuStreamEndCapture(s))
    found = {node.params.data: sorted(each.params.data for each in node.before) for node in GRAPHS[int(other)].nodes}
    assert found == {1: [], 2: [1], 3: [1], 4: [2, 3]}, found
    assert name(d.cuStreamUpdateCaptureDependencies(s, [], None, 0, 0)) == "ILLEGAL_STATE"
    # into a graph that there is
    ok(d.cuStreamBeginCaptureToGraph(s, other, [d.CUgraphNode(one.handle)], None, 1, RELAXED))
    call(s, 5)
    assert int(ok(d.cuStreamEndCapture(s))) == int(other) and len(GRAPHS[int(other)].nodes) == 5
    begin(s)
    alien = ok(d.cuStreamGetCaptureInfo(s))[2]
    second = stream()
    wrong = d.cuStreamBeginCaptureToGraph(second, alien, [d.CUgraphNode(one.handle)], None, 1, RELAXED)
    assert name(wrong) == "INVALID_VALUE" and status(second) == 0
    ok(d.cuStreamEndCapture(s))
    """)


def test_invalid_operation_ends_the_capture_with_an_error() -> None:
    captures("""
    s, t, e, back = stream(), stream(), event(), event()

    def broken(answer, of=s):
        assert status(of) == 2, (answer, status(of))
        assert call(of, 1) == 901 and int(ok(d.cuStreamGetCaptureInfo(of))[0]) == 2
        assert name(d.cuStreamEndCapture(of)) == "STREAM_CAPTURE_INVALIDATED" and status(of) == 0
        return name(answer)

    begin(s)
    assert name(d.cuStreamBeginCapture(s, GLOBAL)) == "ILLEGAL_STATE" and status(s) == 1
    ok(d.cuStreamEndCapture(s))
    assert name(d.cuStreamEndCapture(s)) == "ILLEGAL_STATE"
    for wait in (d.cuStreamQuery, d.cuStreamSynchronize):
        begin(s, RELAXED)
        assert broken(wait(s)) == "STREAM_CAPTURE_UNSUPPORTED"
    begin(s)
    assert broken(d.cuCtxSynchronize()) == "STREAM_CAPTURE_UNSUPPORTED"
    begin(s)
    ok(d.cuEventRecord(e, s))
    assert broken(d.cuEventQuery(e)) == "CAPTURED_EVENT"
    begin(s)
    assert lib.cuStreamAddCallback(ctypes.c_void_p(int(s)), ctypes.c_void_p(1), None, 0) == 900
    assert name(d.cuStreamEndCapture(s)) == "STREAM_CAPTURE_INVALIDATED"
    # the other stream was not joined again
    begin(s)
    ok(d.cuEventRecord(e, s)), ok(d.cuStreamWaitEvent(t, e, 0))
    call(t, 1)
    assert name(d.cuStreamEndCapture(s)) == "STREAM_CAPTURE_UNJOINED" and status(s) == status(t) == 0
    begin(s)
    ok(d.cuEventRecord(e, s)), ok(d.cuStreamWaitEvent(t, e, 0))
    assert name(d.cuStreamEndCapture(t)) == "STREAM_CAPTURE_UNMATCHED" and status(s) == status(t) == 2
    assert name(d.cuStreamEndCapture(s)) == "STREAM_CAPTURE_INVALIDATED"
    # dependencies over the border of a capture
    ok(d.cuEventRecord(e, t))
    begin(s)
    assert broken(d.cuStreamWaitEvent(s, e, 0)) == "STREAM_CAPTURE_ISOLATION"
    begin(s), begin(t)
    ok(d.cuEventRecord(e, t))
    assert name(d.cuStreamWaitEvent(s, e, 0)) == "STREAM_CAPTURE_MERGE" and status(s) == status(t) == 2
    for each in (s, t):
        assert name(d.cuStreamEndCapture(each)) == "STREAM_CAPTURE_INVALIDATED"
    # a stream goes that began a capture
    gone = stream()
    begin(gone)
    ok(d.cuEventRecord(e, gone)), ok(d.cuStreamWaitEvent(t, e, 0))
    ok(d.cuStreamDestroy(gone))
    assert status(t) == 0
    """)


def test_default_stream_is_not_captured_and_blocks() -> None:
    captures("""
    legacy, own, zero = d.CUstream(1), d.CUstream(2), d.CUstream(0)
    for each in (legacy, zero):
        assert name(d.cuStreamBeginCapture(each, GLOBAL)) == "STREAM_CAPTURE_UNSUPPORTED"
    blocking, free, e = stream(0), stream(1), event()
    begin(free)
    assert call(zero, 1) == call(legacy, 2) == 0 and said == [1, 2] and status(zero) == 0
    ok(d.cuStreamEndCapture(free))
    actions = [
        lambda: lib.cuLaunchHostFunc(None, host, None), lambda: lib.cuStreamQuery(None),
        lambda: int(d.cuEventRecord(e, zero)[0]), lambda: int(d.cuStreamWaitEvent(legacy, e, 0)[0]),
    ]
    begin(blocking)
    assert name(d.cuStreamIsCapturing(zero)) == "STREAM_CAPTURE_IMPLICIT"
    assert name(d.cuStreamGetCaptureInfo(zero)) == name(d.cuStreamGetCaptureInfo(legacy)) == "STREAM_CAPTURE_IMPLICIT"
    assert status(blocking) == 1 and int(ok(d.cuStreamEndCapture(blocking)))  # who asked spoiled nothing
    for action in actions:
        begin(blocking)
        assert action() == 906 and status(blocking) == 2
        assert name(d.cuStreamEndCapture(blocking)) == "STREAM_CAPTURE_INVALIDATED"
    # a thread's own one is captured as any other
    begin(own)
    assert status(own) == 1 and in_thread(lambda: status(own)) == 0
    said.clear()
    assert lib.cuLaunchHostFunc_ptsz(None, host, ctypes.c_void_p(7)) == 0 and said == []
    found = ctypes.c_uint64()
    assert lib.cuStreamEndCapture_ptsz(None, ctypes.byref(found)) == 0 and found.value and status(own) == 0
    """)


def test_capture_modes_decide_what_threads_may_do() -> None:
    captures("""
    from cujit.emulator.capture import safe
    from cujit.emulator.results import RefusedCall
    s = stream()

    def refused():
        try:
            safe()
        except RefusedCall as e:
            return int(e.result)
        return 0

    def end(of=s):
        return name(d.cuStreamEndCapture(of))

    assert refused() == 0
    begin(s, RELAXED)
    answers = refused(), in_thread(refused), in_thread(end)
    assert answers == (0, 0, "SUCCESS"), answers
    begin(s, LOCAL)
    assert in_thread(refused) == 0 and in_thread(end) == "STREAM_CAPTURE_WRONG_THREAD" and status(s) == 0
    begin(s, LOCAL)
    assert refused() == 900 and status(s) == 2 and end() == "STREAM_CAPTURE_INVALIDATED"
    begin(s, GLOBAL)
    assert in_thread(refused) == 900 and status(s) == 2 and end() == "STREAM_CAPTURE_INVALIDATED"
    begin(s, GLOBAL)
    exchange = d.cuThreadExchangeStreamCaptureMode
    assert ok(exchange(RELAXED)) == GLOBAL
    assert refused() == 0 and status(s) == 1
    assert ok(exchange(LOCAL)) == RELAXED and in_thread(lambda: ok(exchange(GLOBAL))) == GLOBAL
    assert in_thread(lambda: (exchange(LOCAL), refused())[1]) == 0 and refused() == 900
    assert end() == "STREAM_CAPTURE_INVALIDATED" and ok(exchange(GLOBAL)) == LOCAL
    assert lib.cuThreadExchangeStreamCaptureMode(None) == 1
    assert lib.cuStreamBeginCapture_v2(ctypes.c_void_p(int(s)), 3) == 1
    """)
