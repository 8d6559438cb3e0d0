"""The tables of releases, and what follows from them."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cujit.arch import Arch, ArchKind
from cujit.arch.arch import KNOWN_ARCHES
from cujit.arch.support import (
    RELEASES,
    Version,
    arches_of,
    driver_release,
    extra_for,
    release_of_ptx,
    require_arch,
    toolkit_of_ptx,
)
from cujit.devices.cuda.compat import compat
from cujit.errors import ArchError, CujitError
from cujit.formats.ptx.retarget import retarget
from cujit.program import Source, build, compile, link, toolchain
from raising import raises

ASSEMBLERS = Path(__file__).parent / "goldens" / "arches.json"
"""What the ptxas of each release takes, and from which PTX on: golden-makers/arches.py."""


def test_releases_are_in_order() -> None:
    for earlier, later in itertools.pairwise(RELEASES):
        assert earlier.toolkit < later.toolkit
        assert earlier.ptx <= later.ptx
        assert earlier.driver < later.driver


DRIVERS = """
    9.0 384  9.1 387  9.2 396  10.0 400  10.1 418  10.2 440  11.0 445  11.1 455  11.2 460  11.3 465  11.4 470  11.5 495
    11.6 510  11.7 515  11.8 520  12.0 525  12.1 530  12.2 535  12.3 545  12.4 550  12.5 555  12.6 560  12.8 570
    12.9 575  13.0 580  13.1 590  13.2 595  13.3 610  13.4 615
"""
"""The branch of drivers that came with each toolkit, once more. Source: the PTX ISA manual, "Release History"."""


def test_release_has_its_driver() -> None:
    assert " ".join(f"{a}.{b} {driver}" for (a, b), _, driver in RELEASES) == " ".join(DRIVERS.split())


def test_toolkit_supports_architectures_from_first_to_last() -> None:
    for row in KNOWN_ARCHES.values():
        having = [release.toolkit for release in RELEASES if row.number in arches_of(release.toolkit)]
        assert row.number in arches_of(row.first)
        assert row.first <= min(having)
        assert max(having) == (row.last or RELEASES[-1].toolkit)


def test_architecture_table_matches_the_assemblers() -> None:
    taken = {
        tuple(map(int, release.split("."))): {name: tuple(map(int, ptx.split("."))) for name, ptx in names.items()}
        for release, names in json.loads(ASSEMBLERS.read_text()).items()
    }
    oldest, newest = min(taken), max(taken)
    for row in KNOWN_ARCHES.values():
        name = f"sm_{row.number}"
        having = [release for release, names in taken.items() if name in names]
        assert max(having) == (row.last or newest)
        assert taken[max(having)][name] == row.ptx
        # What the oldest of them has already came with the toolkit that wrote its PTX first.
        came = min(having) if min(having) > oldest else toolkit_of_ptx(row.ptx)
        assert row.first == came or row.ptx < min(release.ptx for release in RELEASES)
        for suffix, since in (("a", row.a_since), ("f", row.f_since)):
            assert since == min((release for release, names in taken.items() if name + suffix in names), default=None)


def test_installed_compiler_writes_the_ptx_version_of_its_row() -> None:
    version = toolchain().nvrtc.version
    text = compile('extern "C" __global__ void k() {}', to="ptx").text
    match = re.search(r"\.version (\d+)\.(\d+)", text)
    assert match is not None
    written = (int(match[1]), int(match[2]))
    # The table ends with the newest release whose driver is known; toolkits may be one ahead.
    known = {r.toolkit: r.ptx for r in RELEASES}
    assert known.get(version, written) == written
    assert toolkit_of_ptx(written) == version or version in known


def test_installed_compiler_supports_what_the_table_says() -> None:
    version = toolchain().nvrtc.version
    alive = {n for n, row in KNOWN_ARCHES.items() if row.first <= version and (row.last is None or row.last >= version)}
    assert set(toolchain().nvrtc.arches) == alive


def test_releases_are_found_by_ptx_and_by_driver() -> None:
    found = release_of_ptx((8, 6))
    assert found is not None
    assert found.toolkit == (12, 8)
    assert release_of_ptx((99, 0)) is None
    assert driver_release((13, 0)).ptx == (9, 0)
    assert driver_release((12, 7)).ptx == (8, 5)
    assert driver_release((8, 0)) == driver_release((9, 0)) == RELEASES[0]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("sm_70", ("cujit[cu12]",)),
        ("sm_107", ("CUDA", "13.4")),
        ("sm_107a", ("CUDA", "13.4")),
        ("sm_103a", ("sm_103a", "CUDA", "12.9")),
        ("sm_99", ()),
    ],
)
def test_unsupported_architecture_is_refused_with_the_reason(name: str, says: tuple[str, ...]) -> None:
    arch = Arch.parse(name) if name != "sm_99" else Arch.parse("sm_90").of_capability(9, 9)
    have = (75, 80, 90, 103) if name == "sm_103a" else (75, 80, 90)
    version = (12, 8) if name == "sm_103a" else (13, 0)
    with raises(ArchError, "arch-unsupported", *says) as caught:
        require_arch(arch, have, "NVRTC", version)
    assert "sm_90" in str(caught.value) or "sm_103" in str(caught.value)
    assert ("; PTX for compute_90 runs on it" in str(caught.value)) == (name in ("sm_107", "sm_99"))


def test_suffix_is_accepted_from_its_first_toolkit_on() -> None:
    rows = [(n, s, since) for n, row in KNOWN_ARCHES.items() for s, since in (("a", row.a_since), ("f", row.f_since))]
    for number, suffix, since in rows:
        arch = Arch(ArchKind.REAL, number, suffix)
        if since is not None:
            require_arch(arch, (number,), "NVRTC", since)
        with raises(ArchError, "arch-unsupported", arch, suffix):
            require_arch(arch, (number,), "NVRTC", (99, 9) if since is None else (since[0], since[1] - 1))
    assert len([since for _, _, since in rows if since]) > 10


@pytest.mark.parametrize(
    ("ptx", "toolkit"), [((8, 4), (12, 4)), ((9, 0), (13, 0)), ((9, 4), (13, 4)), ((9, 5), (13, 5)), ((10, 0), None)]
)
def test_toolkit_of_a_ptx_version_is_known_before_its_driver(ptx: Version, toolkit: Version | None) -> None:
    assert toolkit_of_ptx(ptx) == toolkit


# -- architectures that CUDA 13 dropped: whoever refuses one names the extra that builds it -------------

OLD = "pip install 'cujit[cu12]'"
KERNEL = "__global__ void k(int *p) { *p = 1; }"
PTX = ".version 8.8\n.target sm_{}\n.address_size 64\n.visible .entry k() {{ ret; }}\n"
REFUSED: dict[str, Callable[[], object]] = {
    "compile to machine code": lambda: compile(KERNEL, arch="sm_70"),
    "compile to PTX": lambda: compile(KERNEL, arch="compute_50"),
    "compile to LTO-IR": lambda: compile(KERNEL, to="ltoir", arch="lto_61"),
    "compile LLVM IR": lambda: compile(Source.nvvm("target triple = 'nvptx64-nvidia-cuda'"), arch="compute_60"),
    "build": lambda: build(KERNEL, ["sm_50", "sm_90"]),
    "link": lambda: link([PTX.format(50)]),
    "link for one": lambda: link([PTX.format(50)], arch="sm_70"),
    "lower PTX": lambda: retarget(PTX.format(60).replace("ret;", "bar.warp.sync 1; ret;"), version="5.0"),
}  # fmt: skip


@pytest.mark.parametrize("route", list(REFUSED))
def test_dropped_architecture_is_refused_with_its_extra(route: str) -> None:
    if toolchain().nvrtc.version < (13, 0):
        pytest.skip("this toolkit builds them")
    with pytest.raises(CujitError) as caught:
        REFUSED[route]()
    assert OLD in (caught.value.help or "")


def test_image_for_newer_gpus_names_the_extra_for_a_dropped_one() -> None:
    for image in (compile(KERNEL, arch="compute_75"), compile(KERNEL, arch="sm_90")):
        (verdict,) = compat(image, device="sm_61")
        assert OLD in verdict.help
        (verdict,) = compat(image, device="sm_72" if image.kind.value == "cubin" else "sm_70")
        assert OLD in verdict.help


@pytest.mark.parametrize("arch", [f"sm_{row}" for row in (50, 52, 53, 60, 61, 62, 70, 72, 101)])
def test_extra_of_every_dropped_architecture_is_cu12(arch: str) -> None:
    assert extra_for(Arch.parse(arch)) == "cu12"
    assert extra_for(Arch.parse("sm_75")) == "cu13"
