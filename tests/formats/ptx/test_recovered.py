"""PTX out of cubins: what every producer writes, what hides in odd texts, and what is refused."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import cujit
from cujit.arch import Arch
from cujit.artifact import Artifact, ImageKind
from cujit.devices.cpu.run.source_map import Lines
from cujit.errors import FormatError
from cujit.formats.container import Container, write_container
from cujit.formats.cubin import PTX_SECTION, read_cubin
from cujit.formats.elf import read_elf
from cujit.formats.ptx import syntax
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.recovered import as_ptx, ptx_of_cubin
from cujit.values import replace
from formats import damage, images
from raising import raises

LINED = Path(__file__).parents[2] / "goldens" / "lined"
CUBINS = sorted(LINED.glob("*.cubin"))
LINEINFO = "-lineinfo"
PTXAS_2 = "--ptxas-options=-O1"


def assembles(text: str, cubin: bytes) -> bool:
    return len(cujit.link([text], arch=str(read_cubin(cubin).arch)).data) > 0


def without_places(module: syntax.PtxModule) -> syntax.PtxModule:
    """A module without what ptxas leaves out, and where its lines are: files, places, the content of debug sections."""
    kept = [item for item in module.items if not (isinstance(item, syntax.Directive) and item.name in _LEFT_OUT)]
    return replace(module, items=tuple(map(unplaced, kept)))


_LEFT_OUT = ("file", "section", "@@DWARF")


def unplaced(item: syntax.ModuleItem) -> syntax.ModuleItem:
    if not isinstance(item, syntax.Function) or item.body is None:
        return item
    return replace(item, body=tuple(statement for statement in item.body if not isinstance(statement, syntax.Location)))


# -- producers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", images.ARCHES)
@pytest.mark.parametrize("options", [(LINEINFO,), ("-G",), (LINEINFO, "-rdc=true"), (LINEINFO, PTXAS_2)], ids="_".join)
def test_recovered_nvrtc_ptx_is_equal_line_by_line(arch: str, options: tuple[str, ...]) -> None:
    cubin = images.cubin(images.ZOO, arch, *options)
    text = ptx_of_cubin(cubin)
    own = images.ptx(images.ZOO, arch.replace("sm", "compute"), *options).rstrip(b"\0").decode()
    assert without_places(parse(text)) == without_places(parse(own))
    for number, (recovered, line) in enumerate(zip(text.split("\n")[1:], own.split("\n")[1:], strict=False), 2):
        assert recovered.strip() in (line.strip(), "") or recovered.startswith((".loc ", ".file ")), number
    assert assembles(text, cubin)


def test_only_the_label_is_added() -> None:
    lines = ptx_of_cubin(images.cubin(images.SAXPY, "sm_90a", LINEINFO)).split("\n")
    assert lines[0] == "// recovered by cujit from the line information of a cubin for sm_90a"
    assert not any("//" in line for line in lines[1:])
    first = cujit.link([".version 8.0\n.target sm_80\n.visible .entry k() { ret; }\n"], arch="sm_80", lineinfo=True)
    assert ptx_of_cubin(first.data).startswith(".version 8.0 // recovered by cujit from")


@pytest.mark.parametrize("path", CUBINS, ids=lambda path: path.stem)
def test_recovered_ptx_of_other_compilers_assembles(path: Path) -> None:
    cubin = path.read_bytes()
    text = ptx_of_cubin(cubin)
    assert {entry.name for entry in parse(text).entries} == {kernel.name for kernel in read_cubin(cubin).kernels}
    assert assembles(text, cubin)
    assert ".source_begin" not in text


def test_goldens_cover_every_producer() -> None:
    assert {path.stem.partition("-")[0] for path in CUBINS} == {"cute", "cutile", "nvcc", "triton"}
    assert any(b".source_begin" in path.read_bytes() for path in CUBINS)


def test_lto_cubin_has_the_text_of_the_whole_program() -> None:
    parts = [cujit.compile(part, to="ltoir", arch="lto_90", lineinfo=True) for part in images.TWO_FILES]
    linked = cujit.link(parts, arch="sm_90", lineinfo=True).data
    assert assembles(ptx_of_cubin(linked), linked)


# -- texts by hand ------------------------------------------------------------------------------------------

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
BODY = "{\n.reg .b64 %r<4>;\n.reg .b32 %a<4>;\nld.param.u64 %r1, [p];\nst.global.u32 [%r1], 7;\nret;\n}\n"
ENTRY = f".visible .entry k(.param .u64 p)\n{BODY}"
F = ".visible .func (.param .b32 r) f(.param .b32 x)\n{\n.reg .b32 %q;\nld.param.b32 %q, [x];\nst.param.b32 [r], %q;\n"
CALL = "{\n.param .b32 q;\n.param .b32 s;\nst.param.b32 [q], %a1;\ncall (s), NAME, (q);\n}\nret;"
TEXTS = {
    "block comment": f"{HEAD}/* one\n two\n// three\n*/\n{ENTRY}",
    "comments between words": HEAD + ENTRY.replace("ret;", "/* a */ ret; /* b\n c */ // d"),
    "CRLF": (HEAD + ENTRY).replace("\n", "\r\n"),
    "few lines": (HEAD + ENTRY).replace("\n", " ") + "\n",
    "tabs": HEAD.replace("\n", "\n\t") + ENTRY.replace("\n", "\n\t\t"),
    "no address size": HEAD.replace(".address_size 64\n", "") + ENTRY,
    "texture mode": HEAD.replace("sm_80", "sm_80, texmode_independent") + ENTRY,
    "pragma": HEAD + ENTRY.replace("ret;", '.pragma "nounroll";\nret;'),
    "place": f'{HEAD}.file 1 "a{{.cu"\n' + ENTRY.replace("ret;", ".loc 1 3 4\nret;"),
    "long line": HEAD + ENTRY.replace("ret;", "add.u32 %a1, %a1, 1; " * 3000 + "ret;"),
    "no ASCII": HEAD + ENTRY.replace("ret;", "ret; // é中"),
    "function": f"{HEAD}{F}ret;\n}}\n" + ENTRY.replace("ret;", CALL.replace("NAME", "f")),
    "alias": f"{HEAD}{F[: F.index('{')]};\n{F[: F.index('{')].replace(' f(', ' g(')};\n{F}ret;\n}}\n.alias g, f;\n"
    + ENTRY.replace("ret;", CALL.replace("NAME", "g")),
    "two entries": HEAD + ENTRY + ENTRY.replace(" k(", " k2("),
    "bounds": HEAD + ENTRY.replace(")\n{", ")\n.maxntid 32,1,1\n.minnctapersm 2\n{"),
    "wide parameter": f"{HEAD}.visible .entry k(.param .align 64 .b8 p[64], .param .u8 q)\n{{\nret;\n}}\n",
    "small parameters": f"{HEAD}.visible .entry k(.param .u8 p, .param .f64 q, .param .b8 r[3])\n{{\nret;\n}}\n",
    "static entry": HEAD + ENTRY.replace(".visible ", ""),
    "no entry": f"{HEAD}.visible .global .u32 v = 3;\n",
    "no parameters": f"{HEAD}.visible .entry k()\n{{\nret;\n}}\n.visible .entry k3\n{{\nret;\n}}\n",
    "weak": f"{HEAD}.weak .func f()\n{{\nret;\n}}\n.weak .entry w()\n{{\ncall f;\nret;\n}}\n",
    "common": f"{HEAD}.common .global .u32 c;\n{ENTRY}",
    "division": HEAD + ENTRY.replace("ret;", ".reg .f64 %d;\ndiv.rn.f64 %d, %d, %d;\nst.f64 [%r1], %d;\nret;"),
    "section": f"{HEAD}{ENTRY}.section .debug_str\n{{\n.b8 65,66,0\n}}\n",
    "language": HEAD.replace("8.0", "9.2") + ENTRY.replace(")\n{", ")\n.language 7\n{"),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_handwritten_text_is_recovered(name: str) -> None:
    cubin = cujit.link([TEXTS[name]], arch="sm_80", lineinfo=True).data
    recovered = ptx_of_cubin(cubin)
    assert without_places(parse(recovered)) == without_places(parse(TEXTS[name]))
    assert assembles(recovered, cubin)


def test_quoted_sources_leave_empty_lines() -> None:
    cubin = (LINED / "cutile-add-sm_90.cubin").read_bytes()
    (section,) = [s for s in read_elf(cubin).sections if s.name == PTX_SECTION]
    whole = read_elf(cubin).content(section).split(b"\0")
    lines = ptx_of_cubin(cubin).split("\n")
    assert [line for line in lines[len(whole) :] if not line.startswith(".file ")] == []
    start = whole.index(b".nv_intermediate_source_section {")
    assert lines[start - 3 : start] == [line.decode() for line in whole[start - 3 : start]]
    assert not any(lines[start : len(whole)])
    tricky = (LINED / "cutile-add-sm_90.cubin").read_bytes().replace(b'"tile ir"', b'"}}}}} }"')
    assert ptx_of_cubin(tricky) == ptx_of_cubin(cubin)
    endless = cubin.replace(b"\0.source_end\0", b"\0.source_eng\0")
    with raises(FormatError, "format", "quotation"):
        ptx_of_cubin(endless)


# -- places in the source -----------------------------------------------------------------------------------


def places(text: str) -> dict[int, tuple[str, int]]:
    """Where each line of code comes from, by its number."""
    lines = Lines(lambda: parse(text), text)
    of_code = [
        n for n, line in enumerate(text.split("\n"), 1) if line.strip().endswith(";") and line.strip()[0] not in "./"
    ]
    found = ((n, lines.source_of(n)) for n in of_code)
    return {n: (place.file, place.line) for n, place in found if place is not None}


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120"])
def test_code_lines_come_from_the_compilers_line_directives(arch: str) -> None:
    found = places(ptx_of_cubin(images.cubin(images.ZOO, arch, LINEINFO)))
    own = places(images.ptx(images.ZOO, arch.replace("sm", "compute"), LINEINFO).rstrip(b"\0").decode())
    assert {file for file, _ in found.values()} == {file for file, _ in own.values()} == {"/nowhere/image.cu"}
    assert sum(own.get(n) == place for n, place in found.items()) > 0.7 * len(own)
    assert {line for _, line in found.values()} <= {line for _, line in own.values()}


def test_triton_lines_are_python_lines() -> None:
    text = ptx_of_cubin((LINED / "triton-softmax-sm_90.cubin").read_bytes())
    files = {file.rpartition("/")[2] for file, _ in places(text).values()}
    assert files == {"lined_cubins.py", "standard.py"}
    stored = next(n for n, line in enumerate(text.split("\n"), 1) if "st.global" in line)
    file, line = places(text)[stored]
    source = (Path(__file__).parents[2] / "golden-makers" / Path(file).name).read_text().split("\n")
    assert "tl.store(out + row" in source[line - 1]


def test_code_after_a_location_is_detected_as_missing() -> None:
    text = f'{HEAD}.file 1 "a.cu"\n' + ENTRY.replace("st.global", ".loc 1 3 4 st.global")
    with raises(FormatError, "format", "10", "PTX", "missing"):
        ptx_of_cubin(cujit.link([text], arch="sm_80", lineinfo=True).data)


@pytest.mark.parametrize("name", [b'a".cu', b"a\n.cu", b"a\x01.cu"])
def test_unknown_file_names_are_omitted(name: bytes) -> None:
    cubin = images.cubin(images.SAXPY, "sm_90", LINEINFO)
    assert '.file 1 "/nowhere/image.cu"' in ptx_of_cubin(cubin)
    changed = cubin.replace(b"image.cu\0", name.ljust(8, b"_") + b"\0")
    assert changed != cubin
    assert ".file" not in ptx_of_cubin(changed)


def test_file_names_are_recovered() -> None:
    source = cujit.Source.cuda("__global__ void k(int* p) { *p = 1; }", name="é ü.cu")
    image = cujit.compile(source, to="cubin", arch="sm_90", lineinfo=True)
    plain = cujit.compile(source, to="ptx", arch="compute_90", lineinfo=True)
    assert {*places(ptx_of_cubin(image.data)).values()} == {*places(plain.text).values()}


# -- several parts ------------------------------------------------------------------------------------------

CALLER = (
    'extern __device__ int v; extern "C" __device__ int helper(int); static __device__ __noinline__ int own(int a) '
    '{ return a * 3 + v; } extern "C" __global__ void caller(int* o) { o[threadIdx.x] = helper(own(threadIdx.x)); }'
)
HELPER = (
    "__device__ int v = 4; static __device__ __noinline__ int own(int a) { return a * 5; } "
    'extern "C" __device__ int helper(int a) { return own(a) + 7; }'
)
ANOTHER = 'extern "C" __global__ void another(int* o, float f) { o[0] = f; }'


def linked(*sources: str, lined: str) -> bytes:
    parts = [
        cujit.compile(source, to="cubin", arch="sm_90", rdc=True, lineinfo=letter == "y")
        for source, letter in zip(sources, lined, strict=True)
    ]
    return cujit.link(parts, to="cubin", arch="sm_90").data


def test_parts_of_a_link_are_linked_again() -> None:
    cubin = linked(CALLER, HELPER, ANOTHER, lined="yyy")
    text = ptx_of_cubin(cubin)
    assert text.startswith(".version")
    assert "// recovered by cujit" in text.partition("\n")[0]
    assert {entry.name for entry in parse(text).entries} == {"caller", "another"}
    assert assembles(text, cubin)


@pytest.mark.parametrize(
    ("sources", "lined", "values"),
    [
        ((CALLER, HELPER), "yn", ("helper", "v")),
        ((CALLER, HELPER), "ny", ("caller",)),
        ((CALLER, HELPER, ANOTHER), "yyn", ("another",)),
        ((CALLER, HELPER), "nn", ("lineinfo=True",)),
    ],
)
def test_part_without_line_information_is_named(sources: tuple[str, ...], lined: str, values: tuple[str, ...]) -> None:
    with raises(FormatError, "format", "sm_90", *values) as caught:
        ptx_of_cubin(linked(*sources, lined=lined))
    assert "lineinfo" in (caught.value.help or "")


# -- what disagrees -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (b".target sm_80", b".target sm_86", ("PTX", "sm_86", "sm_80")),
        (b".target sm_80", b".target sm_8x", ("PTX", "target")),
        (b".entry saxpy(", b".entry saxpz(", ("saxpy", "PTX")),
        (b".param .u64 saxpy_param_1", b".param .u32 saxpy_param_1", ("4", "8", "parameters")),
        (b".param .f32 saxpy_param_0", b".param .u8  saxpy_param_0", ("1", "8", "4")),
        (b".param .u64 saxpy_param_1", b".hidden .param .u64 q_p_1", ("hidden",)),
        (b".param .u32 saxpy_param_3\0", b".param .u32 saxpy_para(_3\0", ("PTX", "parameters")),
    ],
)
def test_text_of_other_code_is_refused(old: bytes, new: bytes, why: tuple[str, ...]) -> None:
    cubin = images.cubin(images.SAXPY, "sm_80", LINEINFO)
    assert (cubin.count(old), len(old)) == (1, len(new))
    with raises(FormatError, "format", *why):
        ptx_of_cubin(cubin.replace(old, new))


def test_kernel_that_the_code_lacks_is_named() -> None:
    text = f"{HEAD}.visible .func f()\n{{\nret;\n}}\n{ENTRY}"
    cubin = cujit.link([text], arch="sm_80", lineinfo=True, extra=[]).data
    with raises(FormatError, "format", "f", "PTX", "machine"):
        ptx_of_cubin(cubin.replace(b".visible .func f()", b".weak .entry f ( )"))


def test_mismatched_parameter_offsets_are_refused() -> None:
    text = f"{HEAD}.visible .entry k(.param .align 4 .b8 p[4], .param .align 16 .b8 q[16])\n{{\nret;\n}}\n"
    cubin = cujit.link([text], arch="sm_80", lineinfo=True).data
    assert ptx_of_cubin(cubin)
    with raises(FormatError, "format", "k", "kernel"):
        ptx_of_cubin(cubin.replace(b".align 16 .b8 q", b".align  4 .b8 q"))


@pytest.mark.parametrize("target", ["sm_75", "sm_80"])
def test_ptx_of_an_older_architecture_agrees(target: str) -> None:
    cubin = cujit.link([TEXTS["two entries"].replace("sm_80", target)], arch="sm_120", lineinfo=True).data
    assert f".target {target}" in ptx_of_cubin(cubin)


# -- damage -------------------------------------------------------------------------------------------------


def sections_of(cubin: bytes) -> Iterator[tuple[int, int]]:
    """Where the header of each section is, and its index."""
    (table_at,) = struct.unpack_from("<Q", cubin, 40)
    (count,) = struct.unpack_from("<H", cubin, 60)
    for index in range(count):
        yield table_at + 64 * index, index


def test_overlapping_sections_are_refused_unread() -> None:
    cubin = bytearray(images.cubin(images.SAXPY, "sm_80", LINEINFO))
    (own,) = [s for s in read_elf(bytes(cubin)).sections if s.name == PTX_SECTION]
    header = next(cubin[at : at + 64] for at, index in sections_of(bytes(cubin)) if index == own.index)
    more = 4000
    table = b"".join(cubin[at : at + 64] for at, _ in sections_of(bytes(cubin))) + bytes(header) * more
    struct.pack_into("<Q", cubin, 40, len(cubin))
    struct.pack_into("<H", cubin, 60, len(table) // 64)
    with raises(FormatError, "format", "sections", "PTX"):
        ptx_of_cubin(bytes(cubin) + table)
    seconds, peak = damage.cost(ptx_of_cubin, bytes(cubin) + table)
    assert seconds < 5
    assert peak < 30 << 20


@pytest.mark.parametrize("word", [".extern .global ", ".extern .func (", ".extern .global .align 4 "])
def test_endless_declarations_take_linear_time(word: str) -> None:
    cubin = linked(HELPER, ANOTHER, lined="yy")
    (first, *_) = [s for s in read_elf(cubin).sections if s.name.startswith(PTX_SECTION)]
    table_at = next(at for at, index in sections_of(cubin) if index == first.index)
    long = read_elf(cubin).content(first) + word.encode() * (1_000_000 // len(word))
    changed = bytearray(cubin + long)
    struct.pack_into("<QQ", changed, table_at + 24, len(cubin), len(long))
    begin = time.process_time()
    with pytest.raises(FormatError):
        ptx_of_cubin(bytes(changed))
    assert time.process_time() - begin < 10


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (b"\0ret;\0", b"\0ret\x01\0", ("PTX", "text")),
        (b"\0ret;\0", b"\0ret\xff\0", ("PTX", "text")),
    ],
)
def test_binary_data_is_refused(old: bytes, new: bytes, why: tuple[str, ...]) -> None:
    cubin = images.cubin(images.SAXPY, "sm_80", LINEINFO)
    with raises(FormatError, "format", *why):
        ptx_of_cubin(cubin.replace(old, new))


def test_compressed_section_is_refused() -> None:
    cubin = bytearray(images.cubin(images.SAXPY, "sm_80", LINEINFO))
    (own,) = [s for s in read_elf(bytes(cubin)).sections if s.name == PTX_SECTION]
    at = next(at for at, index in sections_of(bytes(cubin)) if index == own.index)
    struct.pack_into("<Q", cubin, at + 8, 0x800)
    with raises(FormatError, "format", "PTX", "compressed"):
        ptx_of_cubin(bytes(cubin))


@pytest.mark.parametrize("name", ["nvrtc", "cutile-add-sm_90", "linked"])
def test_damage_is_refused_or_gives_text(name: str) -> None:
    if name == "nvrtc":
        cubin = images.cubin(images.ZOO, "sm_80", LINEINFO)
    else:
        cubin = linked(CALLER, HELPER, lined="yy") if name == "linked" else (LINED / f"{name}.cubin").read_bytes()
    for damaged in (*damage.cuts(cubin, 60), *damage.flips(cubin, 150)):
        damage.survives(ptx_of_cubin, damaged)
    spans = [(s.offset, s.size) for s in read_elf(cubin).sections if "debug_line" in s.name or PTX_SECTION in s.name]
    for start, size in spans:
        for flipped in damage.flips(cubin[start : start + size], 150, seed=7):
            damage.survives(ptx_of_cubin, cubin[:start] + flipped + cubin[start + size :])


# -- doors --------------------------------------------------------------------------------------------------


def test_artifact_keeps_its_metadata() -> None:
    source = "template <class T> __global__ void twice(T* p) { *p *= 2; }"
    cubin = cujit.compile(source, names=["twice<float>"], to="cubin", arch="sm_90", lineinfo=True)
    ptx = as_ptx(cubin)
    assert (ptx.kind, ptx.arch, ptx.names) == (ImageKind.PTX, Arch.parse("compute_90"), cubin.names)
    assert as_ptx(ptx) is ptx
    with raises(FormatError, "format", "PTX", "fatbin"):
        as_ptx(cujit.bundle([cubin]))


def test_retarget_accepts_a_cubin() -> None:
    cubin = images.cubin(images.SAXPY, "sm_90", LINEINFO)
    older = cujit.retarget(Artifact.of(cubin), version="7.0", arch="compute_75")
    assert (older.kind, older.arch) == (ImageKind.PTX, Arch.parse("compute_75"))
    assert {".version 7.0", ".target sm_75"} <= {*older.text.split("\n")}
    assert cujit.retarget(cubin, version="7.0", arch="compute_75") == older.data
    with raises(FormatError, "format", "information"):
        cujit.retarget(images.cubin(images.SAXPY, "sm_90"), version="7.0")


def test_emulator_containers_return_their_ptx() -> None:
    text = HEAD + ENTRY
    assert ptx_of_cubin(write_container(Container(text.encode(), Arch.parse("sm_80")))) == text
