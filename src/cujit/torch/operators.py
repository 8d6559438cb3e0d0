"""Kernels as operators of ``torch.library``, for tensors on GPUs and, with the CPU device, for host tensors."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from cujit.artifact import Artifact
from cujit.cache.cache import Cache
from cujit.errors import ArgumentError, OptionError, UnsupportedError, spell
from cujit.operators.instances import Instances, Size, SizeOf
from cujit.program import Options, Source

_LIBRARIES: dict[str, Any] = {}
"""The registrations of torch, by operator; one that is defined again takes the place of the old one."""


def operator(
    name: str,
    source: Source | Artifact | str | os.PathLike[str],
    *,
    kernel: str,
    schema: str,
    arguments: Callable[..., Sequence[object]],
    outputs: Callable[..., Any] | None = None,
    over: Callable[..., Size] | None = None,
    grid: SizeOf | None = None,
    block: Size | None = None,
    shared_bytes: int | Callable[..., int] = 0,
    backward: Callable[..., Any] | None = None,
    setup_context: Callable[..., None] | None = None,
    options: Mapping[str, object] | Options | None = None,
    cache: Cache | bool | None = None,
) -> Any:
    """Make a kernel an operator of torch: ``torch.ops.<name>.default``, which this gives.

    It takes tensors on a GPU, where it runs in torch's current stream, and tensors of the host, where it runs on the
    CPU device and copies nothing. ``torch.compile`` takes it without a graph break, CUDA graphs capture it. The kernel
    is compiled at the first call on a device. Functions get the outputs, one by one, and then the operator's arguments.

    Args:
        name: ``namespace::name``; one that was defined before is replaced.
        source: text of CUDA C++, the path of a file, a ``Source``, or an Artifact that has the kernel.
        kernel: its name. ``{x}`` is the C++ type of the elements of the argument ``x``, or its value if that is an int
            or a bool: ``"axpy<{x}, {n}>"``.
        schema: as torch writes it: ``"(float a, Tensor x, Tensor(b!) y) -> Tensor"``, where ``(b!)`` is written to.
        arguments: gives what the kernel takes.
        outputs: makes the outputs from the operator's arguments, a tensor or a tuple; torch calls it for shapes too.
        over: gives how many threads run, along x, y and z; without it and ``grid``, one for each element of the first
            output, or else of the first tensor that is written to.
        grid: the blocks instead, along x, y and z, or a function that gives them; no blocks launch nothing.
        block: threads of a block, 256 with ``grid``; else None is that of highest occupancy.
        shared_bytes: dynamic shared memory of a block, in bytes, or a function that gives it.
        backward: as for ``torch.library.register_autograd``; without it, going back through the operator is an error.
        setup_context: likewise.
        options: of the compiler, as for ``cujit.jit``.
        cache: as for ``cujit.jit``.

    Raises:
        OptionError: the name or the schema is none, or arguments of this function do not go together.

    Source: PyTorch manual, "Custom Python Operators" and ``torch.library``.

    Example::

        scale = cujit.torch.operator(
            "mine::scale", SOURCE, kernel="scale<{x}>", schema="(Tensor x, float by) -> Tensor",
            outputs=lambda x, by: torch.empty_like(x), arguments=lambda out, x, by: (out, x, by, x.numel()),
        )
        doubled = scale(torch.ones(1000), 2.0)
    """
    parsed = _parsed(name, schema)
    if over is not None and grid is not None:
        raise OptionError(
            f"{name} sets both over and grid",
            help="set threads with over=, or blocks with grid=",
            code="option-conflict",
        )
    if parsed.returns and outputs is None:
        raise OptionError(
            f"{name} returns a tensor, but nothing creates the tensor", help="write outputs=lambda …: torch.empty(…)"
        )
    written = tuple(k for k, a in enumerate(parsed.arguments) if a.alias_info is not None and a.alias_info.is_write)
    if written and backward is not None:
        raise OptionError(
            f"{name} writes to an argument, and PyTorch doesn't support backward for such an operator",
            help="return a new tensor instead, or remove backward",
        )
    if over is None and grid is None:
        over = _elements(name, len(parsed.returns), written)
    instances = Instances(name, source, kernel, [a.name for a in parsed.arguments], options, cache)
    instances.sized_by(over, grid, block, shared_bytes)
    made = _TorchOperator(name, parsed, instances, arguments, outputs or _nothing, written)
    made.backward, made.setup_context = backward, setup_context
    return _register(name, schema, made)


def _parsed(name: str, schema: str) -> Any:
    """Parse a schema with torch, and refuse features that cujit's operators don't support."""
    if not isinstance(name, str) or name.count("::") != 1:
        raise OptionError(
            f"the name of a PyTorch operator must have the form namespace::name, not {spell(name)}",
            help="write a name such as mylib::axpy",
        )
    try:
        parsed = torch._C.parse_schema(f"{name}{schema}")
    except RuntimeError as e:
        raise OptionError(
            f"PyTorch doesn't accept the schema {spell(schema)} of {name}: {e}",
            help="write a schema such as (Tensor x, float a) -> Tensor",
            code="option-rejected",
        ) from e
    if named := [a.name for a in parsed.arguments if a.kwarg_only]:
        raise OptionError(f"{name}: {', '.join(named)} can be passed only by name", help="remove * from the schema")
    if any(r.alias_info is not None for r in parsed.returns):
        raise OptionError(
            f"{name} returns one of its arguments", help="return nothing instead: outputs are new tensors"
        )
    return parsed


def _register(name: str, schema: str, made: _TorchOperator) -> Any:
    """Register an operator with all functions that torch needs, and return it."""
    space, _, word = name.partition("::")
    if (old := _LIBRARIES.pop(name, None)) is not None:
        old._destroy()
    library = torch.library.Library(space, "FRAGMENT")
    try:
        library.define(word + schema, tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides))
    except RuntimeError as e:
        raise OptionError(f"PyTorch doesn't accept {name}: {e}", help="another name") from e
    _LIBRARIES[name] = library
    found = getattr(getattr(torch.ops, space), word).default
    library.impl(word, made.on_host, "CPU")
    library.impl(word, made.on_gpu, "CUDA")
    library.impl(word, _with_autograd(made, found), "Autograd")
    torch.library.register_fake(name, made.fake, lib=library)
    return found


def _with_autograd(made: _TorchOperator, found: Any) -> Callable[..., Any]:
    """Return the function that torch calls first: with an autograd node if a gradient is required, otherwise the
    operator.

    ``torch.library.register_autograd`` does the same, but takes three times as long without a gradient, and has
    different error messages.
    """

    def below(*given: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return found(*given)

    class _Node(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, *given: Any) -> Any:
            result = below(*given)
            if made.setup_context is not None:
                made.setup_context(ctx, given, result)
            return result

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            if made.backward is None:
                raise UnsupportedError(
                    f"{made.name} doesn't define backward, but its gradient was requested",
                    help="write cujit.torch.operator(…, backward=…), or x.detach()",
                )
            return made.backward(ctx, *grads)

    def autograd(*given: Any) -> Any:
        if not (torch.is_grad_enabled() and torch._C._any_requires_grad(*given)):
            return below(*given)
        if made.written:
            raise UnsupportedError(
                f"{made.name} writes to an argument, but its gradient was requested",
                help="write with torch.no_grad(): …, or an operator that returns a new tensor",
            )
        return _Node.apply(*made.all(given))

    return autograd


def _nothing(*_arguments: object) -> None:
    """Create the outputs of an empty call."""


def _elements(name: str, outputs: int, written: tuple[int, ...]) -> Callable[..., int]:
    """Return the number of elements of the first output, otherwise of the first tensor that is written."""
    if not outputs and not written:
        raise OptionError(
            f"{name} neither returns a tensor nor writes to one",
            help="mark the tensor that the operator writes to: Tensor(a!) y",
        )
    place = 0 if outputs else written[0]

    def count(*given: Any) -> int:
        return int(given[place].numel())

    return count


class _TorchOperator:
    """An operator, with the function that performs a call."""

    def __init__(
        self,
        name: str,
        schema: Any,
        instances: Instances,
        arguments: Callable[..., Sequence[object]],
        outputs: Callable[..., Any],
        written: tuple[int, ...],
    ) -> None:
        self.written = written
        self.backward: Callable[..., Any] | None = None
        self.setup_context: Callable[..., None] | None = None
        self.name = name
        self._launch = instances.launch
        self._arguments = arguments
        self._outputs = outputs
        self._defaults = tuple(a.default_value for a in schema.arguments)
        tensors = [k for k, a in enumerate(schema.arguments) if str(a.type) == "Tensor"]
        if not tensors:
            raise OptionError(
                f"{name} has no tensor argument, so cujit can't determine its device",
                help="add a tensor to the schema: Tensor x",
            )
        self._tensor = tensors[0]

    def on_host(self, *given: Any) -> Any:
        """Run on the CPU device."""
        return self._run(given, -1, 0)

    def on_gpu(self, *given: Any) -> Any:
        """Run on the GPU of the first tensor, in torch's current stream."""
        ordinal = given[self._tensor].get_device()
        return self._run(given, ordinal, torch._C._cuda_getCurrentRawStream(ordinal))

    def fake(self, *given: Any) -> Any:
        """Make the outputs of a call without running anything."""
        places = {str(t.device) for t in given if isinstance(t, torch.Tensor)}
        if len(places) > 1:
            raise ArgumentError(
                f"{self.name} requires tensors on the same device, but these are on {' and '.join(sorted(places))}",
                help="move the tensor: x.to(y.device)",
                code="device-mismatch",
            )
        return self._outputs(*self.all(given))

    def all(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """Add the defaults that torch leaves out."""
        return given + self._defaults[len(given) :]

    def _run(self, given: tuple[Any, ...], ordinal: int, stream: int) -> Any:
        if len(given) < len(self._defaults):
            given = self.all(given)
        result = self._outputs(*given)
        outputs = () if result is None else result if type(result) is tuple else (result,)
        whole = (*outputs, *given)
        self._launch(given, whole, ordinal, stream)(*self._arguments(*whole))
        for k in self.written:
            torch.autograd.graph.increment_version(given[k])
        return result
