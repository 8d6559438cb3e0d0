from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from click.testing import CliRunner, Result

from cujit.cli.budget import command
from cujit.program import build, compile

Check: TypeAlias = Callable[..., Result]
CODE = r"""
template <typename T> __global__ void axpy(T a, const T* x, T* y) { y[threadIdx.x] += a * x[threadIdx.x]; }
extern "C" __global__ void sum(float* p) {
    __shared__ float tile[256];
    tile[threadIdx.x] = p[threadIdx.x];
    __syncthreads();
    p[threadIdx.x] = tile[255 - threadIdx.x];
}
extern "C" __global__ void spilling(float* p) {
    float a[48];
    #pragma unroll
    for (int i = 0; i < 48; i++) a[i] = p[i * 7];
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 48; i++) p[i * 3 + threadIdx.x] = a[47 - i] * a[i];
}
"""


@pytest.fixture
def check() -> Check:
    def run(*arguments: object) -> Result:
        return CliRunner().invoke(command, [str(a) for a in arguments], prog_name="cujit budget")

    return run


@pytest.fixture(scope="module")
def fatbin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("budget")
    return build(CODE, ["sm_80", "sm_90", "compute_80"], names=["axpy<float>"]).save(directory / "k.fatbin")


@pytest.fixture(scope="module")
def spilling(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cubin that spills, and its log beside it."""
    directory = tmp_path_factory.mktemp("spilling")
    built = compile(CODE, arch="sm_90", maxrregcount=24, verbose=True)
    (directory / "k.log").write_text(built.log)
    return built.save(directory / "k.cubin")


def rows(result: Result) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(result.stdout)["rows"]
    return found


def test_within_budget_is_status_0_with_the_slack(check: Check, fatbin: Path) -> None:
    result = check(fatbin, "--registers", 200, "--static-shared-bytes", 1100)
    assert result.exit_code == 0
    assert "76 left" in result.stdout
    assert "not checked: ptx compute_80" in result.stdout
    assert "k.fatbin: within budget, 12 limits of 6 kernels" in result.stdout


def test_over_budget_is_status_1_with_every_violation(check: Check, fatbin: Path) -> None:
    result = check(fatbin, "--static-shared-bytes", 1000, "--registers", 3)
    assert result.exit_code == 1
    assert "8 over budget, of 12 limits of 6 kernels" in result.stdout
    assert result.stdout.count("24 over") == 2


def test_not_known_is_status_1(check: Check, spilling: Path) -> None:
    result = check(spilling, "--spills", 10000)
    assert result.exit_code == 1
    assert "not known" in result.stdout
    assert "hint: build with -O verbose and pass the log" in result.stdout


def test_build_log_supplies_spills(check: Check, spilling: Path) -> None:
    arguments = (spilling, "--assembler-log", spilling.with_suffix(".log"), "--kernels", "spilling", "--json")
    (row,) = rows(check(*arguments, "--spills", 10000))
    assert row["is"] > 0
    assert check(*arguments, "--spills", row["is"]).exit_code == 0
    assert check(*arguments, "--spills", row["is"] - 1).exit_code == 1


def test_json_has_every_row(check: Check, fatbin: Path) -> None:
    result = check(fatbin, "--static-shared-bytes", 1000, "--kernels", "sum", "--arch", "sm_80", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {
        "schema": 1,
        "file": str(fatbin),
        "within": False,
        "rows": [
            {
                "kernel": "sum",
                "lowered_name": "sum",
                "arch": "sm_80",
                "what": "shared_bytes",
                "allowed": 1000,
                "is": 1024,
                "slack": -24,
                "verdict": "over",
                "line": None,
                "note": None,
                "help": None,
            }
        ],
        "unchecked": ["ptx compute_80"],
    }


@pytest.mark.parametrize(
    "limit",
    ["registers", "spills", "stack-bytes", "shared-bytes", "code-bytes", "constant-bytes", "barriers"],
)
def test_each_budget_limit_has_an_option(check: Check, fatbin: Path, limit: str) -> None:
    result = check(fatbin, f"--{limit}", 1 << 20, "--json")
    assert result.exit_code == 0
    assert {row["what"] for row in rows(result)} == {limit.replace("-", "_")}
    assert {row["allowed"] for row in rows(result)} == {1 << 20}


def test_occupancy_is_at_the_block_on_the_gpu(check: Check, fatbin: Path) -> None:
    arguments = (fatbin, "--kernels", "sum", "--occupancy", 0.7, "--block", 1024, "--json")
    assert [row["is"] for row in rows(check(*arguments))] == [1, 1]
    assert rows(check(*arguments, "--block", "32x32")) == rows(check(*arguments))
    assert rows(check(*arguments, "--block", "32")) != rows(check(*arguments))
    on = check(*arguments, "--on", "RTX 3090")
    assert on.exit_code == 1
    assert [(row["arch"], row["is"]) for row in rows(on)] == [("sm_80", 32 / 48)]
    shared = check(*arguments, "--arch", "sm_90", "--dynamic-shared-bytes", 150 << 10)
    assert [row["is"] for row in rows(shared)] == [0.5]


def test_several_kernels_and_architectures_can_be_named(check: Check, fatbin: Path) -> None:
    named = ("--kernels", "axpy<*>", "--kernels", "sum", "--arch", "sm_80", "--arch", "sm_90")
    result = check(fatbin, "--registers", 255, *named, "--json")
    assert [(row["kernel"], row["arch"]) for row in rows(result)].sort() == [
        (kernel, arch) for arch in ("sm_80", "sm_90") for kernel in ("axpy<float>", "sum")
    ].sort()
    assert len(rows(result)) == 4


def test_budgets_come_from_a_file(check: Check, fatbin: Path, tmp_path: Path) -> None:
    budget = tmp_path / "budget.toml"
    budget.write_text('[[budget]]\nkernel = "sum"\nshared_bytes = 1024\n[[budget]]\nshared_bytes = 0\n')
    result = check(fatbin, "--budget", budget, "--json")
    assert result.exit_code == 0
    assert {row["kernel"]: row["allowed"] for row in rows(result)}["sum"] == 1024
    budget.write_text('[[budget]]\nkernel = "summ"\nshared_bytes = 1024\n')
    assert "'summ'" in str(check(fatbin, "--budget", budget).exception)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--block", 128),
        ("--registers", 64, "--block", 128),
        ("--registers", -1),
        ("--occupancy", 2),
        ("--occupancy", "nan"),
        ("--occupancy", 1, "--block", 4096),
        ("--occupancy", 1, "--block", "64x64"),
        ("--occupancy", 1, "--block", 0),
        ("--budget", "absent.toml"),
    ],
    ids=lambda arguments: " ".join(map(str, arguments)) or "none",
)
def test_wrong_command_line_is_status_2(check: Check, fatbin: Path, arguments: tuple[object, ...]) -> None:
    assert check(fatbin, *arguments).exit_code == 2


def test_file_with_an_extra_limit_is_status_2(check: Check, fatbin: Path, tmp_path: Path) -> None:
    budget = tmp_path / "budget.toml"
    budget.write_text("[[budget]]\nregisters = 64\n")
    assert check(fatbin, "--budget", budget, "--registers", 64).exit_code == 2


def test_unknown_kernel_is_status_1_with_a_message(cujit: Callable[..., Result], fatbin: Path) -> None:
    result = cujit("budget", str(fatbin), "--registers", "64", "--kernels", "axpi*")
    assert result.exit_code == 1
    assert "named 'axpi*'" in result.stderr
    assert "axpy<float>" in result.stderr
    assert result.stdout == ""


def test_image_with_only_ptx_is_status_1_with_a_hint(cujit: Callable[..., Result], tmp_path: Path) -> None:
    path = compile(CODE, arch="compute_80").save(tmp_path / "k.ptx")
    result = cujit("budget", str(path), "--registers", "64")
    assert result.exit_code == 1
    assert "cujit compile FILE -a sm_90" in result.stderr


def test_json_explains_why_a_limit_is_unknown(check: Check, spilling: Path) -> None:
    result = check(spilling, "--spills", 0, "--json")
    (row,) = [row for row in json.loads(result.stdout)["rows"] if row["verdict"] == "not known"]
    assert "only the assembler's log" in row["note"]
    assert "--assembler-log" in row["help"]


def test_device_of_this_machine_can_be_named_and_cpu_is_no_gpu(cujit: Callable[..., Result], fatbin: Path) -> None:
    result = cujit("budget", str(fatbin), "--registers", "255", "--on", "cpu")
    assert result.exit_code == 1
    assert "cpu is the CPU device" in result.stderr
