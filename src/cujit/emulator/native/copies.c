/* Copies and sets: every form becomes a plan, which is done now, or handed to who records a stream. */

#include "memory.h"

enum { HOST = 1, DEVICE = 2, ARRAY = 3, UNIFIED = 4 };

#define MAX_PITCH 0x7fffffffull

typedef struct CopyPlan Copy;
typedef struct SetPlan Set;
typedef void (*OnWrite)(u64, u64);
typedef void (*OnCopy)(u64, u64, u64);
typedef Answer (*OnCapture)(u64, const Copy *, const Set *);

/* -- the doing ------------------------------------------------------------------------------------------------------ */

static void written(u64 address, u64 bytes) {
  if (state.memory.on_write) ((OnWrite)state.memory.on_write)(address, bytes);
}

/* The bytes from the first to the last of a box; UINT64_MAX for more than there can be. */
static u64 reach(u64 width, u64 height, u64 depth, u64 pitch, u64 slice) {
  u64 rows, slices, sum;
  if (__builtin_mul_overflow(height - 1, pitch, &rows) || __builtin_mul_overflow(depth - 1, slice, &slices) ||
      __builtin_add_overflow(rows, slices, &sum) || __builtin_add_overflow(sum, width, &sum))
    return UINT64_MAX;
  return sum;
}

/* 1 where there is nothing that a copy would move. */
INLINE u32 empty(const Copy *plan) { return !plan->width || !plan->height || !plan->depth; }

/* Whether the bytes of a side are there; an array may have been destroyed since the copy was planned. */
static Answer is_there(u64 at, u64 bytes, u32 type, u64 handle) {
  if (type == ARRAY) {
    struct ArrayCell *array = (struct ArrayCell *)cell_of(handle, CELL_ARRAY);
    NEEDS(array, INVALID_HANDLE);
    NEEDS(at >= array->base && memory_holds(at, bytes, 0), INVALID_VALUE);
  } else NEEDS(memory_holds(at, bytes, type != DEVICE), INVALID_VALUE);
  return RESULT_SUCCESS;
}

/* Look at a copy; what it reads and writes has to be there. */
Answer cujit_copy_check(const Copy *plan) {
  if (empty(plan)) return RESULT_SUCCESS;
  u64 dst = reach(plan->width, plan->height, plan->depth, plan->dst_pitch, plan->dst_slice);
  u64 src = reach(plan->width, plan->height, plan->depth, plan->src_pitch, plan->src_slice);
  Answer answer = is_there(plan->dst, dst, plan->dst_type, plan->dst_array);
  return answer ? answer : is_there(plan->src, src, plan->src_type, plan->src_array);
}

void cujit_copy_run(const Copy *plan) {
  for (u64 z = 0; z < plan->depth; z++)
    for (u64 y = 0; y < plan->height; y++) {
      u64 dst = plan->dst + z * plan->dst_slice + y * plan->dst_pitch;
      u64 src = plan->src + z * plan->src_slice + y * plan->src_pitch;
      if (state.memory.on_copy) ((OnCopy)state.memory.on_copy)(dst, src, plan->width);
      memmove((void *)dst, (void *)src, plan->width);
    }
}

Answer cujit_set_check(const Set *plan) {
  if (!plan->width || !plan->height) return RESULT_SUCCESS;
  u64 row, bytes;
  NEEDS(plan->dst % plan->element == 0, INVALID_VALUE);
  NEEDS(!__builtin_mul_overflow(plan->width, (u64)plan->element, &row), INVALID_VALUE);
  NEEDS(plan->height == 1 || (plan->pitch >= row && plan->pitch % plan->element == 0), INVALID_VALUE);
  bytes = reach(row, plan->height, 1, plan->pitch, 0);
  NEEDS(memory_holds(plan->dst, bytes, 0), INVALID_VALUE);
  return RESULT_SUCCESS;
}

void cujit_set_run(const Set *plan) {
  for (u64 y = 0; y < plan->height; y++) {
    u64 row = plan->dst + y * plan->pitch;
    if (plan->element == 1) memset((void *)row, (int)plan->value, plan->width);
    else if (plan->element == 2)
      for (u64 x = 0; x < plan->width; x++) ((u16 *)row)[x] = (u16)plan->value;
    else
      for (u64 x = 0; x < plan->width; x++) ((u32 *)row)[x] = plan->value;
    written(row, plan->width * plan->element);
  }
}

/* Python answers while a stream is captured, or has this go on. */
static Answer captured(u64 stream, const Copy *copied, const Set *filled) {
  return state.capturing ? ((OnCapture)state.memory.on_capture)(stream, copied, filled) : GO_ON;
}

static Answer copy(const Copy *plan, u64 stream) {
  Answer answer = cujit_copy_check(plan);
  if (answer || (answer = captured(stream, plan, 0)) != GO_ON) return answer;
  NEEDS(memory_taken(plan->dst) && memory_taken(plan->src), INVALID_VALUE);
  cujit_copy_run(plan);
  return RESULT_SUCCESS;
}

/* -- lines ---------------------------------------------------------------------------------------------------------- */

static Answer line(u64 dst, u64 src, u64 bytes, u32 dst_type, u32 src_type, u64 stream) {
  ON_STREAM(context, stream);
  Copy plan = {.dst = dst, .src = src, .width = bytes, .height = 1, .depth = 1, .dst_type = dst_type, .src_type = src_type};
  return copy(&plan, stream);
}

#define LINE(name, dst_type, src_type)                                                                                 \
  Answer cujit_##name(u64 dst, u64 src, u64 bytes) { return line(dst, src, bytes, dst_type, src_type, 0); }            \
  Answer cujit_##name##_ptds(u64 dst, u64 src, u64 bytes) {                                                            \
    return line(dst, src, bytes, dst_type, src_type, STREAM_OWN);                                                      \
  }
#define LINE_ASYNC(name, dst_type, src_type)                                                                           \
  Answer cujit_##name(u64 dst, u64 src, u64 bytes, u64 stream) {                                                       \
    return line(dst, src, bytes, dst_type, src_type, stream);                                                          \
  }                                                                                                                    \
  Answer cujit_##name##_ptsz(u64 dst, u64 src, u64 bytes, u64 stream) {                                                \
    return line(dst, src, bytes, dst_type, src_type, own_stream(stream));                                              \
  }

LINE(cuMemcpy, UNIFIED, UNIFIED)
LINE(cuMemcpyHtoD_v2, DEVICE, HOST)
LINE(cuMemcpyDtoH_v2, HOST, DEVICE)
LINE(cuMemcpyDtoD_v2, DEVICE, DEVICE)
LINE_ASYNC(cuMemcpyAsync, UNIFIED, UNIFIED)
LINE_ASYNC(cuMemcpyHtoDAsync_v2, DEVICE, HOST)
LINE_ASYNC(cuMemcpyDtoHAsync_v2, HOST, DEVICE)
LINE_ASYNC(cuMemcpyDtoDAsync_v2, DEVICE, DEVICE)

Answer cujit_cuMemcpyPeerAsync(u64 dst, u64 to, u64 src, u64 from, u64 bytes, u64 stream) {
  READY();
  NEEDS(cell_of(to, CELL_CONTEXT) && cell_of(from, CELL_CONTEXT), INVALID_CONTEXT);
  return line(dst, src, bytes, DEVICE, DEVICE, stream);
}

Answer cujit_cuMemcpyPeer(u64 dst, u64 to, u64 src, u64 from, u64 bytes) {
  return cujit_cuMemcpyPeerAsync(dst, to, src, from, bytes, 0);
}

/* -- boxes ---------------------------------------------------------------------------------------------------------- */

/* Layouts of the manual: CUDA_MEMCPY3D, with the reserved words that are contexts for peers, and CUDA_MEMCPY2D. */
struct CopySide {
  u64 x, y, z, lod;
  u32 type;
  u64 host, device, array, reserved, pitch, height;
};

typedef struct CopyBox {
  struct CopySide src, dst;
  u64 width, height, depth;
} Box;

struct Side2D {
  u64 x, y;
  u32 type;
  u64 host, device, array, pitch;
};

struct Copy2D {
  struct Side2D src, dst;
  u64 width, height;
};

INLINE u32 lies_in(u64 begin, u64 count, u64 size) { return begin <= size && count <= size - begin; }

/* Where a side of an array begins. */
static Answer begin_array(const struct CopySide *side, const Box *box, u64 *at, u64 *pitch, u64 *slice) {
  struct ArrayCell *array = (struct ArrayCell *)cell_of(side->array, CELL_ARRAY);
  NEEDS(side->array, INVALID_VALUE);
  NEEDS(array, INVALID_HANDLE);
  u64 height = array->height ? array->height : 1, depth = array->depth ? array->depth : 1;
  NEEDS(lies_in(side->x, box->width, array->width * array->texel_bytes), INVALID_VALUE);
  NEEDS(lies_in(side->y, box->height, height) && lies_in(side->z, box->depth, depth), INVALID_VALUE);
  *pitch = array->row;
  *slice = array->slice;
  *at = array->base + side->z * *slice + side->y * *pitch + side->x;
  return RESULT_SUCCESS;
}

/* Where a side begins, and its pitch and slice; a pitch of 0 is that of rows without gaps. */
static Answer begin(const struct CopySide *side, const Box *box, u64 *at, u64 *pitch, u64 *slice) {
  NEEDS(side->type >= HOST && side->type <= UNIFIED && !side->lod, INVALID_VALUE);
  if (side->type == ARRAY) return begin_array(side, box, at, pitch, slice);
  NEEDS(side->pitch <= MAX_PITCH, INVALID_VALUE);
  NEEDS(!side->pitch || side->pitch >= box->width + side->x, INVALID_VALUE);
  NEEDS(!side->height || side->height >= box->height + side->y, INVALID_VALUE);
  *pitch = side->pitch ? side->pitch : box->width + side->x;
  u64 height = side->height ? side->height : box->height + side->y;
  NEEDS(!__builtin_mul_overflow(*pitch, height, slice), INVALID_VALUE);
  *at = (side->type == HOST ? side->host : side->device) + side->z * *slice + side->y * *pitch + side->x;
  return RESULT_SUCCESS;
}

/* Make the plan of a box. */
Answer cujit_copy_plan(const Box *box, Copy *plan) {
  NEEDS(box, INVALID_VALUE);
  *plan = (Copy){.width = box->width, .height = box->height, .depth = box->depth, .dst_type = box->dst.type,
                 .src_type = box->src.type, .dst_array = box->dst.array, .src_array = box->src.array};
  Answer answer = begin(&box->dst, box, &plan->dst, &plan->dst_pitch, &plan->dst_slice);
  return answer ? answer : begin(&box->src, box, &plan->src, &plan->src_pitch, &plan->src_slice);
}

static Answer box(const Box *box, u64 stream) {
  ON_STREAM(context, stream);
  Copy plan;
  Answer answer = cujit_copy_plan(box, &plan);
  return answer ? answer : copy(&plan, stream);
}

static Answer peers(const Box *said, u64 stream) {
  READY();
  NEEDS(said, INVALID_VALUE);
  NEEDS(cell_of(said->src.reserved, CELL_CONTEXT) && cell_of(said->dst.reserved, CELL_CONTEXT), INVALID_CONTEXT);
  return box(said, stream);
}

static struct CopySide deep(const struct Side2D *side) {
  return (struct CopySide){.x = side->x, .y = side->y, .type = side->type, .host = side->host, .device = side->device,
                         .array = side->array, .pitch = side->pitch};
}

static Answer rows(const struct Copy2D *said, u64 stream) {
  READY();
  NEEDS(said, INVALID_VALUE);
  Box deeper = {deep(&said->src), deep(&said->dst), said->width, said->height, 1};
  return box(&deeper, stream);
}

#define BOX(name, type, done)                                                                                          \
  Answer cujit_##name(const type *said) { return done(said, 0); }                                                      \
  Answer cujit_##name##_ptds(const type *said) { return done(said, STREAM_OWN); }
#define BOX_ASYNC(name, type, done)                                                                                    \
  Answer cujit_##name(const type *said, u64 stream) { return done(said, stream); }                                     \
  Answer cujit_##name##_ptsz(const type *said, u64 stream) { return done(said, own_stream(stream)); }

BOX(cuMemcpy2D_v2, struct Copy2D, rows)
BOX(cuMemcpy2DUnaligned_v2, struct Copy2D, rows)
BOX(cuMemcpy3D_v2, Box, box)
BOX(cuMemcpy3DPeer, Box, peers)
BOX_ASYNC(cuMemcpy2DAsync_v2, struct Copy2D, rows)
BOX_ASYNC(cuMemcpy3DAsync_v2, Box, box)
BOX_ASYNC(cuMemcpy3DPeerAsync, Box, peers)

/* -- lines of arrays ------------------------------------------------------------------------------------------------ */

static struct CopySide plain(u32 type, u64 at) { return (struct CopySide){.type = type, .host = at, .device = at}; }

static struct CopySide of_array(u64 array, u64 x) { return (struct CopySide){.type = ARRAY, .array = array, .x = x}; }

static Answer across(struct CopySide dst, struct CopySide src, u64 bytes, u64 stream) {
  Box said = {.src = src, .dst = dst, .width = bytes, .height = 1, .depth = 1};
  return box(&said, stream);
}

#define ACROSS(name, given, dst, src)                                                                                  \
  Answer cujit_##name given { return across(dst, src, bytes, 0); }                                                     \
  Answer cujit_##name##_ptds given { return across(dst, src, bytes, STREAM_OWN); }
#define ACROSS_ASYNC(name, given, dst, src)                                                                            \
  Answer cujit_##name given { return across(dst, src, bytes, stream); }                                                \
  Answer cujit_##name##_ptsz given { return across(dst, src, bytes, own_stream(stream)); }

ACROSS(cuMemcpyDtoA_v2, (u64 to, u64 x, u64 from, u64 bytes), of_array(to, x), plain(DEVICE, from))
ACROSS(cuMemcpyHtoA_v2, (u64 to, u64 x, u64 from, u64 bytes), of_array(to, x), plain(HOST, from))
ACROSS(cuMemcpyAtoD_v2, (u64 to, u64 from, u64 x, u64 bytes), plain(DEVICE, to), of_array(from, x))
ACROSS(cuMemcpyAtoH_v2, (u64 to, u64 from, u64 x, u64 bytes), plain(HOST, to), of_array(from, x))
ACROSS(cuMemcpyAtoA_v2, (u64 to, u64 at, u64 from, u64 x, u64 bytes), of_array(to, at), of_array(from, x))
ACROSS_ASYNC(cuMemcpyHtoAAsync_v2, (u64 to, u64 x, u64 from, u64 bytes, u64 stream), of_array(to, x), plain(HOST, from))
ACROSS_ASYNC(cuMemcpyAtoHAsync_v2, (u64 to, u64 from, u64 x, u64 bytes, u64 stream), plain(HOST, to), of_array(from, x))

/* -- several at once ------------------------------------------------------------------------------------------------ */

struct Location {
  u32 type;
  i32 id;
};

struct CopyAttributes {
  u32 order;
  struct Location src, dst;
  u32 flags;
};

INLINE u32 is_order(u32 order) { return order >= 1 && order <= 3; }

Answer cujit_cuMemcpyBatchAsync_v2(const u64 *dsts, const u64 *srcs, const u64 *sizes, u64 count,
                                   const struct CopyAttributes *attributes, const u64 *first, u64 kinds, u64 stream) {
  ON_STREAM(context, stream);
  NEEDS(dsts && srcs && sizes && count && attributes && first && kinds && kinds <= count, INVALID_VALUE);
  NEEDS(stream > 1, INVALID_VALUE); /* not the legacy default stream */
  for (u64 k = 0; k < kinds; k++) {
    NEEDS(is_order(attributes[k].order), INVALID_VALUE);
    NEEDS(k ? first[k] > first[k - 1] && first[k] < count : !first[0], INVALID_VALUE);
  }
  for (u64 k = 0; k < count; k++) NEEDS(dsts[k] && srcs[k] && sizes[k], INVALID_VALUE);
  for (u64 k = 0; k < count; k++) {
    Answer answer = line(dsts[k], srcs[k], sizes[k], UNIFIED, UNIFIED, stream);
    if (answer) return answer;
  }
  return RESULT_SUCCESS;
}

/* The form of CUDA 12.8 tells which copy failed. */
Answer cujit_cuMemcpyBatchAsync(const u64 *dsts, const u64 *srcs, const u64 *sizes, u64 count,
                                const struct CopyAttributes *attributes, const u64 *first, u64 kinds, u64 *failed,
                                u64 stream) {
  Answer answer = cujit_cuMemcpyBatchAsync_v2(dsts, srcs, sizes, count, attributes, first, kinds, stream);
  if (answer && failed) *failed = UINT64_MAX;
  return answer;
}

Answer cujit_cuMemcpyWithAttributesAsync(u64 dst, u64 src, u64 bytes, const struct CopyAttributes *attributes,
                                         u64 stream) {
  READY();
  NEEDS(attributes && is_order(attributes->order), INVALID_VALUE);
  return line(dst, src, bytes, UNIFIED, UNIFIED, stream);
}

struct Operand {
  u32 type;
  u64 address, row, layer;
  struct Location hint;
};

struct BatchCopy {
  struct Operand src, dst;
  u64 width, height, depth;
  u32 order, flags;
};

enum { OF_POINTER = 1, OF_ARRAY = 2 };

/* The bytes that an operand counts in: an array's elements. */
static u64 unit_of(const struct Operand *said) {
  struct ArrayCell *array = said->type == OF_ARRAY ? (struct ArrayCell *)cell_of(said->address, CELL_ARRAY) : 0;
  return array ? array->texel_bytes : 1;
}

/* An array is said by its handle, and x, y and z. */
static struct CopySide side_of(const struct Operand *said, u64 unit) {
  u64 z;
  memcpy(&z, &said->hint, sizeof z);
  if (said->type == OF_ARRAY)
    return (struct CopySide){.type = ARRAY, .array = said->address, .x = said->row * unit, .y = said->layer, .z = z};
  return (struct CopySide){.type = UNIFIED, .device = said->address, .pitch = said->row * unit, .height = said->layer};
}

static Answer one_of_batch(const struct BatchCopy *one, u64 stream) {
  NEEDS(one->src.type - 1 < OF_ARRAY && one->dst.type - 1 < OF_ARRAY, INVALID_VALUE);
  NEEDS(one->width && one->height && one->depth && is_order(one->order), INVALID_VALUE);
  u64 src = unit_of(&one->src), dst = unit_of(&one->dst), unit = src > dst ? src : dst;
  Box said = {side_of(&one->src, unit), side_of(&one->dst, unit), 0, one->height, one->depth};
  NEEDS(!__builtin_mul_overflow(one->width, unit, &said.width), INVALID_VALUE);
  return box(&said, stream);
}

Answer cujit_cuMemcpy3DBatchAsync_v2(u64 count, const struct BatchCopy *list, u64 flags, u64 stream) {
  ON_STREAM(context, stream);
  NEEDS(count && list && !flags && stream > 1, INVALID_VALUE);
  for (u64 k = 0; k < count; k++) {
    Answer answer = one_of_batch(list + k, stream);
    if (answer) return answer;
  }
  return RESULT_SUCCESS;
}

Answer cujit_cuMemcpy3DBatchAsync(u64 count, const struct BatchCopy *list, u64 *failed, u64 flags, u64 stream) {
  Answer answer = cujit_cuMemcpy3DBatchAsync_v2(count, list, flags, stream);
  if (answer && failed) *failed = UINT64_MAX;
  return answer;
}

Answer cujit_cuMemcpy3DWithAttributesAsync(const struct BatchCopy *one, u64 flags, u64 stream) {
  ON_STREAM(context, stream);
  NEEDS(one && !flags, INVALID_VALUE);
  return one_of_batch(one, stream);
}

/* -- sets ----------------------------------------------------------------------------------------------------------- */

static Answer fill(u64 dst, u64 pitch, u32 value, u32 element, u64 width, u64 height, u64 stream) {
  ON_STREAM(context, stream);
  Set plan = {.dst = dst, .pitch = pitch, .width = width, .height = height, .value = value, .element = element};
  Answer answer = cujit_set_check(&plan);
  if (answer || (answer = captured(stream, 0, &plan)) != GO_ON) return answer;
  NEEDS(memory_taken(dst), INVALID_VALUE);
  cujit_set_run(&plan);
  return RESULT_SUCCESS;
}

#define SETS(bits, type, row, row_async, rows, rows_async)                                                             \
  Answer cujit_##row(u64 dst, type value, u64 count) { return fill(dst, 0, value, bits / 8, count, 1, 0); }            \
  Answer cujit_##row##_ptds(u64 dst, type value, u64 count) {                                                          \
    return fill(dst, 0, value, bits / 8, count, 1, STREAM_OWN);                                                        \
  }                                                                                                                    \
  Answer cujit_##row_async(u64 dst, type value, u64 count, u64 stream) {                                               \
    return fill(dst, 0, value, bits / 8, count, 1, stream);                                                            \
  }                                                                                                                    \
  Answer cujit_##row_async##_ptsz(u64 dst, type value, u64 count, u64 stream) {                                        \
    return fill(dst, 0, value, bits / 8, count, 1, own_stream(stream));                                                \
  }                                                                                                                    \
  Answer cujit_##rows(u64 dst, u64 pitch, type value, u64 width, u64 height) {                                         \
    return fill(dst, pitch, value, bits / 8, width, height, 0);                                                        \
  }                                                                                                                    \
  Answer cujit_##rows##_ptds(u64 dst, u64 pitch, type value, u64 width, u64 height) {                                  \
    return fill(dst, pitch, value, bits / 8, width, height, STREAM_OWN);                                               \
  }                                                                                                                    \
  Answer cujit_##rows_async(u64 dst, u64 pitch, type value, u64 width, u64 height, u64 stream) {                       \
    return fill(dst, pitch, value, bits / 8, width, height, stream);                                                   \
  }                                                                                                                    \
  Answer cujit_##rows_async##_ptsz(u64 dst, u64 pitch, type value, u64 width, u64 height, u64 stream) {                \
    return fill(dst, pitch, value, bits / 8, width, height, own_stream(stream));                                       \
  }

SETS(8, u8, cuMemsetD8_v2, cuMemsetD8Async, cuMemsetD2D8_v2, cuMemsetD2D8Async)
SETS(16, u16, cuMemsetD16_v2, cuMemsetD16Async, cuMemsetD2D16_v2, cuMemsetD2D16Async)
SETS(32, u32, cuMemsetD32_v2, cuMemsetD32Async, cuMemsetD2D32_v2, cuMemsetD2D32Async)
