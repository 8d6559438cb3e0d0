"""PTX newer than the driver: assembled, or lowered, or refused with everything that would help."""

from __future__ import annotations

import pytest

from cujit.arch import Arch
from cujit.arch.support import Version
from cujit.cache.settings import Compiling
from cujit.devices.cuda.assembler import NvJitLinkAssembler, installed_assembler
from cujit.devices.cuda.routes import Chosen, RoutePlace, route_ptx
from cujit.devices.jit_options import JitOptions
from cujit.errors import DriverError, LoadError, NotCompiledError, ToolError
from cujit.formats.cubin import read_cubin
from cujit.program import compile
from raising import raises

SM_90 = Arch.parse("sm_90")


def ptx(version: str = "9.4", target: str = "sm_80", body: str = "") -> bytes:
    return (
        f".version {version}\n.target {target}\n.address_size 64\n"
        f".visible .entry k()\n{{\n.reg .b32 %r<4>; .reg .b64 %rd<4>;\n{body}\nret;\n}}\n"
    ).encode()


NEW = "ld.volatile.local.u32 %r1, [%r2];"  # came with 9.1


class Written:
    """An assembler of any release that writes down what it is given, and refuses it with the words ``refuses``."""

    def __init__(self, version: Version, refuses: str = "") -> None:
        self.version = version
        self.name = f"nvJitLink {version[0]}.{version[1]}"
        self.refuses = refuses
        self.given: tuple[bytes, str, JitOptions] | None = None

    def assemble(self, text: bytes, target: Arch, options: JitOptions, name: str) -> tuple[bytes, str]:
        self.given = (text, str(target), options)
        if self.refuses:
            raise ToolError(f"{self.name} refused {name}", log=self.refuses)
        return b"a cubin", "what it wrote"


def route(
    text: bytes,
    driver: Version = (13, 0),
    assembler: Written | NvJitLinkAssembler | None = None,
    arch: Arch = SM_90,
    options: JitOptions | None = None,
) -> Chosen:
    place = RoutePlace(arch, "cuda:0", driver, lambda: assembler)
    return route_ptx(text, "the ptx k.ptx", place, options or JitOptions())


def refusal(text: bytes, driver: Version = (13, 0), assembler: Written | None = None) -> DriverError:
    with pytest.raises(DriverError) as caught:
        route(text, driver, assembler)
    assert caught.value.result == "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"
    return caught.value


def test_ptx_that_the_driver_loads_needs_no_assembler() -> None:
    def find() -> None:
        raise AssertionError

    found = route_ptx(ptx("9.0"), "k", RoutePlace(SM_90, "cuda:0", (13, 0), find), JitOptions())
    assert found == Chosen(ptx("9.0") + b"\0", "PTX compute_80 through the driver's JIT")


def test_newer_ptx_is_assembled_for_the_device() -> None:
    assembler = Written((13, 4))
    found = route(ptx(), assembler=assembler, options=JitOptions(max_registers=32))
    assert found == Chosen(
        b"a cubin", "PTX compute_80 assembled by nvJitLink 13.4 to a cubin for sm_90", "what it wrote"
    )
    assert assembler.given == (ptx(), "sm_90", JitOptions(max_registers=32))


@pytest.mark.parametrize(
    ("target", "device", "assembled"),
    [("sm_90a", "sm_90", "sm_90a"), ("sm_100f", "sm_103", "sm_103f"), ("sm_80", "sm_121", "sm_121")],
)
def test_ptx_for_a_variant_is_assembled_for_that_variant(target: str, device: str, assembled: str) -> None:
    assembler = Written((13, 4))
    route(ptx(target=target), assembler=assembler, arch=Arch.parse(device))
    assert assembler.given is not None
    assert assembler.given[1] == assembled


def test_installed_nvjitlink_creates_a_cubin_that_runs() -> None:
    assembler = installed_assembler()
    assert isinstance(assembler, NvJitLinkAssembler)
    assert installed_assembler() is assembler
    text = compile('extern "C" __global__ void k(int* p) { *p = 1; }', arch="compute_80").data
    found = route(text, (assembler.version[0], 0), assembler, options=JitOptions(assembler="nvjitlink"))
    cubin = read_cubin(found.image)
    assert (cubin.arch, [kernel.name for kernel in cubin.kernels]) == (SM_90, ["k"])
    assert found.route == f"PTX compute_80 assembled by {assembler.name} to a cubin for sm_90"


def test_options_reach_the_installed_nvjitlink() -> None:
    many = "".join(f"float a{i} = p[{i}];" for i in range(64)) + "".join(
        f"p[{i}] = a{63 - i} * a{i};" for i in range(64)
    )
    text = compile(f'extern "C" __global__ void k(float* p) {{ {many} }}', arch="compute_80").data
    assembler = installed_assembler()

    def registers(options: JitOptions) -> int:
        found = route(text, (99, 0), assembler, options=options)  # type: ignore[arg-type]
        return read_cubin(found.image).kernels[0].registers or 0

    assert registers(JitOptions(assembler="nvjitlink", max_registers=24)) <= 24
    assert registers(JitOptions(assembler="nvjitlink")) > 24
    assert registers(JitOptions(assembler="nvjitlink", opt_level=0, line_info=True, cache_mode="cg"))
    assert registers(JitOptions(assembler="nvjitlink", debug=True))
    assert all(registers(JitOptions(assembler="nvjitlink", opt_level=level)) for level in range(5))
    assert registers(JitOptions(assembler="nvjitlink", max_threads=1024, min_blocks=2)) <= 32
    text = text.replace(b"\n{", b"\n.maxntid 64\n{", 1)
    assert registers(JitOptions(assembler="nvjitlink", max_threads=1024, min_blocks=2)) > 32
    overridden = JitOptions(assembler="nvjitlink", max_threads=1024, min_blocks=2, override_directives=True)
    assert registers(overridden) <= 32
    assert registers(JitOptions(assembler="nvjitlink", split_compile=2))


def test_without_an_assembler_the_version_is_lowered() -> None:
    found = route(ptx())
    assert found == Chosen(ptx("9.0") + b"\0", "PTX compute_80 lowered from 9.4 to 9.0, through the driver's JIT")


def test_disabled_assembler_is_not_used() -> None:
    assembler = Written((13, 4))
    assert b".version 9.0" in route(ptx(), assembler=assembler, options=JitOptions(assembler="driver")).image
    assert assembler.given is None


def test_forbidden_compiling_excludes_nvjitlink_but_not_driver() -> None:
    assembler = Written((13, 4))
    never = JitOptions().under(Compiling.NEVER)
    assert route(ptx("8.0"), assembler=assembler, options=never).route == "PTX compute_80 through the driver's JIT"
    assert "lowered from 9.4 to 9.0" in route(ptx(), assembler=assembler, options=never).route
    with raises(NotCompiledError, "not-compiled", "nvJitLink", "requested"):
        JitOptions(assembler="nvjitlink").under(Compiling.NEVER)
    for compiling, said in ((Compiling.NEVER_JIT, "auto"), (Compiling.NEVER, "none"), (Compiling.AUTO, "none")):
        with raises(NotCompiledError, "not-compiled", "k.ptx", "PTX", "compute_80"):
            route(ptx("8.0"), assembler=assembler, options=JitOptions(assembler=said).under(compiling))
    assert assembler.given is None


def test_requested_assembler_is_used_always() -> None:
    wanted = JitOptions(assembler="nvjitlink")
    assert route(ptx("8.0"), assembler=Written((13, 0)), options=wanted).image == b"a cubin"
    with raises(LoadError, "load", "nvJitLink"):
        route(ptx("8.0"), options=wanted)
    with raises(ToolError, "tool", "k.ptx"):
        route(ptx("8.0"), assembler=Written((13, 0), "no"), options=wanted)


def test_assembler_of_a_later_major_version_is_skipped() -> None:
    assembler = Written((13, 4))
    assert b".version 8.8" in route(ptx(), (12, 9), assembler).image
    assert assembler.given is None


def test_older_assembler_gets_lowered_ptx() -> None:
    assembler = Written((13, 2))
    found = route(ptx(body=NEW), assembler=assembler)
    assert found.route == "PTX compute_80 lowered from 9.4 to 9.2, assembled by nvJitLink 13.2 to a cubin for sm_90"
    assert assembler.given is not None
    assert assembler.given[0] == ptx("9.2", body=NEW)


def test_text_refused_by_the_assembler_is_lowered_for_the_driver() -> None:
    assert b".version 9.0" in route(ptx(), assembler=Written((13, 4), "it crashed")).image


def test_without_a_route_the_error_names_versions_and_wheels() -> None:
    error = refusal(ptx(body=NEW), assembler=Written((13, 4), "ptxas fatal : what it said"))
    for part in (
        "the ptx k.ptx is of PTX ISA 9.4 (CUDA 13.4)",
        "the driver is of CUDA 13.0 and compiles PTX up to 9.0",
        "nvJitLink 13.4 refused the ptx k.ptx: ptxas fatal : what it said",
        "line 7: ld.volatile.local.u32 came with PTX 9.1",
        "target sm_90",
        "nvidia-nvjitlink>=13.4,<14",
        "nvidia-cuda-nvrtc==13.0.*",
        "r590 or later",
    ):
        assert part in str(error), part


def test_smallest_driver_follows_the_newest_construct() -> None:
    assert "r590 or later" in str(refusal(ptx(body=NEW)))
    assert "r615 or later" in str(refusal(ptx(target="sm_90", body="frobnicate.b32 %r1;")))


def test_driver_of_an_older_major_version_skips_the_linker() -> None:
    message = str(refusal(ptx(body=NEW), (12, 9), Written((13, 4))))
    assert "nvidia-nvjitlink" not in message
    assert "nvidia-cuda-nvrtc-cu12==12.9.*" in message
    assert "nvJitLink 13.4 generates code for CUDA 13" in message


def test_unknown_driver_for_a_version_still_names_its_wheel() -> None:
    message = str(refusal(ptx("9.5", body="frobnicate.b32 %r1;")))
    assert "PTX ISA 9.5 (CUDA 13.5)" in message
    assert "nvidia-nvjitlink>=13.5,<14" in message


def test_version_beyond_every_table_is_refused_in_words() -> None:
    message = str(refusal(ptx("10.7", body="frobnicate.b32 %r1;")))
    assert "PTX ISA 10.7; the driver is of CUDA 13.0" in message
    assert "update the driver" in message


def test_text_that_does_not_parse_is_refused_with_its_place() -> None:
    message = str(refusal(ptx(body="a newer + syntax")))
    assert "it can't be lowered to 9.0" in message
    assert "the ptx k.ptx:7:" in message
    refusal(ptx(body="// \xff").replace(b"\xc3\xbf", b"\xff"))


def test_text_without_a_version_is_refused() -> None:
    with raises(LoadError, "load", "k.ptx"):
        route(b".target sm_80\n")
