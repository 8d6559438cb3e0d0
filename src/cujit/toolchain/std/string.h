// <string.h> for NVRTC. Written by cujit.toolchain.std_headers.
#pragma once
#if __has_include(<cuda/std/string_view>)
#pragma nv_diagnostic push
#pragma nv_diag_suppress 47, 1046, 1444
#include <cuda/std/cstring>
#pragma nv_diagnostic pop
using cuda::std::memchr;
using cuda::std::memcmp;
using cuda::std::memmove;
using cuda::std::strchr;
using cuda::std::strcmp;
using cuda::std::strcpy;
using cuda::std::strlen;
using cuda::std::strncmp;
using cuda::std::strncpy;
using cuda::std::strrchr;
#endif
