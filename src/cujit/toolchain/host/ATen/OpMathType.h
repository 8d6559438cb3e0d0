// <ATen/OpMathType.h> for NVRTC. Written by cujit.toolchain.std_headers.
#pragma once
#include <cujit/torch.h>
