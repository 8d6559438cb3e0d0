"""Where programs live: a zip, directories that nothing may be executed in, and systems without /proc or HOME."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from processes import printed

_PACKAGE = Path(__file__).parents[1] / "src" / "cujit"
_LAUNCH = """
import sys
import numpy as np
import cujit
from cujit.workers.package_files import data_path
from cujit.devices.launcher.library import library_or_none
KERNEL = '#include <vector>\\nextern "C" __global__ void k(int *p) { p[threadIdx.x] = 42; }'
device = cujit.cpu()
out = device.zeros(2, np.int32)
cujit.jit(KERNEL, device=device, host_headers="stub")["k"][1, 2](out)
print(*out.numpy(), library_or_none() is not None, data_path())
"""


@pytest.fixture(scope="module")
def zipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package in a zip, below a directory of it."""
    path = tmp_path_factory.mktemp("zipped") / "app.zip"
    compiled = f".{sys.implementation.cache_tag}.pyc"
    with zipfile.ZipFile(path, "w") as archive:
        for file in filter(Path.is_file, _PACKAGE.rglob("*")):
            name = Path("libs", "cujit", file.relative_to(_PACKAGE))
            if name.parent.name != "__pycache__":
                archive.write(file, name)
            elif name.name.endswith(compiled):  # as tools that make zips leave it
                archive.write(file, name.parents[1] / name.name.replace(compiled, ".pyc"))
    return path


def _zipped(path: Path, folder: Path, code: str = _LAUNCH) -> list[str]:
    """Run code with the package from a zip, and return the words that it prints."""
    found = printed(f"import sys\nsys.path.insert(0, {f'{path}/libs'!r})\n{code}", environment={"TMPDIR": str(folder)})
    return found.split()


def test_a_zip_extracts_its_files_into_a_directory_of_this_user_alone(zipped: Path, tmp_path: Path) -> None:
    *out, is_native, place = _zipped(zipped, tmp_path)
    assert (out, is_native) == (["42", "42"], "True")
    (made,) = tmp_path.iterdir()
    assert Path(place) == made
    assert made.stat().st_mode & 0o777 == 0o700
    shows = "from cujit.workers.package_files import data_path; print(data_path())"
    header = made / "toolchain" / "host" / "vector"
    expected = header.read_bytes()
    header.write_bytes(b"#error of somebody else")
    assert _zipped(zipped, tmp_path, shows) == [place]
    assert header.read_bytes() == expected
    made.chmod(0o777)
    (other,) = _zipped(zipped, tmp_path, shows)
    assert other != place
    assert not Path(other).exists(), "it was of that process"


def _in_namespace(mounts: str, *command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command where some mounts are made first; skip the test if this system allows none."""
    entered = ["unshare", "--user", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*entered, "true"], capture_output=True).returncode:
        pytest.skip("this system allows no mounts")
    script = [*entered, "sh", "-c", f'{mounts} && exec "$@"', "sh", *map(str, command)]
    return subprocess.run(script, env=environment, capture_output=True, text=True, check=False)


def test_where_nothing_may_be_executed_launches_run_in_python(zipped: Path, tmp_path: Path) -> None:
    paths = os.pathsep.join([f"{zipped}/libs", *sys.path])
    kept = {name: os.environ[name] for name in ("CUJIT_CACHE_DIR", "HOME") if name in os.environ}
    mounts = f"mount -t tmpfs -o noexec,mode=700 none {tmp_path}"
    done = _in_namespace(mounts, sys.executable, "-c", _LAUNCH, PYTHONPATH=paths, TMPDIR=str(tmp_path), **kept)
    assert done.stdout.split()[:3] == ["42", "42", "False"], done.stderr
