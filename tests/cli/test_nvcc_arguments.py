"""Arguments of nvcc, on the command line, in ``extra`` and on the explorer's page: one translator reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import cujit
from cujit.cli.app import main
from cujit.compiler.options.nvcc import NVCC_ARGUMENTS, read_nvcc
from cujit.compiler.options.table import OPTIONS
from cujit.compiler.options.values import read_options
from cujit.errors import OptionError
from cujit.explore.scene import Scene
from cujit.program import Options
from raising import raises

CODE = 'extern "C" __global__ void k(int* o) { *o = N; }\n'


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("-O3", {"opt_level": 3}),
        ("-O 1", {"opt_level": 1}),
        ("-lineinfo", {"lineinfo": True}),
        ("--generate-line-info", {"lineinfo": True}),
        ("-G", {"debug": True}),
        ("-std=c++17", {"std": "c++17"}),
        ("-std c++17", {"std": "c++17"}),
        ("--std=c++20", {"std": "c++20"}),
        ("-DN=4 -D M -DF(x)=x", {"define": {"N": "4", "M": None, "F(x)": "x"}}),
        ("-Iinc -I other -isystem third", {"include": ["inc", "other", "third"]}),
        ("-UX", {"undef": ["X"]}),
        ("-include a.h", {"pre_include": ["a.h"]}),
        ("-maxrregcount=32", {"maxrregcount": 32}),
        ("--maxrregcount 64", {"maxrregcount": 64}),
        ("--use_fast_math", {"use_fast_math": True}),
        ("-use_fast_math -ftz=false", {"use_fast_math": True, "ftz": False}),
        ("-Xptxas -v", {"verbose": True}),
        ("-Xptxas=-v,-O1,-warn-spills", {"verbose": True, "opt_level": 1, "ptxas_options": ["-warn-spills"]}),
        ("--ptxas-options=-v", {"verbose": True}),
        ("-rdc=true", {"rdc": True}),
        ("--relocatable-device-code false", {"rdc": False}),
        ("-dc", {"rdc": True}),
        ("-dlto", {"dlto": True}),
        ("-fmad=false -prec-div=true -prec-sqrt=false", {"fmad": False, "prec_div": True, "prec_sqrt": False}),
        ("-diag-suppress 177,20012", {"diag_suppress": [177, 20012]}),
        ("--expt-relaxed-constexpr", {"default_device": True}),
        ("-G -dopt=on", {"debug": True, "optimize_debug": True}),
        ("-Xcompiler -fPIC --extended-lambda -c -m64 -x cu", {}),
        ("-lcudadevrt -l cublas -lcudart --library=m -L/lib64 --library-path /lib --keep -keep-dir made", {}),
    ],
)
def test_argument_is_the_option_of_the_table(line: str, options: dict[str, object]) -> None:
    found = read_nvcc(line.split())
    assert read_options(found.option_words) == Options.of(options, {})
    assert (found.rest, found.unknown, found.targets) == ((), (), ())


@pytest.mark.parametrize(
    ("line", "targets"),
    [
        ("-arch=sm_90", ("sm_90", "compute_90")),
        ("-arch sm_90a", ("sm_90a", "compute_90a")),
        ("--gpu-architecture=compute_80", ("compute_80",)),
        ("-arch=compute_90 -code=sm_90,compute_90", ("sm_90", "compute_90")),
        ("-gencode arch=compute_90,code=[sm_90,compute_90]", ("sm_90", "compute_90")),
        ("-gencode=arch=compute_80,code=sm_80 --generate-code arch=compute_90,code=sm_90", ("sm_80", "sm_90")),
        ('-gencode arch=compute_90,code="sm_90,compute_90"', ("sm_90", "compute_90")),
        ("-gencode arch=compute_90,code=lto_90", ("lto_90",)),
        ("-arch=native", ("native",)),
    ],
)
def test_nvcc_targets_match_those_of_nvcc(line: str, targets: tuple[str, ...]) -> None:
    assert read_nvcc(line.split()).targets == targets


def test_other_arguments_keep_their_order_and_values() -> None:
    line = read_nvcc(["-a", "-G", "k.cu", "--y=1", "-5", "-lineinfo", "-o", "-w", "--", "-G"], {"-a": True, "-o": True})
    assert line.rest == ("-a", "-G", "k.cu", "--y=1", "-5", "-o", "-w", "--", "-G")
    assert (line.option_words, line.unknown) == (("lineinfo",), ("--y=1",))


@pytest.mark.parametrize("word", ["-std", "-maxrregcount", "-Xptxas", "-gencode"])
def test_argument_without_its_value_is_an_error(word: str) -> None:
    with raises(OptionError, "option-rejected", word):
        read_nvcc([word])


def test_options_behind_nvcc_arguments_are_in_the_table() -> None:
    lines = [read_nvcc([f"-{name}", "1"]) for name in sorted(NVCC_ARGUMENTS - {"gencode", "generate-code"})]
    assert {said.partition("=")[0] for line in lines for said in line.option_words} <= OPTIONS.keys()


# -- commands -------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inc").mkdir()
    (tmp_path / "inc/n.h").write_text("#define N 7\n")
    (tmp_path / "k.cu").write_text(CODE)

    def call(line: str) -> Result:
        return CliRunner().invoke(main, line.split())

    return call


@pytest.mark.parametrize(
    ("line", "written", "kind", "arch"),
    [
        ("compile -arch=sm_90 -O3 -DN=4 k.cu", "k.cubin", "cubin", "sm_90"),
        ("compile -arch=sm_90 -ptx -DN=4 k.cu", "k.ptx", "ptx", "compute_90"),
        ("compile -gencode arch=compute_90,code=[sm_90,compute_90] -cubin -DN=4 -o x.cubin k.cu", "x.cubin", "cubin",
         "sm_90"),
        ("compile -arch=sm_90 -dlto -Iinc -include n.h --output-file x.ltoir k.cu", "x.ltoir", "ltoir", "lto_90"),
        ("compile -arch sm_90 -std=c++17 -lineinfo --use_fast_math -maxrregcount=32 -Xptxas -v -rdc=true -DN=4 k.cu",
         "k.cubin", "cubin", "sm_90"),
    ],
)  # fmt: skip
def test_compile_accepts_nvcc_arguments(run: object, line: str, written: str, kind: str, arch: str) -> None:
    result = run(f"{line} --json")  # type: ignore[operator]
    assert result.exit_code == 0, result.output
    (made,) = [cujit.Artifact.open(written)]
    assert made.kind.value == kind
    assert json.loads(result.stdout)["arch"] == arch


def test_build_accepts_nvcc_arguments(run: object) -> None:
    result = run("build -gencode arch=compute_80,code=sm_80 -arch=sm_90 -fatbin -DN=4 -G k.cu --json")  # type: ignore[operator]
    assert result.exit_code == 0, result.output
    found = cujit.inspect("k.fatbin").images
    assert [f"{image.kind.value} {image.arch}" for image in found] == [
        "cubin sm_80", "cubin sm_90", "ptx compute_90",
    ]  # fmt: skip


def test_run_and_profile_accept_nvcc_targets(run: object) -> None:
    Path("arch.cu").write_text('extern "C" __global__ void k(int* o) { *o = __CUDA_ARCH__; }\n')
    launch = "--device cpu --grid 1 --block 1 --arg zeros:i32:1 --print 1"
    result = run(f"run arch.cu {launch} -arch=sm_80 -lineinfo")  # type: ignore[operator]
    assert result.exit_code == 0, result.output
    assert "800" in result.output
    result = run("profile arch.cu --grid 1 --block 1 --arg zeros:i32:1 -gencode arch=compute_80,code=sm_80")  # type: ignore[operator]
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("line", "status", "words"),
    [
        ("compile -linenfo k.cu", 2, "-lineinfo"),
        ("compile -lineinf k.cu", 2, "-lineinfo"),
        ("compile --use_fast_mat k.cu", 2, "--use-fast-math"),
        ("compile -arhc=sm_90 k.cu", 2, "-arch"),
        ("compile -Xptas=-v k.cu", 2, "-Xptxas"),
        ("build -gencod arch=compute_90,code=sm_90 k.cu", 2, "-gencode"),
        ("compile -gencode sm_90 k.cu", 2, "-gencode arch=compute_90,code=[sm_90,compute_90]"),
        ("compile -arch=sm_80 -arch=sm_90 -gencode arch=compute_80,code=sm_80 k.cu", 2, "use cujit build"),
        ("compile -fatbin k.cu", 2, "use cujit build"),
        ("build -ptx k.cu", 2, "use cujit compile -ptx"),
        ("run -cubin k.cu", 2, "writes no image"),
        ("compile -std", 2, "-std requires a value"),
        ("compile -maxrregcount=many k.cu", 1, "option maxrregcount is 'many'"),
        ("compile -arch=sm_9x k.cu", 2, "sm_9x"),
    ],
)
def test_mistake_is_reported_in_the_users_spelling(run: object, line: str, status: int, words: str) -> None:
    result = run(line)  # type: ignore[operator]
    assert (result.exit_code, words in result.output) == (status, True), result.output


def test_own_options_keep_their_meaning(run: object) -> None:
    result = run("compile k.cu -O define=N=4 -Olineinfo -O std=c++20 -a sm_90 -o own.cubin")  # type: ignore[operator]
    assert result.exit_code == 0, result.output
    assert cujit.Artifact.open("own.cubin").kind.value == "cubin"


# -- the library ----------------------------------------------------------------------------------------------------


def test_nvcc_dialect_accepts_extra_arguments() -> None:
    extra = ["-O1", "--use_fast_math", "-DN=4", "-Xptxas", "-v", "--expt-relaxed-constexpr", "--device-int128"]
    request = cujit.request(CODE, arch="sm_90", dialect="nvcc", extra=extra, define={"M": 3}, opt_level=2)
    assert dict(request.options)["opt_level"] == 2, "an option that is said wins"
    assert dict(request.options)["define"] == {"N": "4", "M": "3"}
    assert request.options.extra == ("--device-int128",)
    assert {"use_fast_math", "verbose", "default_device"} <= set(request.options)
    with raises(OptionError, "option-rejected", "target"):
        cujit.request(CODE, arch="sm_90", dialect="nvcc", extra=["-arch=sm_90"])


def test_explorer_accepts_nvcc_arguments() -> None:
    options = Scene("", options="-O3 -lineinfo -O std=c++20 -DN=4 -Iinc").compiler_options()
    assert options == Options(opt_level=3, lineinfo=True, std="c++20", define={"N": "4"}, include=["inc"])
    with raises(OptionError, "option-rejected", "-arch=sm_90"):
        Scene("", options="-arch=sm_90").compiler_options()
