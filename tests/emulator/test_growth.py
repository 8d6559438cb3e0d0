"""Programs that run for long: what is destroyed leaves nothing behind."""

from __future__ import annotations

from emulator.programs import program


def test_creating_and_destroying_repeatedly_uses_no_more_memory() -> None:
    program("""
    buffer = ctypes.create_string_buffer(1 << 16)
    memory = ok(d.cuMemAlloc(64))
    priority = d.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PRIORITY

    def event():
        d.cuEventDestroy(d.cuEventCreate(0)[1])

    def stream():
        d.cuStreamDestroy(d.cuStreamCreate(0)[1])

    def asked_stream():
        made = d.cuStreamCreate(0)[1]
        ok(d.cuStreamGetAttribute(made, priority)), d.cuStreamDestroy(made)

    def allocation():
        d.cuMemFree(d.cuMemAlloc(1000)[1]), d.cuMemFreeAsync(d.cuMemAllocAsync(1000, 0)[1], 0)

    def registered():
        ok(d.cuMemHostRegister(ctypes.addressof(buffer), 4096, 0))
        ok(d.cuMemHostUnregister(ctypes.addressof(buffer)))

    def graph():
        made = d.cuStreamCreate(1)[1]
        ok(d.cuStreamBeginCapture(made, d.CUstreamCaptureMode(0)))
        kept = ok(d.cuMemAllocAsync(1000, made))
        ok(d.cuMemsetD8Async(kept, 1, 16, made)), ok(d.cuMemFreeAsync(kept, made))
        found = ok(d.cuStreamEndCapture(made))
        executable = ok(d.cuGraphInstantiate(found, 0))
        ok(d.cuGraphLaunch(executable, 0)), ok(d.cuGraphExecDestroy(executable))
        ok(d.cuGraphDestroy(found)), d.cuStreamDestroy(made)

    resident = lambda: int(open("/proc/self/statm").read().split()[1]) * 4
    for work, times in ((event, 100_000), (stream, 100_000), (asked_stream, 20_000), (allocation, 20_000),
                        (registered, 20_000), (graph, 1_500)):
        for _ in range(5_000 if work is not graph else 1_500):  # freed handles rest before they are used again
            work()
        before = resident()
        for _ in range(times):
            work()
        assert resident() - before < 256, (work.__name__, resident() - before)
    """)
