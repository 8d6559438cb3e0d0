"""Resource usage of kernels, from the cubin, and from the assembler's log for spills."""

from __future__ import annotations

import os

from cujit.artifact import Artifact, ImageKind
from cujit.artifact.opening import open_image
from cujit.errors import FormatError
from cujit.errors.hints import Hint
from cujit.inspection.read import inspect
from cujit.values import dataclass


@dataclass(frozen=True)
class Usage:
    """Resource usage of a kernel. ``registers`` and ``stack_bytes`` are per thread. ``shared_bytes`` is per block.

    The spill sizes are the numbers of bytes that spill instructions store and load. The spill sizes are known if there
    is an assembler log (``verbose=True``) or if the kernel has no stack. Otherwise, the spill sizes are None.

    Example::

        (used,) = cujit.usage(cubin).values()
        print(used.registers, used.stack_bytes)
    """

    registers: int | None
    stack_bytes: int | None
    shared_bytes: int
    barriers: int
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None


def usage(cubin: Artifact | bytes | bytearray | memoryview | str | os.PathLike[str]) -> dict[str, Usage]:
    """Return the resource usage of each kernel in a cubin, by lowered name.

    Args:
        cubin: an Artifact, bytes, or the path of a file.

    Raises:
        FormatError: the value is not a cubin, or the cubin is damaged.
        FileError: the file can't be read.
        ArgumentError: the value is not an image.

    Example::

        for name, used in cujit.usage(cubin).items():
            print(name, used.registers, used.shared_bytes)
    """
    artifact = open_image(cubin, "usage")
    if artifact.kind is not ImageKind.CUBIN:
        raise FormatError(
            f"register usage is known only for machine code, but this image is {artifact.kind.value}",
            help=Hint(
                "to get a cubin, call cujit.link([artifact], arch='sm_…', verbose=True)",
                shell="to get a cubin, run cujit link FILE -a sm_… -O verbose -o x.cubin",
            ),
        )
    return {
        k.name: Usage(
            k.registers, k.stack_bytes, k.shared_bytes or 0, k.barriers or 0, k.spill_store_bytes, k.spill_load_bytes
        )
        for k in inspect(artifact).kernels
    }
