"""Streams, events and copies in their order: one body on every device."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cujit.devices.device import Device
from cujit.devices.streams import Stream, is_pinned, stream_handle
from cujit.errors import ArgumentError, ClosedError, LaunchError
from raising import raises


def test_stream_work_is_done_after_waiting_for_it(device: Device) -> None:
    with device.stream() as stream:
        x = device.array(np.arange(5, dtype=np.int32), stream=stream)
        y = device.empty(5, np.int32, stream=stream)
        y.copy_from(x, stream=stream)
        stream.synchronize()
        assert stream.done
        assert y.numpy(stream=stream).tolist() == [0, 1, 2, 3, 4]


def test_array_is_copied_in_its_own_stream(device: Device) -> None:
    stream = device.stream()
    x = device.zeros((2, 3), np.float32, stream=stream)
    assert x.stream is not None
    assert x.stream.handle == stream.handle
    assert x[1].stream is x.stream
    stream.close()
    x.fill(2.5)
    assert x.numpy().tolist() == [[2.5] * 3] * 2
    assert device.zeros(1, np.int8).stream is None


def test_closed_stream_refuses_everything(device: Device) -> None:
    stream = device.stream()
    assert repr(stream) == f"<Stream of {device.name}>"
    stream.close()
    stream.close()
    assert repr(stream) == f"<Stream of {device.name} closed>"
    uses: list[Any] = [
        stream.synchronize,
        stream.record,
        lambda: stream.done,
        lambda: stream.handle,
        lambda: stream.is_capturing,
        lambda: stream.wait(0),
        lambda: device.zeros(1, np.int8, stream=stream),
        lambda: device.zeros(1, np.int8).numpy(stream=stream),
        lambda: device.capture(stream),
    ]
    for use in uses:
        with raises(ClosedError, "closed", "stream"):
            use()


def test_stream_of_another_device_is_refused_everywhere(device: Device, host: Device) -> None:
    other = host.stream()
    x = device.zeros(2, np.int32)
    uses: list[Any] = [
        lambda: stream_handle(other, device),
        lambda: device.stream(other),
        lambda: device.zeros(1, np.int8, stream=other),
        lambda: x.numpy(stream=other),
        lambda: x.copy_from(np.zeros(2, np.int32), stream=other),
        lambda: x.copy_from(x, stream=other),
        lambda: x.fill(0, stream=other),
        lambda: device.capture(other),
    ]
    for use in uses:
        with raises(LaunchError, "stream", "cpu", device.name):
            use()


def test_stream_without_a_gpu_is_the_default_stream(cpu: Device) -> None:
    stream = cpu.stream()
    assert stream.handle > 2
    assert stream_handle(stream) == 0
    assert stream_handle(stream, cpu) == stream.handle
    assert stream.handle != cpu.stream().handle


def test_default_stream_and_stream_objects_are_streams(device: Device) -> None:
    default = device.stream(0)
    assert default.handle == 0
    default.synchronize()
    stream = device.stream()
    assert device.stream(stream) is stream
    assert device.queue(stream) is stream
    assert device.queue(None).handle == 0


@pytest.mark.parametrize("bad", ["default", 1.5, -1, SimpleNamespace(__cuda_stream__=3)])
def test_invalid_stream_is_refused_everywhere(device: Device, bad: object) -> None:
    x = device.zeros(2, np.int32)
    uses: list[Any] = [
        lambda: device.stream(bad),
        lambda: device.stream().wait(bad),
        lambda: device.zeros(1, np.int8, stream=bad),
        lambda: x.numpy(stream=bad),
        lambda: x.copy_from(np.zeros(2, np.int32), stream=bad),
        lambda: device.capture(bad),
    ]
    for use in uses:
        with raises(LaunchError, "stream", "stream"):
            use()


@pytest.mark.parametrize("bad", [True, 1.0, "high", None])
def test_noninteger_priority_is_refused(device: Device, bad: Any) -> None:
    if bad is None:
        device.stream(priority=None).close()
        return
    with raises(LaunchError, "launch", "priority"):
        device.stream(priority=bad)


def test_priority_is_for_new_streams(device: Device) -> None:
    device.stream(priority=0).synchronize()
    with raises(LaunchError, "launch", "0", "priority"):
        device.stream(device.stream(), priority=0)


# -- events -----------------------------------------------------------------------------------------------


def test_events_measure_the_time_between_them(device: Device) -> None:
    with device.stream() as stream, stream.record() as start:
        x = device.zeros(1 << 20, np.int32, stream=stream)
        end = stream.record()
        end.synchronize()
        assert end.done
        assert 0 <= end.elapsed_ms(start) < 10_000
        assert x.numpy().sum() == 0


def test_event_can_be_recorded_again(device: Device) -> None:
    stream = device.stream()
    start, end = stream.record(), stream.record()
    first = end.elapsed_ms(start)
    device.zeros(1 << 20, np.int32, stream=stream)
    assert stream.record(end) is end
    assert end.elapsed_ms(start) > first


def test_event_without_timing_measures_nothing(device: Device) -> None:
    stream = device.stream()
    start, end = stream.record(timing=False), stream.record()
    for late, early in ((start, end), (end, start)):
        with raises(ArgumentError, "argument", "timing=False"):
            late.elapsed_ms(early)
    with raises(ArgumentError, "argument", "3", "int"):
        end.elapsed_ms(3)  # type: ignore[arg-type]


def test_events_of_two_devices_have_no_common_clock(device: Device, host: Device) -> None:
    with raises(ArgumentError, "device-mismatch", "common"):
        device.stream().record().elapsed_ms(host.stream().record())
    with raises(ArgumentError, "device-mismatch", "events"):
        device.stream().record(host.stream().record())


def test_closed_event_refuses_everything(device: Device) -> None:
    stream = device.stream()
    event = stream.record()
    event.close()
    event.close()
    assert "closed" in repr(event)
    uses: list[Any] = [
        event.synchronize,
        lambda: event.done,
        lambda: stream.record().elapsed_ms(event),
        lambda: stream.wait(event),
        lambda: stream.record(event),
    ]
    for use in uses:
        with raises(ClosedError, "closed", "event"):
            use()


def test_stream_waits_for_events_and_other_streams(device: Device, host: Device) -> None:
    first, second = device.stream(), device.stream()
    x = device.zeros(1 << 16, np.int32, stream=first)
    x.fill(7, stream=first)
    second.wait(first.record(timing=False))
    y = device.empty(1 << 16, np.int32, stream=second)
    y.copy_from(x, stream=second)
    first.wait(second)
    x.fill(0, stream=first)
    second.wait(0)
    second.wait(host.stream())
    second.wait(host.stream().record())
    assert (y.numpy() == 7).all()
    assert not x.numpy().any()


# -- copies and fills -------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("u1", 200),
        ("i2", -2),
        ("f4", 1.5),
        ("i8", -3),
        ("i8", 0x0102030405060708),
        ("f8", 0.1),
        ("c16", 1 + 2j),
        ("S3", b"abc"),
        ("?", True),
    ],
)
def test_fill_sets_every_element(device: Device, dtype: str, value: object, stream: bool) -> None:
    x = device.zeros(7, dtype)
    x[1:6].fill(value, stream=device.stream() if stream else None)
    device.synchronize()
    expected = np.zeros(7, dtype)
    expected[1:6] = value
    np.testing.assert_array_equal(x.numpy(), expected)


def test_fill_with_an_invalid_element_is_refused(device: Device) -> None:
    x = device.zeros(3, np.int32)
    with raises(ArgumentError, "array-dtype", "int32"):
        x.fill("many")
    with raises(ArgumentError, "argument", "2", "value"):
        x.fill([1, 2])


def test_copy_to_writes_into_an_array_of_the_host(device: Device) -> None:
    x, out = device.array(np.arange(6, dtype=np.int16).reshape(2, 3)), np.zeros((2, 3), np.int16)
    assert x.copy_to(out) is out
    assert out.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert x.copy_to(stream=device.stream()).tolist() == out.tolist()


def test_copy_to_refuses_a_mismatch(device: Device) -> None:
    x = device.zeros((2, 3), np.int16)
    frozen = np.zeros((2, 3), np.int16)
    frozen.flags.writeable = False
    for out, why in (
        ([0], ("argument", "list")),
        (np.zeros((3, 2), np.int16), ("array-shape", "int16")),
        (np.zeros((2, 3), np.int32), ("array-shape", "int32")),
        (np.zeros((3, 2), np.int16).T, ("argument", "int16")),
        (frozen, ("argument", "int16")),
    ):
        with raises(ArgumentError, *why):
            x.copy_to(out)  # type: ignore[arg-type]


def test_array_is_copied_from_another_device_array(device: Device, cpu: Device) -> None:
    x = device.array(np.arange(4, dtype=np.float32))
    y = device.zeros(4, np.float32)
    y.copy_from(x)
    there = cpu.zeros(4, np.float32)
    there.copy_from(y)
    y.copy_from(cpu.array(np.full(4, 9, np.float32)))
    assert there.numpy().tolist() == [0, 1, 2, 3]
    assert y.numpy().tolist() == [9] * 4
    with raises(ArgumentError, "array-shape", "shape"):
        y.copy_from(device.zeros(5, np.float32))
    with raises(ArgumentError, "array-dtype", "float64"):
        y.copy_from(device.zeros(4, np.float64))


def test_copy_from_pageable_memory_is_done_on_return(device: Device) -> None:
    stream, host = device.stream(), np.arange(1 << 20, dtype=np.int32)
    x = device.empty(1 << 20, np.int32, stream=stream)
    x.copy_from(host, stream=stream)
    host[:] = -1
    np.testing.assert_array_equal(x.numpy(), np.arange(1 << 20))


def test_pinned_memory_is_an_array_that_copies_use(device: Device) -> None:
    stream = device.stream()
    host = device.pinned((3, 4), np.float32)
    assert host.shape == (3, 4)
    assert host.dtype == np.float32
    assert is_pinned(host[1:].reshape(-1).view(np.uint8).data)
    assert not is_pinned(np.zeros(3, np.uint8).data)
    host[:] = 3
    x = device.empty((3, 4), np.float32, stream=stream)
    x.copy_from(host, stream=stream)
    back = device.pinned((3, 4), np.float32)
    back[:] = 0
    assert x.copy_to(back, stream=stream) is back
    stream.synchronize()
    assert (back == 3).all()


def test_pinned_memory_of_no_elements_or_an_invalid_shape(device: Device) -> None:
    assert device.pinned((0, 3), np.int8).shape == (0, 3)
    assert device.pinned((), np.int64).shape == ()
    with raises(ArgumentError, "array-shape", "negative"):
        device.pinned(-1, np.int8)


def test_pinned_memory_is_freed_with_its_last_view(device: Device) -> None:
    host = device.pinned(8, np.int32)
    memory = host.base
    while isinstance(memory, np.ndarray):
        memory = memory.base
    alive = weakref.ref(memory)
    device.zeros(8, np.int32).copy_from(host, stream=device.stream())
    view = host[2:]
    del host, memory
    gc.collect()
    assert alive() is not None
    del view
    gc.collect()
    assert alive() is None


def test_arrays_are_freed_while_stream_work_is_queued(device: Device) -> None:
    stream = device.stream()
    kept = device.empty(1 << 18, np.int32, stream=stream)
    for i in range(20):
        x = device.empty(1 << 18, np.int32, stream=stream)
        x.fill(i, stream=stream)
        kept.copy_from(x, stream=stream)
        del x
    stream.close()
    assert (kept.numpy() == 19).all()


def test_empty_array_is_copied_in_a_stream(device: Device) -> None:
    stream = device.stream()
    x = device.zeros(0, np.float32, stream=stream)
    x.fill(1, stream=stream)
    x.copy_from(np.zeros(0, np.float32), stream=stream)
    x.copy_from(x, stream=stream)
    assert x.numpy(stream=stream).size == 0


def test_streams_are_of_one_class_for_users(device: Device) -> None:
    assert isinstance(device.stream(), Stream)
    assert isinstance(device.stream(0), Stream)


def test_other_library_waits_for_the_stream_of_an_array(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    ordered: list[tuple[int, int]] = []
    monkeypatch.setattr(device, "order", lambda earlier, later: ordered.append((earlier, later)))
    own = device.stream()
    plain, queued = device.zeros(1, np.int8), device.zeros(1, np.int8, stream=own)
    for array in (plain, queued):
        for stream in (None, 1, 77, -1) if device.is_gpu else (None,):
            array.__dlpack__(stream=stream)
    expected = [(0, 77), (own.handle, 0), (own.handle, 0), (own.handle, 77)]
    assert ordered == (expected if device.is_gpu else [])


def test_freed_stream_memory_is_returned(device: Device) -> None:
    device.trim()
    stream = device.stream()
    x = device.array(np.arange(1000, dtype=np.int32), stream=stream)
    device.zeros(1 << 20, np.int8, stream=stream)
    stream.synchronize()
    device.trim(np.int64(1 << 20))
    device.trim()
    assert x.numpy().tolist() == list(range(1000))
    for bad in (-1, 2**64, 1.5, "all", None):
        with raises(ArgumentError, "argument", "keep_bytes"):
            device.trim(bad)  # type: ignore[arg-type]
