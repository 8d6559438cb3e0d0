"""PTX gets another version or target where everything in it allows that, and else every reason is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cujit.arch import Arch
from cujit.artifact import Artifact, ImageKind
from cujit.cache.provenance import Outcome, Provenance
from cujit.devices.cuda.compat import compat
from cujit.errors import ArchError, FormatError, OptionError, PtxSyntaxError, UnsupportedError
from cujit.formats.ptx.obstacles import lowest_version, obstacles
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.retarget import retarget
from cujit.formats.ptx.versions import target_version
from cujit.inspection.needs import requirements
from cujit.program import link
from raising import raises

Compile = Callable[..., str]
Assemble = Callable[[str, str], dict[str, bytes]]

TEXT = """// .version 1.0 stands in a comment
\t.version   9.4   // the version
.target sm_80, debug
.address_size 64

.visible .entry k(.param .u64 p)
{
\t.reg .b32 %r<4>; .reg .b64 %rd<4>;
\tmov.u32 %r1, %tid.x; /* .target sm_10 */
\tredux.sync.add.u32 %r2, %r1, -1;
\tret;
}
"""
NEW = TEXT.replace("redux.sync.add.u32 %r2, %r1, -1", "ld.volatile.local.u32 %r2, [%rd1]")


def refused(ptx: str, version: str | None = None, arch: str | None = None) -> UnsupportedError:
    with pytest.raises(UnsupportedError) as caught:
        retarget(ptx, version=version, arch=arch)
    return caught.value


def test_only_the_two_words_change() -> None:
    lowered = retarget(TEXT, version="7.0")
    assert lowered == TEXT.replace("9.4", "7.0")
    assert retarget(TEXT, arch="compute_90") == TEXT.replace("sm_80", "sm_90")
    assert retarget(TEXT, version=(8, 6), arch=Arch.parse("sm_100")) == TEXT.replace("9.4", "8.6").replace(
        "sm_80", "sm_100"
    )
    assert retarget(TEXT) == TEXT


def test_changed_artifact_loses_its_provenance() -> None:
    artifact = Artifact(ImageKind.PTX, TEXT.encode(), provenance=Provenance(Outcome.MADE))
    assert retarget(artifact, version="7.0").provenance is None


def test_text_bytes_and_artifacts_keep_their_type() -> None:
    assert retarget(TEXT.encode() + b"\0", version="7.0") == TEXT.replace("9.4", "7.0").encode() + b"\0"
    artifact = Artifact(ImageKind.PTX, TEXT.encode(), Arch.parse("compute_80"), {"k": "k"}, name="k.ptx")
    made = retarget(artifact, version="8.0", arch="sm_90")
    assert (made.kind, made.arch, made.names, made.name) == (
        ImageKind.PTX,
        Arch.parse("compute_90"),
        {"k": "k"},
        "k.ptx",
    )
    assert made.text == TEXT.replace("9.4", "8.0").replace("sm_80", "sm_90")


def test_newer_construct_is_named_with_line_and_version() -> None:
    error = refused(NEW, "9.0")
    assert error.items == ((10, "ld.volatile.local.u32", "came with PTX 9.1"),)
    assert "line 10: ld.volatile.local.u32 came with PTX 9.1" in str(error)
    assert "PTX 9.4 can't become PTX 9.0" in str(error)
    assert "nvJitLink of CUDA 13.4" in (error.help or "")
    assert retarget(NEW, version="9.1")


def test_every_construct_in_the_way_is_named() -> None:
    text = NEW.replace("ret;", "mov.u64 %rd2, %current_graph_exec;\n\tfence.proxy.async;\n\tret;")
    found = [construct for _line, construct, _why in refused(text, "7.8").items]
    assert found == ["ld.volatile.local.u32", "%current_graph_exec", "fence.proxy.async"]


def test_target_must_exist_in_the_version() -> None:
    error = refused(TEXT.replace("sm_80", "sm_103a"), "8.7")
    assert error.items == ((3, ".target sm_103a", "came with PTX 8.8"),)
    assert "line 3: .target sm_100 came with PTX 8.6" in str(refused(TEXT, "8.0", "sm_100"))


def test_lower_architecture_must_support_everything() -> None:
    assert "line 10: redux.sync.add.u32 came with sm_80" in str(refused(TEXT, arch="sm_75"))
    assert retarget(TEXT.replace("redux.sync", "//"), arch="sm_75").count("sm_75") == 1


def test_specific_code_keeps_its_architecture_or_family() -> None:
    wgmma = TEXT.replace("sm_80", "sm_90a").replace("redux.sync.add.u32 %r2, %r1, -1", "wgmma.fence.sync.aligned")
    assert retarget(wgmma, version="8.0")
    assert retarget(wgmma, arch="sm_90a") == retarget(wgmma, arch="compute_90a") == wgmma
    for other in ("sm_90", "sm_100", "sm_100a", "sm_120f"):
        assert "wgmma.fence.sync.aligned is for sm_90a alone" in str(refused(wgmma, arch=other))
    family = TEXT.replace("sm_80", "sm_100f").replace("add.u32 %r2, %r1", "min.f32 %r2, %r1")
    assert retarget(family, arch="sm_103f")
    assert retarget(family, arch="sm_103a")
    assert "is for sm_100f and others like it" in str(refused(family, arch="sm_120f"))
    assert "is for sm_103f and others like it" in str(refused(family, arch="sm_103"))


def test_higher_architecture_refuses_removed_features() -> None:
    old = TEXT.replace("sm_80", "sm_60").replace("redux.sync.add.u32 %r2, %r1, -1", "shfl.up.b32 %r2, %r1, 1, 0")
    assert "shfl.up.b32 is gone since PTX 6.4" in str(refused(old, arch="sm_80"))
    assert retarget(old, version="6.0")


def test_unknown_construct_prevents_only_lowering() -> None:
    strange = TEXT.replace("redux.sync.add.u32 %r2, %r1, -1", "frobnicate.b32 %r2")
    assert "line 10: frobnicate.b32 is in no table of PTX up to 9.4" in str(refused(strange, "9.3"))
    assert retarget(strange, version="9.4") == strange


def test_target_change_within_a_file_is_refused() -> None:
    text = TEXT.replace(".visible", ".target sm_90\n.visible")
    assert "line 6: .target is changed again" in str(refused(text, arch="sm_90"))


@pytest.mark.parametrize("version", ["", "9", "9.4.1", 9.4, (9,), (9, "4"), "0.9", "99.0", None.__class__])
def test_malformed_version_is_refused(version: object) -> None:
    with raises(OptionError, "option", "PTX"):
        retarget(TEXT, version=version)  # type: ignore[arg-type]


def test_text_that_is_not_ptx_is_refused() -> None:
    with pytest.raises(PtxSyntaxError):
        retarget("no ptx", version="8.0")
    with raises(FormatError, "format", "text"):
        retarget(b"\xff\xfe", version="8.0")
    with raises(FormatError, "format", "PTX", "fatbin"):
        retarget(Artifact(ImageKind.FATBIN, b""), version="8.0")
    with raises(FormatError, "format", "int"):
        retarget(3, version="8.0")  # type: ignore[type-var]
    with pytest.raises(ArchError):
        retarget(TEXT, arch="sm_81")


def test_first_version_of_a_target_has_its_variants() -> None:
    found = {name: target_version(Arch.parse(name)) for name in ("sm_90", "sm_90a", "sm_100", "sm_100a", "sm_100f")}
    assert found == {"sm_90": (7, 8), "sm_90a": (8, 0), "sm_100": (8, 6), "sm_100a": (8, 6), "sm_100f": (8, 8)}
    assert target_version(Arch.of_capability(19, 9)) is None


def test_lowest_version_is_that_of_the_newest_construct() -> None:
    assert lowest_version(parse(TEXT)) == (7, 0)
    assert lowest_version(parse(NEW)) == (9, 1)
    assert not obstacles(parse(NEW), (9, 1))


@pytest.mark.parametrize("arch", ["compute_75", "compute_90", "compute_100"])
def test_nvrtc_output_is_lowered_with_equal_code(compile_ptx: Compile, assemble: Assemble, arch: str) -> None:
    source = (Path(__file__).parents[2] / "kernels" / "kernels.cu").read_text()
    text = compile_ptx(source, arch)
    lowest = lowest_version(parse(text))
    assert lowest <= (8, 6)
    real = arch.replace("compute", "sm")
    assert assemble(retarget(text, version=lowest), real) == assemble(text, real)
    with pytest.raises(UnsupportedError):
        retarget(text, version=(lowest[0], lowest[1] - 1) if lowest[1] else (lowest[0] - 1, 8))


def test_volatile_locals_of_new_nvrtc_prevent_driver_13_0(compile_ptx: Compile) -> None:
    text = compile_ptx(
        'extern "C" __global__ void k(int* p, int i) { volatile int a[4] = {1, 2, 3, 4}; *p = a[i]; }', "compute_75"
    )
    if parse(text).version < (9, 1):
        pytest.skip("this NVRTC writes them without .volatile")
    assert {construct.split(".")[1] for _line, construct, _why in refused(text, "9.0").items} == {"volatile"}


@pytest.mark.parametrize(
    ("version", "target", "why"),
    [("99.9", "sm_90", "99.9"), ("8.0", "sm_9999", "sm_9999")],
)
def test_unknown_version_or_target_is_refused_everywhere(version: str, target: str, why: str) -> None:
    texts = [f".version {version}\n.target {target}\n.address_size 64\n.visible .entry {k}() {{ ret; }}" for k in "kj"]
    with raises(PtxSyntaxError, "ptx-syntax", why):
        retarget(texts[0], version="8.0")
    with raises(PtxSyntaxError, "ptx-syntax", why):
        link([Artifact.of(text) for text in texts], to="ptx")
    (verdict,) = compat(texts[0])
    assert not verdict.loads
    assert why.replace("'", "") in verdict.why


ACCEPTED = {
    "setmaxnreg.inc.sync.aligned.u32 64;": "sm_90a sm_100a sm_103a sm_110f sm_120a sm_120f",
    "cvt.rn.satfinite.e2m1x2.f32 %b1, %f1, %f2;": "sm_100a sm_103f sm_110a sm_120a sm_120f",
    "redux.sync.min.f32 %f1, %f2, %r3;": "sm_100a sm_100f sm_103a",
}


@pytest.mark.parametrize("statement", ACCEPTED)
def test_specific_target_is_reachable_as_by_assemblers(statement: str) -> None:
    registers = ".reg .b8 %b<3>; .reg .f32 %f<4>; .reg .b32 %r<4>;"
    names = ACCEPTED[statement].split()
    for old in names:
        text = f".version 9.4\n.target {old}\n.visible .entry k() {{ {registers} {statement} ret; }}\n"
        assert all(f".target {new}\n" in retarget(text, arch=new) for new in names)
        assert Arch.parse(requirements(text.encode())[0].arch).suffix, "which exists, or parse would refuse it"
