// <float.h> for NVRTC. Written by cujit.toolchain.std_headers.
#pragma once
#pragma nv_diagnostic push
#pragma nv_diag_suppress 47, 1046, 1444
#include <cuda/std/cfloat>
#pragma nv_diagnostic pop
#ifndef FLT_RADIX
#define FLT_RADIX 2
#endif
#ifndef FLT_DIG
#define FLT_DIG 6
#endif
#ifndef FLT_MANT_DIG
#define FLT_MANT_DIG 24
#endif
#ifndef FLT_MIN_EXP
#define FLT_MIN_EXP (-125)
#endif
#ifndef FLT_MAX_EXP
#define FLT_MAX_EXP 128
#endif
#ifndef FLT_MIN_10_EXP
#define FLT_MIN_10_EXP (-37)
#endif
#ifndef FLT_MAX_10_EXP
#define FLT_MAX_10_EXP 38
#endif
#ifndef FLT_MIN
#define FLT_MIN __builtin_bit_cast(float, 0x00800000)
#endif
#ifndef FLT_MAX
#define FLT_MAX __builtin_bit_cast(float, 0x7f7fffff)
#endif
#ifndef FLT_EPSILON
#define FLT_EPSILON __builtin_bit_cast(float, 0x34000000)
#endif
#ifndef DBL_DIG
#define DBL_DIG 15
#endif
#ifndef DBL_MANT_DIG
#define DBL_MANT_DIG 53
#endif
#ifndef DBL_MIN_EXP
#define DBL_MIN_EXP (-1021)
#endif
#ifndef DBL_MAX_EXP
#define DBL_MAX_EXP 1024
#endif
#ifndef DBL_MIN_10_EXP
#define DBL_MIN_10_EXP (-307)
#endif
#ifndef DBL_MAX_10_EXP
#define DBL_MAX_10_EXP 308
#endif
#ifndef DBL_MIN
#define DBL_MIN __builtin_bit_cast(double, 0x0010000000000000ULL)
#endif
#ifndef DBL_MAX
#define DBL_MAX __builtin_bit_cast(double, 0x7fefffffffffffffULL)
#endif
#ifndef DBL_EPSILON
#define DBL_EPSILON __builtin_bit_cast(double, 0x3cb0000000000000ULL)
#endif
