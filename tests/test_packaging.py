"""Where programs live: a zip, directories that nothing may be executed in, and systems without /proc or HOME."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import distributions
from pathlib import Path

import numpy as np
import pytest

from cujit.integrations import pyinstaller_build
from cujit.toolchain.libraries import find_library
from processes import printed

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

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


def test_zip_extracts_into_a_private_directory(zipped: Path, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("place", ["CONDA_PREFIX", "prefix"])
def test_libraries_of_a_conda_environment_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    for name in ("lib/libnvrtc.so.13", "nvvm/lib64/libnvvm.so.4"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    if place == "prefix":
        monkeypatch.setattr(sys, "prefix", str(tmp_path))  # not activated
    else:
        monkeypatch.setenv(place, str(tmp_path))
    assert find_library("nvrtc", ()) == str(tmp_path / "lib/libnvrtc.so.13")
    assert find_library("nvvm", ()) == str(tmp_path / "nvvm/lib64/libnvvm.so.4")


def _runfiles(root: Path) -> str:
    """Lay out what is installed as Bazel does, links in a directory for each distribution, and return PYTHONPATH."""
    paths = [root / "others"]
    paths[0].mkdir()
    site = Path(np.__file__).parents[1]
    for entry in site.iterdir():
        if not entry.name.startswith(("nvidia", "__")):
            (paths[0] / entry.name).symlink_to(entry)
    for each in distributions(path=[str(site)]):
        name = each.metadata["Name"]
        if name.startswith("nvidia-") and not name.startswith("nvidia-cuda-cccl"):
            paths.append(root / name)
            for file in each.files or ():
                link = root / name / file
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(str(each.locate_file(file)))
    return os.pathsep.join(map(str, paths))


def test_container_without_proc_and_home_compiles(zipped: Path, tmp_path: Path) -> None:
    """The wheels lie in a directory each; where nothing may be executed, launches run in Python."""
    (files := tmp_path / "noexec").mkdir()
    (runfiles := tmp_path / "runfiles").mkdir()
    environment = {
        "PYTHONPATH": f"{zipped}/libs{os.pathsep}{_runfiles(runfiles)}",
        "TMPDIR": str(files),
        "CUJIT_CACHE_DIR": os.environ["CUJIT_CACHE_DIR"],
    }
    mounts = f"mount -t tmpfs -o noexec,mode=700 none {files} && mount -t tmpfs none /proc"
    code = "import cujit\ncujit.emulate()\n" + _LAUNCH.replace("cujit.cpu()", "cujit.gpu(0)")
    done = _in_namespace(mounts, sys.executable, "-S", "-c", code, **environment)
    assert done.stdout.split()[:3] == ["42", "42", "False"], done.stderr


_OTHER_INTERPRETER = """
import sys
sys.path[:] = PATHS
import cujit
from cujit.errors import UnsupportedError
for name in ("compile", "cpu", "registry"):
    try: getattr(cujit, name)
    except UnsupportedError as e: print(e.message)
print("numpy" in sys.modules, flush=True)
"""
_INTERPRETERS = f"""
import importlib, sys
import cujit
name = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
interpreters = importlib.import_module(name)
interpreters.run_string(interpreters.create(), {_OTHER_INTERPRETER!r}.replace("PATHS", repr(sys.path)))
device = cujit.cpu()
print(device.zeros(1, "int32").numpy()[0])
"""


def test_subinterpreter_gets_an_error_and_main_continues() -> None:
    sentence = "cujit works only in the main interpreter of a process, and this is a subinterpreter"
    assert printed(_INTERPRETERS).splitlines() == [sentence] * 3 + ["False", "0"]


def test_pyinstaller_hook_collects_modules_data_and_toolkit() -> None:
    (place,) = pyinstaller_build.hook_directories()
    project = tomllib.loads((_PACKAGE.parents[1] / "pyproject.toml").read_text())["project"]
    (point,) = project["entry-points"]["pyinstaller40"].values()
    assert point == f"{pyinstaller_build.__name__}:hook_directories"
    hook = runpy.run_path(f"{place}/hook-cujit.py")
    assert {"cujit.loading", "cujit.compiler.isolation.child", "cuda.bindings.nvrtc"} <= set(hook["hiddenimports"])
    assert not [name for name in hook["hiddenimports"] if name.startswith(("cujit.torch", "cujit.integrations"))]
    found = {os.path.join(place, os.path.basename(file)) for file, place in hook["datas"]}
    machine = os.uname().machine
    for ours in (f"devices/launcher/native/{machine}/launcher.so", "toolchain/host/vector", "emulator/functions.txt"):
        assert f"cujit/{ours}" in found
    assert [name for name in found if os.path.basename(name).startswith("libnvrtc.so")]
    assert [name for name in found if re.fullmatch(r"llvmlite-.*\.dist-info/METADATA", name)]
