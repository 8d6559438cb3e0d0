// <c10/cuda/CUDAException.h> for NVRTC. Written by cujit.toolchain.std_headers.
#pragma once
#include <cujit/torch.h>
