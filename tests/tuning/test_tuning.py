"""Tuning on the CPU device: what is measured, what wins, and that nothing is measured twice."""

from __future__ import annotations

import functools
import json
import math
import os
import pickle
import re
import threading
import time as clock
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cujit
import cujit.tuning
from cujit.artifact import Artifact, ImageKind
from cujit.cache import admin
from cujit.cache.cache import Cache
from cujit.cache.provenance import Outcome
from cujit.devices.cpu.backend import CpuBackend
from cujit.devices.device import Device
from cujit.errors import (
    ArgumentError,
    CujitError,
    DriverError,
    FormatError,
    LinkError,
    LoadError,
    NotCompiledError,
    NotTunedError,
    OptionError,
)
from cujit.remote import push
from cujit.timing import Timing
from cujit.tuning.records import Measured, TuningRecord, first_of_the_fastest, first_of_the_lowest
from cujit.values import replace
from processes import printed
from raising import raises
from remote.serving import farm_in

BUSY = """extern "C" __global__ void busy(float *x, int work) {
    float sum = x[threadIdx.x];
    for (int i = 0; i < work; i++) sum = sum * 0.5f + 1;
    x[threadIdx.x] = sum;
}"""
LAUNCH = {"WORK": "launch", "THREADS": "launch"}
PROGRAM = """
#if FAIL
#error "not this one"
#endif
template <int N, bool TWICE> __global__ void write(int *y) { y[threadIdx.x] = N * FACTOR * (TWICE ? 2 : 1); }
"""


def spelled(value: object) -> str:
    """Write a value for the name of a test: without the address of a function."""
    return re.sub(r" at 0x\w+", "", str(value))


class Bench:
    """What is tuned: a kernel whose work is a value of the space, and how often it was asked for."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.x = device.zeros(1024, np.float32)
        self.asked = 0

    def __call__(self, kernel: cujit.Kernel, v: Mapping[str, Any]) -> Callable[[], object]:
        self.asked += 1
        return functools.partial(kernel[1, v.get("THREADS", 32)], self.x, v.get("WORK", 1))

    def tune(self, space: Mapping[str, Any] | None = None, **more: Any) -> cujit.tuning.Tuned:
        said = {"shape": 1024, "becomes": LAUNCH, "device": self.device, "rounds": 2, **more}
        wanted = {"WORK": [1_000_000, 1]} if space is None else space
        said["becomes"] = {k: v for k, v in said["becomes"].items() if k in wanted}
        return cujit.tune(BUSY, wanted, self, **said)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpu: Device) -> Bench:
    """A cache that is empty but for images, which are those of the other tests."""
    monkeypatch.setenv("CUJIT_CACHE_ROOTS", os.environ["CUJIT_CACHE_DIR"])
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))
    return Bench(cpu)


def test_fastest_wins_and_the_record_has_all(bench: Bench) -> None:
    tuned = bench.tune()
    assert tuned.values == {"WORK": 1}
    assert tuned.provenance.outcome is Outcome.MADE
    slow, fast = tuned.record.candidates
    assert (slow.values, fast.values, tuned.record.winner) == ({"WORK": 1_000_000}, {"WORK": 1}, 1)
    assert slow.timing is not None
    assert fast.timing is not None
    assert slow.timing.median_ms > 3 * fast.timing.median_ms
    assert len(fast.timing.samples_ms) == 2 * 3
    assert (tuned.record.device, tuned.record.processors) == (bench.device.product, bench.device.limits.processors)
    assert tuned.kernel.name == "busy"
    bench(tuned.kernel, tuned.values)()
    assert "* WORK=1: " in str(tuned.record)
    assert repr(tuned) == "<Tuned source.cu 1024: WORK=1, made>"


@pytest.mark.gpu
def test_fastest_wins_on_a_gpu(gpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))
    bench = Bench(gpu)
    tuned = bench.tune({"WORK": [1_000_000, 1], "THREADS": [32, 4096]})
    assert tuned.values == {"WORK": 1, "THREADS": 32}
    assert tuned.record.driver.startswith("CUDA 1")
    assert [bool(one.error) for one in tuned.record.candidates] == [False, True, False, True]
    assert bench.tune({"WORK": [1_000_000, 1], "THREADS": [32, 4096]}).provenance.is_hit


def test_existing_result_is_read_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    space = {"WORK": [1, 2], "THREADS": [32]}
    bench.tune(space)
    read: list[bytes] = []
    of_json = TuningRecord.of_json

    def counted(data: bytes) -> TuningRecord:
        read.append(data)
        return of_json(data)

    monkeypatch.setattr(TuningRecord, "of_json", counted)
    assert bench.tune(space).provenance.is_hit
    assert len(read) == 1


@pytest.mark.usefixtures("bench")
def test_value_becomes_a_macro_a_template_argument_or_an_option(cpu: Device) -> None:
    y, seen = cpu.zeros(32, np.int32), []

    def workload(kernel: cujit.Kernel, _: object) -> Callable[[], object]:
        y.fill(0)
        return functools.partial(kernel[1, 32], y)

    def check(v: Mapping[str, Any]) -> bool:
        seen.append((dict(v), int(y.numpy()[0])))
        return True

    cujit.tune(
        PROGRAM, {"N": [3, 5], "TWICE": [True], "FACTOR": [7], "FAIL": [False], "lineinfo": [True]}, workload,
        shape="one", kernel="write<{N}, {TWICE}>", becomes={"lineinfo": "option"}, check=check, device=cpu, rounds=1,
    )  # fmt: skip
    assert [result for _, result in seen] == [3 * 7 * 2, 5 * 7 * 2]


@pytest.mark.usefixtures("bench")
def test_macros_of_the_user_stay(cpu: Device) -> None:
    y = cpu.zeros(32, np.int32)
    tuned = cujit.tune(
        PROGRAM, {"FACTOR": [2]}, lambda kernel, _: functools.partial(kernel[1, 32], y),
        shape=1, kernel="write<4, false>", device=cpu, rounds=1, define={"FAIL": 0},
    )  # fmt: skip
    tuned.kernel[1, 32](y)
    assert y.numpy()[0] == 8


def test_constraint_selects_candidates(bench: Bench) -> None:
    tuned = bench.tune({"WORK": [1, 2], "THREADS": [1, 2]}, constraint=lambda v: v["WORK"] <= v["THREADS"])
    values = [tuple(one.values.values()) for one in tuned.record.candidates]
    assert values == [(1, 1), (1, 2), (2, 2)]


# -- a hit ------------------------------------------------------------------------------------------------


def test_hit_is_not_timed_again(bench: Bench) -> None:
    first = bench.tune()
    asked = bench.asked
    second = bench.tune()
    cujit.default_cache().forget()
    third = bench.tune()
    assert bench.asked == asked
    assert (second.provenance.outcome, third.provenance.outcome) == (Outcome.MEMORY, Outcome.DISK)
    assert str(first.record) == str(second.record) == str(third.record)
    assert third.values == {"WORK": 1}
    assert third.stale == ""


def test_result_outlives_the_image_of_its_winner(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUJIT_CACHE_ROOTS")
    bench.tune()
    cache = cujit.default_cache()
    assert cache.store is not None
    for entry in list(admin.ls(cache)):
        if entry.summary is None or entry.summary.work != "tuning":
            cache.store.delete(entry.digest)
    cache.forget()
    tuned = bench.tune()
    assert tuned.provenance.outcome is Outcome.DISK
    bench(tuned.kernel, tuned.values)()


def test_unreadable_result_is_measured_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as other:
        other.setattr(TuningRecord, "to_json", lambda _: b'{"cujit tuning":1}')
        with pytest.raises(FormatError):
            bench.tune()
    assert bench.tune().provenance.outcome is Outcome.MADE
    assert bench.tune().provenance.is_hit


def test_order_of_a_space_does_not_matter(bench: Bench) -> None:
    bench.tune({"WORK": [3000, 1], "THREADS": [32, 64]})
    again = bench.tune({"THREADS": [64, 32], "WORK": [1, 3000]})
    assert again.provenance.is_hit
    assert again.values["WORK"] == 1


@pytest.mark.parametrize(
    "other",
    [
        {"shape": (1024, "float32")},
        {"space": {"WORK": [1_000_000, 1, 2]}},
        {"check": lambda _: True},
        {"define": {"UNUSED": 1}},
        {"strategy": None, "kernel": "busy"},
    ],
    ids=spelled,
)
def test_other_question_has_its_own_result(bench: Bench, other: dict[str, Any]) -> None:
    bench.tune()
    assert bench.tune(**other).provenance.outcome is Outcome.MADE


def test_other_source_has_its_own_result(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "busy.h").write_text(BUSY)

    def tuned() -> Outcome:
        found = cujit.tune(
            '#include "busy.h"\n', {"WORK": [1]}, bench,
            shape=1, kernel="busy", becomes={"WORK": "launch"}, include=[tmp_path], device=bench.device, rounds=1,
        )  # fmt: skip
        return found.provenance.outcome

    assert (tuned(), tuned()) == (Outcome.MADE, Outcome.MEMORY)
    (tmp_path / "busy.h").write_text(BUSY.replace("0.5f", "0.25f"))
    assert tuned() is Outcome.MADE


def test_header_named_by_the_space_is_in_the_key(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "busy.h").write_text(BUSY)

    def tuned() -> Outcome:
        found = cujit.tune(
            "#include NAME\n", {"NAME": ['"busy.h"']}, bench,
            shape=1, kernel="busy", include=[tmp_path], device=bench.device, rounds=1,
        )  # fmt: skip
        return found.provenance.outcome

    assert (tuned(), tuned()) == (Outcome.MADE, Outcome.MEMORY)
    (tmp_path / "busy.h").write_text(BUSY.replace("0.5f", "0.25f"))
    assert tuned() is Outcome.MADE


def test_request_without_a_key_is_not_stored_and_says_why(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    source = BUSY.replace("float sum", "const char *made = __TIME__; if (work < 0) x[1] = made[0]; float sum")
    provenance = cujit.tune(source, {"A": [1]}, bench, shape=1, device=bench.device, rounds=1).provenance
    assert provenance.outcome is Outcome.UNCACHED
    assert "__TIME__" in provenance.reason
    monkeypatch.setenv("CUJIT_TUNE", "never")
    with raises(NotTunedError, "not-tuned", "__TIME__"):
        cujit.tune(source, {"A": [1]}, bench, shape=1, device=bench.device)


def test_other_gpu_is_a_miss(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.tune()
    monkeypatch.setattr(bench.device, "product", "NVIDIA B200")
    assert bench.tune().provenance.outcome is Outcome.MADE
    assert bench.tune().record.device == "NVIDIA B200"


def test_result_of_another_driver_is_used_and_marked_stale(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    before = bench.tune().record.driver
    asked = bench.asked
    monkeypatch.setattr("cujit.tuning.tuner.driver_of", lambda _: "CUDA 14.7")
    stale = bench.tune()
    assert stale.provenance.is_hit
    assert stale.stale == f"it was measured with {before}, but this is CUDA 14.7"
    monkeypatch.setenv("CUJIT_TUNE", "never")
    assert bench.tune().stale == stale.stale
    assert bench.asked == asked
    monkeypatch.setenv("CUJIT_TUNE", "again")
    fresh = bench.tune()
    assert (fresh.provenance.outcome, fresh.stale, fresh.record.driver) == (Outcome.MADE, "", "CUDA 14.7")
    monkeypatch.setattr("cujit.tuning.tuner.driver_of", lambda _: "CUDA 14.8")
    monkeypatch.setenv("CUJIT_TUNE", "auto")
    assert bench.tune().stale == "it was measured with CUDA 14.7, but this is CUDA 14.8"


def test_never_raises_immediately_and_lists_what_was_searched(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bench.tune()
    asked = bench.asked
    monkeypatch.setenv("CUJIT_TUNE", "never")
    assert bench.tune().values == {"WORK": 1}
    with pytest.raises(NotTunedError) as caught:
        bench.tune(shape=(2048, "f16"))
    assert bench.asked == asked
    message = str(caught.value)
    assert 'no cache contains a tuning result of busy for [2048,"f16"]' in message.replace("source.cu", "busy")
    assert "2 candidates, and nothing is measured (CUJIT_TUNE=never)" in message
    assert 'shape: 1024 -> [2048,"f16"]' in message
    assert str(tmp_path / "cache") in caught.value.searched
    assert isinstance(caught.value, NotCompiledError)
    with raises(NotTunedError, "not-tuned"):
        bench.tune(cache=False)


def test_pack_brings_answers(bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from cujit.cache.pack import write_pack

    bench.tune()
    write_pack(tmp_path / "tuned.pack", cujit.default_cache().stores)
    monkeypatch.setenv("CUJIT_TUNE", "never")
    shipped = Cache(None, read_only=[tmp_path / "tuned.pack"])
    assert bench.tune(cache=shipped).provenance.outcome is Outcome.DISK


def test_shared_cache_supplies_results(bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bench.tune()
    farm, url = farm_in(tmp_path), f"file://{tmp_path}/store"
    push(url, cujit.default_cache().stores, farm.signer)
    monkeypatch.setenv("CUJIT_TUNE", "never")
    shared = Cache(tmp_path / "other", remote=url, trust=farm.trust, remote_wait_s=10.0)
    assert bench.tune(cache=shared).provenance.outcome is Outcome.REMOTE
    assert bench.tune(cache=Cache(tmp_path / "other")).provenance.outcome is Outcome.DISK


def test_without_a_cache_each_call_measures(bench: Bench) -> None:
    assert {bench.tune(cache=False).provenance.outcome for _ in range(2)} == {Outcome.UNCACHED}


# -- candidates that lose ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("bench")
def test_failing_candidate_loses_with_its_error(cpu: Device) -> None:
    y = cpu.zeros(4096, np.int32)

    def check(v: Mapping[str, Any]) -> bool:
        np.testing.assert_array_equal(y.numpy()[:32], 4)
        return bool(v["N"] != 4)

    tuned = cujit.tune(
        PROGRAM, {"FAIL": [1, 0], "THREADS": [4096, 32], "FACTOR": [1, 2], "N": [4, 2]},
        lambda kernel, v: functools.partial(kernel[1, v["THREADS"]], y),
        shape=1, kernel="write<{N}, false>", becomes={"THREADS": "launch"}, check=check, device=cpu, rounds=1,
        constraint=lambda v: v["THREADS"] == 32 or (v["FACTOR"] == 2 and v["N"] == 2 and not v["FAIL"]),
    )  # fmt: skip
    assert tuned.values == {"FAIL": 0, "THREADS": 32, "FACTOR": 2, "N": 2}
    errors = {tuple(one.values.values()): one.error for one in tuned.record.candidates if one.error}
    assert "not this one" in errors[1, 32, 1, 4]
    assert errors[0, 4096, 2, 2].startswith("LaunchError: write<2, false>: block.x is 4096")
    assert errors[0, 32, 1, 4] == "CujitError: wrong results"
    assert errors[0, 32, 1, 2].startswith("CujitError: wrong results: \nArrays are not equal")
    assert len(errors) == 8
    assert all((one.timing is None) == bool(one.error) for one in tuned.record.candidates)


TRAP = """extern "C" __global__ void busy(float *x, int work) { if (work == 2) __trap(); x[threadIdx.x] = work; }"""


def test_candidate_that_faults_loses(bench: Bench) -> None:
    tuned = cujit.tune(
        TRAP, {"WORK": [2, 1]}, bench, shape=1, becomes={"WORK": "launch"}, device=bench.device, rounds=1
    )
    assert tuned.values == {"WORK": 1}
    assert tuned.record.candidates[0].error.startswith("KernelFaultError: ")


@pytest.mark.gpu
@pytest.mark.ends_context
def test_candidate_that_ends_the_context_ends_the_tuning(
    gpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(DriverError):
        cujit.tune(TRAP, {"WORK": [1, 2]}, Bench(gpu), shape=1, becomes={"WORK": "launch"}, device=gpu)
    assert not [entry for entry in admin.ls(cujit.default_cache()) if entry.summary and entry.summary.work == "tuning"]


def test_no_running_candidate_gives_no_result(bench: Bench) -> None:
    for _ in range(2):
        with raises(NotTunedError, "not-tuned", "cpu", "LaunchError", "busy", "block"):
            bench.tune({"THREADS": [2048, 4096]})
    assert bench.asked == 4


def test_error_of_the_users_code_propagates(bench: Bench) -> None:
    def broken(*_: object) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cujit.tune(BUSY, {"WORK": [1]}, broken, shape=1, device=bench.device)
    with raises(ArgumentError, "argument", "NoneType None"):
        cujit.tune(BUSY, {"WORK": [1]}, lambda _k, _v: None, shape=1, device=bench.device)  # type: ignore[arg-type,return-value]


# -- who wins ---------------------------------------------------------------------------------------------


STRIDED = """extern "C" __global__ void strided(const float *x, float *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i * STRIDE % 4096] + __CUDA_ARCH__;
}"""


class Far(Bench):
    """What is ranked by bounds: a kernel that moves more the further its threads read from each other."""

    def __call__(self, kernel: cujit.Kernel, v: Mapping[str, Any]) -> Callable[[], object]:
        self.asked += 1
        if v["STRIDE"] == 3:
            raise LoadError("three is refused")
        x = self.device.zeros(4096, np.float32)
        return functools.partial(kernel[16, 256], x, x)

    def tune(self, space: Mapping[str, Any] | None = None, **more: Any) -> cujit.tuning.Tuned:
        said: dict[str, Any] = {"shape": 4096, "device": self.device, "on": "H200", "rounds": 1, **more}
        return cujit.tune(STRIDED, space or {"STRIDE": [8, 3, 1, 2]}, self, **said)


@pytest.fixture
def far(bench: Bench) -> Far:
    return Far(bench.device)


def test_candidates_without_a_gpu_are_ranked_by_their_bounds(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cujit.tuning.measuring.time", None)
    tuned = far.tune()
    assert tuned.values == {"STRIDE": 1}
    record = tuned.record
    assert (record.by, record.device, record.processors, record.driver) == ("bounds", "H200", 132, "")
    assert [one.timing for one in record.candidates] == [None] * 4
    far_apart, refused, side_by_side, near = record.candidates
    assert (refused.bound_ms, "three is refused" in refused.error) == (None, True)
    assert far_apart.bound_ms is not None
    assert near.bound_ms is not None
    assert side_by_side.bound_ms is not None
    assert far_apart.bound_ms > 1.1 * side_by_side.bound_ms
    assert json.loads(record.to_json())["by"] == "bounds"
    assert TuningRecord.of_json(record.to_json()) == record
    assert "H200, 132 processors, by bounds, not measured\n* STRIDE=1: a lower bound of " in str(record)
    assert tuned.stale == ""
    asked = far.asked
    assert far.tune().provenance.is_hit
    assert far.asked == asked
    tuned.kernel[16, 256](far.device.zeros(4096, np.float32), y := far.device.zeros(4096, np.float32))
    assert y.numpy()[0] == 900


def test_first_of_the_lowest_bounds_wins(far: Far) -> None:
    assert far.tune({"STRIDE": [4097, 1]}).values == {"STRIDE": 4097}


def test_candidate_that_launches_nothing_does_not_win(far: Far) -> None:
    def workload(kernel: cujit.Kernel, v: Mapping[str, Any]) -> Callable[[], object]:
        return far(kernel, v) if v["STRIDE"] == 8 else lambda: None

    tuned = cujit.tune(STRIDED, {"STRIDE": [1, 8]}, workload, shape=1, device=far.device, on="H200")
    assert tuned.values == {"STRIDE": 8}
    assert "launches has a lower bound" in tuned.record.candidates[0].error


def test_gpu_measurements_precede_bounds(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    assert far.tune(arch="compute_90").record.by == "bounds"
    with monkeypatch.context() as there:  # a machine that has one
        there.setattr(far.device, "product", "NVIDIA H200")
        there.setattr(far.device.backend, "limits", replace(far.device.limits, processors=132), raising=False)
        there.setattr("cujit.tuning.tuner.driver_of", lambda _: "CUDA 13.0")
        there.setenv("CUJIT_TUNE", "never")
        shipped = far.tune(on=None, arch="compute_90")
        assert shipped.values == {"STRIDE": 1}
        assert shipped.stale == "it was ranked by lower bounds for H200, not measured"
        there.setenv("CUJIT_TUNE", "auto")
        measured = far.tune(on=None, arch="compute_90")
        assert (measured.provenance.outcome, measured.record.by) == (Outcome.MADE, "times")
    known = far.tune(arch="compute_90")
    assert (known.record, known.stale) == (measured.record, "")
    assert known.provenance.is_hit


class InOrder:
    """A strategy that asks for every stride once."""

    def __init__(self) -> None:
        self.strides = iter((8, 1, 2))
        self.heard: list[float] = []

    def ask(self) -> InOrder:
        return self

    def suggest_categorical(self, _name: str, _choices: object) -> int:
        return next(self.strides)

    def tell(self, _trial: InOrder, ms: float) -> None:
        self.heard.append(ms)


def test_strategy_hears_bounds(far: Far) -> None:
    strategy = InOrder()
    tuned = far.tune({"STRIDE": [8, 1, 2]}, strategy=strategy, trials=3)
    assert tuned.values == {"STRIDE": 1}
    assert strategy.heard == [one.bound_ms for one in tuned.record.candidates]
    fewer = far.tune({"STRIDE": [8, 1, 2]}, strategy=InOrder(), trials=2)
    assert fewer.provenance.outcome is Outcome.MADE, "after fewer trials another may win"


def test_tie_goes_to_the_first() -> None:
    def timing(*samples: float) -> Timing:
        return Timing(samples, 1, "cpu")

    close = {4: timing(1.00, 1.01, 1.02), 2: timing(1.01, 1.015, 1.02), 9: timing(0.9, 1.0, 1.1)}
    assert first_of_the_fastest(close) == 2
    assert first_of_the_fastest({**close, 9: timing(1.0, 1.0, 1.0)}) == 9
    assert first_of_the_fastest({**close, 1: timing(1.02, 1.02, 1.02)}) == 1
    assert first_of_the_fastest({**close, 1: timing(1.03, 1.03, 1.03)}) == 2
    assert [first_of_the_lowest({1: bound, 2: 1.0}) for bound in (1.02, 1.03)] == [1, 2]


def test_equal_candidates_are_decided_by_their_order(bench: Bench) -> None:
    record = bench.tune({"WORK": [400, 401, 402]}).record
    timings = {
        n: one.timing for n, one in enumerate(record.candidates) if one.timing and len(one.timing.samples_ms) == 6
    }
    fastest = min(timings.values(), key=lambda t: t.median_ms)
    assert record.winner == min(
        n for n, t in timings.items() if t.median_ms <= min(fastest.p90_ms, 1.02 * fastest.median_ms) + 1e-9
    )


def test_slow_candidates_are_dropped_after_a_round(bench: Bench) -> None:
    space, becomes = {"MS": [100, 40, 25.5, 25]}, {"MS": "launch"}  # sleeps may be some ms too long

    def workload(_: object, v: Mapping[str, Any]) -> Callable[[], object]:
        return functools.partial(clock.sleep, v["MS"] / 1e3)

    record = cujit.tune(BUSY, space, workload, shape=1, becomes=becomes, device=bench.device, rounds=3).record
    timings = [one.timing for one in record.candidates if one.timing is not None]
    assert [len(timing.samples_ms) for timing in timings] == [3, 3, 9, 9]
    assert timings[1].median_ms >= 40


def test_close_candidates_are_measured_in_five_rounds(bench: Bench) -> None:
    tuned = cujit.tune(BUSY, {"WORK": [1]}, bench, shape=1, becomes={"WORK": "launch"}, device=bench.device)
    (timing,) = [one.timing for one in tuned.record.candidates]
    assert timing is not None
    assert len(timing.samples_ms) == 5 * 3


# -- records ----------------------------------------------------------------------------------------------


def test_record_is_restored() -> None:
    record = TuningRecord(
        "k<{T}>", "[1,2]", "H200", 132, "CUDA 13.0",
        (
            Measured({"T": 1.5, "B": True, "S": "é"}, error="no"), Measured({"T": 2}),
            Measured({"T": 3}, Timing((0.5, 1), 7, "H200")),
        ),
        2,
    )  # fmt: skip
    data = record.to_json()
    assert TuningRecord.of_json(data) == record
    assert pickle.loads(pickle.dumps(TuningRecord.of_json(data))) == record, "as it goes to the ranks of a group"
    assert Artifact.of(data).kind is ImageKind.TUNING
    for wrong in (b"", b"{}", b"[]", data[:-3], data.replace(b'"winner":2', b'"winner":1'), b"\xff", b"[" * 100_000,
                  data.replace(b'"winner":2', b'"winner":-1'), data.replace(b'tuning":1', b'tuning":2')):  # fmt: skip
        with raises(FormatError, "format", "tuning"):
            TuningRecord.of_json(wrong)


def test_record_is_not_an_image() -> None:
    record = Artifact.of(b'{"cujit tuning":1}')
    with raises(LinkError, "link-input", "1", "cujit.tune"):
        cujit.link([record], arch="sm_90")
    with raises(LoadError, "load", "tuning"):
        cujit.load(record, "cpu")
    with pytest.raises(FormatError):
        cujit.inspect(record)
    with pytest.raises(CujitError):
        cujit.bundle([record])


# -- processes and ranks ----------------------------------------------------------------------------------


class Line:
    """Ranks in threads: what rank 0 broadcasts comes to all; nobody waits longer than a minute for another."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=60)
        self.value: object = None

    def bcast(self, rank: int, value: object, root: int) -> Any:
        assert root == 0
        if rank == 0:
            self.value = pickle.dumps(value)
        self.barrier.wait()
        got = self.value
        self.barrier.wait()
        return pickle.loads(got)  # type: ignore[arg-type]


class Rank:
    """One rank, as mpi4py has it."""

    def __init__(self, line: Line, rank: int) -> None:
        self.line, self.rank = line, rank

    def bcast(self, value: object, root: int = 0) -> Any:
        return self.line.bcast(self.rank, value, root)


class TorchRank:
    """One rank, as ``torch.distributed`` has it."""

    def __init__(self, line: Line, rank: int) -> None:
        self.line, self.rank = line, rank

    def get_rank(self) -> int:
        return self.rank

    def broadcast_object_list(self, values: list[object], src: int) -> None:
        values[0] = self.line.bcast(self.rank, values[0], src)


def ranks(size: int, body: Callable[[int, Any], object], kind: type = Rank) -> list[Any]:
    """Run a body once per rank, in threads; give results, or errors."""
    line = Line(size)

    def run(rank: int) -> object:
        try:
            return body(rank, kind(line, rank))
        except (CujitError, ZeroDivisionError) as e:
            return e

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(run, range(size)))


@pytest.mark.parametrize(("kind", "who"), [(Rank, 0), (Rank, 1), (TorchRank, 2)])
def test_group_decides_once_whoever_has_a_record(bench: Bench, tmp_path: Path, kind: type, who: int) -> None:
    caches = [Cache(tmp_path / str(rank), read_only=[Path(os.environ["CUJIT_CACHE_ROOTS"])]) for rank in range(3)]
    space = {"THREADS": [64, 65, 66]}
    bench.tune(space, cache=caches[who])
    asked = bench.asked
    found = ranks(3, lambda rank, group: bench.tune(space, cache=caches[rank], group=group), kind)
    assert len({str(tuned.record) for tuned in found}) == 1
    assert bench.asked == asked if who == 0 else bench.asked > asked
    assert [tuned.provenance.is_hit for tuned in found] == [who == 0] * 3


def test_error_of_rank_0_is_one_of_all(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_TUNE", "never")
    found = ranks(3, lambda _, group: bench.tune(group=group))
    assert [type(e) for e in found] == [NotTunedError] * 3
    assert found[1].searched == found[0].searched != ()
    monkeypatch.delenv("CUJIT_TUNE")

    def broken(*_: object) -> Any:
        raise ZeroDivisionError("mine")

    found = ranks(2, lambda _, group: cujit.tune(BUSY, {"WORK": [1]}, broken, shape=1, device="cpu", group=group))
    assert isinstance(found[0], ZeroDivisionError)
    assert str(found[1]) == "rank 0: ZeroDivisionError: mine"


@pytest.mark.parametrize("bad", [0, 1])
def test_failing_rank_does_not_block_others(bench: Bench, bad: int) -> None:
    found = ranks(2, lambda rank, group: bench.tune(group=group, rounds=0 if rank == bad else 1))
    assert isinstance(found[bad], OptionError)
    assert isinstance(found[1 - bad], OptionError if bad == 0 else cujit.tuning.Tuned)


def test_ranks_with_different_questions_get_an_error(bench: Bench) -> None:
    found = ranks(2, lambda rank, group: bench.tune(group=group, shape=rank + 1))
    assert isinstance(found[0], cujit.tuning.Tuned)
    assert "rank 1 requests a different tuning run than rank 0" in str(found[1])


def test_rank_with_another_gpu_uses_the_result_and_reports_it(bench: Bench) -> None:
    other = Device(CpuBackend(bench.device.limits.processors))
    other.product = "NVIDIA B200"
    mine = Bench(other)
    found = ranks(2, lambda rank, group: (mine if rank else bench).tune(group=group))
    assert found[1].record == found[0].record
    assert (mine.asked, found[0].stale) == (0, "")
    assert found[1].stale.startswith(f"it was measured on {bench.device.product} (")
    assert "this is NVIDIA B200" in found[1].stale


EIGHT = """
import functools, os, sys
import numpy as np
import cujit
source, answers = sys.argv[1:]
device = cujit.cpu()
x = device.zeros(1024, np.float32)
cujit.jit(source, device=device)["busy"][1, 64](x, 1)
children = []
for n in range(8):
    if (pid := os.fork()) == 0:
        workload = lambda kernel, v: functools.partial(kernel[1, v["THREADS"]], x, 50)
        tuned = cujit.tune(
            source, {"THREADS": [64, 65, 66, 67]}, workload, shape=1, becomes={"THREADS": "launch"}, device=device
        )
        with open(f"{answers}/{n}", "w") as file:
            print(tuned.values, tuned.provenance.outcome.value, file=file)
        os._exit(0)
    children.append(pid)
print(sum(os.waitpid(pid, 0)[1] != 0 for pid in children))
"""


@pytest.mark.usefixtures("bench")
def test_eight_processes_have_one_result(tmp_path: Path) -> None:
    (tmp_path / "answers").mkdir()
    assert printed(EIGHT, BUSY, tmp_path / "answers").split() == ["0"]
    answers = [file.read_text().rsplit(" ", 1) for file in (tmp_path / "answers").iterdir()]
    assert len(answers) == 8
    assert len({values for values, _ in answers}) == 1
    assert [outcome.strip() for _, outcome in answers].count("made") == 1


# -- who compiles, who chooses, where ---------------------------------------------------------------------


def test_executor_compiles_instead_of_this_process(bench: Bench, tmp_path: Path) -> None:
    cache = Cache(tmp_path / "built")
    space = {"FACTOR": [1, 2], "FAIL": [0, 1], "THREADS": [32, 64]}
    y = bench.device.zeros(64, np.int32)

    def workload(kernel: cujit.Kernel, v: Mapping[str, Any]) -> Callable[[], object]:
        provenance = kernel.artifact.provenance
        assert provenance is not None
        assert provenance.is_hit
        return functools.partial(kernel[1, v["THREADS"]], y)

    with ProcessPoolExecutor(1) as executor:
        tuned = cujit.tune(
            PROGRAM, space, workload,
            shape=1, kernel="write<3, true>", becomes={"THREADS": "launch"}, executor=executor, cache=cache, rounds=1,
            device=bench.device,
        )  # fmt: skip
    errors = [one.error for one in tuned.record.candidates]
    assert [bool(error) for error in errors] == [False, False, True, True] * 2
    assert "not this one" in errors[2]
    assert cache.counters.makes == 1  # the tuning
    with raises(OptionError, "option-conflict", "sink="):
        bench.tune(executor="processes:1", cache=False)


def test_slow_candidates_hold_no_memory(bench: Bench) -> None:
    launches: list[weakref.ref[Any]] = []
    held = []

    def workload(kernel: cujit.Kernel, v: Mapping[str, Any]) -> Callable[[], object]:
        call = functools.partial(kernel[1, 32], bench.x, v["WORK"])
        launches.append(weakref.ref(call))
        return call

    def check(_: object) -> None:
        held.append([launch() is not None for launch in launches])

    space, becomes = {"WORK": [1_000_000, 1, 2_000_000, 3_000_000]}, {"WORK": "launch"}
    cujit.tune(BUSY, space, workload, shape=1, becomes=becomes, check=check, device=bench.device, rounds=1)
    assert held[1:] == [[True, True], [False, True, True], [False, True, False, True]]


def test_strategy_chooses_candidates(bench: Bench) -> None:
    optuna = pytest.importorskip("optuna")
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = {"WORK": [*range(100_000, 4_000_000, 200_000), 1], "THREADS": [32, 4096]}
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    tuned = bench.tune(space, strategy=study, trials=18, constraint=lambda v: v["WORK"] != 100_000)
    tried = [one for one in tuned.record.candidates if one.timing or one.error]
    assert 2 < len(tried) <= 18 < len(tuned.record.candidates) == 42 - 2
    assert len(study.trials) == 18
    assert {trial.value == math.inf for trial in study.trials} == {True, False}
    assert tuned.values["THREADS"] == 32
    assert tuned.values["WORK"] == min(one.values["WORK"] for one in tried if one.timing)
    again = bench.tune(space, strategy=study, trials=18, constraint=lambda v: v["WORK"] != 100_000)
    assert again.provenance.is_hit
    assert len(study.trials) == 18


def test_several_devices_share_the_first_look(bench: Bench) -> None:
    devices = [bench.device, Device(CpuBackend(bench.device.limits.processors))]
    seen, held, launches = [], [], list[weakref.ref[Any]]()

    def workload(kernel: cujit.Kernel, v: Mapping[str, Any]) -> Callable[[], object]:
        seen.append((devices.index(kernel.device), v["WORK"]))
        held.append(sum(launch() is not None for launch in launches))
        launches.append(weakref.ref(call := functools.partial(kernel[1, 32], bench.x, v["WORK"])))
        return call

    more = {"shape": 1, "becomes": {"WORK": "launch"}, "device": devices, "rounds": 1}
    tuned = cujit.tune(BUSY, {"WORK": [1_000_000, 3_000_000, 2_000_000, 1]}, workload, **more)  # type: ignore[arg-type]
    assert sorted(seen[:4]) == [(0, 1_000_000), (0, 2_000_000), (1, 1), (1, 3_000_000)]
    assert seen[4:] == [(0, 1)]
    assert tuned.kernel.device is bench.device
    assert held[4] == 1, "of the first device none is near the fastest"


@pytest.mark.gpu
def test_several_gpus_share_the_first_look(
    two_gpus: tuple[Device, Device], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))
    memory = {device: device.zeros(1024, np.float32) for device in two_gpus}
    seen: set[Device] = set()

    def workload(kernel: cujit.Kernel, v: Mapping[str, Any]) -> Callable[[], object]:
        seen.add(kernel.device)
        return functools.partial(kernel[1, 32], memory[kernel.device], v["WORK"])

    space, becomes = {"WORK": [1_000_000, 2_000_000, 3_000_000, 1]}, {"WORK": "launch"}
    tuned = cujit.tune(BUSY, space, workload, shape=1, becomes=becomes, device=list(two_gpus))
    assert seen == {*two_gpus}
    assert (tuned.values, tuned.kernel.device) == ({"WORK": 1}, two_gpus[0])


# -- bad input --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"space": {}}, ("option", "space=")),
        ({"space": [("A", [1])]}, ("option", "space=")),
        ({"space": {"A b": [1]}}, ("option", "A b")),
        ({"space": {3: [1]}}, ("option", "3", "space=")),
        ({"space": {"A": "12"}}, ("option", "12", "space=")),
        ({"space": {"A": 12}}, ("option", "12", "space=")),
        ({"space": {"A": []}}, ("option", "duplicates")),
        ({"space": {"A": [1, 1]}}, ("option", "duplicates")),
        ({"space": {"A": [1, True]}}, ("option", "duplicates")),
        ({"space": {"A": [None]}}, ("option", "None")),
        ({"space": {"A": [math.nan]}}, ("option", "nan")),
        ({"space": {"A": [[1]]}}, ("option", "[1]")),
        ({"space": {f"A{k}": range(10) for k in range(5)}}, ("option", "100,000")),
        ({"space": {"A": ["a\0b"]}}, ("option", "1.5f")),
        ({"constraint": 3}, ("option", "3", "constraint")),
        ({"constraint": lambda _: False}, ("option", "2", "excludes")),
        ({"kernel": 3}, ("option", "3", "kernel")),
        ({"kernel": ""}, ("option", "kernel")),
        ({"kernel": "busy<{NO}>"}, ("option", "WORK")),
        ({"kernel": "busy<{WORK}>", "becomes": {"WORK": "launch"}}, ("option", "WORK")),
        ({"becomes": 3}, ("option", "3", "becomes=")),
        ({"becomes": {"WORK": "texture"}}, ("option", "texture")),
        ({"becomes": {"WORK": ["launch"]}}, ("option", "define")),
        ({"becomes": {"WORK": "option"}}, ("option-unknown", "WORK")),
        ({"shape": None}, ("argument", "None", "shape=")),
        ({"shape": ()}, ("argument", "shape=")),
        ({"shape": {"m": object()}}, ("argument", "shape=")),
        ({"shape": math.inf}, ("argument", "inf")),
        ({"check": 3}, ("option", "check", "3")),
        ({"strategy": "optuna"}, ("option", "optuna")),
        ({"trials": 0}, ("option", "trials", "0")),
        ({"rounds": 0}, ("option", "rounds", "0")),
        ({"rounds": "x"}, ("option", "rounds", "str")),
        ({"device": []}, ("option", "device")),
        ({"device": ["cpu", "cpu"]}, ("option", "duplicates")),
        ({"device": "tpu"}, ("device-not-found", "tpu")),
        ({"executor": 3}, ("option-unknown", "3", "concurrent.futures.Executor")),
        ({"executor": "dusk"}, ("option-unknown", "dusk")),
        ({"group": 3}, ("option", "3", "group=MPI.COMM_WORLD")),
        ({"group": type("Group", (), {"bcast": print})()}, ("option", "NoneType None")),
        ({"arch": "sm_1"}, ("arch", "sm_1")),
        ({"cache": 3}, ("option", "3", "cujit.Cache")),
        ({"options": 3}, ("option", "cujit.Options")),
        ({"nonsense": 3}, ("option-unknown", "nonsense")),
        ({"source": 3}, ("option", "source")),
        ({"source": "nowhere.cu"}, ("file", "nowhere.cu")),
        ({"workload": 3}, ("option", "workload", "3")),
        ({"include": "nowhere"}, ("option", "nowhere")),
        ({"on": "V100"}, ("arch", "V100")),
        ({"on": 3}, ("option", "3", "GPU", "on='H200'")),
    ],
    ids=spelled,
)
def test_invalid_input_raises_cujits_errors(bench: Bench, more: dict[str, Any], why: tuple[str, ...]) -> None:
    said = {"source": BUSY, "space": {"WORK": [1, 2]}, "workload": bench, "shape": 1, "device": "cpu", **more}
    with raises(CujitError, *why):
        cujit.tune(**said)
    assert bench.asked == 0


def test_unknown_mode_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_TUNE", "sometimes")
    with raises(OptionError, "environment-value", "CUJIT_TUNE", "sometimes"):
        bench.tune()


def test_device_with_checks_is_refused(bench: Bench) -> None:
    with raises(OptionError, "option"):
        bench.tune(device=cujit.cpu(check="memory"))


def test_devices_of_two_products_are_refused(bench: Bench) -> None:
    with raises(OptionError, "option", "model"):
        bench.tune(device=[bench.device, Device(CpuBackend(bench.device.limits.processors + 1))])


def test_several_kernels_need_a_name(bench: Bench) -> None:
    two = BUSY + BUSY.replace("busy", "lazy")
    with raises(ArgumentError, "argument", "2", "source.cu"):
        cujit.tune(two, {"A": [1]}, bench, shape=1, device="cpu")
