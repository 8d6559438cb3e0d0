"""Budgets of what kernels cost: what is over comes with its line and advice, and what is not looked at is said."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import cujit
from cujit.budget import Budget, BudgetReport, check, read_budgets
from cujit.cli.budget import command
from cujit.errors import BudgetError, NameNotFoundError, OptionError
from cujit.profile import Profile, ProfiledKernel, advice_for
from raising import raises

CODE = """
template <int WIDTH> __global__ void transpose(const float *x, float *y) {
    __shared__ float s[32][WIDTH];
    s[threadIdx.y][threadIdx.x] = x[threadIdx.y * 32 + threadIdx.x];
    __syncthreads();
    y[threadIdx.y * 32 + threadIdx.x] = s[threadIdx.x][threadIdx.y];
}
__global__ void both(float *x) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x * 8] = s[threadIdx.x * 2 % 64];
}
__global__ void parted(float *x) {
    float own[16];
    for (int k = 0; k < 16; k++) own[k] = x[k];
    if (threadIdx.x & 1) x[threadIdx.x * 8] = own[(int)x[0] & 15] * 2.f;
    atomicAdd(x + 1, 1.f);
}
"""
NAMES = ("transpose<32>", "transpose<33>", "parted", "both")


def _kernel(profile: Profile, name: str) -> ProfiledKernel:
    return next(kernel for kernel in profile.kernels if kernel.name == name)


@pytest.fixture(scope="module")
def profile() -> Profile:
    profile = Profile()
    device = cujit.cpu(profile=profile)
    module = cujit.jit(CODE, names=list(NAMES), device=device, name="transpose.cu")
    x = device.array(np.ones(1024, np.float32))
    for name in NAMES[:2]:
        module[name][1, (32, 32)](x, device.zeros(1024, np.float32))
    module["parted"][1, 64](x)
    module["both"][1, 32](x)
    return profile


def report_of(error: pytest.ExceptionInfo[BudgetError]) -> BudgetReport:
    assert isinstance(error.value.report, BudgetReport)
    return error.value.report


def test_advice_about_another_measure_or_line_is_not_used(profile: Profile) -> None:
    with pytest.raises(BudgetError) as caught:
        check(profile, Budget(sectors=0), kernel="transpose<32>")
    (row,) = report_of(caught).violations
    assert (row.line and row.line.line, row.help) == (4, "")
    assert {each.line.line for each in advice_for(_kernel(profile, "transpose<32>")) if each.line} == {6}


def test_exceeded_limit_has_its_line_and_advice(profile: Profile) -> None:
    with pytest.raises(BudgetError) as caught:
        check(profile, Budget(bank_conflicts=0, sectors_per_request=4.5), kernel="transpose<*>")
    (row,) = report_of(caught).violations
    assert row.lowered_name.startswith("_Z9transposeILi32E")
    assert (row.kernel, row.arch, row.what, row.allowed, row.measured) == (
        "transpose<32>", None, "bank_conflicts", 0, 992
    )  # fmt: skip
    assert row.line is not None
    assert (Path(row.line.file).name, row.line.line) == ("transpose.cu", 6)
    text = str(caught.value)
    assert "bank_conflicts of transpose<32>: most at transpose.cu:6, 992" in text
    assert "this profile: 1 over budget, of 4 limits of 2 kernels" in text
    assert caught.value.help is not None
    assert caught.value.help.startswith("each warp's load at transpose.cu:6 takes 32 wavefronts of shared memory")
    assert caught.value.help.endswith("a stride of 132 bytes uses all 32 banks")


def test_each_limit_is_compared_with_its_measure(profile: Profile) -> None:
    parted = _kernel(profile, "parted")
    totals = parted.totals
    names = ("sectors_per_request", "sectors", "local_sectors", "divergent_branches", "most_contended", "flops")
    measured = {name: getattr(totals, name) for name in names}
    assert all(measured.values())
    assert measured["most_contended"] == 32
    assert {row.what: row.measured for row in check(parted, Budget(**measured)).rows} == measured
    for name, value in measured.items():
        with pytest.raises(BudgetError):
            check(parted, Budget(**{name: value - 1}))
    turned = [_kernel(profile, name) for name in NAMES[:2]]
    waves = turned[0].totals.wavefronts
    assert [row.slack for row in check(turned, Budget(wavefronts=waves)).rows] == [0, waves - 64]
    with pytest.raises(BudgetError):
        check(turned, Budget(wavefronts=waves - 1))


def test_advice_is_for_the_line_with_the_largest_share(profile: Profile) -> None:
    with pytest.raises(BudgetError) as caught:
        check(profile, {"parted": Budget(local_sectors=0, flops=0)})
    local, flops = report_of(caught).violations
    assert local.help.startswith("local memory moves")
    assert flops.note.startswith("most at transpose.cu:")
    assert [row.note for row in check(profile, Budget(bank_conflicts=0), kernel="transpose<33>").rows] == [""]


def test_advice_about_the_measure_is_preferred(profile: Profile) -> None:
    both = _kernel(profile, "both")
    assert [each.rule for each in advice_for(both)] == ["uncoalesced", "bank_conflicts"]
    for what, rule in (("bank_conflicts", 1), ("sectors_per_request", 0)):
        with pytest.raises(BudgetError) as caught:
            check(both, Budget(**{what: 0}))
        (row,) = report_of(caught).rows
        assert row.help == str(advice_for(both)[rule])


def test_patterns_select_kernels_and_the_rest_is_listed(profile: Profile) -> None:
    budgets = {
        "transpose<33>": Budget(bank_conflicts=0),
        "transpose": Budget(bank_conflicts=992, registers=32),
        "reduce*": Budget(flops=1),
    }
    report = check(profile, budgets)
    assert [(row.kernel, row.allowed) for row in report.rows] == [("transpose<32>", 992), ("transpose<33>", 0)]
    assert set(report.unchecked) == {
        "reduce*: no kernel with this name ran",
        "registers of transpose<32>: only machine code contains this value",
        "parted: no pattern matches it",
        "both: no pattern matches it",
    }


def test_both_kinds_of_limits_are_checked_where_known(profile: Profile) -> None:
    cubin = cujit.compile(CODE, arch="sm_90", names=NAMES[:2])
    both = {"transpose<33>": Budget(registers=64, bank_conflicts=0)}
    assert [row.what for row in check(cubin, both).rows] == ["registers"]
    assert "bank_conflicts of transpose<33>: only a profile contains this value" in check(cubin, both).unchecked
    assert [row.what for row in check(profile, both).rows] == ["bank_conflicts"]
    for what, budget in ((cubin, Budget(bank_conflicts=0)), (profile, Budget(registers=64))):
        with raises(OptionError, "option", "limit"):
            check(what, budget)


def test_invalid_request_is_an_error(profile: Profile) -> None:
    with raises(NameNotFoundError, "name-not-found", "sum"):
        check(profile, {"sum": Budget(flops=1)})
    with raises(NameNotFoundError, "name-not-found", "profile"):
        check(Profile(), Budget(flops=1))
    with raises(OptionError, "option"):
        check(profile, Budget(flops=1), on="H200")
    for value in ("4", -1, float("nan"), True):
        with raises(OptionError, "option", "sectors_per_request"):
            Budget(sectors_per_request=value)  # type: ignore[arg-type]
    with raises(OptionError, "option", "bank_conflicts"):
        Budget(bank_conflicts=0.5)  # type: ignore[arg-type]


@pytest.fixture
def counts(profile: Profile, tmp_path: Path) -> Path:
    file = tmp_path / "counts.json"
    file.write_text(json.dumps(profile.to_json()))
    return file


def test_files_of_budgets_and_of_profiles_meet(counts: Path, tmp_path: Path) -> None:
    budgets = tmp_path / "budgets.toml"
    budgets.write_text('[[budget]]\nkernel = "transpose<*>"\nbank_conflicts = 0\nsectors_per_request = 4.5\n')
    with raises(BudgetError, "budget", "counts.json", "1"):
        check(counts, read_budgets(budgets))
    assert check(str(counts), read_budgets(budgets), kernel=["transpose<33>"]).is_within


def test_command_accepts_a_profile(counts: Path) -> None:
    def run(*arguments: object) -> tuple[int, str]:
        result = CliRunner().invoke(command, [str(counts), *map(str, arguments)], prog_name="cujit budget")
        return result.exit_code, result.output

    good = ("--bank-conflicts", 0, "--sectors-per-request", 4.5, "--sectors", 256, "--wavefronts", 64)
    assert run("--kernels", "transpose<33>", *good)[0] == 0
    code, said = run("--kernels", "transpose<32>", *good)
    assert code == 1
    assert "hint: each warp's load at transpose.cu:6" in said
    assert "counts.json: 2 over budget, of 4 limits of 1 kernel" in said
    poor = ("--local-sectors", 0, "--divergent-branches", 2, "--most-contended", 1, "--flops", 0)
    code, said = run("--kernels", "parted", *poor, "--json")
    rows = {row["what"]: row for row in json.loads(said)["rows"]}
    assert (code, rows["divergent_branches"]["verdict"], rows["most_contended"]["is"]) == (1, "ok", 32)
    assert Path(rows["local_sectors"]["line"]).name == "transpose.cu:16"
    assert rows["flops"]["arch"] is None
    assert run("--flops", 9, "--assembler-log", counts)[0] == 2
