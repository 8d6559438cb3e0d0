"""What the emulated device says of itself."""

from __future__ import annotations

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


def test_the_device_has_a_name_and_an_identity_of_its_own() -> None:
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


def test_every_attribute_has_a_value_and_denies_what_is_refused() -> None:
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
used = d.CUgraphMem_attribute.CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT
assert int(ok(d.cuDeviceGetGraphMemAttribute(device, used))) == 0
""",
        EmulatorSettings(threads=3),
    )


def test_another_capability_has_other_sizes_and_another_identity() -> None:
    print_it = "print(ok(d.cuDeviceGetUuid(device)).bytes.hex(), attribute('MAX_SHARED_MEMORY_PER_BLOCK_OPTIN'), "
    print_it += "attribute('COMPUTE_CAPABILITY_MAJOR'), attribute('CLUSTER_LAUNCH'))"
    new, old = (python(ASKS + print_it, EmulatorSettings(cc=cc)).split() for cc in ((9, 0), (8, 6)))
    assert new[0] != old[0]
    assert (new[1:], old[1:]) == ([str(227 << 10), "9", "1"], [str(99 << 10), "8", "0"])


def test_attributes_have_the_names_and_numbers_of_the_bindings() -> None:
    known = {each.name.removeprefix("CU_DEVICE_ATTRIBUTE_"): int(each) for each in driver.CUdevice_attribute}
    names = Path(device.__file__).with_name("attributes.txt").read_text().splitlines()
    assert [known[name] for name in names] == list(range(1, known["MAX"]))
    said = re.findall(r'"([A-Z][A-Z0-9_]+)": ', Path(device.__file__).read_text())
    assert len(said) > 80
    assert set(said) <= set(names)
