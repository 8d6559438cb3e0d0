/* Which sectors of global memory a launch accesses at all: each row of instructions, each line of rows, and each block. */

#include "launch.h"

#include <stdlib.h>

#define SECTOR_SHIFT 5
#define SECTOR (1u << SECTOR_SHIFT)
#define LEAF_SHIFT 15
#define LEAF (1u << LEAF_SHIFT)
#define BRANCH (1u << 13)
#define ROOTS (1u << 14)
#define BITS 64
#define NOWHERE (~0ull) /* no number of a leaf */

/* Of 1 MiB of memory: one more than the block that accessed each sector last, and for each row that accesses any a bit
   for each sector that it does; null where it accesses none. */
struct Leaf {
  u32 stamps[LEAF];
  u64 *rows[];
};

/* Leaves by the number of the sector: 14, 13 and 15 bits. */
struct Tree {
  struct Leaf **roots[ROOTS];
};

/* Where an operation of a row marked sectors last: the stamps of a leaf, and the row's bits there. */
struct Marks {
  u32 *stamps;
  u64 *bits;
  u64 leaf;
  u32 row;
};

static struct Leaf *leaf_of(struct Tree *tree, u64 number, u64 rows) {
  struct Leaf ***branches = &tree->roots[number >> 13 & (ROOTS - 1)];
  if (!*branches) *branches = calloc(BRANCH, sizeof **branches);
  if (!*branches) return 0;
  struct Leaf **leaf = &(*branches)[number & (BRANCH - 1)];
  if (!*leaf) *leaf = calloc(1, sizeof **leaf + rows * sizeof *(*leaf)->rows);
  return *leaf;
}

/* Find the leaf where a row marks, and its bits there; tells whether there is memory for them. */
static flag turn_to(struct Tally *tally, struct Marks *marks, u64 number) {
  struct Leaf *leaf = leaf_of(tally->tree, number, tally->profiled->row_count);
  u64 **bits = leaf ? &leaf->rows[marks->row] : 0;
  if (bits && !*bits) *bits = calloc(LEAF / BITS, sizeof **bits);
  flag found = bits && *bits;
  marks->leaf = found ? number : NOWHERE;
  if (!found) tally->profiled->lost = 1;
  if (!found) return 0;
  marks->stamps = leaf->stamps;
  marks->bits = *bits;
  return 1;
}

/* An operation of a block accesses a sector of global memory. */
INLINE void mark(struct Tally *tally, struct Marks *marks, u64 sector, u32 stamp) {
  u64 number = sector >> LEAF_SHIFT, place = sector & (LEAF - 1);
  if (marks->leaf != number && !turn_to(tally, marks, number)) return;
  u32 *last = marks->stamps + place;
  marks->bits[place / BITS] |= 1ull << place % BITS;
  if (*last == stamp) return;
  *last = stamp;
  tally->block_sectors++;
}

/* The same of all sectors between two, and of these. */
INLINE void mark_all(struct Tally *tally, struct Marks *marks, u64 from, u64 to, u32 stamp) {
  for (u64 sector = from, count; sector <= to; sector += count) {
    u64 number = sector >> LEAF_SHIFT, place = sector & (LEAF - 1), at = place % BITS, fresh = 0;
    if (marks->leaf != number && !turn_to(tally, marks, number)) return;
    count = to - sector + 1 < BITS - at ? to - sector + 1 : BITS - at;
    u32 *last = marks->stamps + place;
    marks->bits[place / BITS] |= ~0ull >> (BITS - count) << at;
    for (u32 *end = last + count; last < end; last++) {
      if (*last == stamp) continue;
      *last = stamp;
      fresh++;
    }
    tally->block_sectors += fresh;
  }
}

/* -- the end of a launch -------------------------------------------------------------------------------------------- */

/* Move the bits of a row to others, or make them these where there are none. */
static void join(u64 **into, u64 *from) {
  if (!*into) {
    *into = from;
    return;
  }
  for (u32 k = 0; from && k < LEAF / BITS; k++) (*into)[k] |= from[k];
  free(from);
}

static void merge_leaf(struct Leaf *into, struct Leaf *from, u64 rows) {
  for (u32 k = 0; k < LEAF; k++) into->stamps[k] |= from->stamps[k];
  for (u64 row = 0; row < rows; row++) join(&into->rows[row], from->rows[row]);
  free(from);
}

/* Move what one tally knows of sectors to another. */
static void merge(struct Tree *into, struct Tree *from, u64 rows) {
  for (u32 root = 0; root < ROOTS; root++) {
    struct Leaf **branches = from->roots[root];
    if (!branches) continue;
    if (!into->roots[root]) {
      into->roots[root] = branches;
      continue;
    }
    for (u32 branch = 0; branch < BRANCH; branch++) {
      struct Leaf *leaf = branches[branch], **place = &into->roots[root][branch];
      if (leaf && *place) merge_leaf(*place, leaf, rows);
      else if (leaf) *place = leaf;
    }
    free(branches);
  }
}

static u64 bits_in(const u64 *bits) {
  u64 count = 0;
  for (u32 k = 0; bits && k < LEAF / BITS; k++) count += (u64)__builtin_popcountll(bits[k]);
  return count;
}

/* Count what is marked in a leaf, and release it. Rows of one line follow each other: each takes the bits of those before
   it along. */
static void clear_leaf(struct Leaf *leaf, struct Profiled *profiled) {
  for (u32 k = 0; k < LEAF; k++) profiled->sectors += leaf->stamps[k] != 0;
  for (u64 row = 0; row < profiled->row_count; row++) {
    u32 line = profiled->lines[row];
    profiled->row_sectors[row] += bits_in(leaf->rows[row]);
    if (row + 1 < profiled->row_count && profiled->lines[row + 1] == line) continue;
    u64 *all = 0;
    for (u64 k = row + 1; k > 0 && profiled->lines[k - 1] == line; k--) join(&all, leaf->rows[k - 1]);
    profiled->line_sectors[line] += bits_in(all);
    free(all);
  }
  free(leaf);
}

static void clear(struct Tree *tree, struct Profiled *profiled) {
  for (u32 root = 0; root < ROOTS; root++) {
    struct Leaf **branches = tree->roots[root];
    for (u32 branch = 0; branches && branch < BRANCH; branch++) {
      if (branches[branch]) clear_leaf(branches[branch], profiled);
    }
    free(branches);
  }
  free(tree);
}
