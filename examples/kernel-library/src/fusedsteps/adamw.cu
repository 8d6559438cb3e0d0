// One thread for each parameter.
template <typename T>
__global__ void adamw(T *parameter, const T *gradient, T *mean, T *square, size_t size, T rate, T beta_1, T beta_2,
                      T epsilon, T decay, T correction_1, T correction_2)
{
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= size)
        return;
    const T m = mean[i] = beta_1 * mean[i] + (1 - beta_1) * gradient[i];
    const T v = square[i] = beta_2 * square[i] + (1 - beta_2) * gradient[i] * gradient[i];
    const T p = parameter[i] * (1 - rate * decay);
    parameter[i] = p - rate * (m / correction_1) / (sqrt(v / correction_2) + epsilon);
}
