"""Record which products and sums ptxas rounds once.

``PYTHONPATH=tests python tests/golden-makers/contractions.py .toolkits`` writes ``tests/goldens/contractions.json``.

``make toolkits`` has fetched the assemblers. The golden has what the newest does; what another one does differently is
printed. The machine code tells: FFMA, or FMUL and FADD. No GPU is needed.
"""

from __future__ import annotations

import datetime
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cujit.inspection.sass import find_nvdisasm
from devices.cpu.contractions import (
    BETWEEN,
    TYPES,
    body_of,
    forms_of,
    fused,
    module_of,
    negative,
    product_of,
    random_body,
    sum_of,
)

GOLDEN = Path(__file__).parents[1] / "goldens" / "contractions.json"
COUNT = 400
_LINE = re.compile(r"\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\d+ )?\s*([A-Z][\w.]*)\s*([^;]*);")
_NEW = {(12, 0): "elect|wgmma|setmaxnreg|bulk|proxy|mbarrier_init|fence.acquire", (12, 7): "fence.acquire|tensormap"}
"""Statements that releases before these do not know."""
_OLDEST = (11, 8)
"""The first release for sm_90."""
_Code = dict[str, list[tuple[str, list[str]]]]


def machine_code(ptxas: Path, bodies: Mapping[str, str], version: str, target: str) -> _Code:
    """Assemble kernels, and list the instructions of each with their operands."""
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "k.cubin"
        command = [str(ptxas), f"-arch={target}", "-", "-o", str(cubin)]
        text = module_of(bodies, version, target)
        subprocess.run(command, input=text, text=True, check=True, stderr=subprocess.DEVNULL)
        listing = subprocess.run([find_nvdisasm(), "-c", cubin], capture_output=True, text=True, check=True).stdout
    found: _Code = {}
    for line in listing.splitlines():
        if head := re.match(r"\s*\.section\s+\.text\.(\w+)", line):
            found[head[1]] = []
        elif found and (each := _LINE.match(line)):
            found[[*found][-1]].append((each[1], [o.strip().replace(".reuse", "") for o in each[2].split(",")]))
    return found


def count_fused(code: list[tuple[str, list[str]]]) -> int:
    """Count the products and sums that are rounded once; ptxas also makes products, sums and constants by fma."""
    plain = re.compile(r"-?RZ(\.H0_H0)?|-?1")
    fma = [operands[1:] for name, operands in code if re.match(r"(FFMA|DFMA|HFMA2)\b", name)]
    return sum(not any(plain.fullmatch(o) for o in operands) for operands in fma)


def _offset(address: str) -> int:
    offset = re.search(r"\+(0x[0-9a-f]+)\]", address)
    return int(offset[1], 16) if offset else 0


def results_of(code: list[tuple[str, list[str]]]) -> list[str]:
    """Write what machine code without branches stores, by address, as ``contractions.results_of`` does."""
    held: dict[str, str] = {}
    stored: dict[int, str] = {}

    def value(operand: str) -> str:
        return negative(value(operand[1:])) if operand.startswith("-") else held.get(operand, operand)

    for name, (to, *operands) in ((name, operands) for name, operands in code if operands != [""]):
        opcode, *words = name.split(".")
        suffix = "".join(f".{word}" for word in words)
        if opcode == "STG":
            stored[_offset(to)] = value(operands[0])
        elif opcode == "LDG":
            held[to] = f"m{_offset(operands[0])}"
        elif opcode == "FADD" and "-RZ" in operands:
            held[to] = value(operands[0])
        elif opcode in ("FADD", "FMUL", "FFMA"):
            if operands[2:] == ["-RZ"]:
                opcode = "FMUL"
                operands.pop()
            values = [value(operand) for operand in operands]
            if opcode == "FFMA":
                held[to] = fused(values[0], values[1], values[2], suffix)
            else:
                held[to] = (sum_of if opcode == "FADD" else product_of)(values[0], values[1], suffix)
        elif name in ("MOV", "IMAD.MOV.U32"):
            held[to] = value(operands[-1])
    return [stored[at] for at in sorted(stored)]


def is_fused(code: list[tuple[str, list[str]]]) -> bool:
    """Whether the product of what is loaded first and second is rounded with a sum; other code may stand around it."""
    loaded: dict[str, int | None] = {}
    for name, (to, *operands) in code:
        if name.startswith(("FMUL", "FFMA")) and {loaded.get(o) for o in operands[:2]} == {0, 4}:
            return name.startswith("FFMA")
        loaded[to] = _offset(operands[0]) if name.startswith("LDG.") else None
    raise AssertionError(code)


def recorded(ptxas: Path, release: tuple[int, ...]) -> dict[str, Any]:
    """Ask an assembler for everything that it knows."""
    version, target = ("8.0" if release < (12, 7) else "8.6"), "sm_90a"
    if release == _OLDEST:
        version, target = "7.8", "sm_90"
    betweens = [s for s in BETWEEN if not any(release < since and re.search(new, s) for since, new in _NEW.items())]
    bodies = {f"b{k}": body_of(f"mul.T y, a, b; {s}; add.T x, y, c;") for k, s in enumerate(betweens)}
    code = machine_code(ptxas, bodies, version, target)
    found: dict[str, Any] = {"between": {s: is_fused(code[f"b{k}"]) for k, s in enumerate(betweens)}}
    for type_ in TYPES:
        forms = forms_of(type_)
        code = machine_code(ptxas, {f"f{k}": body for k, body in enumerate(forms.values())}, version, target)
        found[type_] = {name: count_fused(code[f"f{k}"]) for k, name in enumerate(forms)}
    code = machine_code(ptxas, {f"r{seed}": random_body(seed) for seed in range(COUNT)}, version, target)
    found["random"] = [results_of(code[f"r{seed}"]) for seed in range(COUNT)]
    return found


def main() -> None:
    """Ask all assemblers, the newest first; say where another one differs."""
    paths = {tuple(map(int, p.parent.name.split("."))): p for p in Path(sys.argv[1]).glob("*/ptxas")}
    newest, *others = sorted((release for release in paths if release >= _OLDEST), reverse=True)
    golden = recorded(paths[newest], newest)
    for release in others:
        for kind, answers in recorded(paths[release], release).items():
            whole = golden[kind]
            items = enumerate(answers) if kind == "random" else answers.items()
            print(
                *release, kind, len(answers), "differ:", [at for at, answer in items if whole[at] != answer], flush=True
            )
    about = f"ptxas {'.'.join(map(str, newest))} for sm_90a, {datetime.date.today()}"
    text = json.dumps({"source": about, **golden}, separators=(",", ":"))
    GOLDEN.write_text(re.sub(r"(\],|\},)(?=[\[\"])", r"\1\n", text) + "\n")


if __name__ == "__main__":
    main()
