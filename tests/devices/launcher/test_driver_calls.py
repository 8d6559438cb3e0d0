"""What machine code tells the driver, heard by functions that stand in its place; the real one is in test_gpu.py."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

import pytest

from cujit.devices.cuda.kernel import CudaKernel
from cujit.devices.cuda.launching import LaunchConfig, driver_entries, launch_config
from cujit.devices.device import Device
from cujit.devices.launcher.cpython import is_supported, native_type
from cujit.devices.launcher.layout import layout_of
from cujit.devices.launcher.library import library
from cujit.devices.options import PLAIN, LaunchOptions
from cujit.devices.shapes import Dim3, LaunchShape
from cujit.errors import DriverError
from cujit.signature import Parameter, ParameterClass, Signature
from raising import raises

pytestmark = pytest.mark.skipif(not is_supported(), reason="this interpreter takes no machine code")

SIGNATURE = Signature(
    (
        Parameter(ParameterClass.SIGNED, 1, 1),
        Parameter(ParameterClass.FLOAT, 8, 8),
        Parameter(ParameterClass.SIGNED, 4, 4),
    )
)
OURS, OTHERS = 0x1000, 0x2000
SHAPE = LaunchShape(Dim3(2, 3, 4), Dim3(5, 6, 7), 1024)
Word = ctypes.c_void_p


class OldDriver:
    """A driver that lacks a function, as one of before CUDA 12 lacks clusters."""

    name = "libcuda.so.1 of before"

    def call(self, function: str, name: bytes, *_rest: object) -> tuple[int, int]:
        assert function == "cuGetProcAddress"
        return (0 if name == b"cuLaunchKernelEx" else 0x1000), 0


def test_driver_without_a_function_is_reported_as_old() -> None:
    with raises(DriverError, "driver", "cuLaunchKernelEx") as error:
        driver_entries(OldDriver())
    assert "update the driver" in str(error.value)


class Driver:
    """Functions of the driver as C calls them; ``heard`` is what they were told, ``stack`` the contexts."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.stack: list[int] = [OURS]
        self.answers: dict[str, int] = {}
        kind = ctypes.PYFUNCTYPE
        self._keep = {
            "launch_kernel": kind(ctypes.c_int, Word, *[ctypes.c_uint] * 7, Word, Word, Word)(self._launch),
            "launch_kernel_ex": kind(ctypes.c_int, Word, Word, Word, Word)(self._launch_ex),
            "get_context": kind(ctypes.c_int, ctypes.POINTER(Word))(self._get),
            "set_context": kind(ctypes.c_int, Word)(self._set),
            "push_context": kind(ctypes.c_int, Word)(self._push),
            "pop_context": kind(ctypes.c_int, Word)(self._pop),
        }
        self.fields = {name: ctypes.cast(call, Word).value or 0 for name, call in self._keep.items()}

    def _parameters(self, each: int | None, extra: int | None) -> tuple[str, Any]:
        if each:
            places = (Word * 3).from_address(each)
            sizes = [p.size for p in SIGNATURE]
            return "each", [ctypes.string_at(at or 0, n) for at, n in zip(places, sizes, strict=True)]
        if not extra:
            return "none", b""
        first, buffer, second, size, end = (ctypes.c_uint64 * 5).from_address(extra)
        assert (first, second, end) == (1, 2, 0)
        return "buffer", ctypes.string_at(buffer, ctypes.c_size_t.from_address(size).value)

    def _launch(self, function: int, *words: Any) -> int:
        *sizes, stream, each, extra = words
        self.heard.append(("launch", function, sizes, stream, self.stack[-1], *self._parameters(each, extra)))
        return self.answers.get("launch", 0)

    def _launch_ex(self, config: int, function: int, each: int, extra: int) -> int:
        told = LaunchConfig.from_address(config)
        attributes = [(told.attributes[i].id, list(told.attributes[i].value[:3])) for i in range(told.count)]
        grid = (told.grid_x, told.grid_y, told.grid_z)
        self.heard.append(("extended", function, grid, told.stream, attributes, *self._parameters(each, extra)))
        return self.answers.get("launch", 0)

    def _get(self, out: Any) -> int:
        out[0] = self.stack[-1] if self.stack else None
        return 0

    def _set(self, context: int) -> int:
        self.stack[-1:] = [context]
        return self.answers.get("set", 0)

    def _push(self, context: int) -> int:
        self.stack.append(context)
        return self.answers.get("push", 0)

    def _pop(self, out: int) -> int:
        del out
        self.stack.pop()
        return 0


class Call:
    """What a launch is to machine code: an object with an attribute or two."""

    __slots__ = ("keep",)


@pytest.fixture
def driver() -> Driver:
    return Driver()


def bound(
    driver: Driver,
    device: Device,
    options: LaunchOptions = PLAIN,
    each: bool = False,
    signature: Signature = SIGNATURE,
) -> Callable[..., None]:
    from cujit.devices.launcher.state import LaunchState

    layout = layout_of(signature)
    assert layout is not None
    native = native_type(Call)
    config = launch_config(SHAPE, 99, options)
    alive = ctypes.c_int32(1)

    def failed(status: int) -> None:
        raise OverflowError(f"the driver answered {status}")

    state = LaunchState(
        alive=ctypes.addressof(alive),
        failed=id(failed),
        device=id(device),
        function=77,
        context=OURS,
        stream=99,
        config=0 if options == PLAIN else ctypes.addressof(config),
        dynamic_bytes=SHAPE.shared_bytes,
        fields=ctypes.addressof(layout.fields),
        count=len(layout.fields),
        size=layout.size,
        each=each,
        submit=library().address(CudaKernel.submit or ""),
        **driver.fields,
        **dict(zip(("grid_x", "grid_y", "grid_z"), SHAPE.grid, strict=True)),
        **dict(zip(("block_x", "block_y", "block_z"), SHAPE.block, strict=True)),
    )
    call: Any = native.type()
    call.keep = (state, config, alive, failed, driver, layout)
    native.attach(call, library().address("launch"), ctypes.addressof(state))
    return call  # type: ignore[no-any-return]


BUFFER = struct.pack("<b7xdi", 7, 0.5, -2)


def test_driver_hears_function_sizes_stream_and_the_buffer(driver: Driver, gpu_memory: Device) -> None:
    bound(driver, gpu_memory)(7, 0.5, -2)
    assert driver.heard == [("launch", 77, [2, 3, 4, 5, 6, 7, 1024], 99, OURS, "buffer", BUFFER)]


def test_driver_hears_the_address_of_each_parameter(driver: Driver, gpu_memory: Device) -> None:
    bound(driver, gpu_memory, each=True)(7, 0.5, -2)
    values = [b"\7", struct.pack("<d", 0.5), struct.pack("<i", -2)]
    assert driver.heard == [("launch", 77, [2, 3, 4, 5, 6, 7, 1024], 99, OURS, "each", values)]


@pytest.mark.parametrize("each", [False, True], ids=["buffer", "each"])
def test_kernel_without_parameters_passes_no_array(driver: Driver, gpu_memory: Device, each: bool) -> None:
    bound(driver, gpu_memory, each=each, signature=Signature())()
    assert driver.heard[0][-2:] == ("none", b"")


def test_options_use_the_extended_launch(driver: Driver, gpu_memory: Device) -> None:
    options = LaunchOptions(cluster=Dim3(2, 1, 1), cooperative=True, overlap=True, priority=-3)
    bound(driver, gpu_memory, options)(7, 0.5, -2)
    attributes = [(4, [2, 1, 1]), (2, [1, 0, 0]), (6, [1, 0, 0]), (8, [-3, 0, 0])]
    assert driver.heard == [("extended", 77, (2, 3, 4), 99, attributes, "buffer", BUFFER)]


def test_structures_have_the_sizes_that_the_driver_reads() -> None:
    from cujit.devices.cuda.launching import _Attribute

    assert ctypes.sizeof(LaunchConfig) == 56
    assert ctypes.sizeof(_Attribute) == 72
    assert LaunchConfig.stream.offset == 32


def test_numbers_of_attributes_are_the_bindings() -> None:
    bindings = pytest.importorskip("cuda.bindings.driver")
    import cujit.devices.cuda.launching as ours

    names = bindings.CUlaunchAttributeID
    for name in ("COOPERATIVE", "CLUSTER_DIMENSION", "PROGRAMMATIC_STREAM_SERIALIZATION", "PRIORITY"):
        assert getattr(ours, f"_{name}") == int(getattr(names, f"CU_LAUNCH_ATTRIBUTE_{name}"))
    flags = bindings.CUdriverProcAddress_flags
    assert int(flags.CU_GET_PROC_ADDRESS_LEGACY_STREAM) == ours._LEGACY_STREAM


def test_previous_context_is_restored(driver: Driver, gpu_memory: Device) -> None:
    driver.stack = [OTHERS]
    bound(driver, gpu_memory)(7, 0.5, -2)
    assert driver.heard[0][4] == OURS
    assert driver.stack == [OTHERS]


def test_thread_without_a_context_keeps_cujits(driver: Driver, gpu_memory: Device) -> None:
    driver.stack = []
    launch = bound(driver, gpu_memory)
    launch(7, 0.5, -2)
    launch(7, 0.5, -2)
    assert [heard[4] for heard in driver.heard] == [OURS, OURS]
    assert driver.stack == [OURS]


@pytest.mark.parametrize(
    ("stack", "answer"), [([OURS], "launch"), ([OTHERS], "push"), ([], "set"), ([OTHERS], "launch")]
)
def test_driver_error_is_reported_by_its_number(
    driver: Driver, gpu_memory: Device, stack: list[int], answer: str
) -> None:
    driver.stack, driver.answers = list(stack), {answer: 719}
    with pytest.raises(OverflowError, match="answered 719"):
        bound(driver, gpu_memory)(7, 0.5, -2)
    if answer == "launch":
        assert driver.stack == stack
