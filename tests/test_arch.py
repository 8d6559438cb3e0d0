"""Architectures: names in and out, order, and what runs on what."""

from __future__ import annotations

import ast
import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cujit
from cujit.arch import Arch, ArchKind
from cujit.arch.arch import KNOWN_ARCHES
from cujit.arch.multiprocessor import LIMITS
from cujit.errors import ArchError
from raising import raises

NAMES = ["sm_75", "sm_90a", "sm_100f", "compute_80", "compute_120f", "compute_90a", "lto_90", "lto_100a", "lto_121f"]


@pytest.mark.parametrize("name", NAMES)
def test_name_is_parsed_and_printed_unchanged(name: str) -> None:
    arch = Arch.parse(name)
    assert str(arch) == name
    assert Arch.parse(arch) is arch


def test_every_known_architecture_has_a_name_that_parses() -> None:
    for number, row in KNOWN_ARCHES.items():
        for kind in ArchKind:
            assert Arch.parse(f"{kind.value}_{number}").number == number
        for suffix, since in (("a", row.a_since), ("f", row.f_since)):
            if since is not None:
                assert Arch.parse(f"sm_{number}{suffix}").suffix == suffix


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("sm90", "sm_90"),
        ("SM_90", "sm_90"),
        ("sm_9O", "sm_90"),
        ("sm_91", "sm_90"),
        ("sm_90f", "sm_90"),
        ("sm_75a", "sm_75"),
        ("compute_9", "compute_90"),
        ("sm_1000", "sm_100"),
    ],
)
def test_wrong_name_is_refused_with_near_ones(name: str, near: str) -> None:
    with pytest.raises(ArchError) as caught:
        Arch.parse(name)
    assert repr(name) in caught.value.message
    assert near in str(caught.value.help)


@pytest.mark.parametrize("name", ["", "90", "sm_", "sm_090", "sm_90 ", "sm_90aa", "gfx90a", None, 90, 9.0, b"sm_90"])
def test_nonstring_name_is_refused(name: object) -> None:
    with pytest.raises(ArchError):
        Arch.parse(name)  # type: ignore[arg-type]


@given(st.text(max_size=12))
def test_any_text_gives_an_architecture_or_an_arch_error(text: str) -> None:
    with contextlib.suppress(ArchError):
        assert str(Arch.parse(text)) == text


@pytest.mark.parametrize(
    ("code", "device", "runs"),
    [
        ("sm_80", "sm_80", True),
        ("sm_80", "sm_86", True),
        ("sm_86", "sm_80", False),
        ("sm_80", "sm_90", False),
        ("sm_86", "sm_87", False),
        ("sm_80", "sm_87", False),
        ("sm_87", "sm_89", False),
        ("sm_87", "sm_88", False),
        ("sm_86", "sm_88", False),
        ("sm_52", "sm_53", False),
        ("sm_61", "sm_62", False),
        ("sm_70", "sm_72", False),
        ("sm_72", "sm_75", False),
        ("sm_100", "sm_101", False),
        ("sm_101f", "sm_103", False),
        ("sm_87", "sm_87", True),
        ("sm_110a", "sm_110", True),
        ("sm_110f", "sm_110", True),
        ("compute_86", "sm_87", True),
        ("compute_53", "sm_61", True),
        ("lto_80", "sm_87", True),
        ("sm_90a", "sm_90", True),
        ("sm_100a", "sm_103", False),
        ("sm_100f", "sm_103", True),
        ("sm_103f", "sm_100", False),
        ("sm_100f", "sm_120", False),
        ("compute_75", "sm_121", True),
        ("compute_90", "sm_89", False),
        ("compute_90a", "sm_100", False),
        ("compute_90a", "sm_90", True),
        ("compute_120f", "sm_121", True),
        ("compute_100f", "sm_110", False),
        ("lto_80", "sm_90", True),
    ],
)
def test_compatibility_of_code_and_devices(code: str, device: str, runs: bool) -> None:
    assert Arch.parse(code).runs_on(Arch.parse(device)) is runs


def test_architectures_are_ordered_by_number_then_suffix() -> None:
    names = ["sm_120", "sm_90a", "sm_75", "sm_90", "compute_90"]
    assert [str(a) for a in sorted(map(Arch.parse, names))] == ["sm_75", "compute_90", "sm_90", "sm_90a", "sm_120"]
    one, same = Arch(ArchKind.REAL, 90), Arch(ArchKind.REAL, 90)
    assert (one < same, one <= same) == (False, True)
    with pytest.raises(TypeError, match="not supported between"):
        _ = one < 90


def test_one_architecture_is_real_virtual_and_for_linking() -> None:
    arch = Arch.parse("compute_90a")
    assert (str(arch.real), str(arch.virtual), str(arch.lto)) == ("sm_90a", "compute_90a", "lto_90a")
    assert (arch.is_real, arch.is_virtual, arch.is_lto) == (False, True, False)
    assert arch.capability == (9, 0)
    assert Arch.of_capability(12, 1) == Arch.parse("sm_121")
    assert len({Arch.parse("sm_90"), Arch.parse("sm_90"), Arch.parse("sm_90a")}) == 2


def test_capabilities_begin_at_1_0() -> None:
    assert str(Arch.of_capability(1, 0)) == "sm_10"
    with raises(ArchError, "arch", "9", "lto_120f"):
        Arch.of_capability(0, 9)


def test_runs_on_rejects_other_types() -> None:
    with raises(ArchError, "arch", "runs_on", "str 'sm_90'"):
        Arch.parse("sm_90").runs_on("sm_90")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "parts",
    [("sm", 90), (ArchKind.REAL, "90"), (ArchKind.REAL, 90.0), (ArchKind.REAL, True), (ArchKind.REAL, 90, None)],
)
def test_architecture_of_wrong_types_is_refused(parts: tuple[Any, ...]) -> None:
    with pytest.raises(ArchError) as caught:
        Arch(*parts)
    assert "Arch.parse" in (caught.value.help or "")


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("90", "sm_90"),
        ("9.0", "sm_90"),
        ("sm90a", "sm_90a"),
        ("SM-100f", "sm_100f"),
        ("compute90", "compute_90"),
        ("cc 12.0", "sm_120"),
        ("compute-7.5", "compute_75"),
    ],
)
def test_bare_number_suggests_the_intended_name(said: str, meant: str) -> None:
    with pytest.raises(ArchError) as caught:
        Arch.parse(said)
    assert caught.value.help == f"did you mean {meant}?"


def test_tables_of_architectures_are_in_one_package() -> None:
    code = Path(cujit.__file__).parent
    words = {word for number in LIMITS for word in (str(number), str(divmod(number, 10)))}
    found = set()
    for path in code.rglob("*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if sum(word in text for word in words) >= 6 else ():
            keys = node.keys if isinstance(node, ast.Dict) else node.elts if isinstance(node, ast.Tuple) else []
            rows = [*keys, *(key.elts[0] for key in keys if isinstance(key, ast.Tuple) and key.elts)]
            texts = {ast.unparse(row) for row in rows if isinstance(row, ast.Constant | ast.Tuple)}
            if len(texts & words) >= 6:
                found.add(path.relative_to(code).as_posix())
    of_products = {"occupancy/products.py", "profile/peaks.py"}
    assert found == {"arch/multiprocessor.py"} | of_products
