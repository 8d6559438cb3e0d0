"""The driver's linker: links PTX and LTO-IR from any kind of image into a container with one PTX text."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from cujit.arch import Arch
from cujit.artifact import Artifact, ImageKind
from cujit.emulator import images
from cujit.emulator.entries import in_context, new_cell, require, started, store_u64, text_at
from cujit.emulator.images import JitLog
from cujit.emulator.machine import cell_free, cell_is
from cujit.emulator.process import emulation
from cujit.emulator.results import RefusedCall, Result
from cujit.emulator.structures import CellKind
from cujit.errors import CujitError
from cujit.formats.container import read_container

# Source: CUDA Driver API manual, ``CUjitInputType``.
_KINDS = {
    0: ImageKind.CUBIN,
    1: ImageKind.PTX,
    2: ImageKind.FATBIN,
    3: ImageKind.OBJECT,
    4: ImageKind.LIBRARY,
    5: ImageKind.LTOIR,
}


class _LinkState:
    """A link in progress: its log, its inputs, and the image after the link is complete."""

    def __init__(self, log: JitLog) -> None:
        self.log = log
        self.inputs: list[Artifact] = []
        self.made: ctypes.Array[ctypes.c_char] | None = None


_LINKS: dict[int, _LinkState] = {}


def _link_of(handle: int) -> _LinkState:
    require(cell_is(handle, CellKind.LINK) and handle in _LINKS, Result.INVALID_HANDLE)
    return _LINKS[handle]


@in_context("cuLinkCreate cuLinkCreate_v2", "UPPP")
def link_create(context: int, count: int, options: int, values: int, out: int) -> None:
    """Begin a link. The buffers of its options are written to until it is destroyed."""
    require(out)
    log = JitLog(count, options, values)
    handle = new_cell(CellKind.LINK, context)
    _LINKS[handle] = _LinkState(log)
    store_u64(out, handle)


def _add(handle: int, kind: int, read: Callable[[], bytes], name: str) -> None:
    link = _link_of(handle)
    require(kind in _KINDS)
    require(
        link.made is None,
        Result.INVALID_VALUE,
        "the link is already complete",
        hint="begin another link with `cuLinkCreate`",
    )
    try:
        link.inputs.append(_input(_KINDS[kind], read(), name))
    except (RefusedCall, CujitError) as e:
        refused = e if isinstance(e, RefusedCall) else images.refused_by(e)
        link.log.write(error=refused.words)
        raise refused from e


def _input(kind: ImageKind, data: bytes, name: str) -> Artifact:
    """Return an input by its real kind. Containers are accepted as cubins and objects."""
    held = read_container(data)
    if held is not None or kind is ImageKind.PTX:
        return Artifact(ImageKind.PTX, (data if held is None else held.ptx).rstrip(b"\0"), name=name)
    if kind is ImageKind.CUBIN:
        return images.ptx_of(data, name)
    return Artifact(kind, data, name=name)


@started("cuLinkAddData cuLinkAddData_v2", "PIPPPUPP")
def link_add_data(
    handle: int, kind: int, data: int, size: int, name: int, count: int, options: int, values: int
) -> None:
    """Add an image from memory."""
    JitLog(count, options, values)
    require(data and size)
    _add(handle, kind, lambda: ctypes.string_at(data, size), text_at(name) if name else "")


@started("cuLinkAddFile cuLinkAddFile_v2", "PIPUPP")
def link_add_file(handle: int, kind: int, path: int, count: int, options: int, values: int) -> None:
    """Add an image from a file."""
    JitLog(count, options, values)
    name = text_at(path)
    _add(handle, kind, lambda: images.file_bytes(name), name)


@started("cuLinkComplete", "PPP")
def link_complete(handle: int, out: int, size: int) -> None:
    """Link, and write the image, which exists until the link is destroyed."""
    link = _link_of(handle)
    require(out)
    require(
        link.inputs,
        Result.INVALID_VALUE,
        "the link has no inputs",
        hint="add an image with `cuLinkAddData` or `cuLinkAddFile`",
    )
    try:
        linked = images.linked(link.inputs)
    except CujitError as e:
        refused = images.refused_by(e)
        link.log.write(error=refused.words)
        raise refused from e
    link.log.write(info=linked.log)
    data = images.contained(linked.data, Arch.of_capability(*emulation().settings.cc))
    link.made = ctypes.create_string_buffer(data, len(data))
    store_u64(out, ctypes.addressof(link.made))
    if size:
        store_u64(size, len(data))


@started("cuLinkDestroy", "P")
def link_destroy(handle: int) -> None:
    """Destroy a link and its image."""
    _link_of(handle)
    cell_free(handle, CellKind.LINK)
    del _LINKS[handle]
