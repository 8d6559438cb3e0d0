"""Green contexts: how multiprocessors are split, what streams of such a context do, and how it ends."""

from __future__ import annotations

import pytest

from cujit.emulator.settings import EmulatorSettings
from emulator.programs import python
from emulator.test_device import ASKS

STARTS = (
    ASKS
    + """
context = ok(d.cuDevicePrimaryCtxRetain(device))
ok(d.cuCtxSetCurrent(context))
Kind = d.CUdevResourceType
SM, CONFIG, QUEUE = Kind(1), Kind(1000), Kind(10000)
sms = lambda resource: (resource.sm.smCount, resource.sm.minSmPartitionSize, resource.sm.smCoscheduledAlignment)
all_of = lambda: ok(d.cuDeviceGetDevResource(device, SM))
def split(n, least, flags=0, of=None):
    groups, count, rest = ok(d.cuDevSmResourceSplitByCount(n, of or all_of(), flags, least))
    return groups[:count], rest
def green(*resources):
    return ok(d.cuGreenCtxCreate(ok(d.cuDevResourceGenerateDesc(list(resources), len(resources))), device, 1))
stream_of = lambda made: ok(d.cuGreenCtxStreamCreate(made, 1, 0))
"""
)
PTX = """
ptx = b'''.version 8.0
.target sm_80
.address_size 64
.visible .entry f(.param .u64 at)
{ .reg .b64 %a; .reg .b32 %i; ld.param.u64 %a, [at]; mov.u32 %i, %ctaid.x; red.global.add.u32 [%a], 1; ret; }
'''
function = ok(d.cuModuleGetFunction(ok(d.cuModuleLoadData(ptx)), b"f"))
at = ok(d.cuMemAlloc(4))
ok(d.cuMemsetD32(at, 0, 1))
def launch(stream, grid=3, launched=d.cuLaunchKernel):
    import ctypes
    more = (((int(at),), (ctypes.c_void_p,)),) + ((0,) if launched is d.cuLaunchKernel else ())
    return launched(function, grid, 1, 1, 1024, 1, 1, 0, stream, *more)
def total():
    import numpy
    host = numpy.zeros(1, "u4"); ok(d.cuMemcpyDtoH(host.ctypes.data, at, 4)); return int(host[0])
"""


def many(code: str, cc: tuple[int, int] = (9, 0)) -> str:
    """Run a program on a device of 44 multiprocessors."""
    return python(STARTS + code, settings=EmulatorSettings(cc=cc, threads=44))


def test_groups_have_the_sizes_of_the_architecture() -> None:
    many(
        """
assert sms(all_of()) == (44, 8, 8)
groups, rest = split(3, 9)
assert [sms(each) for each in groups] == [(16, 8, 8)] * 2 and sms(rest) == (12, 2, 2)
groups, rest = split(5, 1)
assert [sms(each)[0] for each in groups] == [8] * 5 and sms(rest)[0] == 4
assert split(2, 10, flags=1)[0][0].sm.smCount == 10, "without co-scheduling"
assert split(9, 1, flags=2)[0][0].sm.smCount == 16, "for the largest clusters"
assert ok(d.cuDevSmResourceSplitByCount(0, all_of(), 0, 8))[1] == 5
assert refused(d.cuDevSmResourceSplitByCount(1, all_of(), 0, 45)) == "INVALID_VALUE"
assert refused(d.cuDevSmResourceSplitByCount(1, all_of(), 4, 8)) == "INVALID_VALUE"
assert refused(d.cuDevSmResourceSplitByCount(1, all_of(), 0, 41)) == "INVALID_RESOURCE_CONFIGURATION"
assert refused(d.cuDevSmResourceSplitByCount(1, groups[0], 0, 4)) == "INVALID_RESOURCE_CONFIGURATION"
assert refused(d.cuDevSmResourceSplitByCount(1, d.CUdevResource(), 0, 4)) == "INVALID_RESOURCE_TYPE"
assert refused(d.cuDeviceGetDevResource(device, Kind.CU_DEV_RESOURCE_TYPE_INVALID)) == "INVALID_RESOURCE_TYPE"
"""
    )
    many(
        """
assert sms(all_of()) == (44, 2, 2)
groups, rest = split(3, 9)
assert [sms(each) for each in groups] == [(10, 2, 2)] * 3 and sms(rest)[0] == 14
assert refused(d.cuDevSmResourceSplitByCount(1, all_of(), 2, 8)) == "INVALID_VALUE", "clusters came with 9.0"
""",
        cc=(8, 6),
    )


def test_groups_are_split_into_the_described_sizes() -> None:
    many(
        """
def described(*wanted):
    made = []
    for count, together, flags in wanted:
        made.append(d.CU_DEV_SM_RESOURCE_GROUP_PARAMS())
        made[-1].smCount, made[-1].coscheduledSmCount, made[-1].flags = count, together, flags
    return made
def parted(*wanted):
    return ok(d.cuDevSmResourceSplit(len(wanted), all_of(), 0, described(*wanted)))
def unparted(*wanted):
    return refused(d.cuDevSmResourceSplit(len(wanted), all_of(), 0, described(*wanted)))
groups, rest = parted((10, 2, 0), (8, 4, 0), (0, 0, 0))
assert [sms(each) for each in groups] == [(10, 2, 2), (8, 4, 4), (24, 8, 8)] and sms(rest)[0] == 2
groups, rest = parted((8, 4, 0), (0, 2, 1))
assert [sms(each)[0] for each in groups] == [8, 36] and rest.type == Kind.CU_DEV_RESOURCE_TYPE_INVALID
assert unparted((9, 0, 0)) == unparted((46, 2, 0)) == unparted((8, 34, 0)) == unparted((12, 8, 0)) == "INVALID_VALUE"
assert unparted((40, 8, 0), (8, 2, 0)) == unparted((44, 2, 0), (0, 2, 0)) == "INVALID_RESOURCE_CONFIGURATION"
assert unparted((8, 2, 2)) == "INVALID_RESOURCE_CONFIGURATION", "there is no locality domain"
"""
    )


def test_green_context_has_its_described_resources() -> None:
    many(
        """
(one, two), rest = split(2, 16)
assert refused(d.cuDevResourceGenerateDesc([one, split(2, 16)[0][0]], 2)) == "INVALID_RESOURCE_CONFIGURATION"
assert refused(d.cuDevResourceGenerateDesc([one, rest], 2)) == "INVALID_RESOURCE_CONFIGURATION", "aligned otherwise"
assert refused(d.cuDevResourceGenerateDesc([d.CUdevResource()], 1)) == "INVALID_RESOURCE_TYPE"
queues = ok(d.cuDeviceGetDevResource(device, CONFIG))
assert queues.wqConfig.wqConcurrencyLimit == 8 and int(queues.wqConfig.sharingScope) == 0
assert refused(d.cuDevResourceGenerateDesc([queues, queues], 2)) == "INVALID_RESOURCE_CONFIGURATION"
first, both = green(one, queues), green(one, two)
count = lambda made: sms(ok(d.cuGreenCtxGetDevResource(made, SM)))[0]
assert (count(first), count(both)) == (16, 32)
assert ok(d.cuGreenCtxGetDevResource(first, CONFIG)).wqConfig.wqConcurrencyLimit == 8
assert ok(d.cuGreenCtxGetDevResource(first, QUEUE)).type == QUEUE
assert sms(ok(d.cuStreamGetDevResource(stream_of(first), SM)))[0] == 16
assert sms(ok(d.cuStreamGetDevResource(0, SM)))[0] == 44
assert refused(d.cuStreamGetDevResource(0, CONFIG)) == "INVALID_RESOURCE_TYPE"
assert sms(ok(d.cuCtxGetDevResource(context, SM)))[0] == 44
assert sms(ok(d.cuCtxGetDevResource(ok(d.cuCtxFromGreenCtx(both)), SM)))[0] == 32
assert [sms(each)[0] for each in split(9, 16, of=ok(d.cuGreenCtxGetDevResource(both, SM)))[0]] == [16, 16]
assert ok(d.cuGreenCtxGetId(first)) != ok(d.cuGreenCtxGetId(both))
assert refused(d.cuGreenCtxGetId(d.CUgreenCtx(0))) == refused(d.cuCtxFromGreenCtx(d.CUgreenCtx(8))) == "INVALID_CONTEXT"
assert refused(d.cuGreenCtxCreate(d.CUdevResourceDesc(8), device, 1)) == "INVALID_VALUE"
assert refused(d.cuGreenCtxStreamCreate(first, 0, 0)) == "INVALID_VALUE", "only streams that wait for no other"
"""
    )


def test_work_in_its_streams_belongs_to_the_primary_context() -> None:
    many(
        PTX
        + """
made = green(split(1, 16)[0][0])
stream, mine = stream_of(made), ok(d.cuCtxFromGreenCtx(made))
ok(launch(stream))
assert total() == 3 * 1024
assert int(ok(d.cuStreamGetGreenCtx(stream))) == int(made) and int(ok(d.cuStreamGetGreenCtx(0))) == 0
assert int(ok(d.cuStreamGetCtx(stream))) == int(mine) != int(made)
assert [int(each) for each in ok(d.cuStreamGetCtx_v2(stream))] == [int(context), int(made)]
event = ok(d.cuEventCreate(0))
ok(d.cuEventRecord(event, stream)); ok(d.cuGreenCtxRecordEvent(made, event)); ok(d.cuGreenCtxWaitEvent(made, event))
ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
ok(launch(stream))
assert total() == 3 * 1024
graph = ok(d.cuStreamEndCapture(stream))
ok(d.cuGraphLaunch(ok(d.cuGraphInstantiate(graph, 0)), stream))
assert total() == 6 * 1024
# Blocks that wait for each other have its multiprocessors alone: 2 blocks of 1,024 threads on each.
assert refused(launch(stream, 33, d.cuLaunchCooperativeKernel)) == "COOPERATIVE_LAUNCH_TOO_LARGE"
ok(launch(stream, 32, d.cuLaunchCooperativeKernel)); ok(launch(0, 33, d.cuLaunchCooperativeKernel))
# The same with it as the thread's context.
ok(d.cuCtxPushCurrent(mine))
assert int(ok(d.cuCtxGetCurrent())) == int(mine) and ok(d.cuCtxGetFlags()) == 0
assert int(ok(d.cuStreamGetGreenCtx(0))) == int(made) and int(ok(d.cuStreamGetCtx(0))) == int(mine)
assert int(ok(d.cuStreamGetGreenCtx(ok(d.cuStreamCreate(0))))) == int(made)
assert refused(launch(0, 33, d.cuLaunchCooperativeKernel)) == "COOPERATIVE_LAUNCH_TOO_LARGE"
before = total()
ok(launch(0)); ok(d.cuCtxSynchronize()); ok(d.cuCtxSynchronize_v2(mine))
assert total() == before + 3 * 1024
kept = ok(d.cuMemAlloc(100))
ok(d.cuCtxPopCurrent()); ok(d.cuGreenCtxDestroy(made))
ok(d.cuMemsetD8(kept, 0, 100))
"""
    )


def test_failed_kernel_in_its_stream_fails_the_primary_context() -> None:
    many(
        PTX
        + """
made = green(split(1, 16)[0][0])
ok(d.cuCtxPushCurrent(ok(d.cuCtxFromGreenCtx(made))))
at = 8
launch(stream_of(made))
assert refused(d.cuCtxSynchronize()) == "ILLEGAL_ADDRESS"
ok(d.cuCtxPopCurrent())
assert refused(d.cuCtxSynchronize()) == "ILLEGAL_ADDRESS"
"""
    )


def test_streams_of_a_destroyed_context_can_only_be_destroyed() -> None:
    many(
        PTX
        + """
made = green(split(1, 16)[0][0])
stream, mine = stream_of(made), ok(d.cuCtxFromGreenCtx(made))
ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
assert refused(d.cuGreenCtxRecordEvent(made, ok(d.cuEventCreate(0)))) == "STREAM_CAPTURE_UNSUPPORTED"
ok(d.cuDevicePrimaryCtxRelease(device))
assert ok(d.cuDevicePrimaryCtxGetState(device))[1] == 1, "it holds the primary context"
context = ok(d.cuDevicePrimaryCtxRetain(device))
ok(d.cuCtxPushCurrent(mine))
ok(d.cuGreenCtxDestroy(made))
assert refused(d.cuCtxSynchronize()) == "CONTEXT_IS_DESTROYED"
ok(d.cuCtxPopCurrent())
assert refused(launch(stream)) == refused(d.cuStreamSynchronize(stream)) == "STREAM_DETACHED"
assert refused(d.cuStreamIsCapturing(stream)) == refused(d.cuMemsetD8Async(at, 0, 4, stream)) == "STREAM_DETACHED"
ok(d.cuStreamDestroy(stream))
assert refused(d.cuGreenCtxDestroy(made)) == refused(d.cuCtxPushCurrent(mine)) == "INVALID_CONTEXT"
# A reset of the device ends it, too.
made = green(split(1, 16)[0][0])
ok(d.cuDevicePrimaryCtxReset(device))
assert refused(d.cuCtxFromGreenCtx(made)) == "INVALID_CONTEXT"
"""
    )


def test_cuda_core_splits_the_device_and_launches_there() -> None:
    pytest.importorskip("cuda.core")
    python(
        """
import cuda.core
import cujit
import numpy as np
from cuda.core import ContextOptions, Device, SMResourceOptions, WorkqueueResourceOptions

device = Device()
device.set_current()
(first, second), rest = device.resources.sm.split(SMResourceOptions(count=(16, 8)))
assert (first.sm_count, second.sm_count, rest.sm_count) == (16, 8, 20)
queues = device.resources.workqueue
queues.configure(WorkqueueResourceOptions(sharing_scope="green_ctx_balanced", concurrency_limit=4))
context = device.create_context(ContextOptions(resources=[first, queues]))
assert context.is_green and context.resources.workqueue.concurrency_limit == 4
stream = context.create_stream()
assert stream.resources.sm.sm_count == 16
code = 'extern "C" __global__ void add(float *x) { atomicAdd(x, 1); }'
gpu = cujit.gpu()
x = gpu.zeros(1, np.float32)
cujit.jit(code, device=gpu)["add"][4, 32, 0, stream](x)
stream.sync()
assert x.numpy()[0] == 128
stream.close()
context.close()
""",
        EmulatorSettings(threads=44),
    )
