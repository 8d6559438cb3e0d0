/* Copies between tensors in global memory and boxes in shared memory (TMA), and those of bulk copies that go byte by byte
   or element by element. PTX ISA 9.1, 5.5 "Tensors".

   A box is walked by its rows. Addresses are numbers here, for they may lie outside of what there is. */

#include "launch.h"

/* Bytes that are copied at a time; a swizzle exchanges pieces of this size, and what goes out is cut at them. */
enum { PIECE = 16 };

/* Bits of a float's fraction that TF32 does not have. What a load of TF32 makes of every NaN, and bytes, in turn, of the
   NaNs that lie outside of a tensor, whatever their type. Source: measured on an H200. */
enum { TF32_DROPS = 13, TF32_NAN = 0x7fffe000 };
static const u8 FILL[2] = {0xf7, 0x7f};

/* What is done with an element at an address of global memory, and one in shared memory. */
typedef void Apply(u64 there, u64 here);

/* A box at `shared`; `origin` is where the shared memory of the cluster begins. `first` is where it begins in the tensor,
   and `offsets` are those of im2col mode. */
struct Box {
  const struct TensorMap *map;
  u64 shared, origin;
  u32 rank;
  flag im2col;
  i64 first[5], offsets[3];
  u64 counts[5], sizes[5], steps[5];
  u64 element, mask, row_bytes, pitch, rows, limit;
};

INLINE u64 least(u64 x, u64 y) { return x < y ? x : y; }

/* Tell how large the box is, and where what may be written ends: behind the last element where nothing behind it is the
   array's. In tiles, every `step`th element along an axis counts, but along the innermost one every element is taken;
   in im2col mode a box has channels and pixels. Sources: PTX ISA 9.1, 5.5.3.2 "Traversal-Stride", 5.5.4 "im2col mode";
   5.5.6 "Swizzling Modes": bits 4 and up of an address change with bits 7 and up, one for 32 bytes, two for 64, three
   for 128. That a row takes the whole span of a swizzle was measured on an H200. */
static void measure(struct Box *x, const i32 *coords) {
  const struct TensorMap *map = x->map;
  x->element = map->element_bytes;
  x->mask = 0x70301000 >> (map->swizzle & 3) * 8 & 0x70;
  x->limit = map->global_address;
  x->rows = 1;
  for (u32 k = 0; k < x->rank; k++) {
    x->first[k] = coords[k];
    x->sizes[k] = map->sizes[k] ? map->sizes[k] : 1ull << 32;
    x->steps[k] = map->element_strides[k] ? map->element_strides[k] : 1;
    x->counts[k] = map->box[k];
    if (k && !x->im2col) x->counts[k] = (x->counts[k] + x->steps[k] - 1) / x->steps[k];
    if (k && !(x->im2col && k > 1)) x->rows *= x->counts[k];
    x->limit += k ? (x->sizes[k] - 1) * map->strides[k - 1] : x->sizes[k] * x->element;
  }
  for (u32 k = 0; k + 2 < x->rank && x->im2col; k++) x->offsets[k] = coords[x->rank + k];
  x->row_bytes = x->counts[0] * x->element;
  x->pitch = x->mask + PIECE > x->row_bytes ? x->mask + PIECE : x->row_bytes;
  if (!(map->mark >> 63)) x->limit = ~0ull;
}

/* The address in shared memory of a byte of the box. */
INLINE u64 place(const struct Box *x, u64 offset) {
  u64 at = x->shared + offset - x->origin;
  return (at ^ (at >> 3 & x->mask)) + x->origin;
}

/* Where element 0 of a row lies, and whether the row is in the tensor. An index below zero is very large. */
static flag find_row(const struct Box *x, u64 number, const i64 *pixel, u64 *address) {
  flag inside = 1;
  *address = x->map->global_address;
  for (u32 k = 1; k < x->rank; k++) {
    u64 at;
    if (x->im2col) {
      at = (u64)(pixel[k] + (k < x->rank - 1 ? x->offsets[k - 1] : 0));
    } else {
      at = (u64)x->first[k] + number % x->counts[k] * x->steps[k];
      number /= x->counts[k];
    }
    *address += at * x->map->strides[k - 1];
    inside &= at < x->sizes[k];
  }
  return inside;
}

/* From pixel to pixel: along W, H, D and then N; what an axis does not have any more the next one gets. */
static void next_pixel(const struct Box *x, i64 *pixel) {
  for (u32 k = 1; k < x->rank - 1; k++) {
    pixel[k] += (i64)x->steps[k];
    if (pixel[k] < (i64)x->sizes[k] + x->map->upper[k - 1]) return;
    pixel[k] = x->map->lower[k - 1];
  }
  pixel[x->rank - 1]++;
}

/* What goes out to a piece that begins in the tensor's row goes to all of it. Source: measured on an H200. */
INLINE u64 end_of_pieces(const struct Box *x) { return (x->sizes[0] * x->element + PIECE - 1) & -(u64)PIECE; }

/* Round the numbers of a piece that are in the tensor to TF32. Source: PTX ISA 9.1, 5.5.1 "Tensor Dimension, size and
   format": rounded to nearest even. */
static void round_piece(u32 *piece, u64 at, u64 end) {
  for (u32 k = 0; k < PIECE / 4; k++) {
    u32 x = piece[k], half = (x >> TF32_DROPS & 1) + (1 << (TF32_DROPS - 1)) - 1;
    u32 rounded = (x & 0x7fffffff) > 0x7f800000 ? TF32_NAN : (x + half) & -(1u << TF32_DROPS);
    if (at + 4 * k < end) piece[k] = rounded;
  }
}

/* A piece byte by byte, the first of which is the `at`th of the tensor's row; what a load finds outside is filled. */
static void copy_bytes(const struct Box *x, u64 there, u8 *here, u64 at, u64 end, u64 count, flag inward) {
  for (u64 k = 0; k < count; k++) {
    flag is_in = at + k < end && (inward || there + k < x->limit);
    if (inward) {
      here[k] = is_in ? ((const u8 *)there)[k] : x->map->fill ? FILL[k & 1] : 0;
    } else if (is_in) {
      ((u8 *)there)[k] = here[k];
    }
  }
}

/* Copy a row in pieces: whole where the piece is in the tensor, else byte by byte. */
static void copy_row(const struct Box *x, u64 row, u64 address, flag inside, flag inward) {
  u64 begin = (u64)x->first[0] * x->element, end = !inside ? 0 : inward ? x->sizes[0] * x->element : end_of_pieces(x);
  flag rounds = ROUNDED >> (x->map->element & 31) & 1;
  for (u64 offset = 0; offset < x->row_bytes; offset += PIECE) {
    u64 at = begin + offset, there = address + at, left = x->row_bytes - offset;
    u8 *here = (u8 *)place(x, row * x->pitch + offset);
    if (at < end && at + PIECE <= end && left >= PIECE && (inward || there + PIECE <= x->limit)) {
      __builtin_memcpy(inward ? here : (u8 *)there, inward ? (u8 *)there : here, PIECE);
    } else {
      copy_bytes(x, there, here, at, end, least(left, PIECE), inward);
    }
    if (inward && rounds) round_piece((u32 *)here, at, end);
  }
}

/* Reduce the elements of a row that are in the tensor's pieces. */
static void reduce_row(const struct Box *x, u64 row, u64 address, flag inside, Apply *apply) {
  u64 bytes = ELEMENT_BYTES[x->map->element], end = inside ? end_of_pieces(x) : 0;
  for (u64 k = 0; k < x->counts[0]; k++) {
    u64 at = ((u64)x->first[0] + k) * bytes;
    if (at < end && address + at < x->limit) apply(address + at, place(x, row * x->pitch + k * bytes));
  }
}

/* -- what kernels call: for one lane ------------------------------------------------------------------------------- */

/* Copy a box inward or outward, or reduce it by what `reductions` has for the type of the elements; give its bytes.
   After the coordinates come the offsets of im2col mode. */
u64 cujit_tensor_copy(const struct TensorMap *map, u64 shared, u64 origin, const i32 *coords, u32 rank, flag im2col,
                      flag inward, Apply *const *reductions) {
  struct Box box;
  box.map = map, box.shared = shared, box.origin = origin, box.rank = rank, box.im2col = im2col;
  measure(&box, coords);
  i64 pixel[5];
  for (u32 k = 0; k < rank; k++) pixel[k] = box.first[k];
  for (u64 row = 0; row < box.rows; row++) {
    u64 address;
    flag inside = find_row(&box, row, pixel, &address);
    if (reductions) {
      reduce_row(&box, row, address, inside, reductions[map->element]);
    } else {
      copy_row(&box, row, address, inside, inward);
    }
    if (im2col) next_pixel(&box, pixel);
  }
  return box.rows * box.row_bytes;
}

/* How many bytes of shared memory a box has. */
u64 cujit_tensor_box_bytes(const struct TensorMap *map, const i32 *coords, u32 rank, flag im2col) {
  struct Box box;
  box.map = map, box.rank = rank, box.im2col = im2col;
  measure(&box, coords);
  return box.rows * box.pitch;
}

/* Call `visit` for each range of a box: of bytes in the tensor and of bytes in shared memory, either of which may be none.
   Outside of a tensor nothing is read or written there. */
void cujit_tensor_walk(const struct TensorMap *map, u64 shared, u64 origin, const i32 *coords, u32 rank, flag im2col,
                       flag inward, Visit *visit, void *context) {
  struct Box box;
  box.map = map, box.shared = shared, box.origin = origin, box.rank = rank, box.im2col = im2col;
  measure(&box, coords);
  i64 pixel[5], element = (i64)box.element;
  for (u32 k = 0; k < rank; k++) pixel[k] = box.first[k];
  for (u64 row = 0; row < box.rows; row++) {
    u64 address;
    flag inside = find_row(&box, row, pixel, &address);
    i64 begin = box.first[0] * element, end = begin + (i64)box.row_bytes;
    i64 last = (i64)(inward ? box.sizes[0] * box.element : end_of_pieces(&box));
    begin = begin < 0 ? 0 : begin, end = end < last ? end : last;
    if (!inward && address + (u64)end > box.limit) end = (i64)(box.limit - address);
    u64 bytes = inside && begin < end ? (u64)(end - begin) : 0;
    if (box.pitch == box.row_bytes) {
      visit(context, address + (u64)begin, bytes, box.shared + row * box.pitch, box.row_bytes);
    } else {
      visit(context, address + (u64)begin, bytes, 0, 0);
      for (u64 offset = 0; offset < box.row_bytes; offset += PIECE) {
        visit(context, 0, 0, place(&box, row * box.pitch + offset), least(box.row_bytes - offset, PIECE));
      }
    }
    if (im2col) next_pixel(&box, pixel);
  }
}

/* Whether a map is none of ours, or not for an instruction that takes `types`, by their bits. */
u32 cujit_tensor_is_wrong(const struct TensorMap *map, u64 mark, u32 rank, u32 types) {
  return (map->mark & ~(1ull << 63)) != mark || map->last_dimension != rank - 1 || !(types >> (map->element & 31) & 1);
}

/* Where a box begins along the innermost axis that is not a multiple of 16 bytes; else 0. Source: PTX ISA 9.1, 5.5.3.1
   "Bounding Box"; measured on an H200, which ends it with an illegal instruction. */
u64 cujit_tensor_misplaced(const struct TensorMap *map, i32 first) {
  u64 begin = (u64)((i64)first * map->element_bytes);
  return (begin | map->global_address) & (PIECE - 1) ? map->global_address + begin : 0;
}

/* Of every 16 bytes, copy those whose bit is set. */
void cujit_bulk_bytes(u8 *to, const u8 *from, u32 size, u32 mask) {
  for (u32 k = 0; k < size; k++) {
    if (mask >> (k & 15) & 1) to[k] = from[k];
  }
}

/* Reduce so many bytes by elements of `step` bytes. */
void cujit_bulk_reduce(u64 to, u64 from, u32 size, u32 step, Apply *apply) {
  for (u64 at = 0; at + step <= size; at += step) apply(to + at, from + at);
}
