/* What lanes of one warp do together where it is seldom enough to be a call. */

#include "launch.h"
#include "vectors.h"

INLINE u32 lanes_with(const u32 *values, u32 value) {
  u32 lanes = 0;
  for (u32 bit = 1; bit; bit <<= 1) lanes |= *values++ == value ? bit : 0;
  return lanes;
}

/* For each lane those of `lanes` that have the same value as it. */
void cujit_match_32(const u32x32 *values, u32 lanes, u32x32 *found) {
  u32x32 all = 0;
  const u32 *one = (const u32 *)values;
  for (u32 bit = 1; bit; bit <<= 1) all |= (u32x32)(*values == *one++) & (lanes & bit);
  *found = all;
}

void cujit_match_64(const u64x32 *values, u32 lanes, u32x32 *found) {
  u32x32 all = 0;
  const u64 *one = (const u64 *)values;
  for (u32 bit = 1; bit; bit <<= 1) {
    i64x32 same = *values == *one++;
    all |= __builtin_convertvector(same, u32x32) & (lanes & bit);
  }
  *found = all;
}

/* The lanes that wait and have, for the mask that they name, every lane of it that has not exited beside them. */
u32 cujit_ready(const u32 *members, u32 waiting, u32 live) {
  u32 ready = 0;
  for (u32 left = waiting; left;) {
    u32 named = members[__builtin_ctz(left)];
    u32 group = lanes_with(members, named) & waiting;
    if (!(named & live & ~group)) ready |= group;
    left &= ~group;
  }
  return ready;
}

/* Note where lanes wait for each other, if some do and there is room; give the count of places that are noted. */
u32 cujit_note(struct Meeting *places, u32 count, u32 room, u32 line, u32 lanes, u32 members) {
  if (!lanes || count >= room) return count;
  places[count] = (struct Meeting){line, lanes, members};
  return count + 1;
}
