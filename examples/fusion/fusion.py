"""Elementwise expressions over arrays, each computed by one kernel that is written for it.

::

    from fusion import compute, lazy

    x, y = lazy(a), lazy(b)             # arrays of NumPy, torch, CuPy or cujit, of one shape
    r = np.sqrt(x * x + y * y)          # nothing is computed: this is an expression
    length = r.compute()                # one kernel, one pass over the memory
    sine, cosine = compute(y / r, x / r)  # likewise, for several results

Operators record, and so do NumPy's ``where`` and the functions in ``OPERATORS`` and ``FUNCTIONS``. Dtypes are those
that NumPy gives. A kernel runs where the arrays lie: those of NumPy and tensors of the CPU on the CPU device, others on
their GPU, in the stream that torch is using. Results are of the library of the first array, or else arrays of cujit,
which other libraries take. Numbers, and NumPy's arrays without axes, go in by value: one kernel serves all of them.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

import cujit

__all__ = ["FUNCTIONS", "OPERATORS", "Lazy", "compute", "lazy", "write"]

C_TYPES = {
    np.dtype(np.float32): "float",
    np.dtype(np.float64): "double",
    np.dtype(np.int32): "int",
    np.dtype(np.int64): "long long",
    np.dtype(np.uint8): "unsigned char",
    np.dtype(np.bool_): "bool",
}
"""What elements may be, and what they are in C."""

OPERATORS: dict[np.ufunc, str] = {
    np.add: "{0} + {1}",
    np.subtract: "{0} - {1}",
    np.multiply: "{0} * {1}",
    np.true_divide: "{0} / {1}",
    np.negative: "-{0}",
    np.positive: "{0}",
    np.square: "{0} * {0}",
    np.absolute: "abs({0})",
    np.maximum: "{0} >= {1} || {0} != {0} ? {0} : {1}",  # a NaN wins
    np.minimum: "{0} <= {1} || {0} != {0} ? {0} : {1}",
    np.less: "{0} < {1}",
    np.less_equal: "{0} <= {1}",
    np.greater: "{0} > {1}",
    np.greater_equal: "{0} >= {1}",
    np.equal: "{0} == {1}",
    np.not_equal: "{0} != {1}",
    np.logical_and: "{0} && {1}",
    np.logical_or: "{0} || {1}",
    np.logical_not: "!{0}",
    np.isnan: "{0} != {0}",
}
"""What functions of NumPy are in C; ``{0}`` is a variable of the type that NumPy computes in."""

_ALIKE = "sqrt cbrt exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh floor ceil trunc rint hypot"
_ARCS = "arcsin arccos arctan arcsinh arccosh arctanh arctan2"
FUNCTIONS: dict[np.ufunc, str] = {
    np.power: "pow",
    **{getattr(np, name): name for name in _ALIKE.split()},
    **{getattr(np, name): name.replace("arc", "a") for name in _ARCS.split()},
}
"""What functions of NumPy are called in C; of floats alone."""


@dataclass(frozen=True, eq=False)
class Lazy(NDArrayOperatorsMixin):
    """An expression: an array, a number, or an operation over other expressions.

    ``leaf`` is the array or the number; ``code`` is the operation in C, over ``inputs`` that are made ``types`` first.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    leaf: Any = None
    code: str = ""
    inputs: tuple[Lazy, ...] = ()
    types: tuple[np.dtype[Any], ...] = ()

    def compute(self) -> Any:
        """Compute it, as ``compute`` does."""
        return compute(self)[0]

    def astype(self, dtype: Any) -> Lazy:
        """Give the elements as another dtype."""
        return _operation("{0}", [self], (np.dtype(dtype),) * 2)

    def __bool__(self) -> bool:
        raise TypeError("an expression is neither true nor false; its compute() gives an array")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **more: Any) -> Any:
        name = FUNCTIONS.get(ufunc)
        code = f"{name}({', '.join(['{0}', '{1}'][: ufunc.nin])})" if name else OPERATORS.get(ufunc)
        if method != "__call__" or more or code is None:
            return NotImplemented  # NumPy then says which function it is
        types = _types(ufunc, *map(_kind, inputs))
        if name and types[0].kind != "f":
            raise TypeError(f"{ufunc.__name__} computes in {types[0]} here: make its input a float by astype")
        return _operation(code, inputs, types)

    def __array_function__(self, function: Callable[..., Any], _: Any, inputs: Sequence[Any], more: Any) -> Any:
        if function is not np.where or len(inputs) != 3 or more:
            return NotImplemented
        *types, result = _types(np.maximum, *map(_kind, inputs[1:]))
        return _operation("{0} ? {1} : {2}", inputs, (np.dtype(bool), *types, result))


def lazy(array: Any) -> Lazy:
    """Make an expression of an array of NumPy, torch, CuPy or cujit, or of a number."""
    if isinstance(array, Lazy):
        return array
    if _is_tensor(array):
        tensor = array.detach().contiguous()
        dtype = np.dtype(str(tensor.dtype).removeprefix("torch."))
        return Lazy(dtype, tuple(tensor.shape), tensor)
    if isinstance(array, cujit.DeviceArray):
        return Lazy(array.dtype, array.shape, array)
    if (interface := getattr(array, "__cuda_array_interface__", None)) is not None:
        if interface.get("strides") is not None:
            raise TypeError("an array of a GPU has to lie in one piece: copy it first")
        return Lazy(np.dtype(interface["typestr"]), tuple(interface["shape"]), array)
    array = np.asarray(array, order="C")
    return Lazy(array.dtype, array.shape, array)


def compute(*expressions: Lazy) -> tuple[Any, ...]:
    """Compute expressions over arrays of one shape by one kernel, and give an array for each."""
    text, leaves, shape = write(expressions)
    arrays = [leaf for leaf in leaves if not _is_value(leaf)]
    device, stream, empty, finish = _place(arrays)
    results = [empty(shape, expression.dtype) for expression in expressions]
    count = math.prod(shape)
    inputs = (leaf.item() if _is_value(leaf) else _memory(leaf) for leaf in leaves)
    _kernel(text, device).over(count, stream=stream)(*inputs, *results, count)
    return tuple(map(finish, results))


def write(expressions: Sequence[Lazy]) -> tuple[str, list[Any], tuple[int, ...]]:
    """Write the kernel; give its text, the arrays and numbers that it takes, and the shape of what it computes."""
    names: dict[int, str] = {}
    parameters, lines, leaves = [], [], []
    for node in _in_order(expressions):
        name = names[id(node)] = f"t{len(names)}"
        of_type = _c_type(node.dtype)
        if node.code:
            variables = [_cast(names[id(x)], x.dtype, to) for x, to in zip(node.inputs, node.types, strict=True)]
            lines.append(f"const {of_type} {name} = {node.code.format(*variables)};")
            continue
        leaves.append(node.leaf)
        if _is_value(node.leaf):
            parameters.append(f"{of_type} {name}")
        else:
            parameters.append(f"const {of_type} *a{name}")
            lines.append(f"const {of_type} {name} = a{name}[{'i' if node.shape else '0'}];")
    for k, expression in enumerate(expressions):
        parameters.append(f"{_c_type(expression.dtype)} *out{k}")
        lines.append(f"out{k}[i] = {names[id(expression)]};")
    body = "\n    ".join(lines)
    text = f"""extern "C" __global__ void fused({", ".join(parameters)}, long long n) {{
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= n) return;
    {body}
}}
"""
    return text, leaves, _shape(expressions)


@functools.cache
def _kernel(text: str, device: cujit.Device) -> cujit.Kernel:
    """Give the kernel, whose operations round by themselves, as those of NumPy; its image is in the cache."""
    return cujit.jit(text, device=device, name="fused.cu", fmad=False)["fused"]


@functools.cache
def _types(ufunc: np.ufunc, *kinds: Any) -> tuple[np.dtype[Any], ...]:
    """Ask NumPy which dtypes it makes of the inputs, and the one of the result."""
    return ufunc.resolve_dtypes((*kinds, None))


def _operation(code: str, inputs: Sequence[Any], types: Sequence[np.dtype[Any]]) -> Lazy:
    """Record an operation over ``inputs``, whose dtypes for it are ``types``, with that of its result at the end."""
    wanted, nodes = types[:-1], []
    for given, dtype in zip(inputs, wanted, strict=True):
        nodes.append(Lazy(dtype, (), np.asarray(given, dtype)) if isinstance(given, int | float) else lazy(given))
    return Lazy(types[-1], _shape(nodes), None, code, tuple(nodes), tuple(wanted))


def _kind(given: Any) -> Any:
    """Give what NumPy chooses the dtype by: of Python's numbers their type, which gives way to a dtype."""
    return type(given) if type(given) in (int, float) else lazy(given).dtype


def _shape(nodes: Sequence[Lazy]) -> tuple[int, ...]:
    shapes = {node.shape for node in nodes} - {()}
    if len(shapes) > 1:
        raise ValueError(f"shapes differ: {' and '.join(map(str, sorted(shapes)))}; only scalars are broadcast")
    return shapes.pop() if shapes else ()


def _in_order(expressions: Sequence[Lazy]) -> Iterator[Lazy]:
    """Give each node once, after its inputs; a chain of any length, so it does not call itself."""
    seen: set[int] = set()
    waiting = [(node, False) for node in reversed(expressions)]
    while waiting:
        node, is_ready = waiting.pop()
        if is_ready:
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            waiting.append((node, True))
            waiting += [(x, False) for x in reversed(node.inputs)]


def _cast(name: str, dtype: np.dtype[Any], to: np.dtype[Any]) -> str:
    return name if dtype == to else f"(({_c_type(to)}){name})"


def _c_type(dtype: np.dtype[Any]) -> str:
    try:
        return C_TYPES[dtype]
    except KeyError:
        raise TypeError(f"no elements of {dtype} here; there are {', '.join(map(str, C_TYPES))}") from None


def _is_value(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray) and leaf.ndim == 0


def _is_tensor(leaf: Any) -> bool:
    torch: Any = sys.modules.get("torch")  # where nobody has imported it there are no tensors
    return torch is not None and isinstance(leaf, torch.Tensor)


def _is_of_host(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray) or (_is_tensor(leaf) and leaf.device.type == "cpu")


def _memory(leaf: Any) -> Any:
    """Give what a kernel takes of an array: of a tensor on the CPU the array of NumPy that shares its memory."""
    return leaf.numpy() if _is_of_host(leaf) and _is_tensor(leaf) else leaf


def _device(array: Any) -> Any:
    if isinstance(array, cujit.DeviceArray):
        return array.device
    if _is_of_host(array):
        return cujit.cpu()
    return cujit.gpu(array.__dlpack_device__()[1])


def _place(arrays: Sequence[Any]) -> tuple[Any, Any, Callable[..., Any], Callable[[Any], Any]]:
    """Say where arrays lie: the device, the stream, who makes an array there, and what makes a result of it."""
    first = arrays[0] if arrays else np.empty(0)
    device = _device(first)
    if others := {_device(array).name for array in arrays} - {device.name}:
        raise ValueError(f"arrays lie on {device.name} and on {', '.join(others)}: copy them to one device first")
    if not _is_tensor(first):
        return device, 0, np.empty if _is_of_host(first) else device.empty, lambda result: result
    torch: Any = sys.modules["torch"]
    if _is_of_host(first):
        return device, 0, np.empty, torch.from_numpy

    def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return torch.empty(shape, dtype=getattr(torch, dtype.name), device=first.device)

    stream = torch.cuda.current_stream(first.device).cuda_stream  # a number: launches of one number are kept
    return device, stream, empty, lambda result: result
