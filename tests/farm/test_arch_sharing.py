"""What architectures share is compiled once, each finds its own code, and whatever may ask for them is made alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import pytest

import cujit
from built_code import code
from cujit.arch import Arch
from cujit.artifact import Artifact
from cujit.cache import admin
from cujit.cache.cache import Cache
from cujit.cache.provenance import Outcome
from cujit.compiler.runner import Runner
from cujit.errors import OptionError
from cujit.farm.arch_sharing import _TARGET, family
from cujit.program import runner, toolchain
from farming import Elsewhere, pool, variants
from installed import install
from raising import raises

ASKS = cujit.Source.cuda("__global__ void k(int *x) { *x = __CUDA_ARCH__; }", name="asks.cu")
MIXED = cujit.Source.cuda(
    """
__device__ float far = 3;
__constant__ float table[4] = {1, 2, 3, 4};
static __device__ __noinline__ float step(float x) { return x * far + table[threadIdx.x & 3]; }
template <typename T> __global__ void each(T *x, int n) {
    extern __shared__ float tile[];
    float sum = 0;
    for (int i = 0; i < n; i++) sum += x[i] * x[i + 1] / x[i + 2];
    tile[threadIdx.x] = step(sum) + expf(sum) + tanhf(sum);
    __syncthreads();
    x[threadIdx.x] = tile[threadIdx.x ^ 1];
    atomicAdd(x, 1);
}
""",
    name="mixed.cu",
)
FOUR = ["sm_80", "sm_90", "sm_100", "sm_103"]


@pytest.fixture(scope="module")
def one() -> Iterator[Executor]:
    """A process for all tests here."""
    with pool(1) as executor:
        yield executor


def found(request: cujit.Request, arch: str, root: Path) -> Artifact:
    options = request.options
    image = cujit.compile(request.source, names=request.names, arch=arch, cache=Cache(root), options=options)
    assert image.provenance is not None
    assert image.provenance.is_hit
    return image


@pytest.mark.parametrize("options", [{}, {"use_fast_math": True}, {"fmad": False, "std": "c++20"}])
def test_shared_ltoir_gives_the_code_of_separate_compiles(
    one: Executor, tmp_path: Path, options: dict[str, object]
) -> None:
    asked = [cujit.request(MIXED, names=[f"each<{t}>"], arch="sm_90", options=options) for t in ("float", "double")]
    report = cujit.farm.build(asked, FOUR, executor=one, sink=tmp_path, share="ltoir")
    assert (report.made, report.shared, dict(report.alone), report.is_good) == (8, 8, {}, True)
    for arch, first in zip(FOUR, ("lto_80", "lto_80", "lto_100", "lto_100"), strict=True):
        image = found(asked[0], arch, tmp_path)
        alone = cujit.compile(MIXED, names=asked[0].names, arch=arch, options=options)
        assert code(image.data) == code(alone.data)
        assert len(code(image.data)) >= 3
        assert (image.names, image.signatures, image.name) == (alone.names, alone.signatures, alone.name)
        assert image.arch == alone.arch
        assert image.tool == f"{alone.tool}, {alone.tool.replace('NVRTC', 'nvJitLink')} (of ltoir for {first})"


def test_shared_ptx_gives_what_nvrtcs_own_ptx_gives(one: Executor, tmp_path: Path) -> None:
    asked = cujit.request(MIXED, names=["each<float>"], arch="sm_90")
    report = cujit.farm.build([asked], FOUR, executor=one, sink=tmp_path, share="ptx")
    assert (report.made, report.shared) == (4, 2)
    assert report.alone == {"sm_100 is of no family": 1, "sm_103 is of no family": 1}, "loops are unrolled for each"
    for arch in FOUR[:2]:
        image = found(asked, arch, tmp_path)
        own = cujit.compile(MIXED, names=asked.names, arch=arch.replace("sm", "compute"))
        shared = cujit.compile(MIXED, names=asked.names, arch="compute_80")
        assert _TARGET.sub(b".target sm_%d" % int(arch[3:]), shared.data) == own.data
        assert image.data == cujit.link([own], arch=arch).data
        assert image.tool.endswith(" (of ptx for compute_80)")
        assert (image.names, image.signatures) == (own.names, own.signatures)


def test_architecture_dependent_source_is_compiled_alone(one: Executor, tmp_path: Path) -> None:
    (tmp_path / "asks.h").write_text("#if __CUDA_ARCH__ >= 900\n#define WIDE 1\n#endif\n")
    (tmp_path / "plain.h").write_text("#pragma once\n#define FACTOR 2\n")

    def source(text: str) -> cujit.Source:
        return cujit.Source.cuda(f"{text}\n__global__ void k(float *x) {{ *x *= 2; }}", include=[tmp_path])

    asked = [
        cujit.request(ASKS, arch="sm_90"),
        cujit.request(source('#include "asks.h"'), arch="sm_90"),
        cujit.request(source("#include <cstdint>"), arch="sm_90"),
        cujit.request(source("#define GLUE(a, b) a##b"), arch="sm_90"),
        cujit.request(source(""), arch="sm_90", maxrregcount=32),
        cujit.request(source(""), arch="sm_90", extra=["-dw"]),
        cujit.request(source(""), arch="sm_90", define={"N": "__CUDA_ARCH__"}),
        cujit.request(source(""), arch="sm_90", std="c++14"),
        cujit.request(source("template <int N> __global__ void t() {}"), names=["t<__CUDA_ARCH__>"], arch="sm_90"),
        cujit.request(source('#include "plain.h"\n'), arch="sm_90"),
    ]
    targets = ["sm_80", "sm_90", "sm_90a", "compute_80"]
    report = cujit.farm.build(asked, targets, executor=one, sink=tmp_path / "c", share="ptx")
    assert (report.made, report.shared, report.is_good) == (40, 2, True)
    ask = "it may ask for the architecture: "
    assert report.alone == {
        "it makes ptx, and no machine code": 10,
        "sm_90a is of no family": 10,
        f"{ask}__CUDA_ARCH__": 6,
        f"{ask}__CUDA_ARCH__ in asks.h": 2,
        f"{ask}a header of the toolkit": 2,
        f"{ask}##": 2,
        "the option maxrregcount": 2,
        "the option -dw": 2,
        "the option std": 2,
    }
    said = json.loads(json.dumps(report.as_json()))
    assert (said["shared"], said["alone"]) == (2, dict(report.alone))
    assert "  2 made of what architectures share\n  10 made alone: it makes ptx" in str(report)
    for arch in ("sm_80", "sm_90"):
        assert found(asked[0], arch, tmp_path / "c") == cujit.compile(ASKS, arch=arch)


def test_source_that_cannot_be_shared_is_compiled_alone(one: Executor, tmp_path: Path) -> None:
    texts = {
        "late": "__global__ void __launch_bounds__(64, 2, 4) k(int *x) { *x = 1; }",
        "never": "__global__ void k(int *x) { *x = what; }",
        "assembly": '__global__ void k(int *x) { asm volatile("barrier.cluster.arrive;\\n"); *x = 1; }',
    }
    asked = {
        name: cujit.request(cujit.Source.cuda(text, name=f"{name}.cu"), arch="sm_90") for name, text in texts.items()
    }
    report = cujit.farm.build(asked.values(), ["sm_80", "sm_90", "sm_120"], executor=one, sink=tmp_path, share="ptx")
    assert sorted(f"{one.name} {one.arch}" for one in report.failed) == [
        "assembly.cu sm_80", "late.cu sm_80", "never.cu sm_120", "never.cu sm_80", "never.cu sm_90",
    ]  # fmt: skip
    assert found(asked["assembly"], "sm_90", tmp_path).tool.endswith("(of ptx for compute_80)")
    assert found(asked["late"], "sm_90", tmp_path) == cujit.compile(asked["late"].source, arch="sm_90")
    reasons = dict(report.alone)
    assert reasons.pop("sm_120 is of no family") == 2
    (reason,) = reasons
    assert reason.startswith("it does not compile for compute_80: late.cu does not compile")
    assert report.shared == 1


def test_instances_and_architectures_are_compiled_together(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "own.h").write_text("#pragma once\ntemplate <int N> __global__ void own(int *x) { *x = N; }\n")
    (project / "k.cu").write_text('#include "own.h"\n')
    source = cujit.Source.cuda(project / "k.cu")
    asked = [cujit.request(source, names=[f"own<{n}>"], arch="sm_90") for n in range(4)]
    there = Elsewhere(project)
    report = cujit.farm.build(
        asked, ["sm_80", "sm_90", "sm_120"], executor=there, sink=tmp_path / "c", share="ltoir", join=2, chunk_s=9
    )
    assert (report.made, report.shared, report.failed) == (12, 8, ())
    assert report.alone == {"no other architecture of its family is asked for": 4}, "instances together all the same"
    cwd = set(Path.cwd().iterdir())
    assert not any(path.name == "tree" for path in cwd), "no file lies in the working directory"
    images = [found(request, arch, tmp_path / "c") for request in asked for arch in ("sm_80", "sm_90", "sm_120")]
    assert len({image.data for image in images}) == 6, "two instances for three architectures"
    for image, request in zip(images[::3], asked, strict=True):
        alone = cujit.compile(source, names=request.names, arch="sm_80")
        assert (image.names, image.signatures, image.name) == (alone.names, alone.signatures, alone.name)
        assert set(code(alone.data).items()) < set(code(image.data).items())


def test_source_is_compiled_once_for_a_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    get = Runner.get

    def noted(self: Runner, job: object) -> Artifact:
        made.append(f"{job.step} {job.subject}")  # type: ignore[attr-defined]
        return get(self, job)  # type: ignore[arg-type]

    monkeypatch.setattr(Runner, "get", noted)
    requests = variants(2)
    report = cujit.farm.build(requests, ["sm_80", "sm_90"], executor=ThreadPoolExecutor(1), sink=tmp_path, share="ptx")
    assert report.shared == 4
    assert sorted(made) == ["compile scale.cu for compute_80"] * 2 + [
        f"link scale.cu for sm_{n}" for n in (80, 80, 90, 90)
    ]
    again = cujit.farm.build(requests, ["sm_80", "sm_90"], executor=ThreadPoolExecutor(1), sink=tmp_path, share="ptx")
    assert (again.made, again.hit, again.shared, dict(again.alone)) == (0, 4, 0, {})


def test_chunks_end_where_sharing_ends(tmp_path: Path) -> None:
    there = Elsewhere(tmp_path / "nothing")
    there.hidden.mkdir()
    asked = [cujit.request(one.source, names=one.names, arch=arch) for arch in FOUR[:2] for one in variants(5)]
    report = cujit.farm.build(asked, executor=there, sink=tmp_path / "c", share="ptx", chunk_s=1e-6, workers=2)
    assert (report.made, report.shared) == (10, 10)
    assert len(there.digests) == 10


def test_shared_image_has_no_recipe_but_answers_from_packs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (request,) = variants(1)
    with ThreadPoolExecutor(1) as executor:
        pack, root = tmp_path / "k.pack", tmp_path / "c"
        report = cujit.farm.build([request], ["sm_80", "sm_90"], executor=executor, sink=root, pack=pack, share="ptx")
    assert report.pack is not None
    assert (report.pack.records, report.pack.requests) == (2, 2)
    cache = Cache(root)
    assert [(one.remade, one.fault) for one in admin.verify(cache, 1.0, runner(cache).remake)] == [(False, "")] * 2

    install(tmp_path / "site", "mylib", {"mylib/k.pack": pack.read_bytes()})
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "own"))
    monkeypatch.setattr("cujit.compiler.keys.builds._identity", lambda files: f"another/{len(files)}")
    monkeypatch.setattr(toolchain(), "notes", {})  # what this process knows of the first one
    image = cujit.compile(request.source, names=request.names, arch="sm_90", cache=Cache.packaged("mylib"))
    assert image.provenance is not None
    assert image.provenance.outcome is Outcome.SHIPPED


@pytest.mark.parametrize(("share", "ends"), [("ptx", (75, 100)), ("ltoir", (75, 100, 122))])
def test_family_begins_with_its_lowest_architecture(share: str, ends: tuple[int, ...]) -> None:
    asked = cujit.request(MIXED, names=["each<float>"], arch="sm_90")
    for number in (70, 75, 90, 100, 121):
        begun = sum(end <= number for end in ends)
        assert family(asked.for_arch(Arch.parse(f"sm_{number}")), share) == begun % len(ends), number


def test_only_ptx_and_ltoir_are_shared(tmp_path: Path) -> None:
    for share in ("cubin", 1, True):
        with raises(OptionError, "option", "ptx", "ltoir"):
            cujit.farm.build(variants(1), sink=tmp_path, share=share)  # type: ignore[arg-type]
