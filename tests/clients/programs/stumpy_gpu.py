"""stumpy: matrix profiles by its functions for GPUs equal those of the processor."""

import numpy as np
import stumpy

series = np.random.default_rng(3).random(300)
other = np.random.default_rng(4).random(250)
for gpu, cpu, arguments in (
    (stumpy.gpu_stump, stumpy.stump, (series, 20)),
    (stumpy.gpu_stump, stumpy.stump, (series, 20, other, False)),
    (stumpy.gpu_aamp, stumpy.aamp, (series, 20)),
):
    np.testing.assert_allclose(
        np.asarray(gpu(*arguments)[:, :2], float), np.asarray(cpu(*arguments)[:, :2], float), rtol=1e-6, atol=1e-6
    )
