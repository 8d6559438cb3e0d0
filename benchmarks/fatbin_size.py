"""What compressing a fatbin costs and saves: bytes, CPU to make it, and time to load it on a GPU, where there is one.

A fatbin of many instances for four architectures is made in each way that nvFatbin knows. Loads by
``cujit.load`` and by the driver alone are interleaved.
"""

from __future__ import annotations

import functools
import time
import zlib

from measure import medians

import cujit
from cujit.artifact import Artifact
from cujit.machine import all_devices

TEMPLATE = """
template <class T, int N> __global__ void scale(T *x, T a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    #pragma unroll
    for (int k = 0; k < N; ++k) if (i + k < n) x[i + k] = x[i + k] * a + x[(i * 7 + k) % n];
}
"""
ARCHES = ["sm_80", "sm_90", "sm_100", "sm_120"]
WAYS = ("default", "none", "speed", "balance", "size")
SIZES = (1, 20, 200)
ROUNDS = 15


def load_by_the_driver(fatbin: Artifact) -> None:
    """Load, find a kernel and unload, in the primary context of the first GPU."""
    from cuda.bindings import driver  # where there is a GPU

    if not int(driver.cuCtxGetCurrent()[1]):
        driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
    answers = [driver.cuModuleLoadData(fatbin.data)]
    answers.append(driver.cuModuleGetFunction(answers[0][1], next(iter(fatbin.names.values())).encode()))
    answers.append(driver.cuModuleUnload(answers[0][1]))
    assert not any(int(answer[0]) for answer in answers), answers


def main() -> None:
    """Make, weigh and load each."""
    device = all_devices()[0]
    print(f"instances  compress      bytes   deflated  make ms  load ms  driver   on {device.product}")
    for count in SIZES:
        names = [f"scale<{kind}, {n}>" for n in range(1, count // 2 + 2) for kind in ("float", "double")][:count]
        images = [cujit.compile(TEMPLATE, arch=arch, names=names) for arch in ARCHES]
        fatbins, making = {}, {}
        for way in WAYS:
            start = time.process_time()
            fatbins[way] = cujit.bundle(images, compress=way, cache=False)
            making[way] = time.process_time() - start
        loading = {}
        if device.is_gpu:
            loads = {way: (lambda f=fatbin: cujit.load(f, device).close()) for way, fatbin in fatbins.items()}
            alone = {f"{way} alone": functools.partial(load_by_the_driver, f) for way, f in fatbins.items()}
            loading = medians({**loads, **alone}, ROUNDS)
        for way, fatbin in fatbins.items():
            data = fatbin.data
            load = f"{1e3 * loading[way]:8.3f} {1e3 * loading[f'{way} alone']:7.3f}" if loading else "       -"
            size, deflated = len(data), len(zlib.compress(data, 9))
            print(f"{count:9} {way:>9} {size:10,} {deflated:10,} {1e3 * making[way]:8.1f} {load}", flush=True)


if __name__ == "__main__":
    main()
