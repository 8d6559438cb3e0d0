"""What nvJitLink makes of each pair of modules, each in a child process: ``name: linked`` or ``name: refused``."""

from __future__ import annotations

import os

from cujit.artifact import ImageKind
from cujit.errors import ToolError
from cujit.program import toolchain
from linking.pairs import PAIRS, images


def link(modules: list[str]) -> None:
    """Link as a child does: the exit status tells of the call, standard error of what it says beside."""
    try:
        with toolchain().nvjitlink.linker(["-arch=sm_80"]) as linker:
            for number, text in enumerate(modules):
                linker.add(ImageKind.PTX, text.encode(), f"m{number}")
            linker.complete()
            linker.cubin()
    except ToolError:
        os._exit(1)
    os._exit(0)


def main() -> None:
    """Try every pair."""
    _ = toolchain().nvjitlink.version
    for name, (pair, _) in PAIRS.items():
        readable, writable = os.pipe()
        child = os.fork()
        if not child:
            os.dup2(writable, 2)
            link(images(pair))
        os.close(writable)
        with os.fdopen(readable) as told:
            complained = "@E@" in told.read()
        status = os.waitpid(child, 0)[1]
        print(f"{name}: {'refused' if status or complained else 'linked'}", flush=True)


if __name__ == "__main__":
    main()
