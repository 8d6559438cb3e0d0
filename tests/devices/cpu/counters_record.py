"""Record what ``ncu`` counts of the cases of ``counters_cases.py`` on a GPU: ``tests/goldens/counters.json``.

``python tests/devices/cpu/counters_record.py`` on a machine with a GPU, ``ncu`` and the right to read its counters.
``test_profile.py`` holds the CPU device to what is there, and runs every case. Explanations stay.
"""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[2]
sys.path.insert(0, str(TESTS))  # cases are kernels of other tests

import cujit  # noqa: E402
from devices.cpu.counters_cases import cases  # noqa: E402

GOLDEN = TESTS / "goldens" / "counters.json"
METRICS = (
    *(f"l1tex__t_{what}_pipe_lsu_mem_global_op_{op}.sum" for what in ("requests", "sectors")
      for op in ("ld", "st", "atom", "red", "ldgsts_cache_access")),
    *(f"l1tex__t_{what}_pipe_lsu_mem_local_op_{op}.sum" for what in ("requests", "sectors") for op in ("ld", "st")),
    *(f"l1tex__data_{what}_mem_shared_op_{op}.sum" for what in ("pipe_lsu_wavefronts", "bank_conflicts_pipe_lsu")
      for op in ("ld", "st", "atom")),
)  # fmt: skip
"""What is the same on the CPU device, or explained."""
BESIDE = (
    *(f"l1tex__t_{what}_pipe_tex_mem_texture_op_{op}.sum" for what in ("requests", "sectors") for op in ("tex", "ld")),
)
"""What a profile does not give, or not yet: to be looked at."""
OF_CODE = (
    "smsp__inst_executed.sum",
    "smsp__thread_inst_executed.sum",
    "smsp__thread_inst_executed_pred_on.sum",
    *(f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum"
      for op in ("fadd", "fmul", "ffma", "dadd", "dmul", "dfma")),
    "smsp__sass_branch_targets_threads_divergent.sum",
    *(f"sm__inst_executed_pipe_tensor_op_{op}.sum" for op in ("hmma", "imma", "dmma", "gmma")),
    *(f"sm__ops_path_tensor_src_{type_}.sum" for type_ in (
        "fp16", "bf16_dst_fp32", "tf32_dst_fp32", "fp64", "int8")),
    *(f"sm__sass_inst_executed_op_{op}.sum" for op in (
        "global_ld", "global_st", "global_atom", "global_red", "local_ld", "local_st", "shared_ld", "shared_st",
        "shared_atom", "ldsm", "shared_stsm", "ldgsts", "texture")),
    *(f"sm__sass_inst_executed_op_memory_{bits}b.sum" for bits in (8, 16, 32, 64, 128)),
    "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts.sum",
    "sm__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts_cache_bypass.sum",
)  # fmt: skip
"""What is counted of machine code: it says what ptxas made of a kernel."""
TOGETHER = 60
"""Cases of one process: what is recorded stays where the next one takes too long."""
MOST_S = 275.0


def _known() -> set[str]:
    """List the names that this GPU has, without their last word."""
    said = subprocess.run(["ncu", "--query-metrics", "--csv"], capture_output=True, text=True).stdout
    return {found[1] for line in said.splitlines() if (found := re.match(r'"?([a-z]\w+__\w+)', line))}


def _counted(numbers: Sequence[int], metrics: Sequence[str], timeout_s: float) -> Iterator[dict[str, int]]:
    """Launch cases under ``ncu``; give what it counted of each."""
    some = [cases()[k] for k in numbers]
    command = ["ncu", "--target-processes", "all", "--csv", "--page", "raw", "--print-units", "base", "--metrics",
               ",".join(metrics), sys.executable, __file__, "--launch", ",".join(map(str, numbers))]  # fmt: skip
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=timeout_s).stdout.splitlines()
    begin = next(k for k, line in enumerate(said) if line.startswith('"ID"'))
    _units, *rows = csv.DictReader(said[begin:])
    if len(rows) != sum(case.launches for case in some):
        raise ValueError(f"ncu saw {len(rows)} launches of {len(some)} cases")
    for case in some:
        mine, rows = rows[: case.launches], rows[case.launches :]
        own = case.kernel.partition("<")[0]
        assert all(own in row["Kernel Name"] for row in mine), (case.name, mine[0]["Kernel Name"])
        sums = {name: sum(_number(row.get(name, "")) for row in mine) for name in metrics}
        yield {name: count for name, count in sums.items() if count}


def _number(text: str) -> int:
    plain = text.replace(",", "")
    return int(float(plain)) if plain[:1].isdigit() else 0


def _launch(numbers: Sequence[int]) -> None:
    device = cujit.gpu(0)
    for number in numbers:
        cases()[number].run(device)


def _parts(told: dict[str, Any]) -> Iterator[tuple[str, Sequence[str], list[int]]]:
    """List what is not recorded yet, the most telling first: into what, and the numbers of the cases."""
    whole = next(k for k, case in enumerate(cases()) if case.name.startswith("atomicAdd"))
    for into, metrics, end in (("of_code", OF_CODE, whole), ("cases", METRICS + BESIDE, len(cases()))):
        missing = [k for k, case in enumerate(cases()[:end]) if case.name not in told[into]]
        for first in range(0, len(missing), TOGETHER):
            yield into, metrics, missing[first : first + TOGETHER]


def main() -> None:
    """Launch what is missing under ``ncu``, and write what it says after each part of it."""
    if "--launch" in sys.argv:
        _launch([int(number) for number in sys.argv[2].split(",")])
        return
    known, begin = _known(), time.monotonic()
    version = subprocess.run(["ncu", "--version"], check=True, capture_output=True, text=True).stdout
    number = next(word for word in version.split() if word[:1].isdigit() and "." in word)
    told = json.loads(GOLDEN.read_text())
    told["source"] = f"{cujit.gpu(0).product} by ncu {number}; what is not named is 0"
    for into, wanted, numbers in _parts(told):
        metrics = [name for name in wanted if name.rpartition(".")[0] in known]
        try:
            counts = list(_counted(numbers, metrics, MOST_S - (time.monotonic() - begin)))
        except (subprocess.SubprocessError, ValueError) as e:
            print(f"cases {numbers} are missing: {e}\n{str(getattr(e, 'output', None))[-3000:]}")
            continue
        told[into].update(zip((cases()[k].name for k in numbers), counts, strict=True))
        print(f"{len(numbers)} cases by {len(metrics)} metrics: {time.monotonic() - begin:.0f} s", flush=True)
        GOLDEN.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
