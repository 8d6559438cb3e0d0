"""Add an RMS norm to PyTorch, forward and backward, with or without a GPU: ``python torch_operator.py``.

It needs torch. The same file runs on a laptop and in a training run; ``torch.compile`` takes the layer whole.
"""

import torch

import cujit.torch

SOURCE = """
// One block for each row; every thread adds up every blockDim.x-th element.
__device__ float sum(float mine) {
    __shared__ float parts[256];
    parts[threadIdx.x] = mine;
    for (int half = blockDim.x / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    }
    __syncthreads();
    float all = parts[0];
    __syncthreads();
    return all;
}

template <class T> __global__ void norm(const T *x, T *out, float *scales, int width, float eps) {
    const T *row = x + (size_t)blockIdx.x * width;
    float mine = 0;
    for (int i = threadIdx.x; i < width; i += blockDim.x) mine += (float)row[i] * (float)row[i];
    float scale = rsqrtf(sum(mine) / width + eps);
    for (int i = threadIdx.x; i < width; i += blockDim.x)
        out[(size_t)blockIdx.x * width + i] = T((float)row[i] * scale);
    if (!threadIdx.x) scales[blockIdx.x] = scale;
}

template <class T> __global__ void norm_back(const T *grad, const T *x, const float *scales, T *of_x, int width) {
    size_t at = (size_t)blockIdx.x * width;
    float mine = 0, scale = scales[blockIdx.x];
    for (int i = threadIdx.x; i < width; i += blockDim.x) mine += (float)grad[at + i] * (float)x[at + i];
    float along = sum(mine) * scale * scale / width;
    for (int i = threadIdx.x; i < width; i += blockDim.x)
        of_x[at + i] = T(scale * ((float)grad[at + i] - along * (float)x[at + i]));
}
"""


def rows(out: torch.Tensor, *_others: object) -> int:
    """Count the rows of the first output: one block each."""
    return out.numel() // out.shape[-1]


norm_back = cujit.torch.operator(
    "examples::norm_back",
    SOURCE,
    kernel="norm_back<{x}>",
    schema="(Tensor grad, Tensor x, Tensor scales) -> Tensor",
    outputs=lambda grad, x, scales: torch.empty_like(x),
    arguments=lambda of_x, grad, x, scales: (grad, x, scales, of_x, x.shape[-1]),
    grid=rows,
    block=256,
)


def keep(ctx: torch.autograd.function.FunctionCtx, inputs: tuple, output: tuple) -> None:
    """Keep what the way back needs; nobody goes back through the scales."""
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(inputs[0], output[1])


def back(ctx: torch.autograd.function.FunctionCtx, grad: torch.Tensor, _grad_of_scales: torch.Tensor) -> tuple:
    """Go back by the second kernel."""
    return norm_back(grad.contiguous(), *ctx.saved_tensors), None


norm = cujit.torch.operator(
    "examples::norm",
    SOURCE,
    kernel="norm<{x}>",
    schema="(Tensor x, float eps) -> (Tensor, Tensor)",
    outputs=lambda x, eps: (torch.empty_like(x), x.new_empty(x.shape[:-1], dtype=torch.float32)),
    arguments=lambda out, scales, x, eps: (x, out, scales, x.shape[-1], eps),
    grid=rows,
    block=256,
    setup_context=keep,
    backward=back,
)


def main() -> None:
    """Compare with torch's own, results and gradients."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    layer = torch.compile(lambda x: norm(x, 1e-6)[0], fullgraph=True)
    ours = torch.randn(64, 768, device=device, requires_grad=True)
    theirs = ours.detach().clone().requires_grad_()
    weights = torch.randn_like(theirs)
    for x, call in ((ours, layer), (theirs, lambda x: torch.nn.functional.rms_norm(x, (768,), eps=1e-6))):
        (call(x) * weights).sum().backward()
    assert ours.grad is not None
    assert theirs.grad is not None
    difference = max((layer(ours) - torch.nn.functional.rms_norm(theirs, (768,), eps=1e-6)).abs().max().item(),
                     (ours.grad - theirs.grad).abs().max().item())  # fmt: skip
    print(f"{device}: the largest difference from torch's, forth and back, is {difference:.1e}")
    assert difference < 1e-4


if __name__ == "__main__":
    main()
