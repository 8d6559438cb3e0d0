"""The device: its name, its size, and its attributes.

It has the limits of an sm_90 GPU, and as many SMs as the CPU device has threads. The attributes report unsupported
features as unsupported.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import re
from pathlib import Path

from cujit.arch.multiprocessor import LIMITS
from cujit.emulator.entries import require, started, store_u32, store_u64, text_at
from cujit.emulator.machine import constant, outliving
from cujit.emulator.process import emulation
from cujit.emulator.results import RefusedCall, Result
from cujit.emulator.structures import DeviceFacts
from cujit.workers.package_files import data_path

MAX_PITCH = (1 << 31) - 1

_PCI_BUS_ID = "0000:00:00.0"


def check(device: int) -> None:
    """Refuse a device that there is not."""
    require(device == 0, Result.INVALID_DEVICE)


@functools.cache
def total_bytes() -> int:
    """Count the memory of the device: all that this process may have.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst, "memory.max".
    """
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            total = min(total, int(Path("/sys/fs/cgroup", name).read_text()))
    return total


@functools.cache
def name() -> str:
    """Return the name of the device."""
    return f"cujit CPU device ({emulation().device.product})"


def _uuid() -> bytes:
    return hashlib.sha256(f"{name()} {emulation().settings.cc}".encode()).digest()[:16]


@functools.cache
def attributes() -> dict[int, int]:
    """Return the attributes of the device by number, from 1 on. Attributes of unsupported features are 0.

    Source: CUDA Driver API manual, ``CUdevice_attribute``; the sizes of textures and surfaces are those of "Technical
    Specifications per Compute Capability", and clocks and widths those of an H100.
    """
    device, cc = emulation().device, emulation().settings.cc
    limits = LIMITS[max(number for number in LIMITS if divmod(number, 10) <= cc)]
    block, grid = device.limits.max_block, device.limits.max_grid
    answers = {
        "MAX_THREADS_PER_BLOCK": device.limits.max_threads,
        "MAX_BLOCK_DIM_X": block.x,
        "MAX_BLOCK_DIM_Y": block.y,
        "MAX_BLOCK_DIM_Z": block.z,
        "MAX_GRID_DIM_X": grid.x,
        "MAX_GRID_DIM_Y": grid.y,
        "MAX_GRID_DIM_Z": grid.z,
        "MAX_SHARED_MEMORY_PER_BLOCK": device.limits.shared_bytes,
        "TOTAL_CONSTANT_MEMORY": 64 << 10,
        "WARP_SIZE": 32,
        "MAX_PITCH": MAX_PITCH,
        "MAX_REGISTERS_PER_BLOCK": limits.block_registers,
        "CLOCK_RATE": 1_980_000,
        "TEXTURE_ALIGNMENT": 512,
        "GPU_OVERLAP": 1,
        "MULTIPROCESSOR_COUNT": device.limits.processors,
        "CAN_MAP_HOST_MEMORY": 1,
        "CONCURRENT_KERNELS": 1,
        "MEMORY_CLOCK_RATE": 2_619_000,
        "GLOBAL_MEMORY_BUS_WIDTH": 5120,
        "L2_CACHE_SIZE": device.cache_bytes,
        "MAX_THREADS_PER_MULTIPROCESSOR": limits.threads,
        "ASYNC_ENGINE_COUNT": 3,
        "UNIFIED_ADDRESSING": 1,
        "TEXTURE_PITCH_ALIGNMENT": 32,
        "COMPUTE_CAPABILITY_MAJOR": cc[0],
        "COMPUTE_CAPABILITY_MINOR": cc[1],
        "STREAM_PRIORITIES_SUPPORTED": 1,
        "GLOBAL_L1_CACHE_SUPPORTED": 1,
        "LOCAL_L1_CACHE_SUPPORTED": 1,
        "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": limits.shared_bytes,
        "MAX_REGISTERS_PER_MULTIPROCESSOR": limits.registers,
        "MANAGED_MEMORY": 1,
        "SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO": 2,
        "CONCURRENT_MANAGED_ACCESS": 1,
        "COMPUTE_PREEMPTION_SUPPORTED": 1,
        "CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM": 1,
        "COOPERATIVE_LAUNCH": 1,
        "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": limits.block_shared_bytes,
        "HOST_REGISTER_SUPPORTED": 1,
        "MAX_BLOCKS_PER_MULTIPROCESSOR": limits.blocks,
        "RESERVED_SHARED_MEMORY_PER_BLOCK": 1 << 10 if cc >= (8, 0) else 0,
        "VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED": 1,
        "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED": 1,
        "MEMORY_POOLS_SUPPORTED": 1,
        "HOST_MEMORY_POOLS_SUPPORTED": 1,
        "HOST_NUMA_MEMORY_POOLS_SUPPORTED": 1,
        "CLUSTER_LAUNCH": cc >= (9, 0),
        "MEM_SYNC_DOMAIN_COUNT": 4 if cc >= (9, 0) else 1,
        "TENSOR_MAP_ACCESS_SUPPORTED": cc >= (9, 0),
    }
    values = {**answers, **TEXTURE_LIMITS}
    return {number: int(values.pop(name, 0)) for number, name in enumerate(_names(), 1)}


@functools.cache
def _names() -> list[str]:
    """List the names of attributes by number. Source: ``cuda.h`` of CUDA 13.5, ``CUdevice_attribute``."""
    return Path(data_path("emulator", "attributes.txt")).read_text().splitlines()


TEXTURE_LIMITS = {
    "MAXIMUM_TEXTURE1D_WIDTH": 131072, "MAXIMUM_TEXTURE2D_WIDTH": 131072, "MAXIMUM_TEXTURE2D_HEIGHT": 65536,
    "MAXIMUM_TEXTURE3D_WIDTH": 16384, "MAXIMUM_TEXTURE3D_HEIGHT": 16384, "MAXIMUM_TEXTURE3D_DEPTH": 16384,
    "MAXIMUM_TEXTURE2D_LAYERED_WIDTH": 32768, "MAXIMUM_TEXTURE2D_LAYERED_HEIGHT": 32768,
    "MAXIMUM_TEXTURE2D_LAYERED_LAYERS": 2048, "SURFACE_ALIGNMENT": 512, "MAXIMUM_TEXTURE1D_LAYERED_WIDTH": 32768,
    "MAXIMUM_TEXTURE1D_LAYERED_LAYERS": 2048, "CAN_TEX2D_GATHER": 1, "MAXIMUM_TEXTURE2D_GATHER_WIDTH": 32768,
    "MAXIMUM_TEXTURE2D_GATHER_HEIGHT": 32768, "MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE": 8192,
    "MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE": 8192, "MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE": 32768,
    "MAXIMUM_TEXTURECUBEMAP_WIDTH": 32768, "MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH": 32768,
    "MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS": 2046, "MAXIMUM_SURFACE1D_WIDTH": 32768,
    "MAXIMUM_SURFACE2D_WIDTH": 131072, "MAXIMUM_SURFACE2D_HEIGHT": 65536, "MAXIMUM_SURFACE3D_WIDTH": 16384,
    "MAXIMUM_SURFACE3D_HEIGHT": 16384, "MAXIMUM_SURFACE3D_DEPTH": 16384, "MAXIMUM_SURFACE1D_LAYERED_WIDTH": 32768,
    "MAXIMUM_SURFACE1D_LAYERED_LAYERS": 2048, "MAXIMUM_SURFACE2D_LAYERED_WIDTH": 32768,
    "MAXIMUM_SURFACE2D_LAYERED_HEIGHT": 32768, "MAXIMUM_SURFACE2D_LAYERED_LAYERS": 2048,
    "MAXIMUM_SURFACECUBEMAP_WIDTH": 32768, "MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH": 32768,
    "MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS": 2046, "MAXIMUM_TEXTURE1D_LINEAR_WIDTH": 1 << 28,
    "MAXIMUM_TEXTURE2D_LINEAR_WIDTH": 131072, "MAXIMUM_TEXTURE2D_LINEAR_HEIGHT": 65000,
    "MAXIMUM_TEXTURE2D_LINEAR_PITCH": 2097120, "MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH": 32768,
    "MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT": 32768, "MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH": 32768,
}  # fmt: skip
"""Attributes of textures and surfaces, whose names say them without ``CU_DEVICE_ATTRIBUTE``."""

TEXEL_DTYPES = {
    0x01: "uint8", 0x02: "uint16", 0x03: "uint32", 0x08: "int8", 0x09: "int16", 0x0A: "int32", 0x10: "float16",
    0x20: "float32",
}  # fmt: skip
"""The formats of channels. Source: CUDA Driver API manual, ``CUarray_format``."""


@started("cuDeviceGetPCIBusId", "PII")
def device_get_pci_bus_id(text: int, size: int, device: int) -> None:
    """Write the PCI bus ID of a device."""
    check(device)
    require(size > len(_PCI_BUS_ID))
    _store_text(text, size, _PCI_BUS_ID)


def write_facts(device: DeviceFacts) -> None:
    """Write the values that C code returns about the device."""
    values = attributes()
    numbers = outliving((ctypes.c_int32 * len(values))(*(values[k + 1] for k in range(len(values)))))
    device.attributes, device.count, device.name = ctypes.addressof(numbers), len(values), constant(name())
    device.bytes, (device.major, device.minor) = total_bytes(), emulation().settings.cc
    ctypes.memmove(device.uuid, _uuid(), 16)


def _store_text(at: int, size: int, text: str) -> None:
    require(at and size > 0)
    data = text.encode(errors="replace")[: size - 1] + b"\0"
    ctypes.memmove(at, data, len(data))


@started("cuDeviceGetByPCIBusId", "PP")
def device_get_by_pci_bus_id(device: int, text: int) -> None:
    """Find a device by its PCI bus ID. The domain and the function are optional."""
    require(device)
    parsed = re.fullmatch(r"(?:([0-9a-fA-F]+):)?([0-9a-fA-F]+):([0-9a-fA-F]+)(?:\.([0-9a-fA-F]+))?", text_at(text))
    require(parsed)
    require(not any(int(part or "0", 16) for part in parsed.groups()) if parsed else False, Result.INVALID_DEVICE)
    store_u32(device, 0)


@started("cuDeviceGetLuid", "PPI")
def device_get_luid(luid: int, mask: int, device: int) -> None:
    """Refuse, as on every system but Windows."""
    require(luid and mask)
    check(device)
    raise RefusedCall(Result.NOT_SUPPORTED)


# -- peers, and what this device has not ---------------------------------------------------------------------


@started("cuDeviceCanAccessPeer", "PII")
def device_can_access_peer(can: int, device: int, peer: int) -> None:
    """Report that a device is not its own peer."""
    require(can)
    check(device)
    check(peer)
    store_u32(can, 0)


@started("cuDeviceGetP2PAttribute", "PIII")
def device_get_p2p_attribute(value: int, attribute: int, device: int, peer: int) -> None:
    """Refuse the call, because there is only one device."""
    require(value and 1 <= attribute <= 5)
    check(device)
    check(peer)
    raise RefusedCall(Result.INVALID_DEVICE)


@started("cuDeviceGetExecAffinitySupport", "PII")
def device_get_exec_affinity_support(supported: int, kind: int, device: int) -> None:
    """Report that no part of a device can be reserved."""
    require(supported and kind == 0)
    check(device)
    store_u32(supported, 0)


@started("cuDeviceGetTexture1DLinearMaxWidth", "PIUI")
def device_get_texture_1d_linear_max_width(width: int, format_: int, channels: int, device: int) -> None:
    """Write how many elements a texture of linear memory may have."""
    require(width and format_ in TEXEL_DTYPES and channels in (1, 2, 4))
    check(device)
    store_u64(width, TEXTURE_LIMITS["MAXIMUM_TEXTURE1D_LINEAR_WIDTH"])


@started("cuDeviceGetHostAtomicCapabilities", "PPUI")
def device_get_host_atomic_capabilities(masks: int, operations: int, count: int, device: int) -> None:
    """Report no atomic operations over a link to the host, because there is no link."""
    require(masks and operations and count)
    check(device)
    ctypes.memset(masks, 0, 4 * count)


@started("cuDeviceGetP2PAtomicCapabilities", "PPUII")
def device_get_p2p_atomic_capabilities(masks: int, operations: int, count: int, one: int, other: int) -> None:
    """Report no atomic operations between devices, because there is only one device."""
    require(masks and operations and count)
    check(one)
    require(other != one, Result.INVALID_DEVICE)
    check(other)


@started("cuFlushGPUDirectRDMAWrites", "UU")
def flush_gpu_direct_rdma_writes(target: int, scope: int) -> None:
    """Wait for remote writes to the device, which are always complete."""
    require(target == _THE_CONTEXT and scope in (_TO_OWNER, _TO_ALL))


_THE_CONTEXT, _TO_OWNER, _TO_ALL = 0, 100, 200
"""Source: CUDA Driver API manual, ``CUflushGPUDirectRDMAWritesTarget`` and ``CUflushGPUDirectRDMAWritesScope``."""
