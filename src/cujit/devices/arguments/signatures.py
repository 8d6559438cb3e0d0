"""What a kernel takes, as far as a loaded image tells."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cujit.artifact import Artifact, ImageKind
from cujit.devices.arguments.small_floats import FORMATS
from cujit.devices.arguments.vectors import vector_of
from cujit.errors import FormatError
from cujit.signature import Parameter, ParameterClass, Signature, merge_signatures
from cujit.values import replace

if TYPE_CHECKING:
    from cujit.formats.cxx_types import CxxType


def signature_of_layout(layout: list[tuple[int, int]]) -> Signature:
    """Make the signature of parameters of which only offset and size in bytes are known."""
    return Signature(tuple(Parameter(ParameterClass.UNKNOWN, size, offset=offset) for offset, size in layout))


def signature_of(artifact: Artifact, lowered: str, loaded: Signature) -> Signature:
    """Return the signature of a kernel: from its build, otherwise from its lowered name or PTX, otherwise ``loaded``.

    ``loaded`` is what the device tells of the image.
    """
    stated = artifact.signatures.get(lowered) or signature_of_name(lowered, loaded)
    if stated is None and any(parameter.kind is ParameterClass.UNKNOWN for parameter in loaded):
        stated = _signature_of_ptx(artifact, lowered)
    return merge_signatures(stated, loaded)


def _signature_of_ptx(artifact: Artifact, lowered: str) -> Signature | None:
    """Read the types in the PTX that was loaded, or that lies in the same fatbin; None where there is none."""
    if artifact.kind not in (ImageKind.PTX, ImageKind.FATBIN):
        return None
    # Start-up: images whose build says the types are not read.
    from cujit.formats.fatbin import EntryKind, read_fatbin
    from cujit.formats.ptx.heads import entry_signatures

    texts: Iterable[bytes] = ()
    if artifact.kind is ImageKind.PTX:
        texts = (artifact.data,)
    elif artifact.kind is ImageKind.FATBIN:
        texts = (e.payload() for e in read_fatbin(artifact.data).entries if e.kind is EntryKind.PTX)
    return next(filter(None, (entry_signatures(text).get(lowered) for text in texts)), None)


def signature_of_name(lowered: str, loaded: Signature) -> Signature | None:
    """Read the types of the parameters from a lowered name of C++, where no build says them.

    A name does not tell a structure from an enumeration: for those, ``loaded``, what the image tells, says how their
    bytes are meant. None if the name is not of C++, or does not fit the image.
    """
    if not lowered.startswith("_Z"):
        return None
    from cujit.formats.itanium import Demangler  # start-up: images whose build says the types are not read

    reader = Demangler(lowered)
    try:
        reader.expect("_Z")
        _name, is_template = reader.name()
        if is_template:
            reader.type()  # what it returns
        types = []
        while reader.rest and reader.rest[0] not in ".$":
            types.append(reader.type())
    except FormatError:
        return None
    if [str(t) for t in types] == ["void"]:
        types = []
    if len(types) != len(loaded):
        return None
    return Signature(tuple(map(_parameter, types, loaded)))


def _parameter(t: CxxType, loaded: Parameter) -> Parameter:
    """Return a parameter with its type, unless the image records another size."""
    from cujit.formats.cxx_types import TypeShape  # start-up: images whose build says the types are not read

    name = str(t)
    if t.shape is TypeShape.POINTER:
        stated = Parameter(ParameterClass.POINTER, 8, 8, name, str(t.inner).rstrip())
    elif t.builtin is not None:
        stated = Parameter(t.builtin.kind, t.builtin.size, t.builtin.size, name)
    elif name in FORMATS or vector_of(name, loaded.size) is not None:
        stated = replace(loaded, kind=ParameterClass.AGGREGATE, type=name)
    else:
        stated = replace(loaded, type=name)
    return replace(stated, offset=loaded.offset) if stated.size == loaded.size else loaded
