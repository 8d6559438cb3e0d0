import numpy as np
import pytest

import softrows


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_softmax(device, dtype):
    x = np.random.default_rng(7).normal(size=(3, 200)).astype(dtype)
    got = softrows.softmax(device.array(x)).numpy()
    wanted = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    assert np.allclose(got, wanted, rtol=1e-5)
