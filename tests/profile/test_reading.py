"""Profiles that were written are read back, and what is none is an error of ours."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cujit
from cujit.cli.profile import render_costs
from cujit.notebook.displays import html_of
from cujit.profile import Profile, ProfiledKernel, advice_for, bounds, read_profile
from raising import raises


def test_written_profile_is_read_back_unchanged(tmp_path: Path) -> None:
    profile = Profile()
    device = cujit.cpu(profile=profile)
    code = 'extern "C" __global__ void one(float *x) { x[threadIdx.x * 2] = 1; }'
    cujit.jit(code, device=device, name="a:b.cu")["one"][2, 64](device.zeros(128, np.float32))
    file = tmp_path / "counts.json"
    file.write_text(json.dumps(profile.to_json()))
    assert read_profile(file) == profile.kernels
    assert {row.source.file for row in read_profile(file)[0].instructions if row.source} == {"a:b.cu"}


@pytest.mark.parametrize(
    "text", ["", "[]", "7", "[" * 100_000, '{"kernels": [{}]}', '{"kernels": [3]}', '{"kernels": 3}']
)
def test_invalid_profile_is_an_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "odd.json"
    file.write_text(text)
    with raises(cujit.errors.FormatError, "format", "--json", "odd.json"):
        read_profile(file)
    with pytest.raises(cujit.errors.FileError):
        read_profile(tmp_path / "none.json")


# -- files of somebody else -------------------------------------------------------------------------------------

MIXED = """extern "C" __global__ void mixed(const float *x, float *y, int *n) {
    __shared__ float s[64];
    s[threadIdx.x * 2] = x[threadIdx.x * 3];
    __syncthreads();
    float own[4];
    for (int k = 0; k < 4; k++) own[k] = s[k * 8];
    if (threadIdx.x % 2) y[threadIdx.x] = own[n[0] % 4] * 2;
    atomicAdd(n, 1);
}"""
ODD: tuple[Any, ...] = (None, True, -1, 0, 1, 3, 1 << 62, 1 << 64, 0.5, float("nan"), "", "7", "\x1b[2J", "\ud800",
       "a:b", "[%r1+99]", [], [1, 2], {}, [[99, 1, 1]], "ld.global.f32 %f1, [%rd1+" + "9" * 5000 + "]")  # fmt: skip


@pytest.fixture(scope="module")
def written() -> str:
    profile = Profile()
    device = cujit.cpu(profile=profile)
    x, y, n = device.zeros(96, np.float32), device.zeros(32, np.float32), device.zeros(1, np.int32)
    cujit.jit(MIXED, device=device, name="mixed.cu")["mixed"][2, 32](x, y, n)
    return json.dumps(profile.to_json())


def _leaves(data: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a tree: what it is in, and its key there."""
    for key in list(data) if isinstance(data, dict) else range(len(data)):
        yield data, key
        if isinstance(data[key], (dict, list)):
            yield from _leaves(data[key])


def test_any_file_is_read_or_refused_without_terminal_control(written: str, tmp_path: Path) -> None:
    chance, file, refused = random.Random(20), tmp_path / "foreign.json", 0
    for _ in range(300):
        data = json.loads(written)
        for _ in range(chance.choice((1, 1, 3))):
            holder, key = chance.choice([each for each in _leaves(data) if each[1] != "schema"])
            holder[key] = chance.choice(ODD)
        file.write_text(json.dumps(data))
        try:
            kernels = read_profile(file)
        except cujit.errors.FormatError:
            refused += 1
            continue
        for kernel in kernels:
            said = [*map(str, advice_for(kernel)), str(bounds(kernel, "H200")), html_of(render_costs(kernel))]
            assert not {"\x1b", "\ud800"} & {*"".join(said), *kernel.name}
            assert ProfiledKernel.from_json(json.loads(json.dumps(kernel.to_json()))) == kernel
    assert 100 < refused < 295


@pytest.mark.parametrize(
    ("where", "value"),
    [("sectors", 7), ("local_sectors", 7), ("bank_conflicts", 1), ("distinct_sectors", 1), ("warps", "32"),
     ("warps", -1), ("warps", True)],
)  # fmt: skip
def test_impossible_counts_are_refused(written: str, tmp_path: Path, where: str, value: object) -> None:
    data = json.loads(written)
    plain = next(row for row in data["kernels"][0]["instructions"] if not row["access"])
    plain[where] = value
    file = tmp_path / "lie.json"
    file.write_text(json.dumps(data))
    with raises(cujit.errors.FormatError, "format", "--json", "lie.json"):
        read_profile(file)


@pytest.mark.parametrize(
    ("where", "value"),
    [("distinct_sectors", 1 << 20), ("distinct_sectors", -1), ("distinct_sectors", "7"), ("source", "mixed.cu:99")],
)
def test_impossible_distinct_sectors_are_refused(written: str, tmp_path: Path, where: str, value: object) -> None:
    data = json.loads(written)
    line = next(row for row in data["kernels"][0]["lines"] if "distinct_sectors" in row)
    line[where] = value
    file = tmp_path / "lie.json"
    file.write_text(json.dumps(data))
    with raises(cujit.errors.FormatError, "format", "--json", "lie.json"):
        read_profile(file)


def test_file_without_distinct_sectors_is_read(written: str, tmp_path: Path) -> None:
    data = json.loads(written)
    for part in (*data["kernels"][0].pop("lines"), *data["kernels"][0]["instructions"]):
        part.pop("distinct_sectors", None)
    file = tmp_path / "older.json"
    file.write_text(json.dumps(data))
    (kernel,) = read_profile(file)
    assert kernel.totals.sectors
    assert {line.reuse for line in kernel.lines()} == {row.reuse for row in kernel.instructions} == {0}


def test_profile_of_another_schema_is_not_called_damaged(written: str, tmp_path: Path) -> None:
    file = tmp_path / "later.json"
    file.write_text(written.replace('"schema": 1', '"schema": 2'))
    with raises(cujit.errors.FormatError, "format", "later.json", "2", "1"):
        read_profile(file)


def test_kernels_are_pickled_and_profiles_refuse(written: str, tmp_path: Path) -> None:
    file = tmp_path / "counts.json"
    file.write_text(written)
    assert pickle.loads(pickle.dumps(read_profile(file))) == read_profile(file)
    with raises(cujit.errors.ClosedError, "closed", "profile.to_json()"):
        pickle.dumps(Profile())
