"""Run an application of cujit in each of the places where programs live: ``make packaging``.

    wheel        in an environment, the wheel and its toolkit installed
    zipapp       cujit and the application in a zip
    Bazel        each distribution in a directory of its own, of links, and every one on PYTHONPATH
    conda        libraries and headers in the prefix of the interpreter, and no wheels of NVIDIA
    container    ``pip install --target`` in a root of its own, read-only, without /proc and HOME
    one folder   frozen by PyInstaller; and with CUJIT_PYTHON
    one file     frozen by PyInstaller

Each compiles, links, launches on the CPU device and, in a second process, emulates. One line each, with seconds and
sizes; it ends with 1 where one failed. ``--only NAME`` does one of them.
"""

from __future__ import annotations

import argparse
import functools
import importlib.metadata
import os
import platform
import shutil
import sys
import tempfile
import time
import zipapp
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from release_check import ROOT, StepFailedError, run

__all__ = ["main"]

_APP = ROOT / "tools" / "package_places_app.py"
_FROZEN = ("pyinstaller>=6.10", "pyinstaller-hooks-contrib")


class _Places:
    """What is built once for all: the wheel, and an environment with it."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.python = work / "env" / "bin" / "python"

    def build(self) -> str:
        """Build the wheel and install it with its toolkit and PyInstaller."""
        run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", self.work / "dist", ROOT)
        run(sys.executable, "-m", "venv", self.work / "env")
        self.install(f"{self.wheel}[cu13]", *_FROZEN)
        return f"{self.wheel.name}, environment of {_size(self.work / 'env')}"

    @property
    def wheel(self) -> Path:
        """The file of the wheel."""
        return next((self.work / "dist").glob("*.whl"))

    @property
    def site(self) -> Path:
        """The directory of packages of the environment."""
        return next((self.work / "env").glob("lib/python*/site-packages"))

    @property
    def base(self) -> Path:
        """The interpreter that the environment was made from; it has none of the packages."""
        return Path(run(self.python, "-c", "import sys; print(sys._base_executable)").strip())

    def install(self, *words: str) -> None:
        """Install packages into the environment."""
        run(self.python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile", *words)

    def use(self, *command: str | Path, expected: str, **variables: str) -> str:
        """Run an application in both of its modes with an empty cache, and return what it says it did."""
        cache = {"CUJIT_CACHE_DIR": str(self.work / "cache"), "HOME": str(self.work), **variables}
        shutil.rmtree(self.work / "cache", ignore_errors=True)
        begin = time.monotonic()
        said, emulated = (run(*command, *mode, cwd=self.work, **cache).strip() for mode in ((), ("emulate",)))
        if expected not in said:
            raise StepFailedError(f"expected {expected} in: {said}")
        return f"{said.partition('; cujit in')[0]}; {emulated.partition('; cujit in')[0]}; {_seconds(begin)}"


def _seconds(begin: float) -> str:
    return f"{time.monotonic() - begin:.1f} s"


def _size(path: Path) -> str:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file() and not file.is_symlink()]
    return f"{sum(file.stat().st_size for file in files) / 1e6:.0f} MB"


def _in_wheel(places: _Places) -> str:
    return places.use(places.python, _APP, expected="site-packages")


def _in_zip(places: _Places) -> str:
    """Make a zipapp; compiled modules of others are in the environment, as no interpreter loads them from a zip."""
    source, made = places.work / "zipped", places.work / "app.pyz"
    with zipfile.ZipFile(places.wheel) as wheel:
        wheel.extractall(source)
    shutil.copy(_APP, source / "__main__.py")
    zipapp.create_archive(source, made)
    did = places.use(places.python, made, expected=f"cujit in {made}", TMPDIR=str(places.work))
    return f"{_size(made)}; {did}"


def _in_runfiles(places: _Places) -> str:
    """Lay distributions out as rules_python does: a repository of links each."""
    root = places.work / "app.runfiles"
    sites = []
    for each in importlib.metadata.distributions(path=[str(places.site)]):
        site = root / f"rules_python_pip_311_{each.metadata['Name'].lower().replace('-', '_')}" / "site-packages"
        for file in each.files or ():
            source = Path(str(each.locate_file(file)))
            if ".." not in file.parts and source.is_file():
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                (site / file).symlink_to(source)
        sites.append(str(site))
    main = root / "_main" / "app.py"
    main.parent.mkdir()
    shutil.copy(_APP, main)
    paths = os.pathsep.join(sites)
    return f"{len(sites)} repositories; {places.use(places.base, main, expected='app.runfiles', PYTHONPATH=paths)}"


def _in_prefix(places: _Places) -> str:
    """Lay files out as conda does: what NVIDIA's wheels have lies in the interpreter's prefix."""
    prefix = places.work / "conda"
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    base = places.base.parents[1]
    links = functools.partial(shutil.copytree, copy_function=_link, symlinks=True, dirs_exist_ok=True)
    (prefix / "bin").mkdir(parents=True)
    shutil.copy(places.base.resolve(), prefix / "bin" / version)
    links(base / "lib" / version, prefix / "lib" / version, ignore=shutil.ignore_patterns("site-packages", "test"))
    for file in (base / "lib").glob("libpython*"):
        shutil.copy(file, prefix / "lib")
    site = prefix / "lib" / version / "site-packages"
    links(places.site, site, ignore=shutil.ignore_patterns("nvidia*", "cuda_toolkit*", "pip", "PyInstaller"))
    toolkit = places.site / "nvidia" / "cu13"
    links(toolkit / "lib", prefix / "lib")
    links(toolkit / "nvvm", prefix / "nvvm")
    headers = prefix / "targets" / f"{platform.machine()}-linux" / "include"
    links(toolkit / "include", headers)
    did = places.use(prefix / "bin" / version, _APP, expected="conda/lib", CONDA_PREFIX=str(prefix))
    return f"{_size(prefix)}; {did}"


def _link(source: str, target: str) -> None:
    """Link a file, or copy it to another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


_ENTER = """
set -e
mount -t tmpfs -o mode=755 none {root}
cd {root}
for each in bin lib lib32 lib64 usr; do
  if [ -L /$each ]; then cp -P /$each .; elif [ -d /$each ]; then mkdir $each; mount --rbind /$each $each; fi
done
mkdir -p tmp etc; mount -t tmpfs none tmp
for each in {prefix} {target}; do mkdir -p .$each; mount --rbind $each .$each; done
mount -o remount,ro,bind . 2>/dev/null || true
exec chroot . /usr/bin/env -i PYTHONPATH={target} CUJIT_CACHE_DIR=/tmp/cache {python} "$@"
"""


def _in_container(places: _Places) -> str:
    """Install with ``--target``, and run in a root that has no /proc, /dev, HOME nor variables."""
    target, root = places.work / "target", places.work / "root"
    root.mkdir()
    run(places.python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile", "--target", target,
        f"{places.wheel}[cu13]")  # fmt: skip
    shutil.copy(_APP, target / "app.py")
    base = places.base.resolve()
    script = _ENTER.format(root=root, prefix=base.parents[1], target=target, python=base)
    entered = ["unshare", "--mount"] if os.getuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    did = places.use(*entered, "sh", "-c", script, "sh", target / "app.py", expected="target/cujit")
    return f"{_size(target)}; {did}"


def _frozen(places: _Places, mode: str) -> str:
    begin = time.monotonic()
    where = places.work / mode
    run(places.python, "-m", "PyInstaller", f"--{mode}", "--name", "app", "--log-level", "WARN", "--distpath", where,
        "--workpath", places.work / "build", "--specpath", places.work, _APP)  # fmt: skip
    program = where / "app" / "app" if mode == "onedir" else where / "app"
    built = f"built in {_seconds(begin)}, {_size(where)}"
    did = places.use(program, expected="no separate process (set CUJIT_PYTHON", TMPDIR=str(places.work))
    if mode == "onedir":
        python = {"CUJIT_PYTHON": str(places.python)}
        places.use(program, expected="compiled in a separate process", **python)
        did += "; with CUJIT_PYTHON, compiled in a separate process"
    return f"{built}; {did}"


_STEPS: Sequence[tuple[str, Callable[[_Places], str]]] = (
    ("wheel", _in_wheel),
    ("zipapp", _in_zip),
    ("Bazel", _in_runfiles),
    ("conda", _in_prefix),
    ("container", _in_container),
    ("one folder", lambda places: _frozen(places, "onedir")),
    ("one file", lambda places: _frozen(places, "onefile")),
)


def main() -> int:
    """Do every step, print a line each, and tell whether all is right."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    asked.add_argument("--only", action="append", choices=[name for name, _ in _STEPS], help="do this one; repeatable")
    only, failed = asked.parse_args().only, 0
    with tempfile.TemporaryDirectory(prefix="cujit-packaging-") as folder:
        places = _Places(Path(folder))
        for name, step in (("build", _Places.build), *_STEPS):
            if not only or name in only or name == "build":
                try:
                    print(f"{name:12} {step(places)}", flush=True)
                except StepFailedError as e:
                    print(f"{name:12} FAILED\n{e}", flush=True)
                    failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
