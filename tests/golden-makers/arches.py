"""Record which architectures each release of ptxas takes, and from which PTX version on.

``python tests/golden-makers/arches.py .toolkits`` writes ``tests/goldens/arches.json``; ``make toolkits`` has fetched
the assemblers. A name is asked for with each PTX version from 4.0 on, oldest first; the first that it takes is kept.
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cujit.arch.arch import KNOWN_ARCHES
from cujit.arch.support import RELEASES

GOLDEN = Path(__file__).parents[1] / "goldens" / "arches.json"
_PTX = sorted({(4, 0), (4, 1), (4, 2), (4, 3), (5, 0), (8, 6), *(row.ptx for row in RELEASES)})


def _takes(ptxas: Path, name: str, ptx: tuple[int, int]) -> bool:
    text = f".version {ptx[0]}.{ptx[1]}\n.target {name}\n.address_size 64\n.visible .entry k() {{ ret; }}\n"
    command = [str(ptxas), f"-arch={name}", "-o", "/dev/null", "-"]
    return not subprocess.run(command, input=text, capture_output=True, text=True, check=False).returncode


def _first(ptxas: Path, name: str) -> str | None:
    if not _takes(ptxas, name, _newest(ptxas)):
        return None
    return next("{}.{}".format(*ptx) for ptx in _PTX if _takes(ptxas, name, ptx))


def _newest(ptxas: Path) -> tuple[int, int]:
    release = tuple(map(int, ptxas.parent.name.split(".")))
    return max(row.ptx for row in RELEASES if row.toolkit <= release)


def main() -> None:
    """Ask every assembler for every name."""
    names = [f"sm_{number}{suffix}" for number in KNOWN_ARCHES for suffix in ("", "a", "f")]
    made = {}
    with ThreadPoolExecutor() as pool:
        for ptxas in sorted(Path(sys.argv[1]).glob("*/ptxas"), key=_newest):
            taken = pool.map(lambda name, tool=ptxas: _first(tool, name), names)
            made[ptxas.parent.name] = {name: first for name, first in zip(names, taken, strict=True) if first}
    rows = ",\n".join(f'"{release}": {json.dumps(taken)}' for release, taken in made.items())
    GOLDEN.write_text("{" + rows + "}\n")


if __name__ == "__main__":
    main()
