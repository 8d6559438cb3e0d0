/* Numbers by their width, and the few words that the run-time is written with. */

#pragma once

#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t i8;
typedef int16_t i16;
typedef int32_t i32;
typedef int64_t i64;
typedef float f32;
typedef double f64;
typedef u32 flag; /* 0 or 1: _Bool would promise LLVM what others store */

#define INLINE static inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))
#define NORETURN __attribute__((noreturn, cold))

/* The same bits as another type of that size. */
#define AS(type, value) __builtin_bit_cast(type, value)
