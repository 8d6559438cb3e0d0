"""Same key, same bytes; and what comes out is what was asked for."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import cujit
from cujit.cache.provenance import Provenance
from cujit.errors import NameNotFoundError, OptionError
from processes import printed

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


def test_two_processes_that_differ_in_everything_else_write_the_same_keys_and_bytes(tmp_path: Path) -> None:
    shutil.copytree(Path(cujit.__file__).parent, tmp_path / "elsewhere" / "cujit")
    first = _run(_PROGRAM, tmp_path / "a", "022", "C", PYTHONHASHSEED="0")
    elsewhere = f"import sys; sys.path.insert(0, {str(tmp_path / 'elsewhere')!r})\n{_PROGRAM}"
    second = _run(elsewhere, tmp_path / "b", "077", "C.UTF-8", PYTHONHASHSEED="1", TZ="Asia/Tokyo")
    assert len(first.splitlines()) == 60
    assert first.splitlines() == second.splitlines()


def test_images_of_an_unnamed_namespace_made_by_several_processes_are_bundled(tmp_path: Path) -> None:
    program = (
        f"import cujit, sys\nprint(cujit.compile({_SOURCE!r}, arch=sys.argv[1], names=['hs<S>', 'hid']).names['hs<S>'])"
    )
    named = {_run(program, tmp_path / arch, arch) for arch in ("sm_80", "sm_90", "compute_80")}
    assert len(named) == 1
    fatbin = cujit.build(_SOURCE, ["sm_80", "sm_90", "compute_80"], names=["hs<S>", "hid"])
    assert fatbin.names["hs<S>"] == named.pop().strip()


def test_lto_ir_and_line_tables_are_the_same_in_every_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_lto_ir_finds_headers_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "near.h").write_text("__device__ int near() { return 1; }\n")
    part = cujit.compile("__global__ void k(int* o) { *o = near(); }", arch="lto_90", pre_include=["near.h"])
    assert list(part.names) == ["k"]


def test_sources_that_differ_have_symbols_of_their_own() -> None:
    one, other = (cujit.compile(_SOURCE + f"// {i}", arch="compute_80", names=["hid"]).names["hid"] for i in range(2))
    assert one != other


def test_a_seed_of_the_users_wins() -> None:
    seeded = {
        cujit.compile(_SOURCE, arch="compute_80", names=["hid"], **options).names["hid"]
        for options in ({"random_seed": "7"}, {"extra": ("--frandom-seed=7",)}, {"extra": ("-frandom-seed=7",)})
    }
    assert len(seeded) == 1


def test_names_have_no_order() -> None:
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
def test_an_argument_that_changes_what_comes_out_is_an_error(arch: str, extra: str, found: str) -> None:
    with pytest.raises(OptionError, match=f"returned {found}"):
        cujit.compile("__global__ void k(int* o) { *o = __CUDA_ARCH__; }", arch=arch, extra=(extra,))


def test_a_link_argument_that_changes_what_comes_out_is_an_error() -> None:
    part = cujit.compile("__global__ void k(int* o) { *o = 1; }", arch="compute_80", rdc=True)
    with pytest.raises(OptionError, match="returned cubin for sm_120"):
        cujit.link([part], arch="sm_90", extra=("-arch=sm_120",))


def test_every_kernel_of_a_name_is_looked_for_in_the_image() -> None:
    made = cujit.compile(_SOURCE, arch="sm_90", names=["own", "hid"])
    assert all(name.encode() in made.data for name in made.names.values())
    with pytest.raises(NameNotFoundError):
        cujit.load(cujit.compile(_SOURCE, arch="compute_80", names=["own", "hid"]), "cpu")["hs<S>"]
