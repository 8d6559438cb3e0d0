"""A launch with its arguments as a value that can be written to a file, and run again elsewhere."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from cujit.artifact import ImageKind, kind_of
from cujit.devices.arguments.pointers import without_const
from cujit.devices.arrays.array import DeviceArray
from cujit.devices.launcher.entry import LaunchEntry, LoadedImage
from cujit.devices.launcher.snapshot import POINTER_BYTES, Held, MemorySpan, dtype_of, held_by, place_in, spans_of
from cujit.devices.options import LaunchOptions
from cujit.devices.shapes import LaunchShape
from cujit.devices.tensormaps.tiling import TensorMap
from cujit.devices.textures.texture import Surface, Texture
from cujit.errors import ArgumentError, CujitError, LaunchError, NameNotFoundError
from cujit.formats.fatbin import read_fatbin
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.syntax import FloatLiteral, Immediate, Initializer, Variable
from cujit.formats.saved_launch import SavedArgument, SavedBlock, SavedLaunch, SavedPlace, SavedText, SavedVariable
from cujit.signature import Parameter, ParameterClass

_ALIGNMENT = 256
_SPACES = ("global", "const")
_FUNCTION = ctypes.CFUNCTYPE(None).__base__ or object
_HELP = "pass the array as a separate argument; docs/reproducer.md lists what a saved launch can contain"


def saved_launch(
    entry: LaunchEntry, shape: LaunchShape | None, stream: int, options: LaunchOptions, arguments: Sequence[object]
) -> SavedLaunch:
    """Return a launch with the current contents of its arguments, in a form that can be saved.

    Raises:
        ArgumentError: the arguments don't match the parameters, or an argument contains addresses that cujit can't
            follow.
        LaunchError: there are no elements to process, so nothing is launched.
        ClosedError: the module or an array was closed.
    """
    entry.image.require()
    if shape is None:
        raise LaunchError(f"{entry.name}: there are no elements to process, so there is no launch to save")
    buffer = entry.packer.pack(arguments, stream)
    device, signature = entry.device, entry.signature
    device.synchronize()
    spans = {span.number: span for span in spans_of(entry.name, signature, buffer, arguments)}
    held = held_by(device, (_range(arguments[span.number], span) for span in spans.values()))
    saved = []
    for i, (parameter, offset, value) in enumerate(zip(signature, signature.offsets, arguments, strict=True)):
        data = buffer[offset : offset + parameter.size]
        _refuse_addresses(f"{entry.name}: argument {i + 1} ({parameter})", parameter, value, data, held, spans.get(i))
        saved.append(_argument(parameter, value, data, held, spans.get(i)))
    images = tuple(_images(entry.image))
    return SavedLaunch(
        entry.name,
        entry.loaded.name,
        f"{device.name}, {device.product}",
        (*shape.grid,),
        (*shape.block,),
        shape.shared_bytes,
        None if options.cluster is None else (*options.cluster,),
        options.cooperative,
        tuple(saved),
        images,
        tuple(
            SavedText(_recorded(name, entry, images), text.shown, text.text) for name, text in entry.image.texts.items()
        ),
        tuple(SavedBlock(memory.data.tobytes(), memory.begin % _ALIGNMENT) for memory in held),
        tuple(_variables(entry, images, held)),
    )


def _recorded(name: str, entry: LaunchEntry, images: Sequence[bytes]) -> str:
    """Name a source as the images do, which may be found on another machine."""
    places = entry.image.artifact.places
    names = [known + name.removeprefix(path) for known, path in places if name.startswith(f"{path}/")]
    return next((each for each in names if any(each.encode() in image for image in images)), name)


def _range(value: object, span: MemorySpan) -> tuple[int, int]:
    """Return the memory to keep. For a DeviceArray, this is the whole allocation, as kernels reach beyond views."""
    block = value._allocation if isinstance(value, DeviceArray) else None
    if block is not None and block.address <= span.address and span.address + span.size <= block.address + block.size:
        return block.address, block.address + block.size
    return span.address, span.address + span.size


def _argument(
    parameter: Parameter, value: Any, data: bytes, held: Sequence[Held], span: MemorySpan | None
) -> SavedArgument:
    if span is None:
        return SavedArgument(str(parameter), data)
    dtype = dtype_of(value)
    code = dtype.str if dtype is not None and dtype.kind in "biufc" else ""
    place = SavedPlace(*place_in(held, span.address))
    shape = tuple(map(int, value.shape)) if hasattr(value, "shape") else (span.size,)
    return SavedArgument(str(parameter), bytes(POINTER_BYTES), place, code, shape, span.size)


def _images(image: LoadedImage) -> Iterator[bytes]:
    """Yield the loaded image, and then PTX with line information if the source is known."""
    yield image.artifact.data
    if image.portable is None:
        return
    try:
        made = image.portable(lineinfo=True)
    except CujitError:  # where nothing is compiled, or not with lines: then PTX as it is
        return
    if made.kind is ImageKind.PTX and made.data != image.artifact.data:
        yield made.data


def _variables(entry: LaunchEntry, images: Sequence[bytes], held: Sequence[Held]) -> Iterator[SavedVariable]:
    """Yield the current contents of the module's variables, except for variables that are initialized with addresses.

    Only PTX shows these initializers, so nothing is yielded without PTX. Omitted variables start with the image's
    initial values.

    Raises:
        ArgumentError: a variable contains an address of an argument.
    """
    loaded, device = entry.image.require(), entry.device
    for variable in _parsed(images[-1]):
        if variable.space not in _SPACES or not _is_of_numbers(variable.initializer):
            continue
        try:
            address, size = loaded.variable(variable.name)
        except NameNotFoundError:
            continue
        data = bytearray(size)
        device.download(memoryview(data), address)
        if (found := _address_in(data, held)) is not None:
            raise ArgumentError(
                f"{entry.name}: the variable {variable.name} contains the address {found:#x}, which points "
                "into an argument",
                help=_HELP,
            )
        yield SavedVariable(variable.name, bytes(data))


def _parsed(image: bytes) -> Sequence[Variable]:
    """Read the variables of PTX, of a fatbin's too."""
    kind = kind_of(image)
    if kind is ImageKind.FATBIN:
        image = next((entry.payload() for entry in read_fatbin(image).ptx_entries), b"")
    elif kind is not ImageKind.PTX:
        return ()
    try:
        return parse(image.rstrip(b"\0").decode()).variables
    except (CujitError, UnicodeDecodeError):  # newer than the parser
        return ()


def _is_of_numbers(initial: object) -> bool:
    """Return whether a variable's initial value has no address."""
    if isinstance(initial, Initializer):
        return all(map(_is_of_numbers, initial.items))
    return initial is None or isinstance(initial, (Immediate, FloatLiteral))


# -- what cannot be followed ----------------------------------------------------------------------------------


def _refuse_addresses(
    what: str, parameter: Parameter, value: object, data: bytes, held: Sequence[Held], span: MemorySpan | None
) -> None:
    """Refuse an argument that contains addresses, because they are invalid in another process.

    Raises:
        ArgumentError: the argument is a handle, a structure with pointers, or an array of addresses.
    """
    if isinstance(value, (Texture, Surface, TensorMap)):
        raise ArgumentError(f"{what} is a {type(value).__name__}, which can't be stored in a saved launch", help=_HELP)
    if isinstance(value, (ctypes.Structure, ctypes.Union)) and _has_pointers(type(value)) and any(data):
        raise ArgumentError(
            f"{what} is a structure with pointers, and cujit doesn't know what they point to", help=_HELP
        )
    if span is None:
        found = _address_in(data, held) if parameter.kind is not ParameterClass.FLOAT else None
        if found is not None:
            raise ArgumentError(
                f"{what} contains the address {found:#x}, which points into another argument", help=_HELP
            )
    elif without_const(parameter.pointee)[0].endswith("*"):
        number, offset = place_in(held, span.address)
        if held[number].data[offset : offset + span.size].any():
            raise ArgumentError(
                f"{what} is an array of addresses, and cujit doesn't know what they point to", help=_HELP
            )


def _has_pointers(kind: Any) -> bool:
    """Return whether a ctypes type contains pointers."""
    if issubclass(kind, (ctypes.Structure, ctypes.Union)):
        return any(_has_pointers(each[1]) for base in kind.__mro__ for each in vars(base).get("_fields_", ()))
    if issubclass(kind, ctypes.Array):
        return _has_pointers(kind._type_)
    return kind is ctypes.c_void_p or issubclass(kind, (ctypes._Pointer, _FUNCTION))


def _address_in(data: bytes | bytearray, held: Sequence[Held]) -> int | None:
    """Find a word in the bytes of a parameter that is an address in memory of another argument."""
    words = np.frombuffer(data[: len(data) // POINTER_BYTES * POINTER_BYTES], np.uint64).tolist()
    return next((word for word in words for begin, memory in held if begin <= word < begin + memory.nbytes), None)
