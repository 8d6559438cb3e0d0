// <stdlib.h> for NVRTC. Written by cujit.toolchain.std_headers.
#pragma once
#pragma nv_diagnostic push
#pragma nv_diag_suppress 47, 1046, 1444
#include <cuda/std/cstddef>
#pragma nv_diagnostic pop
