"""Launches that ``tools/replay.py`` makes: scenes, rows of the instruction table, and those that ``record.py`` kept."""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from instructions.scene import every_scene
from instructions.table import COUNT, Row, all_rows, key_of, memory_of, module_text
from replaying.case import Case, Pointer

__all__ = ["RECORDED", "every_case", "of_rows", "of_scenes", "read_cases", "tail_cases", "write_cases"]

RECORDED = Path(__file__).parent / "launches.zst"
"""Launches of the tests and benchmarks, with their texts as compilers wrote them when ``record.py`` ran."""


TAIL = "tail"
"""What names of kept launches begin with whose texts compile for minutes."""

_CHECKED = 8
"""Of so many scenes one runs under all checks, too."""

_ROWS = 12
"""Of so many rows of the instruction table with one opcode one is taken, and the first."""


def every_case() -> list[Case]:
    """Give all launches, those of one text one after the other."""
    return [*(case for case in read_cases(RECORDED) if not case.name.startswith(TAIL)), *of_scenes(), *of_rows()]


def tail_cases() -> list[Case]:
    """Give the launches whose texts compile for minutes."""
    return [case for case in read_cases(RECORDED) if case.name.startswith(TAIL)]


def of_scenes() -> Iterator[Case]:
    """Give every scene of the instructions' tests."""
    for number, scene in enumerate(every_scene().values()):
        count = len(scene.arrays)
        for check in ("", "all") if number % _CHECKED == 0 else ("",):
            yield Case(
                f"scene {scene.name}" + (" checked" if check else ""),
                scene.ptx,
                "k",
                _sizes(scene.grid),
                _sizes(scene.block),
                bytes(8 * count),
                tuple(a.tobytes() for a in scene.arrays),
                tuple(Pointer(-1, 8 * k, k) for k in range(count)),
                scene.shared_bytes,
                check=check,
            )


def of_rows() -> Iterator[Case]:
    """Give rows of the instruction table, some of every opcode."""
    seen: dict[str, int] = {}
    for row in all_rows():
        opcode = row.name.partition(".")[0]
        seen[opcode] = seen.get(opcode, -1) + 1
        if seen[opcode] % _ROWS == 0:
            yield _of_row(row)


def _of_row(row: Row) -> Case:
    data = tuple(a.tobytes() for a in memory_of([row]))
    pointers = tuple(Pointer(-1, 8 * k, k) for k in range(len(data)))
    parameters = bytes(8 * len(data)) + struct.pack("<I", COUNT)
    return Case(f"row {key_of(row)}", module_text([row]), "k", (COUNT // 128,), (128,), parameters, data, pointers)


def _sizes(size: int | tuple[int, ...]) -> tuple[int, ...]:
    return (size,) if isinstance(size, int) else size


# -- the file ---------------------------------------------------------------------------------------------


def write_cases(path: Path, cases: Iterable[Case]) -> None:
    """Write launches: a line of JSON, behind it each text and each array that they have once, all compressed."""
    blobs: dict[bytes, int] = {}
    rows = []
    for case in cases:
        row: dict[str, Any] = {**vars(case), "parameters": case.parameters.hex()}
        row["ptx"] = blobs.setdefault(case.ptx.encode(), len(blobs))
        row["arrays"] = [blobs.setdefault(a, len(blobs)) for a in case.arrays]
        rows.append(row)
    head = json.dumps({"sizes": [len(blob) for blob in blobs], "cases": rows})
    # Texts are alike over more bytes than levels look back on their own.
    options = zstandard.ZstdCompressionParameters.from_level(19, window_log=24, enable_ldm=True)
    path.write_bytes(
        zstandard.ZstdCompressor(compression_params=options).compress(b"\n".join([head.encode(), b"".join(blobs)]))
    )


def read_cases(path: Path) -> list[Case]:
    """Read what ``write_cases`` wrote."""
    head, _, data = zstandard.decompress(path.read_bytes()).partition(b"\n")
    told = json.loads(head)
    ends = np.cumsum([0, *told["sizes"]])
    blobs = [data[begin:end] for begin, end in itertools.pairwise(ends)]
    return [_of_json(row, blobs) for row in told["cases"]]


def _of_json(row: dict[str, Any], blobs: list[bytes]) -> Case:
    row["ptx"] = blobs[row["ptx"]].decode()
    row["parameters"] = bytes.fromhex(row["parameters"])
    row["arrays"] = tuple(blobs[k] for k in row["arrays"])
    row["pointers"] = tuple(Pointer(*p) for p in row["pointers"])
    for name in ("grid", "block", "cluster"):
        row[name] = None if row[name] is None else tuple(row[name])
    return Case(**row)
