"""Linking: what links, and what is refused in words instead of coming out empty or wrong."""

from __future__ import annotations

import pytest

from cujit import program
from cujit.artifact import Artifact, ImageKind
from cujit.errors import ArchError, FormatError, LinkError, OptionError
from cujit.formats.cubin import read_cubin
from cujit.program import Source
from cujit.toolchain.toolset import Toolchain
from cujit.values import replace
from raising import raises

CALLS = "extern __device__ float f(float);\n__global__ void k(float* p) { *p = f(p[1]); }\n"
HAS = "__device__ float f(float x) { return x / 3; }\n"
AGAIN = "__device__ float f(float x) { return x / 4; }\n"
FORMS = [("cubin", {"rdc": True}), ("ptx", {"rdc": True}), ("ltoir", {})]

pytestmark = pytest.mark.usefixtures("toolchain", "no_handle_stays_open")


@pytest.fixture
def no_handle_stays_open() -> object:
    yield
    assert program.toolchain().live_handles == 0


def make(text: str, name: str, to: str = "cubin", arch: str = "sm_90", **options: object) -> Artifact:
    return program.compile(Source.cuda(text, name=name), to=to, arch=arch, options=options)


@pytest.fixture(params=FORMS, ids=[form[0] for form in FORMS])
def parts(request: pytest.FixtureRequest) -> tuple[Artifact, Artifact, Artifact]:
    to, options = request.param
    one, two, three = (
        make(text, name, to, **options) for text, name in ((CALLS, "a.cu"), (HAS, "b.cu"), (AGAIN, "c.cu"))
    )
    return one, two, three


def test_images_link_into_a_cubin_with_names_and_signatures(
    parts: tuple[Artifact, Artifact, Artifact],
) -> None:
    linked = program.link(parts[:2])
    assert (linked.kind, str(linked.arch)) == (ImageKind.CUBIN, "sm_90")
    assert dict(linked.names) == {"k": "_Z1kPf"}
    assert str(linked.signatures["_Z1kPf"]) == "(float*)"
    cubin = read_cubin(linked.data)
    assert not cubin.is_relocatable
    assert [k.name for k in cubin.kernels] == ["_Z1kPf"]


def test_unresolved_symbol_is_named(parts: tuple[Artifact, Artifact, Artifact]) -> None:
    with raises(LinkError, "undefined-symbol", "1:a.cu", "f(float", "_Z1ff") as caught:
        program.link([parts[0]])
    assert caught.value.log
    assert caught.value.call == "nvJitLinkComplete"


def test_symbol_defined_twice_is_named(parts: tuple[Artifact, Artifact, Artifact]) -> None:
    with raises(LinkError, "duplicate-symbol", "f(float", "_Z1ff") as caught:
        program.link(parts)
    assert "3:c.cu" in str(caught.value)


def test_image_for_a_newer_architecture_is_refused(parts: tuple[Artifact, Artifact, Artifact]) -> None:
    with raises(LinkError, "link-input", "1:a.cu", "sm_80"):
        program.link(parts[:2], arch="sm_80")


def test_templates_may_be_in_several_images() -> None:
    shared = "template <class T> __global__ void t(T* p) { *p = 1; }\n"
    one = program.compile(Source.cuda(shared + CALLS, name="a"), arch="sm_90", rdc=True, names=["t<int>"])
    two = program.compile(Source.cuda(shared + HAS, name="b"), arch="sm_90", rdc=True, names=["t<int>"])
    assert "t<int>" in program.link([one, two]).names


def test_finished_cubin_is_refused_because_code_would_be_lost() -> None:
    with raises(LinkError, "link-input", "1:k.cu") as caught:
        program.link([make("__global__ void k() {}", "k.cu")])
    assert "rdc=True" in str(caught.value)


def test_cubin_of_another_generation_is_refused() -> None:
    with raises(LinkError, "link-input", "sm_100"):
        program.link([make(HAS, "b.cu", rdc=True)], arch="sm_100")


def test_fatbin_is_linked_or_refused_by_its_contents() -> None:
    one = make(CALLS, "a.cu", rdc=True)
    assert program.link([program.bundle([one]), make(HAS, "b.cu", rdc=True)]).names
    finished = program.bundle([make("__global__ void k() {}", "k.cu")])
    with raises(LinkError, "link-input", "sm_90"):
        program.link([finished], arch="sm_90")
    with raises(LinkError, "link-input", "sm_80"):
        program.link([program.bundle([one])], arch="sm_80")


def test_symbol_defined_in_a_fatbin_too_is_found() -> None:
    fatbin = program.bundle([make(HAS, "b.cu", rdc=True)])
    with raises(LinkError, "duplicate-symbol", "1:b.cu", "2:c.cu"):
        program.link([fatbin, make(AGAIN, "c.cu", rdc=True)], arch="sm_90")


def test_ltoir_links_to_ptx_but_cubins_do_not() -> None:
    linked = program.link([make(CALLS, "a", "ltoir"), make(HAS, "b", "ltoir")], to="ptx")
    assert (linked.kind, str(linked.arch)) == (ImageKind.PTX, "compute_90")
    assert ".entry _Z1kPf" in linked.text
    with raises(LinkError, "link-input", "PTX", "LTO-IR"):
        program.link([make(HAS, "b", "cubin", rdc=True)], to="ptx")


def test_bytes_and_files_link_like_artifacts(tmp_path: object) -> None:
    path = make(CALLS, "a.cu", rdc=True).save(f"{tmp_path}/a.cubin")
    linked = program.link([path, make(HAS, "b.cu", "ptx", rdc=True).data])
    assert [k.name for k in read_cubin(linked.data).kernels] == ["_Z1kPf"]


def test_architecture_is_read_from_the_content() -> None:
    for to in ("ptx", "ltoir"):
        data = make("__global__ void k() {}", "k", to, "compute_80").data
        assert str(program.link([data]).arch) == "sm_80"


def test_options_reach_the_linker() -> None:
    linked = program.link([make("__global__ void k() {}", "k", "ptx")], verbose=True, opt_level=1)
    assert "Compiling entry function" in linked.log


def test_option_of_the_compiler_is_rejected() -> None:
    with raises(OptionError, "option-rejected", "nvJitLink", "std"):
        program.link([make("__global__ void k() {}", "k", "ptx")], std="c++17")
    with raises(OptionError, "option-rejected", "-bogus"):
        program.link([make("__global__ void k() {}", "k", "ptx")], extra=["-bogus"])


def test_bad_input_is_refused() -> None:
    cut = make(HAS, "b", rdc=True).data[:500]
    for wrong, error in (
        ([], LinkError),
        ([b"garbage"], FormatError),
        ([b""], FormatError),
        ([cut], FormatError),
        ([b"\x7fELF" + bytes(100)], FormatError),
        ([3], OptionError),
        (3, OptionError),
    ):
        with pytest.raises(error):
            program.link(wrong, arch="sm_90")  # type: ignore[arg-type]


def test_ptx_syntax_error_contains_the_line() -> None:
    text = make("__global__ void k() {}", "k", "ptx").text.replace("ret;", "jump;")
    with raises(LinkError, "link", "jump"):
        program.link([text.encode()])


def test_unknown_target_is_refused(toolchain: Toolchain) -> None:
    ptx = make("__global__ void k() {}", "k", "ptx", "compute_80")
    with pytest.raises(ArchError):
        program.link([ptx], arch="sm_81")
    with raises(OptionError, "option", "fatbin"):
        program.link([ptx], to="fatbin")
    if toolchain.nvrtc.version >= (13, 0):
        with raises(ArchError, "arch-unsupported", "sm_70"):
            program.link([ptx], arch="sm_70")


def test_ltoir_newer_than_the_linker_is_named() -> None:
    caller, has = (program.compile(text, arch="lto_90") for text in (CALLS, HAS))
    data = bytearray(has.data)
    data[7] = 0xF0  # the minor version of its IR, which no release has yet
    with raises(LinkError, "link-version", "2:later.cu") as caught:
        program.link([caller, replace(has, data=bytes(data), name="later.cu")], arch="sm_90")
    assert "update nvJitLink" in (caught.value.help or "")
