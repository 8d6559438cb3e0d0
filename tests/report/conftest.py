"""Reports of two transposes: one whose store scatters, and one through shared memory that meets in banks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cujit
import cujit.profile
import cujit.report
from browsing import browser, visit

__all__ = ["browser", "visit"]

SLOW = """extern "C" __global__ void transpose(const float *x, float *y, int n) {
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    y[column * n + row] = x[row * n + column];
}
"""
SHARED = """extern "C" __global__ void transpose(const float *x, float *y, int n) {
    __shared__ float s[32][32];
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    s[threadIdx.y][threadIdx.x] = 1.5f * x[row * n + column];
    __syncthreads();
    y[(blockIdx.x * 32 + threadIdx.y) * n + blockIdx.y * 32 + threadIdx.x] = s[threadIdx.x][threadIdx.y];
}
"""
N = 64


def reported(code: str, name: str, kernel: str = "transpose") -> cujit.report.ReportPage:
    """Profile a transpose, and report it on an H200."""
    profile = cujit.profile.Profile()
    device = cujit.cpu(profile=profile)
    module = cujit.jit(code, device=device, name=name)
    x, y = device.array(np.ones((N, N), np.float32)), device.zeros((N, N), np.float32)
    module[kernel][(N // 32, N // 32), (32, 32)](x, y, N)
    return cujit.report.of(module, profile=profile.kernels[0], on="H200")


@pytest.fixture(scope="session")
def slow() -> cujit.report.ReportPage:
    return reported(SLOW, "slow.cu")


@pytest.fixture(scope="session")
def shared() -> cujit.report.ReportPage:
    return reported(SHARED, "shared.cu")


@pytest.fixture(scope="session")
def shared_page(shared: cujit.report.ReportPage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "shared.html"
    path.write_text(shared.html())
    return path


@pytest.fixture(scope="session")
def slow_page(slow: cujit.report.ReportPage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "slow.html"
    path.write_text(slow.html())
    return path
