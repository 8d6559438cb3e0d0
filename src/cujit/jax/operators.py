"""A kernel as a function of JAX, by its foreign function interface: on GPUs and, on the CPU device, on the host."""

from __future__ import annotations

import functools
import inspect
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from cujit.artifact import Artifact
from cujit.cache.cache import Cache
from cujit.devices.arguments.pointers import without_const
from cujit.devices.arrays.array import DeviceArray
from cujit.devices.device import Device
from cujit.devices.streams import Allocation
from cujit.errors import ArgumentError, OptionError, UnsupportedError, spell
from cujit.forks import Lock
from cujit.jax.frames import ELEMENTS, Call, buffers, handler
from cujit.kernel import Launch
from cujit.machine import cpu, gpu
from cujit.operators.instances import Instances, Size, SizeOf
from cujit.program import Options, Source
from cujit.values import NamedTuple, group_by

_MOST_PLANS = 1024
"""Calls of one operator that are kept, by shapes, dtypes, numbers and stream."""

_OPERATORS: dict[str, _JaxOperator] = {}
"""By name, and what XLA calls for them; one that is defined again takes the place of the old one."""
_HANDLERS: list[Any] = []
_LOCK = Lock()


def operator(
    name: str,
    source: Source | Artifact | str | os.PathLike[str],
    *,
    kernel: str,
    outputs: Callable[..., Any],
    arguments: Callable[..., Sequence[object]],
    over: Callable[..., Size] | None = None,
    grid: SizeOf | None = None,
    block: Size | None = None,
    shared_bytes: int | Callable[..., int] = 0,
    backward: Callable[..., Any] | None = None,
    residuals: Callable[..., Any] | None = None,
    vmap_method: str = "sequential",
    input_output_aliases: Mapping[int, int] | None = None,
    options: Mapping[str, object] | Options | None = None,
    cache: Cache | bool | None = None,
) -> Callable[..., Any]:
    """Make a kernel a function of JAX, for the platforms ``cuda`` and ``cpu``, where it runs on the CPU device.

    The parameters of ``outputs`` are those of the function: its arrays by position, and behind ``*`` its numbers, which
    are given by name and, as static arguments, compiled into the program. ``jit``, ``vmap`` and ``grad`` take it. The
    kernel is compiled at the first run on a device. ``arguments``, ``over``, ``grid``, ``shared_bytes`` and
    ``residuals`` get the outputs, one by one, and then what the function was called with.

    Args:
        name: ``namespace::name``, by which XLA calls it; one that was defined before is replaced.
        source: text of CUDA C++, the path of a file, a ``Source``, or an Artifact that has the kernel.
        kernel: its name. ``{x}`` is the C++ type of the elements of the array ``x``, or the value of ``x`` if that is
            an int or a bool: ``"axpy<{x}, {n}>"``.
        outputs: gives shape and dtype of what is returned, one or a tuple: a ``jax.ShapeDtypeStruct``, or the array
            that it is like.
        arguments: gives what the kernel takes.
        over: gives how many threads run, along x, y and z; without it and ``grid``, one for each element of the first
            output.
        grid: the blocks instead, along x, y and z, or a function that gives them; no blocks launch nothing.
        block: threads of a block, 256 with ``grid``; else None is that of highest occupancy.
        shared_bytes: dynamic shared memory of a block, in bytes, or a function that gives it.
        backward: gets the residuals, the gradient of each output, and the numbers by name; it gives the gradient of
            each array, or None for one that has none. Without it, a gradient through the function is an error.
        residuals: gives what ``backward`` needs; without it, that is a tuple of the arrays.
        vmap_method: as for ``jax.ffi.ffi_call``: ``"sequential"`` launches once for each of a batch; with
            ``"broadcast_all"`` all arrays have one more axis before the others, as elementwise kernels do not mind.
        input_output_aliases: likewise, the number of an array to that of the output that begins as a copy of it.
        options: of the compiler, as for ``cujit.jit``.
        cache: as for ``cujit.jit``.

    Raises:
        OptionError: the name is none, or arguments of this function do not go together.

    Source: JAX manual, "Foreign function interface (FFI)" and ``jax.custom_vjp``.

    Example::

        scale = cujit.jax.operator(
            "mine::scale", SOURCE, kernel="scale<{x}>", outputs=lambda x, *, by: x,
            arguments=lambda out, x, *, by: (out, x, by, x.size),
        )
        doubled = scale(jnp.ones(1000), by=2.0)
    """
    if not isinstance(name, str) or name.count("::") != 1:
        raise OptionError(
            f"the name of a JAX operator must have the form namespace::name, not {spell(name)}",
            help="write a name such as mylib::axpy",
        )
    if over is not None and grid is not None:
        raise OptionError(
            f"{name} sets both over and grid",
            help="set threads with over=, or blocks with grid=",
            code="option-conflict",
        )
    if vmap_method not in _VMAP_METHODS:
        raise OptionError(
            f"{name}: vmap_method is {spell(vmap_method)}, which JAX doesn't support", help=" or ".join(_VMAP_METHODS)
        )
    signature = _Signature.of(name, outputs)
    instances = Instances(name, source, kernel, [*signature.arrays, *signature.numbers], options, cache)
    plain = signature.plain
    by_threads = over if over is not None else _elements if grid is None else None
    instances.sized_by(
        None if by_threads is None else plain(by_threads),
        plain(grid) if callable(grid) else grid,
        block,
        plain(shared_bytes) if callable(shared_bytes) else shared_bytes,
    )
    aliases = dict(input_output_aliases or {})
    made = _JaxOperator(name, signature, instances, outputs, plain(arguments), vmap_method, aliases)
    return _register(made).function(backward, residuals and plain(residuals))


_VMAP_METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all")


def _elements(out: Any, *_others: object, **_numbers: object) -> int:
    """Count the elements of the first output."""
    return int(out.size)


def _register(made: _JaxOperator) -> _JaxOperator:
    """Register an operator with XLA by its name, which XLA binds once and for all."""
    with _LOCK:
        is_new = made.name not in _OPERATORS
        _OPERATORS[made.name] = made
        if is_new:
            for platform in ("cpu", "CUDA"):
                found = handler(made.name, functools.partial(_run, made.name), platform == "CUDA")
                _HANDLERS.append(found)
                jax.ffi.register_ffi_target(made.name, jax.ffi.pycapsule(found), platform=platform)
    return made


def _run(name: str, call: Call) -> None:
    _OPERATORS[name].run(call)


class _Signature(NamedTuple):
    """The parameters of an operator: arrays by position, then numbers by name, some with a default."""

    name: str
    arrays: tuple[str, ...]
    numbers: tuple[str, ...]
    whole: inspect.Signature

    @classmethod
    def of(cls, name: str, outputs: Callable[..., Any]) -> _Signature:
        """Read it off ``outputs``."""
        found = inspect.signature(outputs)
        kinds = group_by((parameter.kind, parameter.name) for parameter in found.parameters.values())
        numbers = kinds.pop(inspect.Parameter.KEYWORD_ONLY, [])
        arrays = kinds.pop(inspect.Parameter.POSITIONAL_OR_KEYWORD, [])
        if kinds or not arrays:
            raise OptionError(
                f"{name}: the parameters of outputs are {found}, but must list arrays first, then numbers",
                help="write outputs=lambda x, y, *, a: x",
            )
        return cls(name, tuple(arrays), tuple(numbers), found)

    def plain(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function so that it receives the last positional numbers by name."""
        names = self.numbers
        if not names:
            return function

        def called(*whole: Any) -> Any:
            return function(*whole[: -len(names)], **dict(zip(names, whole[-len(names) :], strict=True)))

        return called

    def bind(self, given: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Split the arguments of a call into arrays and numbers.

        Raises:
            ArgumentError: the arguments don't match, or a number has another type.
        """
        if len(given) != len(self.arrays) or tuple(named) != self.numbers:
            try:
                bound = self.whole.bind(*given, **named)
            except TypeError as e:
                raise ArgumentError(
                    f"{self.name}{self.whole}: {e}", help="pass arrays first, then numbers by keyword"
                ) from e
            bound.apply_defaults()
            given, named = bound.args, bound.kwargs
        return given, {key: self._number(key, value) for key, value in named.items()}

    def _number(self, key: str, value: Any) -> bool | int | float:
        if isinstance(value, np.generic):
            value = value.item()
        if type(value) in (bool, int, float):
            return value  # type: ignore[no-any-return]
        what = "an array" if isinstance(value, jax.Array) else f"a {type(value).__name__}"
        raise ArgumentError(
            f"{self.name}: {key} is {what}, but must be a number that JAX knows when it traces the function",
            help=f"write jax.jit(…, static_argnames={spell(key)}), or pass an array, which the kernel receives "
            "as a pointer",
        )


class _OperatorPlan(NamedTuple):
    """The parts of a call that don't depend on addresses."""

    launch: Launch
    makers: tuple[Callable[[int], DeviceArray], ...]
    order: tuple[int, ...]
    numbers: tuple[Any, ...]


class _JaxOperator:
    """An operator: its description for JAX, and the execution of a call."""

    def __init__(
        self,
        name: str,
        signature: _Signature,
        instances: Instances,
        outputs: Callable[..., Any],
        arguments: Callable[..., Sequence[object]],
        vmap_method: str,
        aliases: dict[int, int],
    ) -> None:
        self.name = name
        self._signature = signature
        self._instances = instances
        self._outputs = outputs
        self._arguments = arguments
        self._vmap_method = vmap_method
        self._aliases = aliases
        self._plans: dict[object, _OperatorPlan] = {}

    # -- as JAX sees it -----------------------------------------------------------------------------------

    def function(self, backward: Callable[..., Any] | None, residuals: Callable[..., Any] | None) -> Callable[..., Any]:
        """Make the function; its numbers go as one text, in which 1, 1.0 and True differ, and 0.0 and -0.0."""
        bind, name = self._signature.bind, self.name
        traced = jax.custom_vjp(self._trace, nondiff_argnums=(0,))

        def forth(text: str, *arrays: Any) -> tuple[Any, Any]:
            result = self._trace(text, *arrays)
            if residuals is None:
                return result, arrays
            made = result if isinstance(result, tuple) else (result,)
            return result, residuals(*made, *arrays, *json.loads(text).values())

        def back(text: str, kept: Any, grads: Any) -> tuple[Any, ...]:
            if backward is None:
                raise UnsupportedError(
                    f"{name} doesn't define backward, but its gradient was requested",
                    help="write cujit.jax.operator(…, backward=…), or jax.lax.stop_gradient(x)",
                )
            found = backward(kept, *(grads if isinstance(grads, tuple) else (grads,)), **json.loads(text))
            return tuple(found) if isinstance(found, (tuple, list)) else (found,)

        traced.defvjp(forth, back)
        compiled = jax.jit(traced, static_argnums=0, inline=True)

        def call(*given: Any, **named: Any) -> Any:
            arrays, numbers = bind(given, named)
            return compiled(json.dumps(numbers), *arrays)

        call.__name__ = call.__qualname__ = name.partition("::")[2]
        call.__doc__ = f"Run {name}, a kernel as a function of JAX."
        call.__signature__ = self._signature.whole  # type: ignore[attr-defined]
        return call

    def _trace(self, text: str, *arrays: Any) -> Any:
        """Describe the results of a call to JAX. All detectable errors are raised here."""
        numbers = json.loads(text)
        given = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays]
        for key, x in zip(self._signature.arrays, given, strict=True):
            self._require(x, f"the array {key}")
        made = self._outputs(*given, **numbers)
        several = isinstance(made, (tuple, list))
        wanted = [self._shape(k, out) for k, out in enumerate(made if several else (made,))]
        if not wanted:
            raise OptionError(f"{self.name}: outputs returns nothing", help="a JAX function must return something")
        self._instances.spelled([*given, *numbers.values()])
        try:
            called = jax.ffi.ffi_call(
                self.name, wanted, vmap_method=self._vmap_method, input_output_aliases=self._aliases
            )
            found = called(*arrays, **({"numbers": text} if numbers else {}))
        except ValueError as e:
            raise OptionError(f"JAX doesn't accept {self.name}: {e}", help="input_output_aliases={0: 0}") from e
        return tuple(found) if several else found[0]

    def _shape(self, place: int, out: Any) -> jax.ShapeDtypeStruct:
        """Return the shape and dtype of one output from ``outputs``."""
        try:
            made = jax.ShapeDtypeStruct(tuple(out.shape), out.dtype)
        except (AttributeError, TypeError) as e:
            raise OptionError(
                f"{self.name}: output {place} is a {type(out).__name__}, which has no shape and dtype",
                help="return jax.ShapeDtypeStruct(shape, dtype)",
            ) from e
        self._require(made, f"output {place}")
        return made

    def _require(self, x: jax.ShapeDtypeStruct, what: str) -> None:
        if x.dtype not in _DTYPES:
            raise ArgumentError(
                f"{self.name}: {what} has elements of dtype {x.dtype}, but kernels accept only elements of whole bytes",
                help="convert the array: x.astype(jnp.int8)",
            )

    # -- as XLA calls it ----------------------------------------------------------------------------------

    def run(self, call: Call) -> None:
        """Launch the kernel for a call of XLA."""
        plan = self._plans.get((call.key, call.ordinal, call.stream)) or self._plan(call)
        found = [plan.makers[k](call.addresses[k]) for k in plan.order]
        plan.launch(*self._arguments(*found, *plan.numbers))

    def _plan(self, call: Call) -> _OperatorPlan:
        """Return the plan for calls with some shapes: compile the kernel, and check which arrays it may write to."""
        text, count, found = buffers(call.key)
        device = cpu() if call.ordinal < 0 else gpu(call.ordinal)
        numbers = tuple(json.loads(text).values()) if text else ()
        makers = tuple(functools.partial(_array, device, shape, dtype) for shape, dtype in found)
        arrays = [make(address) for make, address in zip(makers, call.addresses, strict=True)]
        given, whole = (*arrays[:count], *numbers), (*arrays[count:], *arrays[:count], *numbers)
        launch = self._instances.launch(given, whole, call.ordinal, call.stream)
        self._keep_from_writing(launch, self._arguments(*whole), arrays, count)
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
        plan = _OperatorPlan(launch, makers, (*range(count, len(arrays)), *range(count)), numbers)
        self._plans[call.key, call.ordinal, call.stream] = plan
        return plan

    def _keep_from_writing(
        self, launch: Launch, passed: Sequence[object], arrays: Sequence[DeviceArray], count: int
    ) -> None:
        """Refuse a kernel that may write to an array of JAX, which never change."""
        kept = {x.address for k, x in enumerate(arrays[:count]) if k not in self._aliases and x.nbytes}
        for place, (value, parameter) in enumerate(zip(passed, launch.kernel.signature, strict=False), 1):
            if not (isinstance(value, DeviceArray) and value.address in kept and parameter.pointee):
                continue
            bare, is_const = without_const(parameter.pointee)
            if not is_const:
                raise ArgumentError(
                    f"{launch.kernel.name} may write to argument {place}, {parameter}, which is an immutable JAX array",
                    help=f"declare `const {bare}*` in the kernel, or set input_output_aliases={{0: 0}}",
                )


_DTYPES = frozenset(ELEMENTS.values())


def _array(device: Device, shape: tuple[int, ...], dtype: np.dtype[Any], address: int) -> DeviceArray:
    """Return a buffer of XLA as an array."""
    return DeviceArray(device, Allocation(address, 0), shape, dtype)
