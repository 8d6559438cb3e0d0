from __future__ import annotations

import pytest

from cujit.arch import Arch
from cujit.arch.support import Version
from cujit.artifact import Artifact, ImageKind
from cujit.devices.cuda.image import choose_image
from cujit.devices.cuda.routes import RoutePlace
from cujit.errors import DriverError, FormatError, LoadError
from cujit.formats.container import Container, write_container
from cujit.program import build, bundle, compile
from raising import raises

SM_90 = Arch.parse("sm_90")
CODE = 'extern "C" __global__ void k(int* p) { *p = 1; }'


def ptx(version: str = "8.0", target: str = "sm_80") -> Artifact:
    return Artifact.of(f"//\n.version {version}\n.target {target}, debug\n.address_size 64\n", name="k.ptx")


def chosen(artifact: Artifact, arch: Arch = SM_90, driver: Version = (13, 0)) -> str:
    found = choose_image(artifact, RoutePlace(arch, "cuda:0", driver))
    assert found.image.startswith(artifact.data)
    return found.route


def refused(artifact: Artifact, arch: Arch = SM_90) -> str:
    with pytest.raises(LoadError) as caught:
        choose_image(artifact, RoutePlace(arch, "cuda:0", (13, 0)))
    return str(caught.value)


def test_ptx_of_an_older_architecture_goes_to_the_driver() -> None:
    assert chosen(ptx()) == "PTX compute_80 through the driver's JIT"
    assert choose_image(ptx(), RoutePlace(SM_90, "cuda:0", (13, 0))).image.endswith(b"\n\0")


@pytest.mark.parametrize(
    ("target", "device", "runs"),
    [
        ("sm_90a", "sm_90", True),
        ("sm_90a", "sm_100", False),
        ("sm_100", "sm_90", False),
        ("sm_80", "sm_90", True),
        ("sm_100f", "sm_90", False),
        ("sm_100f", "sm_103", True),
        ("sm_100f", "sm_120", False),
        ("sm_103f", "sm_100", False),
        ("sm_100a", "sm_103", False),
        ("sm_120", "sm_121", True),
    ],
)
def test_ptx_of_an_incompatible_target_names_both(target: str, device: str, runs: bool) -> None:
    if runs:
        chosen(ptx(target=target), Arch.parse(device))
    else:
        message = refused(ptx(target=target), Arch.parse(device))
        assert target.replace("sm", "compute") in message
        assert f"cuda:0 is {device}" in message


def test_ptx_as_new_as_the_driver_passes() -> None:
    chosen(ptx("9.0"))
    chosen(ptx("11.3"), driver=(15, 2))


@pytest.mark.parametrize("text", [".version 8.0\n.address_size 64\n", ".version 8.0\n.target sm_5\n"])
def test_ptx_without_a_target_is_refused(text: str) -> None:
    assert ".target" in refused(Artifact.of(text))


def test_cubin_runs_on_its_capability_from_its_minor_version() -> None:
    cubin = compile(CODE, arch="sm_80")
    assert chosen(cubin, Arch.parse("sm_86")) == "cubin sm_80"
    message = refused(cubin)
    assert "is for sm_80, but cuda:0 is sm_90" in message
    assert "build for sm_90" in message


def test_cubin_that_needs_linking_is_refused() -> None:
    assert "cujit.link" in refused(compile(CODE, arch="sm_90", options={"rdc": True}))


def test_truncated_cubin_is_refused_before_the_driver() -> None:
    cubin = compile(CODE, arch="sm_90")
    with pytest.raises(FormatError):
        chosen(Artifact.of(cubin.data[: len(cubin) // 2]))


def test_fatbin_names_the_image_that_runs() -> None:
    fatbin = build(CODE, ["sm_80", "sm_90", "compute_75"])
    assert chosen(fatbin) == "cubin sm_90 of the fatbin"


def test_fatbin_without_a_matching_image_lists_its_images() -> None:
    message = refused(build(CODE, ["sm_80", "sm_120"]))
    assert "cubin sm_80, cubin sm_120" in message
    assert "cuda:0, which is sm_90" in message


def test_ptx_of_a_fatbin_is_routed_as_ptx() -> None:
    fatbin = bundle([compile(CODE, arch="compute_75")])
    found = choose_image(fatbin, RoutePlace(Arch.parse("sm_100"), "cuda:0", (13, 5)))
    assert found.route == "PTX compute_75 of the fatbin, through the driver's JIT"
    assert found.image.lstrip().startswith(b".version")
    found = choose_image(fatbin, RoutePlace(SM_90, "cuda:0", (12, 4)))
    assert b".version 8.4" in found.image
    assert found.route.startswith("PTX compute_75 of the fatbin lowered from ")
    assert found.route.endswith(" to 8.4, through the driver's JIT")


def test_too_new_ptx_in_a_fatbin_names_its_entry() -> None:
    new = compile("__global__ void k(int*p,int i){volatile int a[4]={1,2,3,4};*p=a[i];}", arch="compute_80")
    if b"ld.volatile.local" not in new.data:
        pytest.skip("this NVRTC writes nothing here that is newer than CUDA 12.4")
    with raises(DriverError, "driver", "compute_80", "source.cu", "PTX", "ISA"):
        chosen(bundle([new]), driver=(12, 4))


def test_fatbin_cut_off_is_refused() -> None:
    fatbin = build(CODE, ["sm_90"])
    with pytest.raises(FormatError):
        chosen(Artifact.of(fatbin.data[:-100]))


EMULATED = RoutePlace(SM_90, "cuda:0", (13, 5), is_emulated=True)


def stand_in(target: str = "sm_90", *, rdc: bool = False) -> Artifact:
    """What ``cujit emulate`` makes in place of a cubin."""
    ptx, arch = compile(CODE, arch=Arch.parse(target).virtual, rdc=rdc), Arch.parse(target)
    data = write_container(Container(ptx.data, arch, rdc, compile(CODE, arch=target, rdc=rdc).data))
    return Artifact(ImageKind.CUBIN, data, arch, name="k.cubin")


def test_emulated_gpu_applies_cubin_rules_to_its_containers() -> None:
    image = stand_in()
    assert choose_image(image, EMULATED) == (image.data, "cubin sm_90, which is PTX under cujit emulate", "")
    for wrong, word in ((stand_in("sm_80"), "k.cubin"), (stand_in(rdc=True), "cujit.link")):
        with raises(LoadError, "load", word):
            choose_image(wrong, EMULATED)
    found = choose_image(bundle([image]), EMULATED)
    assert found.route == "cubin sm_90 of the fatbin, which is PTX under cujit emulate"


def test_emulated_and_real_gpus_refuse_each_others_code() -> None:
    real, ours, text = compile(CODE, arch="sm_90"), stand_in(), compile(CODE, arch="compute_80")
    for image in (real, bundle([real])):
        with raises(LoadError, "load", "GPU", "execute"):
            choose_image(image, EMULATED)
    for image in (ours, bundle([ours])):
        assert "was created by cujit emulate, and runs only under cujit emulate" in refused(image)
    assert choose_image(bundle([real, text]), EMULATED).route.startswith("PTX compute_80 of the fatbin")
    assert choose_image(bundle([ours, text]), RoutePlace(SM_90, "cuda:0", (13, 5))).route.startswith("PTX compute_80")
