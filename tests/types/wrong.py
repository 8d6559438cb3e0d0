"""Code of a user with a mistake in each line that ends with ``# wrong``."""

import numpy as np

import cujit

device = cujit.cpu()
kernel = cujit.jit("", device=device)["f"]
x = device.array(np.ones(32, np.float32))
cujit.jit("", devcie="cpu")  # wrong
cujit.jit("", std="c++71")  # wrong
cujit.jit("", lineinfo="yes")  # wrong
cujit.compile("", name_expressions=["f<float>"])  # wrong
cujit.compile("", arch=90)  # wrong
cujit.compile("", maxregcount=64)  # wrong
cujit.compile("", define=["N=4"])  # wrong
cujit.build("", target="sm_90")  # wrong
cujit.link([], opt_level="3")  # wrong
cujit.Options(standard="c++17")  # wrong
kernel[1, "32"](x, 32)  # wrong
kernel[1](x, 32)  # wrong
kernel[1, 32, "1024"](x, 32)  # wrong
kernel.ovr(32)(x, 32)  # wrong
kernel.over("32")(x, 32)  # wrong
kernel.prepare(1, 32, shared=1024)(x, 32)  # wrong
x.get()  # wrong
cujit.RawKernel("", "f")  # wrong
