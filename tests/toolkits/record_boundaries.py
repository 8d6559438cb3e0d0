"""Record since when assemblers take every statement of the table: ``record_boundaries.py TOOLKITS`` writes the golden.

Assemblers are asked for statements that the golden lacks; remove the golden to ask them for all of them.
``TOOLKITS`` is the directory that ``fetch.py`` fills. The newest assembler knows every version and every target, so it
is asked by bisection; then each older one is asked whether it takes a statement a version earlier, or for a target
for which the newest takes it under no version.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cujit.arch.support import RELEASES, dotted
from cujit.formats.ptx.isa.table import NEWEST_PTX
from cujit.values import group_by
from toolkits.agreement import refused
from toolkits.statements import STATEMENTS, statements_of_the_table

GOLDEN = Path(__file__).parents[1] / "goldens" / "boundaries.json"
_TARGETS = (
    "20 30 35 50 52 53 60 61 62 70 72 75 80 86 87 88 89 90 90a 100 100f 100a 101 101f 101a 103 103f 103a 107 107f "
    "107a 110 110f 110a 120 120f 120a 121 121f 121a"
)
TARGETS = re.split(" ", _TARGETS)
_VERSIONS = (
    "3.1 3.2 4.0 4.1 4.2 4.3 5.0 5.1 6.0 6.1 6.2 6.3 6.4 6.5 7.0 7.1 7.2 7.3 7.4 7.5 7.6 7.7 7.8 "
    "8.0 8.1 8.2 8.3 8.4 8.5 8.6 8.7 8.8 9.0 9.1 9.2 9.3 9.4 9.5"
)
VERSIONS = re.split(" ", _VERSIONS)
"""An assembler of today does not tell apart what is older."""
Boundaries = dict[str, dict[str, str]]
_UNDEFINED = {
    "11.7": r"shared::cluster",
    "13.2": r"^(sub\.u16x2|neg\.s16x2)",
    "13.3": r"^(sub\.u16x2|neg\.s16x2)",
}
"""What a release takes that no manual defines and later ones refuse; 11.7 reads ``shared::cluster`` as ``shared``."""


def release_of_toolkit(toolkit: str) -> tuple[int, int]:
    """Give the newest version that a toolkit's assembler takes."""
    return {dotted(release.toolkit): release.ptx for release in RELEASES}.get(toolkit, NEWEST_PTX)


class Ptxas:
    """The assembler of one release."""

    def __init__(self, path: Path, release: str) -> None:
        self._path = path
        self.release = release
        text = subprocess.run([path, "--help"], capture_output=True, text=True, check=False).stdout
        self._arches = set(re.findall(r"'(?:sm|compute)_(\d+[af]?)'", text))
        self._least = "sm_" + min((a for a in self._arches if a.isdigit()), key=int)

    def takes(self, target: str) -> bool:
        """Whether it knows a target, if only to parse."""
        return not self._complaint(f".version {self.newest}\n.target sm_{target}\n.entry k {{ exit; }}\n", target)

    @property
    def newest(self) -> str:
        """The newest version that it takes."""
        return dotted(release_of_toolkit(self.release))

    def _complaint(self, text: str, target: str) -> str | None:
        arch = f"sm_{target}" if target in self._arches else self._least
        command = [str(self._path), f"-arch={arch}", "/dev/stdin", "-o", os.devnull]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        return None if done.returncode < 0 else "" if done.returncode == 0 else done.stderr

    def taken(self, statements: Sequence[str], version: str, target: str) -> set[str]:
        """Ask which statements it takes under a version and a target."""
        if not statements:
            return set()
        no = refused(statements, version, f"sm_{target}", lambda text: self._complaint(text, target))
        return set(statements) - no.keys()


def _bisected(ptxas: Ptxas, target: str, statements: Sequence[str], versions: Sequence[str]) -> dict[str, str]:
    """Find the first version of each statement that the newest takes; of the others, each version is tried."""
    newest = ptxas.taken(statements, versions[-1], target)
    todo, found = [(0, len(versions) - 1, [s for s in statements if s in newest])], dict[str, str]()
    while todo:
        low, high, some = todo.pop()
        if low == high:
            found.update(dict.fromkeys(some, versions[low]))
            continue
        middle = (low + high) // 2
        yes = ptxas.taken(some, versions[middle], target)
        halves = ((low, middle, [s for s in some if s in yes]), (middle + 1, high, [s for s in some if s not in yes]))
        todo += [half for half in halves if half[2]]
    return found


def _gone(ptxas: Ptxas, target: str, statements: Iterable[str], versions: Sequence[str]) -> dict[str, str]:
    """Find the last version of what the newest does not take any more: ``first-last``."""
    left, found = list(statements), dict[str, list[str]]()
    for version in versions:
        for statement in ptxas.taken(left, version, target):
            found.setdefault(statement, []).append(version)
    return {statement: f"{several[0]}-{several[-1]}" for statement, several in found.items()}


def _of_newest(ptxas: Ptxas, target: str, statements: Sequence[str]) -> dict[str, str]:
    versions = [v for v in VERSIONS if _takes_head(ptxas, v, target)]
    if not versions:
        return {}
    found = _bisected(ptxas, target, statements, versions)
    return found | _gone(ptxas, target, [s for s in statements if s not in found], versions)


def _takes_head(ptxas: Ptxas, version: str, target: str) -> bool:
    return not ptxas._complaint(f".version {version}\n.target sm_{target}\n.entry k {{ exit; }}\n", target)


def _earlier(ptxas: Ptxas, target: str, known: dict[str, str], statements: Sequence[str]) -> dict[str, str]:
    """Find what an older release takes earlier than is known."""
    newest = ptxas.newest
    mine = [v for v in VERSIONS[: VERSIONS.index(newest) + 1] if _takes_head(ptxas, v, target)]
    found: dict[str, str] = {}

    def before(statement: str) -> str:
        since = known.get(statement, "99.9")
        earlier = [v for v in mine if VERSIONS.index(v) < (VERSIONS.index(since) if since in VERSIONS else 999)]
        return "" if "-" in since or not earlier else earlier[-1]

    todo = group_by((before(s), s) for s in statements if not re.search(_UNDEFINED.get(ptxas.release, "^$"), s))
    todo.pop("", None)
    while todo:
        version, some = todo.popitem()
        yes = ptxas.taken(some, version, target)
        found.update(dict.fromkeys(yes, version))
        at = mine.index(version)
        if at and yes:
            todo.setdefault(mine[at - 1], []).extend(yes)
    return found


def main() -> None:
    """Ask all of them, and write the golden."""
    root = Path(sys.argv[1])
    releases = sorted(root.glob("*/ptxas"), key=lambda p: [int(n) for n in p.parent.name.split(".")])
    every = [Ptxas(path, path.parent.name) for path in releases]
    lines = [s for s in (*statements_of_the_table(), *STATEMENTS) if not s.startswith(("bra", "brx", "call"))]
    statements = list(dict.fromkeys(lines))
    known = _recorded(statements)
    new = [s for s in statements if not any(s in found for found in known.values())]
    with ThreadPoolExecutor(2) as pool:
        for target, found in pool.map(lambda t: (t, _of_newest(every[-1], t, new)), TARGETS):
            known[target].update(found)
            print(target, len(found), flush=True)

        for ptxas in reversed(every[:-1]):
            mine = [t for t in TARGETS if ptxas.takes(t) and (t in ptxas._arches or t in ("20", "30", "70"))]
            for target, found in pool.map(lambda t: (t, _earlier(ptxas, t, known[t], new)), mine):  # noqa: B023
                known[target].update(found)
                if found:
                    print(ptxas.release, target, len(found), flush=True)
    _write(known, [p.release for p in every])


def _recorded(statements: Sequence[str]) -> Boundaries:
    """Read what the golden has of statements."""
    empty: dict[str, Any] = {"targets": TARGETS, "profiles": []}
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else empty
    said = [(s, profile) for profile, several in golden["profiles"] for s in several if s in set(statements)]
    return {t: {s: profile[k] for s, profile in said if profile[k]} for k, t in enumerate(golden["targets"])}


def _write(known: Boundaries, releases: list[str]) -> None:
    """Write the statements of one profile together."""
    profiles = group_by(
        (tuple(found.get(statement, "") for found in known.values()), statement)
        for statement in dict.fromkeys(s for found in known.values() for s in found)
    )
    about = f"ptxas {releases[0]} to {releases[-1]}, {datetime.date.today()}"
    golden = {"source": about, "targets": list(known), "profiles": [[list(k), v] for k, v in profiles.items()]}
    text = json.dumps(golden, separators=(",", ":")).replace("[[", "[\n[").replace("]],[", "]],\n[")
    GOLDEN.write_text(text + "\n")


if __name__ == "__main__":
    main()
