"""Keys survive a moved install: another prefix, home, working directory and user give the same keys and images."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cujit

PROGRAM = """
import hashlib, json
import cujit

HALF = '#include <cuda_fp16.h>\\n__global__ void k(__half *x) { *x = __float2half(2); }'
ADD = 'extern "C" __device__ int add(int a, int b) { return a + b; }'
USE = 'extern "C" __device__ int add(int, int); __global__ void k(int *x) { *x = add(*x, 1); }'
made = {
    "ptx": cujit.compile(HALF, arch="compute_80"),
    "cubin": cujit.compile(HALF, arch="sm_90", lineinfo=True),
    "link": cujit.link([cujit.compile(part, arch="sm_90", rdc=True) for part in (ADD, USE)], arch="sm_90"),
    "fatbin": cujit.build(HALF, targets=["compute_80"]),
}
found = {name: (one.provenance.key.digest, hashlib.sha256(one.data).hexdigest()) for name, one in made.items()}
print(json.dumps([cujit.__file__, found, [one.provenance.outcome.value for one in made.values()]]))
"""

SITE = Path(sysconfig.get_path("purelib"))


def install(prefix: Path) -> None:
    """Put cujit and NVIDIA's wheels under a prefix, and beside them links to what else is installed."""
    prefix.mkdir(parents=True)
    shutil.copytree(Path(cujit.__file__).parent, prefix / "cujit")
    for path in SITE.iterdir():
        if path.name.startswith(("nvidia", "cuda_toolkit")):
            shutil.copytree(path, prefix / path.name, copy_function=_linked)
        elif not path.name.startswith(("cujit", "_editable_impl_cujit")) and path.suffix != ".pth":
            (prefix / path.name).symlink_to(path)


def _linked(source: str, target: str) -> str:
    """Give a file a second name, which takes no room; a copy where it is of another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


def run(prefix: Path, home: Path, *, python: str = sys.executable, uid: int | None = None) -> Any:
    """Run the program by the install under a prefix alone; give where cujit is, and the keys with the images."""
    home.mkdir(mode=0o700)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(prefix), "PYTHONNOUSERSITE": "1"}
    if uid is not None:
        os.chown(home, uid, uid)
    done = subprocess.run(
        [python, "-S", "-c", PROGRAM],
        env={**environment, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
        user=uid,
        group=uid,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A directory that other users may enter, as where programs are installed."""
    if not (SITE / "nvidia").is_dir():
        pytest.skip("NVIDIA's wheels are not installed in this environment's own directory")
    with tempfile.TemporaryDirectory(prefix="cujit-moved-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


def test_two_prefixes_and_two_users_have_equal_keys_and_images(place: Path) -> None:
    one, two = place / "one" / "site", place / "another" / "much" / "deeper" / "prefix"
    install(one)
    install(two)
    first, second = run(one, place / "home"), run(two, place / "elsewhere")
    assert [Path(said[0]).parents[1] for said in (first, second)] == [one, two]
    assert first[1] == second[1]
    assert set(second[2]) == {"made"}
    python = _python_of_others()
    if os.geteuid() or python is None:
        pytest.skip("another user can't be tried here: the prefixes were compared")
    assert run(two, place / "nobody", python=python, uid=65534)[1] == first[1]


def _python_of_others() -> str | None:
    """Find a Python of this version that a user without rights can start."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/bin/python{version}"):
        with contextlib.suppress(OSError):
            found = subprocess.run(
                [python, "-S", "-c", f"import json; open({str(SITE / 'numpy/version.py')!r})"],
                user=65534,
                group=65534,
                env={},
                cwd="/",
                capture_output=True,
                check=False,
            )
            if found.returncode == 0:
                return python
    return None
