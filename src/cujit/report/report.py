"""Contents of a report: the results of other functions, joined by source line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cujit.arch import Arch
from cujit.artifact import Artifact, ImageKind
from cujit.artifact.opening import open_image
from cujit.devices.cpu.observe.measures import Measures, ProfiledInstruction, ProfiledKernel
from cujit.devices.cpu.texts import ptx_of
from cujit.devices.device import Device
from cujit.devices.watch import Text
from cujit.errors import CompileError, CujitError, FormatError, KernelFaultError, listed
from cujit.inspection.read import inspect
from cujit.inspection.records import inspections_record
from cujit.inspection.sass import disassemble
from cujit.inspection.values import ImageInfo, Inspection
from cujit.loading import Module
from cujit.occupancy.plots import curves, stretches
from cujit.occupancy.subject import Subject, product_of, subject
from cujit.profile.bounding import bounds
from cujit.profile.records import kernel_record
from cujit.profile.roofline import roofs
from cujit.profile.rules import RULES
from cujit.program import link
from cujit.report.listings import (
    Listing,
    Quoted,
    ptx_listing,
    sass_listing,
    source_behind,
    sources_of,
    tile_listing,
)
from cujit.report.meanings import meanings_of
from cujit.report.page import page
from cujit.toolchain.tileiras import disassemble as tile_text
from cujit.values import NamedTuple, attributes, dataclass, field, replace
from cujit.values.keywords import has_keywords, take
from cujit.version import __version__

if TYPE_CHECKING:
    from typing import TypedDict

    from typing_extensions import Unpack

    class ReportKeywords(TypedDict, total=False):
        """The fields of ``ReportSettings``."""

        texts: Mapping[str, str | Text] | None
        errors: Iterable[CujitError]
        title: str
        assembler: Mapping[str, object] | None


SCHEMA = 1
_SHOWN_FILES = 6
_MOST_KERNELS = 24
"""Kernels of an image that a report has plots of."""


@dataclass(frozen=True)
class KernelReport:
    """One kernel of a report: its costs and its occupancy. None means unknown.

    ``on`` is the GPU of the bounds. ``block`` is the number of threads per block.
    """

    name: str
    profile: ProfiledKernel | None = None
    occupancy: Subject | None = None
    on: str | Device | None = None
    block: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the kernel's report as plain values, as ``cujit profile --json`` and ``cujit occupancy --json`` do."""
        return {
            "name": self.name,
            "profile": self.profile and self._costs(self.profile),
            "occupancy": self.occupancy and _occupancy_record(self.occupancy, self.block),
        }

    def _costs(self, profile: ProfiledKernel) -> dict[str, Any]:
        record = kernel_record(profile, self.on)
        for row, entry in zip(profile.instructions, record["instructions"], strict=True):
            entry["metrics"] = _metrics_of(profile, row)
        if self.on is not None:
            found = bounds(profile, self.on)
            slopes, levels = roofs(found)
            record["roofs"] = {
                "slopes": [{"label": roof.label, "bytes_per_s": roof.bytes_per_s} for roof in slopes],
                "levels": [{"label": roof.label, "flops_per_s": roof.flops_per_s} for roof in levels],
                "flops_per_s": found.flops / found.seconds if found.seconds else 0,
            }
        return record


@dataclass(frozen=True)
class ReportPage:
    """All known facts about an image, and the costs of its launches, for one page.

    ``inspections`` are of the image, and of the result of assembling its PTX. ``listings`` are its texts, with links
    between their lines. ``errors`` are findings of a compiler or of checks. ``notes`` name missing contents with the
    reasons.

    Example::

        profile = cujit.profile.Profile()
        profiled = cujit.cpu(profile=profile)
        module = cujit.jit(CODE, names=["axpy<float>"], device=profiled, name="axpy.cu")
        module["axpy<float>"][1, 32](2.0, x, y, 32)
        report = cujit.report.of(module, profile=profile.kernels[0], on="H200")
        Path("report.html").write_text(report.html())
    """

    title: str
    inspections: tuple[Inspection, ...]
    kernels: tuple[KernelReport, ...] = ()
    listings: tuple[Listing, ...] = field(default=(), repr=False)
    errors: tuple[CujitError, ...] = ()
    notes: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """Return what the page shows as plain values: those of ``--json``, the texts, and the findings by line.

        Example::

            record = cujit.report.of(cubin).record()
            assert record["inspections"][0]["kind"] == "cubin"
        """
        kernels = [kernel.to_json() for kernel in self.kernels]
        found = {each["rule"] for kernel in kernels if kernel["profile"] for each in kernel["profile"]["advice"]}
        return {
            "schema": SCHEMA,
            "cujit": __version__,
            "title": self.title,
            "inspections": inspections_record(self.inspections, lambda _: True)["files"],
            "kernels": kernels,
            "rules": {name: rule.to_json() for name, rule in RULES.items() if name in found},
            "measures": [*Measures.__match_args__],
            "meanings": meanings_of(self.listings, _counters(kernels)),
            "listings": [listing.to_json() for listing in self.listings],
            "errors": [self._placed(found) for error in self.errors for found in _error_records(error)],
            "notes": list(self.notes),
        }

    def _placed(self, found: dict[str, Any]) -> dict[str, Any]:
        """Add the source line of a PTX line, if that is known."""
        line = found.get("ptx_line", 0)
        source = source_behind(next((each for each in self.listings if each.kind == "ptx"), None), line)
        return found if source is None else {**found, "source": f"{source.file}:{source.line}"}

    def html(self) -> str:
        """Return the HTML page: one self-contained file below two megabytes.

        Contents that don't fit are omitted and named.

        Example::

        Path("report.html").write_text(cujit.report.of(cubin).html())
        """
        return page(self.record())


class ReportSettings(NamedTuple):
    """Settings of a report besides the image and its counters."""

    texts: Mapping[str, str | Text] | None = None
    errors: Iterable[CujitError] = ()
    title: str = ""
    assembler: Mapping[str, object] | None = None


@has_keywords(ReportSettings)
def of(
    what: Module | Artifact | bytes | str | os.PathLike[str],
    *,
    profile: ProfiledKernel | Sequence[ProfiledKernel] = (),
    on: str | Device | None = None,
    arch: str | Arch | None = None,
    kernels: Iterable[str] | None = None,
    **settings: Unpack[ReportKeywords],
) -> ReportPage:
    """Put together what is known of an image; nothing is launched, and no GPU is needed.

    Args:
        what: as for ``inspect``; of a Module the sources are known that are no files.
        profile: what launches cost, of PTX of this image. It is assembled, to show machine code and occupancy.
        on: the GPU for bounds and occupancy, by its name (``"H200"``) or one of this machine.
        arch: the architecture whose machine code is shown, if there are several.
        kernels: only these, by lowered names; None is all of them.
        texts: sources that are no files, by the names that the compiler was given.
        errors: what a compiler or checks found, to be shown at their lines.
        title: of the page; without it the name of the image.
        assembler: options that PTX is assembled with (docs/options.md); where they are said, and be it ``{}``, it is
            assembled though nothing was launched.

    Raises:
        CujitError: see ``inspect``, and ``cujit.profile.bounds`` for ``on``.

    Example::

        print(cujit.report.of(cubin).record()["kernels"][0]["name"])
    """
    texts, errors, title, assembler = take(ReportSettings, settings, of)
    known = {name: Text(name, text) if isinstance(text, str) else text for name, text in (texts or {}).items()}
    if isinstance(what, Module):
        own = what._image.texts.items()
        known = {name: Text(name, text.text) if os.path.isfile(name) else text for name, text in own} | known
    image = open_image(what, "report.of")
    found = inspect(image)
    counted = (profile,) if isinstance(profile, ProfiledKernel) else tuple(profile)
    making = _Making(
        image, found, Quoted(known, image.places), on, None if arch is None else Arch.parse(arch), assembler
    )
    names = _names(counted, kernels)
    listings = making.listings(names, is_assembled=bool(counted) or assembler is not None)
    rows = making.profiled(counted) if counted else making.built(names)
    name = title or (counted[0].name if len(counted) == 1 else found.name) or found.kind.value
    return ReportPage(name, tuple(making.found), tuple(rows), tuple(listings), tuple(errors), tuple(making.notes))


def _names(profiled: Sequence[ProfiledKernel], kernels: Iterable[str] | None) -> set[str] | None:
    """Return the lowered names of the kernels to show. None means all kernels."""
    return {kernel.lowered_name for kernel in profiled} or (None if kernels is None else set(kernels))


class _Making:
    """A report under construction: its subject, and the missing contents so far."""

    def __init__(
        self,
        image: Artifact,
        found: Inspection,
        quoted: Quoted,
        on: str | Device | None,
        arch: Arch | None,
        assembler: Mapping[str, object] | None,
    ) -> None:
        self.image = image
        self.found = [found]
        self.quoted = quoted
        self.on = on
        self.arch = arch
        self.assembler = {"lineinfo": True, **(assembler or {})}
        self.notes: list[str] = []
        self.machine_code: Artifact | None = None

    def listings(self, names: set[str] | None, *, is_assembled: bool) -> list[Listing]:
        """List sources, PTX and machine code: of the image, or that its PTX is assembled to."""
        if is_assembled:
            ptx = ptx_listing(ptx_of(self.image)[0], self.quoted)
            self.machine_code = self._assembled("\n".join(ptx.lines))
            if self.machine_code is not None:
                self.found.append(inspect(self.machine_code))
            own: list[Listing] = [ptx]
            sass = self._sass(self.machine_code, names or set(), ptx)
        else:
            own = self._ptx_of_image()
            sass = self._sass_of_image(names, own)
        own = [*self._tile_of_image(), *own, *sass]
        sources = self.quoted.listings(sources_of(own))
        if self.quoted.left_out:
            left_out = listed([os.path.basename(file) for file in self.quoted.left_out], _SHOWN_FILES)
            self.notes.append(f"not quoted, since it is not a source below a directory of yours: {left_out}")
        return [*sources, *own]

    def profiled(self, profiled: Sequence[ProfiledKernel]) -> list[KernelReport]:
        """Return the reports of the launched kernels."""
        rows = []
        for kernel in profiled:
            block = kernel.threads // kernel.blocks if kernel.blocks else None
            room = self._occupancy(self.machine_code, kernel.lowered_name)
            rows.append(KernelReport(kernel.name, kernel, room, self.on, block))
        return rows

    def built(self, names: set[str] | None) -> list[KernelReport]:
        """Return the reports of the kernels in the image."""
        infos = {k.name: k for k in self.found[0].kernels if names is None or k.name in names}
        if len(infos) > _MOST_KERNELS:
            self.notes.append(f"{len(infos) - _MOST_KERNELS} of {len(infos)} kernels have no plots: name some")
        shown = list(infos.values())[:_MOST_KERNELS]
        return [KernelReport(k.display, None, self._occupancy(self._cubin(), k.name), self.on) for k in shown]

    def _ptx_of_image(self) -> list[Listing]:
        image = self._image_of(ImageKind.PTX) or self._image_of(ImageKind.CUBIN)
        if image is None or not (image.kind is ImageKind.PTX or image.carries_ptx):
            return []
        try:
            return [ptx_listing(image.ptx(), self.quoted)]
        except FormatError as e:
            self.notes.append(e.message)
            return []

    def _tile_of_image(self) -> list[Listing]:
        image = self._image_of(ImageKind.TILEIR)
        if image is None:
            return []
        try:
            return [tile_listing(tile_text(image.payload(), lines=True), self.quoted)]
        except CujitError as e:
            self.notes.append(f"no Tile IR: {e.message}")
            return []

    def _image_of(self, kind: ImageKind) -> ImageInfo | None:
        """Return an image, of the requested architecture if there is one."""
        images = [image for image in self.found[0] if image.kind is kind and not image.error]
        wanted = (image for image in images if self.arch is not None and image.arch == self.arch)
        return next(wanted, next(iter(images), None))

    def _cubin(self) -> Artifact | None:
        image = self._image_of(ImageKind.CUBIN)
        return self.machine_code if image is None else Artifact(ImageKind.CUBIN, image.payload())

    def _assembled(self, text: str) -> Artifact | None:
        arch = self._wanted_arch()
        try:
            made = link([Artifact(ImageKind.PTX, text.encode(), name="PTX")], arch=arch, options=self.assembler)
            names, signatures = dict(self.image.names), dict(self.image.signatures)
            return replace(made, name=f"assembled for {made.arch}", names=names, signatures=signatures)
        except CujitError as e:
            self.notes.append(f"no SASS or occupancy is available: assembling the PTX failed ({e.message})")
            return None

    def _wanted_arch(self) -> Arch | None:
        """Return the architecture to assemble PTX for: the requested one, otherwise the GPU's. None means the PTX's own
        target.
        """
        if self.arch is not None or self.on is None:
            return self.arch
        return self.on.arch if isinstance(self.on, Device) else product_of(self.on).arch

    def _sass_of_image(self, names: set[str] | None, ptx: Sequence[Listing]) -> list[Listing]:
        """Return the SASS listings of the image. Their lines refer to ``ptx`` if it was recovered from the image."""
        cubin = self._cubin()
        kept = names and {k.name for k in self.found[0].kernels if k.kind is ImageKind.CUBIN} & names
        is_its_own = self._image_of(ImageKind.PTX) is None
        return self._sass(cubin, kept or set(), ptx[0] if ptx and is_its_own else None)

    def _sass(self, cubin: Artifact | None, names: set[str], ptx: Listing | None) -> list[Listing]:
        if cubin is None:
            return []
        try:
            text = disassemble(cubin.data, sorted(names), lines=True)
        except CujitError as e:
            self.notes.append(f"no machine code: {e.message}")
            return []
        return [sass_listing(text, f"SASS {inspect(cubin).images[0].arch}", self.quoted, ptx)]

    def _occupancy(self, cubin: Artifact | None, name: str) -> Subject | None:
        if cubin is None:
            return None
        try:
            return subject(cubin, kernel=name, on=self.on)
        except CujitError as e:
            self.notes.append(f"no occupancy of {name}: {e.message}")
            return None


# -- records --------------------------------------------------------------------------------------------------


def _metrics_of(kernel: ProfiledKernel, row: ProfiledInstruction) -> dict[str, int]:
    """Return the Nsight Compute counters that one instruction adds to."""
    if not row.access:
        return {}
    return {name: count for name, count in replace(kernel, instructions=(row,)).metrics().items() if count}


_DERIVED = ("sectors_per_request", "active_lanes", "distinct_sectors", "block_sectors", "reuse", "launches", "blocks")


def _counters(kernels: Sequence[Mapping[str, Any]]) -> list[str]:
    """List the counters that a page shows of kernels."""
    profiles = [kernel["profile"] for kernel in kernels if kernel["profile"]]
    metrics = [name for profile in profiles for name in (*profile["metrics"], *profile["metrics_of_ptx"])]
    return [*Measures.__match_args__, *_DERIVED, *dict.fromkeys(metrics)] if profiles else []


def _occupancy_record(found: Subject, block: int | None) -> dict[str, Any]:
    try:
        row = found.best() if block is None else found.at(block)
    except CujitError as e:
        return {"error": e.message}
    return {
        "gpu": found.product.name,
        "arch": str(found.product.arch),
        "registers": found.demand.registers,
        "static_shared_bytes": found.demand.shared_bytes,
        **row.to_json(),
        "curves": [
            {
                **attributes(curve, "label own own_label end"),
                "stretches": [
                    {"limiter": limiter.value, "edges": edges, "heights": heights}
                    for limiter, edges, heights in stretches(curve)
                ],
            }
            for curve in curves(found.demand, row.residency)
        ],
    }


def _error_records(error: CujitError) -> list[dict[str, Any]]:
    """Return the findings, with lines if known: each diagnostic of a compiler, or the fault of a launch."""
    if isinstance(error, CompileError) and error.diagnostics:
        return [
            {
                "rule": each.severity,
                "text": each.message,
                "source": f"{each.file}:{each.line}" if each.line else "",
                "column": each.column,
            }
            for each in error.diagnostics
        ]
    rule = error.kind if isinstance(error, KernelFaultError) and error.kind else "error"
    line, source = (error.line, error.source) if isinstance(error, KernelFaultError) else (0, "")
    found = {"rule": rule, "text": error.message, "cure": error.help or "", "source": source, "ptx_line": line}
    story = error.story if isinstance(error, KernelFaultError) else None
    return [found if story is None else {**found, "story": story.svg()}]
