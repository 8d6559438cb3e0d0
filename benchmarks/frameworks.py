"""What a call of an operator costs: ours, and what else the users of torch and JAX have, in one run for each.

Without a GPU the calls run on the CPU device; what needs one is left out, and the last line says so. Times are CPU
seconds of this process, as medians of turns that alternate; the queue of the GPU is emptied between turns.
"""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy

import cujit

CODE = """
extern "C" __global__ void axpy(float a, const float *x, const float *y, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a * x[i] + y[i];
}
"""
N = 1024
CALLS = 500
"""Calls of one turn: fewer than fill the driver's queue, so that none waits for the GPU."""
TURNS = 21

Call = Callable[[], object]


def ours(torch: Any, x: Any, y: Any) -> dict[str, Call]:
    """Operators of ours, a custom operator of torch around a launch of ours, and the launch alone."""
    import cujit.torch as cujit_torch

    operator = cujit_torch.operator(
        "cujit_benchmarks::axpy",
        CODE,
        kernel="axpy",
        schema="(float a, Tensor x, Tensor y) -> Tensor",
        outputs=lambda _a, x, _y: torch.empty_like(x),
        arguments=lambda out, a, x, y: (a, x, y, out, x.numel()),
    )
    in_place = cujit_torch.operator(
        "cujit_benchmarks::axpy_",
        CODE,
        kernel="axpy",
        schema="(float a, Tensor x, Tensor(b!) y) -> ()",
        arguments=lambda a, x, y: (a, x, y, y, x.numel()),
    )
    launch = cujit.jit(CODE, device=str(x.device))["axpy"].over(N)
    out = torch.empty_like(x)

    def custom(a: float, x: Any, y: Any) -> Any:
        made = torch.empty_like(x)
        launch(a, x, y, made, N)
        return made

    schema = "(float a, Tensor x, Tensor y) -> Tensor"
    by_torch = torch.library.custom_op("cujit_benchmarks::custom", custom, mutates_args=(), schema=schema)
    return {
        "cujit.torch.operator": lambda: operator(2.0, x, y),
        "cujit.torch.operator, in place": lambda: in_place(0.0, x, y),
        "custom_op around our launch": lambda: by_torch(2.0, x, y),
        "torch.empty_like and our launch": lambda: custom(2.0, x, y),
        "our launch": lambda: launch(2.0, x, y, out, N),
        "torch.add(y, x, alpha=2)": lambda: torch.add(y, x, alpha=2.0),
    }


def of_torch(torch: Any, x: Any, y: Any) -> dict[str, Call]:
    """Launches and operators by torch alone, on a GPU."""
    found: dict[str, Call] = {}
    out, blocks = torch.empty_like(x), -(-N // 256)
    if hasattr(torch.cuda, "_compile_kernel"):
        kernel = torch.cuda._compile_kernel(CODE, "axpy")
        found["torch.cuda._compile_kernel"] = lambda: kernel((blocks, 1, 1), (256, 1, 1), (2.0, x, y, out, N))

        def made() -> Any:
            new = torch.empty_like(x)
            kernel((blocks, 1, 1), (256, 1, 1), (2.0, x, y, new, N))
            return new

        found["torch.empty_like and _compile_kernel"] = made
    inline = importlib.import_module("torch.utils.cpp_extension").load_inline(
        name="cujit_benchmarks",
        cpp_sources="torch::Tensor call(double a, torch::Tensor x, torch::Tensor y);",
        cuda_sources=f"""
#include <c10/cuda/CUDAStream.h>
{CODE}
torch::Tensor call(double a, torch::Tensor x, torch::Tensor y) {{
    auto out = torch::empty_like(x);
    int n = x.numel();
    axpy<<<(n + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(a, x.data_ptr<float>(), y.data_ptr<float>(),
                                                                         out.data_ptr<float>(), n);
    return out;
}}
""",
        functions=["call"],
    )
    found["load_inline (a function of pybind11)"] = lambda: inline.call(2.0, x, y)
    operator = importlib.import_module("frameworks_triton").operator()
    found["torch.library.triton_op"] = lambda: operator(2.0, x, y)
    return found


def measure(calls: dict[str, Call], ready: Call) -> dict[str, float]:
    """Give the CPU microseconds of each call, as medians of turns that alternate."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(TURNS + 2):
        for name, call in calls.items():
            ready()
            start = time.process_time()
            for _ in range(CALLS):
                call()
            if turn >= 2:
                times[name].append((time.process_time() - start) / CALLS * 1e6)
    return {name: statistics.median(each) for name, each in times.items()}


def of_torch_and_ours(torch: Any) -> None:
    """Measure with torch, and print."""
    has_gpu = torch.cuda.is_available()
    place = "cuda" if has_gpu else "cpu"
    x, y = torch.ones(N, device=place), torch.ones(N, device=place)
    calls = ours(torch, x, y) | (of_torch(torch, x, y) if has_gpu else {})
    found = measure(calls, torch.cuda.synchronize if has_gpu else lambda: None)
    show(f"torch {torch.__version__}", torch.cuda.get_device_name() if has_gpu else "the CPU device", found)
    if not has_gpu:
        print("no GPU here: _compile_kernel, load_inline and triton_op were not measured")


def of_jax_and_ours(jax: Any) -> None:
    """Measure with JAX, and print."""
    import cujit.jax as cujit_jax

    operator = cujit_jax.operator(
        "cujit_benchmarks::axpy",
        CODE,
        kernel="axpy",
        outputs=lambda x, y, *, a: x,  # noqa: ARG005 - it names what the function takes
        arguments=lambda out, x, y, *, a: (a, x, y, out, x.size),
    )
    x, y = jax.numpy.ones(N), jax.numpy.ones(N)
    last: list[Any] = []

    def kept(call: Callable[[Any, Any], Any]) -> Call:
        return lambda: last.__setitem__(slice(None), [call(x, y)])

    def back(x: Any, y: Any) -> Any:
        return 2 * numpy.asarray(x) + numpy.asarray(y)

    calls = {
        "cujit.jax.operator": kept(lambda x, y: operator(x, y, a=2.0)),
        "cujit.jax.operator in jit": kept(jax.jit(lambda x, y: operator(x, y, a=2.0))),
        "2 * x + y in jit": kept(jax.jit(lambda x, y: 2 * x + y)),
        "pure_callback to NumPy in jit": kept(jax.jit(lambda x, y: jax.pure_callback(back, x, x, y))),
    }
    found = measure(calls, lambda: jax.block_until_ready(last))
    show(f"jax {jax.__version__}", x.device.device_kind if x.device.platform == "gpu" else "the CPU device", found)


def show(package: str, where: str, found: dict[str, float]) -> None:
    """Print the times of calls, the first of them the measure of all."""
    print(f"{package}, {where}: CPU time of a call")
    least = next(iter(found.values()))
    for name, us in sorted(found.items(), key=lambda row: row[1]):
        print(f"  {name:42} {us:8.2f} us  {us / least:6.2f}x")


def main() -> None:
    """Measure with each that is installed."""
    for name, measured in (("torch", of_torch_and_ours), ("jax", of_jax_and_ours)):
        try:
            package: Any = importlib.import_module(name)
        except ImportError:
            print(f"{name} is not installed here: make frameworks")
            continue
        measured(package)


if __name__ == "__main__":
    main()
