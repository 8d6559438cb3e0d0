"""Budgets over real machine code: what is over, what is not known, and which kernels a budget is for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cujit.arch import Arch
from cujit.artifact import Artifact
from cujit.budget.budgets import Budget, check, examine
from cujit.budget.file import read_budgets
from cujit.budget.report import BudgetReport, BudgetRow, aligned
from cujit.devices.device import Device
from cujit.errors import (
    ArchError,
    ArgumentError,
    BudgetError,
    CujitError,
    FormatError,
    LaunchError,
    NameNotFoundError,
    OptionError,
)
from cujit.inspection.choose import names_matching
from cujit.inspection.read import inspect
from cujit.occupancy.subject import of as occupancy
from cujit.program import Source, build, bundle, compile, link
from raising import raises

CODE = r"""
template <typename T> __global__ void axpy(T a, const T* x, T* y) {
    y[threadIdx.x] += a * x[threadIdx.x];
}
__constant__ int table[16];
extern "C" __global__ void shared_sum(float* p) {
    __shared__ float tile[256];
    tile[threadIdx.x] = p[threadIdx.x];
    __syncthreads();
    p[threadIdx.x] = tile[255 - threadIdx.x] + table[threadIdx.x & 15];
}
extern "C" __global__ void __launch_bounds__(96) narrow(int* p) { p[threadIdx.x] = 1; }
extern "C" __global__ void spilling(float* p) {
    float a[48];
    #pragma unroll
    for (int i = 0; i < 48; i++) a[i] = p[i * 7];
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 48; i++) p[i * 3 + threadIdx.x] = a[47 - i] * a[i];
}
"""
NAMES = ("axpy<float>", "axpy<double>")
# A function that is not inlined and spills, one kernel that calls it, and one that spills itself.
CALLING = r"""
__device__ __noinline__ float sums(float* p) {
    float a[24];
    #pragma unroll
    for (int i = 0; i < 24; i++) a[i] = p[i * 7];
    __syncthreads();
    float s = 0;
    #pragma unroll
    for (int i = 0; i < 24; i++)
        #pragma unroll 4
        for (int j = 0; j < 24; j++) s += a[i] * a[23 - i] * p[s > 0];
    return s;
}
extern "C" __global__ void calling(float* p) { p[threadIdx.x] = sums(p) + sums(p + 1); }
extern "C" __global__ void plain(int* p) { *p = 1; }
"""
SPILLING = {"maxrregcount": 24}


@pytest.fixture(scope="module")
def fatbin() -> Artifact:
    return build(CODE, ["sm_80", "sm_90", "compute_80"], names=NAMES)


@pytest.fixture(scope="module")
def cubin() -> Artifact:
    return compile(CODE, arch="sm_90", names=NAMES)


@pytest.fixture(scope="module")
def told() -> Artifact:
    """A cubin whose kernel spills, with the log that tells how much."""
    return compile(CODE, arch="sm_90", verbose=True, options=SPILLING)


@pytest.fixture(scope="module")
def untold() -> Artifact:
    return compile(CODE, arch="sm_90", options=SPILLING)


@pytest.fixture(scope="module")
def calling() -> Artifact:
    """A cubin in which a function spills that is not inlined."""
    return compile(CALLING, arch="sm_90", verbose=True, options=SPILLING)


def row(report: BudgetReport, kernel: str, what: str) -> BudgetRow:
    (found,) = [r for r in report.rows if (r.kernel, r.what) == (kernel, what)]
    return found


def report_of(error: pytest.ExceptionInfo[BudgetError]) -> BudgetReport:
    assert isinstance(error.value.report, BudgetReport)
    return error.value.report


# -- what is measured -------------------------------------------------------------------------------------


def test_every_kernel_of_every_machine_code_is_checked(fatbin: Artifact) -> None:
    report = check(fatbin, Budget(registers=255))
    assert {(r.kernel, str(r.arch)) for r in report.rows} == {
        (name, arch) for name in (*NAMES, "shared_sum", "narrow", "spilling") for arch in ("sm_80", "sm_90")
    }
    assert report.unchecked == ("ptx compute_80",)


def test_limits_are_compared_with_the_image(cubin: Artifact) -> None:
    everything = Budget(
        registers=255,
        spills=0,
        stack_bytes=0,
        shared_bytes=1024,
        code_bytes=1 << 20,
        constant_bytes=4096,
        barriers=1,
        occupancy=0,
    )
    kernel = inspect(cubin).kernel("shared_sum")
    assert kernel.constant_bytes
    assert {r.what: r.measured for r in check(cubin, everything, kernel="shared_sum").rows} == {
        "registers": kernel.registers,
        "spills": 0,
        "stack_bytes": 0,
        "shared_bytes": 1024,
        "code_bytes": kernel.code_bytes,
        "constant_bytes": sum(kernel.constant_bytes.values()),
        "barriers": 1,
        "occupancy": 1,
    }
    assert len(kernel.constant_bytes) > 1


def test_slack_is_the_remaining_amount(cubin: Artifact) -> None:
    report = check(cubin, Budget(shared_bytes=1100, occupancy=0.25, block=128), kernel="shared_sum")
    assert row(report, "shared_sum", "shared_bytes").slack == 76
    assert row(report, "shared_sum", "occupancy").slack == 0.75
    assert report.is_within
    assert "within budget, 2 limits of 1 kernel" in str(report)
    assert "76 left" in str(report)


# -- over budget ------------------------------------------------------------------------------------------


def test_table_aligns_names_left_and_numbers_right() -> None:
    rows = [("kernel", "arch", "what", "measured", "limit", "slack"), ("a", "sm_90", "registers", "7", "255", "248")]
    assert aligned(rows) == [
        "  kernel  arch   what       measured  limit  slack",
        "  a       sm_90  registers         7    255    248",
    ]


def test_every_violation_is_in_the_message_with_both_numbers(cubin: Artifact) -> None:
    with pytest.raises(BudgetError) as error:
        check(cubin, Budget(shared_bytes=1000, barriers=0, registers=255))
    message = str(error.value)
    assert "3 over budget, of 15 limits of 5 kernels" in message
    assert {tuple(line.split()) for line in message.splitlines()[1:]} == {
        ("kernel", "arch", "what", "allowed", "is", "slack"),
        ("shared_sum", "sm_90", "shared_bytes", "1,000", "1,024", "24", "over"),
        ("shared_sum", "sm_90", "barriers", "0", "1", "1", "over"),
        ("spilling", "sm_90", "barriers", "0", "1", "1", "over"),
    }
    assert len(report_of(error).rows) == 15


def test_limit_is_allowed_and_one_more_is_not(cubin: Artifact) -> None:
    assert check(cubin, Budget(shared_bytes=1024)).is_within
    with raises(BudgetError, "budget", "1", "shared_sum"):
        check(cubin, Budget(shared_bytes=1023))


def test_budget_error_is_an_assertion_and_an_error_of_cujit(cubin: Artifact) -> None:
    with pytest.raises(AssertionError):
        check(cubin, Budget(registers=1))
    with pytest.raises(CujitError):
        check(cubin, Budget(registers=1))


def test_examine_returns_the_report_that_check_would_raise(cubin: Artifact) -> None:
    report = examine(cubin, Budget(registers=1))
    assert not report.is_within
    with pytest.raises(BudgetError):
        report.require()


# -- spills -----------------------------------------------------------------------------------------------


def test_spills_come_from_the_log(told: Artifact) -> None:
    with pytest.raises(BudgetError) as error:
        check(told, Budget(spills=0))
    (over,) = report_of(error).violations
    kernel = inspect(told).kernel("spilling")
    assert kernel.spill_store_bytes
    assert kernel.spill_load_bytes
    assert (over.kernel, over.measured) == ("spilling", kernel.spill_store_bytes + kernel.spill_load_bytes)
    assert check(told, Budget(spills=kernel.spill_bytes)).is_within


def test_module_is_checked_with_its_build_log(told: Artifact) -> None:
    module = SimpleNamespace(artifact=told)  # a device that takes this cubin need not be here
    assert examine(module, Budget(spills=0)).rows == examine(told, Budget(spills=0)).rows


def test_spills_without_a_log_fail_and_suggest_verbose(untold: Artifact) -> None:
    with raises(BudgetError, "budget", "1", "verbose=True") as error:
        check(untold, Budget(spills=1 << 20))
    assert "verbose=True" in str(error.value)
    assert [(r.kernel, r.verdict) for r in report_of(error).violations] == [("spilling", "not known")]


def test_kernel_without_a_stack_has_no_spills(untold: Artifact) -> None:
    report = check(untold, Budget(spills=0), kernel=["shared_sum", "narrow"])
    assert [r.measured for r in report.rows] == [0, 0]


@pytest.mark.parametrize("held", [False, True], ids=["artifact", "module"])
def test_spills_of_called_functions_are_considered(calling: Artifact, held: bool) -> None:
    own = inspect(calling).kernel("calling").spill_bytes
    assert own is not None
    built = SimpleNamespace(artifact=calling) if held else calling
    with raises(BudgetError, "budget", "1", "__forceinline__") as error:
        check(built, Budget(spills=own))
    assert "__forceinline__" in str(error.value)
    assert "_Z4sumsPf" in str(error.value)
    report = check(built, Budget(spills=1 << 20))
    assert (row(report, "calling", "spills").measured or 0) > own
    assert row(report, "plain", "spills").measured == 0


# -- occupancy --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [32, 64, 256, 1024])
def test_occupancy_is_that_of_the_block(cubin: Artifact, block: int) -> None:
    expected = occupancy(cubin, block, kernel="shared_sum").residency.occupancy
    report = check(cubin, Budget(occupancy=0, block=block), kernel="shared_sum")
    assert report.rows[0].measured == expected


def test_block_may_be_a_shape(cubin: Artifact) -> None:
    shaped = Budget(occupancy=0, block=(8, 4, 2))
    assert shaped.threads == 64
    assert check(cubin, shaped).rows == check(cubin, Budget(occupancy=0, block=64)).rows


def test_occupancy_counts_dynamic_shared_memory(cubin: Artifact) -> None:
    with pytest.raises(BudgetError) as error:
        check(cubin, Budget(occupancy=0.5, block=128, dynamic_shared_bytes=100 << 10), kernel="shared_sum")
    (over,) = report_of(error).violations
    assert over.measured == 2 * 4 / 64
    assert "blocks of 128 threads, limited by shared memory" in str(error.value)
    assert "12.5%" in str(error.value)


def test_kernel_with_launch_bounds_uses_its_own_block(cubin: Artifact) -> None:
    report = check(cubin, Budget(occupancy=0))
    assert row(report, "narrow", "occupancy").note.startswith("blocks of 96 threads")
    assert occupancy(cubin, kernel="narrow").residency.threads == 64  # the best, which it is not built for


def test_block_above_the_launch_bounds_is_unknown(cubin: Artifact) -> None:
    with raises(BudgetError, "budget") as error:
        check(cubin, Budget(occupancy=0, block=256), kernel="narrow")
    assert "built for at most 96" in str(error.value)
    assert "hint: use at most 96" in str(error.value)


def test_kernel_with_a_required_block_uses_that_block() -> None:
    ptx = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n.reqntid 96\n{\n    ret;\n}\n"
    built = link([ptx.encode()], arch="sm_90")
    assert check(built, Budget(occupancy=0)).rows[0].note.startswith("blocks of 96 threads")
    with raises(BudgetError, "budget", "96", "64", "requires"):
        check(built, Budget(occupancy=0, block=64))


def test_static_shared_memory_and_barriers_limit_occupancy() -> None:
    memory = "__shared__ int tile[9000]; tile[threadIdx.x] = *p; __syncthreads(); *p = tile[threadIdx.x ^ 1];"
    barrier = 'asm volatile("barrier.sync 15;");'
    for body, limit in ((memory, "shared memory"), (barrier, "barriers")):
        image = compile(f'extern "C" __global__ void k(int *p) {{ {body} }}', arch="sm_90")
        expected = occupancy(image, 32).residency
        (found,) = check(image, Budget(occupancy=0, block=32)).rows
        assert (found.measured, expected.occupancy < 0.5) == (expected.occupancy, True), limit
        assert limit in found.note


def test_tensor_memory_limits_occupancy() -> None:
    source = r"""
    extern "C" __global__ void takes_all(int* p) {
        __shared__ unsigned where;
        unsigned address = (unsigned)__cvta_generic_to_shared(&where);
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 128;" ::"r"(address) : "memory");
        asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 128;" ::"r"(where));
    }"""
    report = examine(compile(source, arch="sm_100a"), Budget(occupancy=0, block=32))
    assert report.rows[0].measured == 1 / 64


def test_block_that_does_not_run_has_no_occupancy(cubin: Artifact) -> None:
    report = examine(cubin, Budget(occupancy=0.1, block=64, dynamic_shared_bytes=300 << 10), kernel="shared_sum")
    assert (report.rows[0].measured, report.rows[0].verdict) == (0, "over")


def test_occupancy_on_a_gpu_is_that_of_its_architecture(fatbin: Artifact) -> None:
    report = check(fatbin, Budget(occupancy=0, block=1024), kernel="shared_sum", on="RTX 3090")
    assert [(str(r.arch), r.measured) for r in report.rows] == [("sm_80", 32 / 48)]
    report = check(fatbin, Budget(occupancy=0, block=1024), kernel="shared_sum", on=Arch.parse("sm_90"))
    assert [(str(r.arch), r.measured) for r in report.rows] == [("sm_90", 1)]


def test_on_a_gpu_the_nearest_code_is_checked() -> None:
    built = build(CODE, ["sm_80", "sm_86", "sm_90"])
    assert {str(r.arch) for r in check(built, Budget(registers=255), on="RTX 3090").rows} == {"sm_86"}
    assert {str(r.arch) for r in check(built, Budget(registers=255), on="A100").rows} == {"sm_80"}


# -- what cannot be checked -------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["compute_90", "lto_90"])
def test_image_without_sass_suggests_a_build(arch: str) -> None:
    with raises(FormatError, "format", "machine") as error:
        check(compile(CODE, arch=arch), Budget(registers=255))
    assert "arch='sm_90'" in str(error.value)


def test_ptx_only_kernel_is_reported(tmp_path: Path) -> None:
    one = bundle([compile('extern "C" __global__ void one(int* p) { *p = 1; }', arch="sm_90")])
    two = bundle([compile('extern "C" __global__ void two(int* p) { *p = 2; }', arch="compute_90")])
    both = tmp_path / "both.fatbin"
    both.write_bytes(one.data + two.data)
    with raises(FormatError, "format", "two", "PTX"):
        check(both, Budget(registers=255))
    assert check(both, Budget(registers=255), kernel="one").is_within


def test_image_without_kernels_is_an_error() -> None:
    empty = compile("__device__ int x;", arch="sm_90")
    with raises(NameNotFoundError, "name-not-found", "names=['axpy<float>']") as error:
        check(empty, Budget(registers=255))
    assert "list its instances" in str(error.value)


def test_unlinked_image_is_an_error() -> None:
    unlinked = compile(CODE, arch="sm_90", options={"rdc": True})
    with raises(FormatError, "format", "source.cu", "0"):
        check(unlinked, Budget(registers=255))


def test_damaged_image_in_a_fatbin_is_an_error() -> None:
    data = bytearray(build(CODE, ["sm_80", "sm_90"], compress=False).data)
    where = data.rindex(b"\x7fELF")
    data[where + 40 : where + 48] = b"\xff" * 8  # where its sections are
    with raises(FormatError, "format", "1", "sm_90", "at byte 40"):
        check(bytes(data), Budget(registers=255))


def test_unlinked_image_without_an_architecture_is_an_error() -> None:
    data = bytearray(build(CODE, ["sm_80", "sm_90"], compress=False).data)
    data[16 + 0x1C : 16 + 0x20] = bytes(4)  # the architecture of the first entry
    for arch in (None, "sm_80", "sm_90"):
        with raises(FormatError, "format", "0", "at byte 44"):
            check(bytes(data), Budget(registers=255), arch=arch)


def test_invalid_image_is_refused() -> None:
    with raises(CujitError, "argument", "int"):
        check(7, Budget(registers=1))
    with pytest.raises(FormatError):
        check(b"\x00" * 64, Budget(registers=1))


# -- which kernels ----------------------------------------------------------------------------------------


def test_patterns_are_name_expressions_globs_and_lowered_names(cubin: Artifact) -> None:
    lowered = inspect(cubin).kernel("axpy<float>").name
    budgets = {
        "axpy<float>": Budget(registers=101),
        "axpy< * >": Budget(registers=102),
        "*shared*": Budget(registers=103),
        "narro?": Budget(registers=104),
        "spilling": Budget(registers=105),
    }
    report = check(cubin, budgets)
    assert {r.kernel: r.allowed for r in report.rows} == {
        "axpy<float>": 101,
        "axpy<double>": 102,
        "shared_sum": 103,
        "narrow": 104,
        "spilling": 105,
    }
    assert report.unchecked == ()
    assert {r.kernel for r in check(cubin, {lowered: Budget(registers=99)}).rows} == {"axpy<float>"}
    assert {r.kernel for r in check(cubin, {"axpy": Budget(registers=99)}).rows} == {"axpy<float>", "axpy<double>"}


def test_name_with_a_star_is_that_name() -> None:
    source = "template <typename T> __global__ void put(T p) { if (!p) __trap(); }"
    built = compile(source, arch="sm_90", names=["put<float*>", "put<float>"])
    assert names_matching("put<float*>", inspect(built).kernels) == {inspect(built).kernel("put<float*>").name}


def test_first_matching_pattern_applies_and_others_are_listed(cubin: Artifact) -> None:
    budgets = {"axpy<float>": Budget(registers=200), "axpy*": Budget(registers=100)}
    report = check(cubin, budgets)
    assert {r.kernel: r.allowed for r in report.rows} == {"axpy<float>": 200, "axpy<double>": 100}
    assert set(report.unchecked) == {f"{name}: no pattern matches it" for name in ("shared_sum", "narrow", "spilling")}


def test_pattern_that_matches_no_kernel_is_an_error(cubin: Artifact) -> None:
    with raises(NameNotFoundError, "name-not-found", "axpi*") as error:
        check(cubin, {"*": Budget(registers=255), "axpi*": Budget(registers=1)})
    assert "axpy<float>" in str(error.value)
    with raises(NameNotFoundError, "name-not-found", "'shared_summ'"):
        check(cubin, Budget(registers=255), kernel=["narrow", "shared_summ"])


def test_pattern_that_never_applies_is_an_error(cubin: Artifact) -> None:
    with raises(OptionError, "option", "narrow"):
        check(cubin, {"*": Budget(registers=255), "narrow": Budget(registers=1)})


@pytest.mark.parametrize("arch", ["sm_80", Arch.parse("sm_80"), ["sm_80"]], ids=["text", "value", "list"])
def test_arch_excludes_other_architectures(fatbin: Artifact, arch: str | Arch | Sequence[str]) -> None:
    assert {str(r.arch) for r in check(fatbin, Budget(registers=255), arch=arch).rows} == {"sm_80"}


@pytest.mark.parametrize(
    ("arch", "on", "message"),
    [
        ("sm_86", None, ("arch-mismatch", "sm_86")),
        (["sm_80", "sm_75"], None, ("arch-mismatch", "sm_75")),
        ("compute_80", None, ("arch", "compute_80")),
        ([], None, ("arch", "none")),
        (7, None, ("arch", "7")),
        ("sm_9", None, ("arch", "malformed")),
        (None, "RTX 5090", ("arch-mismatch", "sm_120")),
        (None, "RTX 9999 Ti", ("arch", "GPU", "processors=132")),
    ],
    ids=["absent", "one absent", "virtual", "none", "number", "malformed", "on other GPU", "on unknown GPU"],
)
def test_missing_code_is_an_error(fatbin: Artifact, arch: object, on: str | None, message: tuple[str, ...]) -> None:
    with raises(ArchError, *message):
        check(fatbin, Budget(registers=255), arch=arch, on=on)  # type: ignore[arg-type]


# -- the budget itself ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({}, ("code_bytes",)),
        ({"registers": -1}, ("registers", "-1", "0")),
        ({"registers": 1.5}, ("registers", "float 1.5")),
        ({"spills": True}, ("spills", "bool True")),
        ({"shared_bytes": "1k"}, ("shared_bytes", "str '1k'")),
        ({"occupancy": 50}, ("occupancy", "50", "1")),
        ({"occupancy": float("nan")}, ("occupancy", "nan")),
        ({"occupancy": "0.5"}, ("occupancy", "str '0.5'")),
        ({"occupancy": True}, ("occupancy", "bool True")),
        ({"registers": 1, "block": 128}, ("occupancy=0.5",)),
        ({"registers": 1, "dynamic_shared_bytes": 1}, ("dynamic_shared_bytes",)),
        ({"occupancy": 1, "dynamic_shared_bytes": None}, ("dynamic_shared_bytes", "NoneType None")),
        ({"occupancy": 1, "block": 2048}, ("2048", "1024")),
        ({"occupancy": 1, "block": (64, 64)}, ("4096",)),
    ],
    ids=lambda value: "" if isinstance(value, str) else "+".join(value) or "nothing",
)
def test_malformed_budget_is_refused(limits: dict[str, object], message: tuple[str, ...]) -> None:
    with raises(OptionError, "option", *message):
        Budget(**limits)  # type: ignore[arg-type]


def test_malformed_block_is_refused() -> None:
    with raises(LaunchError, "grid-size", "block.x", "0"):
        Budget(occupancy=1, block=0)


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ({}, "cujit.budget.Budget(registers=64)"),
        (64, "cujit.budget.Budget(registers=64)"),
        ({"*": 64}, "dict"),
        ({1: Budget(registers=9)}, "axpy<*>"),
    ],
    ids=["empty", "number", "mapping of numbers", "number as name"],
)
def test_invalid_budget_is_refused(cubin: Artifact, budget: object, message: str) -> None:
    with raises(OptionError, "option", message):
        check(cubin, budget)  # type: ignore[arg-type]


@pytest.mark.parametrize("kernel", [7, [], [7], ""], ids=["number", "none", "list of numbers", "empty"])
def test_invalid_name_is_refused(cubin: Artifact, kernel: object) -> None:
    with raises(OptionError, "option", "pattern"):
        check(cubin, Budget(registers=255), kernel=kernel)  # type: ignore[arg-type]


def test_place_is_a_name_or_an_architecture(cubin: Artifact) -> None:
    with raises(OptionError, "option", "int", "on='H200'"):
        check(cubin, Budget(registers=255), on=90)  # type: ignore[arg-type]


def test_numbers_of_other_libraries_are_accepted() -> None:
    limits: dict[str, Any] = {"registers": np.int64(64), "occupancy": np.float32(0.5)}
    assert dict(Budget(**limits).limits) == limits


# -- files ------------------------------------------------------------------------------------------------


@pytest.fixture
def budget_file(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "budget.toml"
        path.write_text(text)
        return path

    return write


def test_file_keeps_the_order_of_budgets(budget_file: Callable[[str], Path]) -> None:
    path = budget_file(
        '[[budget]]\nkernel = "axpy<*>"\nregisters = 64\noccupancy = 1\nblock = [16, 16]\n[[budget]]\nspills = 0\n'
    )
    found = read_budgets(path)
    assert list(found) == ["axpy<*>", "*"]
    assert dict(found["axpy<*>"].limits) == {"registers": 64, "occupancy": 1}
    assert found["axpy<*>"].threads == 256
    assert found["*"] == Budget(spills=0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ("option", "[[budget]]")),
        ("budget = 7", ("option", "[[budget]]")),
        ("budget = [7]", ("option", "[[budget]]")),
        ("[[budgets]]\nregisters = 1", ("option-unknown", "budgets")),
        ("[[budget]]\nregister = 1", ("option-unknown", "1", "register")),
        ("[[budget]]\nkernel = 'a'", ("option", "1", "code_bytes")),
        ("[[budget]]\nkernel = 7\nregisters = 1", ("option", "1", "7", "budget.toml")),
        ("[[budget]]\nregisters = 1\n[[budget]]\nregisters = 'x'", ("option", "2", "str 'x'")),
        ("[[budget]]\nregisters = 1\n[[budget]]\nregisters = 1", ("option", "budget.toml")),
        ("[[budget]]\noccupancy = 1\nblock = 0", ("launch", "1", "block.x", "0")),
        ("[[budget]\n", ("format", "TOML")),
        ("x = " + "[" * 5000, ("format", "TOML")),
    ],
    ids=[
        "empty",
        "number",
        "list of numbers",
        "other table",
        "other limit",
        "no limit",
        "number as name",
        "text as limit",
        "pattern twice",
        "block",
        "cut short",
        "deep",
    ],
)
def test_malformed_file_is_refused(budget_file: Callable[[str], Path], text: str, message: tuple[str, ...]) -> None:
    with raises((OptionError, FormatError, LaunchError), *message):
        read_budgets(budget_file(text))


def test_binary_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "budget.toml"
    path.write_bytes(b"\xff\xfe")
    with raises(FormatError, "format", "TOML"):
        read_budgets(path)


# -- images of other routes --------------------------------------------------------------------------------


def test_saved_file_is_checked_too(fatbin: Artifact, tmp_path: Path) -> None:
    path = fatbin.save(tmp_path / "k.fatbin")
    report = check(path, Budget(shared_bytes=1024))
    assert report.name == "k.fatbin"
    assert len(report.rows) == 10


def test_each_architecture_has_its_own_log() -> None:
    built = build(CODE, ["sm_80", "sm_90"], verbose=True, options=SPILLING)
    kernels = {k.arch: k.spill_bytes for k in inspect(built).kernels if k.display == "spilling"}
    report = examine(built, Budget(spills=0), kernel="spilling")
    assert {r.arch: r.measured for r in report.rows} == kernels
    assert all(kernels.values())
    assert examine(replace(built, log=""), Budget(spills=0), kernel="spilling").rows[0].measured is None


def test_in_memory_source_has_a_name_in_the_report() -> None:
    built = compile(Source.cuda(CODE, name="kernels.cu"), arch="sm_90")
    assert check(built, Budget(registers=255)).name == "kernels.cu"


def test_occupancy_on_a_device_requires_a_gpu(cpu: Device) -> None:
    built = build(CODE, ["sm_80", "sm_86"])
    limits = SimpleNamespace(processors=82)
    told = {"name": "cuda:0", "arch": Arch.parse("sm_86"), "is_gpu": True, "product": "RTX 3090", "limits": limits}
    stand_in = Device(SimpleNamespace(ordinal=0, **told))
    report = check(built, Budget(registers=255), on=stand_in)
    assert {str(row.arch) for row in report.rows} == {"sm_86"}
    with raises(ArgumentError, "device-mismatch"):
        check(built, Budget(registers=255), on=cpu)
