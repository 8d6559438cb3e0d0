/* How the operands of a product of small matrices lie (struct Product is in native/structures.py).

   A *strip* is eight rows of a matrix over four steps of k: one vector of 32 lanes, in which lane 4 * g + j has the
   element of row g at step j. Every register of A (and, its columns taken for rows, of B) is one strip or a few
   neighbouring ones, whatever the shape of the instruction. *Columns* are a strip of B with its rows and steps
   exchanged: eight numbers for each step of k, those of columns 0, 2, 4, 6 and then those of 1, 3, 5, 7, as a lane of a
   quad computes two neighbours. Source: PTX ISA 9.1, "Matrix Fragments for mma…", where `groupID` is g and
   `threadID_in_group` the lane in the quad.

   Strips are numbers to compute with: f32 for every type of at most 32 bits (integers too: their products and sums over
   one instruction stay below 2 ** 24 and are exact), f64 for f64, and words for single bits. */

#pragma once

#include "launch.h"
#include "vectors.h"

/* Lane 4 * g + t gets element 4 * g + `of`, and element t of four. */
#define ROW(of, k) (k) + (of), (k) + (of), (k) + (of), (k) + (of)
#define ROWS(of) ROW(of, 0), ROW(of, 4), ROW(of, 8), ROW(of, 12), ROW(of, 16), ROW(of, 20), ROW(of, 24), ROW(of, 28)
#define SPREAD(type, x, of) ((type)__builtin_shufflevector(x, x, ROWS(of)))
#define FOUR 0, 1, 2, 3
#define REPEAT(type, x) ((type)__builtin_shufflevector(x, x, FOUR, FOUR, FOUR, FOUR, FOUR, FOUR, FOUR, FOUR))

/* What is done with both halves of every four columns. */
#define ALL(DO) DO(0, 0), DO(0, 1), DO(1, 0), DO(1, 1), DO(2, 0), DO(2, 1), DO(3, 0), DO(3, 1)

/* Eight lines of a matrix in shared memory that a descriptor of wgmma tells of: eight rows (of B columns) with 16 bytes of
   k; `across` turned. `at` is where the first would lie without a pattern, `width` how many chunks a pattern has.

   Straight is K-major: ((8,m),(T,2k)):((1T,SBO),(1,LBO)), or with a pattern ((8,m),(T,2k)):((nT,SBO),(1,T)). Across is
   MN-major: ((T,1,m),(8,k)):((1,T,SBO),(1T,LBO)), or ((T,n,m),(8,k)):((1,T,LBO),(nT,SBO)). Eight lines of 16 bytes
   are `line` bytes apart, in the places where the pattern puts them: Swizzle<n, 4, 3>, that is bits 7 on of an address
   are xored into bits 4 on; of patterns that do not begin at a multiple of their size, the base offset tells bits 7 to 9
   of where they do. Source: PTX ISA 9.1, "Strides", the table of canonical layouts; "Matrix Descriptor Format":
   addresses and strides are in units of 16 bytes; modes 1, 2 and 3 are patterns of 128, 64 and 32 bytes. */
struct Lines {
  u64 at, width, offset;
};

INLINE void find_lines(struct Lines *lines, u64 descriptor, u64 group, u64 chunk, flag across) {
  u64 mode = descriptor >> 62, width = mode ? 16 >> mode : 1;
  u64 leading = (descriptor >> 16 & 0x3fff) << 4, stride = (descriptor >> 32 & 0x3fff) << 4;
  u64 at = (descriptor & 0x3fff) << 4;
  if (across) {
    at += group % width * 16 + group / width * (mode ? leading : stride) + chunk * (mode ? stride : leading);
  } else {
    at += group * stride + chunk * (mode ? 16 : leading);
  }
  lines->at = at, lines->width = width, lines->offset = descriptor >> 49 & 7;
}

INLINE u64 offset_of_line(const struct Lines *lines, u32 row) {
  u64 at = lines->at + row * lines->width * 16;
  return at ^ (((at >> 7) - lines->offset) & (lines->width - 1)) << 4;
}
