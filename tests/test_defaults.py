"""What a value or an error is not told is nothing: 0, false, empty; but for what is listed here."""

from __future__ import annotations

import re
from pathlib import Path

from cujit import errors
from cujit.errors import CujitError, PtxSyntaxError

SOURCE = Path(errors.__file__).parents[1]
SOMETHING = """
CacheSettings.is_on=True DemandWords.opt_in=True FarmSettings.chunk_s=2.0 FarmSettings.join=1 Format.is_signed=True
TuneSettings.rounds=5 TuneSettings.trials=64 WorkChunk.join=1 Component.is_there=True Dim3.y=1 Dim3.z=1
EmulatorSettings.cc=9
Format.random_bits=16 Generic.generic=True IrModule.has_loops=True Job.compiles=True Limits.threads_per_processor=2048
Listing.first=1 ManySchedules.schedules=50 PtxModule.address_size=64 Need.is_known=True
ProcessorLimits.block_registers=64 ProcessorLimits.registers=64 ProcessorLimits.sub_partitions=4
ProcessorLimits.thread_registers=255 RecipeUse.calls=1
RegisterDecl.vector=1 RuntimePart.passes=True Search.searches_includer=True Shape.align=1 Signer.valid_days=365
SpecialRegister.sm=10 Step.ran=True MemoryAccess.lanes=-1 Variable.vector=1 Walks.blocks=1 WantedPack.ptx=True
WarpEmitter.sees_bits=True
CompileTask.keep=True CompileTask.level=2 CompileTask.passes=True _Head.vector=1 _TextPiece.number=-1
"""
_FIELD = re.compile(r"    (\w+): [^=]+ = (?:field\(default=)?\(*(-?\d[\d_.]*|True|False)\b")


def test_defaults_of_value_fields_are_those_listed() -> None:
    found: list[str] = []
    for path in SOURCE.rglob("*.py"):
        name = ""
        for line in path.read_text().splitlines():
            if line[:1].strip():
                name = line[6:].partition("(")[0].rstrip(":") if line.startswith("class ") else ""
            elif name and (match := _FIELD.match(line)):
                found.append(f"{name}.{match[1]}={match[2]}")
    something = [said for said in found if not said.endswith(("=0", "=0.0", "=False"))]
    assert sorted(something) == sorted(SOMETHING.split())
    assert len(found) > 150


def test_error_with_only_a_message_has_no_other_fields() -> None:
    for name in errors.__all__:
        made = getattr(errors, name)
        if issubclass(made, CujitError) and made is not PtxSyntaxError:  # which always has a place
            said = vars(made("it is wrong"))
            note = f"For details, run: cujit explain {made.code}"
            always = {"message": "it is wrong", "code": made.code, "__notes__": [note]}
            assert {key: value for key, value in said.items() if value} == always, name
