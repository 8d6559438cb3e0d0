"""What the CPU device takes for an instruction is what the assembler takes for one."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest

from cujit.artifact import Artifact
from cujit.devices.device import Device
from cujit.errors import PtxSyntaxError, UnsupportedError
from property.effort import times
from toolkits.agreement import ONLY_THE_ASSEMBLER, ONLY_THE_TABLE, candidates, is_known, refused
from toolkits.assembler import Assembler
from toolkits.minimal import module_of

# Versions and targets that an assembler is asked for, and what it assembles for: no one of them has all instructions.
TARGETS = (
    ("9.5", "sm_90a", "sm_90a"),
    ("9.5", "sm_100a", "sm_100a"),
    ("9.5", "sm_107a", "sm_107a"),
    ("9.5", "sm_120a", "sm_120a"),
    ("6.2", "sm_70", "sm_75"),
)
SEED, FORMS, NEAR = 1, 3, 6


@pytest.fixture(scope="module")
def assembler() -> Iterator[Assembler]:
    made = Assembler()
    yield made
    made.close()


def is_wrong(device: Device, statements: list[str], version: str, target: str) -> bool:
    try:
        device.load(Artifact.of(module_of(statements, version, target))).close()
    except PtxSyntaxError:
        return True
    except UnsupportedError:  # it is PTX, and not executed
        return False
    return False


def first_wrong(device: Device, statements: list[str], version: str, target: str) -> list[str]:
    """Statements that are called wrong, one by one from a module of all."""
    found = []
    while statements and is_wrong(device, statements, version, target):
        low, high = 0, len(statements) - 1
        while low < high:  # the first wrong one is in [low, high]
            middle = (low + high) // 2
            low, high = (
                (low, middle) if is_wrong(device, statements[: middle + 1], version, target) else (middle + 1, high)
            )
        found.append(statements[low])
        statements = statements[low + 1 :]
    return found


def test_accepted_instructions_match_the_assembler(cpu: Device, assembler: Assembler) -> None:
    rounds = times(1)
    for seed in range(SEED, SEED + rounds):
        sampled = list(candidates(seed, FORMS, NEAR))
        left = list(sampled)
        wrong = []
        for version, target, arch in TARGETS:
            complain = functools.partial(assembler.complain, arch=arch)
            complaints = refused(left, version, target, complain)
            taken = [s for s in left if s not in complaints and not is_known(s, ONLY_THE_ASSEMBLER)]
            wrong += first_wrong(cpu, taken, version, target)
            left = [s for s in left if s in complaints]
        left = [statement for statement in left if not is_known(statement, ONLY_THE_TABLE)]
        accepted = [statement for statement in left if not is_wrong(cpu, [statement], "9.5", "sm_120a")]
        assert (wrong, accepted) == ([], []), "called wrong here and taken by the assembler; or the other way round"
        assert len(left) > len(sampled) // 4
