"""What cujit says of its work: to functions, to ``logging``, to profilers; and to nobody, at no cost."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

import cujit.events
from cujit.cache.cache import Cache
from cujit.devices.device import Device
from cujit.devices.launcher.launch import attach
from cujit.devices.process import Devices
from cujit.errors import ArgumentError, CacheWarning, CompileError, KernelFaultError, OptionError
from cujit.events import CacheHit, Fallback, Happening, LaunchFailure, Made, subscribe
from cujit.kernel import Launch
from cujit.loading import jit
from cujit.machine import cpu
from cujit.program import Source, bundle, compile, link
from processes import printed
from raising import raises

SOURCE = Source.cuda("__global__ void k(int* x) { *x = 1; }", name="k.cu")
OUTSIDE = 'extern "C" __global__ void k(int* x, int i) { x[i] = 1; }'


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def test_compile_is_reported_as_made_and_then_found(cache: Cache) -> None:
    seen: list[Happening] = []
    with subscribe(seen.append):
        for _ in range(2):
            compile(SOURCE, arch="compute_80", cache=cache)
    made, hit = seen
    assert isinstance(made, Made)
    assert (made.step, made.subject, made.tool, made.reason, made.error) == (
        "compile", "k.cu for compute_80", "NVRTC", "", None
    )  # fmt: skip
    assert made.seconds > 0
    assert isinstance(hit, CacheHit)
    assert (hit.step, hit.subject, hit.outcome, hit.key) == ("compile", "k.cu for compute_80", "memory", made.key)
    assert hit.saved_s > 0


def test_links_and_bundles_are_reported_with_reasons(cache: Cache) -> None:
    ptx = compile(SOURCE, arch="compute_80", rdc=True, cache=cache)
    steps: list[Made] = []
    with subscribe(steps.append, Made):  # type: ignore[arg-type]
        link([ptx], to="cubin", arch="sm_90", cache=cache)
        bundle([ptx], cache=False)
    assert [(made.step, made.tool) for made in steps] == [("link", "nvJitLink"), ("bundle", "nvFatbin")]
    assert [made.reason for made in steps] == ["", "cache=False"]


def test_failed_compile_is_reported_with_its_error(cache: Cache) -> None:
    seen: list[Happening] = []
    with subscribe(seen.append, Made), pytest.raises(CompileError) as caught:
        compile("__global__ void k(int* x) { *x = foo; }", cache=cache)
    (made,) = seen
    assert isinstance(made, Made)
    assert made.error is caught.value
    assert "CompileError: source.cu does not compile" in str(made)


def _launch_failures(launch: Launch, *arguments: object, raised: type[Exception]) -> list[LaunchFailure]:
    seen: list[LaunchFailure] = []
    with subscribe(seen.append, LaunchFailure):  # type: ignore[arg-type]
        with pytest.raises(raised) as caught:
            launch(*arguments)
        assert [event.error for event in seen] == [caught.value]
    return seen


def test_failed_launch_is_reported() -> None:
    device = cpu(check="memory")
    kernel = jit(OUTSIDE, device=device)["k"]
    array = device.zeros(4, np.int32)
    (event,) = _launch_failures(kernel[1, 1], array, "none", raised=ArgumentError)
    assert (event.kernel, event.device) == ("k", "cpu")
    (event,) = _launch_failures(kernel[1, 1], array, 400, raised=KernelFaultError)
    assert isinstance(event.error, KernelFaultError)


def test_arguments_refused_by_a_native_launch_are_reported() -> None:
    device = cpu()
    launch = jit(OUTSIDE, device=device)["k"][1, 1]
    array = device.zeros(4, np.int32)
    if not attach(launch):
        pytest.skip("there is no machine code for launches here")
    launch(array, 1)
    launch(array, 1)
    (event,) = _launch_failures(launch, array, "none", raised=ArgumentError)
    assert (event.kernel, event.device) == ("k", "cpu")


def test_fault_in_a_native_launch_is_reported_once() -> None:
    device = cpu()
    kernel = jit('__global__ void k(int trap) { if (trap) asm("trap;"); }', device=device)["k"]
    launch = kernel[1, 1]
    launch(0)
    if not attach(launch):
        pytest.skip("there is no machine code for launches here")
    launch(0)
    launch(0)
    seen: list[Happening] = []
    with subscribe(seen.append), pytest.raises(KernelFaultError) as caught:
        launch(1)
    assert [event.error for event in seen if isinstance(event, LaunchFailure)] == [caught.value]


def test_successful_launch_is_no_event(device: Device) -> None:
    kernel = jit(OUTSIDE, device=device)["k"]
    array = device.zeros(4, np.int32)
    seen: list[Happening] = []
    with subscribe(seen.append):
        for _ in range(5):
            kernel[1, 1](array, 0)
    assert seen == []


def test_subscription_ends_and_receives_only_its_kinds(cache: Cache) -> None:
    seen: list[Happening] = []
    subscription = subscribe(seen.append, Fallback)
    compile(SOURCE, cache=cache)
    assert seen == []
    subscription.end()
    subscription.end()
    with subscribe(seen.append) as subscription:
        subscription.end()
        compile(SOURCE, cache=cache)
    assert seen == []
    with raises(OptionError, "option", "7", "listener"):
        subscribe(7)  # type: ignore[arg-type]
    with raises(OptionError, "option-unknown", "cujit.events.Made"):
        subscribe(print, int)  # type: ignore[arg-type]


def test_failing_listener_is_a_warning(cache: Cache) -> None:
    def fail(_event: Happening) -> None:
        raise ValueError("not mine")

    with subscribe(fail), pytest.warns(RuntimeWarning, match="a listener of cujit.events raised ValueError: not mine"):
        assert compile(SOURCE, cache=cache).data


def test_each_layer_has_its_logger(cache: Cache, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="cujit"):
        for _ in range(2):
            compile(SOURCE, arch="compute_80", cache=cache)
        kernel = jit(OUTSIDE, device="cpu", cache=cache)["k"]
        with pytest.raises(ArgumentError):
            kernel[1, 1]()
    names = [(record.name, record.levelname) for record in caplog.records]
    assert names[:2] == [("cujit.compiler", "INFO"), ("cujit.cache", "DEBUG")]
    assert names[-1] == ("cujit.devices", "INFO")
    assert caplog.messages[0].startswith("compile k.cu for compute_80 by NVRTC: ")
    assert isinstance(vars(caplog.records[0])["event"], Made)
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="cujit"):
        compile(SOURCE, arch="compute_80", cache=cache)
    assert caplog.records == []


def test_newer_ptx_than_the_driver_is_a_reported_fallback() -> None:
    from cujit.arch import Arch
    from cujit.devices.cuda.routes import RoutePlace, route_ptx
    from cujit.devices.jit_options import JitOptions

    text = compile(SOURCE, arch="compute_80", cache=False).data
    place = RoutePlace(Arch.parse("sm_90"), "GPU", (12, 4))
    seen: list[Happening] = []
    with subscribe(seen.append, Fallback):
        chosen = route_ptx(text, "k.ptx", place, JitOptions.of({"assembler": "driver"}))
    (event,) = seen
    assert isinstance(event, Fallback)
    assert (event.what, event.way) == ("k.ptx", chosen.route)
    assert event.why.endswith("is newer than the driver, which is of CUDA 12.4")


def test_unwritable_cache_is_a_fallback_of_its_logger(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    seen: list[Happening] = []
    with caplog.at_level(logging.INFO, logger="cujit"), subscribe(seen.append, Fallback), pytest.warns(CacheWarning):
        assert compile(SOURCE, cache=Cache(tmp_path / "file" / "cache")).data
    (event,) = seen
    assert isinstance(event, Fallback)
    assert (event.floor, event.what, event.way) == ("cache", "the cache", "goes on without")
    assert [record.name for record in caplog.records].count("cujit.cache") == 1


def test_cpu_device_without_a_gpu_is_a_fallback() -> None:
    devices = Devices()
    if devices.gpus():
        pytest.skip("there is a GPU")
    seen: list[Happening] = []
    with subscribe(seen.append, Fallback):
        for _ in range(2):
            devices.default()
    (event,) = seen
    assert isinstance(event, Fallback)
    assert (event.floor, event.way) == ("devices", "the CPU device")


_RANGES = """
import contextlib, sys, types
ranges = []
@contextlib.contextmanager
def annotate(text, domain):
    ranges.append((domain, text))
    yield
sys.modules["nvtx"] = types.SimpleNamespace(annotate=annotate)
import cujit
for _ in range(2):
    cujit.compile(cujit.Source.cuda("__global__ void k() {}", name="k.cu"), arch="sm_90")
print(ranges)
"""


def test_compile_is_an_nvtx_range(tmp_path: Path) -> None:
    said = printed(_RANGES, environment={"CUJIT_CACHE_DIR": str(tmp_path)})
    assert said.strip() == "[('cujit', 'compile k.cu for sm_90')]"


def test_nvtx_package_accepts_the_ranges() -> None:
    pytest.importorskip("nvtx")
    assert compile(SOURCE, cache=False).data


def test_unused_events_cost_nothing(tmp_path: Path) -> None:
    program = """
import sys, cujit
made = cujit.compile(cujit.Source.cuda("__global__ void k() {}", name="k.cu"), arch="sm_90")
print(made.provenance.outcome.value, [name for name in sys.modules if name.startswith(("cujit.events", "logging"))])
"""
    said = [printed(program, environment={"CUJIT_CACHE_DIR": str(tmp_path)}).strip() for _ in range(2)]
    assert said[1] == "disk []"
    assert set(cujit.events.__all__) >= {"subscribe", "Made", "CacheHit", "Fallback", "LaunchFailure"}


_HALF_IMPORTED = """
import sys, threading
from importlib.machinery import ModuleSpec, PathFinder
import cujit

class Slow:  # delays the first module that logging imports; a finder would hold the lock of all imports
    def find_spec(self, name, *rest):
        return ModuleSpec(name, self) if name == "string" and threading.current_thread() is other else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        reached.set()
        assert resume.wait(60)
        PathFinder.find_spec("string").loader.exec_module(module)

reached, resume = threading.Event(), threading.Event()
for name in ("logging", "string"):
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Slow())
other = threading.Thread(target=__import__, args=("logging",))
other.start()
assert reached.wait(60)
print(hasattr(sys.modules["logging"], "getLogger"))
for _ in range(2):  # made, and found in the cache
    cujit.compile(cujit.Source.cuda("__global__ void k() {}", name="k.cu"), arch="sm_90")
resume.set()
other.join()
"""


def test_compile_while_logging_is_half_imported_is_not_logged(tmp_path: Path) -> None:
    assert printed(_HALF_IMPORTED, environment={"CUJIT_CACHE_DIR": str(tmp_path)}).strip() == "False"
