/* Eight rows of 16 bytes, which are one register. */

#pragma once

#include "vectors.h"

/* Transpose eight rows of eight halves: by twos, fours and eights. */
static void turn(u16x8 rows[8]) {
  u16x8 pairs[8], fours[8];
  for (u32 k = 0; k < 8; k += 2) {
    pairs[k] = __builtin_shufflevector(rows[k], rows[k + 1], 0, 8, 1, 9, 2, 10, 3, 11);
    pairs[k + 1] = __builtin_shufflevector(rows[k], rows[k + 1], 4, 12, 5, 13, 6, 14, 7, 15);
  }
  for (u32 k = 0; k < 8; k += 2) {
    u32 own = (k & 4) + (k >> 1 & 1);
    fours[k] = __builtin_shufflevector(pairs[own], pairs[own + 2], 0, 1, 8, 9, 2, 3, 10, 11);
    fours[k + 1] = __builtin_shufflevector(pairs[own], pairs[own + 2], 4, 5, 12, 13, 6, 7, 14, 15);
  }
  for (u32 k = 0; k < 8; k += 2) {
    rows[k] = __builtin_shufflevector(fours[k / 2], fours[k / 2 + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    rows[k + 1] = __builtin_shufflevector(fours[k / 2], fours[k / 2 + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}
