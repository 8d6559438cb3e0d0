"""Compare what two commits make of many PTX texts on the CPU device: ``python tools/replay.py BEFORE [AFTER]``.

Each of some hundred launches is made with both, beside each other: the emitted IR, the results, the CPU seconds of the
compile and the time of a launch are compared. BEFORE and AFTER are commits, or directories; without AFTER it is the
tree that this file is in. The launches are always those of this tree: ``tests/replayed/cases.py``.

Names of values and blocks are equal where they appear in the same order. It ends with 0 where all IR is equal; with
``--results``, where all results, faults and printed text are.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
import os
import pickle
import re
import statistics
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from replayed.cases import every_case, tail_cases
from replaying.case import Case, Outcome

__all__ = ["Comparison", "compare", "replay", "report"]

ROOT = Path(__file__).parents[1]

_MOST_S = 120.0
"""Seconds after which a launch is given up."""

_NAME = re.compile(r'%("[^"]+"|[-\w.$]+)|^("[^"]+"|[-\w.$]+)(?=:)', re.MULTILINE)
"""A name of a value or of a block."""

_REMARK = re.compile(r" +; preds = .*")

_SHOWN_LINES = 12
_SHOWN_CASES = 10


# -- two trees --------------------------------------------------------------------------------------------


class Tree:
    """A process with cujit of one tree. It is made anew where a launch ends or hangs it."""

    def __init__(self, root: Path, cases: Path) -> None:
        self.root = root
        self._cases = cases
        self._looks = False
        self.has_ir = self._start()

    def _start(self) -> bool:
        self._pipe, theirs = Pipe()
        path = os.pathsep.join([str(self.root / "src"), str(ROOT / "tools")])
        environment = {**os.environ, "PYTHONPATH": path, "CUJIT_CACHE": "0"}
        command = [sys.executable, "-m", "replaying.child", str(self._cases), str(theirs.fileno())]
        self._process = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()])
        theirs.close()
        try:
            file, has_ir = self._pipe.recv()
        except EOFError:
            raise SystemExit(f"replay: cujit of {self.root} does not start") from None
        if not Path(file).is_relative_to(self.root.resolve()):
            raise SystemExit(f"replay: {self.root} runs {file}")
        return bool(has_ir)

    def look(self, looks: bool) -> None:
        """Say whether the emitted IR is wanted; before the first launch."""
        self._looks = looks
        self._pipe.send(looks)

    def begin(self, number: int) -> None:
        """Have a launch made."""
        self._pipe.send(number)

    def outcome(self) -> Outcome:
        """Wait for what came of it."""
        try:
            if self._pipe.poll(_MOST_S):
                outcome: Outcome = self._pipe.recv()
                return outcome
            error = f"not done in {_MOST_S:g} s"
        except EOFError:
            error = f"the process ended with {self._process.wait()}"
        self.close()
        self._start()
        self.look(self._looks)
        return Outcome(error=error)

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def checked_out(name: str) -> Iterator[Path]:
    """Give a directory with the tree of a commit, for a while; a directory is its own."""
    if Path(name).is_dir():
        yield Path(name).resolve()
        return
    with tempfile.TemporaryDirectory(prefix="cujit-replay-") as folder:
        git = ["git", "-C", str(ROOT), "archive", "--format=tar", f"{name}^{{commit}}", "src"]
        archive = subprocess.run(git, capture_output=True, check=False)
        if archive.returncode:
            raise SystemExit(f"replay: git archive: {archive.stderr.decode().strip()}")
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        yield Path(folder).resolve()


def replay(
    before: Path, after: Path, cases: Sequence[Case], *, looks: bool = True, progress: Callable[[str], object] = str
) -> list[tuple[Outcome, Outcome]]:
    """Make every launch with both trees, two processes side by side; ``looks`` asks for the emitted IR, too."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="cujit-replay-"))
        path = Path(folder) / "cases"
        path.write_bytes(pickle.dumps(list(cases)))
        trees = []
        for root in (before, after):
            trees.append(Tree(root, path))
            stack.callback(trees[-1].close)
        for tree in trees:
            tree.look(looks and all(tree.has_ir for tree in trees))
        return [_both(trees[0], trees[1], number, progress, case) for number, case in enumerate(cases)]


def _both(
    before: Tree, after: Tree, number: int, progress: Callable[[str], object], case: Case
) -> tuple[Outcome, Outcome]:
    progress(case.name)
    before.begin(number)
    after.begin(number)
    return before.outcome(), after.outcome()


# -- comparison -------------------------------------------------------------------------------------------

_ADDRESS = re.compile(r"\b(0x)?[0-9a-f]{12,16}\b")
"""Addresses of this process in messages."""


@dataclass(frozen=True)
class Comparison:
    """How one launch compares: lines of the IR that differ, what differs in the results, and ratios, after to before.

    ``ir`` is None where no kernel was compiled, or no IR asked for; ``library`` is that of native code that this launch
    is the first to need. A ratio is None where a launch failed.
    """

    name: str
    ir: str | None
    library: str
    results: str
    compile_ratio: float | None
    launch_ratio: float | None


def compare(case: Case, outcomes: Sequence[tuple[Outcome, Outcome]]) -> Comparison:
    """Compare what came of one launch, made once or several times with both trees; times are medians."""
    before, after = outcomes[0]
    return Comparison(
        case.name,
        _ir_difference(before.ir, after.ir) if before.ir or after.ir else None,
        _ir_difference(before.library, after.library),
        _result_difference(before, after),
        _ratio([(a.compile_s, b.compile_s) for a, b in outcomes]),
        _ratio([(a.launch_s, b.launch_s) for a, b in outcomes]),
    )


def _ratio(seconds: Sequence[tuple[float, float]]) -> float | None:
    before, after = (statistics.median(times) for times in zip(*seconds, strict=True))
    return after / before if before and after else None


def _ir_difference(before: bytes, after: bytes) -> str:
    """Give the first lines that differ, as a unified diff."""
    if before == after:
        return ""
    texts = [_named_anew(zlib.decompress(ir).decode()).splitlines() if ir else [] for ir in (before, after)]
    if texts[0] == texts[1]:
        return ""
    first = next((k for k, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(map(len, texts)))
    begin = max(first - 3, 0)
    old, new = (text[begin : begin + 200] for text in texts)
    lines = list(difflib.unified_diff(old, new, lineterm="", n=2))[3:]
    return "\n".join([f"@@ line {first + 1} @@", *lines[:_SHOWN_LINES]])


def _named_anew(ir: str) -> str:
    """Give what has a name in each function a number, in the order in which names appear there."""
    functions = []
    for function in re.split(r"^(?=define )", _REMARK.sub("", ir), flags=re.MULTILINE):
        numbers: dict[str, int] = {}
        functions.append(_NAME.sub(lambda found, own=numbers: _number(found[1] or found[2], own), function))
    return "".join(functions)


def _number(name: str, numbers: dict[str, int]) -> str:
    return f"%{numbers.setdefault(name, len(numbers))}"


def _result_difference(before: Outcome, after: Outcome) -> str:
    """Say what differs first: the error, the printed text, or a byte of an array."""
    errors = [_ADDRESS.sub("ADDRESS", outcome.error) for outcome in (before, after)]
    if errors[0] != errors[1]:
        return f"error: {errors[0] or 'none'}\n   now: {errors[1] or 'none'}"
    if before.printed != after.printed:
        return f"printed: {before.printed[:200]!r}\n     now: {after.printed[:200]!r}"
    for k, (a, b) in enumerate(zip(before.arrays, after.arrays, strict=True)):
        if a != b:
            wrong = [at for at, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
            at = wrong[0]
            return f"array {k}: {len(wrong)} of {len(a)} bytes, the first at {at}: {a[at]:#04x}, now {b[at]:#04x}"
    return ""


# -- report -----------------------------------------------------------------------------------------------


def report(comparisons: Sequence[Comparison]) -> str:
    """Write the comparison for people."""
    unequal = {c.name: c.ir for c in comparisons if c.ir}
    native = {f"native code, first needed by {c.name}": c.library for c in comparisons if c.library}
    wrong = {c.name: c.results for c in comparisons if c.results}
    lines = [*_shown(native), *_shown(unequal), *_shown(wrong)]
    lines.append(f"launches      {len(comparisons):5}")
    with_ir = [c for c in comparisons if c.ir is not None]
    lines.append(
        f"IR equal      {len(with_ir) - len(unequal):5} of {len(with_ir)}" if with_ir else "IR            not compared"
    )
    if native:
        lines.append(f"native code   {len(native):5} differences")
    lines.append(f"results equal {len(comparisons) - len(wrong):5} of {len(comparisons)}")
    for what, ratios in (
        ("compile, CPU", [c.compile_ratio for c in comparisons]),
        ("launch", [c.launch_ratio for c in comparisons]),
    ):
        lines.append(_ratios(what, [r for r in ratios if r is not None]))
    return "\n".join(lines)


def _shown(differences: Mapping[str, str]) -> Iterator[str]:
    """Show some differences whole, and name the others."""
    for name, difference in list(differences.items())[:_SHOWN_CASES]:
        yield name
        yield from (f"    {line}" for line in difference.splitlines())
    if others := list(differences)[_SHOWN_CASES:]:
        yield f"and {len(others)} more: {', '.join(others)}"


def _ratios(what: str, ratios: Sequence[float]) -> str:
    if len(ratios) < 2:
        return f"{what:13} not compared"
    low, middle, high = (statistics.quantiles(ratios, n=20)[k] for k in (0, 9, 18))
    return f"{what:13} {middle:5.2f} after / before, median; from {low:.2f} to {high:.2f} for nine in ten"


def _json(comparisons: Sequence[Comparison]) -> str:
    return json.dumps([vars(c) for c in comparisons], indent=1)


def main() -> int:
    """Read the command line, replay, print; 1 where there is a difference."""
    parser = argparse.ArgumentParser(
        prog="replay.py", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("before", help="a commit, or a directory with src/cujit")
    parser.add_argument("after", nargs="?", default=str(ROOT), help="the same; without it this tree as it is")
    parser.add_argument("--results", action="store_true", help="compare results, compile and launch, and no IR")
    parser.add_argument("--only", default="", metavar="PATTERN", help="launches whose names match, those of --tail too")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one of so many launches, for a first look")
    parser.add_argument("--tail", action="store_true", help="the ones that compile for minutes, too")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="times are medians of so many")
    parser.add_argument("--json", action="store_true", help="print every launch as JSON")
    asked = parser.parse_args()
    cases = every_case() + (tail_cases() if asked.tail or asked.only else [])
    cases = [case for case in cases if re.search(asked.only, case.name)][:: asked.every]
    if not cases:
        parser.error(f"no launch is called like {asked.only}")
    with checked_out(asked.before) as before, checked_out(asked.after) as after:
        rounds = [replay(before, after, cases, looks=not asked.results, progress=_tell) for _ in range(asked.repeat)]
    _tell("")
    comparisons = [compare(case, list(pairs)) for case, *pairs in zip(cases, *rounds, strict=True)]
    print(_json(comparisons) if asked.json else report(comparisons))
    has_ir = not asked.results and any(c.ir is not None for c in comparisons)
    return int(any(c.ir or c.library if has_ir else c.results for c in comparisons))


def _tell(name: str) -> None:
    """Show what is being done, where somebody looks."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{name}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
