"""The parameter structures of graph nodes. Source: ``cuda.h`` of CUDA 13.5, names and layouts.

A later version of a structure has additional words at its end. An older version is therefore read and written as the
first bytes of the latest version.
"""

from __future__ import annotations

import ctypes

from cujit.devices.cpu.native.shared import Fields


class KernelParams(ctypes.Structure):
    """``CUDA_KERNEL_NODE_PARAMS_v3``: ``values`` points at one pointer for each parameter."""

    _fields_ = Fields(
        "u64 function; u32 grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes; u64 values, extra, kernel, "
        "context"
    )


class CopyParams(ctypes.Structure):
    """``CUDA_MEMCPY3D``."""

    _fields_ = Fields(
        "u64 src_x, src_y, src_z, src_lod; u32 src_type; u64 src_host, src_device, src_array, src_reserved, src_pitch, "
        "src_height, dst_x, dst_y, dst_z, dst_lod; u32 dst_type; u64 dst_host, dst_device, dst_array, dst_reserved, "
        "dst_pitch, dst_height, width, height, depth"
    )


class SetParams(ctypes.Structure):
    """``CUDA_MEMSET_NODE_PARAMS_v2``."""

    _fields_ = Fields("u64 dst, pitch; u32 value, element; u64 width, height, context")


class HostParams(ctypes.Structure):
    """``CUDA_HOST_NODE_PARAMS_v2``."""

    _fields_ = Fields("u64 function, data; u32 sync; u64 context")


class AllocParams(ctypes.Structure):
    """``CUDA_MEM_ALLOC_NODE_PARAMS_v2``: where, in words of ``CUmemPoolProps``, how many bytes, and the address."""

    _fields_ = Fields("u64 properties[11], access, access_count, size, address")


class ConditionalParams(ctypes.Structure):
    """``CUDA_CONDITIONAL_NODE_PARAMS``. ``bodies`` points to the handles of ``size`` graphs, which the
    driver provides.
    """

    _fields_ = Fields("u64 handle; u32 type, size; u64 bodies, context")


class BatchParams(ctypes.Structure):
    """``CUDA_BATCH_MEM_OP_NODE_PARAMS_v2``."""

    _fields_ = Fields("u64 context; u32 count; u64 operations; u32 flags")


class MemoryOperation(ctypes.Structure):
    """``CUstreamBatchMemOpParams`` of waits and writes; of an atomic one ``address`` has two words of 32 bits."""

    _fields_ = Fields("u32 operation, first; u64 address, value; u32 flags; u64 alias, unused")


class NodeParams(ctypes.Structure):
    """``CUgraphNodeParams``: the type, and the parameters of a node of that type, in ``body``."""

    _fields_ = Fields("u32 type, reserved[3]; u64 body[29], last")
