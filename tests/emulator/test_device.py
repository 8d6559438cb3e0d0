"""What the emulated device says of itself."""

from __future__ import annotations

import json
import re
from pathlib import Path

from cuda.bindings import driver

from cujit.emulator import device
from cujit.emulator.settings import EmulatorSettings
from emulator.programs import python

ASKS = """
from cuda.bindings import driver as d

def ok(answer):
    assert not answer[0], answer
    return answer[1] if len(answer) == 2 else answer[1:]

def refused(answer):
    assert answer[0], answer
    return answer[0].name.removeprefix("CUDA_ERROR_")

assert refused(d.cuDeviceGet(0)) == "NOT_INITIALIZED"
ok(d.cuInit(0))
device = ok(d.cuDeviceGet(0))
number = lambda name: getattr(d.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
attribute = lambda name: ok(d.cuDeviceGetAttribute(number(name), device))
"""


def test_device_has_its_own_name_and_uuid() -> None:
    python(
        ASKS
        + """
name = ok(d.cuDeviceGetName(100, device)).rstrip(b"\\0").decode()
assert name.startswith("cujit CPU device (") and "NVIDIA" not in name
assert ok(d.cuDeviceGetName(6, device)) == b"cujit\\0"
assert refused(d.cuDeviceGet(1)) == refused(d.cuDeviceGetName(10, 1)) == "INVALID_DEVICE"
assert len(set(ok(d.cuDeviceGetUuid(device)).bytes)) > 4
bus = ok(d.cuDeviceGetPCIBusId(13, device)).rstrip(b"\\0")
assert int(ok(d.cuDeviceGetByPCIBusId(bus))) == 0
assert refused(d.cuDeviceGetPCIBusId(12, device)) == refused(d.cuDeviceGetByPCIBusId(b"nowhere")) == "INVALID_VALUE"
assert refused(d.cuDeviceGetByPCIBusId(b"0000:12:00.0")) == "INVALID_DEVICE"
assert refused(d.cuDeviceGetLuid(device)) == "NOT_SUPPORTED"
import os
total = ok(d.cuDeviceTotalMem(device))
assert 1 << 28 < total <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
"""
    )


def test_every_attribute_has_a_value_and_denies_unsupported() -> None:
    python(
        ASKS
        + """
for each in d.CUdevice_attribute:
    if "ATTRIBUTE_MAX" != each.name[-13:]:
        ok(d.cuDeviceGetAttribute(each, device))
assert refused(d.cuDeviceGetAttribute(d.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX, device)) == "INVALID_VALUE"
assert refused(d.cuDeviceGetAttribute(d.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_WARP_SIZE, 1)) == "INVALID_DEVICE"
assert attribute("MAX_THREADS_PER_BLOCK") == 1024 and attribute("WARP_SIZE") == 32
assert attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN") == 227 << 10
assert attribute("MULTIPROCESSOR_COUNT") == 3
for held in ("MEMORY_POOLS_SUPPORTED", "COOPERATIVE_LAUNCH", "MANAGED_MEMORY", "UNIFIED_ADDRESSING", "CLUSTER_LAUNCH",
             "VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED", "HOST_MEMORY_POOLS_SUPPORTED"):
    assert attribute(held) == 1, held
for denied in ("IPC_EVENT_SUPPORTED", "MULTICAST_SUPPORTED",
               "MEMPOOL_SUPPORTED_HANDLE_TYPES", "READ_ONLY_HOST_REGISTER_SUPPORTED", "GPU_DIRECT_RDMA_SUPPORTED"):
    assert attribute(denied) == 0, denied
properties = ok(d.cuDeviceGetProperties(device))
assert (properties.maxThreadsPerBlock, properties.maxThreadsDim, properties.SIMDWidth) == (1024, [1024, 1024, 64], 32)
assert properties.textureAlign == attribute("TEXTURE_ALIGNMENT")
assert ok(d.cuDeviceComputeCapability(device)) == (9, 0)
assert ok(d.cuDeviceCanAccessPeer(device, device)) == 0
for pair in ((device, 1), (1, device), (device, -1)):
    assert refused(d.cuDeviceCanAccessPeer(*pair)) == "INVALID_DEVICE", pair
rank = d.CUdevice_P2PAttribute.CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK
assert refused(d.cuDeviceGetP2PAttribute(rank, device, device)) == "INVALID_DEVICE"
affinity = d.CUexecAffinityType.CU_EXEC_AFFINITY_TYPE_SM_COUNT
assert ok(d.cuDeviceGetExecAffinitySupport(affinity, device)) == 0
assert refused(d.cuDeviceGetExecAffinitySupport(d.CUexecAffinityType.CU_EXEC_AFFINITY_TYPE_MAX, device)) == (
    "INVALID_VALUE")
form = d.CUarray_format.CU_AD_FORMAT_FLOAT
assert [ok(d.cuDeviceGetTexture1DLinearMaxWidth(form, n, device)) for n in (1, 2, 4)] == [1 << 28] * 3
for n in (0, 3, 5):
    assert refused(d.cuDeviceGetTexture1DLinearMaxWidth(form, n, device)) == "INVALID_VALUE", n
used = d.CUgraphMem_attribute.CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT
assert int(ok(d.cuDeviceGetGraphMemAttribute(device, used))) == 0
""",
        EmulatorSettings(threads=3),
    )


# Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", of 9.0: sizes of what has one,
# two and three axes, then layers.
_OF_TEXTURES = {
    "TEXTURE1D": "131072", "TEXTURE1D_LINEAR": "268435456", "TEXTURE1D_LAYERED": "32768 x 2048",
    "TEXTURE1D_MIPMAPPED": "32768", "TEXTURE2D": "131072 65536", "TEXTURE2D_LINEAR": "131072 65000",
    "TEXTURE2D_GATHER": "32768 32768", "TEXTURE2D_LAYERED": "32768 32768 x 2048", "TEXTURE2D_MIPMAPPED": "32768 32768",
    "TEXTURE3D": "16384 16384 16384", "TEXTURECUBEMAP": "32768", "TEXTURECUBEMAP_LAYERED": "32768 x 2046",
    "SURFACE1D": "32768", "SURFACE1D_LAYERED": "32768 x 2048", "SURFACE2D": "131072 65536",
    "SURFACE2D_LAYERED": "32768 32768 x 2048", "SURFACE3D": "16384 16384 16384", "SURFACECUBEMAP": "32768",
    "SURFACECUBEMAP_LAYERED": "32768 x 2046",
}  # fmt: skip
# Source: the same table; of clocks, widths, alignments, pitches and alternates, what an H100 answers.
_OF_THE_REST = {
    "MAX_THREADS_PER_BLOCK": 1024, "MAX_BLOCK_DIM_X": 1024, "MAX_BLOCK_DIM_Y": 1024, "MAX_BLOCK_DIM_Z": 64,
    "MAX_GRID_DIM_X": 2147483647, "MAX_GRID_DIM_Y": 65535, "MAX_GRID_DIM_Z": 65535,
    "MAX_SHARED_MEMORY_PER_BLOCK": 49152, "TOTAL_CONSTANT_MEMORY": 65536, "WARP_SIZE": 32, "MAX_PITCH": 2147483647,
    "MAX_REGISTERS_PER_BLOCK": 65536, "CLOCK_RATE": 1980000, "TEXTURE_ALIGNMENT": 512, "MEMORY_CLOCK_RATE": 2619000,
    "GLOBAL_MEMORY_BUS_WIDTH": 5120, "MAX_THREADS_PER_MULTIPROCESSOR": 2048, "ASYNC_ENGINE_COUNT": 3,
    "TEXTURE_PITCH_ALIGNMENT": 32, "SURFACE_ALIGNMENT": 512, "COMPUTE_CAPABILITY_MAJOR": 9,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 233472, "MAX_REGISTERS_PER_MULTIPROCESSOR": 65536,
    "SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO": 2, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448,
    "MAX_BLOCKS_PER_MULTIPROCESSOR": 32, "RESERVED_SHARED_MEMORY_PER_BLOCK": 1024, "MEM_SYNC_DOMAIN_COUNT": 4,
    "MULTIPROCESSOR_COUNT": 3, "MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE": 8192, "MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE": 8192,
    "MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE": 32768, "MAXIMUM_TEXTURE2D_LINEAR_PITCH": 2097120,
}  # fmt: skip


def test_sizes_match_the_compute_capability() -> None:
    asked = "import json\nnames = [each for each in d.CUdevice_attribute if 'ATTRIBUTE_MAX' != each.name[-13:]]\n"
    asked += "print(json.dumps({each.name[20:]: ok(d.cuDeviceGetAttribute(each, device)) for each in names}))"
    said = json.loads(python(ASKS + asked, EmulatorSettings(threads=3)))
    sizes = dict(_OF_THE_REST)
    for kind, text in _OF_TEXTURES.items():
        axes, _, layers = text.partition(" x ")
        sizes |= {
            f"MAXIMUM_{kind}_{axis}": int(n)
            for axis, n in zip(("WIDTH", "HEIGHT", "DEPTH"), axes.split(), strict=False)
        }
        sizes |= {f"MAXIMUM_{kind}_LAYERS": int(layers)} if layers else {}
    assert {name: number for name, number in said.items() if number > 1 and name != "L2_CACHE_SIZE"} == sizes


def test_call_without_an_output_pointer_is_refused() -> None:
    python(
        ASKS
        + """
import ctypes
lib = ctypes.CDLL("libcuda.so.1")
out, more = ctypes.create_string_buffer(64), ctypes.create_string_buffer(64)
for name, *rest in (
    ("cuDeviceGetCount",), ("cuDeviceGet", 0), ("cuDeviceGetName", 9, 0), ("cuDeviceGetUuid_v2", 0),
    ("cuDeviceGetPCIBusId", 13, 0), ("cuDeviceGetByPCIBusId", b"0000:00:00.0"), ("cuDeviceTotalMem_v2", 0),
    ("cuDeviceTotalMem", 0), ("cuDeviceGetAttribute", 1, 0), ("cuDeviceGetProperties", 0),
    ("cuDeviceComputeCapability", out, 0), ("cuDeviceCanAccessPeer", 0, 0), ("cuDeviceGetP2PAttribute", 1, 0, 0),
    ("cuDeviceGetExecAffinitySupport", 0, 0), ("cuDeviceGetTexture1DLinearMaxWidth", 32, 1, 0),
    ("cuDeviceGetHostAtomicCapabilities", out, 1, 0), ("cuDeviceGetP2PAtomicCapabilities", out, 1, 0, 0),
):
    assert lib[name](None, *rest) == 1, name
assert lib.cuDeviceComputeCapability(out, None, 0) == 1
assert [lib.cuDeviceGetP2PAttribute(out, n, 0, 0) for n in range(7)] == [1, 101, 101, 101, 101, 101, 1]
assert [lib.cuDeviceGetHostAtomicCapabilities(out, *rest) for rest in ((None, 1, 0), (more, 0, 0), (more, 1, 1))] == [
    1, 1, 101]
out.raw = b"x" * 64
assert lib.cuDeviceGetHostAtomicCapabilities(out, more, 2, 0) == 0 and out.raw[:9] == bytes(8) + b"x"
for size, name, *rest in (
    (4, "cuDeviceGetCount"), (4, "cuDeviceGet", 0), (7, "cuDeviceGetName", 7, 0), (16, "cuDeviceGetUuid_v2", 0),
    (13, "cuDeviceGetPCIBusId", 64, 0), (4, "cuDeviceGetByPCIBusId", b"0000:00:00.0"), (8, "cuDeviceTotalMem_v2", 0),
    (4, "cuDeviceTotalMem", 0), (4, "cuDeviceGetAttribute", 1, 0), (56, "cuDeviceGetProperties", 0),
    (4, "cuDeviceComputeCapability", more, 0), (4, "cuDeviceCanAccessPeer", 0, 0),
    (4, "cuDeviceGetExecAffinitySupport", 0, 0), (8, "cuDeviceGetTexture1DLinearMaxWidth", 32, 1, 0),
):
    kept = []
    for filling in (b"x", b"y"):  # What is written is the same whatever was there.
        out.raw = filling * 64
        assert lib[name](out, *rest) == 0 and out.raw[size:] == filling * (64 - size), name
        kept.append(out.raw[:size])
    assert kept[0] == kept[1], name
assert [lib.cuFlushGPUDirectRDMAWrites(*of) for of in ((0, 100), (0, 200), (1, 100), (0, 150))] == [0, 0, 1, 1]
"""
    )


def test_other_capability_has_other_sizes_and_uuid() -> None:
    print_it = "print(ok(d.cuDeviceGetUuid(device)).bytes.hex(), attribute('MAX_SHARED_MEMORY_PER_BLOCK_OPTIN'), "
    print_it += "attribute('COMPUTE_CAPABILITY_MAJOR'), attribute('CLUSTER_LAUNCH'))"
    new, old = (python(ASKS + print_it, EmulatorSettings(cc=cc)).split() for cc in ((9, 0), (8, 6)))
    assert new[0] != old[0]
    assert (new[1:], old[1:]) == ([str(227 << 10), "9", "1"], [str(99 << 10), "8", "0"])


def test_attributes_have_the_names_and_numbers_of_bindings() -> None:
    known = {each.name.removeprefix("CU_DEVICE_ATTRIBUTE_"): int(each) for each in driver.CUdevice_attribute}
    names = Path(device.__file__).with_name("attributes.txt").read_text().splitlines()
    assert [known[name] for name in names] == list(range(1, known["MAX"]))
    said = re.findall(r'"([A-Z][A-Z0-9_]+)": ', Path(device.__file__).read_text())
    assert len(said) > 80
    assert set(said) <= set(names)


SHOWN = {"0": 0, "0,1": 0, "0,0": 0, "0,-1": 0, " 00 ": 0, "": 100, " ": 100, ",0": 100, "-1": 100, "-1,0": 100,
         "1": 100, "1,0": 100, "none": 100, "0x": 100, "GPU-": 100}  # fmt: skip


def test_device_is_hidden_as_a_gpu_is() -> None:
    code = """
import os, uuid
from cuda.bindings import driver as d
from cujit.emulator.device import _uuid
own = f"GPU-{uuid.UUID(bytes=_uuid())}"
other = f"GPU-{uuid.UUID(int=~int.from_bytes(_uuid()) & (1 << 128) - 1)}"
named = {own: 0, own[:5]: 0, own[:12]: 0, own.upper(): 0, f"{own},{other}": 0, f" {own[:14]} ,1": 0, f"{own}0": 100,
         other: 100, f"{other},0": 100, other[:8]: 100, f"MIG-{own[4:]}": 100, f"MIG-{own}/1/0": 100}
d.cuDriverGetVersion()
for said, answer in ({SHOWN!r} | named).items():
    pid = os.fork()
    if not pid:
        os.environ["CUDA_VISIBLE_DEVICES"] = said
        os._exit(int(d.cuInit(0)[0]))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == answer, said
"""
    python(code.replace("{SHOWN!r}", repr(SHOWN)))
