"""What ``cujit inspect --json`` prints.

Schema 1: an object with ``schema`` (1) and ``files``, a list. A file has ``name``, ``kind``, ``bytes``, ``images``.

An image has ``index``, ``kind``, ``arch``, ``container`` (which fatbin of a host file), ``bytes``, ``stored_bytes``,
``compression``, ``identifier``, ``options``, ``flags``, ``toolkit``, ``abi``, ``relocatable``, ``ptx``, ``target``,
``needs`` (the oldest PTX version and architecture that have all its constructs), ``kernels``, ``functions``,
``variables``, ``undefined``, ``commands``, ``carries_ptx`` (whether a cubin has the PTX that it was made of), ``note``
and ``error``.

A kernel has ``name`` (lowered), ``display``, ``arch``, ``parameters`` (``type``, ``class``, ``size``, ``align``,
``offset``), ``registers``, ``stack_bytes``, ``spill_store_bytes``, ``spill_load_bytes``, ``shared_bytes``,
``reserved_shared_bytes``, ``constant_bytes`` (by bank), ``barriers``, ``code_bytes``, ``max_threads``, ``max_block``,
``required_block``, ``cluster``, ``max_registers``, ``unbounded_stack`` (whether ``stack_bytes`` is null because of
recursion), ``max_cluster_blocks``, ``mbarriers``, ``virtual_resources`` and ``parameter_bytes``.

Sizes are in bytes; what is not known is null. Keys may be added; none goes or changes its meaning while the schema
is 1.

With ``--against``: ``schema``, ``a``, ``b``, ``kernels`` (``name``, ``display``, ``arch``, ``equal`` and, by metric,
``{"before", "after", "change"}``), ``only_a`` and ``only_b`` (kernels as above).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cujit.arch.support import Version, dotted
from cujit.formats.ptx.uses import together
from cujit.inspection.compare import Comparison, Pair
from cujit.inspection.values import ImageInfo, Inspection, KernelInfo
from cujit.signature import Signature
from cujit.values import attributes

SCHEMA = 1
Keep = Callable[[KernelInfo], bool]


def inspections_record(found: Sequence[Inspection], keep: Keep) -> dict[str, Any]:
    """Describe files, with the kernels that ``keep`` chooses."""
    return {"schema": SCHEMA, "files": [_file(inspection, keep) for inspection in found]}


def _file(inspection: Inspection, keep: Keep) -> dict[str, Any]:
    return {
        "name": inspection.name,
        "kind": inspection.kind.value,
        "bytes": inspection.size,
        "images": [_image(image, keep) for image in inspection],
    }


def _image(image: ImageInfo, keep: Keep) -> dict[str, Any]:
    return {
        "index": image.index,
        "kind": image.kind.value,
        "arch": _text(image.arch),
        "container": image.container,
        "bytes": image.size,
        **attributes(image, "stored_bytes compression identifier options flags"),
        "toolkit": _version(image.toolkit),
        "abi": image.abi,
        "relocatable": image.is_relocatable,
        "ptx": _version(image.ptx_version),
        "target": list(image.target),
        "needs": _needs(image),
        "kernels": [_kernel(kernel) for kernel in image.kernels if keep(kernel)],
        "functions": list(image.functions),
        "variables": [{"name": v.name, "bytes": v.size, "space": v.space} for v in image.variables],
        **attributes(image, "undefined commands carries_ptx note error"),
    }


def _needs(image: ImageInfo) -> dict[str, Any] | None:
    if not image.needs:
        return None
    needed = together(image.needs)
    least = needed.least or image.target[0].removeprefix("sm_")
    return {"ptx": _version(needed.of(least) or image.ptx_version), "arch": f"compute_{least}"}


def _kernel(kernel: KernelInfo) -> dict[str, Any]:
    return {
        **attributes(kernel, "name display"),
        "arch": _text(kernel.arch),
        "parameters": _parameters(kernel.signature),
        **attributes(kernel, "registers stack_bytes spill_store_bytes spill_load_bytes"),
        **attributes(kernel, "shared_bytes reserved_shared_bytes"),
        "constant_bytes": None if kernel.constant_bytes is None else dict(kernel.constant_bytes),
        **attributes(kernel, "barriers code_bytes max_threads max_block required_block cluster max_registers"),
        "unbounded_stack": kernel.has_unbounded_stack,
        **attributes(kernel, "max_cluster_blocks mbarriers virtual_resources parameter_bytes"),
    }


def _parameters(signature: Signature | None) -> list[dict[str, Any]] | None:
    if signature is None:
        return None
    return [
        {"type": p.type, "class": p.kind.value, "size": p.size, "align": p.align, "offset": offset}
        for p, offset in zip(signature, signature.offsets, strict=True)
    ]


def comparison_record(comparison: Comparison) -> dict[str, Any]:
    """Describe a comparison."""
    return {
        "schema": SCHEMA,
        "a": comparison.a,
        "b": comparison.b,
        "kernels": [_pair(pair) for pair in comparison.pairs],
        "only_a": [_kernel(kernel) for kernel in comparison.only_a],
        "only_b": [_kernel(kernel) for kernel in comparison.only_b],
    }


def _pair(pair: Pair) -> dict[str, Any]:
    metrics = {d.metric.value: {"before": d.before, "after": d.after, "change": d.change} for d in pair.differences}
    about = {"name": pair.name, "display": pair.after.display, "arch": _text(pair.arch), "equal": pair.is_equal}
    return about | metrics


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _version(version: Version | None) -> str | None:
    return None if version is None else dotted(version)
