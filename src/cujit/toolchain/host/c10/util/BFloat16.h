// <c10/util/BFloat16.h> for NVRTC. Written by cujit.toolchain.std_headers.
#pragma once
#include <cujit/torch.h>
