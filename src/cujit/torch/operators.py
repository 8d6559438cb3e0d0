"""A kernel as an operator of ``torch.library``, for tensors on GPUs and, on the CPU device, for those of the host."""

from __future__ import annotations

import functools
import os
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch

from cujit.artifact import Artifact
from cujit.cache.cache import Cache
from cujit.devices.arguments.pointers import cpp_type
from cujit.errors import ArgumentError, OptionError, UnsupportedError, spell
from cujit.forks import Lock
from cujit.kernel import Kernel, Launch
from cujit.loading import jit, load
from cujit.machine import cpu, gpu
from cujit.program import Options, Source

_Size: TypeAlias = int | tuple[int, ...]
_SizeOf: TypeAlias = _Size | Callable[..., _Size]

_MOST_LAUNCHES = 256
"""Launches of one kernel that are kept, by size and stream."""

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
    over: Callable[..., _Size] | None = None,
    grid: _SizeOf | None = None,
    block: _Size | None = None,
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
        raise OptionError(f"{name} has both over and grid", help="threads by over=, or blocks by grid=")
    if parsed.returns and outputs is None:
        raise OptionError(f"{name} returns something, and nothing makes it", help="outputs=lambda …: torch.empty(…)")
    written = tuple(k for k, a in enumerate(parsed.arguments) if a.alias_info is not None and a.alias_info.is_write)
    if written and backward is not None:
        raise OptionError(
            f"{name} writes to an argument, and torch takes no backward of such an operator",
            help="return a new tensor instead, or leave backward out",
        )
    if over is None and grid is None:
        over = _elements(name, len(parsed.returns), written)
    made = _Operator(name, parsed, source, kernel, arguments, outputs or _nothing, written)
    made.compiled_by(options, cache)
    made.sized_by(over, grid, block, shared_bytes)
    made.backward, made.setup_context = backward, setup_context
    return _register(name, schema, made)


def _parsed(name: str, schema: str) -> Any:
    """Read a schema by torch, and refuse what operators of ours do not have."""
    if not isinstance(name, str) or name.count("::") != 1:
        raise OptionError(f"an operator of torch is called namespace::name, not {spell(name)}", help="mylib::axpy")
    try:
        parsed = torch._C.parse_schema(f"{name}{schema}")
    except RuntimeError as e:
        raise OptionError(
            f"torch does not take the schema {spell(schema)} of {name}: {e}", help="(Tensor x, float a) -> Tensor"
        ) from e
    if named := [a.name for a in parsed.arguments if a.kwarg_only]:
        raise OptionError(f"{name}: {', '.join(named)} can be given by name alone", help="leave * out of the schema")
    if any(r.alias_info is not None for r in parsed.returns):
        raise OptionError(f"{name} returns what it was given", help="outputs are new: return nothing instead")
    return parsed


def _register(name: str, schema: str, made: _Operator) -> Any:
    """Register an operator by all that torch asks for, and give it."""
    space, _, word = name.partition("::")
    if (old := _LIBRARIES.pop(name, None)) is not None:
        old._destroy()
    library = torch.library.Library(space, "FRAGMENT")
    try:
        library.define(word + schema, tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides))
    except RuntimeError as e:
        raise OptionError(f"torch does not take {name}: {e}", help="another name") from e
    _LIBRARIES[name] = library
    found = getattr(getattr(torch.ops, space), word).default
    library.impl(word, made.on_host, "CPU")
    library.impl(word, made.on_gpu, "CUDA")
    library.impl(word, _with_autograd(made, found), "Autograd")
    torch.library.register_fake(name, made.fake, lib=library)
    return found


def _with_autograd(made: _Operator, found: Any) -> Callable[..., Any]:
    """Make what torch calls first: a node of autograd where a gradient is wanted, else the operator without it.

    ``torch.library.register_autograd`` means the same. What it makes takes three times as long where no gradient is
    wanted, and refuses in words of its own.
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
                    f"{made.name} has no backward, and a gradient was asked for through it",
                    help="cujit.torch.operator(…, backward=…), or x.detach()",
                )
            return made.backward(ctx, *grads)

    def autograd(*given: Any) -> Any:
        if not (torch.is_grad_enabled() and torch._C._any_requires_grad(*given)):
            return below(*given)
        if made.written:
            raise UnsupportedError(
                f"{made.name} writes to an argument, and a gradient was asked for through it",
                help="with torch.no_grad(): …, or an operator that returns a new tensor",
            )
        return _Node.apply(*made.all(given))

    return autograd


def _nothing(*_arguments: object) -> None:
    """Make the outputs of an operator that has none."""


def _elements(name: str, outputs: int, written: tuple[int, ...]) -> Callable[..., int]:
    """Count the elements of the first output, or else of the first tensor that is written to."""
    if not outputs and not written:
        raise OptionError(f"{name} returns nothing and writes to nothing", help="mark what it writes: Tensor(a!) y")
    place = 0 if outputs else written[0]

    def count(*given: Any) -> int:
        return int(given[place].numel())

    return count


class _Operator:
    """One operator: its kernels by device and template, and how a call goes."""

    def __init__(
        self,
        name: str,
        schema: Any,
        source: Source | Artifact | str | os.PathLike[str],
        kernel: str,
        arguments: Callable[..., Sequence[object]],
        outputs: Callable[..., Any],
        written: tuple[int, ...],
    ) -> None:
        self.written = written
        self.backward: Callable[..., Any] | None = None
        self.setup_context: Callable[..., None] | None = None
        self.name = name
        self._source = source
        self._kernel = kernel
        self._arguments = arguments
        self._outputs = outputs
        self._defaults = tuple(a.default_value for a in schema.arguments)
        tensors = [k for k, a in enumerate(schema.arguments) if str(a.type) == "Tensor"]
        if not tensors:
            raise OptionError(f"{name} takes no tensor, so nothing says where it runs", help="Tensor x in the schema")
        self._tensor = tensors[0]
        self._fields = _fields(name, kernel, [a.name for a in schema.arguments])
        self._kernels: dict[object, tuple[Kernel, dict[object, Launch]]] = {}
        self._lock = Lock()

    def compiled_by(self, options: Mapping[str, object] | Options | None, cache: Cache | bool | None) -> None:
        """Say how the source is compiled."""
        self._build = functools.partial(jit, options=options, cache=cache)

    def sized_by(
        self,
        over: Callable[..., _Size] | None,
        grid: _SizeOf | None,
        block: _Size | None,
        shared_bytes: int | Callable[..., int],
    ) -> None:
        """Say what is launched: ``over`` threads, or a ``grid`` of blocks."""
        self._over = over is not None
        self._size: Callable[..., _Size] | None = over if over is not None else grid if callable(grid) else None
        self._fixed = grid if not callable(grid) and grid is not None else 0
        self._block = block
        self._shared = shared_bytes

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
                f"{self.name} takes tensors of one device, and these are on {' and '.join(sorted(places))}",
                help="x.to(y.device)",
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
        size = self._fixed if self._size is None else self._size(*whole)
        shared = self._shared if type(self._shared) is int else self._shared(*whole)  # type: ignore[operator]
        where = (ordinal, *[_part(given[k]) for k in self._fields.values()]) if self._fields else ordinal
        kernel, launches = self._kernels.get(where) or self._load(where, given, ordinal)
        launch = launches.get((size, shared, stream)) or self._fix(kernel, launches, size, shared, stream)
        launch(*self._arguments(*whole))
        for k in self.written:
            torch.autograd.graph.increment_version(given[k])
        return result

    def _load(self, where: object, given: tuple[Any, ...], ordinal: int) -> tuple[Kernel, dict[object, Launch]]:
        """Compile a kernel for a device, or find that another thread did."""
        parts = {field: _spelled(self.name, field, given[k]) for field, k in self._fields.items()}
        name = self._kernel.format(**parts)
        with self._lock:
            if where not in self._kernels:
                device = cpu() if ordinal < 0 else gpu(ordinal)
                if isinstance(self._source, Artifact):
                    module = load(self._source, device)
                else:
                    module = self._build(self._source, names=[name], device=device)
                self._kernels[where] = module[name], {}
            return self._kernels[where]

    def _fix(self, kernel: Kernel, launches: dict[object, Launch], size: _Size, shared: int, stream: int) -> Launch:
        """Make a launch; that over nothing, or of no blocks, launches nothing."""
        if self._over or size == 0 or (type(size) is tuple and 0 in size):
            launch = kernel.over(size, block=self._block, shared_bytes=shared, stream=stream)
        else:
            launch = kernel.prepare(size, self._block or 256, shared_bytes=shared, stream=stream)
        if len(launches) >= _MOST_LAUNCHES:
            launches.clear()
        launches[size, shared, stream] = launch
        return launch


# -- templates --------------------------------------------------------------------------------------------


def _fields(name: str, kernel: str, arguments: Sequence[str]) -> dict[str, int]:
    """Find the arguments that the name of a kernel has in braces, and their places."""
    try:
        fields = {field for _, field, _, _ in string.Formatter().parse(kernel) if field is not None}
    except ValueError as e:
        raise OptionError(f"{name}: kernel {spell(kernel)} is malformed: {e}", help='"axpy<{x}>"') from e
    if unknown := sorted(fields - {*arguments}):
        raise OptionError(
            f"{name}: kernel {spell(kernel)} has {', '.join(unknown)} in braces; it has no such argument",
            help=f"its arguments are {', '.join(arguments)}",
        )
    return {field: arguments.index(field) for field in sorted(fields)}


def _part(value: Any) -> object:
    """Give what of an argument chooses an instance of a template."""
    return value.dtype if isinstance(value, torch.Tensor) else (type(value), value)


def _spelled(name: str, field: str, value: Any) -> str:
    """Spell an argument in the name of a kernel."""
    if isinstance(value, torch.Tensor):
        if (found := cpp_type(str(value.dtype).removeprefix("torch."))) is not None:
            return found
    elif isinstance(value, int):
        return str(value).lower()
    what = value.dtype if isinstance(value, torch.Tensor) else type(value).__name__
    raise ArgumentError(
        f"{name}: the kernel's name has {{{field}}}, and {what} has no word in C++ there",
        help="a tensor of numbers, an int or a bool",
    )
