"""A library's life on a GPU: the calls of the driver that kernels take, and what is read of their images."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

import null_driver
from cujit.devices.launcher.cpython import is_supported
from cujit.devices.launcher.cubin import CubinKernelFacts, cubin_facts, number_of
from cujit.errors import FormatError
from cujit.formats.cubin import Cubin, read_cubin
from cujit.program import compile
from processes import printed

needs_native = pytest.mark.skipif(not is_supported(), reason="this interpreter takes no native launches")

SOURCE = """
struct Big { float rows[300]; };
extern "C" __global__ void plain(const float* a, float* b, int n) { if (threadIdx.x < n) b[threadIdx.x] = a[0]; }
extern "C" __global__ void none() {}
extern "C" __global__ void __launch_bounds__(96) bounded(char c, double d, short s) { if (c > 99) __nanosleep(d + s); }
extern "C" __global__ void shared(float* a) {
    __shared__ float s[700];
    s[threadIdx.x] = a[threadIdx.x]; __syncthreads(); a[0] = s[a[1] > 0];
}
extern "C" __global__ void big(Big big, float* a) { *a = big.rows[(int)*a]; }
template <typename T> __global__ void filled(T* a, T value) { a[threadIdx.x] = value; }
template __global__ void filled<int>(int*, int);
template __global__ void filled<double>(double*, double);
__device__ int variable; __constant__ float table[8];
"""
CLUSTERS = 'extern "C" __global__ void __cluster_dims__(2, 1, 1) pair(int* a) { *a = 1; }'


# -- the driver, as rarely as possible ---------------------------------------------------------------------

CHILD = """
import ctypes, sys
import numpy as np
import cujit
device = cujit.gpu(0)
images = [open(path, "rb").read() for path in sys.argv[1:]]
x = device.zeros(32, np.float32)
mark = ctypes.CDLL("libcuda.so.1").null_driver_mark
warm = cujit.load(images[0], device)["none"]
warm[1, 32]()
mark(b"start")
module = cujit.load(images[1], device)
mark(b"load")
kernel = module["plain"]
mark(b"find")
kernel[1, 32](x, x, 3)
mark(b"first")
kernel[1, 32](x, x, 3)
kernel[2, 64](x, x, 3)
mark(b"second")
kernel[1, 32, 1000](x, x, 3)
mark(b"little shared")
kernel[1, 32, 60000](x, x, 3)
kernel[2, 32, 60000](x, x, 3)
mark(b"much shared")
cujit.load(images[2], device)["pair"][2, 32](x.view(np.int32))
mark(b"cluster")
other = module["none"]
mark(b"find another")
other.resources
mark(b"resources")
module.close()
mark(b"close")
again = cujit.load(images[1], device)
mark(b"again")
again.preload()
mark(b"preload")
again["plain"][1, 32](x, x, 3)
mark(b"after")
"""


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Counter[str]]:
    """What a process calls, without asking which context is current and setting it."""
    if not null_driver.is_buildable() or not is_supported():
        pytest.skip("needs ziglang, and an interpreter that takes native launches")
    folder = tmp_path_factory.mktemp("driver")
    paths = []
    for name, text in {"warm": SOURCE, "image": SOURCE, "cluster": CLUSTERS}.items():
        paths.append(folder / f"{name}.cubin")
        paths[-1].write_bytes(compile(text, to="cubin", arch="sm_90").data)
    printed(CHILD, *paths, environment=null_driver.build(folder))
    return {
        mark: Counter({name: n for name, n in found.items() if not name.startswith("cuCtx")})
        for mark, found in null_driver.calls(folder).items()
    }


def test_load_and_first_launch_take_three_driver_calls(calls: Mapping[str, Counter[str]]) -> None:
    assert calls["load"] == {"cuModuleLoadData": 1}
    assert calls["find"] == {"cuModuleGetFunction": 1}
    assert calls["first"] == {"cuLaunchKernel": 1}


def test_each_later_launch_takes_one_driver_call(calls: Mapping[str, Counter[str]]) -> None:
    assert calls["second"] == {"cuLaunchKernel": 2}
    assert calls["little shared"] == {"cuLaunchKernel": 1}


def test_much_shared_memory_is_allowed_once_for_the_kernel(calls: Mapping[str, Counter[str]]) -> None:
    assert calls["much shared"]["cuFuncSetAttribute"] == 1
    assert calls["much shared"]["cuLaunchKernel"] == 2


def test_cluster_attributes_are_read_only_if_the_image_has_any(calls: Mapping[str, Counter[str]]) -> None:
    assert calls["cluster"]["cuFuncGetAttribute"] >= 3
    assert calls["cluster"]["cuLaunchKernel"] == 1


def test_attributes_are_read_on_demand_and_images_unloaded_once(
    calls: Mapping[str, Counter[str]],
) -> None:
    assert calls["resources"] == {"cuFuncGetAttribute": 5, "cuModuleGetFunction": 1}
    assert calls["close"] == {"cuModuleUnload": 1}
    assert "cuFuncGetParamInfo" not in set().union(*calls.values())
    assert [mark for mark, found in calls.items() if "cuFuncLoad" in found] == ["preload"]


def test_code_is_loaded_eagerly_on_request(calls: Mapping[str, Counter[str]]) -> None:
    count = calls["preload"]["cuFuncLoad"]
    assert count == 7, "the kernels of the image"
    assert calls["preload"]["cuModuleGetFunction"] == count
    assert calls["after"]["cuLaunchKernel"] == 1
    assert not calls["after"]["cuFuncLoad"]


# -- what is read of a cubin -------------------------------------------------------------------------------


def facts_as_read(cubin: Cubin) -> dict[str, tuple[object, ...]]:
    return {
        kernel.name: (kernel.registers or 0, kernel.max_threads or 0, kernel.shared_bytes, kernel.signature)
        for kernel in cubin.kernels
    }


def facts_of(kernels: Mapping[str, CubinKernelFacts]) -> dict[str, tuple[object, ...]]:
    return {name: (k.registers, k.max_threads, k.shared_bytes, k.signature) for name, k in kernels.items()}


@needs_native
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_90", "sm_90a", "sm_100", "sm_103a", "sm_120"])
def test_native_and_full_cubin_readers_agree(arch: str) -> None:
    data = compile(SOURCE, to="cubin", arch=arch).data
    facts = cubin_facts(data)
    assert facts is not None
    assert number_of(data) == read_cubin(data).arch.number
    assert facts_of(facts) == facts_as_read(read_cubin(data))
    assert list(facts) == [kernel.name for kernel in read_cubin(data).kernels]
    assert not any(kernel.has_clusters for kernel in facts.values())


@needs_native
def test_many_kernels_of_one_image_are_read() -> None:
    text = "\n".join(f'extern "C" __global__ void k{i}(int* a, int b) {{ a[{i}] = b; }}' for i in range(700))
    data = compile(text, to="cubin", arch="sm_90").data
    facts = cubin_facts(data)
    assert facts is not None
    assert facts_of(facts) == facts_as_read(read_cubin(data))


@needs_native
def test_cluster_kernels_are_recognized() -> None:
    bounded = 'extern "C" __global__ void __launch_bounds__(128, 1, 4) most(int* a) { *a = 1; }'
    for text, name in ((CLUSTERS, "pair"), (bounded, "most")):
        facts = cubin_facts(compile(text, to="cubin", arch="sm_90").data)
        assert facts is not None
        assert facts[name].has_clusters


@needs_native
@pytest.mark.parametrize("what", [b"", b"\x7fELF", b"\x7fELF" + bytes(60), b"no image at all" * 20])
def test_other_files_are_left_to_the_full_reader(what: bytes) -> None:
    assert cubin_facts(what) is None


@needs_native
def test_cubin_that_needs_linking_is_left_to_the_full_reader() -> None:
    assert cubin_facts(compile(SOURCE, to="cubin", arch="sm_90", rdc=True).data) is None


@needs_native
def test_damaged_cubins_never_crash_the_native_reader() -> None:
    """What a launch may ask of an image is decided by the driver; a damaged one only has to be read without harm."""
    data, random_ = compile(SOURCE, to="cubin", arch="sm_90").data, random.Random(4)
    for cut in range(0, len(data), 7):
        assert cubin_facts(data[:cut]) is None or cut > len(data) - 64 * 40
    taken = 0
    for _ in range(6000):
        hurt = bytearray(data)
        for _ in range(random_.choice((1, 1, 2, 8))):
            hurt[random_.randrange(len(hurt))] = random_.choice((0, 1, 0x7F, 0x80, 0xFF, random_.randrange(256)))
        facts = cubin_facts(bytes(hurt))
        try:
            cubin = read_cubin(bytes(hurt))
        except FormatError:
            continue
        if facts is not None:
            taken += 1
            assert list(facts) == [kernel.name for kernel in cubin.kernels]
    assert taken > 1000


# -- launches that native code makes -----------------------------------------------------------------------


def printed_beside_an_image(code: str, directory: Path) -> str:
    """Run code on the driver that does nothing, with the path of an image; return what it prints."""
    if not null_driver.is_buildable():
        pytest.skip("needs ziglang")
    (directory / "image.cubin").write_bytes(compile(SOURCE, to="cubin", arch="sm_90").data)
    return printed(code, directory / "image.cubin", environment=null_driver.build(directory))


LAUNCHES = """
import ctypes, gc, sys
import numpy as np
import pytest
import cujit
from cujit.devices.launcher.state import LaunchState
from cujit.errors import ArgumentError, ClosedError, LaunchError

device = cujit.gpu(0)
data = open(sys.argv[1], "rb").read()
x = device.zeros(32, np.float32)
first = cujit.load(data, device)["plain"]
first.prepare(1, 32, shared_bytes=16)(x, x, 3)
written = first.prepare(1, 32)
written(x, x, 3)
first[2, 32](x, x, 3)
module = cujit.load(data, device)
kernel = module["plain"]
made = kernel[1, 32]
assert type(made) is type(written) and made._state is not None and made._prepared is None
made(x, x, 3)
assert made._prepared is None  # nothing of it is written in Python yet
shapes = [((1, 2), 32), (3, (4, 2)), ((1, 1, 2), (1, 1, 2)), ((1,), (32,)), (1, 1)]
assert [kernel[shape] is kernel[shape] for shape in shapes] == [True] * 5
assert kernel[(1,), (32,)] is made and kernel.prepare(1, 32) is made and kernel[(1, 1), (32, 1, 1), 0] is made
assert kernel[(1, 2), 32] is kernel.prepare((1, 2, 1), 32)
assert made.shape == written.shape and made.stream == 0 and made.options == written.options
assert made.kernel is kernel and made == made and "plain" in repr(made)

# What native code wrote is what Python writes.
def words(launch):
    state = LaunchState.from_address(ctypes.c_uint64.from_address(id(launch) + type(launch).__basicsize__ - 8).value)
    skipped = {"by_hand", "named", "failed", "reader", "launch", "complete", "alive", "function", "label"}
    return {name: getattr(state, name) for name, _ in LaunchState._fields_ if name not in skipped}

assert words(made) == words(written)
with pytest.raises(ArgumentError):
    made(x, x, "three")
assert made._prepared is not None and words(made) == words(written)
made(x, x, 3)
with pytest.raises(ArgumentError, match="only positional"):
    kernel[4, 32](x, x, n=3)
kernel[5, 32].packed(bytes(20))

# Beyond a limit Python tells.
for shape in ((1, 2048), (1, (1, 1, 65)), ((1, 1 << 40), 1), (0, 32), (1, -1), (1, (32, 32, 2)), (1.0, 32)):
    with pytest.raises(LaunchError):
        kernel[shape]
bounded = module["bounded"]
bounded[2, 32]
assert bounded[1, 96]._state is not None and bounded[1, 97]._state is None  # of 97 the driver is asked
assert [launch.partition(":")[0] for launch in device.backend.context.ring.in_flight()][:2] == ["plain", "plain"]

kept = kernel[7, 32]
module.close()
fresh = cujit.load(data, device)  # of which nothing was asked while it was open
fresh.close()
assert "closed" in repr(fresh) and "plain" in list(fresh) and len(fresh) == len(list(fresh))
with pytest.raises(ClosedError):
    fresh["plain"]
with pytest.raises(ClosedError):
    kept(x, x, 3)
with pytest.raises(ClosedError):
    kernel[8, 32]
for damage in (data[: len(data) // 2], data[:100]):
    with pytest.raises(cujit.errors.CujitError):
        cujit.load(damage, device)
many = [cujit.load(data, device)["plain"][n % 300 + 1, 32] for n in range(700)]
gc.collect()
for launch in many:
    launch(x, x, 3)
print("done")
"""


@needs_native
def test_native_and_python_launches_are_equal(tmp_path: Path) -> None:
    assert printed_beside_an_image(LAUNCHES, tmp_path) == "done\n"


MADE = """
import gc, pickle, sys, weakref
import numpy as np
import cujit
from cujit.devices.launcher.state import EntrySlots, HandleSlots, ImageSlots, KeepsLaunches, LoadedSlots, ModuleSlots

device = cujit.gpu(0)
data = open(sys.argv[1], "rb").read()
x = device.zeros(32, np.float32)
cujit.load(data, device)["plain"][1, 32](x, x, 3)  # by Python: the first kernel of such parameters

def load(image, native):
    kept, device.__dict__["plain_cubins"] = device.plain_cubins, device.plain_cubins if native else None
    module = cujit.load(image, device)
    assert (module._image._calls is not None) == native, native
    kernel = module["plain"]
    assert kernel is module["plain"]
    device.__dict__["plain_cubins"] = kept
    return module, kernel

def parts(module, kernel):
    assert kernel._image is module._image is kernel._entry.image
    rows = [module, module._image, module._image.loaded, module._image.loaded._module, kernel, kernel._entry]
    slots = (ModuleSlots, ImageSlots, LoadedSlots, HandleSlots, KeepsLaunches, EntrySlots)
    own = "_calls _given _handle _word _rows _entry _image _kernels _module _pattern image load_s loaded".split()
    return [
        (type(each), {name: getattr(each, name) for name in kind.__slots__ if name[:2] != "__" and name not in own})
        for each, kind in zip(rows, slots)
    ]

for image in (data, cujit.Artifact.of(data)):
    by_native, by_python = load(image, True), load(image, False)
    assert parts(*by_native) == parts(*by_python)
    for name in ("signature", "name", "artifact", "device", "resources", "lowered_name"):
        assert getattr(by_native[1], name) == getattr(by_python[1], name), name
    for name in ("route", "log", "artifact", "closed"):
        assert getattr(by_native[0], name) == getattr(by_python[0], name), name
    assert list(by_native[0]) == list(by_python[0]) and 0 < by_native[0].load_s < 1
    flag = by_native[0]._image.alive
    assert type(flag.word) is bytes and flag.word == by_python[0]._image.alive.word

# Native code searches images that Python loaded, such as those of other processes.
for image in (data, cujit.Artifact.of(data)):
    came, kernel = pickle.loads(pickle.dumps(load(image, True)))
    assert came._image._calls is None and type(came._image.loaded._module._handle) is int
    assert came["plain"].lowered_name == kernel.lowered_name
    kernel[1, 32](x, x, 3)
    came["none"][1, 32]()

# What is made goes again, and the driver unloads it; a kernel keeps its image.
def once():
    module = cujit.load(data, device)
    kernel = module["plain"]
    gone = weakref.ref(module)
    kernel[1, 32](x, x, 3)
    del module
    assert gone() is None and not kernel._image.loaded is None
    kernel[2, 32](x, x, 3)
    image = weakref.ref(kernel._image)
    del kernel
    return image

assert once()() is None, "a kernel and its launches are freed without the collector"
gc.disable()
counted = (data, device, type(x), cujit.Module, cujit.Kernel, None, True, dict, bytes)
for round in range(3):
    device.backend.context.ring.names.clear()  # of which every kernel adds a row, to a limit
    before = sys.getallocatedblocks(), [sys.getrefcount(each) for each in counted]
    for _ in range(500):
        once()
    device.backend.context.ring.names.clear()
    after = sys.getallocatedblocks(), [sys.getrefcount(each) for each in counted]
grown = [a - b for a, b in zip(after[1], before[1])]
assert max(map(abs, grown)) < 50 and after[0] - before[0] < 50, (grown, after[0] - before[0])

# Names that native code does not know, and cubins that are not all there.
module = cujit.load(data, device)
for name in ("no such", "pla", "\\udc80", "", 3, None, b"plain"):
    try:
        module[name]
    except (cujit.errors.CujitError, LookupError):
        continue
    raise AssertionError(name)
assert module["filled<int>"] is module[module["filled<int>"].lowered_name]
module.close()
for cut in range(0, len(data) - 1024, 97):  # at the end are programs, which no reader here needs
    try:
        cujit.load(data[:cut], device)
    except cujit.errors.CujitError:
        continue
    raise AssertionError(cut)
print("done")
"""


@needs_native
def test_native_and_python_modules_and_kernels_are_equal(tmp_path: Path) -> None:
    assert printed_beside_an_image(MADE, tmp_path) == "done\n"
    found = null_driver.calls(tmp_path)["exit"]
    assert 0 <= found["cuModuleLoadData"] + found["cuModuleLoadDataEx"] - found["cuModuleUnload"] < 20, found


ORDER = """
import ctypes, os, sys
import numpy as np
import cujit

device = cujit.gpu(0)
mark = ctypes.CDLL("libcuda.so.1").null_driver_mark
kernel = cujit.load(open(sys.argv[1], "rb").read(), device)["plain"]
stream, small = device.stream(), np.ones(32, np.float32)
x = device.zeros(32, np.float32)
kernel[1, 32](x, x, 3)
kernel.prepare(1, 32, stream=stream)(x, x, 3)
def step(name, *calls):
    for call in calls:
        call()
    mark(name)
step(b"before")
made = []
step(b"made", lambda: made.append(device.zeros(32, np.float32)), lambda: made.append(device.array(small)))
step(b"default stream", lambda: kernel[1, 32](*made, 3), lambda: kernel[2, 32](*made, 3))
launch = kernel.prepare(1, 32, stream=stream)
step(b"another stream", lambda: launch(*made, 3), lambda: launch(*made, 3))
for name, use in {
    "address": lambda x: x.address,
    "interface": lambda x: x.__cuda_array_interface__,
    "dlpack": lambda x: x.__dlpack__(stream=-1),
    "view": lambda x: x[1:].address,
    "copy in a stream": lambda x: x.copy_to(np.empty(32, np.float32), stream=stream),
    "python": lambda x: kernel.prepare(1, 32, shared_bytes=8, stream=stream)(x, x, 3),
    "packed": lambda x: launch.packed(bytes(20)),
}.items():
    x = device.zeros(32, np.float32)
    step(b"making")
    use(x)
    step(name.encode())
    use(x)
    step(b"again")
    assert device.backend.context.ring.unsettled.issued == device.backend.context.ring.unsettled.settled, name
"""


@needs_native
def test_other_stream_waits_for_new_memory_but_default_does_not(tmp_path: Path) -> None:
    printed_beside_an_image(ORDER, tmp_path)
    waits = {mark: found["cuStreamSynchronize"] for mark, found in null_driver.calls(tmp_path).items()}
    assert [waits[step] for step in ("made", "default stream", "another stream")] == [0, 0, 1], (
        "one for all that is new"
    )
    assert [waits[step] for step in ("address", "interface", "dlpack", "view", "python", "packed")] == [1] * 6
    assert waits["copy in a stream"] >= 1
    assert waits["making"] == 0
