"""Record what a GPU computes of random programs in PTX, which its driver assembles.

``record_ptx.py launch FOLDER SECONDS``, on a machine with a GPU, writes ``FOLDER/N.npz`` with what each program wrote;
if a program ends the process, another ``launch`` goes on behind it. ``record_ptx.py golden FOLDER`` writes the golden.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import re
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import cujit
from cujit.errors import CujitError, KernelFaultError
from property import ptx_programs
from property.ptx_forms import FORMS, THREADS, form_arguments, form_text
from property.ptx_more_forms import MORE, SUMS
from property.ptx_programs import BLOCK, GRID, WORDS, PtxProgram, arguments

__all__ = ["COUNT", "GOLDEN", "checksums", "form_results", "program", "results", "separate", "text_of"]

Array = np.ndarray[Any, Any]
GOLDEN = Path(__file__).parents[1] / "goldens" / "ptx_programs.json"
COUNT = 400
_KINDS = ((), MORE, SUMS, SUMS)
_HANGS_S, _STACK_BYTES = 8, 1 << 15
_CONTRACTIBLE = re.compile(r"(?m)(?<![\w.])(add|sub|mul)((?:\.ftz|\.sat)*\.(?:b?f16(?:x2)?|f32|f64)\b)")


def program(seed: int) -> PtxProgram:
    """Give the program of a number."""
    return PtxProgram(seed, forms=_KINDS[seed % 4])


def separate(text: str) -> str:
    """Give every product and sum a rounding modifier, so that assemblers contract none."""
    return _CONTRACTIBLE.sub(r"\1.rn\2", text)


def text_of(seed: int, *, contracts: bool) -> str:
    """Write the module of a program as it is recorded."""
    text = ptx_programs.module_of([program(seed)])
    return text if contracts else separate(text)


def checksums(words: Array) -> list[int]:
    """Give a checksum of each word that threads write, over the threads, and one of what follows."""
    columns = words[: GRID * BLOCK * WORDS].reshape(-1, WORDS).T
    return [zlib.crc32(np.ascontiguousarray(part).tobytes()) for part in (*columns, words[GRID * BLOCK * WORDS :])]


def _cases() -> Iterator[tuple[int, bool]]:
    """All programs, contracted and not if anything could be; then more that are contracted."""
    for seed in range(2 * COUNT):
        if seed < COUNT:
            yield seed, False
        if (seed < COUNT or seed % 4 > 1) and text_of(seed, contracts=True) != text_of(seed, contracts=False):
            yield seed, True


def _device() -> cujit.Device:
    """Give the GPU, with a stack for recursion."""
    from cuda.bindings import driver

    device = cujit.gpu(0)
    device.zeros(1, np.uint32)  # it has a context from now on
    _, context = driver.cuDevicePrimaryCtxRetain(0)
    driver.cuCtxSetCurrent(context)
    (status,) = driver.cuCtxSetLimit(driver.CUlimit.CU_LIMIT_STACK_SIZE, _STACK_BYTES)
    assert not int(status), status
    return device


def results(device: cujit.Device, seed: int, text: str) -> Array:
    """Load the module of a program and launch its kernel."""
    return _launched(device, text, f"k{seed}", BLOCK, arguments(edges=program(seed).forms is MORE))


def form_results(device: cujit.Device, number: int) -> Array:
    """Launch the kernel of a form."""
    return _launched(device, form_text(number), f"f{number}", THREADS, form_arguments())


def _launched(device: cujit.Device, text: str, name: str, block: int, arguments: Sequence[Array]) -> Array:
    with cujit.load(text.encode(), device) as module:
        arrays = [device.array(array) for array in arguments]
        module[name][GRID, block](*arrays)
        return np.concatenate([array.numpy() for array in arrays[1:]])


def launch(folder: Path, seconds: float) -> None:
    """Launch the programs that no process before this one has begun, until all are done or the time is over."""
    end = time.monotonic() + seconds
    log = folder / "log.jsonl"
    begun = {tuple(json.loads(line)) for line in log.read_text().splitlines()} if log.exists() else set()
    left = [case for case in _cases() if case not in begun]
    device, found, at = _device(), dict[str, Array](), [math.inf]
    if not begun:
        np.savez_compressed(folder / "forms.npz", **{text: form_results(device, k) for k, text in enumerate(FORMS)})  # type: ignore[arg-type]

    def keep() -> None:
        np.savez_compressed(folder / f"{len(begun)}.npz", **dict(found))  # type: ignore[arg-type]

    def watch() -> None:
        """End the process if a program hangs; what was computed before is kept."""
        while time.monotonic() < at[0] + _HANGS_S:
            time.sleep(0.2)
        keep()
        os._exit(9)

    threading.Thread(target=watch, daemon=True).start()
    with log.open("a") as written:
        for seed, contracts in left:
            at[0] = time.monotonic()
            if at[0] > end:
                break
            written.write(json.dumps((seed, contracts)) + "\n")
            written.flush()
            try:
                found[f"{seed}{'c' * contracts}"] = results(device, seed, text_of(seed, contracts=contracts))
            except CujitError as error:
                print(seed, contracts, error, flush=True)
                if isinstance(error, KernelFaultError):
                    break
            if len(found) % 10 == 0:
                keep()
    keep()
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    (folder / "source.json").write_text(json.dumps(f"{gpu}, {datetime.date.today()}"))
    print(len(found), "recorded;", time.monotonic() - end + seconds, "s", flush=True)
    os._exit(0 if len(found) == len(left) else 3)


def write(folder: Path) -> None:
    """Write the golden from what processes recorded."""
    found = {name: words for path in folder.glob("[0-9]*.npz") for name, words in np.load(path).items()}
    golden: dict[str, Any] = {"source": json.loads((folder / "source.json").read_text())}
    for name in sorted(found, key=lambda name: (int(name.rstrip("c")), name)):
        golden[name] = checksums(found[name])
    golden["forms"] = {text: zlib.crc32(words.tobytes()) for text, words in np.load(folder / "forms.npz").items()}
    GOLDEN.write_text(json.dumps(golden, separators=(",", ":")).replace('],"', '],\n"') + "\n")


if __name__ == "__main__":
    launch(Path(sys.argv[2]), float(sys.argv[3])) if sys.argv[1] == "launch" else write(Path(sys.argv[2]))
