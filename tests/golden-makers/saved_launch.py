"""Save launches of kernels with a bug on a GPU, with what it made of them: ``tests/goldens/saved``.

``python tests/golden-makers/saved_launch.py`` on a machine with a GPU takes a few seconds; ``--device cpu --out
FOLDER`` tries it anywhere. ``test_bug_reports.py`` reruns the files under checks, which have to name each bug.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import cujit
from cujit.devices.device import Device

GOLDENS = Path(__file__).resolve().parents[1] / "goldens" / "saved"
LAUNCHES = 100
SHOWN = 8

RMS_NORM = """\
__device__ float block_sum(float value) {
    __shared__ float part[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int d = 16; d > 0; d /= 2)
        value += __shfl_down_sync(~0u, value, d);
    if (lane == 0)
        part[warp] = value;
    if (warp == 0) {
        value = part[lane];
        for (int d = 16; d > 0; d /= 2)
            value += __shfl_down_sync(~0u, value, d);
        if (lane == 0)
            part[0] = value;
    }
    __syncthreads();
    return part[0];
}

extern "C" __global__ void rms_norm(const float *x, float *y, int n) {
    const float *row = x + blockIdx.x * n;
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        sum += row[i] * row[i];
    float mean = block_sum(sum) / n;
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        y[blockIdx.x * n + i] = row[i] / sqrtf(mean);
}
"""
"""Warp 0 adds up the sums of the warps before all of them are there: behind line 7 a barrier is missing."""

SOFTMAX = """\
extern "C" __global__ void softmax(const float *x, float *y, int n) {
    __shared__ float s[128];
    const float *row = x + blockIdx.x * n;
    int t = threadIdx.x;
    float sum = 0;
    for (int i = t; i <= n; i += blockDim.x)
        sum += expf(row[i]);
    s[t] = sum;
    __syncthreads();
    for (int d = 64; d > 0; d /= 2) {
        if (t < d)
            s[t] += s[t + d];
        __syncthreads();
    }
    for (int i = t; i < n; i += blockDim.x)
        y[blockIdx.x * n + i] = expf(row[i]) / s[0];
}
"""
"""Each row adds up one number too many, in line 6: the first of the next row, or what lies behind the array."""

LOOKUP = """\
extern "C" __global__ void lookup(const float *table, const int *ids, float *y, int width) {
    size_t id = (unsigned)ids[blockIdx.x];
    for (int i = threadIdx.x; i < width; i += blockDim.x)
        y[blockIdx.x * width + i] = table[id * width + i];
}
"""
"""A token of padding has the number -1, of which line 2 makes 4,294,967,295."""


def _rms_norm(device: Device) -> tuple[cujit.Launch, list[Any], Any]:
    x = (np.arange(4 * 1024) % 7 + 1).astype(np.float32).reshape(4, 1024)
    right = x / np.sqrt((x**2).mean(1, keepdims=True))
    arguments = [device.array(x), device.zeros(x.shape, np.float32), 1024]
    return cujit.jit(RMS_NORM, device=device, name="rms_norm.cu")["rms_norm"][4, 1024], arguments, right


def _softmax(device: Device) -> tuple[cujit.Launch, list[Any], Any]:
    x = (np.arange(8 * 256) % 9 / 4).astype(np.float32).reshape(8, 256)
    right = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    arguments = [device.array(x), device.zeros(x.shape, np.float32), 256]
    return cujit.jit(SOFTMAX, device=device, name="softmax.cu")["softmax"][8, 128], arguments, right


def _lookup(device: Device) -> tuple[cujit.Launch, list[Any], Any]:
    table = (np.arange(50 * 64) % 11).astype(np.float32).reshape(50, 64)
    ids = np.array([7, 3, 49, -1, -1, -1], np.int32)
    arguments = [device.array(table), device.array(ids), device.zeros((6, 64), np.float32), 64]
    return cujit.jit(LOOKUP, device=device, name="lookup.cu")["lookup"][6, 64], arguments, None


ROWS = {
    "rms_norm": ("a barrier is missing", "race", "a shared-memory write races with a read, rms_norm.cu:9"),
    "softmax": ("a loop reads one element too many", "memory", "just past the end of argument 1, softmax.cu:7"),
    "lookup": ("index -1 becomes 4,294,967,295", "memory", "10^12 bytes past the end of an argument, lookup.cu:4"),
}
"""What is wrong, the check that finds it, and what that says, in a few words."""


def _page(told: dict[str, Any]) -> str:
    """Write the part of docs/reproducer.md that says what the GPU made of them."""
    small, *_, large = sorted(told[name]["bytes"] for name in BUGS)
    sizes = f"{small:,} to {large:,}"
    lines = [
        "### From a GPU to the CPU device",
        "",
        f"An {told['device']} (driver {told['driver']}, {told['date']}) launched three kernels, each with a bug.",
        f"`tests/golden-makers/saved_launch.py` saved each launch beforehand, in a file of {sizes} bytes.",
        "cujit's tests replay these files, `tests/goldens/saved/*.launch`, without a GPU:",
        "",
        "| launch and bug | result on the GPU | result on the CPU device |",
        "|---|---|---|",
    ]
    for name, (wrong, check, named) in ROWS.items():
        there = told[name]
        said = there.get("error", "").partition("\n")[0]
        if not said:
            first = there.get("first_wrong", ["none"])[0]
            said = f"{there['wrong_launches']} of {there['launches']} launches gave wrong results: {first}, …"
        lines.append(f"| `{name}`: {wrong} | {said} | `--check {check}`: {named} |")
    return "\n".join(lines) + "\n"


BUGS = {"rms_norm": _rms_norm, "softmax": _softmax, "lookup": _lookup}


def _driver() -> str:
    """Ask for the version of the driver; "" where there is none."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    return said.split()[0]


def _save(name: str, device: Device, folder: Path) -> dict[str, Any]:
    """Save one launch and make it; say what came of it."""
    launch, arguments, right = BUGS[name](device)
    path = launch.save(folder / f"{name}.launch", *arguments)
    noted: dict[str, Any] = {"bytes": path.stat().st_size}
    try:
        made = [_made(launch, arguments, right) for _ in range(LAUNCHES)]
    except cujit.errors.CujitError as e:
        return noted | {"error": f"{type(e).__name__}: {e.message}"}
    wrong = [each for each in made if each]
    return noted | {"launches": LAUNCHES, "wrong_launches": len(wrong), **(wrong[0] if wrong else {})}


def _made(launch: cujit.Launch, arguments: list[Any], right: Any) -> dict[str, Any]:
    """Make a launch; give the numbers that are wrong, nothing where none is."""
    out = arguments[-2]
    launch(*arguments)
    found = out.numpy()
    if right is None:
        return {}
    places = np.argwhere(~np.isclose(found, right, rtol=1e-4))
    rows = [f"{place}: {found[tuple(place)]:.6g} instead of {right[tuple(place)]:.6g}" for place in places.tolist()]
    return {"wrong": len(rows), "first_wrong": rows[:SHOWN]} if rows else {}


def main() -> None:
    """Save each in a process of its own, since a fault ends the context of a GPU."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--out", type=Path, default=GOLDENS)
    parser.add_argument("--one", help="of one process")
    parser.add_argument("--page", action="store_true", help="print the part of docs/reproducer.md")
    asked = parser.parse_args()
    if asked.page:
        print(_page(json.loads((asked.out / "made.json").read_text())), end="")
        return
    device = cujit.cpu() if asked.device == "cpu" else cujit.gpu(int(asked.device.partition(":")[2]))
    if asked.one:
        print(json.dumps(_save(asked.one, device, asked.out)), flush=True)
        return
    asked.out.mkdir(exist_ok=True)
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    told: dict[str, Any] = {"device": device.product or device.name, "driver": _driver(), "date": today}
    for name in BUGS:
        command = [sys.executable, __file__, "--device", asked.device, "--out", str(asked.out), "--one", name]
        done = subprocess.run(command, capture_output=True, text=True)
        line = next((line for line in done.stdout.splitlines() if re.match(r"\{", line)), None)
        if line is None:
            raise SystemExit(f"{name}: {done.stdout}{done.stderr}")
        told[name] = json.loads(line)
        print(name, told[name], flush=True)
    (asked.out / "made.json").write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
