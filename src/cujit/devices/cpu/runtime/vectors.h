/* A number for each lane of a warp. */

#pragma once

#include "words.h"

#define VECTOR(type, count) __attribute__((ext_vector_type(count), aligned(sizeof(type) * count))) type
typedef VECTOR(u8, 4) u8x4;
typedef VECTOR(u8, 32) u8x32;
typedef VECTOR(u8, 64) u8x64;
typedef VECTOR(u16, 8) u16x8;
typedef VECTOR(u16, 32) u16x32;
typedef VECTOR(u32, 2) u32x2;
typedef VECTOR(u32, 4) u32x4;
typedef VECTOR(u32, 32) u32x32;
typedef VECTOR(i32, 32) i32x32;
typedef VECTOR(u64, 16) u64x16;
typedef VECTOR(u64, 32) u64x32;
typedef VECTOR(i64, 32) i64x32;
typedef VECTOR(_Float16, 32) f16x32;
typedef VECTOR(f32, 4) f32x4;
typedef VECTOR(f32, 8) f32x8;
typedef VECTOR(f32, 32) f32x32;
typedef VECTOR(f64, 4) f64x4;
typedef VECTOR(f64, 8) f64x8;
typedef VECTOR(f64, 32) f64x32;
