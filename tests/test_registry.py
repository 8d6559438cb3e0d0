"""The registry: one builder call, one compile and one ``configure`` per name and device; never another's kernels."""

from __future__ import annotations

import enum
import functools
import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cujit.artifact import ImageKind
from cujit.cache.cache import Cache
from cujit.devices.cpu.module import CpuKernel
from cujit.devices.device import Device
from cujit.devices.process import process_devices
from cujit.errors import (
    ClosedError,
    CompileError,
    CujitError,
    DeviceNotFoundError,
    FileError,
    FormatError,
    NameNotFoundError,
    OptionError,
)
from cujit.kernel import Kernel
from cujit.program import Source, compile
from cujit.registry.registry import RegisteredModule, Registry, default_registry, module
from cujit.registry.spec import ModuleSpec
from llvm_ir import module as llvm_module
from processes import printed
from raising import raises
from registering import TIMES, Builder, in_threads, value, writes
from tile_code import TWICE, needs_tiles

TWO = 'extern "C" __global__ void a(int* p) { *p = 1; }  extern "C" __global__ void b(int* p) { *p = 2; }'


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def modules() -> Registry:
    return Registry()


# -- building and finding ---------------------------------------------------------------------------------


def test_template_is_built_once_and_runs(modules: Registry, device: Device) -> None:
    builder = Builder(TIMES, ["times<float, 3>"])
    first = modules.module("times", builder, device=device)
    assert modules.module("times", builder, device=device) is first
    assert modules.module("times", builder, device=device.name) is first
    assert builder.calls == 1
    assert first.hits == 2
    assert first.names == ("times<float, 3>",)
    assert first.device is device
    x = device.array(np.arange(5, dtype=np.float32))
    first.get_kernel("times<float, 3>").over(5)(x, 5)
    assert x.numpy().tolist() == [0, 3, 6, 9, 12]


def test_gpu_gets_machine_code_and_the_cpu_device_ptx(modules: Registry, device: Device) -> None:
    artifact = modules.module("k", Builder(writes(1)), device=device).module.artifact
    assert artifact.kind is (ImageKind.CUBIN if device.is_gpu else ImageKind.PTX)
    assert not device.is_gpu or str(artifact.arch) == f"{device.arch}a"


@pytest.mark.parametrize("given", ["text", "source", "artifact", "bytes", "tuple", "built", "path"])
def test_builder_returns_sources_and_images_of_every_kind(
    given: str, modules: Registry, cpu: Device, tmp_path: Path
) -> None:
    text = writes(7)
    image = compile(text, to="ptx")
    file = tmp_path / "k.cu"
    file.write_text(text)
    gives: dict[str, object] = {
        "text": text,
        "source": Source.cuda(text),
        "artifact": image,
        "bytes": image.data,
        "tuple": (text, ["k"]),
        "built": ModuleSpec(image.data, {"seven": "k"}),
        "path": file,
    }
    got = modules.module(given, lambda: gives[given], device=cpu)
    assert value(got["seven" if given == "built" else "k"]) == 7
    assert (got.source is None) == (given in ("artifact", "bytes", "built"))


def test_name_is_accepted_only_with_text_and_bytes() -> None:
    image, source = compile(writes(1), to="ptx"), Source.cuda(writes(1))
    assert [ModuleSpec(given, name="mine").source.name for given in (writes(1), image.data)] == ["mine", "mine"]
    for given in (image, source):
        with raises(OptionError, "option-conflict", "cujit.Source.cuda"):
            ModuleSpec(given, name="mine")


def test_headers_in_memory_reach_the_compiler(modules: Registry, cpu: Device) -> None:
    text = '#include "n.h"\nextern "C" __global__ void k(int* p) { *p = N; }'
    built = ModuleSpec(text, headers={"n.h": "#define N 12\n"})
    assert value(modules.module("k", lambda: built, device=cpu)["k"]) == 12


@needs_tiles
def test_other_header_kernels_with_tile_kernels_are_refused(modules: Registry, cpu: Device) -> None:
    headers = {"tiles.cuh": TWICE, "others.cuh": "__global__ void other(float* a) { *a = 1; }\n"}
    own = '#include "tiles.cuh"\n__tile_global__ void own(float* a) {}\n'
    mixed = ModuleSpec('#include "others.cuh"\n' + own, headers=headers)
    with raises(OptionError, "option-rejected", "kernels other"):
        modules.module("mixed", lambda: mixed, device=cpu)
    assert "own" in modules.module("tiles", lambda: ModuleSpec(own, headers=headers), device=cpu).module


@needs_tiles
def test_header_only_tile_kernels_are_refused_with_a_hint(modules: Registry, cpu: Device) -> None:
    lone = ModuleSpec('#include "tiles.cuh"\n', headers={"tiles.cuh": TWICE})
    with raises(CompileError, "compile", "to='tileir'", "cujit.Source.tile(image)"):
        modules.module("lone", lambda: lone, device=cpu)


def test_options_of_the_call_and_of_the_builder_are_joined(modules: Registry, cpu: Device) -> None:
    text = 'extern "C" __global__ void k(int* p) { *p = A + B; }'
    built = ModuleSpec(text, options={"extra": ["-DA=1"]})
    assert value(modules.module("k", lambda: built, device=cpu, options={"extra": ["-DB=2"]})["k"]) == 3


def test_llvm_ir_is_built(modules: Registry, cpu: Device) -> None:
    ir = llvm_module("define float @thrice(float %x) {\n  %y = fmul float %x, 3.0\n  ret float %y\n}\n")
    got = modules.module("ir", lambda: Source.nvvm(ir), device=cpu, options={"rdc": True}, version="1")
    assert got.module.artifact.kind is ImageKind.PTX


def test_long_names_are_distinguished(modules: Registry, cpu: Device) -> None:
    long = "x" * 100_000
    for n in (1, 2):
        assert value(modules.module(f"{long}{n}", Builder(writes(n)), device=cpu, version="1")["k"]) == n
    again = Registry()
    assert value(again.module(f"{long}2", Builder(writes(2)), device=cpu, version="1")["k"]) == 2


def test_each_device_has_its_own_module(modules: Registry) -> None:
    one, two = (process_devices().cpu(threads) for threads in (1, 2))
    builder = Builder(writes(1))
    assert modules.module("k", builder, device=one) is not modules.module("k", builder, device=two)
    assert builder.calls == 2
    assert len(modules) == 2


def test_process_has_one_registry(cpu: Device) -> None:
    builder = Builder(writes(1))
    try:
        got, again = (module("test_registry k", builder, device=cpu) for _ in range(2))
        assert got in list(default_registry())
        assert (got is again, builder.calls) == (True, 1)
    finally:
        default_registry().forget("test_registry k")


def test_registered_modules_are_listed_and_forgotten(modules: Registry, cpu: Device) -> None:
    builder = Builder(writes(1))
    for name in ("b", "a"):
        modules.module(name, builder, device=cpu)
    modules.module("b", builder, device=cpu)
    assert [(m.name, m.device.name, m.hits) for m in modules] == [("a", "cpu", 0), ("b", "cpu", 1)]
    kernel = modules.module("b", builder, device=cpu)["k"]
    assert modules.forget("b", process_devices().cpu(3)) == 0
    assert modules.forget("b") == 1
    assert modules.forget("b") == 0
    assert value(kernel) == 1
    modules.module("b", builder, device=cpu)
    assert builder.calls == 3


def test_closed_module_is_built_again(modules: Registry, cpu: Device) -> None:
    builder = Builder(writes(1))
    first = modules.module("k", builder, device=cpu)
    first.module.close()
    with pytest.raises(ClosedError):
        first["k"]
    assert value(modules.module("k", builder, device=cpu)["k"]) == 1


# -- another source under the same name --------------------------------------------------------------------


def test_other_source_under_the_same_name_is_an_error(modules: Registry, cpu: Device) -> None:
    modules.module("k", lambda: writes(1), device=cpu)
    with raises(OptionError, "option", "k", "cpu", "1", "cujit.default_registry().forget(name)") as said:
        modules.module("k", lambda: writes(2), device=cpu)
    assert said.value.message.endswith(" of its text: 'id k(int *p) { *p = 1; }' and 'id k(int *p) { *p = 2; }'")
    with raises(OptionError, "option", "1", "cujit.default_registry().forget(name)"):
        modules.module("k", lambda: f"{writes(1)} // more", device=cpu)
    with raises(OptionError, "option", "names"):
        modules.module("k", ModuleSpec(writes(1), ["k"]), device=cpu)
    with raises(OptionError, "option", "options"):
        modules.module("k", lambda: writes(1), device=cpu, options={"lineinfo": True})
    assert value(modules.module("k", ModuleSpec(writes(1)), device=cpu)["k"]) == 1


def test_parameter_missing_in_the_name_is_detected(modules: Registry, cpu: Device) -> None:
    def kernel(n: int) -> RegisteredModule:
        return modules.module("k", lambda: writes(n), device=cpu)

    assert kernel(1) is kernel(1)
    with raises(OptionError, "option", "cujit.default_registry().forget(name)"):
        kernel(2)


class Mode(enum.Enum):
    """Two things that a builder may depend on."""

    FAST = 1
    EXACT = 2


def test_builder_is_identified_by_its_enumeration(modules: Registry, cpu: Device) -> None:
    def built(mode: Mode) -> RegisteredModule:
        return modules.module("k", functools.partial(lambda mode: writes(mode.value), mode), device=cpu)

    assert built(Mode.FAST) is built(Mode.FAST)
    with raises(OptionError, "option", "cujit.default_registry().forget(name)"):
        built(Mode.EXACT)


def test_self_referential_builder_is_identified_by_its_values(modules: Registry, cpu: Device) -> None:
    def built(n: int) -> RegisteredModule:
        def builder() -> str:
            return parts[1]()

        parts = ((builder,), lambda: writes(n))
        return modules.module("k", builder, device=cpu)

    assert built(1) is built(1)
    with raises(OptionError, "option", "cujit.default_registry().forget(name)"):
        built(2)


def test_module_spec_shows_its_source_and_names() -> None:
    source = Source.cuda(writes(1))
    shown = [repr(built) for built in (ModuleSpec(source), ModuleSpec(source, ["k"]))]
    assert shown == [f"<ModuleSpec {source!r}>", f"<ModuleSpec {source!r} names=['k']>"]


def test_module_repr_shows_some_names(modules: Registry, cpu: Device) -> None:
    names = [f"kernel{i}" for i in range(1000, 1006)]
    code = "".join(f'extern "C" __global__ void {name}() {{}}\n' for name in names)
    shown = repr(modules.module("many", lambda: code, device=cpu))
    assert shown.endswith("kernel1000, kernel1001, kernel1002, kernel1003 and 2 more>")


def test_equivalent_builder_is_called_once(modules: Registry, cpu: Device) -> None:
    calls = []

    def builder(unused: int) -> str:
        calls.append(unused)
        return writes(1)

    for unused in (1, 2, 1, 2):
        modules.module("k", functools.partial(builder, unused), device=cpu)
    assert calls == [1, 2]


def test_undescribable_difference_is_found_by_check(modules: Registry, cpu: Device) -> None:
    modules.module("k", Builder(writes(1)), device=cpu)
    other = Builder(writes(2))
    modules.module("k", other, device=cpu)
    assert other.calls == 0
    with raises(OptionError, "option", "cujit.default_registry().forget(name)"):
        modules.module("k", other, device=cpu, check=True)
    same = Builder(writes(1))
    for _ in range(2):
        modules.module("k", same, device=cpu, check=True)
    assert same.calls == 2


def test_builder_is_not_kept_alive(modules: Registry, cpu: Device) -> None:
    builder = Builder(writes(1))
    gone = weakref.ref(builder)
    modules.module("k", builder, device=cpu)
    del builder
    gc.collect()
    assert gone() is None


def test_remembered_requests_are_bounded(modules: Registry, cpu: Device) -> None:
    def builder(_unused: int) -> str:
        return writes(1)

    for n in range(70):
        modules.module("k", functools.partial(builder, n), device=cpu)
    (entry,) = modules._entries.values()
    assert len(entry.wishes) == 64


# -- builders that fail, and that need others --------------------------------------------------------------


def test_exception_of_a_builder_is_raised_and_not_remembered(modules: Registry, cpu: Device) -> None:
    fails = [KeyError("no such operation"), CompileError("of the builder itself")]

    def builder() -> str:
        if fails:
            raise fails.pop(0)
        return writes(4)

    for error in (KeyError, CompileError):
        with pytest.raises(error):
            modules.module("k", builder, device=cpu, version="1")
    assert value(modules.module("k", builder, device=cpu, version="1")["k"]) == 4


def test_source_that_does_not_compile_is_not_registered(modules: Registry, cpu: Device) -> None:
    with pytest.raises(CompileError) as caught:
        modules.module("k", lambda: "__global__ void k() { nonsense }", device=cpu, version="1")
    assert caught.value.diagnostics
    assert value(modules.module("k", lambda: writes(1), device=cpu, version="1")["k"]) == 1


def test_builder_may_request_another_module(modules: Registry, cpu: Device) -> None:
    def outer() -> str:
        return writes(value(modules.module("inner", lambda: writes(20), device=cpu)["k"]) + 1)

    assert value(modules.module("outer", outer, device=cpu)["k"]) == 21


def test_builder_that_requests_itself_is_an_error(modules: Registry, cpu: Device) -> None:
    def itself() -> object:
        return modules.module("itself", itself, device=cpu)

    with raises(OptionError, "option", "itself"):
        modules.module("itself", itself, device=cpu)

    def first() -> object:
        return modules.module("second", lambda: modules.module("first", first, device=cpu), device=cpu)

    with raises(OptionError, "option", "first", "second"):
        modules.module("first", first, device=cpu)


def test_mutually_dependent_builders_do_not_deadlock(modules: Registry, cpu: Device) -> None:
    inside = threading.Barrier(2)

    def builder(other: str) -> str:
        inside.wait(30)
        modules.module(other, ModuleSpec(writes(1)), device=cpu)
        return writes(1)

    errors: list[Exception] = []

    def ask(name: str, other: str) -> None:
        try:
            modules.module(name, functools.partial(builder, other), device=cpu)
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=ask, args=names) for names in (("a", "b"), ("b", "a"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert len(errors) == 1
    assert "the module would wait for itself" in str(errors[0])


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        (None, OptionError, ("option", "NoneType")),
        (3, OptionError, ("option", "3", "cujit.ModuleSpec(artifact)")),
        (dict.fromkeys(range(99)), OptionError, ("option", "cujit.ModuleSpec(artifact)")),
        ((), OptionError, ("option", "0", "cujit.ModuleSpec(artifact)")),
        ((writes(1), ["k"], None, None, None), OptionError, ("option", "5", "cujit.ModuleSpec(artifact)")),
        ((writes(1), 3), OptionError, ("option", "3", "cujit.ModuleSpec(artifact)")),
        ((writes(1), ["k", ""]), OptionError, ("option", "cujit.ModuleSpec(artifact)")),
        ((writes(1), {"k": "k"}), OptionError, ("option", "cujit.ModuleSpec(artifact)")),
        ((writes(1), ["k"], "n.h"), OptionError, ("option", "str", "scale.h")),
        ((writes(1), ["k"], None, {"nonsense": 1}), OptionError, ("option-unknown", "nonsense")),
        ((Source.cuda(writes(1)), ["k"], {"n.h": ""}), OptionError, ("option-conflict", "cujit.Source.cuda")),
        (b"not an image", FormatError, ("format", "PTX", "cujit.load")),
        (".version 8.0\n.target sm_80\n", OptionError, ("option", "PTX", "text")),
        ("missing.cu", FileError, ("file", "missing.cu")),
    ],
    ids=[
        "none",
        "int",
        "what takes long to spell",
        "empty",
        "long",
        "names",
        "name",
        "dict",
        "headers",
        "options",
        "twice",
        "bytes",
        "ptx",
        "path",
    ],
)
def test_invalid_builder_result_is_reported(
    given: object, error: type[CujitError], match: tuple[str, ...], modules: Registry, cpu: Device
) -> None:
    with raises(error, *match):
        modules.module("k", lambda: given, device=cpu)
    assert len(modules) == 0


def test_image_must_have_the_named_kernels(modules: Registry, cpu: Device) -> None:
    image = compile(writes(1), to="ptx")
    with raises(NameNotFoundError, "name-not-found", "'j'"):
        modules.module("k", lambda: (image, ["k", "j"]), device=cpu)
    with raises(OptionError, "option-rejected", "cujit.ModuleSpec(artifact)"):
        modules.module("k", lambda: (image, ["k"], None, {"extra": ["-DA"]}), device=cpu)
    with raises(OptionError, "option", "cujit.ModuleSpec(artifact)"):
        modules.module("k", lambda: (image, {"k": 3}), device=cpu)
    with raises(OptionError, "option", "cujit.ModuleSpec(artifact)"):
        modules.module("k", lambda: (image, dict.fromkeys(map(str, range(99)), 3)), device=cpu)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"name": ""}, ("option", "scale_float32")),
        ({"name": 3}, ("option", "3", "scale_float32")),
        ({"builder": None}, ("option", "NoneType")),
        ({"version": 3}, ("option", "3", "version")),
        ({"version": ""}, ("option", "version")),
        ({"options": 3}, ("option", "3", "cujit.Options")),
        ({"options": {"nonsense": 1}}, ("option-unknown", "extra=('--flag',)")),
        ({"device": 3}, ("option", "cujit.gpu(0)")),
        ({"cache": 3}, ("option", "3", "cujit.Cache")),
    ],
    ids=["empty", "int", "builder", "version", "no-version", "options", "option", "device", "cache"],
)
def test_wrong_arguments_are_reported(arguments: dict[str, object], match: tuple[str, ...], modules: Registry) -> None:
    given: dict[str, object] = {"name": "k", "builder": lambda: writes(1), "device": "cpu", **arguments}
    with raises(OptionError, *match):
        modules.module(**given)  # type: ignore[arg-type]
    with raises(DeviceNotFoundError, "device-not-found", "'gpu'"):
        modules.forget("k", "gpu")
    if "name" in arguments:
        with raises(OptionError, *match):
            modules.forget(arguments["name"])  # type: ignore[arg-type]


# -- kernels ----------------------------------------------------------------------------------------------


def test_configure_runs_once_before_anybody_gets_the_kernel(modules: Registry, device: Device) -> None:
    got = modules.module("k", lambda: TWO, device=device)
    seen: list[Kernel] = []

    def configure(kernel: Kernel) -> None:
        assert kernel.occupancy(128, 40_000) > 0
        seen.append(kernel)

    kernels = [got.get_kernel(name, configure) for name in ("a", "a", "b")]
    assert kernels[0] is kernels[1] is got["a"]
    assert seen == [kernels[0], kernels[2]]


def test_configure_runs_once_over_threads(modules: Registry, cpu: Device) -> None:
    got = modules.module("k", lambda: writes(1), device=cpu)
    calls: list[Kernel] = []
    ready = threading.Event()

    def configure(kernel: Kernel) -> None:
        calls.append(kernel)
        ready.wait(0.2)
        ready.set()

    def ask() -> Kernel:
        kernel = got.get_kernel("k", configure)
        assert ready.is_set()
        return kernel

    kernels = in_threads(8, ask)
    assert len(calls) == 1
    assert set(kernels) == {calls[0]}


def test_failed_configure_withholds_the_kernel_and_runs_again(modules: Registry, cpu: Device) -> None:
    got = modules.module("k", lambda: writes(1), device=cpu)
    fails = [ValueError("once")]

    def configure(_kernel: Kernel) -> None:
        if fails:
            raise fails.pop()

    with pytest.raises(ValueError, match="once"):
        got.get_kernel("k", configure)
    assert value(got.get_kernel("k", configure)) == 1


def test_late_configure_is_an_error(modules: Registry, cpu: Device) -> None:
    got = modules.module("k", lambda: TWO, device=cpu)
    got.get_kernel("a")
    with raises(OptionError, "option", "k", "handed"):
        got.get_kernel("a", lambda _: None)
    got.get_kernel("b", lambda _: None)
    with raises(OptionError, "option", "configured"):
        got.get_kernel("b", lambda kernel: kernel.resources)
    assert value(got.get_kernel("b")) == 2


def test_configure_that_requests_its_own_kernel_is_an_error(modules: Registry, cpu: Device) -> None:
    got = modules.module("k", lambda: TWO, device=cpu)
    with raises(OptionError, "option", "k", "itself"):
        got.get_kernel("a", lambda _: got["a"])
    assert got.get_kernel("a", lambda _: got["b"]) is got["a"]


def test_configure_and_builder_in_threads_do_not_deadlock(modules: Registry, cpu: Device) -> None:
    got = modules.module("k", lambda: TWO, device=cpu)
    inside = threading.Barrier(2)

    def configure(_kernel: Kernel) -> None:
        inside.wait(30)
        modules.module("other", ModuleSpec(writes(1)), device=cpu)

    def builder() -> str:
        inside.wait(30)
        return writes(value(got["a"]))

    asks: list[Callable[[], object]] = [
        lambda: got.get_kernel("a", configure),
        lambda: modules.module("other", builder, device=cpu),
    ]
    steps = iter(asks)
    results = in_threads(2, lambda: next(steps)())
    assert sum("the module would wait for itself" in str(result) for result in results) == 1


def test_wrong_kernels_and_configures_are_reported(modules: Registry, cpu: Device) -> None:
    got = modules.module("k", lambda: writes(1), device=cpu)
    with raises(NameNotFoundError, "name-not-found", "'j'"):
        got.get_kernel("j")
    with raises(CujitError, "argument", "list"):
        got.get_kernel([])  # type: ignore[arg-type]
    with raises(OptionError, "option", "3", "configure=lambda"):
        got.get_kernel("k", 3)  # type: ignore[arg-type]


def test_best_block_is_looked_for_once(modules: Registry, cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = CpuKernel.best_block

    def best_block(kernel: CpuKernel, shared_bytes: int = 0) -> int:
        asked.append(shared_bytes)
        return real(kernel, shared_bytes)

    monkeypatch.setattr(CpuKernel, "best_block", best_block)
    for _ in range(3):
        kernel = modules.module("times", lambda: (TIMES, ["times<int, 2>"]), device=cpu)["times<int, 2>"]
        x = cpu.array(np.arange(5, dtype=np.int32))
        kernel.over(5)(x, 5)
        assert x.numpy().tolist() == [0, 2, 4, 6, 8]
    assert asked == [0]


# -- threads and forks -------------------------------------------------------------------------------------


def test_threads_call_the_builder_and_compile_once(modules: Registry, cpu: Device, tmp_path: Path) -> None:
    builder = Builder(writes(5))
    cache = Cache(tmp_path / "own")
    found = in_threads(16, lambda: modules.module("k", builder, device=cpu, cache=cache))
    assert builder.calls == 1
    assert len(set(found)) == 1
    assert cache.counters.makes == 1


def test_exception_of_a_builder_reaches_every_thread(modules: Registry, cpu: Device) -> None:
    calls = []
    waiting = threading.Event()

    def builder() -> str:
        calls.append(1)
        waiting.wait(0.5)
        raise ValueError("once for all")

    errors = in_threads(8, lambda: modules.module("k", builder, device=cpu))
    assert [str(e) for e in errors] == ["once for all"] * 8
    assert all(isinstance(e, ValueError) for e in errors)
    assert len(calls) == 1
    assert value(modules.module("k", lambda: writes(1), device=cpu)["k"]) == 1


def test_threads_with_different_sources_get_one_winner(modules: Registry, cpu: Device) -> None:
    numbers = iter(range(6))
    guard = threading.Lock()

    def ask() -> int:
        with guard:
            n = next(numbers)
        assert value(modules.module("k", ModuleSpec(writes(n)), device=cpu)["k"]) == n
        return n

    results = in_threads(6, ask)
    assert sum(isinstance(r, int) for r in results) == 1
    assert sum(isinstance(r, OptionError) for r in results) == 5


def test_error_of_one_request_does_not_affect_another(modules: Registry, cpu: Device) -> None:
    inside, go = threading.Event(), threading.Event()

    def fails() -> str:
        inside.set()
        go.wait(30)
        raise ValueError("mine alone")

    def ask() -> None:
        with pytest.raises(ValueError, match="mine alone"):
            modules.module("k", fails, device=cpu)

    thread = threading.Thread(target=ask)
    thread.start()
    inside.wait(30)
    threading.Timer(0.1, go.set).start()
    assert value(modules.module("k", ModuleSpec(writes(3)), device=cpu)["k"]) == 3
    thread.join(30)


def test_interrupted_thread_leaves_the_work_to_another(modules: Registry, cpu: Device) -> None:
    inside, go = threading.Event(), threading.Event()

    def interrupted() -> str:
        if not inside.is_set():
            inside.set()
            go.wait(30)
            raise SystemExit
        return writes(3)

    def ask() -> None:
        with pytest.raises(SystemExit):
            modules.module("k", interrupted, device=cpu)

    thread = threading.Thread(target=ask)
    thread.start()
    inside.wait(30)
    threading.Timer(0.1, go.set).start()
    assert value(modules.module("k", interrupted, device=cpu)["k"]) == 3
    thread.join(30)


FORK = """
import os, threading, time
import cujit
inside, go = threading.Event(), threading.Event()
def slow():
    inside.set(); go.wait(60)
    return TEXT
modules = cujit.registry.Registry()
cpu = cujit.cpu(1)
done = modules.module("done", lambda: TEXT, device=cpu)
thread = threading.Thread(target=lambda: modules.module("slow", slow, device=cpu))
thread.start()
inside.wait(60)
child = os.fork()
if child == 0:
    try:
        assert modules.module("done", lambda: 1 / 0, device=cpu, check=False) is done
    except ZeroDivisionError:
        pass
    assert [m.name for m in modules] == ["done"]
    modules.module("slow", lambda: TEXT, device=cpu)["k"]
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
go.set()
thread.join()
assert [m.name for m in modules] == ["done", "slow"]
"""


def test_child_forked_during_a_build_does_not_deadlock() -> None:
    code = FORK.replace("TEXT", repr(writes(1)))
    warnings = ("-W", "ignore::DeprecationWarning")  # of fork in a process with threads, from 3.12 on
    printed(code, options=warnings)
