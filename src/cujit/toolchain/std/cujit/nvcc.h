// <cujit/nvcc.h> for NVRTC. Written by cujit.toolchain.std_headers.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <limits.h>
#include <float.h>
#include <math.h>
#define __asm__ asm
#define __asm asm
#define __volatile__ volatile
#define __volatile volatile
#define __extension__
#define __inline inline
#define __const const
#define __signed__ signed
#define __typeof__(x) cujit_typeof<decltype(x)>::type
#define typeof(x) cujit_typeof<decltype(x)>::type
template <class T> struct cujit_typeof { using type = T; };
template <class T> struct cujit_typeof<T &> { using type = T; };
template <class T> struct cujit_typeof<T &&> { using type = T; };
typedef unsigned char u_char;
typedef unsigned short ushort, u_short;
typedef unsigned int uint, u_int;
typedef unsigned long ulong, u_long;
typedef unsigned char u_int8_t;
typedef unsigned short u_int16_t;
typedef unsigned int u_int32_t;
typedef long ssize_t;
#ifndef offsetof
#define offsetof(type, member) __builtin_offsetof(type, member)
#endif
#ifndef RAND_MAX
#define RAND_MAX 2147483647
#endif
template <class T> constexpr __device__ __forceinline__ int cujit_ctz(T x) {
    if (!__builtin_is_constant_evaluated()) return sizeof(T) > 4 ? __ffsll((long long)x) - 1 : __ffs((int)x) - 1;
    int n = 0;
    for (; x && !(x & 1); x >>= 1) ++n;
    return n;
}
template <class T> constexpr __device__ __forceinline__ int cujit_clz(T x) {
    if (!__builtin_is_constant_evaluated()) return sizeof(T) > 4 ? __clzll((long long)x) : __clz((int)x);
    int n = 0;
    for (n = (int)sizeof(T) * 8; x; x >>= 1) --n;
    return n;
}
template <class T> constexpr __device__ __forceinline__ int cujit_popcount(T x) {
    if (!__builtin_is_constant_evaluated()) return sizeof(T) > 4 ? __popcll(x) : __popc((unsigned)x);
    int n = 0;
    for (; x; x &= x - 1) ++n;
    return n;
}
#define __builtin_ctz(x) cujit_ctz((unsigned)(x))
#define __builtin_ctzl(x) cujit_ctz((unsigned long long)(x))
#define __builtin_ctzll(x) cujit_ctz((unsigned long long)(x))
#define __builtin_clz(x) cujit_clz((unsigned)(x))
#define __builtin_clzl(x) cujit_clz((unsigned long long)(x))
#define __builtin_clzll(x) cujit_clz((unsigned long long)(x))
#define __builtin_popcount(x) cujit_popcount((unsigned)(x))
#define __builtin_popcountl(x) cujit_popcount((unsigned long long)(x))
#define __builtin_popcountll(x) cujit_popcount((unsigned long long)(x))
#define __builtin_parity(x) (cujit_popcount((unsigned)(x)) & 1)
#define __builtin_ffs(x) __ffs(x)
#define __builtin_ffsl(x) __ffsll(x)
#define __builtin_ffsll(x) __ffsll(x)
#define __builtin_bswap16(x) ((unsigned short)__byte_perm(x, 0, 0x4401))
#define __builtin_bswap32(x) __byte_perm(x, 0, 0x0123)
#define __builtin_trap() __trap()
#define __builtin_prefetch(...) ((void)0)
#define __builtin_inf() HUGE_VAL
#define __builtin_inff() HUGE_VALF
#define __builtin_huge_val() HUGE_VAL
#define __builtin_huge_valf() HUGE_VALF
#define __builtin_nan(x) ::nan(x)
#define __builtin_nanf(x) ::nanf(x)
#define __builtin_memcpy(...) ::memcpy(__VA_ARGS__)
#define __builtin_memset(...) ::memset(__VA_ARGS__)
#define __builtin_abs(...) ::abs(__VA_ARGS__)
#define __builtin_labs(...) ::labs(__VA_ARGS__)
#define __builtin_llabs(...) ::llabs(__VA_ARGS__)
#define __builtin_fabs(...) ::fabs(__VA_ARGS__)
#define __builtin_fabsf(...) ::fabsf(__VA_ARGS__)
#define __builtin_sqrt(...) ::sqrt(__VA_ARGS__)
#define __builtin_sqrtf(...) ::sqrtf(__VA_ARGS__)
#define __builtin_fma(...) ::fma(__VA_ARGS__)
#define __builtin_fmaf(...) ::fmaf(__VA_ARGS__)
#define __builtin_fmax(...) ::fmax(__VA_ARGS__)
#define __builtin_fmaxf(...) ::fmaxf(__VA_ARGS__)
#define __builtin_fmin(...) ::fmin(__VA_ARGS__)
#define __builtin_fminf(...) ::fminf(__VA_ARGS__)
#define __builtin_floor(...) ::floor(__VA_ARGS__)
#define __builtin_floorf(...) ::floorf(__VA_ARGS__)
#define __builtin_ceil(...) ::ceil(__VA_ARGS__)
#define __builtin_ceilf(...) ::ceilf(__VA_ARGS__)
#define __builtin_exp(...) ::exp(__VA_ARGS__)
#define __builtin_expf(...) ::expf(__VA_ARGS__)
#define __builtin_exp2(...) ::exp2(__VA_ARGS__)
#define __builtin_exp2f(...) ::exp2f(__VA_ARGS__)
#define __builtin_log(...) ::log(__VA_ARGS__)
#define __builtin_logf(...) ::logf(__VA_ARGS__)
#define __builtin_log2(...) ::log2(__VA_ARGS__)
#define __builtin_log2f(...) ::log2f(__VA_ARGS__)
#define __builtin_pow(...) ::pow(__VA_ARGS__)
#define __builtin_powf(...) ::powf(__VA_ARGS__)
#define __builtin_sin(...) ::sin(__VA_ARGS__)
#define __builtin_sinf(...) ::sinf(__VA_ARGS__)
#define __builtin_cos(...) ::cos(__VA_ARGS__)
#define __builtin_cosf(...) ::cosf(__VA_ARGS__)
#define __builtin_tanh(...) ::tanh(__VA_ARGS__)
#define __builtin_tanhf(...) ::tanhf(__VA_ARGS__)
#define __builtin_rint(...) ::rint(__VA_ARGS__)
#define __builtin_rintf(...) ::rintf(__VA_ARGS__)
#define __builtin_trunc(...) ::trunc(__VA_ARGS__)
#define __builtin_truncf(...) ::truncf(__VA_ARGS__)
#define __builtin_round(...) ::round(__VA_ARGS__)
#define __builtin_roundf(...) ::roundf(__VA_ARGS__)
