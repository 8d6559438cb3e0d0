"""Hold a release to what its users do with it: ``make release-check``, or ``python tools/release_check.py [PYTHON …]``.

    build       the sdist, the wheel out of it, and the wheel out of the tree: both wheels are the same to the bit
    metadata    twine's strict check; what is in the wheel and the sdist, and what may not be
    PYTHON …    a new environment of each interpreter, the wheel and its toolkit in it, demo and smoke suite under
                ``-X dev -W error``; those of 3.10 to 3.14 and 3.14t that this machine has, where none is named
    tutorial    the eight steps and the README's ten lines by copy and paste, in a new environment and an empty folder
    clone       ``make demo`` in a new clone, with nothing but an interpreter
    old cache   what commit ``OLD`` left in a cache does not disturb this version, nor what this one adds that commit

One line each; it ends with 1 where one failed, and with what that wrote. It says which interpreters are not here.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["ROOT", "StepFailedError", "main", "run", "wrong_with_sdist", "wrong_with_wheel"]

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14", "3.14t")
OLD = "1e8a532"
"""The first commit whose cache users may have."""

_IN_WHEEL = (
    "cujit/py.typed",
    "cujit/__init__.pyi",
    "cujit/devices/cpu/runtime/x86_64/",
    "cujit/devices/cpu/runtime/aarch64/",
    "cujit/devices/launcher/native/x86_64/launcher.so",
    "cujit/devices/launcher/native/aarch64/launcher.so",
    ".dist-info/licenses/LICENSE",
    ".dist-info/entry_points.txt",
)
_IN_SDIST = (
    "/pyproject.toml",
    "/README.md",
    "/LICENSE",
    "/CHANGELOG.md",
    "/src/cujit/__init__.py",
    "/tests/conftest.py",
)
_NOWHERE = (".pyc", "__pycache__", ".whl", ".so", ".git/", ".venv")
_FOR_ALL = "cujit/devices/launcher/native/x86_64/launcher.so", "cujit/devices/launcher/native/aarch64/launcher.so"
"""What is of one processor, and there for each: ``make native`` builds it without Python's headers and without libc."""


_OF_OURS = ("PYTHON", "CUJIT_", "VIRTUAL_", "MAKE", "MFLAGS")
"""Beginnings of variables that are of whoever runs this, and nothing that a user has."""


class StepFailedError(Exception):
    """A step that failed, with what it wrote."""


def main() -> int:
    """Do every step, print a line each, and tell whether all is right."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    asked.add_argument("pythons", nargs="*", help="interpreters; those of this machine where none is named")
    pythons = asked.parse_args().pythons
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        steps: list[tuple[str, Callable[[], str]]] = [
            ("build", lambda: _build(work)),
            ("metadata", lambda: _metadata(work)),
            *(
                (f"python {name}", lambda found=found: _installed(work, found))
                for name, found in _interpreters(pythons)
            ),
            ("tutorial", lambda: _tutorial(work)),
            ("clone", lambda: _clone(work)),
            ("old cache", lambda: _old_cache(work)),
        ]
        return int(sum([not _done(name, step) for name, step in steps]) > 0)


def _done(name: str, step: Callable[[], str]) -> bool:
    try:
        print(f"{name:12} {step()}", flush=True)
    except StepFailedError as failed:
        print(f"{name:12} FAILED\n{failed}", flush=True)
        return False
    return True


def run(*command: str | Path, cwd: Path = ROOT, **variables: str) -> str:
    """Run a command to its end, and give what it printed."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(_OF_OURS)}
    done = subprocess.run(
        command, cwd=cwd, env={**plain, **variables}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        raise StepFailedError(f"$ {' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


# -- what is shipped ----------------------------------------------------------------------------------------------


def _build(work: Path) -> str:
    """Build the sdist, the wheel out of it, and the wheel out of the tree, which has to be the same."""
    dist, direct = work / "dist", work / "direct"
    # A time of its own, or the two wheels would differ in the times of their files.
    when = run("git", "log", "-1", "--format=%ct").strip()
    run(sys.executable, "-m", "build", "--outdir", dist, SOURCE_DATE_EPOCH=when)
    run(sys.executable, "-m", "build", "--wheel", "--outdir", direct, SOURCE_DATE_EPOCH=when)
    wheels = [next(folder.glob("*.whl")) for folder in (dist, direct)]
    digests = {hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels}
    if len(digests) > 1:
        raise StepFailedError("the wheel out of the sdist is another than the wheel out of the tree")
    return f"{wheels[0].name}, {wheels[0].stat().st_size / 1e6:.2f} MB, sha256 {digests.pop()[:16]}…"


def _metadata(work: Path) -> str:
    """Look at what the distributions say of themselves, and at what is in them."""
    dist = work / "dist"
    wheel, sdist = next(dist.glob("*.whl")), next(dist.glob("*.tar.gz"))
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    with zipfile.ZipFile(wheel) as opened:
        wrong = wrong_with_wheel(opened.namelist())
    with tarfile.open(sdist) as unpacked:
        wrong += wrong_with_sdist(unpacked.getnames())
    if wrong:
        raise StepFailedError("\n".join(wrong))
    return "twine finds nothing, and all that is needed is in"


def wrong_with_wheel(names: Sequence[str]) -> list[str]:
    """Say what a wheel of these files lacks, and what it should not have."""
    strange = [name for name in names if not name.startswith(("cujit/", "cujit-"))]
    return [*_wrong("wheel", names, _IN_WHEEL), *(f"the wheel has {name}" for name in strange)]


def wrong_with_sdist(names: Sequence[str]) -> list[str]:
    """Say what an sdist of these files lacks, and what it should not have."""
    return _wrong("sdist", names, _IN_SDIST)


def _wrong(what: str, names: Sequence[str], needed: Sequence[str]) -> list[str]:
    lacking = [part for part in needed if not any(part in name for name in names)]
    strange = [
        name
        for name in names
        if any(part in name for part in _NOWHERE) and not name.endswith(_FOR_ALL) and "/tests/goldens/" not in name
    ]
    return [*(f"the {what} lacks {part}" for part in lacking), *(f"the {what} has {name}" for name in strange)]


# -- where it is installed --------------------------------------------------------------------------------------------


def _interpreters(named: Sequence[str]) -> list[tuple[str, str | None]]:
    """List interpreters with their names; None for one that this machine lacks."""
    if named:
        return [(Path(name).name.removeprefix("python"), name) for name in named]
    return [(version, shutil.which(f"python{version}")) for version in VERSIONS]


def _installed(work: Path, python: str | None) -> str:
    """Install the wheel with its toolkit into a new environment, and use it there."""
    if python is None:
        return "is not on this machine"
    home = work / "env"
    shutil.rmtree(home, ignore_errors=True)
    run(python, "-m", "venv", home)
    own = home / "bin" / "python"
    wheel = next((work / "dist").glob("*.whl"))
    run(own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[cu13]")
    smoke = Path(shutil.copy(ROOT / "tools" / "release_smoke.py", work))
    use = functools.partial(run, own, "-X", "dev", "-W", "error", cwd=work, CUJIT_CACHE_DIR=str(work / "cache"))
    use("-m", "cujit", "demo")
    said = use(smoke).strip()
    return f"{run(own, '-c', 'import platform; print(platform.python_version())').strip()}: demo, and {said}"


def _tutorial(work: Path) -> str:
    """Do what a newcomer does, in a shell: every line is typed, every file written, every output compared."""
    sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]
    from pages import Page  # beside the tests, which follow the same pages in one process
    from steps import is_shown, steps

    run(sys.executable, "-m", "venv", work / "own")
    place, count, status = work / "newcomer", 0, "0"
    place.mkdir()
    path, wheels = (
        f"{work / 'own' / 'bin'}:{os.environ['PATH']}",
        f"{work / 'dist'} {os.environ.get('PIP_FIND_LINKS', '')}",
    )
    own = {"PATH": path, "PIP_FIND_LINKS": wheels, "XDG_CACHE_HOME": str(work / "caches"), "CUDA_VISIBLE_DEVICES": ""}
    pages = [Page(f"tutorial/{file.name}") for file in sorted((ROOT / "docs/tutorial").glob("*.md"))]
    for page, what, name, text in ((one, *step) for one in pages for step in steps(one)):
        if what == "write":
            (place / name).parent.mkdir(exist_ok=True)
            (place / name).write_text(text)
            continue
        if name.startswith("CUJIT_COMPILE=never"):  # "in an empty directory"
            place = Path(tempfile.mkdtemp(dir=work))
        typed = f'{name.replace("$?", status)}\necho "status=$?"'
        said, _, status = run("bash", "-c", typed, cwd=place, **own).strip().rpartition("status=")
        right = name.startswith("pip ") or is_shown(said, text)
        if not right or (status != "0" and "failed" not in text):
            raise StepFailedError(f"{page.name}: $ {name}\n{said}\nand the page shows\n{text}")
        count += 1
    readme = (ROOT / "README.md").read_text().partition("```python\n")[2].partition("```")[0]
    shown = run(work / "own" / "bin" / "python", "-c", readme, cwd=place, **own).strip()
    if f"# {shown}\n" not in readme:
        raise StepFailedError(f"the README's ten lines print {shown}")
    return f"the README's ten lines, and {count} commands on {len(pages)} pages, each with what it shows"


def _clone(work: Path) -> str:
    """Run the demo as the README says it, in a new clone of what is committed."""
    run("git", "clone", "--quiet", "--no-hardlinks", ROOT, work / "clone")
    return run("make", "demo", f"PYTHON={sys.executable}", cwd=work / "clone").strip().splitlines()[-1]


_COMPILES = """
import cujit, numpy as np
source, x = 'extern "C" __global__ void k(int *p) { *p = 1; }', np.zeros(1, np.int32)
assert len(bytes(cujit.compile(source, arch="sm_90").data)) > 100
cujit.load(cujit.compile(source, arch="sm_90", to="ptx"), cujit.cpu())["k"][1, 1](x)
assert x[0] == 1
"""


def _old_cache(work: Path) -> str:
    """Let the old commit fill a cache, this tree use it, and the old commit use what this one left."""
    try:
        archive = work / "old.tar"
        run("git", "archive", "-o", archive, OLD, "src")
    except StepFailedError:
        return f"commit {OLD} is not in this clone, so that nothing was compared"
    with tarfile.open(archive) as packed:
        packed.extractall(work / "old", filter="data")
    for tree in (work / "old", ROOT, work / "old", ROOT):
        run(
            sys.executable, "-W", "error", "-c", _COMPILES,
            cwd=work, PYTHONPATH=str(tree / "src"), CUJIT_CACHE_DIR=str(work / "shared"),
        )  # fmt: skip
    own = {"PYTHONPATH": str(ROOT / "src"), "CUJIT_CACHE_DIR": str(work / "shared")}
    said = run(sys.executable, "-m", "cujit", "cache", "verify", cwd=work, **own)
    return f"used by commit {OLD}, this one, and both again; {said.strip().splitlines()[-1]}"


if __name__ == "__main__":
    sys.exit(main())
