// <cuda.h> for NVRTC. Written by cujit.toolchain.std_headers.
#pragma once
typedef struct alignas(64) CUtensorMap_st { unsigned long long opaque[16]; } CUtensorMap;
#ifndef CUDA_VERSION
#define CUDA_VERSION CUDART_VERSION
#endif
