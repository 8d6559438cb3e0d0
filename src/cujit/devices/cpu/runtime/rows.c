/* Matrices on their way from and to memory.

   A matrix of eight rows of 16 bytes is one register: lane 4 * g + t has bytes 4 * t to 4 * t + 3 of row g. */

#include "launch.h"
#include "rows.h"

/* Load 16 codes of 6 or 4 bits, which are put into a byte each, or bytes. Source: PTX ISA 9.1, "ldmatrix", "Optional
   Decompression". */
static void unpack_row(u8 row[16], const u8 *from, u32 bits) {
  unsigned __int128 packed = 0;
  if (bits == 6) {
    __builtin_memcpy(&packed, from, 12);
  } else {
    __builtin_memcpy(&packed, from, 8);
  }
  for (u32 k = 0; k < 16; k++, packed >>= bits & 7) row[k] = (u8)packed & ((1u << (bits & 7)) - 1);
}

INLINE void load_row(u8 row[16], u64 address, u32 bits) {
  if (bits == 8) {
    __builtin_memcpy(row, (const u8 *)address, 16);
  } else {
    unpack_row(row, (const u8 *)address, bits);
  }
}

/* Lanes 8k to 8k + 7 have the addresses of the rows of matrix k. */
void cujit_matrix_load(u32x32 *to, const u64 *addresses, u32 count, u32 bits, flag turns) {
  for (u32 k = 0; k < count; k++) {
    u8 *rows = (u8 *)&to[k];
    for (u32 row = 0; row < 8; row++) load_row(rows + 16 * row, addresses[8 * k + row], bits);
    if (turns) turn((u16x8 *)rows);
  }
}

/* m16n16, bytes by columns: the first register has columns 0 to 7, the second the others. */
void cujit_matrix_load_columns(u8 *to, const u64 *addresses, u32 count, u32 bits) {
  for (u32 k = 0; k < 16 * count; k++) {
    u8 row[16];
    load_row(row, addresses[k], bits);
    for (u32 column = 0; column < 16; column++) to[k / 16 * 256 + column * 16 + k % 16] = row[column];
  }
}

/* The reverse of ldmatrix. Of bytes, the matrix has 16 rows of 8, and each column is stored as a row: lane 4 * g + t has
   of rows g (its bytes 0 and 1) and g + 8 (2 and 3) columns 2t and 2t + 1, as it has C of an mma.m16n8.
   Source: CUTLASS 4, copy_traits_sm100.hpp, SM100_U8x4_STSM_T; the manual has it in a picture. */
void cujit_matrix_store(const u32x32 *words, const u64 *addresses, u32 count, flag turns, flag by_bytes) {
  for (u32 k = 0; k < count; k++) {
    u32x32 rows = words[k];
    if (turns) turn((u16x8 *)&rows);
    for (u32 n = 0; n < 8; n++) {
      const u8 *own = (const u8 *)&rows;
      u8 row[16];
      for (u32 j = 0; j < 16; j++) row[j] = by_bytes ? own[4 * (4 * (j % 8) + n / 2) + n % 2 + 2 * (j / 8)] : own[16 * n + j];
      __builtin_memcpy((u8 *)addresses[8 * k + n], row, 16);
    }
  }
}

void cujit_matrix_turn(u32x32 *words) { turn((u16x8 *)words); }

/* Each function from here on is compiled twice, as code that loads and as code that stores. */
INLINE void copy(u8 *memory, u8 *own, u32 bytes, flag stores) {
  if (stores) {
    __builtin_memcpy(memory, own, bytes);
  } else {
    __builtin_memcpy(own, memory, bytes);
  }
}

/* Eight lines of so many cells, or with `sums` of eight, `along` bytes from one cell to the next. */
INLINE void move_cells(u8 *at, u64 along, u64 across, u8 *reg, u32 cells, u32 bytes, flag sums, flag stores) {
  for (u32 row = 0; row < 8; row++) {
    for (u32 k = 0; k < cells; k++) {
      u8 *own = reg + (sums ? k % 2 * 32 + 4 * row + k / 2 : row * cells + k) * bytes;
      copy(at + row * across + k * along, own, bytes, stores);
    }
  }
}

/* Eight lines of eight words, the even ones in the first register, the odd ones in the second. */
INLINE void move_pairs(u8 *at, u64 across, u32x4 *reg, flag stores) {
  for (u32 row = 0; row < 8; row++) {
    u32x4 own[2] = {__builtin_shufflevector(reg[row], reg[row + 8], 0, 4, 1, 5),
                    __builtin_shufflevector(reg[row], reg[row + 8], 2, 6, 3, 7)};
    copy(at + row * across, (u8 *)own, sizeof own, stores);
    if (stores) continue;
    reg[row] = __builtin_shufflevector(own[0], own[1], 0, 2, 4, 6);
    reg[row + 8] = __builtin_shufflevector(own[0], own[1], 1, 3, 5, 7);
  }
}

INLINE void move_block(u8 *at, u64 stride, u8 *reg, const struct Fragment *f, flag stores) {
  u32 bytes = f->bytes, line = f->block * bytes;
  if (f->sums && f->straight && bytes == 4) {
    move_pairs(at, stride, (u32x4 *)reg, stores);
  } else if (f->sums) {
    u64 along = f->straight ? bytes : stride, across = f->straight ? stride : bytes;
    if (bytes == 4) {
      move_cells(at, along, across, reg, 8, 4, 1, stores);
    } else {
      move_cells(at, along, across, reg, 8, 8, 1, stores);
    }
  } else if (f->straight && line == 16) {
    move_cells(at, 16, stride, reg, 1, 16, 0, stores);
  } else if (f->straight) {
    move_cells(at, 16, stride, reg, 2, 16, 0, stores);
  } else if (bytes == 2) {
    if (stores) turn((u16x8 *)reg);
    move_cells(at, 16, stride, reg, 1, 16, 0, stores);
    if (!stores) turn((u16x8 *)reg);
  } else if (bytes == 1) {
    move_cells(at, stride, 1, reg, 16, 1, 0, stores);
  } else if (bytes == 4) {
    move_cells(at, stride, 4, reg, 4, 4, 0, stores);
  } else {
    move_cells(at, stride, 8, reg, 4, 8, 0, stores);
  }
}

INLINE void move(const struct Fragment *f, u8 *at, u64 stride, u8 *regs, flag stores) {
  for (u32 line = 0; line < f->lines; line += 8 * f->halves) {
    for (u32 start = 0; start < f->width; start += f->block) {
      for (u32 half = 0; half < f->halves; half++, regs += 8 * f->block * f->bytes) {
        u64 down = line + 8 * half, along = start;
        u64 offset = f->straight ? down * stride + along * f->bytes : along * stride + down * f->bytes;
        move_block(at + offset, stride, regs, f, stores);
      }
    }
  }
}

void cujit_matrix_move(const struct Fragment *f, u8 *at, u64 stride, u8 *regs, flag stores) {
  if (stores) {
    move(f, at, stride, regs, 1);
  } else {
    move(f, at, stride, regs, 0);
  }
}
