"""Streams, events and graphs as cuda.core has them."""

from __future__ import annotations

from emulator.programs import python


def test_streams_events_and_graph_builders_of_cuda_core() -> None:
    python('''
    import ctypes, struct
    import numpy
    from cuda.bindings import driver as d
    from cuda.core import Device, EventOptions, LaunchConfig, Program, StreamOptions, launch
    from cuda.core.graph import GraphBuilder
    device = Device(0)
    device.set_current()
    s = device.create_stream(options=StreamOptions(nonblocking=True, priority=-1))
    assert s.is_nonblocking and s.priority == -1 and int(s.device.device_id) == 0
    start, end = (s.record(options=EventOptions(timing_enabled=True)) for _ in range(2))
    end.sync(), s.sync()
    assert end.is_done and end - start >= 0
    other = device.create_stream()
    other.wait(end), other.wait(s)
    s.close()

    module = Program("""extern "C" __global__ void add(int *at, int n) { atomicAdd(at, n); }""", "c++").compile("ptx")
    add = module.get_kernel("add")
    cell = int(d.cuMemAlloc(4)[1])
    at = numpy.uint64(cell)
    d.cuMemsetD32(cell, 0, 1)

    def value():
        data = bytearray(4)
        assert d.cuMemcpyDtoH(data, cell, 4)[0] == 0
        return struct.unpack("i", data)[0]

    one, eight = LaunchConfig(grid=1, block=1), LaunchConfig(grid=1, block=8)
    builder = device.create_graph_builder().begin_building()
    launch(builder, one, add, at, numpy.int32(1))
    left, right = builder.split(2)
    launch(left, eight, add, at, numpy.int32(10))
    launch(right, one, add, at, numpy.int32(1000))
    builder = GraphBuilder.join(left, right)
    launch(builder, one, add, at, numpy.int32(5))
    graph = builder.end_building().complete()
    assert value() == 0
    stream = device.create_stream()
    graph.upload(stream)
    graph.launch(stream)
    graph.launch(stream)
    stream.sync()
    assert value() == 2 * (1 + 80 + 1000 + 5), value()
    later = device.create_graph_builder().begin_building()
    launch(later, one, add, at, numpy.int32(7))
    inner = device.create_graph_builder().begin_building()
    launch(inner, one, add, at, numpy.int32(100))
    later.embed(inner.end_building())
    said = []
    later.callback(lambda: said.append(1))
    again = later.end_building().complete()
    d.cuMemsetD32(cell, 0, 1)
    again.launch(stream)
    stream.sync()
    assert value() == 107 and said == [1]
    drawn = __import__("pathlib").Path(__import__("tempfile").mkdtemp()) / "graph.dot"
    later.debug_dot_print(str(drawn))
    assert drawn.read_text().startswith("digraph")
    ''')


def test_memory_of_graphs_of_cuda_core() -> None:
    python('''
    import ctypes
    import numpy
    from cuda.bindings import driver as d
    from cuda.core import Device, GraphMemoryResource, LaunchConfig, Program, launch
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    code = """extern "C" __global__ void add(int *at, int n) { atomicAdd(at, n); }"""
    add = Program(code, "c++").compile("ptx").get_kernel("add")
    resource = GraphMemoryResource(device)
    builder = device.create_graph_builder().begin_building()
    kept, brief = (resource.allocate(64, stream=builder) for _ in range(2))
    for buffer in (kept, brief):
        buffer.fill(b"\\x01", stream=builder)
        launch(builder, LaunchConfig(grid=1, block=8), add, buffer, numpy.int32(5))
    brief.close(builder)
    address = int(kept.handle)
    graph = builder.end_building().complete()
    assert resource.attributes.used_mem_current == 0
    for _ in range(2):
        graph.launch(stream)
        stream.sync()
        found = (ctypes.c_int * 1)()
        assert d.cuMemcpyDtoH(ctypes.addressof(found), address, 4)[0] == 0 and found[0] == 0x01010101 + 40
        assert resource.attributes.used_mem_current == 128
        assert d.cuMemFreeAsync(address, d.CUstream(int(stream.handle)))[0] == 0
    resource.trim()
    assert resource.attributes.used_mem_current == 0 and resource.attributes.reserved_mem_high == 128
    ''')
