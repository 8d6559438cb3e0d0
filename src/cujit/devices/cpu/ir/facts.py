"""Facts about a module and its kernels that launches need in addition to machine code, as values that can be stored."""

from __future__ import annotations

import binascii
import itertools
import zlib
from collections.abc import Iterator, Mapping

from cujit.artifact import Artifact, ImageKind
from cujit.formats.elf import bare_header
from cujit.signature import Signature
from cujit.values import dataclass
from cujit.values.json_text import only_value

MOST_IMAGE_BYTES = 64 << 20
"""Initial values of a module that take more than that are not kept."""

_HEADER = bare_header()


@dataclass(frozen=True)
class KernelFacts:
    """One kernel. ``directives`` are the directives of the entry that have numbers, such as ``maxntid``.

    Sizes are in bytes: ``parameters_size`` of the parameter buffer, ``shared_size`` of a block's static shared memory,
    and ``local_size`` of a thread's local memory. ``suspends`` is whether every warp needs a separate stack. ``prints``
    is whether the kernel calls ``vprintf``. ``dynamic`` is whether it has dynamic shared memory. ``meets`` is whether
    it requests the memory in which the blocks of a grid count their arrivals.
    """

    name: str
    signature: Signature
    directives: Mapping[str, tuple[int, ...]]
    parameters_size: int
    shared_size: int
    local_size: int
    suspends: bool
    prints: bool
    meets: bool
    dynamic: bool


@dataclass(frozen=True)
class RefusedFacts:
    """A kernel that is not executed. ``items`` are the reasons, each as line, construct, and reason."""

    name: str
    signature: Signature
    items: tuple[tuple[int, str, str], ...]


@dataclass(frozen=True)
class Relocation:
    """A place in a module's memory that contains an address in the same memory. Both are offsets in bytes."""

    offset: int
    target: int


@dataclass(frozen=True)
class ModuleFacts:
    """A module: its kernels, its ``refused`` kernels, its variables, and the initial contents of its memory.

    ``variables`` maps each name to an offset and a size in bytes. The memory has ``size`` bytes. Initially, all are
    zero except ``pieces``, each with its offset.
    """

    kernels: tuple[KernelFacts, ...]
    refused: tuple[RefusedFacts, ...]
    variables: Mapping[str, tuple[int, int]]
    size: int
    pieces: tuple[tuple[int, bytes], ...]
    relocations: tuple[Relocation, ...]

    def pieces_at(self, base: int) -> Iterator[tuple[int, bytes]]:
        """Yield the initial contents of zeroed memory, each with its offset, if the memory begins at the address
        ``base``.
        """
        yield from self.pieces
        for place in self.relocations:
            yield place.offset, (base + place.target).to_bytes(8, "little")

    def to_artifact(self) -> Artifact:
        """Return an artifact that contains the facts after the header of an object without sections."""
        import json  # start-up: for what is in no cache

        record = {
            "kernels": [{k: v for k, v in vars(kernel).items() if k != "signature"} for kernel in self.kernels],
            "refused": [(kernel.name, kernel.items) for kernel in self.refused],
            "variables": self.variables,
            "size": self.size,
            "pieces": [(offset, len(piece)) for offset, piece in self.pieces],
            "image": binascii.b2a_base64(
                zlib.compress(b"".join(piece for _, piece in self.pieces), 1), newline=False
            ).decode("ascii"),
            "relocations": [(place.offset, place.target) for place in self.relocations],
        }
        data = _HEADER + json.dumps(record, separators=(",", ":")).encode("ascii")
        signatures = {kernel.name: kernel.signature for kernel in self.kernels}
        signatures.update({kernel.name: kernel.signature for kernel in self.refused})
        return Artifact(ImageKind.OBJECT, data, signatures=signatures)

    @classmethod
    def of_artifact(cls, artifact: Artifact, end: int | None = None) -> ModuleFacts:
        """Return the facts in an artifact from ``to_artifact``. ``end`` is their end if other data follows."""
        record = only_value(artifact.data[len(_HEADER) : end].decode("ascii"))
        image = zlib.decompress(binascii.a2b_base64(record["image"])) if record["pieces"] else b""
        ends = [*itertools.accumulate((size for _, size in record["pieces"]), initial=0)]
        return cls(
            tuple(_kernel(kernel, artifact.signatures[kernel["name"]]) for kernel in record["kernels"]),
            tuple(
                RefusedFacts(name, artifact.signatures[name], tuple(map(tuple, items)))
                for name, items in record["refused"]
            ),
            {name: (offset, size) for name, (offset, size) in record["variables"].items()},
            record["size"],
            tuple(
                (offset, image[end - size : end])
                for (offset, size), end in zip(record["pieces"], ends[1:], strict=True)
            ),
            tuple(Relocation(*place) for place in record["relocations"]),
        )


def _kernel(record: dict[str, object], signature: Signature) -> KernelFacts:
    directives = record.pop("directives")
    assert isinstance(directives, dict)
    return KernelFacts(**record, signature=signature, directives={k: tuple(v) for k, v in directives.items()})  # type: ignore[arg-type]
