"""What launches need to know of a module and its kernels beside their machine code, as values that can be kept."""

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
    """One kernel. ``directives`` are those of the entry that have numbers, such as ``maxntid``.

    ``parameters_size`` counts bytes of the parameter buffer, ``shared_size`` those of static shared memory of a block,
    ``local_size`` those of local memory of a thread. ``suspends``: every warp needs a stack of its own, ``prints``: the
    kernel calls ``vprintf``, ``dynamic``: it has shared memory whose size the launch says, ``meets``: it
    asks for the memory in which the blocks of a grid count their arrivals.
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
    """A kernel that is not executed; ``items`` say why, each as line, construct and reason."""

    name: str
    signature: Signature
    items: tuple[tuple[int, str, str], ...]


@dataclass(frozen=True)
class Relocation:
    """A place in the memory of a module that holds an address in it: both as offsets in bytes."""

    offset: int
    target: int


@dataclass(frozen=True)
class ModuleFacts:
    """A module: its kernels and those ``refused``, its variables, and what its memory holds at first.

    ``variables`` are by name, each with its offset and its size in bytes. The memory has ``size`` bytes, zero at first
    but for ``pieces``, each with its offset.
    """

    kernels: tuple[KernelFacts, ...]
    refused: tuple[RefusedFacts, ...]
    variables: Mapping[str, tuple[int, int]]
    size: int
    pieces: tuple[tuple[int, bytes], ...]
    relocations: tuple[Relocation, ...]

    def pieces_at(self, base: int) -> Iterator[tuple[int, bytes]]:
        """List what memory of zeros holds at first, by offset, if it begins at the address ``base``."""
        yield from self.pieces
        for place in self.relocations:
            yield place.offset, (base + place.target).to_bytes(8, "little")

    def to_artifact(self) -> Artifact:
        """Write them as an object without sections, behind whose header they stand."""
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
        """Read what ``to_artifact`` wrote, up to ``end`` if other data follows."""
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
