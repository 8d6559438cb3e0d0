"""Wheels that bring kernels: built by each back end, the same to the bit twice, and run with nothing compiled."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import cujit
from cujit import worklist
from cujit.cache.pack import Pack
from cujit.cache.trust import Trust
from cujit.errors import CompileError, OptionError
from cujit.integrations.wheels import WantedPack
from installed import install
from pages import Page
from raising import raises
from steps import steps

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PAGE = Page("shipping.md")
EXAMPLE = ROOT / "examples/kernel-library"
BUILD_TOOLS = ["hatchling>=1.27", "editables", "setuptools>=77", "scikit-build-core>=0.11", "meson-python>=0.18"]
BUILD_TOOLS += [tool for tool in ("cmake", "ninja") if shutil.which(tool) is None]
KERNEL = 'extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }\n'

Build = Callable[..., Path]


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build back ends out of the package index, and cujit's entry points as they are now."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "build-tools"
    with open(shared / "build-tools.lock", "w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        if not folder.exists():
            pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile"]
            pip += ["--target", str(folder)]
            done = subprocess.run([*pip, *BUILD_TOOLS], capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"the package index does not give the build back ends: {done.stderr[-300:]}")
            said = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
            points = "\n".join(
                f"[{group}]\n" + "\n".join(f"{k} = {v}" for k, v in of.items()) for group, of in said.items()
            )
            install(folder, "cujit", {}, points=points)
    return folder


@pytest.fixture
def build(tools: Path, tmp_path: Path) -> Build:
    """Build the wheel of a project by its back end, and return it; ``editable`` as for ``pip install -e``."""

    def build(project: Path, *, editable: bool = False, **environment: str) -> Path:
        out = tmp_path / f"wheels-{project.name}-{len(list(tmp_path.glob('wheels-*')))}"
        call = f"build_{'editable' if editable else 'wheel'}"
        backend = tomllib.loads((project / "pyproject.toml").read_text())["build-system"]["build-backend"]
        code = f"import sys, {backend} as b; sys.stdout.flush(); b.{call}(sys.argv[1])"
        out.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", code, str(out)],
            cwd=project,
            env=os.environ
            | {"PYTHONPATH": f"{tools}:{ROOT / 'src'}", "PATH": f"{tools / 'bin'}:{os.environ['PATH']}"}
            | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        (wheel,) = out.glob("*.whl")
        return wheel

    return build


def keys_in(wheel: Path, member: str, folder: Path) -> dict[str, str]:
    """Take a pack out of a wheel, and give its images: the architecture of each, by kernel."""
    with zipfile.ZipFile(wheel) as archive:
        path = Path(archive.extract(member, folder))
    pack = Pack(path, Trust.of_process())
    assert [fault for _, fault in pack.verify() if fault] == []
    heads = [pack.peek(entry.digest) for entry in pack.entries()]
    return {str(head[0].arch): head[0].names[0] for head in heads if head is not None}


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A list of one kernel."""
    folder = tmp_path_factory.mktemp("listed")
    script = "import sys, cujit; cujit.compile(sys.argv[1], arch='sm_90')"
    recorded = os.environ | {"CUJIT_RECORD": str(folder / "recorded"), "PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, "-c", script, KERNEL], env=recorded, check=True)
    merge = ["worklist", "merge", folder / "recorded", "-o", folder / "kernels.jsonl"]
    subprocess.run([sys.executable, "-m", "cujit", *map(str, merge)], env=recorded, check=True)
    return folder / "kernels.jsonl"


@pytest.fixture
def project(listed: Path, tmp_path: Path) -> Path:
    """A project with a list of kernels, without a build back end."""
    folder = tmp_path / "project"
    (folder / "mylib").mkdir(parents=True)
    (folder / "mylib/__init__.py").write_text("")
    shutil.copy(listed, folder)
    return folder


WANTED = {"sm_80": "twice", "sm_90": "twice", "compute_90": "twice"}


def shown(title: str, project: Path) -> None:
    """Write what a section of the page shows into a project."""
    files = {"toml": "pyproject.toml", "cmake": "CMakeLists.txt", "meson": "meson.build"}
    found = {files[language]: code for language in files for at, code in PAGE.snippets(language) if at == title}
    assert "pyproject.toml" in found
    for name, code in found.items():
        (project / name).write_text(code)


def test_hatchling(project: Path, build: Build, tmp_path: Path) -> None:
    shown("With hatchling", project)
    wheel = build(project)
    assert wheel.name == "mylib-1.0-py3-none-any.whl", "a pack is data"
    assert keys_in(wheel, "mylib/kernels.pack", tmp_path) == WANTED
    assert packs_in(build(project, editable=True)) == []
    assert not list(project.rglob("*.pack")), "nothing is left in the tree"


def test_setuptools(project: Path, build: Build, tools: Path, tmp_path: Path) -> None:
    shown("With setuptools", project)
    wheel = build(project)
    assert wheel.name == "mylib-1.0-py3-none-any.whl"
    assert keys_in(wheel, "mylib/kernels.pack", tmp_path) == WANTED
    assert "mylib/__init__.py" in names_in(wheel)
    shutil.rmtree(project / "build", ignore_errors=True)
    assert packs_in(build(project, editable=True)) == []
    code = """
from pathlib import Path
from setuptools import Distribution
from cujit.errors import OptionError
from cujit.integrations.setuptools_build import BuildPy
for is_editable in (False, True):
    made = BuildPy(Distribution({"name": "mylib", "packages": ["mylib"], "script_name": "setup.py"}))
    made.ensure_finalized()
    made.editable_mode = is_editable
    print(*sorted(made.get_outputs(include_bytecode=False)), end=";")
made.editable_mode = False
Path("pyproject.toml").write_text("[tool.cujit]")
try:
    made.get_outputs()
except OptionError as e:
    print(e.message)
"""
    path = os.environ | {"PYTHONPATH": f"{tools}:{ROOT / 'src'}"}
    told = subprocess.run(
        [sys.executable, "-c", code], cwd=project, env=path, capture_output=True, text=True, check=True
    )
    init, pack = (str(Path("build/lib/mylib", name)) for name in ("__init__.py", "kernels.pack"))
    recorded, refused = told.stdout.rsplit(";", 1)
    assert recorded == f"{init} {pack};{init}", "what an install records"
    assert refused == "pyproject.toml contains no table [tool.cujit.pack]\n"


def test_scikit_build_core(project: Path, build: Build, tmp_path: Path) -> None:
    shown("With scikit-build-core", project)
    assert keys_in(build(project), "mylib/kernels.pack", tmp_path) == WANTED
    assert packs_in(build(project, editable=True)) == []


def test_meson_python(project: Path, build: Build, tmp_path: Path) -> None:
    shown("With meson-python", project)
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    assert keys_in(build(project), "mylib/kernels.pack", tmp_path) == WANTED


def names_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def packs_in(wheel: Path) -> list[str]:
    return [name for name in names_in(wheel) if name.endswith(".pack")]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"worklists": "a"}, "worklists"),
        ({"pack": "a.pack"}, "mylib/kernels.pack"),
        ({"worklist": [1], "pack": "a.pack"}, "1"),
        ({"worklist": "a", "arch": 90, "pack": "a.pack"}, "90"),
        ({"worklist": "a"}, "mylib/kernels.pack"),
        ({"worklist": "a", "pack": "/a.pack"}, "/a.pack"),
        ({"worklist": "a", "pack": "../a.pack"}, "../a.pack"),
        ({"worklist": "a", "pack": "a.bin"}, "a.bin"),
        ({"worklist": "a", "pack": "a.pack", "ptx": "yes"}, "yes"),
    ],
)
def test_odd_tables_are_refused(said: dict[str, object], message: str) -> None:
    with raises(OptionError, "option", message):
        WantedPack.of(said, ".", where="the table")


def test_pack_is_built_without_a_writable_cache(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = WantedPack.of({"worklist": "kernels.jsonl", "pack": "a/k.pack"}, project, where="the table")
    packs: list[Path] = []
    for name, value in (("CUJIT_CACHE", "1"), ("CUJIT_CACHE", "0"), ("CUJIT_CACHE_DIR", "/dev/null/cache")):
        monkeypatch.setenv(name, value)
        packs.append(tmp_path / f"{len(packs)}/k.pack")
        assert wanted.build(packs[-1]).requests > 0
        monkeypatch.delenv("CUJIT_CACHE", raising=False)
    assert len({pack.read_bytes() for pack in packs}) == 1
    assert all(os.listdir(pack.parent) == ["k.pack"] for pack in packs)


def test_compile_error_ends_the_build(tmp_path: Path) -> None:
    code = "#if __CUDA_ARCH__ >= 900\n#error too new\n#endif\n" + KERNEL
    with cujit.record_worklist(tmp_path / "recorded"):
        cujit.compile(code, arch="sm_80")
    said = {"worklist": "recorded", "arch": "sm_90", "ptx": False, "pack": "a/k.pack"}
    with raises(CompileError, "compile", "1", "a/k.pack", "source.cu", "sm_90", "too new"):
        WantedPack.of(said, tmp_path, where="the table").build(tmp_path / "k.pack")


# -- the example ---------------------------------------------------------------------------------------------


@pytest.fixture
def example(tmp_path: Path) -> Callable[[str], Path]:
    """Copy the example to a directory of another name."""

    def example(home: str) -> Path:
        return shutil.copytree(EXAMPLE, tmp_path / home / "library", ignore=shutil.ignore_patterns("__pycache__"))

    return example


def environment_of(wheel: Path, folder: Path) -> Path:
    """Install a wheel into an environment of its own, beside what this Python has, and make it read-only."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (numpy,) = {path for path in sys.path if (Path(path) / "numpy").exists()}
    (site / "base.pth").write_text(f"{ROOT / 'src'}\n{numpy}\n")
    with zipfile.ZipFile(wheel) as archive:  # of Python alone: pip, which takes a second, does no more
        archive.extractall(site)
    for path in site.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    return folder / "bin/python"


def test_example_wheel_is_reproducible_and_runs_uncompiled(
    example: Callable[[str], Path], build: Build, tmp_path: Path
) -> None:
    wheels = [
        build(example(home), HOME=str(tmp_path / home), CUJIT_CACHE_DIR=str(tmp_path / home / "cache"))
        for home in ("anna", "berta")
    ]
    assert wheels[0].read_bytes() == wheels[1].read_bytes()
    python = environment_of(wheels[0], tmp_path / "environment")
    shutil.copytree(EXAMPLE / "tests", tmp_path / "tests")
    never = {"CUJIT_COMPILE": "never", "CUJIT_CACHE_DIR": str(tmp_path / "none"), "CUDA_VISIBLE_DEVICES": ""}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | never
    done = subprocess.run(
        [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", str(tmp_path / "tests")],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed, 4 skipped" in done.stdout
    shown = "import fusedsteps, cujit; m = fusedsteps._module('adamw', cujit.cpu()); print(m.artifact.provenance.root)"
    root = subprocess.run(
        [str(python), "-c", shown], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert root.strip().endswith("site-packages/fusedsteps/kernels.pack")


def test_tutorial_wheel_runs_with_nothing_compiled(build: Build, tmp_path: Path) -> None:
    project = shutil.copytree(ROOT / "examples/tutorial", tmp_path / "project")
    with cujit.record_worklist(tmp_path / "recorded", project=project):
        for scalar in ("float", "double"):
            cujit.jit(project / "softrows/softmax.cu", names=[f"softmax<{scalar}>"], device="cpu")
    worklist.merge(tmp_path / "recorded").worklist.save(project / "kernels.jsonl")
    python = environment_of(build(project), tmp_path / "environment")
    *_, (_, line, shown) = steps(Page("tutorial/8-ship.md"))
    assert line.startswith("CUJIT_COMPILE=never python -c ")
    (empty := tmp_path / "empty").mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"CUJIT_CACHE_DIR": str(tmp_path / "none"), "PATH": f"{python.parent}:{os.environ['PATH']}"}
    done = subprocess.run(line, shell=True, cwd=empty, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == shown, done.stderr


_BUILD = """
import sys
from pathlib import Path
from cujit.integrations.wheels import WantedPack
said = {"worklist": "kernels.jsonl", "pack": "fusedsteps/kernels.pack"}
WantedPack.of(said, ".", where="the table").build(Path(sys.argv[2]))
"""
_COVER = """
import sys
from pathlib import Path
from cujit import worklist
covered = worklist.cover(worklist.read(Path(sys.argv[1])), [Path(sys.argv[2])], project=".")
print(covered.share_of_calls, covered.calls, len(covered.missing))
"""


def test_list_recorded_by_tests_covers_a_build_elsewhere(example: Callable[[str], Path], tmp_path: Path) -> None:
    recording, building = example("anna"), example("berta")
    install(tmp_path / "site", "fusedsteps", {})
    environment = os.environ | {
        "CUJIT_RECORD": str(tmp_path / "recorded"),
        "CUJIT_CACHE_DIR": str(tmp_path / "anna/cache"),
        "PYTHONPATH": f"{ROOT / 'src'}:{tmp_path / 'site'}",
        "CUDA_VISIBLE_DEVICES": "",
    }
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    subprocess.run(run, cwd=recording, env=environment, check=True)
    recorded = worklist.merge(tmp_path / "recorded").worklist
    kept = worklist.read(EXAMPLE / "kernels.jsonl")
    listed = [[(said["path"], said["text"], said["names"]) for said in of.recipes.values()] for of in (recorded, kept)]
    assert sorted(listed[0]) == sorted(listed[1]), "examples/kernel-library/record.sh writes it again"
    recorded.save(building / "kernels.jsonl")
    shutil.rmtree(tmp_path / "anna")  # nothing of hers is used: neither sources, nor headers, nor her cache
    for home, code in (("berta", _BUILD), ("clara", _COVER)):
        done = subprocess.run(
            [sys.executable, "-c", code, str(building / "kernels.jsonl"), str(tmp_path / "kernels.pack")],
            cwd=building if home == "berta" else example(home),
            env=os.environ | {"HOME": str(tmp_path / home), "CUJIT_CACHE_DIR": str(tmp_path / home / "cache")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1.0", "2", "0"]


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("arches", "mode", "route"),
    [
        (["here"], "never-jit", "cubin"),
        (["recorded"], "never", "through the driver's JIT"),
        (["recorded"], "never-jit", ""),
    ],
)
def test_example_runs_on_a_gpu_with_compiling_forbidden(
    gpu: cujit.Device, arches: list[str], mode: str, route: str, tmp_path: Path
) -> None:
    said = {
        "worklist": "kernels.jsonl",
        "arch": [str(gpu.arch) if a == "here" else a for a in arches],
        "pack": "k.pack",
    }
    WantedPack.of(said, EXAMPLE, where="the table").build(tmp_path / "k.pack")
    sources = EXAMPLE / "src/fusedsteps"
    files = {f"fusedsteps/{path.name}": path.read_bytes() for path in sources.iterdir() if path.is_file()}
    install(tmp_path / "site", "fusedsteps", files | {"fusedsteps/kernels.pack": (tmp_path / "k.pack").read_bytes()})
    shutil.copytree(EXAMPLE / "tests", tmp_path / "tests")
    path = os.pathsep.join([str(ROOT / "src"), str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
    never = {"CUJIT_COMPILE": mode, "CUJIT_CACHE_DIR": str(tmp_path / "none"), "PYTHONPATH": path}
    shown = "import fusedsteps, cujit; print(fusedsteps._module('adamw', cujit.gpu()).route)"
    done = subprocess.run(
        [sys.executable, "-c", shown], env=os.environ | never, capture_output=True, text=True, check=False
    )
    if not route:
        assert "NotCompiledError" in done.stderr
        return
    assert route in done.stdout, done.stderr
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", str(tmp_path / "tests")]
    ran = subprocess.run(run, env=os.environ | never, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, "9 passed" in ran.stdout) == (0, True), ran.stdout
