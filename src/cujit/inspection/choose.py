"""Choosing kernels of machine code: by name patterns, by architecture, or by the GPU that would run them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from cujit.arch import Arch
from cujit.artifact import ImageKind
from cujit.errors import ArchError, FormatError, NameNotFoundError, OptionError, listed, spell
from cujit.errors.hints import Hint
from cujit.inspection.values import ImageInfo, Inspection, KernelInfo
from cujit.values import dataclass

Names = str | Sequence[str] | None
"""Name patterns: one, several, or None for every kernel."""

_SHOWN_NAMES = 12
_BUILD = Hint(
    "build it for a real architecture: cujit.compile(source, arch='sm_90') or cujit.link([image], arch='sm_90')",
    shell="build it for a real architecture: cujit compile FILE -a sm_90, or cujit link FILE -a sm_90 -o x.cubin",
)


@dataclass(frozen=True)
class Choice:
    """Kernels with the index of the pattern that applies to each. ``left_out`` names the other contents."""

    kernels: tuple[tuple[KernelInfo, int], ...]
    left_out: tuple[str, ...] = ()


def choose_kernels(
    inspection: Inspection,
    patterns: Sequence[str],
    names: Names = None,
    arch: str | Arch | Sequence[str | Arch] | None = None,
    device: Arch | None = None,
) -> Choice:
    """Choose the kernels of machine code that one of ``patterns`` fits; the first that does decides.

    ``names`` and ``arch`` leave out what they do not name; ``device`` is a GPU's architecture, and leaves of each
    kernel the code that such a GPU would run.

    Raises:
        FormatError: there is no machine code, or not of all kernels; it is damaged, or still to be linked.
        NameNotFoundError: there is no kernel, or none that a pattern fits.
        ArchError: there is no machine code for ``arch`` or ``device``.
        OptionError: a pattern is malformed, or never decides.
    """
    wanted = _texts(names)
    images = _images(inspection, _arches(arch), device)
    kernels = [kernel for image in images for kernel in image.kernels]
    if not kernels:
        raise NameNotFoundError(
            f"the machine code of {_called(inspection)} contains no kernel",
            help=Hint(
                "for a template, list its instances: names=['axpy<float>']",
                shell="for a template, list its instances: <-n> 'axpy<float>'",
            ),
        )
    bytecode_only = _only_as_ptx(inspection)
    if wanted is not None:
        kept = {name for text in wanted for name in _found(text, kernels, bytecode_only, inspection)}
        kernels = [kernel for kernel in kernels if kernel.name in kept]
        bytecode_only = []
    decided = _decide(patterns, kernels, bytecode_only, inspection)
    if device is not None:
        kernels = _nearest(kernels)
    chosen = tuple((kernel, decided[kernel.name]) for kernel in kernels if kernel.name in decided)
    unnamed = dict.fromkeys(
        f"{kernel.display}: no pattern matches it" for kernel in kernels if kernel.name not in decided
    )
    return Choice(chosen, (*_other_images(inspection), *unnamed))


# -- names ------------------------------------------------------------------------------------------------


def names_matching(pattern: str, kernels: Iterable[KernelInfo]) -> set[str]:
    """Return the lowered names of the kernels that match a pattern.

    A pattern that is the name of a kernel means that one; else it is the name of a template, or a glob (``*``, ``?``,
    ``[…]``) of names as displayed or lowered, in which spaces do not count.
    """
    listed = list(kernels)
    if exact := {k.name for k in listed if k.is_called(pattern)}:
        return exact
    glob = _unspaced(pattern)
    return {
        k.name
        for k in listed
        if k.is_instance_of(pattern) or fnmatchcase(_unspaced(k.display), glob) or fnmatchcase(k.name, glob)
    }


def _unspaced(text: str) -> str:
    return re.sub(r"\s+", "", text)


def _texts(names: object) -> list[str] | None:
    if names is None:
        return None
    listed = [names] if isinstance(names, str) else list(names) if isinstance(names, Sequence) else []
    if not listed or not all(isinstance(name, str) for name in listed):
        raise OptionError(
            f"kernels must be a name, a pattern or a list of these, not {spell(names)}",
            help=Hint("write, for example, kernel='axpy<*>'", shell="--kernels 'axpy<*>'"),
        )
    return listed


def _decide(
    patterns: Sequence[str], kernels: Sequence[KernelInfo], ptx_only: Sequence[KernelInfo], inspection: Inspection
) -> dict[str, int]:
    """Map lowered names to the index of the first pattern that fits; every pattern must decide for a kernel."""
    decided: dict[str, int] = {}
    for index, pattern in enumerate(patterns):
        found = _found(pattern, kernels, ptx_only, inspection)
        new = found - set(decided)
        if not new:
            earlier = patterns[decided[min(found)]]
            raise OptionError(
                f"the pattern {spell(pattern)} has no effect: the earlier pattern {spell(earlier)} matches "
                "every kernel that it matches",
                help="list the narrower pattern first",
            )
        decided.update(dict.fromkeys(new, index))
    return decided


def _found(
    pattern: object, kernels: Sequence[KernelInfo], ptx_only: Sequence[KernelInfo], inspection: Inspection
) -> set[str]:
    if not isinstance(pattern, str) or not pattern.strip():
        raise OptionError(f"expected a kernel name or a pattern, not {spell(pattern)}", help="'axpy<float>', 'axpy<*>'")
    if missing := names_matching(pattern, ptx_only):
        raise FormatError(
            f"{', '.join(sorted(missing))}: the image contains only PTX, so there is no machine code to check",
            help=_BUILD,
        )
    found = names_matching(pattern, kernels)
    if not found:
        raise NameNotFoundError(
            f"the machine code of {_called(inspection)} contains no kernel named {spell(pattern)}",
            help=f"it contains {listed((k.display for k in kernels), _SHOWN_NAMES, pattern)}",
        )
    return found


# -- images -----------------------------------------------------------------------------------------------


def _called(inspection: Inspection) -> str:
    return inspection.name or "this image"


def _images(inspection: Inspection, arches: Sequence[Arch] | None, device: Arch | None) -> list[ImageInfo]:
    """Return the requested SASS images, all of which are readable and linked."""
    _require_readable(inspection, arches, device)
    code = [image for image in inspection if image.kind is ImageKind.CUBIN]
    have = ", ".join(dict.fromkeys(str(image.arch) for image in code))
    if not code:
        kinds = ", ".join(dict.fromkeys(image.kind.value for image in inspection)) or "no image"
        raise FormatError(
            f"a kernel's resource usage is known only for machine code, but {_called(inspection)} contains {kinds}",
            help=_BUILD,
        )
    there = {image.arch for image in code}
    for arch in arches or ():
        if arch not in there:
            raise ArchError(
                f"{_called(inspection)} contains no machine code for {arch}",
                help=f"choose one of its architectures: {have}",
                code="arch-mismatch",
            )
    matching = [image for image in code if _matches(image.arch, arches, device)]
    if not matching:
        raise ArchError(
            f"{_called(inspection)} contains no machine code that runs on {device}",
            help=f"build it for that GPU; the image is for {have}",
            code="arch-mismatch",
        )
    _require_linked(inspection, matching)
    return matching


def _require_readable(inspection: Inspection, arches: Sequence[Arch] | None, device: Arch | None) -> None:
    for image in inspection:
        if image.error and _matches(image.arch, arches, device):
            raise FormatError(f"{_called(inspection)}: can't check image {image.index} ({image}): {image.error}")


def _require_linked(inspection: Inspection, images: Sequence[ImageInfo]) -> None:
    for image in images:
        if image.is_relocatable:
            raise FormatError(
                f"{_called(inspection)}: image {image.index} ({image}) must be linked first, because linking "
                "determines the resources of its kernels",
                help=Hint(
                    f"cujit.link([image], arch='{image.arch}')", shell=f"run cujit link FILE -a {image.arch} -o x.cubin"
                ),
            )


def _matches(arch: Arch | None, arches: Sequence[Arch] | None, device: Arch | None) -> bool:
    if arch is None:
        return True
    return (arches is None or arch in arches) and (device is None or arch.runs_on(device))


def _arches(arch: str | Arch | Sequence[str | Arch] | None) -> tuple[Arch, ...] | None:
    if arch is None:
        return None
    if not isinstance(arch, (str, Arch, Sequence)):
        raise ArchError(f"an architecture must be a name such as 'sm_90' or an Arch, not {spell(arch)}")
    found = tuple(map(Arch.parse, [arch] if isinstance(arch, (str, Arch)) else arch))
    if not found or not all(a.is_real for a in found):
        target = next((str(a) for a in found if not a.is_real), "none")
        raise ArchError(f"machine code requires a real architecture, not {target}", help="sm_90")
    return found


def _nearest(kernels: Sequence[KernelInfo]) -> list[KernelInfo]:
    """Of each kernel the code that a GPU prefers: of the nearest architecture, the most specific variant."""
    best: dict[str, tuple[int, int]] = {}
    for k in kernels:
        best[k.name] = max(best.get(k.name, (0, 0)), _rank(k))
    return [k for k in kernels if _rank(k) == best[k.name]]


def _rank(kernel: KernelInfo) -> tuple[int, int]:
    arch = kernel.arch
    return (arch.number, "fa".find(arch.suffix or "-")) if arch else (0, 0)


def _only_as_ptx(inspection: Inspection) -> list[KernelInfo]:
    """Return the kernels of PTX and LLVM IR without SASS.

    PTX in the same fatbin as SASS is assumed to have the same source, and isn't read.
    """
    compiled = {image.container for image in inspection if image.kind is ImageKind.CUBIN}
    rest = [image for image in inspection if image.kind is not ImageKind.CUBIN and image.container not in compiled]
    if not rest:
        return []
    known = {kernel.name for image in inspection if image.kind is ImageKind.CUBIN for kernel in image.kernels}
    return [kernel for image in rest for kernel in image.kernels if kernel.name not in known]


def _other_images(inspection: Inspection) -> list[str]:
    count = Counter(str(image) for image in inspection if image.kind is not ImageKind.CUBIN)
    return [image if number == 1 else f"{number} images of {image}" for image, number in count.items()]
