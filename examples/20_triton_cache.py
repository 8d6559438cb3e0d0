"""Run a kernel from Triton's cache on the CPU device, and find its bug with checks."""

import json
import sys
from pathlib import Path

import numpy as np

import cujit

# Triton's own cache is ~/.triton/cache. This one has the softmax of one row per program, compiled for an H100.
folder = Path(sys.argv[1] if sys.argv[1:] else Path(__file__).with_name("triton-cache"))
(file,) = folder.glob("*/softmax.cubin")
about = json.loads(file.with_suffix(".json").read_text())

device = cujit.cpu(check="all")
module = cujit.load(file, device)
print(module.route)
softmax = module[about["name"]]
print(softmax.signature)  # the last two are Triton's own: scratch memory, which this kernel does not use

x = np.random.default_rng(0).standard_normal((8, 100), np.float32)
given, out = device.array(x), device.zeros(x.shape, np.float32)
launch = softmax.prepare(8, about["num_warps"] * about["warp_size"], shared_bytes=about["shared"])
launch(out, given, 100, 100, None, None)
e = np.exp(x - x.max(axis=1, keepdims=True))
np.testing.assert_allclose(out.numpy(), e / e.sum(axis=1, keepdims=True), rtol=1e-5)

try:
    launch(out, given, 101, 100, None, None)  # a stride that is too large
except cujit.errors.KernelFaultError as fault:
    print(fault)
    assert fault.kind == "memory"
else:
    raise AssertionError("no fault was found")
