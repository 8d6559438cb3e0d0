"""``cujit demo``: compiles a kernel, runs it on this machine, and checks the results."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click
import numpy as np

from cujit.artifact import Artifact
from cujit.cli.choose_device import choose_device, device_option
from cujit.cli.console import json_option, print_error, print_json, progress, shown_bytes, shown_time
from cujit.cli.exit_codes import ExitCode
from cujit.cli.help import Command
from cujit.cli.images import image_records, print_images
from cujit.devices.device import Device
from cujit.kernel import Kernel
from cujit.loading import load
from cujit.program import Source, build
from cujit.values import dataclass

SOURCE = r"""
template <typename T> __global__ void axpy(T a, const T* x, T* y, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
"""
KERNEL = "axpy<float>"
COUNT = 1 << 20
"""Elements of each array."""
TARGETS = ("all", "portable")
"""Machine code for every architecture of the compiler, PTX of the newest for GPUs to come, PTX of the oldest."""
ROUNDS = 5
"""Timed launches, after one that is not; the fastest counts."""


@dataclass(frozen=True)
class DemoResult:
    """Result of the run: the number of wrong elements, and the seconds of one launch."""

    wrong: int
    first_wrong: str
    seconds: float


@click.command("demo", cls=Command)
@device_option
@json_option
@click.pass_context
def command(ctx: click.Context, device_name: str | None, as_json: bool) -> None:
    """Build a sample kernel, run it, and check the result.

    cujit builds a kernel template for every architecture. The exit status is 1 if the result differs from the NumPy
    result.
    """
    print_line: Callable[[str], None] = (lambda _: None) if as_json else click.echo
    begin = time.perf_counter()
    with progress("building") as tick:
        fatbin = build(Source.cuda(SOURCE, name="axpy.cu"), TARGETS, names=[KERNEL], progress=tick)
    built_s = time.perf_counter() - begin
    images = image_records(fatbin.data)
    if not as_json:
        print_images(images)
    print_line(
        f"\nbuilt {KERNEL} for {len(images)} targets in {shown_time(built_s)}: {shown_bytes(len(fatbin))} bytes\n"
    )

    device, why = choose_device(device_name)
    print_line(f"device     {device.name}, {device.product} ({why})")
    kernel, route = _load(fatbin, device)
    print_line(f"loaded     {route}")
    outcome = _run(kernel, device)
    print_line(f"registers  {_registers(kernel)}")
    print_line(f"time       {shown_time(outcome.seconds)} for {COUNT:,} elements, {_rate(outcome):.3g} GB/s")
    if as_json:
        print_json(_report(images, built_s, device, why, route, kernel, outcome))
    if outcome.wrong:
        print_error(f"{outcome.wrong:,} of {COUNT:,} elements differ from NumPy's; the first is {outcome.first_wrong}")
        ctx.exit(ExitCode.WRONG_INPUT)
    print_line(f"result     all {COUNT:,} elements equal NumPy's")


def _load(fatbin: Artifact, device: Device) -> tuple[Kernel, str]:
    module = load(fatbin, device)
    return module[KERNEL], module.route


def _run(kernel: Kernel, device: Device) -> DemoResult:
    """Run once and compare, then a few times more for the time."""
    # Whole numbers below 2**24, so that one rounding or two make no difference.
    a, x, y = 3.0, np.arange(COUNT, dtype=np.float32) % 1000, np.arange(COUNT, dtype=np.float32) % 77
    on_x, on_y = device.array(x), device.array(y)
    launch = kernel.over(COUNT)
    launch(a, on_x, on_y, COUNT)
    got, expected = on_y.numpy(), np.float32(a) * x + y
    wrong = np.flatnonzero(got != expected)
    first = f"y[{wrong[0]}] = {got[wrong[0]]}, not {expected[wrong[0]]}" if wrong.size else ""
    seconds = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        launch(a, on_x, on_y, COUNT)
        device.synchronize()
        seconds.append(time.perf_counter() - begin)
    return DemoResult(int(wrong.size), first, min(seconds))


def _rate(outcome: DemoResult) -> float:
    """Return the memory traffic in GB/s: two arrays read and one written."""
    return 3 * 4 * COUNT / outcome.seconds / 1e9


def _registers(kernel: Kernel) -> str:
    registers = kernel.resources.registers
    return "not applicable on the CPU device" if registers is None else f"{registers} per thread"


def _report(
    images: list[dict[str, Any]],
    built_s: float,
    device: Device,
    why: str,
    route: str,
    kernel: Kernel,
    outcome: DemoResult,
) -> dict[str, Any]:
    return {
        "images": images,
        "build_s": built_s,
        "device": {"name": device.name, "product": device.product, "why": why},
        "route": route,
        "registers": kernel.resources.registers,
        "elements": COUNT,
        "launch_s": outcome.seconds,
        "wrong": outcome.wrong,
    }
