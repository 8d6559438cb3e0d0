// <stdlib.h> for NVRTC. Written by cujit.toolchain.std_headers.
#pragma once
#pragma nv_diagnostic push
#pragma nv_diag_suppress 47, 1046, 1444
#include <cuda/std/cstddef>
#pragma nv_diagnostic pop
#define EXIT_SUCCESS 0
#define EXIT_FAILURE 1
__device__ inline void exit(int) { __trap(); }
__device__ inline void abort() { __trap(); }
