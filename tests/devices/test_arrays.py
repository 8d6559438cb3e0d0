from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from cujit.devices.device import Device
from cujit.errors import ArgumentError, ClosedError
from cujit.loading import jit
from raising import raises


def test_numpy_array_is_unchanged_after_a_round_trip(device: Device) -> None:
    data = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    copy = device.array(data)
    assert (copy.shape, copy.dtype, copy.nbytes, copy.size, len(copy)) == ((2, 3, 4), data.dtype, 48, 24, 2)
    assert copy.strides == data.strides
    np.testing.assert_array_equal(copy.numpy(), data)


def test_noncontiguous_array_is_copied_in_c_order(device: Device) -> None:
    data = np.arange(12.0).reshape(3, 4).T
    np.testing.assert_array_equal(device.array(data).numpy(), data)


def test_read_only_array_can_be_copied_to_the_device(device: Device) -> None:
    data = np.frombuffer(b"abcd", np.uint8)
    np.testing.assert_array_equal(device.array(data).numpy(), data)


def test_list_with_a_dtype_becomes_an_array(device: Device) -> None:
    assert device.array([1, 2, 3], np.float32).numpy().tolist() == [1.0, 2.0, 3.0]


def test_number_becomes_a_zero_dimensional_array(device: Device) -> None:
    number = device.array(2.5)
    assert number.shape == ()
    assert number.numpy() == 2.5
    with raises(ArgumentError, "array-index", "length"):
        len(number)


def test_zeros_are_zero(device: Device) -> None:
    assert not device.zeros((5, 3), np.int64).numpy().any()


def test_empty_array_has_no_bytes_and_is_copied_back(device: Device) -> None:
    assert device.zeros((0, 4), np.float32).numpy().shape == (0, 4)
    assert device.empty(0, np.float32).nbytes == 0


def test_structures_are_copied_to_the_device_and_back(device: Device) -> None:
    data = np.array([(1, 2.5), (3, 4.5)], np.dtype([("a", "i4"), ("b", "f8")]))
    np.testing.assert_array_equal(device.array(data).numpy(), data)


def test_big_endian_elements_are_swapped_on_the_way(device: Device) -> None:
    assert device.array(np.array([1, 2], ">i4")).numpy().tolist() == [1, 2]


@pytest.mark.parametrize("bad", [[[1, 2], [3]], ["a", object()], object(), [None]])
def test_invalid_array_data_is_refused(host: Device, bad: object) -> None:
    with pytest.raises(ArgumentError):
        host.array(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(("shape", "dtype"), [(-1, "f4"), ((2, -3), "f4"), ("abc", "f4"), (3, "no such"), (3, object)])
def test_bad_shape_or_dtype_is_refused(host: Device, shape: object, dtype: object) -> None:
    with pytest.raises(ArgumentError):
        host.empty(shape, dtype)  # type: ignore[arg-type]


def test_copy_from_replaces_the_elements(device: Device) -> None:
    array = device.zeros(3, np.float32)
    array.copy_from(np.array([1, 2, 3], np.float32))
    assert array.numpy().tolist() == [1.0, 2.0, 3.0]


def test_copy_from_another_shape_or_dtype_names_both(host: Device) -> None:
    array = host.zeros(3, np.float32)
    with raises(ArgumentError, "array-shape", "4", "3", "shape"):
        array.copy_from(np.zeros(4, np.float32))
    with raises(ArgumentError, "array-dtype", "float64", "float32") as caught:
        array.copy_from(np.zeros(3))
    assert "astype" in str(caught.value)


def test_slices_and_rows_share_the_memory(device: Device) -> None:
    array = device.array(np.arange(12, dtype=np.int32).reshape(4, 3))
    array[1:3].copy_from(np.zeros((2, 3), np.int32))
    array[-1].copy_from(np.array([7, 8, 9], np.int32))
    assert array.numpy().tolist() == [[0, 1, 2], [0, 0, 0], [0, 0, 0], [7, 8, 9]]
    assert [row.shape for row in array] == [(3,)] * 4


def test_slice_beyond_the_end_is_cut_as_numpy_cuts(host: Device) -> None:
    array = host.array(np.arange(5))
    assert array[3:100].numpy().tolist() == [3, 4]
    assert len(array[4:2]) == 0


def test_invalid_index_is_refused(host: Device) -> None:
    array = host.zeros(5, np.int8)
    with raises(ArgumentError, "array-index", "5", "index"):
        array[5]
    with raises(ArgumentError, "array-index", "2", "device.array(x.numpy()[::2])"):
        array[::2]
    with raises(ArgumentError, "array-index", "axis"):
        array["x"]  # type: ignore[index]
    with raises(ArgumentError, "array-index"):
        host.array(1.0)[0]


def test_reshape_shares_the_memory_and_works_out_one_size(host: Device) -> None:
    array = host.array(np.arange(6))
    array.reshape(2, -1)[0].copy_from(np.array([9, 9, 9]))
    assert array.numpy().tolist() == [9, 9, 9, 3, 4, 5]
    with raises(ArgumentError, "array-shape", "6", "elements"):
        array.reshape((4, 2))
    with raises(ArgumentError, "array-shape", "6", "elements"):
        array.reshape(4, -1)


def test_view_with_another_dtype_has_the_same_bytes(host: Device) -> None:
    array = host.array(np.array([1.0], np.float32))
    assert array.view(np.uint32).numpy().tolist() == [0x3F800000]
    assert array.view(np.uint8).shape == (4,)
    with raises(ArgumentError, "array-shape", "float64"):
        array.view(np.float64)


def test_memory_is_freed_with_the_last_view(host: Device) -> None:
    array = host.zeros(10, np.int32)
    owner = weakref.ref(array._allocation.owner)  # type: ignore[union-attr]
    view = array[2:4]
    array.close()
    del array
    gc.collect()
    assert owner() is not None
    assert view.numpy().tolist() == [0, 0]
    del view
    gc.collect()
    assert owner() is None


def test_closed_array_is_reported_and_can_be_closed_again(host: Device) -> None:
    array = host.zeros(3, np.float32)
    array.close()
    array.close()
    for use in (lambda: array.address, array.numpy, lambda: array[0], lambda: array.copy_from(np.zeros(3, "f4"))):
        with raises(ClosedError, "closed", "device.array(x)"):
            use()
    assert "closed" in repr(array)


def test_repr_shows_dtype_shape_and_device(host: Device) -> None:
    assert repr(host.zeros((2, 3), np.float32)) == "<DeviceArray float32 (2, 3) on cpu>"


def test_truth_of_an_array_is_refused(host: Device) -> None:
    with raises(ArgumentError, "argument", "x.numpy()"):
        bool(host.zeros(1, np.int8))


def test_numpy_sees_memory_of_the_cpu_device_without_a_copy(host: Device) -> None:
    array = host.zeros(3, np.float32)
    seen = np.asarray(array)
    seen[1] = 5
    assert array.numpy().tolist() == [0, 5, 0]
    assert not hasattr(array, "__cuda_array_interface__")


def test_numpy_gets_a_copy_of_a_gpus_memory(gpu_memory: Device) -> None:
    array = gpu_memory.array(np.arange(3))
    assert np.asarray(array, np.float32).tolist() == [0, 1, 2]
    assert not hasattr(array, "__array_interface__")
    with pytest.raises(ValueError, match="must be copied"):
        np.array(array, copy=False)


def test_cuda_array_interface_is_of_version_3(gpu_memory: Device) -> None:
    array = gpu_memory.zeros((2, 3), np.float32)
    assert array.__cuda_array_interface__ == {
        "shape": (2, 3),
        "typestr": "<f4",
        "descr": [("", "<f4")],
        "data": (array.address, False),
        "strides": None,
        "version": 3,
        "stream": None,
    }


def test_numpy_from_dlpack_shares_the_memory_of_the_cpu_device(host: Device) -> None:
    array = host.zeros((2, 2), np.int32)
    shared = np.from_dlpack(array)
    assert shared.ctypes.data == array.address
    assert shared.shape == (2, 2)


def test_dlpack_keeps_the_array_alive_until_released(host: Device) -> None:
    array = host.array([1, 2, 3])
    alive = weakref.ref(array)
    shared = np.from_dlpack(array)
    del array
    gc.collect()
    assert alive() is not None
    assert shared.tolist() == [1, 2, 3]
    del shared
    gc.collect()
    assert alive() is None


def test_unused_dlpack_capsule_releases_the_array(gpu_memory: Device) -> None:
    array = gpu_memory.array([1, 2, 3])
    alive = weakref.ref(array)
    capsule = array.__dlpack__(max_version=(1, 0))
    del array, capsule
    gc.collect()
    assert alive() is None


def test_dlpack_refuses_another_device_and_a_copy(host: Device) -> None:
    array = host.zeros(1, np.int8)
    with pytest.raises(BufferError, match="not \\(2, 0\\)"):
        array.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="copy"):
        array.__dlpack__(copy=True)


@pytest.mark.parametrize("bad", [slice("a", 1), slice(None, 1.5), slice(0, 2, 0)])
def test_noninteger_slice_is_refused(host: Device, bad: slice) -> None:
    with raises(ArgumentError, "array-index", "x[first:last]") as caught:
        host.zeros(4, np.float32)[bad]
    assert caught.value.help


def test_closed_array_error_has_a_hint(host: Device) -> None:
    x = host.zeros(4, np.float32)
    x.close()
    with pytest.raises(ClosedError) as caught:
        x.numpy()
    assert "device.array" in (caught.value.help or "")


def test_device_of_an_array_is_accepted_as_a_device(device: Device) -> None:
    x = device.array(np.arange(4, dtype=np.float32))
    y = x.device.zeros(x.shape, x.dtype)
    module = jit('extern "C" __global__ void k(float* y) { y[threadIdx.x] = 2; }', device=x.device)
    module["k"][1, 4](y)
    assert module.device is device
    assert (y.numpy() == 2).all()
