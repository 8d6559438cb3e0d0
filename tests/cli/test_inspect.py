from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from click.testing import CliRunner, Result

from cujit.cli.app import main
from cujit.cli.inspect import tables
from cujit.inspection import sass
from cujit.inspection.read import inspect as inspect_image
from cujit.program import build, compile
from formats.images import bundled, cubin, ptx
from inspection.files import SOURCE, SPILLING, host_elf, many, several

Run: TypeAlias = Callable[..., Result]
_SYSTEM = Path("/sys")
FLOATS = "_Z5scaleIfEvT_PKS0_PS0_i"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Result:
        return CliRunner().invoke(main, ["inspect", *map(str, arguments)], catch_exceptions=False)

    return call


@pytest.fixture
def fatbin(tmp_path: Path) -> Path:
    path = tmp_path / "scale.fatbin"
    path.write_bytes(many())
    return path


def records(result: Result) -> list[dict[str, Any]]:
    found = json.loads(result.stdout)
    assert found["schema"] == 1
    files: list[dict[str, Any]] = found["files"]
    return files


# -- tables -----------------------------------------------------------------------------------------------


def row(text: str, *starts: str) -> list[str]:
    """The cells of the one line that begins with these words."""
    (found,) = (line.split() for line in text.splitlines() if line.split()[: len(starts)] == list(starts))
    return found


def test_people_see_images_and_kernels(run: Run, fatbin: Path) -> None:
    result = run(fatbin)
    assert result.exit_code == 0
    assert f"{fatbin}: fatbin, {len(many()):,} bytes, 6 images" in result.stdout
    assert row(result.stdout, "0")[1:3] == ["cubin", "sm_75"]
    kernel = inspect_image(many()).kernel("scale<float>", "sm_90a")
    cells = row(result.stdout, "scale<float>", "sm_90a")
    assert cells[2:6] == [str(kernel.registers), "0", "0", "256"]
    assert row(result.stdout, "count", "sm_75")[9] == "≤96"
    assert row(result.stdout, "count", "(.u64)") == ["count", "(.u64)"]


def test_unknown_value_is_a_dash_and_never_zero(run: Run, fatbin: Path) -> None:
    assert row(run(fatbin).stdout, "scale<float>", "compute_75")[2:10] == ["-"] * 8


def test_spills_are_shown_as_stores_and_loads_or_as_unknown(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "spills.cubin"
    path.write_bytes(cubin(SPILLING))
    assert row(run(path).stdout, "spilling", "sm_90")[4] == "-"
    assert row(run(path).stdout, "empty", "sm_90")[4] == "0"


def test_several_files_are_printed_in_order(run: Run, fatbin: Path, tmp_path: Path) -> None:
    other = tmp_path / "k.ptx"
    other.write_bytes(ptx(SOURCE))
    result = run(other, fatbin)
    assert result.stdout.index("k.ptx: ptx") < result.stdout.index("scale.fatbin: fatbin")


def test_many_images_are_summarized_unless_all_are_requested(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_MOST_IMAGES", 4)
    path = tmp_path / "lib.so"
    path.write_bytes(host_elf(several(3) + several(2), 3))
    short = run(path)
    size = sum(image.size for image in inspect_image(path))
    assert row(short.stdout, "cubin", "sm_80") == ["cubin", "sm_80", "5", f"{size:,}", f"{size:,}"]
    assert "count" not in short.stdout
    assert "--all" in short.stdout
    assert run(path, "--all").stdout.count("count") == 6
    assert run(path, "--kernels", "count").stdout.count("count") == 6


def test_file_without_device_code_is_reported(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "plain.o"
    path.write_bytes(host_elf(b"", 1, b".data"))
    result = run(path)
    assert result.exit_code == 0
    assert "there is no device code in it" in result.stdout


# -- choosing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("count", {"count"}),
        ("scale<float>", {"scale<float>"}),
        ("scale", {"scale<float>", "scale<double>"}),
        ("scale<*>", {"scale<float>", "scale<double>"}),
        ("_Z5scaleId*", {"scale<double>"}),
        ("*", {"scale<float>", "scale<double>", "count"}),
    ],
)
def test_kernels_are_selected_by_any_name_or_a_pattern(run: Run, fatbin: Path, pattern: str, names: set[str]) -> None:
    (file,) = records(run(fatbin, "--kernels", pattern, "--json"))
    assert {k["display"] for image in file["images"] for k in image["kernels"]} == names


def test_images_are_chosen_by_architecture(run: Run, fatbin: Path) -> None:
    (file,) = records(run(fatbin, "--arch", "sm_90a", "--json"))
    assert [image["arch"] for image in file["images"]] == ["sm_90a"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--kernels", "nothing"], "count, scale<double>"),
        (["--arch", "sm_80"], "it contains sm_75, sm_90a"),
        (["--arch", "sm90"], "sm90"),
    ],
    ids=["kernel", "arch", "malformed arch"],
)
def test_empty_selection_lists_the_available_kernels(run: Run, fatbin: Path, options: list[str], message: str) -> None:
    result = run(fatbin, *options)
    assert result.exit_code == 1
    assert message in result.stderr


@pytest.mark.parametrize(
    "options",
    [["--ptx", "--sass"], ["--ptx", "--json"], ["--extract", "d", "--ptx"], ["none.cubin"]],
    ids=["two ways", "text as JSON", "extract and print", "no such file"],
)
def test_contradicting_options_are_a_usage_error(run: Run, fatbin: Path, options: list[str]) -> None:
    assert run(fatbin, *options).exit_code == 2


def test_two_files_cannot_be_compared_with_a_third(run: Run, fatbin: Path) -> None:
    assert run(fatbin, fatbin, "--against", fatbin).exit_code == 2


# -- JSON -------------------------------------------------------------------------------------------------

IMAGE_KEYS = {"index", "kind", "arch", "container", "bytes", "stored_bytes", "compression", "identifier", "options",
              "flags", "toolkit", "abi", "relocatable", "ptx", "target", "needs", "kernels", "functions", "variables",
              "undefined", "commands", "carries_ptx", "note", "error"}  # fmt: skip
KERNEL_KEYS = {"name", "display", "arch", "parameters", "registers", "stack_bytes", "spill_store_bytes",
               "spill_load_bytes", "shared_bytes", "reserved_shared_bytes", "constant_bytes", "barriers", "code_bytes",
               "max_threads", "max_block", "required_block", "cluster", "max_registers", "unbounded_stack",
               "max_cluster_blocks", "mbarriers", "virtual_resources", "parameter_bytes"}  # fmt: skip


def test_json_has_the_keys_of_its_schema(run: Run, fatbin: Path) -> None:
    (file,) = records(run(fatbin, "--json"))
    assert set(file) == {"name", "kind", "bytes", "images"}
    assert (file["kind"], file["bytes"], len(file["images"])) == ("fatbin", len(many()), 6)
    for image in file["images"]:
        assert set(image) == IMAGE_KEYS
        assert all(set(kernel) == KERNEL_KEYS for kernel in image["kernels"])


def test_json_has_numbers_and_null_for_unknown_values(run: Run, fatbin: Path) -> None:
    (file,) = records(run(fatbin, "--json", "--kernels", FLOATS))
    kernels = {image["arch"]: image["kernels"][0] for image in file["images"] if image["kernels"]}
    expected = inspect_image(many()).kernel(FLOATS, "sm_120")
    assert kernels["sm_120"]["registers"] == expected.registers
    assert kernels["sm_120"]["constant_bytes"] == {str(k): v for k, v in (expected.constant_bytes or {}).items()}
    assert [p["offset"] for p in kernels["sm_120"]["parameters"]] == [0, 8, 16, 24]
    assert kernels["compute_75"]["registers"] is None
    needs = next(image["needs"] for image in file["images"] if image["kind"] == "ptx")
    assert needs["arch"].startswith("compute_")


# -- text -------------------------------------------------------------------------------------------------


def test_ptx_is_printed_unchanged(run: Run, fatbin: Path) -> None:
    text = run(fatbin, "--ptx").stdout
    (image,) = (i for i in inspect_image(fatbin) if i.kind.value == "ptx")
    assert text.strip() == image.payload().decode().strip()
    both = run(fatbin, fatbin, "--ptx").stdout
    assert both.count("// ") == 2
    assert run(fatbin, "--ptx", "--kernels", "count").exit_code == 0


def test_image_without_ptx_prints_none(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "k.cubin"
    path.write_bytes(cubin(SOURCE))
    result = run(path, "--ptx")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "contains no PTX" in result.stderr
    path.write_bytes(ptx(SOURCE))
    assert "no SASS" in run(path, "--sass").stderr


def test_sass_is_printed_for_the_selected_kernels(run: Run, fatbin: Path) -> None:
    result = run(fatbin, "--sass", "--kernels", "count", "--arch", "sm_75")
    if result.exit_code == 3:
        pytest.skip("nvdisasm is not installed")
    assert result.exit_code == 0
    assert f"// {fatbin}: image 0, cubin sm_75" in result.stdout
    assert "EXIT" in result.stdout
    assert ".text._Z5scale" not in result.stdout


def test_missing_disassembler_is_status_3(run: Run, fatbin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sass, "_in_wheels", lambda: iter(()))
    monkeypatch.setattr(sass, "_by_pathfinder", lambda: None)
    monkeypatch.setenv("PATH", "/nowhere")
    result = run(fatbin, "--sass")
    assert result.exit_code == 3
    assert "cujit[sass]" in result.stderr


# -- extracting -------------------------------------------------------------------------------------------


def test_every_image_is_written_to_its_own_file(run: Run, fatbin: Path, tmp_path: Path) -> None:
    fatbin.write_bytes(many("-compress=false"))
    result = run(fatbin, "--extract", "out/deep")
    assert result.exit_code == 0
    written = sorted(path.name for path in (tmp_path / "out/deep").iterdir())
    assert result.stdout.split() == [f"out/deep/{name}" for name in written]
    assert written == ["scale.0.sm_75.cubin", "scale.1.sm_90a.cubin", "scale.2.sm_100f.cubin", "scale.3.sm_120.cubin",
                       "scale.4.compute_75.ptx", "scale.5.lto_90.ltoir"]  # fmt: skip
    assert (tmp_path / "out/deep/scale.1.sm_90a.cubin").read_bytes() == cubin(SOURCE, "sm_90a")
    assert json.loads(run(fatbin, "--extract", "out", "--json").stdout)["written"][0] == "out/scale.0.sm_75.cubin"


def test_unreadable_image_is_reported_and_skipped(run: Run, fatbin: Path, tmp_path: Path) -> None:
    fatbin.write_bytes(many("-compress-all"))
    result = run(fatbin, "--extract", "out")
    assert result.exit_code == 0
    assert "not written: image 5" in result.stderr
    assert len(list((tmp_path / "out").iterdir())) == 5


def test_files_with_equal_names_are_not_overwritten(run: Run, tmp_path: Path) -> None:
    for directory, arch in (("a", "sm_80"), ("b", "sm_80")):
        (tmp_path / directory).mkdir()
        (tmp_path / directory / "k.cubin").write_bytes(cubin(SOURCE, arch))
    assert run("a/k.cubin", "b/k.cubin", "--extract", "out").stdout.split() == [
        "out/k.0.sm_80.cubin",
        "out/k-2.0.sm_80.cubin",
    ]


@pytest.mark.parametrize("name", ["..cubin", "a b;$(x).cubin", "-rf", "é.cubin", "x" * 200])
def test_names_are_safe_and_stay_inside_the_directory(run: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(cubin(SOURCE, "sm_80"))
    (written,) = run("--extract", "out", "--", name).stdout.splitlines()
    assert Path(written).parent == Path("out")
    assert Path(written).name.isascii()
    assert not set(Path(written).name) & set(" ;$()/")
    assert (tmp_path / written).is_file()


def test_link_in_the_directory_is_replaced_and_not_followed(run: Run, tmp_path: Path) -> None:
    (tmp_path / "k.cubin").write_bytes(cubin(SOURCE, "sm_80"))
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/k.0.sm_80.cubin").symlink_to(tmp_path / "precious")
    assert run("k.cubin", "--extract", "out").exit_code == 0
    assert (tmp_path / "precious").read_text() == "mine"
    assert (tmp_path / "out/k.0.sm_80.cubin").read_bytes() == cubin(SOURCE, "sm_80")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["k.0.sm_80.cubin"]


def test_directory_that_cannot_be_created_is_an_error(run: Run, fatbin: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run(fatbin, "--extract", "file/inside")
    assert result.exit_code == 1
    assert "can't be written" in result.stderr


@pytest.mark.skipif(not _SYSTEM.is_dir(), reason="there is no directory where nobody makes a file, root neither")
def test_unwritable_directory_is_an_error_with_the_reason(run: Run, fatbin: Path) -> None:
    with pytest.raises(OSError, match="/sys/file") as refused:
        (_SYSTEM / "file").touch()
    result = run(fatbin, "--extract", _SYSTEM)
    assert result.exit_code == 1
    assert re.search(rf"/sys/[^.].*\.cubin can't be written: {refused.value.strerror}", result.stderr)


# -- comparing --------------------------------------------------------------------------------------------


@pytest.fixture
def heavier(tmp_path: Path) -> Path:
    source = SOURCE.replace("tile[64]", "tile[128]")
    path = tmp_path / "heavier.fatbin"
    path.write_bytes(bundled(tuple(("cubin", arch, cubin(source, f"sm_{arch}")) for arch in ("75", "80"))))
    return path


def test_increase_is_printed_with_a_sign(run: Run, fatbin: Path, heavier: Path) -> None:
    result = run(fatbin, "--against", heavier)
    assert result.exit_code == 0
    assert "256 → 512 (+256)" in result.stdout
    assert "sm_75" in result.stdout
    assert f"only in {heavier}: count (sm_80)" in result.stdout
    assert "3 kernels in both: 2 grew, 0 shrank, 1 equal" in result.stdout
    assert "\x1b" not in result.stdout
    assert "spill" not in result.stdout, "a metric in which nothing changed"
    assert "256 (-256)" in run(heavier, "--against", fatbin).stdout
    assert "count" not in run(fatbin, "--against", fatbin).stdout
    everything = run(fatbin, "--against", fatbin, "--all").stdout
    assert "count" in everything
    assert "spill stores" in everything


def test_comparison_in_json_has_every_metric(run: Run, fatbin: Path, heavier: Path) -> None:
    found = json.loads(run(fatbin, "--against", heavier, "--json", "--kernels", "scale<float>").stdout)
    assert set(found) == {"schema", "a", "b", "kernels", "only_a", "only_b"}
    (kernel,) = found["kernels"]
    assert (kernel["name"], kernel["arch"], kernel["equal"]) == (FLOATS, "sm_75", False)
    assert kernel["shared_bytes"] == {"before": 256, "after": 512, "change": 256}
    assert set(kernel) >= {"registers", "spill_store_bytes", "spill_load_bytes", "stack_bytes", "code_bytes"}
    assert all(set(k) == KERNEL_KEYS for k in found["only_a"] + found["only_b"])


# -- damage -----------------------------------------------------------------------------------------------


def test_damaged_image_is_reported_and_is_status_1(run: Run, tmp_path: Path) -> None:
    data = several(2)
    at = data.index(b"\x7fELF")
    path = tmp_path / "damaged.fatbin"
    path.write_bytes(data[: at + 40] + b"\xff" * 8 + data[at + 48 :])
    result = run(path)
    assert result.exit_code == 1
    assert "damaged: " in result.stdout
    assert result.stdout.count("count") == 2
    assert run(path, "--json").exit_code == 1
    text = run(path, "--sass")
    assert text.exit_code in (1, 3)
    if text.exit_code == 1:
        assert "// damaged.fatbin: image 0, cubin sm_80: " in text.stdout.replace(f"{tmp_path}/", "")
        assert "EXIT" in text.stdout
    extracted = run(path, "--extract", "out")
    assert (extracted.exit_code, extracted.stdout) == (1, "out/damaged.1.sm_80.cubin\n")
    assert "not written: image 0" in extracted.stderr


def test_total_reads_no_image_and_reports_only_truncated_ones(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_MOST_IMAGES", 1)
    data = several(2)
    at = data.index(b"\x7fELF")
    path = tmp_path / "damaged.fatbin"
    path.write_bytes(data[: at + 40] + b"\xff" * 8 + data[at + 48 :])
    total, everything = run(path), run(path, "--all")
    assert (total.exit_code, "damaged: " in total.stdout) == (0, False)
    assert (everything.exit_code, "damaged: " in everything.stdout) == (1, True)
    path.write_bytes(data[:-100])
    total = run(path)
    assert (total.exit_code, "image 1 is damaged: " in total.stdout) == (1, True)


def test_file_that_is_not_an_image_is_status_1(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "k.cubin"
    path.write_bytes(cubin(SOURCE)[:100])
    result = run(path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "error: " in result.stderr


def test_source_names_are_in_the_file_but_build_names_are_not(run: Run, tmp_path: Path) -> None:
    path = build(SOURCE, ["sm_80"], names=["scale<float>"]).save(tmp_path / "k.fatbin")
    assert "scale<float>" in run(path).stdout


def test_table_of_many_rows_has_the_same_cells(run: Run, fatbin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cells(text: str) -> list[list[str]]:
        return [line.split() for line in text.splitlines() if "─" not in line]

    folded = cells(run(fatbin).stdout)
    monkeypatch.setattr(tables, "_MOST_FOLDED_ROWS", 0)
    assert cells(run(fatbin).stdout) == folded


def test_names_in_a_file_cannot_speak_to_the_terminal(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "k.cubin"
    path.write_bytes(cubin(SOURCE).replace(b"\0count\0", b"\0c\x1b[2m\0"))
    result = run(path)
    assert "\x1b" not in result.stdout
    assert "c\\x1b[2m" in result.stdout


def built(folder: Path, name: str, code: str) -> tuple[Path, Path]:
    """A cubin, and the log of its build."""
    image = compile(code, arch="sm_90", verbose=True)
    log = folder / f"{name}.log"
    log.write_text(image.log)
    return image.save(folder / f"{name}.cubin"), log


def test_spills_come_from_the_build_log(run: Run, tmp_path: Path) -> None:
    path, log = built(tmp_path, "spills", SPILLING)
    assert "--assembler-log" in run(path).stdout
    result = run(path, "--assembler-log", log)
    assert "--assembler-log" not in result.stdout
    assert re.fullmatch(r"[\d,]+\+[\d,]+", row(result.stdout, "spilling", "sm_90")[4])
    assert (
        max(
            k["spill_store_bytes"]
            for k in records(run(path, "--assembler-log", log, "--json"))[0]["images"][0]["kernels"]
        )
        > 0
    )


def test_logs_of_both_sides_show_which_spills_grew(run: Run, tmp_path: Path) -> None:
    more, more_log = built(tmp_path, "more", SPILLING)
    less, less_log = built(tmp_path, "less", SPILLING.replace("1024, 2", "256, 1"))
    result = run(less, "--against", more, "--assembler-log", less_log, "--assembler-log", more_log)
    assert re.search(r"spilling .*0 → [\d,]+ \(\+[\d,]+\)", result.stdout)
    assert "spill stores" in result.stdout


def test_logs_are_for_each_file_or_for_none(run: Run, tmp_path: Path) -> None:
    path, log = built(tmp_path, "spills", SPILLING)
    result = run(path, "--against", path, "--assembler-log", log)
    assert result.exit_code == 2
    assert "--assembler-log appears 1 times for 2 files" in result.stderr
