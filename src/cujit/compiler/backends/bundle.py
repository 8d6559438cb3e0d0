"""Bundling: images for several architectures into one fatbin, through nvFatbin."""

from __future__ import annotations

from collections.abc import Sequence

from cujit.arch import Arch
from cujit.arch.support import dotted
from cujit.artifact import Artifact, ImageKind
from cujit.compiler.backends.results import require_result
from cujit.compiler.inputs.entry import Entry
from cujit.compiler.inputs.images import InputImage, merged
from cujit.errors import BundleError, OptionError, ToolError
from cujit.errors.hints import Hint
from cujit.formats.tileir import read_tileir
from cujit.toolchain.nvfatbin import FatbinPacker
from cujit.toolchain.toolset import Toolchain

_COMPRESS_ALL_MODES = (13, 0)
TILEIR_SINCE = (13, 1)
_BUNDLED = (ImageKind.CUBIN, ImageKind.PTX, ImageKind.LTOIR, ImageKind.TILEIR, ImageKind.OBJECT)
_FOR_ALL = (ImageKind.OBJECT, ImageKind.TILEIR)
"""The kinds of images that are for no architecture of their own."""


def bundle_images(entries: Sequence[Entry], compress: str, toolchain: Toolchain) -> Artifact:
    """Pack the entries into one fatbin. ``compress`` is one of COMPRESSIONS.

    Raises:
        BundleError: a fatbin can't contain an entry, or two entries have the same kind and architecture.
        ToolchainNotFoundError: nvFatbin is not installed.
    """
    if not entries:
        raise BundleError("there is nothing to bundle")
    nvfatbin = toolchain.nvfatbin
    images = [_image(entry, index) for index, entry in enumerate(entries)]
    _check_once(images)
    if nvfatbin.version < TILEIR_SINCE and any(entry.image.kind is ImageKind.TILEIR for entry in entries):
        raise BundleError(
            f"{nvfatbin.tool} doesn't support Tile IR; {dotted(TILEIR_SINCE)} is the first release that does",
            help=f"run pip install 'nvidia-nvfatbin>={dotted(TILEIR_SINCE)}'",
        )
    options = _compression(compress, nvfatbin.version)
    try:
        with nvfatbin.packer(options) as packer:
            for entry, image in zip(entries, images, strict=True):
                _add(packer, entry, image)
            data = packer.fatbin()
    except ToolError as e:
        if e.call == "nvFatbinCreate":
            raise OptionError(
                f"{nvfatbin.tool} doesn't accept {' '.join(options)}",
                help=Hint("write compress='balance'", shell="--compress balance"),
                code="option-rejected",
            ) from None
        raise BundleError(
            f"a single fatbin can't contain all of {' + '.join(i.name for i in images)}",
            **e.facts,
        ) from None
    artifacts = [entry.image for entry in entries]
    names, signatures = merged(artifacts)
    log = "".join(dict.fromkeys(artifact.log for artifact in artifacts))
    bundled = Artifact(ImageKind.FATBIN, data, None, names, signatures, log, artifacts[0].name, nvfatbin.tool)
    return require_result(bundled, ())


def _image(entry: Entry, index: int) -> InputImage:
    kind = entry.image.kind
    if kind not in _BUNDLED:
        raise BundleError(
            f"entry {index + 1} is a {kind.value}; a fatbin can contain only cubins, PTX, LTO-IR and Tile IR",
            help="pass the entries of the fatbin individually" if kind is ImageKind.FATBIN else None,
        )
    image = InputImage(entry.image, index)
    actual = None if kind in _FOR_ALL else InputImage(Artifact(kind, entry.image.data), index).arch
    arch = entry.image.arch
    if kind not in _FOR_ALL and (arch or actual) is None:
        raise BundleError(f"cujit can't determine the architecture of {image.name}")
    if kind is ImageKind.TILEIR:
        read_tileir(entry.image.data)
    if arch and actual and (arch.number, kind) != (actual.number, kind):
        raise BundleError(f"{image.name} is labeled {arch}, but contains code for {actual}")
    return image


def _check_once(images: Sequence[InputImage]) -> None:
    seen: dict[tuple[ImageKind, Arch | None], InputImage] = {}
    for image in images:
        kind = image.artifact.kind
        arch = None if kind is ImageKind.TILEIR else image.arch
        if arch is None and kind is not ImageKind.TILEIR:
            continue
        other = seen.setdefault((kind, arch), image)
        if other is not image:
            raise BundleError(
                f"{other.name} and {image.name} are both {kind.value}{f' for {arch}' if arch else ''}; a "
                "loader would use only the first one",
                help=Hint(
                    "link them into one image first with cujit.link",
                    shell="link them into one image first with cujit link",
                ),
                code="bundle-conflict",
            )


def check_shadows(entries: Sequence[Entry]) -> None:
    """Refuse images if a loader would select one that lacks a kernel of another.

    A loader prefers SASS to PTX, and the highest architecture of each that the GPU runs.

    Raises:
        BundleError: there are two such images. The message names both and the kernels.
        FormatError: an image is damaged.
    """
    images = [InputImage(entry.image, index) for index, entry in enumerate(entries)]
    held = [(i, i.arch, i.kernels) for i in images if i.kernels is not None and i.arch is not None]
    for first, arch, kernels in held:
        for other, others_arch, wanted in held:
            lost = sorted(wanted - kernels)
            is_behind = (first.artifact.kind is ImageKind.CUBIN, arch) > (
                other.artifact.kind is ImageKind.CUBIN,
                others_arch,
            )
            if lost and is_behind and others_arch.runs_on(arch):
                raise BundleError(
                    f"{first.name} for {arch} lacks {', '.join(lost)}, which {other.name} defines: a GPU that "
                    "loads the first image would not find it",
                    help="bundle images of the same source, and use separate fatbins for kernels of different sources",
                    code="bundle-conflict",
                )


def _compression(word: str, version: tuple[int, int]) -> list[str]:
    if word == "default":
        return []
    if word == "none":
        return ["-compress=false"]
    if word == "concat":
        return ["-concat", "-compress-mode=balance", "-compress-all"]
    # Without -compress-all, nvFatbin 13 leaves machine code as it is in every mode but size.
    return [f"-compress-mode={word}", "-compress-all"] if version >= _COMPRESS_ALL_MODES else ["-compress-all"]


def _add(packer: FatbinPacker, entry: Entry, image: InputImage) -> None:
    kind, data = entry.image.kind, entry.image.data
    if kind is ImageKind.TILEIR:
        packer.add_tile_ir(data, entry.identifier, entry.options)
        return
    if kind is ImageKind.OBJECT or image.arch is None:
        packer.add_reloc(data)
        return
    number = f"{image.arch.number}{image.arch.suffix}"
    if kind is ImageKind.CUBIN:
        packer.add_cubin(data, number, entry.identifier)
    elif kind is ImageKind.PTX:
        packer.add_ptx(data, number, entry.identifier, entry.options)
    else:
        packer.add_ltoir(data, number, entry.identifier, entry.options)
