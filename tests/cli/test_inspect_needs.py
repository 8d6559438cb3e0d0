from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.conftest import Cujit
from cujit.cli.inspect import needs
from cujit.inspection.needs import Use
from formats.images import bundled, cubin, ptx
from test_needs import BAD, GOOD, HEAD, SHIFT

KERNEL = 'extern "C" __global__ void k(int* p) { p[threadIdx.x] = 1; }'


@pytest.mark.parametrize(("count", "refused", "shown"), [(24, 0, 24), (25, 0, 24), (25, 1, 25), (30, 2, 26)])
def test_needs_shows_frequent_uses_and_all_refused_ones(
    capsys: pytest.CaptureFixture[str], count: int, refused: int, shown: int
) -> None:
    uses = [Use(f"op{k}", 99 - k, "never" if k >= count - refused else "") for k in range(count)]
    needs._print_uses("instruction", uses, everything=False)
    said = capsys.readouterr().out
    assert sum(line.lstrip().startswith("op") for line in said.splitlines()) == shown
    assert (f"and {count - shown} more; --all shows them" in said) == (count > shown)


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.ptx"
    path.write_text(HEAD + GOOD)
    return path


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "bad.ptx"
    path.write_text(HEAD + BAD)
    return path


def test_needs_text_shows_uses_and_that_the_file_loads(cujit: Cujit, good: Path) -> None:
    result = cujit("inspect", "--needs", str(good))
    assert result.exit_code == 0
    assert f"{good}: PTX 8.6 for sm_100a; needs PTX 1.3 and compute_10" in result.stdout
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["mov.u32", "3", "yes"] in lines
    assert ["%tid.x", "2", "yes"] in lines
    assert "the CPU device executes all of it" in result.stdout
    assert "rows of the ISA's table the CPU device executes" in result.stdout


def test_needs_text_shows_refused_instructions_and_places(cujit: Cujit, bad: Path) -> None:
    result = cujit("inspect", "--needs", str(bad))
    assert result.exit_code == 0
    assert [SHIFT, "2", "refused"] in [line.split() for line in result.stdout.splitlines()]
    assert f"  line 6: {SHIFT}: " in result.stdout


def test_needs_json_has_the_same_facts(cujit: Cujit, good: Path, bad: Path) -> None:
    result = cujit("inspect", "--needs", "--json", str(good), str(bad))
    assert result.exit_code == 0
    record = json.loads(result.stdout)
    assert record["schema"] == 1
    first, second = (file["images"][0] for file in record["files"])
    assert first["runs_on_cpu"] is True
    assert first["needs"] == {"ptx": "1.3", "arch": "compute_10"}
    assert {"name": "%laneid", "count": 1, "refused": None} in first["special_registers"]
    assert second["runs_on_cpu"] is False
    assert second["refusals"][0]["line"] == 6
    assert record["table"]["rows"] == sum(record["table"][k] for k in ("whole", "partly", "none", "unknown"))


def test_needs_reads_the_ptx_of_a_fatbin_but_no_cubins(cujit: Cujit, tmp_path: Path) -> None:
    path = tmp_path / "both.fatbin"
    path.write_bytes(bundled((("cubin", "90", cubin(KERNEL)), ("ptx", "75", ptx(KERNEL)))))
    (images,) = (
        file["images"] for file in json.loads(cujit("inspect", "--needs", "--json", str(path)).stdout)["files"]
    )
    assert len(images) == 1
    assert images[0]["instructions"]


def test_needs_reports_damaged_ptx_in_its_status(cujit: Cujit, good: Path, tmp_path: Path) -> None:
    path = tmp_path / "damaged.ptx"
    path.write_text(HEAD + GOOD.replace("ret;", "ret"))
    result = cujit("inspect", "--needs", str(good), str(path))
    assert result.exit_code == 1


def test_file_without_ptx_is_refused(cujit: Cujit, tmp_path: Path) -> None:
    path = tmp_path / "k.cubin"
    path.write_bytes(cubin(KERNEL))
    result = cujit("inspect", "--needs", str(path))
    assert result.exit_code == 1
    assert "contains no PTX" in result.stderr


@pytest.mark.parametrize("other", ["--ptx", "--sass", "--extract=d", "--against=good.ptx"])
def test_needs_excludes_other_forms_of_inspect(cujit: Cujit, good: Path, other: str) -> None:
    assert cujit("inspect", "--needs", other, str(good)).exit_code == 2


def test_needs_looks_at_whole_images(cujit: Cujit, good: Path) -> None:
    assert cujit("inspect", "--needs", "--kernels", "k", str(good)).exit_code == 2
