"""Textures of a GPU: CUDA arrays, texture objects and surface objects of the driver."""

from __future__ import annotations

import functools
import weakref
from typing import Any

from cujit.devices.arrays.array import DeviceArray
from cujit.devices.cuda.gpu import Gpu
from cujit.devices.cuda.memory import address_of
from cujit.devices.textures.texture import Extent, Sampling, TexelFormat, Texels, TextureHandle, TextureUnit
from cujit.forks import cached_property

_FORMATS = {
    "uint8": "UNSIGNED_INT8", "uint16": "UNSIGNED_INT16", "uint32": "UNSIGNED_INT32",
    "int8": "SIGNED_INT8", "int16": "SIGNED_INT16", "int32": "SIGNED_INT32", "float16": "HALF", "float32": "FLOAT",
}  # fmt: skip

_GATHER_LIMIT = 32768
"""Width and height of the arrays that ``tex2Dgather`` takes. Source: CUDA C++ Programming Guide, "Technical
Specifications per Compute Capability"."""

_DEFAULT_STREAM = 0


class _Array:
    """A CUDA array, freed when this object is deleted."""

    def __init__(self, context: Gpu, handle: Any) -> None:
        self.handle = handle
        weakref.finalize(self, context.release_unused, "cuArrayDestroy", handle).atexit = False


class CudaTextures(TextureUnit):
    """Textures in a GPU's primary context."""

    def __init__(self, context: Gpu) -> None:
        self._context = context

    @cached_property
    def alignment(self) -> int:
        """The required alignment in bytes of an array that is read in place."""
        return self._context.attribute("TEXTURE_ALIGNMENT")

    def allocate(self, extent: Extent, format: TexelFormat) -> _Array:
        """Make a CUDA array, for textures and surfaces.

        Source: CUDA Driver API manual, ``cuArray3DCreate``.

        Raises:
            DriverError: the GPU has no such memory left, or no array of this size.
        """
        bindings = self._context.driver.bindings
        description = bindings.CUDA_ARRAY3D_DESCRIPTOR()
        description.Width, description.Height = extent.width, extent.height
        description.Depth = max(extent.depth, extent.layers)
        description.Format, description.NumChannels = self._format(format), format.channels
        description.Flags = self._flags(extent)
        return _Array(self._context, self._context.call("cuArray3DCreate", description))

    def _flags(self, extent: Extent) -> int:
        bindings = self._context.driver.bindings
        flags = int(bindings.CUDA_ARRAY3D_SURFACE_LDST)
        if extent.cube:
            flags |= bindings.CUDA_ARRAY3D_CUBEMAP
        if extent.layers and (not extent.cube or extent.layers > 6):
            flags |= bindings.CUDA_ARRAY3D_LAYERED
        is_plane = extent.dimensions == 2 and not extent.layers
        if is_plane and max(extent.width, extent.height) <= _GATHER_LIMIT:
            flags |= bindings.CUDA_ARRAY3D_TEXTURE_GATHER
        return flags

    def upload(self, texels: Texels, data: memoryview) -> None:
        """Copy host bytes into texels, and return when the copy is done."""
        bindings = self._context.driver.bindings
        copy = self._copy(texels)
        copy.srcMemoryType = bindings.CUmemorytype.CU_MEMORYTYPE_HOST
        copy.srcHost, copy.srcPitch, copy.srcHeight = address_of(data), copy.WidthInBytes, copy.Height
        copy.dstMemoryType = bindings.CUmemorytype.CU_MEMORYTYPE_ARRAY
        copy.dstArray = _array(texels)
        self._context.call("cuMemcpy3D", copy)
        # The last piece of a copy from pageable memory may be under way still: see ``copies.upload``.
        self._context.call("cuStreamSynchronize", _DEFAULT_STREAM)

    def download(self, data: memoryview, texels: Texels) -> None:
        """Copy texels to the host, after all earlier work on the default stream."""
        bindings = self._context.driver.bindings
        copy = self._copy(texels)
        copy.srcMemoryType = bindings.CUmemorytype.CU_MEMORYTYPE_ARRAY
        copy.srcArray = _array(texels)
        copy.dstMemoryType = bindings.CUmemorytype.CU_MEMORYTYPE_HOST
        copy.dstHost, copy.dstPitch, copy.dstHeight = address_of(data), copy.WidthInBytes, copy.Height
        self._context.call("cuMemcpy3D", copy)

    def _copy(self, texels: Texels) -> Any:
        copy = self._context.driver.bindings.CUDA_MEMCPY3D()
        copy.WidthInBytes = texels.extent.width * texels.format.texel_bytes
        copy.Height, copy.Depth = texels.extent.rows, texels.extent.slices
        return copy

    def texture(
        self, source: Texels | DeviceArray, extent: Extent, format: TexelFormat, sampling: Sampling
    ) -> TextureHandle:
        """Make a texture object.

        Source: CUDA Driver API manual, ``cuTexObjectCreate``.

        Raises:
            DriverError: the driver reported an error.
        """
        if isinstance(source, Texels):
            resource = self._of_array(source)
        elif extent.height:
            resource = self._of_plane(source, extent, format)
        else:
            resource = self._of_line(source, format)
        object_ = self._context.call("cuTexObjectCreate", resource, self._description(sampling, format), None)
        return self._handle("cuTexObjectDestroy", object_, source)

    def surface(self, texels: Texels) -> TextureHandle:
        """Make a surface object.

        Source: CUDA Driver API manual, ``cuSurfObjectCreate``.

        Raises:
            DriverError: the driver reported an error.
        """
        object_ = self._context.call("cuSurfObjectCreate", self._of_array(texels))
        return self._handle("cuSurfObjectDestroy", object_, texels)

    def _handle(self, destroy: str, object_: Any, source: Texels | DeviceArray) -> TextureHandle:
        def release(_source: Texels | DeviceArray = source) -> None:
            self._context.release_unused(destroy, object_)

        return TextureHandle(int(object_), release)

    def _of_array(self, texels: Texels) -> Any:
        resource = self._resource("ARRAY")
        resource.res.array.hArray = _array(texels)
        return resource

    def _of_line(self, source: DeviceArray, format: TexelFormat) -> Any:
        resource = self._resource("LINEAR")
        line = resource.res.linear
        line.devPtr, line.sizeInBytes = source.address, source.nbytes
        line.format, line.numChannels = self._format(format), format.channels
        return resource

    def _of_plane(self, source: DeviceArray, extent: Extent, format: TexelFormat) -> Any:
        resource = self._resource("PITCH2D")
        plane = resource.res.pitch2D
        plane.devPtr, plane.format, plane.numChannels = source.address, self._format(format), format.channels
        plane.width, plane.height = extent.width, extent.height
        plane.pitchInBytes = _pitch(extent, format)
        return resource

    def _resource(self, kind: str) -> Any:
        bindings = self._context.driver.bindings
        resource = bindings.CUDA_RESOURCE_DESC()
        resource.resType = getattr(bindings.CUresourcetype, f"CU_RESOURCE_TYPE_{kind}")
        return resource

    def _format(self, format: TexelFormat) -> Any:
        return getattr(self._context.driver.bindings.CUarray_format, f"CU_AD_FORMAT_{_FORMATS[format.dtype.name]}")

    def _description(self, sampling: Sampling, format: TexelFormat) -> Any:
        bindings = self._context.driver.bindings
        made = bindings.CUDA_TEXTURE_DESC()
        made.addressMode = [bindings.CUaddress_mode(mode.value) for mode in sampling.address]
        made.filterMode = bindings.CUfilter_mode(sampling.filter.value)
        made.borderColor = list(sampling.border)
        flags = [
            (not sampling.as_float and not format.is_float, bindings.CU_TRSF_READ_AS_INTEGER),
            (sampling.normalized, bindings.CU_TRSF_NORMALIZED_COORDINATES),
            (sampling.srgb, bindings.CU_TRSF_SRGB),
        ]
        made.flags = functools.reduce(lambda all_, flag: all_ | flag[1] if flag[0] else all_, flags, 0)
        return made


def _array(texels: Texels) -> Any:
    assert isinstance(texels.memory, _Array)
    return texels.memory.handle


def _pitch(extent: Extent, format: TexelFormat) -> int:
    """Bytes from a row to the next; of a single row, any multiple of 32 that holds it will do."""
    row = extent.width * format.texel_bytes
    return row if extent.height > 1 else -(-row // 32) * 32
