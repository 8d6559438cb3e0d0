"""What kernels use, as values: from the cubin itself, and what only the assembler's log tells, from there."""

from __future__ import annotations

import os

from cujit.artifact import Artifact, Kind
from cujit.artifact.opening import open_image
from cujit.errors import FormatError
from cujit.inspection.read import inspect
from cujit.values import dataclass


@dataclass(frozen=True)
class Usage:
    """What one kernel uses. ``registers`` and ``stack_bytes`` are a thread's, ``shared_bytes`` a block's.

    The spills, in bytes of code that moves them, are known if the log of the assembler was asked for
    (``verbose=True``), or if there is no stack to spill to; they are None else.

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
    """Read what each kernel of a cubin uses, by lowered name.

    Args:
        cubin: an Artifact, bytes, or the path of a file.

    Raises:
        FormatError: it is no cubin, or a damaged one.
        FileError: the file cannot be read.
        ArgumentError: it is no image.

    Example::

        for name, used in cujit.usage(cubin).items():
            print(name, used.registers, used.shared_bytes)
    """
    artifact = open_image(cubin, "usage")
    if artifact.kind is not Kind.CUBIN:
        raise FormatError(
            f"registers are known of machine code, and this is {artifact.kind.value}",
            help="cujit.link([artifact], arch='sm_…', verbose=True) makes a cubin of it",
        )
    return {
        k.name: Usage(
            k.registers, k.stack_bytes, k.shared_bytes or 0, k.barriers or 0, k.spill_store_bytes, k.spill_load_bytes
        )
        for k in inspect(artifact).kernels
    }
