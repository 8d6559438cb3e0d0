"""The pytest plugin, in runs of pytest of its own."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from _pytest.pytester import SysModulesSnapshot

from cujit.budget.budgets import Budget, examine
from cujit.devices.process import Devices, process_devices
from cujit.errors import DeviceNotFoundError
from cujit.program import compile
from processes import printed

pytest_plugins = ["pytester"]

Tests: TypeAlias = Callable[..., pytest.RunResult]

CODE = r"""
extern "C" __global__ void sum(float* p) {
    __shared__ float tile[256];
    tile[threadIdx.x] = p[threadIdx.x];
    __syncthreads();
    p[threadIdx.x] = tile[255 - threadIdx.x];
}
"""
WITHIN = """
def test_within(cujit_budget):
    report = cujit_budget(IMAGE, shared_bytes=1100)
    assert report.rows[0].slack == 76
"""
OVER = """
def test_wide(cujit_budget):
    cujit_budget(IMAGE, shared_bytes=1000, registers=255)
"""
EARLY = """
import pytest

@pytest.fixture
def checked(cujit_budget):
    cujit_budget(IMAGE, shared_bytes=1100)

def test_early(checked): pass
"""
LATER = """
def test_later(cujit_budget):
    cujit_budget(IMAGE, shared_bytes=1100)
    assert False
"""
OTHERS = """
import pytest
from cujit.budget.budgets import Budget
from cujit.errors import OptionError

def test_mapping(cujit_budget):
    report = cujit_budget(IMAGE, {"s*": Budget(occupancy=0.6, block=1024)}, kernel="sum", arch="sm_80", on="RTX 3090")
    assert [row.measured for row in report.rows] == [32 / 48]

def test_both(cujit_budget):
    with pytest.raises(OptionError, match="a budget in addition to the limits registers"):
        cujit_budget(IMAGE, Budget(registers=255), registers=64)

def test_slip(cujit_budget):
    with pytest.raises(OptionError, match="unknown limit register"):
        cujit_budget(IMAGE, register=64)
"""
COSTS = """
import cujit, cujit.profile
import numpy as np
import pytest

@pytest.mark.parametrize("stride", [1, 8])
def test_cost(cujit_budget, stride):
    profile = cujit.profile.Profile()
    device = cujit.cpu(profile=profile)
    code = '''extern "C" __global__ void scale(float *x, int stride) {
        x[threadIdx.x * stride] *= 2;
    }'''
    cujit.jit(code, device=device, name="scale.cu")["scale"][1, 32](device.zeros(256, np.float32), stride)
    cujit_budget(profile, sectors_per_request=4.5)
"""
# The plugin may be installed as an entry point too; it cannot be there twice.
PLUGIN = (
    "-p",
    "no:cujit",
    "-p",
    "cujit.integrations.pytest_plugin",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:hypothesispytest",
)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = compile(CODE, arch="sm_80").save(tmp_path_factory.mktemp("plugin") / "k.cubin")
    assert examine(path, Budget(shared_bytes=0)).rows[0].measured == 1024
    return path


@pytest.fixture
def tests(pytester: pytest.Pytester, image: Path) -> Tests:
    """Write a file of tests and run it with the plugin."""

    def run(text: str, *arguments: str) -> pytest.RunResult:
        pytester.makepyfile(test_it=f"IMAGE = {str(image)!r}\n{text}")
        return pytester.runpytest(*PLUGIN, *arguments)

    return run


@pytest.fixture(autouse=True)
def _modules_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drop but its tests of what a run of pytest within this process imports.

    pytester drops all: of llvmlite and xdist, too, whose functions are called from C, and by other threads, afterwards.
    """

    def restore(snapshot: SysModulesSnapshot) -> None:
        before = snapshot._SysModulesSnapshot__saved  # type: ignore[attr-defined]
        for name in ("test_it", "conftest"):
            sys.modules.pop(name, None)
            if name in before:
                sys.modules[name] = before[name]

    monkeypatch.setattr(SysModulesSnapshot, "restore", restore)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without GPUs."""

    def gpu(_devices: Devices, _ordinal: int = 0) -> None:
        raise DeviceNotFoundError("no GPU")

    monkeypatch.setattr(Devices, "gpus", lambda _devices: ())
    monkeypatch.setattr(Devices, "gpu", gpu)


def test_test_within_its_budget_passes_and_prints_nothing(tests: Tests) -> None:
    result = tests(WITHIN)
    result.assert_outcomes(passed=1)
    assert "cujit budget" not in result.stdout.str()


def test_kernel_over_its_budget_fails_at_the_line_of_the_test(tests: Tests) -> None:
    result = tests(OVER)
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines(
        [
            r">\s+cujit_budget\(IMAGE",
            r"E\s+cujit\.errors\.BudgetError: k\.cubin: 1 over budget, of 2 limits of 1 kernel",
            r"E\s+sum\s+sm_80\s+shared_bytes\s+1,000\s+1,024\s+24 over",
            r"-+ Captured cujit budget call -+",
            r"\s+sum\s+sm_80\s+registers\s+255\s+\d+\s+\d+ left",
        ]
    )
    assert "budget.py" not in result.stdout.str()  # the frames of cujit are hidden


def test_error_of_cujit_is_shown_at_the_line_of_the_test(tests: Tests) -> None:
    text = "import cujit\ndef test_it():\n    cujit.jit('__global__ int k() {}', device='cpu')\n"
    shown = tests(text).stdout.str()
    assert "must have a void return type" in shown
    assert "loading.py" not in shown
    assert "loading.py" in tests(text, "--full-trace").stdout.str()


def test_other_failure_shows_the_slack(tests: Tests) -> None:
    result = tests(LATER)
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines([r"-+ Captured cujit budget call -+", r"\s+sum\s+sm_80\s+shared_bytes.*76 left"])


def test_costs_are_checked_too(tests: Tests) -> None:
    result = tests(COSTS, "--cujit-budget-report")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.re_match_lines(
        [
            r"E\s+scale\s+sectors_per_request\s+4.5\s+32\s+27.5 over",
            r"E\s+sectors_per_request of scale: most at scale.cu:2, 32",
            r"E\s+hint: each warp's load at scale.cu:2 moves 32 sectors for 128 bytes: adjacent threads access",
            r"test_it.py::test_cost\[8\]: this profile",
        ]
    )


def test_budget_fixture_accepts_the_arguments_of_check(tests: Tests) -> None:
    tests(OTHERS).assert_outcomes(passed=3)


@pytest.mark.parametrize("asked", ["switch", "setting", "switch under xdist"])
def test_table_of_all_budgets_is_printed_on_request(tests: Tests, pytester: pytest.Pytester, asked: str) -> None:
    switch = ["--cujit-budget-report"]
    if asked == "switch under xdist":
        switch += ["-n", "1"]
    if asked == "setting":
        pytester.makeini("[pytest]\ncujit_budget_report = true\n")
        switch = []
    result = tests(WITHIN + OVER + EARLY, "--color=yes", *switch)
    result.assert_outcomes(passed=2, failed=1)
    colored = result.stdout.str()
    said = re.sub(r"\x1b\[[\d;]*m", "", colored)
    pytest.LineMatcher(said.splitlines()).re_match_lines(
        [
            r"=+ cujit budgets =+",
            r".*::test_wide: k\.cubin",
            r"\s+kernel\s+arch\s+what\s+allowed\s+is\s+slack",
            r"\s+sum\s+sm_80\s+registers",
            r"\s+sum\s+sm_80\s+shared_bytes\s+1,000\s+1,024\s+24 over",
            r".*::test_within: k\.cubin",
            r"\s+sum\s+sm_80\s+shared_bytes\s+1,100\s+1,024\s+76 left",
        ]
    )
    assert (said.count("::test_within: "), said.count("::test_early: ")) == (1, 1)
    assert [red.split()[-1] for red in re.findall(r"\x1b\[31m +sum (.*)\x1b", colored)] == ["over"]


def test_report_without_checks_says_so(tests: Tests) -> None:
    result = tests("def test_nothing(): pass", "--cujit-budget-report")
    result.assert_outcomes(passed=1)
    result.stdout.re_match_lines([r"=+ cujit budgets =+", "no budget was checked"])


def test_junit_xml_has_the_rows(tests: Tests, pytester: pytest.Pytester) -> None:
    tests(WITHIN, "--junit-xml=out.xml").assert_outcomes(passed=1)
    (found,) = ElementTree.parse(pytester.path / "out.xml").iter("property")
    assert found.get("name") == "cujit_budget"
    assert '"76 left"' in (found.get("value") or "")


def test_junit_xml_has_the_findings_of_a_check(tests: Tests, pytester: pytest.Pytester) -> None:
    code = r"""
import cujit

def test_it(device):
    module = cujit.jit('extern "C" __global__ void f(int* p) { p[1] = 2; }', device=device)
    module.f[1, 1](device.zeros(1, "int32"))
"""
    tests(code, "--junit-xml=out.xml", "--cujit-device=cpu").assert_outcomes(failed=1)
    (found,) = ElementTree.parse(pytester.path / "out.xml").iter("failure")
    assert "KernelFaultError" in (found.get("message") or "")
    assert "Invalid write of 4 bytes" in (found.text or "")


def test_fixture_and_options_have_help_texts(pytester: pytest.Pytester) -> None:
    fixtures = pytester.runpytest(*PLUGIN, "--fixtures").stdout.str()
    assert "cujit_budget(what, registers=64, spills=0)" in fixtures
    usage = pytester.runpytest(*PLUGIN, "--help").stdout.str()
    assert "--cujit-budget-report" in usage
    assert "cujit_budget_report (bool)" in usage


LOADED = {"cujit", "cujit.version", "cujit.values", "cujit.integrations", "cujit.integrations.pytest_plugin"}


def test_loading_the_plugin_imports_nothing_else_of_cujit() -> None:
    code = (
        "import sys, pytest; before = set(sys.modules); import cujit.integrations.pytest_plugin; "
        "print(*sorted(set(sys.modules) - before))"
    )
    # What pytest and the standard library load is no matter of ours; numpy and the like would be.
    loaded = {name for name in printed(code).split() if not name.startswith(("json", "_json"))}
    assert loaded == LOADED


def test_run_that_does_not_use_the_plugin_imports_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        f"import sys\ndef test_it(): assert {{n for n in sys.modules if n.startswith('cujit')}} <= {LOADED}"
    )
    pytester.runpytest_subprocess(*PLUGIN).assert_outcomes(passed=1)


# -- the fixture `device` ---------------------------------------------------------------------------------

DOUBLE = """
import cujit, numpy as np, pytest

CODE = '''
extern "C" __global__ void twice(float* x, int n) {
    int i = threadIdx.x;
    if (i >= n)
        return;
    x[i] *= 2;
}
extern "C" __global__ void never(float* x) {
    *x = 1;
}
'''

def run(device, n=4):
    x = device.array(np.ones(8, np.float32))
    cujit.jit(CODE, device=device, name="twice.cu")["twice"][1, 8](x, n)
    return x.numpy().sum()
"""
ON_DEVICE = "def test_twice(device):\n    assert run(device) == 12\n"


def test_device_is_the_cpu_device_and_an_existing_gpu(tests: Tests) -> None:
    result = tests(DOUBLE + ON_DEVICE, "-v")
    gpus = len(process_devices().gpus()) > 0
    result.assert_outcomes(passed=1 + gpus)
    result.stdout.fnmatch_lines(["*::test_twice?cpu? PASSED*"])


def test_all_devices_skip_a_missing_gpu(tests: Tests, no_gpu: None) -> None:
    del no_gpu
    result = tests(DOUBLE + ON_DEVICE, "-rs", "--cujit-device=all")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*: there is no GPU"])


def test_requested_but_missing_gpu_is_an_error(tests: Tests, no_gpu: None) -> None:
    del no_gpu
    result = tests(DOUBLE + ON_DEVICE, "--cujit-device=gpu")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["E*NotFoundError*"])


@pytest.mark.parametrize(
    ("marker", "arguments", "passed", "skipped"),
    [
        ("devices='cpu'", (), 1, 0),
        ("devices='gpu'", (), 0, 1),
        ("devices=['cpu', 'gpu']", (), 1, 0),
        ("devices='cpu'", ("--cujit-device=gpu",), 0, 1),
        ("devices='all'", ("--cujit-device=cpu",), 1, 0),
        ("threads=1", (), 1, 0),
    ],
)
def test_marker_selects_the_devices(
    tests: Tests, no_gpu: None, marker: str, arguments: tuple[str, ...], passed: int, skipped: int
) -> None:
    del no_gpu
    result = tests(f"{DOUBLE}\n@pytest.mark.cujit({marker})\n{ON_DEVICE}", "--strict-markers", *arguments)
    result.assert_outcomes(passed=passed, skipped=skipped)


def test_threads_of_the_marker_reach_the_device(tests: Tests) -> None:
    code = "\n@pytest.mark.cujit(devices='cpu', threads=1)\ndef test_it(device): assert device.limits.processors == 1"
    tests(DOUBLE + code).assert_outcomes(passed=1)


def test_test_runs_once_under_each_schedule_of_its_marker(tests: Tests) -> None:
    code = """
LAST = 'extern "C" __global__ void last(int *o) { if (threadIdx.x % 32 == 0) o[0] = threadIdx.x; }'

@pytest.mark.cujit(devices='cpu', schedules=8, check='none')
def test_last(device):
    o = device.zeros(1, 'i4')
    cujit.jit(LAST, device=device)['last'][1, 128](o)
    assert o.numpy()[0] == 96
"""
    result = tests(DOUBLE + code, "-v")
    counts = result.parseoutcomes()
    assert counts["passed"] + counts["failed"] == 8
    assert min(counts["passed"], counts["failed"]) > 0
    result.stdout.fnmatch_lines(["*test_last*cpu-schedule-7*"])


def test_hanging_kernel_fails_its_test_and_the_next_runs(tests: Tests) -> None:
    code = """
SPIN = 'extern "C" __global__ void spin(volatile int *x) { while (*x == 0) {} }'

@pytest.mark.cujit(devices='cpu', timeout_s=0.1)
def test_spin(device):
    cujit.jit(SPIN, device=device)['spin'][1, 32](device.zeros(1, 'i4'))

@pytest.mark.cujit(devices='cpu', timeout_s=20)
def test_ends(device):
    cujit.jit(SPIN, device=device)['spin'][1, 32](device.array(np.ones(1, np.int32)))
"""
    result = tests(DOUBLE + code)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*KernelFaultError: kernel spin: it ran longer than timeout_s=0.1"])


def test_nearest_marker_wins_and_others_add(tests: Tests) -> None:
    code = """
pytestmark = pytest.mark.cujit(devices="gpu", threads=1)

@pytest.mark.cujit(devices="cpu")
def test_it(device):
    assert (device.is_gpu, device.limits.processors) == (False, 1)
"""
    tests(DOUBLE + code).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("marker", "words"),
    [
        ("device='cpu'", "supports only the keywords devices, check, threads, timeout_s, schedules"),
        ("devices='tpu'", "must be cpu, gpu or all, not 'tpu'"),
    ],
)
def test_mistake_in_the_marker_is_reported(tests: Tests, marker: str, words: str) -> None:
    result = tests(f"{DOUBLE}\n@pytest.mark.cujit({marker})\n{ON_DEVICE}")
    result.assert_outcomes(errors=1)
    assert words in result.stdout.str()


def test_mistake_on_the_command_line_is_reported(tests: Tests) -> None:
    result = tests(DOUBLE + ON_DEVICE, "--cujit-device=cuda")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--cujit-device must be cpu, gpu or all, not 'cuda'" in result.stderr.str()


def test_settings_apply_without_command_line_options(tests: Tests, pytester: pytest.Pytester, no_gpu: None) -> None:
    del no_gpu
    pytester.makeini("[pytest]\ncujit_device = all\n")
    tests(DOUBLE + ON_DEVICE).assert_outcomes(passed=1, skipped=1)
    tests(DOUBLE + ON_DEVICE, "--cujit-device=cpu").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    "own",
    [
        "\n@pytest.fixture\ndef device(): return 'mine'\ndef test_it(device): assert device == 'mine'",
        "\n@pytest.mark.parametrize('device', ['mine'])\ndef test_it(device): assert device == 'mine'",
    ],
    ids=["fixture", "parameter"],
)
def test_project_may_have_its_own_device_fixture(tests: Tests, own: str) -> None:
    tests("import pytest\n" + own).assert_outcomes(passed=1)


WRONG = """
def run_wrong(device):
    x = device.array(np.ones(4, np.float32))
    cujit.jit(CODE, device=device, name="twice.cu")["twice"][1, 8](x, 5)
"""


@pytest.mark.parametrize(
    ("marker", "arguments", "found"),
    [
        ("", (), True),
        ("", ("--cujit-check=none",), False),
        ("", ("--cujit-check=sync",), False),
        ("@pytest.mark.cujit(check='memory')", ("--cujit-check=none",), True),
        ("@pytest.mark.cujit(check='none')", (), False),
    ],
    ids=["all", "none", "sync", "marker", "marker none"],
)
def test_cpu_device_has_its_checks(tests: Tests, marker: str, arguments: tuple[str, ...], found: bool) -> None:
    code = f"{WRONG}\n{marker}\ndef test_it(device): run_wrong(device)"
    result = tests(DOUBLE + code, "--cujit-device=cpu", *arguments)
    result.assert_outcomes(passed=not found, failed=found)
    assert ("KernelFaultError: kernel twice, block (0, 0, 0), thread (4, 0, 0)" in result.stdout.str()) == found


def test_fixture_requested_late_is_the_cpu_device(tests: Tests) -> None:
    code = "\ndef test_it(request): assert request.getfixturevalue('device').name == 'cpu'"
    tests(DOUBLE + code).assert_outcomes(passed=1)


# -- coverage ---------------------------------------------------------------------------------------------

TWO_TESTS = ON_DEVICE + "\ndef test_with_the_default():\n    assert run(cujit.cpu(), 8) == 16\n"
COUNTS = {2: 16, 3: 16, 4: 16, 6: 12, 7: 16, 8: 0, 9: 0, 10: 0}
"""Threads of both tests by line of the source."""


@pytest.mark.parametrize("asked", ["switch", "setting", "xdist"])
def test_coverage_of_a_run_is_written_for_lcov(tests: Tests, pytester: pytest.Pytester, asked: str) -> None:
    arguments = {
        "switch": ["--cujit-coverage=out/c.info"],
        "setting": [],
        "xdist": ["--cujit-coverage=out/c.info", "-n2"],
    }
    if asked == "setting":
        pytester.makeini("[pytest]\ncujit_coverage = out/c.info\n")
    (pytester.path / "out").mkdir()
    result = tests(DOUBLE + TWO_TESTS, "--cujit-device=cpu", *arguments[asked])
    result.assert_outcomes(passed=2)
    written = (pytester.path / "out/c.info").read_text()
    counts = {int(line): int(n) for line, n in re.findall(r"^DA:(\d+),(\d+)$", written, re.MULTILINE)}
    assert counts == COUNTS
    (file,) = re.findall("^SF:(.*)$", written, re.MULTILINE)
    assert "__global__ void twice" in Path(file).read_text()
    said = f"cujit coverage: 5 of 8 lines of CUDA ran; written to {pytester.path / 'out/c.info'}"
    assert said in result.stdout.str().splitlines()


def test_exact_coverage_shows_which_branch_ran(tests: Tests, pytester: pytest.Pytester) -> None:
    arguments = ("--cujit-device=cpu", "--cujit-coverage=c.info", "--cujit-coverage-exact")
    tests(DOUBLE + ON_DEVICE, *arguments).assert_outcomes(passed=1)
    assert "\nDA:5,4\n" in (pytester.path / "c.info").read_text()  # the early return, in 4 of 8 threads


def test_launches_after_the_run_are_not_counted(tests: Tests) -> None:
    tests(DOUBLE + ON_DEVICE, "--cujit-device=cpu", "--cujit-coverage=c.info").assert_outcomes(passed=1)
    assert not process_devices().cpu().backend.watchers


def test_modules_of_cujit_are_imported_as_without_pytest(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import cujit.formats.elf

        def test_loaders():
            assert type(cujit.formats.elf.__loader__).__module__ != "_pytest.assertion.rewrite"
    """)
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_emulator_starts_before_any_conftest_in_all_processes(pytester: pytest.Pytester) -> None:
    asks = """
    import ctypes
    driver, number = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    driver.cuInit(0)
    driver.cuDeviceGetAttribute(ctypes.byref(number), 75, 0)
    """
    pytester.makeconftest(asks)
    on_both = "\n    def test_there(device):\n        assert device.zeros(2, 'int32').numpy().sum() == 0\n"
    pytester.makepyfile(asks + "\n    def test_it():\n        assert number.value == 8\n" + on_both)
    arguments = ("--cujit-emulate", "--cujit-emulated", "cc=8.6 check=memory", "-p", "no:cacheprovider")
    for more in ((), ("-n", "2")):
        pytester.runpytest_subprocess(*arguments, *more).assert_outcomes(passed=3)
    pytester.makeini("[pytest]\ncujit_emulate = true\ncujit_emulated = cc=8.6")
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=3)
    wrong = pytester.runpytest_subprocess("--cujit-emulate", "--cujit-emulated", "cc=8.6 threads=many")
    wrong.stderr.fnmatch_lines(["*'threads=many' is not a valid emulator setting*"])
