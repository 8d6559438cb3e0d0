"""Fused kernels for training, on GPUs and, for NumPy arrays, on the CPU device of cujit.

An array is a NumPy array, or anything with ``__cuda_array_interface__`` (Torch, CuPy, JAX). It is contiguous, and
all arrays of a call are of one type, ``float32`` or ``float64``.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import cujit

__all__ = ["adamw", "layer_norm"]

_HERE = Path(__file__).parent
_TYPES = {"<f4": "float", "<f8": "double"}
_LAYER_NORM_THREADS = 256


def adamw(
    parameter: Any,
    gradient: Any,
    mean: Any,
    square: Any,
    *,
    step: int,
    rate: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    epsilon: float = 1e-8,
    decay: float = 0.01,
    stream: Any = None,
) -> None:
    """Take one step of AdamW in place: ``parameter``, and the running ``mean`` and ``square`` of its ``gradient``.

    ``step`` counts from 1. Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", algorithm 2.
    """
    size, kind = _same(parameter, gradient, mean, square)
    corrections = 1 - betas[0] ** step, 1 - betas[1] ** step
    kernel = _kernel("adamw", kind, _device_of(parameter))
    numbers = (rate, *betas, epsilon, decay, *corrections)
    kernel.over(size, stream=stream)(parameter, gradient, mean, square, size, *numbers)


def layer_norm(x: Any, weight: Any, bias: Any, out: Any, *, epsilon: float = 1e-5, stream: Any = None) -> None:
    """Write rows of ``x`` with mean 0 and variance 1, times ``weight`` and plus ``bias``, to ``out``.

    ``x`` and ``out`` are of one shape; ``weight`` and ``bias`` have the length of a row.
    """
    size, kind = _same(x, out)
    width, _ = _same(weight, bias)
    kernel = _kernel("layer_norm", kind, _device_of(x))
    kernel[size // width, _LAYER_NORM_THREADS, 0, stream](x, weight, bias, out, width, epsilon)


def _kernel(name: str, kind: str, device: cujit.Device) -> cujit.Kernel:
    return _module(name, device)[f"{name}<{kind}>"]


@functools.cache
def _module(name: str, device: cujit.Device) -> cujit.Module:
    # What the wheel brings; in a checkout there are no packs, and it is compiled here.
    shipped = cujit.Cache.packaged("fusedsteps")
    names = [f"{name}<{kind}>" for kind in _TYPES.values()]
    return cujit.jit(_HERE / f"{name}.cu", names=names, device=device, cache=shipped)


def _device_of(array: Any) -> cujit.Device:
    return cujit.gpu() if hasattr(array, "__cuda_array_interface__") else cujit.cpu()


def _same(*arrays: Any) -> tuple[int, str]:
    """Give the number of elements and the type of arrays that must agree in both."""
    found = set()
    for array in arrays:
        known = getattr(array, "__cuda_array_interface__", None) or array.__array_interface__
        size = 1
        for length in known["shape"]:
            size *= length
        found.add((size, known["typestr"]))
    (size, kind), *others = found
    if others or kind not in _TYPES:
        raise ValueError(f"arrays of one size and of float32 or float64 are wanted, not {sorted(found)}")
    return size, _TYPES[kind]
