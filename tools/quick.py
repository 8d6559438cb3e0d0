"""Name the tests that concern what changed since the main branch; ``make quick`` runs them.

A test concerns a module if it imports the module, or has the name of the module. If no test does either, those of the
package count. Tests in the folder of the module come first, and a few tests that guard all of the code come last.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
GUARDS = ("test_surface", "test_import", "test_renames", "test_prose", "test_house")
"""Files of ``tests`` that look at all of the code, and take a second each."""


def chosen_tests(changed: Iterable[str]) -> list[str]:
    """Return the paths of test files for changed paths: those named after a change first, then the others."""
    texts = {path: path.read_text() for path in sorted((ROOT / "tests").rglob("test_*.py"))}
    named: dict[Path, None] = {}
    importing: dict[Path, None] = {}
    for path in map(Path, changed):
        named |= dict.fromkeys(test for test in texts if test.relative_to(ROOT) == path or test.stem in _names(path))
        own = ROOT / "tests" / Path(*path.parts[2:-1])
        importing |= dict.fromkeys(sorted(_importing(_module(path), texts), key=lambda test: own not in test.parents))
    guards = [ROOT / f"tests/{name}.py" for name in GUARDS]
    chosen = dict.fromkeys([*named, *importing, *guards])
    return [str(test.relative_to(ROOT)) for test in chosen if test in texts]


def _names(path: Path) -> Iterator[str]:
    """Yield what a test of a module, of a page or of a tool is called."""
    yield f"test_{path.stem}"
    if path.suffix == ".md":
        yield f"test_{path.stem.replace('-', '_')}_page"


def _module(path: Path) -> str:
    """Return the dotted name of a module of the package or of a helper of the tests; "" for other files."""
    home, *parts = path.with_suffix("").parts
    if path.suffix not in (".py", ".pyi") or home not in ("src", "tests", "tools", "benchmarks", "fuzz"):
        return ""
    return ".".join(part for part in parts if part != "__init__")


def _importing(module: str, texts: dict[Path, str]) -> list[Path]:
    """Find the tests that import a module, otherwise the tests that import its package."""
    while module and module != "cujit":
        room, _, name = module.rpartition(".")
        imports = re.compile(
            rf"\b(?:import|from) {re.escape(module)}\b"
            + (rf"|\bfrom {re.escape(room)} import \(?[^()]*?\b{name}\b" if room else "")
        )
        if found := [test for test, text in texts.items() if name in text and imports.search(text)]:
            return found
        module = room
    return []


def changed_paths() -> list[str]:
    """Return what differs from the main branch, files that git does not know yet among them."""
    base = _git("merge-base", "main", "HEAD")[:1] or ["HEAD"]
    return [*_git("diff", "--name-only", "--diff-filter=d", *base), *_git("ls-files", "--others", "--exclude-standard")]


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


if __name__ == "__main__":
    print("\n".join(chosen_tests(sys.argv[1:] or changed_paths())))
