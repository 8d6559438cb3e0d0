// <stdio.h> for NVRTC. Written by cujit.toolchain.std_headers.
#pragma once
#define stdout ((void*)0)
#define stderr ((void*)0)
template <class... T> __device__ inline int fprintf(void*, const char*, T...) { return 0; }
__device__ inline int fflush(void*) { return 0; }
