"""Tables of ``cujit inspect``: images, kernels, and changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from cujit.arch.support import dotted
from cujit.artifact import ImageKind
from cujit.cli.console import Rows, printable, shown_bytes
from cujit.errors import counted
from cujit.inspection.compare import Change, Comparison, Metric, Pair
from cujit.inspection.values import ImageInfo, Inspection, KernelInfo
from cujit.values import dataclass

_MOST_IMAGES = 48
"""Images of a file that are shown one by one; of more there is a total, unless all are asked for."""
_MOST_CHARACTERS = 48
_UNKNOWN = "-"
_MOST_FOLDED_ROWS = 500


@dataclass(frozen=True)
class KernelFilter:
    """Filter for kernels by their lowered ``names``. None selects all."""

    names: frozenset[str] | None = None

    def __call__(self, kernel: KernelInfo) -> bool:
        """Return whether the kernel was requested."""
        return self.names is None or kernel.name in self.names

    def chosen(self, inspection: Inspection) -> list[ImageInfo]:
        """Return the images with a selected kernel, or all images without a selection."""
        return [image for image in inspection if self.names is None or any(map(self, image.kernels))]


def _table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str], styles: Sequence[str] = ()
) -> str | Rows:
    """Return a table. A table with many rows becomes text without folded cells, because folding takes
    most of the time.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    if len(rows) <= _MOST_FOLDED_ROWS:
        return Rows(columns, rows, right, styles)
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    lines = (columns, ["─" * width for width in widths], *rows)
    return "\n".join(_aligned(columns, cells, widths, right) for cells in lines)


def _aligned(columns: Sequence[str], cells: Sequence[str], widths: Sequence[int], right: Sequence[str]) -> str:
    padded = (
        cell.rjust(width) if column in right else cell.ljust(width)
        for column, cell, width in zip(columns, cells, widths, strict=True)
    )
    return "   ".join(padded).rstrip()


def render_images(inspection: Inspection, keep: KernelFilter, everything: bool = False) -> Iterator[str | Rows]:
    """Yield the images of a file, then its kernels. For a file with very many images, yield totals."""
    count = len(inspection)
    yield (
        f"{inspection.name}: {inspection.kind.value}, {shown_bytes(inspection.size)} bytes, {counted(count, 'image')}"
    )
    if not count:
        yield ("there is no device code in it\n")
        return
    if count > _MOST_IMAGES and not everything and keep.names is None:
        yield from _totals(inspection)
        return
    images = keep.chosen(inspection)
    yield from _images(images)
    kernels = [kernel for image in images for kernel in image.kernels if keep(kernel)]
    if kernels:
        yield from _kernels(kernels)


def _totals(inspection: Inspection) -> Iterator[str | Rows]:
    """Yield the number of images of each kind and architecture without reading their contents."""
    keys = [(image.kind, str(image.arch or _UNKNOWN)) for image in inspection]
    count, size, stored = Counter(keys), Counter[tuple[ImageKind, str]](), Counter[tuple[ImageKind, str]]()
    for key, image in zip(keys, inspection, strict=True):
        size[key] += image.size
        stored[key] += image.stored_bytes
    rows = [
        (kind.value, arch, str(count[kind, arch]), shown_bytes(size[kind, arch]), shown_bytes(stored[kind, arch]))
        for kind, arch in count
    ]
    yield Rows(("kind", "arch", "images", "bytes", "stored"), rows, ("images", "bytes", "stored"))
    for image in inspection:
        if image.is_read and image.error:
            yield (printable(f"image {image.index} is damaged: {image.error}"))
    yield ("\n--all shows every image and kernel, --arch and --kernels some of them\n")


def _images(images: list[ImageInfo]) -> Iterator[str | Rows]:
    columns = ("", "kind", "arch", "bytes", "stored", "made by", "kernels", "about")
    rows = [
        (
            str(image.index),
            image.kind.value,
            str(image.arch or _UNKNOWN),
            shown_bytes(image.size),
            shown_bytes(image.stored_bytes) + ("" if image.compression == "none" else f" {image.compression}"),
            f"CUDA {dotted(image.toolkit)}" if image.toolkit else _UNKNOWN,
            str(len(image.kernels)) if _is_read_through(image) else _UNKNOWN,
            _about(image),
        )
        for image in images
    ]
    styles = ["red" if image.error else "" for image in images]
    yield _table(columns, rows, right=("", "bytes", "stored", "kernels"), styles=styles)
    yield ""


def _is_read_through(image: ImageInfo) -> bool:
    return not (image.note or image.error)


def _about(image: ImageInfo) -> str:
    """Return other facts about an image in a few words."""
    if image.error:
        return f"damaged: {image.error}"
    found = [image.note]
    if image.ptx_version:
        found.append(f"PTX {dotted(image.ptx_version)}{_least(image)}")
    if image.is_relocatable:
        found.append("relocatable: to be linked")
    if image.carries_ptx and not image.note:
        found.append("carries its PTX")
    if image.variables:
        found.append(counted(len(image.variables), "variable"))
    if image.undefined:
        found.append(f"needs {_short(', '.join(image.undefined))}")
    if image.identifier:
        found.append(f"called {_short(image.identifier)}")
    if image.options.strip():
        found.append(f"options {_short(image.options.strip())}")
    return ", ".join(filter(None, found))


def _least(image: ImageInfo) -> str:
    """Return the lowest version and target that the PTX requires, if lower than declared."""
    least = max((need.ptx for need in image.needs), default=None)
    return f" (uses what {dotted(least)} has)" if least and image.ptx_version and least < image.ptx_version else ""


def _short(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"


_NUMBERS = ("regs", "stack", "spills", "shared", "const", "bars", "code")


def _kernels(kernels: list[KernelInfo]) -> Iterator[str | Rows]:
    """Yield one row per kernel with its resource usage, then parameters, once if all architectures have the same."""
    columns = ("kernel", "arch", *_NUMBERS, "threads")
    yield _table(columns, [_kernel_row(kernel) for kernel in kernels], right=(*_NUMBERS, "threads"))
    if any(kernel.kind is ImageKind.CUBIN and kernel.spill_bytes is None for kernel in kernels):
        yield "\nfor spills that aren't shown, specify the assembler's log: --assembler-log FILE"
    yield ""
    takes = dict.fromkeys((k.display, str(k.signature)) for k in kernels if k.signature is not None)
    if takes:
        yield _table(("kernel", "takes"), list(takes), right=())
        yield ""


def _kernel_row(kernel: KernelInfo) -> tuple[str, ...]:
    return (
        kernel.display,
        str(kernel.arch or _UNKNOWN),
        _number(kernel.registers),
        _number(kernel.stack_bytes),
        _spills(kernel),
        _number(kernel.shared_bytes),
        _constants(kernel),
        _number(kernel.barriers),
        _number(kernel.code_bytes),
        _threads(kernel),
    )


def _number(value: int | None) -> str:
    return _UNKNOWN if value is None else shown_bytes(value)


def _spills(kernel: KernelInfo) -> str:
    """Stores and loads, or one zero for both."""
    stores, loads = kernel.spill_store_bytes, kernel.spill_load_bytes
    return _number(stores) if stores == loads and not stores else f"{_number(stores)}+{_number(loads)}"


def _constants(kernel: KernelInfo) -> str:
    return _number(None if kernel.constant_bytes is None else sum(kernel.constant_bytes.values()))


def _threads(kernel: KernelInfo) -> str:
    """The threads that a block may have, or must have, and the cluster."""
    cluster = f", cluster {'x'.join(map(str, kernel.cluster))}" if kernel.cluster else ""
    if kernel.max_threads is None:
        return f"{_UNKNOWN}{cluster}"
    return f"{'=' if kernel.required_block else '≤'}{kernel.max_threads}{cluster}"


# -- comparisons ------------------------------------------------------------------------------------------

_METRICS = {
    Metric.REGISTERS: "registers",
    Metric.SPILL_STORES: "spill stores",
    Metric.SPILL_LOADS: "spill loads",
    Metric.SHARED: "shared",
    Metric.STACK: "stack",
    Metric.CODE: "code",
}


def render_changes(comparison: Comparison, everything: bool = False) -> Iterator[str | Rows]:
    """Yield the changes of each kernel, and the kernels that only one side has.

    Equal kernels and metrics are omitted unless ``everything`` is set.
    """
    changed = [pair for pair in comparison.pairs if not pair.is_equal]
    if everything and comparison.pairs:
        yield from _pairs(comparison.pairs, list(Metric))
    elif changed:
        yield from _pairs(changed, [m for m in Metric if any(_differs(pair, m) for pair in changed)])
    for where, kernels in ((comparison.a, comparison.only_a), (comparison.b, comparison.only_b)):
        for kernel in kernels:
            yield (printable(f"only in {where}: {kernel.display} ({kernel.arch or _UNKNOWN})"))
    yield (
        f"{len(comparison.pairs)} kernels in both: {len(comparison.grew)} grew, {len(comparison.shrank)} shrank, "
        f"{len(comparison.pairs) - len(changed)} equal; {len(comparison.only_a)} only in {comparison.a}, "
        f"{len(comparison.only_b)} only in {comparison.b}"
    )


def _pairs(pairs: Sequence[Pair], metrics: Sequence[Metric]) -> Iterator[str | Rows]:
    numbers = tuple(_METRICS[m] for m in metrics)
    rows = [(p.after.display, str(p.arch or _UNKNOWN), *_changes(p, metrics)) for p in pairs]
    yield _table(("kernel", "arch", *numbers), rows, right=numbers, styles=[_style(pair) for pair in pairs])
    yield ""


def _differs(pair: Pair, metric: Metric) -> bool:
    return metric.of(pair.before) != metric.of(pair.after)


def _changes(pair: Pair, metrics: Sequence[Metric]) -> list[str]:
    return [_change(d) for d in pair.differences if d.metric in metrics]


def _change(difference: Change) -> str:
    if difference.change is None and difference.before != difference.after:
        return f"{_number(difference.before)} → {_number(difference.after)}"
    if not difference.change:
        return _number(difference.after)
    return f"{_number(difference.before)} → {_number(difference.after)} ({difference.change:+,})"


def _style(pair: Pair) -> str:
    if pair.grew and pair.shrank:
        return "yellow"
    return "red" if pair.grew else "green" if pair.shrank else ""
