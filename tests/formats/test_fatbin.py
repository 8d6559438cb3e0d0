"""Fatbins: every image comes out as it went in, in every compression; what a GPU would take; what damage does."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable

import lz4.block
import pytest
import zstandard

from cujit.arch import Arch
from cujit.artifact import Artifact, ImageKind
from cujit.errors import FormatError
from cujit.formats.cubin import read_cubin
from cujit.formats.fatbin import Compression, EntryKind, Fatbin, FatbinFlag, find_fatbins, read_fatbin, select
from cujit.formats.unpack import unpack
from formats import damage, images
from formats.hosts import archive, host_object
from raising import raises

CUBINS = ("sm_75", "sm_90", "sm_90a", "sm_100f", "sm_120")
MODES = (
    (),
    ("-compress=false",),
    ("-compress-all",),
    ("-compress-mode=size",),
    ("-compress-mode=speed",),
    ("-compress-mode=balance",),
    ("-compress-mode=none",),
    ("-compress-all", "-compress-mode=speed"),
    ("-concat",),
    ("-concat", "-compress-mode=size"),
    ("-g",),
)


@functools.cache
def inputs() -> tuple[images.Input, ...]:
    cubins = (("cubin", arch.removeprefix("sm_"), images.cubin(images.SAXPY, arch)) for arch in CUBINS)
    return (
        *cubins,
        ("ptx", "75", images.ptx(images.SAXPY)),
        ("ptx", "100f", images.ptx(images.SAXPY, "compute_100f")),
    )


def link_time_input() -> images.Input:
    return ("ltoir", "90", images.ltoir(images.SAXPY))


def source_of(entry_name: str) -> bytes:
    kind, arch = entry_name.split()
    return next(i for k, n, i in inputs() if k == kind and n == arch.partition("_")[2])


# -- reading ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES, ids=" ".join)
def test_every_image_is_read_back_unchanged(mode: tuple[str, ...]) -> None:
    fatbin = read_fatbin(images.bundled(inputs(), *mode))
    assert len(fatbin) == len(inputs())
    for entry in fatbin.cubin_entries:
        assert entry.payload() == source_of(str(entry))
    for entry in fatbin.ptx_entries:
        assert words(entry.payload()) == words(source_of(str(entry)))


def words(ptx: bytes) -> list[bytes]:
    """The packers drop comments and squeeze blanks."""
    return [word for line in ptx.rstrip(b"\0").splitlines() for word in line.partition(b"//")[0].split()]


@pytest.mark.parametrize("mode", MODES, ids=" ".join)
def test_architectures_versions_and_names_are_reported(mode: tuple[str, ...]) -> None:
    fatbin = read_fatbin(images.bundled(inputs(), *mode))
    assert {str(e.arch) for e in fatbin} == {*CUBINS, "compute_75", "compute_100f"}
    assert {e.identifier for e in fatbin} == {"image.cubin", "image.ptx"}
    assert {(e.kind, e.options) for e in fatbin} == {(EntryKind.CUBIN, ""), (EntryKind.PTX, "-O3 -v")}
    for entry in fatbin.ptx_entries:
        assert b".version %d.%d" % entry.version in entry.payload()
    assert all(e.is_debug == ("-g" in mode) for e in fatbin)


@pytest.mark.parametrize(
    ("mode", "cubin", "ptx"),
    [
        ((), Compression.NONE, Compression.ZSTD),
        (("-compress=false",), Compression.NONE, Compression.NONE),
        (("-compress-all",), Compression.ZSTD, Compression.ZSTD),
        (("-compress-mode=speed",), Compression.NONE, Compression.LZ4),
        (("-compress-all", "-compress-mode=speed"), Compression.LZ4, Compression.LZ4),
        (("-concat",), Compression.ZSTD, Compression.ZSTD),
    ],
)
def test_compression_is_reported(mode: tuple[str, ...], cubin: Compression, ptx: Compression) -> None:
    fatbin = read_fatbin(images.bundled(inputs(), *mode))
    assert {e.compression for e in fatbin.cubin_entries} == {cubin}
    assert {e.compression for e in fatbin.ptx_entries} == {ptx}


def test_lto_ir_is_returned_if_uncompressed() -> None:
    (plain,) = read_fatbin(images.bundled((link_time_input(),), "-compress=false")).ltoir_entries
    (packed,) = read_fatbin(images.bundled((link_time_input(),))).ltoir_entries
    assert plain.arch == packed.arch == Arch.parse("lto_90")
    assert plain.payload().startswith(link_time_input()[2])
    assert not plain.payload()[len(link_time_input()[2]) :].strip(b"\0")
    assert packed.flags & FatbinFlag.SCRAMBLED
    with raises(FormatError, "format", "nvJitLink", "at byte 16"):
        packed.payload()


def test_relocatable_cubin_stays_relocatable() -> None:
    image = images.cubin(images.TWO_FILES[0], "sm_80", "-rdc=true")
    (entry,) = read_fatbin(images.bundled((("cubin", "80", image),)))
    assert read_cubin(entry.payload()).is_relocatable


def test_only_nul_bytes_may_follow_a_fatbin() -> None:
    image = images.bundled(inputs())
    assert read_fatbin(image + bytes(64)).size == len(image)
    with raises(FormatError, "format", "find_fatbins"):
        read_fatbin(image + b"x")


def test_unknown_kind_is_kept_and_reported() -> None:
    image = bytearray(images.bundled(inputs()[:1]))
    image[16] = 0x40
    (entry,) = read_fatbin(bytes(image))
    assert (entry.kind, entry.code) == (EntryKind.OTHER, 0x40)
    assert entry.payload().startswith(b"\x7fELF")


# -- selection ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [(), ("-compress-all",), ("-concat",)], ids=" ".join)
@pytest.mark.parametrize(
    ("device", "taken"),
    [
        ("sm_75", "cubin sm_75"),
        ("sm_80", "ptx compute_75"),
        ("sm_90", "cubin sm_90a"),
        ("sm_100", "cubin sm_100f"),
        ("sm_103", "cubin sm_100f"),
        ("sm_110", "ptx compute_75"),
        ("sm_121", "cubin sm_120"),
        ("sm_70", "None"),
    ],
)
def test_gpu_selects_sass_first_then_the_newest_ptx(mode: tuple[str, ...], device: str, taken: str) -> None:
    assert str(select(read_fatbin(images.bundled(inputs(), *mode)), Arch.parse(device))) == taken


def test_nearest_of_several_images_is_selected() -> None:
    cubins = tuple(("cubin", a.removeprefix("sm_"), images.cubin(images.SAXPY, a)) for a in ("sm_80", "sm_86"))
    ptxs = tuple(("ptx", n, images.ptx(images.SAXPY, f"compute_{n}")) for n in ("75", "89"))
    fatbin = read_fatbin(images.bundled((*cubins, *ptxs)))
    assert [str(select(fatbin, Arch.parse(d))) for d in ("sm_80", "sm_89", "sm_90", "sm_75")] == [
        "cubin sm_80",
        "cubin sm_86",
        "ptx compute_89",
        "ptx compute_75",
    ]


def test_image_that_needs_linking_is_skipped() -> None:
    relocatable = ("cubin", "90", images.cubin(images.SAXPY, "sm_90", "-rdc=true"))
    fatbin = read_fatbin(images.bundled((relocatable, inputs()[5], link_time_input())))
    assert str(select(fatbin, Arch.parse("sm_90"))) == "ptx compute_75"


# -- host files ---------------------------------------------------------------------------------------------


def arches(found: tuple[Fatbin, ...]) -> list[list[str]]:
    return [[str(e.arch) for e in fatbin] for fatbin in found]


def one() -> bytes:
    return images.bundled(inputs()[:2])


def other() -> bytes:
    return images.bundled(inputs()[5:6])


@pytest.mark.parametrize("section", [b".nv_fatbin", b"__nv_relfatbin"])
def test_containers_are_found_in_host_objects(section: bytes) -> None:
    found = find_fatbins(host_object(one(), bytes(24), other(), section=section))
    assert arches(found) == [["sm_75", "sm_90"], ["compute_75"]]
    assert found[0].entries[0].payload() == inputs()[0][2]


def test_containers_are_found_in_archives_with_other_members() -> None:
    found = find_fatbins(
        archive(b"/symbols", host_object(one()), b"odd", host_object(other()), host_object(section=b".x"))
    )
    assert arches(found) == [["sm_75", "sm_90"], ["compute_75"]]


def test_containers_are_found_back_to_back() -> None:
    assert arches(find_fatbins(one() + other())) == [["sm_75", "sm_90"], ["compute_75"]]


@pytest.mark.parametrize(
    "pack", [bytes, host_object, lambda c: archive(b"odd", host_object(c))], ids=["bare", "object", "archive"]
)
def test_offsets_count_from_the_start_of_the_file(pack: Callable[[bytes], bytes]) -> None:
    data = pack(one() + other())
    entries = [e for fatbin in find_fatbins(data) for e in fatbin]
    assert [(data[e.offset], data[e.offset + 0x1C]) for e in entries] == [(2, 75), (2, 90), (1, 75)]


def test_pickled_entry_keeps_only_its_image() -> None:
    data = images.bundled(inputs(), "-concat")
    entries = [e for fatbin in find_fatbins(bytes(data) + bytes(1 << 20)) for e in fatbin]
    pickled = pickle.dumps(entries[0])
    assert pickle.loads(pickled) == entries[0]
    assert pickle.loads(pickled).payload() == entries[0].payload()
    assert len(pickled) < len(data)


def test_host_file_without_device_code_has_no_entries() -> None:
    assert find_fatbins(host_object(section=b".text")) == ()
    assert find_fatbins(images.cubin(images.SAXPY)) == ()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected a fatbin"),
        (b"MZ\x90\0", "expected a fatbin"),
        (b"!<thin>\n", "thin"),
        (b"!<arch>\nm.o/", "at byte 8"),
        (archive(bytes(100))[:-4], "truncated"),
        (archive(b"\x7fELF"), "68"),
        (host_object(b"something else"), "at byte 64"),
        (b"\x50\xed\x55\xba\1\0\x10\0" + bytes(8) + b"\x50\xed\x55\xba\1\0\x10\0", "at byte 16"),
        (host_object(b"\x50\xed\x55\xba\1\0\x10\0" + bytes((99, 0, 0, 0, 0, 0, 0, 0))), "truncated"),
    ],
)
def test_broken_host_file_is_refused(data: bytes, message: str) -> None:
    with raises(FormatError, "format", message):
        find_fatbins(data)


# -- bad input ----------------------------------------------------------------------------------------------


def everything(data: bytes) -> None:
    for fatbin in find_fatbins(data):
        for entry in fatbin:
            if not entry.flags & FatbinFlag.SCRAMBLED:
                entry.payload()
        select(fatbin, Arch.parse("sm_90"))


@pytest.mark.parametrize("mode", [(), ("-compress-mode=speed",), ("-concat",)], ids=" ".join)
def test_every_cut_is_refused(mode: tuple[str, ...]) -> None:
    image = images.bundled(inputs(), *mode)
    assert all(damage.refuses(read_fatbin, cut) for cut in damage.cuts(image, 150))


@pytest.mark.parametrize("mode", [(), ("-compress-all",), ("-compress-mode=speed",), ("-concat",)], ids=" ".join)
def test_damage_gives_a_value_or_a_format_error(mode: tuple[str, ...]) -> None:
    image = images.bundled(inputs(), *mode)
    for damaged in damage.flips(image, 150):
        damage.survives(everything, damaged)
    for damaged in damage.flips(image, 400, seed=1, only=400):
        damage.survives(everything, damaged)
    for damaged in damage.flips(archive(host_object(image)), 200, seed=2, only=300):
        damage.survives(everything, damaged)


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (0, b"XXXX", "fatbin"),
        (4, b"\x02\0", "at byte 4"),
        (8, b"\xff" * 8, "truncated"),
        (16 + 4, b"\x10\0\0\0", "at byte 16"),
        (16 + 8, b"\xff" * 8, "at byte 16"),
        (16 + 0x10, b"\xff" * 4, "at byte 32"),
        (16 + 0x14, b"\xff" * 4, "at byte 36"),
        (16 + 0x1C, b"\0" * 4, "at byte 44"),
        (16 + 0x24, b"\xff" * 4, "at byte 16"),
        (16 + 0x38, b"\xff" * 8, "at byte 112"),
        (16 + 0x38, b"\x01" + bytes(7), "at byte 112"),
    ],
)
def test_broken_header_error_has_its_field_and_offset(at: int, value: bytes, message: str) -> None:
    image = bytearray(images.bundled(inputs()[5:6]))
    image[at : at + len(value)] = value
    with raises(FormatError, "format", message) as error:
        everything_in(bytes(image))
    assert error.value.offset is not None


def everything_in(image: bytes) -> None:
    for entry in read_fatbin(image):
        entry.payload()


def test_concatenated_entry_past_the_payload_is_refused() -> None:
    image = bytearray(images.bundled(inputs()[5:7], "-concat"))
    assert int.from_bytes(image[16:18], "little") == 0x100
    table = 16 + int.from_bytes(image[16 + 0x14 : 16 + 0x18], "little") + 8
    image[table + 4 : table + 8] = b"\xff\xff\xff\x7f"
    with raises(FormatError, "format", "at byte 88"):
        read_fatbin(bytes(image))


def test_payload_that_is_not_a_cubin_is_refused() -> None:
    image = images.bundled(inputs()[:1], "-compress=false")
    with raises(FormatError, "format", "sm_75"):
        everything_in(image.replace(b"\x7fELF", b"\x7fELG"))


@pytest.mark.parametrize(
    ("packed", "compression", "size"),
    [
        (zstandard.compress(bytes(1 << 28)), Compression.ZSTD, 100),
        (zstandard.compress(bytes(1 << 28)), Compression.ZSTD, 1 << 40),
        (lz4.block.compress(bytes(1 << 24), store_size=False), Compression.LZ4, 100),
        (lz4.block.compress(bytes(100), store_size=False), Compression.LZ4, 1 << 30),
        (zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 28)), Compression.ZSTD, 100),
    ],
)
def test_payload_larger_than_declared_costs_no_memory(packed: bytes, compression: Compression, size: int) -> None:
    def reader(data: bytes) -> None:
        unpack(data, compression, size, 0)

    assert damage.refuses(reader, packed)
    _, peak = damage.cost(reader, packed)
    assert peak < 1 << 20


def test_nonbytes_are_refused_with_a_hint() -> None:
    for bad, why in ((None, "NoneType"), (Artifact(ImageKind.PTX, b"x"), "artifact.data")):
        with raises(FormatError, "format", why):
            read_fatbin(bad)  # type: ignore[arg-type]
        with raises(FormatError, "format", why):
            find_fatbins(bad)  # type: ignore[arg-type]
