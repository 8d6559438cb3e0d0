"""Same key, same bytes; and what comes out is what was asked for."""

from __future__ import annotations

import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cujit
from cujit.cache.provenance import Provenance
from cujit.errors import CompileError, KernelFaultError, NameNotFoundError, OptionError
from cujit.program import toolchain
from processes import printed
from raising import raises

_SOURCE = """
namespace { struct S { int x; }; template <class T> __global__ void hs(int* o) { *o = sizeof(T); }
__device__ int counter; __global__ void hid(int* o) { *o = ++counter; } }
static __global__ void own(int* o) { *o = 2; }
"""
_PROGRAM = r"""
import hashlib, locale, os, sys
os.umask(int(sys.argv[1], 8))
os.environ["LC_ALL"] = sys.argv[2]
import cujit
print(cujit.__file__, file=sys.stderr)
bodies = ("*o = 1;", "*o = sizeof(T);", "static __shared__ int s[4]; s[threadIdx.x] = *o; __syncthreads(); *o = s[0];",
          'printf("%d\\n", *o);', "*o = counter++;")
for i in range(60):  # each body in each namespace, of each option and name of a file
    body, nested = bodies[i % 5], i % 4
    text = f"namespace {{ __device__ int counter = {i}; struct S {{ int x[{i % 7 + 1}]; }}; "
    text += f"template <class T, int N> __global__ void k{i}(int* o) {{ {body} }} "
    text += f"__global__ void plain(int* o) {{ auto f = [](int x) {{ return x + {i}; }}; *o = f(*o); }} }}"
    if nested:
        text = text + f" namespace n{nested} {{ static __global__ void st(int* o) {{ *o = __LINE__; }} }}"
    names = {f"k{i}<S, {i}>", f"k{i}<float, 2>", "plain", *([f"n{nested}::st"] if nested else [])}
    to, arch = (("cubin", "sm_90"), ("ptx", "compute_80"))[i % 10 != 0]
    made = cujit.compile(cujit.Source.cuda(text, name=f"{i % 3}.cu"), to=to, arch=arch, names=names, rdc=i % 2 == 1)
    print(made.provenance.key, hashlib.sha256(made.data).hexdigest(), sorted(made.names.items()))
"""


def _run(program: str, tmp: Path, *arguments: str, **environment: str) -> str:
    cache = tmp / "cache"
    cache.mkdir(mode=0o700, parents=True)
    return printed(program, *arguments, cwd=tmp, environment={"CUJIT_CACHE_DIR": str(cache), **environment})


def test_keys_and_bytes_are_equal_in_two_different_processes(tmp_path: Path) -> None:
    shutil.copytree(Path(cujit.__file__).parent, tmp_path / "elsewhere" / "cujit")
    first = _run(_PROGRAM, tmp_path / "a", "022", "C", PYTHONHASHSEED="0")
    elsewhere = f"import sys; sys.path.insert(0, {str(tmp_path / 'elsewhere')!r})\n{_PROGRAM}"
    second = _run(elsewhere, tmp_path / "b", "077", "C.UTF-8", PYTHONHASHSEED="1", TZ="Asia/Tokyo")
    assert len(first.splitlines()) == 60
    assert first.splitlines() == second.splitlines()


def test_images_of_an_unnamed_namespace_are_bundled(tmp_path: Path) -> None:
    program = (
        f"import cujit, sys\nprint(cujit.compile({_SOURCE!r}, arch=sys.argv[1], names=['hs<S>', 'hid']).names['hs<S>'])"
    )
    named = {_run(program, tmp_path / arch, arch) for arch in ("sm_80", "sm_90", "compute_80")}
    assert len(named) == 1
    fatbin = cujit.build(_SOURCE, ["sm_80", "sm_90", "compute_80"], names=["hs<S>", "hid"])
    assert fatbin.names["hs<S>"] == named.pop().strip()


def test_lto_ir_and_line_tables_are_equal_in_every_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = cujit.Source.cuda(f"#include <cuda_fp16.h>\n#include <h.h>\n{_SOURCE}", headers={"h.h": "struct H {};"})
    made: dict[str, set[tuple[str, bytes]]] = {}
    for directory in ("one", "another"):
        (tmp_path / directory).mkdir()
        monkeypatch.chdir(tmp_path / directory)
        cache = cujit.Cache(tmp_path / directory / "cache")
        for arch in ("lto_90", "compute_90", "sm_90"):
            for lines in (False, True):
                image = cujit.compile(source, arch=arch, names=["hid"], lineinfo=lines, cache=cache)
                assert isinstance(image.provenance, Provenance)
                made.setdefault(f"{arch} {lines}", set()).add((str(image.provenance.key), image.data))
        assert os.getcwd() == str(tmp_path / directory), "other threads stay where they are"
    assert {name: len(results) for name, results in made.items()} == dict.fromkeys(made, 1)


_FILES = {
    "src/k.cu": """#include "beside.h"
#include <far.h>
#include <cuda_fp16.h>
#include "../near/up.h"
extern "C" __global__ void k(int* o) {
    *o = beside(*o) + far(*o) + up(*o) + (int)(float)__hadd(__half(*o), __half(1));
}
""",
    "src/beside.h": "__device__ __noinline__ int beside(int x) { return x * x + 1; }\n",
    "inc/far.h": "#pragma once\n__device__ __noinline__ int far(int x) { return x * x + 3; }\n",
    "near/up.h": "#include <cassert>\n__device__ __noinline__ int up(int x) { assert(x); return x * 7 ^ x; }\n",
    "work/first.h": "#define FIRST 1\n__device__ __noinline__ int first(int x) { return x ^ 3; }\n",
}
_OF_FILES = r"""
import hashlib, os, sys
import cujit
from pathlib import Path
root, away = Path(sys.argv[1]), [bytes(Path(sys.argv[1])), b"-packages", b"/proc/", os.fsencode(sys.prefix)]
away += [",".join(map(str, word)).encode() for word in away]
os.chdir(root / "work")
cache, include = cujit.Cache(root / "cache"), [root / "inc", root / "src"]
source = cujit.Source.cuda(root / "src/k.cu", include=include)
headers = {"mine.h": "__device__ __noinline__ int mine(int x) { return x / 3; }"}
text = cujit.Source.cuda("#include <mine.h>\n" + source.text, include=include, headers=headers)
lines, debug = {"lineinfo": True}, {"debug": True}
before = {**lines, "pre_include": ["first.h"], "rdc": True}
asked = [(source, "compute_90", options) for options in ({}, lines, debug, before)]
asked += [(source, "sm_90", lines), (source, "sm_90", debug), (source, "lto_90", {}), (source, "lto_90", debug)]
for unit, arch, options in (*asked, (source, "lto_90", lines), (text, "compute_90", debug), (text, "lto_90", lines)):
    made = cujit.compile(unit, arch=arch, options=options, cache=cache)
    key = made.provenance.key
    if arch == "lto_90":
        print(hashlib.sha256(made.data).hexdigest())
        made = cujit.link([made], arch="sm_90", cache=cache, lineinfo=bool(options))
    assert not [word for word in away if word in made.data], (arch, options)
    print(key, hashlib.sha256(made.data).hexdigest(), b"/cujit-source/src" in made.data)
"""


def _tree(root: Path) -> Path:
    for name, text in _FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
        if toolchain().nvrtc.version < (13, 5):  # it writes the times of files into line tables of cubins
            os.utime(root / name, (0, 0))
    return root


def test_images_contain_no_directory_and_are_equal_everywhere(tmp_path: Path) -> None:
    results = [printed(_OF_FILES, str(_tree(tmp_path / name))).splitlines() for name in ("one", "a/longer place")]
    assert len(results[0]) == 15
    assert results[0] == results[1]
    assert sum(line.endswith("True") for line in results[0]) >= 6


def test_process_that_uses_the_numbers_has_paths_in_the_key(tmp_path: Path) -> None:
    program = (
        "import os, sys\nfor number in range(900, 1000): os.dup2(1, number)\nimport cujit\nfrom pathlib import Path\n"
        "root = Path(sys.argv[1])\n"
        "made = cujit.compile(root / 'src/k.cu', arch='compute_90', lineinfo=True, include=[root / 'inc'])\n"
        "print(made.provenance.key, bytes(Path(sys.argv[1])) in made.data)\n"
        "print(all(os.path.sameopenfile(1, number) for number in range(900, 1000)))"
    )
    results = [printed(program, str(_tree(tmp_path / name))).splitlines() for name in ("one", "other")]
    assert [lines[0].split()[1] for lines in results] == ["True", "True"]
    assert results[0][0] != results[1][0]
    assert [lines[1] for lines in results] == ["True", "True"]


def test_threads_in_several_directories_get_their_own_files(tmp_path: Path) -> None:
    roots = [_tree(tmp_path / str(number)) for number in range(4)]
    for number, root in enumerate(roots):
        (root / "src/beside.h").write_text(f"__device__ int beside(int) {{ return {1000 + number}; }}\n")

    def compiled(root: Path) -> str:
        return cujit.compile(root / "src/k.cu", include=[root / "inc"], cache=False, lineinfo=True).text

    with ThreadPoolExecutor(4) as pool:
        texts = list(pool.map(compiled, roots * 3))
    assert [re.findall(r"\b100\d\b", text) for text in texts] == [[str(1000 + n)] for n in range(4)] * 3


def test_finding_names_the_local_file_of_any_image(tmp_path: Path) -> None:
    text = 'extern "C" __global__ void k(int* o) {\n    o[threadIdx.x + 1] = 3;\n}\n'
    cache, found = cujit.Cache(tmp_path / "cache"), []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        path = tmp_path / name / "k.cu"
        path.write_text(text)
        device = cujit.cpu(check="memory")
        module = cujit.jit(path, device=device, cache=cache, lineinfo=True)
        with pytest.raises(KernelFaultError) as caught:
            module["k"][1, 4](device.array(np.zeros(4, np.int32)))
        found.append(str(caught.value))
        assert f"{path}:2" in found[-1]
        assert module.artifact.places == (("/cujit-source/src", str(path.parent)),)
    assert module.artifact.provenance is not None
    assert module.artifact.provenance.is_hit


def test_error_names_the_files_of_this_machine(tmp_path: Path) -> None:
    root = _tree(tmp_path)
    (root / "inc/far.h").write_text("int far(int x) { return nonsense; }\n")
    with pytest.raises(CompileError) as caught:
        cujit.compile(root / "src/k.cu", include=[root / "inc"], lineinfo=True)
    assert [d.file for d in caught.value.diagnostics if "nonsense" in d.message] == [str(root / "inc/far.h")]
    assert "/proc/" not in str(caught.value)


def test_lto_ir_finds_headers_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "near.h").write_text("__device__ int near() { return 1; }\n")
    part = cujit.compile("__global__ void k(int* o) { *o = near(); }", arch="lto_90", pre_include=["near.h"])
    assert list(part.names) == ["k"]


def test_different_sources_have_their_own_symbols() -> None:
    one, other = (cujit.compile(_SOURCE + f"// {i}", arch="compute_80", names=["hid"]).names["hid"] for i in range(2))
    assert one != other


def test_seed_of_the_users_wins() -> None:
    seeded = {
        cujit.compile(_SOURCE, arch="compute_80", names=["hid"], **options).names["hid"]
        for options in ({"random_seed": "7"}, {"extra": ("--frandom-seed=7",)}, {"extra": ("-frandom-seed=7",)})
    }
    assert len(seeded) == 1


def test_name_order_does_not_matter() -> None:
    source = "template <class T> __global__ void k(T* o) { *o = 1; }"
    names = ["k<float>", "k<int>", "k<double>", "k<char>"]
    orders: list[Any] = [names, names[::-1], set(names), [*names, *names], dict.fromkeys(names).keys()]
    made = [cujit.compile(source, arch="sm_90", names=given) for given in orders]
    assert len({one.data for one in made}) == 1
    assert len({str(cujit.request(source, arch="sm_90", names=given)) for given in orders}) == 1


@pytest.mark.parametrize(
    ("arch", "extra", "found"),
    [
        ("sm_90", "-arch=sm_120", "cubin for sm_120"),
        ("sm_90", "--gpu-architecture=sm_90a", "cubin for sm_90a"),
        ("sm_90", "--dlink-time-opt", "an empty image"),
        ("sm_90", "-dlto", "an empty image"),
        ("compute_80", "-arch=sm_120", "ptx for compute_120"),
        ("compute_80", "-arch=compute_75", "ptx for compute_75"),
        ("lto_90", "-arch=compute_100", "ltoir for lto_100"),
    ],
)
def test_argument_that_changes_the_output_kind_is_an_error(arch: str, extra: str, found: str) -> None:
    with raises(OptionError, "option-rejected", found):
        cujit.compile("__global__ void k(int* o) { *o = __CUDA_ARCH__; }", arch=arch, extra=(extra,))


def test_link_argument_that_changes_the_output_kind_is_an_error() -> None:
    part = cujit.compile("__global__ void k(int* o) { *o = 1; }", arch="compute_80", rdc=True)
    with raises(OptionError, "option-rejected", "sm_120"):
        cujit.link([part], arch="sm_90", extra=("-arch=sm_120",))


def test_every_kernel_of_a_name_is_looked_for_in_the_image() -> None:
    made = cujit.compile(_SOURCE, arch="sm_90", names=["own", "hid"])
    assert all(name.encode() in made.data for name in made.names.values())
    with pytest.raises(NameNotFoundError):
        cujit.load(cujit.compile(_SOURCE, arch="compute_80", names=["own", "hid"]), "cpu")["hs<S>"]
