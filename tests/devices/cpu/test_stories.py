"""Races, deadlocks and differences between schedules, told as what two threads did: as text and as a picture."""

from __future__ import annotations

import json
import pickle
import sys
import traceback
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner

import cujit
import cujit.reproducer
from cujit.cli.app import main
from cujit.errors.stories import Story, StoryStep
from cujit.notebook.displays import RENDERERS, html_of

TURNED = """extern "C" __global__ void turned(float *out) {
    __shared__ float part[64];
    part[threadIdx.x] = 1;
    out[threadIdx.x] = part[63 - threadIdx.x];
}
"""
ACROSS = """extern "C" __global__ void across(float *out) {
    out[0] = blockIdx.x;
}
"""
APART = """extern "C" __global__ void apart(float *out) {
    if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;");
    else asm volatile("bar.sync 2, 64;");
    out[threadIdx.x] = 1;
}
"""
COPIED = """#include <cuda_pipeline.h>
extern "C" __global__ void copied(float *out) {
    __shared__ float part[64];
    __pipeline_memcpy_async(&part[threadIdx.x], &out[threadIdx.x], 4);
    __pipeline_commit();
    out[threadIdx.x] = part[threadIdx.x] + 1;
    __pipeline_wait_prior(0);
}
"""
TAKEN = """extern "C" __global__ void taken(float *out) {
    __shared__ alignas(16) float part[64];
    unsigned at = __cvta_generic_to_shared(part);
    part[threadIdx.x] = 1;
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" :: "l"(out), "r"(at) : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
    __syncthreads();
    part[threadIdx.x] = 2;
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
"""
PAIR = """#include <cooperative_groups.h>
extern "C" __global__ void __cluster_dims__(2) pair(float *out) {
    __shared__ float part[32];
    auto cluster = cooperative_groups::this_cluster();
    cluster.sync();
    part[threadIdx.x] = 1;
    __syncthreads();
    out[blockIdx.x * 32 + threadIdx.x] = *cluster.map_shared_rank(&part[threadIdx.x], cluster.block_rank() ^ 1);
    cluster.sync();
}
"""
FIRST = "thread (0, 0, 0)"
LANES = """extern "C" __global__ void lanes(float *out) {
    if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(~0u, 1, 0);
    else __syncwarp();
}
"""


def fault(code: str, name: str, grid: int = 1, block: int = 64, check: str = "race") -> cujit.errors.KernelFaultError:
    """Launch a kernel that can't continue, or that a check stops."""
    device = cujit.cpu(check=check)
    kernel = cujit.jit(code, device=device, arch="sm_90a", name=f"{name}.cu", options={"lineinfo": True})[name]
    with pytest.raises(cujit.errors.KernelFaultError) as caught:
        kernel[grid, block](device.zeros(64, np.float32))
    return caught.value


def test_race_story_shows_two_threads_and_the_missing_barrier() -> None:
    error = fault(TURNED, "turned")
    assert error.story == Story(
        ("thread (31, 0, 0)", "thread (32, 0, 0)"),
        (
            StoryStep(0, "reads byte 128 of shared memory", "turned.cu:4"),
            StoryStep(1, "writes 4 bytes there", "turned.cu:3"),
        ),
        "missing: __syncthreads()",
        1,
    )
    assert str(error.story).splitlines() == [
        "  thread (31, 0, 0)                   thread (32, 0, 0)",
        "  -----------------                   -----------------",
        "  reads byte 128 of shared memory",
        "    turned.cu:4",
        "  ....................... missing: __syncthreads() .......................",
        "                                      writes 4 bytes there",
        "                                        turned.cu:3",
    ]


def test_race_within_a_warp_lacks_syncwarp() -> None:
    error = fault(TURNED.replace("63 -", "31 ^"), "turned", block=32)
    assert error.story is not None
    assert error.story.missing == "missing: __syncwarp()"


def test_race_story_between_blocks_names_them() -> None:
    story = fault(ACROSS, "across", grid=2, block=1).story
    assert story is not None
    assert story.actors == ("thread (0, 0, 0) of block (0, 0, 0)", "thread (0, 0, 0) of block (1, 0, 0)")
    assert [step.action for step in story.steps] == ["writes global memory", "writes 4 bytes there"]
    assert story.missing == "missing: synchronization between the blocks"


@pytest.mark.parametrize(
    ("code", "name", "actors", "steps", "missing"),
    [
        (
            COPIED, "copied", (FIRST, FIRST),
            ((0, "starts an asynchronous copy", "copied.cu:4"), (1, "reads 4 bytes there", "copied.cu:6")),
            "a wait for the copy",
        ),
        (
            TAKEN, "taken", (FIRST, FIRST),
            ((0, "starts an asynchronous copy", "taken.cu:8"), (1, "writes 4 bytes there", "taken.cu:12")),
            "a wait for the copy",
        ),
        (
            TAKEN.replace('asm volatile("fence.proxy.async;" ::: "memory");', ""), "taken", (FIRST, FIRST),
            ((0, "writes byte 0 of shared memory", "taken.cu:4"), (1, "reads 256 bytes there", "taken.cu:8")),
            "fence.proxy.async",
        ),
        (
            PAIR, "pair", (f"{FIRST} of block (1, 0, 0)", f"{FIRST} of block (0, 0, 0)"),
            ((0, "reads byte 0 of shared memory", "pair.cu:8"), (1, "writes 4 bytes there", "pair.cu:6")),
            "cluster.sync()",
        ),
    ],
)  # fmt: skip
def test_stories_of_copies_and_clusters_name_what_is_missing(
    code: str, name: str, actors: tuple[str, str], steps: tuple[tuple[int, str, str], ...], missing: str
) -> None:
    story = fault(code, name, grid=2 if name == "pair" else 1, block=32 if name == "pair" else 64).story
    assert story == Story(actors, tuple(StoryStep(*step) for step in steps), f"missing: {missing}", 1)


@pytest.mark.parametrize(
    ("code", "name", "block", "sides"),
    [
        (
            APART, "apart", 64,
            {("threads 0-31", "wait at barrier 1", "apart.cu:2"), ("threads 32-63", "wait at barrier 2", "apart.cu:3")},
        ),
        (
            APART.replace('asm volatile("bar.sync 2, 64;")', "return"), "apart", 64,
            {("threads 0-31", "wait at barrier 1", "apart.cu:2"), ("32 other threads", "exited", "")},
        ),
        (
            LANES, "lanes", 32,
            {("threads 0-15", "wait for other lanes", "lanes.cu:2"),
             ("threads 16-31", "wait for other lanes", "lanes.cu:3")},
        ),
    ],
)  # fmt: skip
def test_deadlock_is_two_groups_of_threads(code: str, name: str, block: int, sides: set[tuple[str, str, str]]) -> None:
    story = fault(code, name, block=block, check="memory").story
    assert story is not None
    assert {(story.actors[step.actor], step.action, step.place) for step in story.steps} == sides
    assert story.after == len(story.steps)


def test_fault_of_one_thread_has_no_story() -> None:
    wild = 'extern "C" __global__ void wild(float *out) { out[threadIdx.x + 64] = 1; }'
    assert fault(wild, "wild", check="memory").story is None


def test_error_keeps_its_story_through_pickle() -> None:
    error = fault(TURNED, "turned")
    assert pickle.loads(pickle.dumps(error)).story == error.story


def test_saved_launch_repeats_the_story(tmp_path: Path) -> None:
    device = cujit.cpu()
    kernel = cujit.jit(TURNED, device=device, name="turned.cu", options={"lineinfo": True})["turned"]
    path = kernel[1, 64].save(tmp_path / "race.launch", device.zeros(64, np.float32))
    with pytest.raises(cujit.errors.KernelFaultError) as caught:
        cujit.reproducer.run(path, check="race")
    story = fault(TURNED, "turned").story
    assert caught.value.story == story
    assert str(story) in getattr(caught.value, "__notes__", ())


@pytest.mark.parametrize("wrong", [{"steps": [[2, "a", "b"]]}, {"steps": [[0, "a"]]}, {"actors": ["one"]}])
def test_damaged_story_is_refused(wrong: dict[str, object]) -> None:
    story = fault(TURNED, "turned").story
    assert story is not None
    assert Story.from_json(story.to_json()) == story
    with pytest.raises(ValueError, match=r"actors|unpack"):
        Story.from_json({**story.to_json(), **wrong})


@pytest.mark.skipif(sys.version_info < (3, 11), reason="earlier tracebacks have no notes")
def test_traceback_ends_with_the_story() -> None:
    error = fault(TURNED, "turned")
    assert str(error.story) in "".join(traceback.format_exception(error))


def test_command_line_prints_the_story(tmp_path: Path) -> None:
    path = tmp_path / "turned.cu"
    path.write_text(TURNED)
    launch = ["--grid", "1", "--block", "64", "--arg", "zeros:f32:64", "--check", "race", "-O", "lineinfo"]
    result = CliRunner().invoke(main, ["run", str(path), "-k", "turned", *launch])
    assert result.exit_code == 1
    assert "  reads byte 128 of shared memory\n    turned.cu:4\n" in result.stderr
    assert " missing: __syncthreads() " in result.stderr


def test_command_line_gives_the_story_as_json(tmp_path: Path) -> None:
    path = tmp_path / "turned.cu"
    path.write_text(TURNED)
    launch = ["--grid", "1", "--block", "64", "--arg", "zeros:f32:64", "-O", "lineinfo", "--json"]
    raced = CliRunner().invoke(main, ["run", str(path), "-k", "turned", *launch, "--check", "race"])
    assert raced.exit_code == 1
    assert Story.from_json(json.loads(raced.stdout)["error"]["story"]) == fault(TURNED, "turned").story
    wild = CliRunner().invoke(main, ["run", str(path), "-k", "turned", *launch, "--arg", "1"])
    assert "story" not in json.loads(wild.stdout)["error"]
    path.write_text(ACROSS)
    launch = ["--grid", "8", "--block", "1", "--arg", "zeros:f32:1", "-O", "lineinfo", "--json", "--schedules", "50"]
    apart = CliRunner().invoke(main, ["run", str(path), *launch])
    assert apart.exit_code == 1
    story = Story.from_json(json.loads(apart.stdout)["difference"]["story"])
    assert story.missing == "the kernel doesn't fix the order of these writes"


def test_picture_holds_hostile_names_as_text() -> None:
    name = "</text><script>alert(1)</script>\"'&"
    story = Story((name, name), (StoryStep(0, name, name), StoryStep(1, "x" * 99, "")), name, 1)
    found = ElementTree.fromstring(story.svg())
    kinds = {each.tag.rpartition("}")[2] for each in found.iter()}
    assert kinds == {"svg", "text", "path", "rect"}
    assert "".join(found.itertext()).count("alert(1)") == 5
    assert f"{'x' * 41}…" in "".join(found.itertext())


def test_notebook_draws_the_story() -> None:
    error = fault(TURNED, "turned")
    html = html_of(RENDERERS["cujit.errors", "KernelFaultError"](error))
    assert html.count("<svg ") == 1
    assert str(error.story) not in html
    assert "cujit explain fault-race" in html


def test_schedule_difference_story_shows_both_schedules() -> None:
    device = cujit.cpu()
    last = cujit.jit(ACROSS, device=device, name="across.cu", options={"lineinfo": True})["across"]
    difference = last[8, 1].under_schedules(device.zeros(1, np.float32), schedules=50).difference
    assert difference is not None
    story = difference.story
    assert story is not None
    runs = (difference.first, difference.second)
    assert story.actors == tuple(f"schedule {run.seed}: {run.value}" for run in runs)
    assert [step.actor for step in story.steps] == sorted(step.actor for step in story.steps)
    assert story.steps[-1].action == f"block {difference.second.writes[-1].block}, thread (0, 0, 0) writes"
    assert all("across.cu:2" in step.place for step in story.steps)
