/* Texture and surface instructions of the lanes of a warp, one lane after the other.

   The emitted kernel puts what the lanes ask for into an Exchange and finds the answers there. */

#include "sampling.h"
#include "surfaces.h"

/* -- filtering ------------------------------------------------------------------------------------------------- */

/* The integer that 1.0 stands for, of integers that are read as floats; else 0. sRGB codes are no integers. */
static f64 most_filtered(const struct Descriptor *d) {
  return d->as_float && !d->srgb ? (f64)most_of(d->format) : 0.0;
}

/* A mean as the float that is returned. Integers are filtered as such, and rounded half up to 1/65535 or, signed, to
   1/32767. Source: measured on an H200; there 1 in 60 means of int8 is one such step lower. */
static f32 rounded(f64 total, f64 most) {
  if (!(most > 0.0)) return (f32)total;
  f64 steps = most == 127.0 || most == 32767.0 ? 32767.0 : 65535.0;
  f32 part = (f32)__builtin_floor(total * steps / most + 0.5) / (f32)steps;
  return __builtin_fmaxf(part, -1.0f);
}

/* Whether integers are read as integers. */
INLINE flag is_whole(const struct Descriptor *d) { return d->format < FORMAT_FLOAT16 && !d->as_float; }

/* A mean of integers as the integer that is returned: rounded half up, or down where it has 32 bits.
   Source: measured on an H200, along one axis. */
static u32 rounded_whole(const struct Descriptor *d, f64 total) {
  return (u32)(i64)__builtin_floor(most_of(d->format) > 0 ? total + 0.5 : total);
}

/* A word of an element as a number. */
static f64 number_of(const struct Descriptor *d, u32 word) {
  if (!is_whole(d)) return (f64)AS(f32, word);
  return d->format & 1 ? (f64)(i32)word : (f64)word;
}

/* The weight of one neighbour in 1/256; those of all eight add up to 256. First x and z are combined, then y, each
   time rounded to 8 bits: half up, but half down in the first column. Source: measured on an H200, all cases of the
   tests. */
static u32 weight_of(const struct Tap taps[3], u32 sx, u32 sy, u32 sz) {
  u32 x = taps[0].weight, y = taps[1].weight, z = taps[2].weight;
  u32 xz = (x * z + 128) >> 8;
  u32 column = sx ? x : 256 - x, far = sx ? xz : z - xz;
  u32 slice = sz ? far : column - far;
  u32 lower = (slice * y + 127 + sx) >> 8;
  return sy ? lower : slice - lower;
}

/* The mean of the eight neighbours, by weights of 8 bits each; those of weight 0 are not looked at. */
static NOINLINE void filtered(const struct Descriptor *d, const struct Tap taps[3], u32 *out) {
  f64 sums[CHANNELS] = {0.0, 0.0, 0.0, 0.0}, most = most_filtered(d);
  u32 colors[CHANNELS];
  for (u32 n = 0; n < 8; n++) {
    u32 sx = n & 1, sy = n >> 1 & 1, sz = n >> 2;
    u32 weight = weight_of(taps, sx, sy, sz);
    if (!weight) continue;
    read_texel(d, taps[0].index[sx], taps[1].index[sy], taps[2].index[sz], 0, 0, colors);
    for (u32 c = 0; c < CHANNELS; c++) {
      f64 color = number_of(d, colors[c]);
      sums[c] += (most > 0.0 ? __builtin_rint(color * most) : color) * ((f64)weight * 0x1p-8);
    }
  }
  for (u32 c = 0; c < CHANNELS; c++) {
    out[c] = is_whole(d) ? rounded_whole(d, sums[c]) : AS(u32, rounded(sums[c], most));
  }
}

/* One component of the four neighbours, counter-clockwise from the lower left. Source: PTX ISA 9.1, "tld4". */
static NOINLINE void gathered(const struct Descriptor *d, const struct Tap taps[3], u32 component, u32 *out) {
  u32 colors[CHANNELS];
  for (u32 n = 0; n < 4; n++) {
    u32 sy = n >> 1 ^ 1, sx = (n + 1) >> 1 & 1;
    read_texel(d, taps[0].index[sx], taps[1].index[sy], taps[2].index[0], 0, 1, colors);
    out[n] = colors[component];
  }
}

/* -- lookups --------------------------------------------------------------------------------------------------- */

/* What a lookup is: whether there is a layer, whether x, y and z are a direction, whether coordinates are element
   numbers; `gather` is a component, or -1. */
struct Lookup {
  u32 axes;
  flag layered, cube, whole;
  i32 gather;
};

/* The face of a cube that a direction meets, and the coordinates on it, from 0 to 1, instead of x and y.
   Source: CUDA C++ Programming Guide, "Cubemap Textures", the table of faces. */
static NOINLINE u32 face_of(u32 *x_word, u32 *y_word, u32 z_word) {
  f32 x = AS(f32, *x_word), y = AS(f32, *y_word), z = AS(f32, z_word);
  f32 ax = __builtin_fabsf(x), ay = __builtin_fabsf(y), az = __builtin_fabsf(z);
  f32 m, s, t;
  u32 face;
  if (ax >= ay && ax >= az) {
    face = x < 0.0f ? 1 : 0;
    m = ax, s = x < 0.0f ? z : -z, t = -y;
  } else if (ay >= az) {
    face = y < 0.0f ? 3 : 2;
    m = ay, s = x, t = y < 0.0f ? -z : z;
  } else {
    face = z < 0.0f ? 5 : 4;
    m = az, s = z < 0.0f ? -x : x, t = -y;
  }
  *x_word = AS(u32, (s / m + 1.0f) * 0.5f);
  *y_word = AS(u32, (t / m + 1.0f) * 0.5f);
  return face;
}

INLINE u32 at_most(u32 i, u32 last) { return i < last ? i : last; }

/* The tap of one axis. */
static void take_tap(const struct Descriptor *d, u32 word, u32 shift, i32 size, i32 mode, flag whole, flag linear,
                     struct Tap *tap) {
  if (whole) {
    whole_tap(word, (i32)shift, size, tap);
  } else {
    float_tap(word, (i32)shift, size, mode, d->normalized, linear, tap);
  }
}

/* The slice or layer that a lookup reads. */
static i32 level_of(const struct Descriptor *d, const struct Lookup *lookup, u32 layer, u32 *x, u32 *y, u32 z) {
  u32 depth = (u32)d->depth, level;
  if (lookup->cube) {
    u32 face = face_of(x, y, z);
    level = at_most(layer, depth / 6 - 1) * 6 + face;
  } else {
    level = at_most(layer, depth - 1);
  }
  /* By element numbers, a layer beyond the last reads zeros. Source: measured on an H200. */
  if (lookup->whole && layer > depth - 1) return OUTSIDE;
  return (i32)at_most(level, depth - 1); /* a texture that is no cube has fewer */
}

/* The tap along y of a line. A line is a plane of height 1 that is read at y = 0, between its only row and what is
   before it: with a border, a filtered line is half the border. Its elements have no numbers.
   Source: measured on an H200. */
static void tap_of_row(const struct Descriptor *d, flag whole, flag linear, struct Tap *tap) {
  if (whole) {
    i32 index = d->linear_memory ? 0 : OUTSIDE;
    *tap = (struct Tap){{index, index}, 0};
  } else {
    float_tap(0, 0, d->height, d->address_1, d->normalized, linear, tap);
  }
}

/* Where a lookup reads along each axis; tells whether it is a mean of neighbours. */
static NOINLINE flag taps_of(const struct Descriptor *d, const struct Exchange *data, u32 lane,
                             const struct Lookup *lookup, struct Tap taps[3]) {
  u32 x = data->x[lane], y = data->y[lane], z = data->z[lane];
  flag whole = lookup->whole, linear = (d->filter || lookup->gather >= 0) && !whole;
  i32 level = level_of(d, lookup, lookup->layered ? data->layer[lane] : 0, &x, &y, z);
  taps[0] = taps[1] = (struct Tap){{0, 0}, 0}, taps[2] = (struct Tap){{level, level}, 0};
  take_tap(d, x, data->dx[lane], d->width, d->address_0, whole, linear, &taps[0]);
  if (lookup->axes >= 2) {
    take_tap(d, y, data->dy[lane], d->height, d->address_1, whole, linear, &taps[1]);
  } else if (!lookup->layered) {
    tap_of_row(d, whole, linear, &taps[1]);
  }
  if (lookup->axes == 3) take_tap(d, z, data->dz[lane], d->depth, d->address_2, whole, linear, &taps[2]);
  return linear;
}

static NOINLINE void fetch(const struct Descriptor *d, const struct Exchange *data, u32 lane,
                           const struct Lookup *lookup, u32 *out) {
  struct Tap taps[3];
  flag whole = lookup->whole, gathers = lookup->gather >= 0, linear = taps_of(d, data, lane, lookup, taps);
  if (gathers) {
    gathered(d, taps, (u32)lookup->gather, out);
  } else if (linear) {
    filtered(d, taps, out);
  } else {
    read_texel(d, taps[0].index[0], taps[1].index[0], taps[2].index[0], whole, 1, out);
  }
}

/* -- lookups of a whole warp ------------------------------------------------------------------------------------

   Most lookups are of lines and planes of words of 32 bits, within their borders, and of all lanes in one texture: they
   are made eight lanes at a time. Lanes that ask for nothing read an element too. */

enum { LANES = 8 };
typedef f64 f64s __attribute__((vector_size(8 * LANES), aligned(4)));
typedef i64 i64s __attribute__((vector_size(8 * LANES), aligned(4)));
typedef f32 f32s __attribute__((vector_size(4 * LANES), aligned(4)));
typedef i32 i32s __attribute__((vector_size(4 * LANES), aligned(4)));

struct Taps {
  i32 first[WARP], second[WARP], weight[WARP];
};

#define PICK(type, mask, yes, no) ((type)((mask) & (yes)) | (type)(~(mask) & (no)))

INLINE f64s pick(i64s mask, f64s yes, f64s no) { return (f64s)PICK(i64s, mask, (i64s)yes, (i64s)no); }

/* As `resolve` has it, of the two modes that need no division. */
INLINE i32s resolved(i32 mode, i32 size, i32s i) {
  i32s last = (i32s){} + (size - 1), zero = {};
  if (mode == ADDRESS_BORDER) return PICK(i32s, (i >= zero) & (i <= last), i, zero + OUTSIDE);
  i32s high = PICK(i32s, i < last, i, last);
  return high & (high > zero);
}

/* As `tap_at` has it. */
static NOINLINE void take_taps(const u32 *words, const u32 *shifts, i32 size, i32 mode, i32 normalized, flag linear,
                               struct Taps *taps) {
  f64 scale = normalized ? (f64)size : 1.0;
  for (u32 lane = 0; lane < WARP; lane += LANES) {
    f64s u = __builtin_convertvector(*(const f32s *)(words + lane), f64s) * scale, most = (f64s){} + 1.0e9;
    i64s is_number = u == u;
    u = pick(u >= -most, u, -most);
    u = (f64s)((i64s)pick(u <= most, u, most) & is_number);
    f64s steps = __builtin_elementwise_floor(u * 256.0 - 127.5);
    f64s place = __builtin_elementwise_floor(linear ? steps * 0x1p-8 : u);
    i32s base = __builtin_convertvector(place, i32s) + *(const i32s *)(shifts + lane), weight = {};
    i32s first = resolved(mode, size, base), second = resolved(mode, size, base + 1);
    if (linear) weight = __builtin_convertvector(steps - place * 256.0, i32s);
    if (mode == ADDRESS_CLAMP) weight &= first != second;
    *(i32s *)(taps->first + lane) = first;
    *(i32s *)(taps->second + lane) = second;
    *(i32s *)(taps->weight + lane) = weight;
  }
}

static NOINLINE void take_other_taps(const u32 *words, const u32 *shifts, i32 size, i32 mode, i32 normalized,
                                     flag linear, struct Taps *taps) {
  for (u32 lane = 0; lane < WARP; lane++) {
    struct Tap tap = tap_at(words[lane], (i32)shifts[lane], size, mode, normalized, linear);
    taps->first[lane] = tap.index[0];
    taps->second[lane] = tap.index[1];
    taps->weight[lane] = (i32)tap.weight;
  }
}

static void taps_along(const u32 *words, const u32 *shifts, i32 size, i32 mode, i32 normalized, flag linear,
                       struct Taps *taps) {
  flag divides = mode == ADDRESS_WRAP || mode == ADDRESS_MIRROR;
  (divides ? take_other_taps : take_taps)(words, shifts, size, mode, normalized, linear, taps);
}

/* As `filtered` has it, of one channel; without a z, four neighbours have weights. */
static NOINLINE void filtered_words(const struct Descriptor *d, const struct Taps *x, const struct Taps *y, u32 c,
                                    u64 *out) {
  u64 row = (u64)d->row, step = (u64)(u32)d->texel_bytes;
  const u8 *base = d->base + 4 * c;
  for (u32 lane = 0; lane < WARP; lane += LANES) {
    f32 colors[4][LANES];
    for (u32 k = 0; k < LANES; k++) {
      const u8 *upper = base + (u32)y->first[lane + k] * row, *lower = base + (u32)y->second[lane + k] * row;
      u64 near = (u32)x->first[lane + k] * step, far = (u32)x->second[lane + k] * step;
      colors[0][k] = *(const f32 *)(upper + near), colors[1][k] = *(const f32 *)(upper + far);
      colors[2][k] = *(const f32 *)(lower + near), colors[3][k] = *(const f32 *)(lower + far);
    }
    i32s far = *(const i32s *)(x->weight + lane), down = *(const i32s *)(y->weight + lane);
    f64s sum = {};
    for (u32 n = 0; n < 4; n++) {
      i32s column = n & 1 ? far : 256 - far, lower = (column * down + (i32)(127 + (n & 1))) >> 8;
      i32s weight = n >> 1 ? lower : column - lower;
      f64s color = __builtin_convertvector(*(const f32s *)colors[n], f64s);
      f64s part = color * (__builtin_convertvector(weight, f64s) * 0x1p-8);
      sum += (f64s)((i64s)part & __builtin_convertvector(weight != 0, i64s));
    }
    f32 means[LANES];
    *(f32s *)means = __builtin_convertvector(sum, f32s);
    for (u32 k = 0; k < LANES; k++) out[lane + k] = AS(u32, means[k]);
  }
}

/* Make the lookups of a warp, if they are of this kind; tell whether they were. */
static flag whole_warp(const struct Asker *asker, u32 mask, struct Exchange *data, const struct Lookup *lookup) {
  if (lookup->layered | lookup->cube | lookup->whole | (lookup->axes > 2) | (lookup->gather >= 0) | !mask) return 0;
  u64 handle = data->handle[asker->lane], others = 0;
  for (u32 lane = 0; lane < WARP; lane++) others |= mask >> lane & 1 ? data->handle[lane] ^ handle : 0;
  if (others) return 0;
  const struct Descriptor *d = described(asker, handle, TEXTURE_MARK);
  flag linear = d->filter != 0;
  if (d->format != FORMAT_FLOAT32 && (linear | (d->format != FORMAT_INT32 && d->format != FORMAT_UINT32))) return 0;
  struct Taps x, y;
  taps_along(data->x, data->dx, d->width, d->address_0, d->normalized, linear, &x);
  u32 zeros[WARP] = {0}; /* a line is read at y = 0: see tap_of_row */
  flag plane = lookup->axes == 2;
  taps_along(plane ? data->y : zeros, plane ? data->dy : zeros, d->height, d->address_1, d->normalized, linear, &y);
  i32 places = 0;
  for (u32 lane = 0; lane < WARP; lane++) {
    places |= x.first[lane] | y.first[lane];
    if (linear) places |= x.second[lane] | y.second[lane];
  }
  if (places < 0) return 0;
  for (u32 c = 0; c < CHANNELS; c++) {
    u64 *out = data->values[c];
    if (c >= (u32)d->channels) {
      for (u32 lane = 0; lane < WARP; lane++) out[lane] = 0;
    } else if (linear) {
      filtered_words(d, &x, &y, c, out);
    } else {
      const u8 *base = d->base + 4 * c;
      u64 row = (u64)d->row, step = (u64)(u32)d->texel_bytes;
      for (u32 lane = 0; lane < WARP; lane++)
        out[lane] = *(const u32 *)(base + (u32)x.first[lane] * step + (u32)y.first[lane] * row);
    }
  }
  return 1;
}

/* -- what lookups cost ----------------------------------------------------------------------------------------- */

enum { NEIGHBOURS = 8, TOUCHED = WARP * NEIGHBOURS };

/* Sectors that a warp reads: of which texture, and which of it. */
struct Touched {
  const struct Descriptor *of[TOUCHED];
  u64 sectors[TOUCHED], bytes;
  u32 count;
};

/* An element is read. A sector of linear memory has 32 bytes in a row; one of a plane or volume in an array two rows of
   16 bytes. Source: Tegra X1 Technical Reference Manual, "Block Linear"; measured on an H200: 32 floats in a row of a
   plane move 8 sectors, and 4 in linear memory. */
static void touch(struct Touched *touched, const struct Descriptor *d, u32 axes, i32 x, i32 y, i32 z) {
  if ((x | y | z) < 0) return;
  u64 at = (u64)(u32)x * (u32)d->texel_bytes, plane = (u64)(u32)y >> 1 | (u64)(u32)z << 17;
  u64 linear = ((u64)d->base + at + (u32)y * (u64)d->row + (u32)z * (u64)d->slice) >> 5;
  u64 sector = d->in_blocks && axes >= 2 ? at >> 4 | plane << 18 : linear;
  touched->bytes += (u32)d->texel_bytes;
  for (u32 k = touched->count; k-- > 0;)
    if (touched->sectors[k] == sector && touched->of[k] == d) return;
  touched->of[touched->count] = d;
  touched->sectors[touched->count++] = sector;
}

static void touch_all(struct Touched *touched, const struct Descriptor *d, const struct Lookup *lookup,
                      const struct Tap taps[3], flag linear) {
  for (u32 n = 0; n < (linear ? NEIGHBOURS : 1); n++) {
    u32 sx = n & 1, sy = n >> 1 & 1, sz = n >> 2;
    flag reads = lookup->gather >= 0 ? !sz : !linear || weight_of(taps, sx, sy, sz);
    if (reads) touch(touched, d, lookup->axes, taps[0].index[sx], taps[1].index[sy], taps[2].index[sz]);
  }
}

/* Count the bytes of the elements that lanes read, and the sectors that these are in, after they did. */
void cujit_texels(u32 mask, const struct Exchange *data, u32 axes, flag layered, flag cube, flag whole, i32 gather,
                  u64 *counts) {
  struct Lookup lookup = {axes, layered, cube, whole, gather};
  struct Touched touched;
  touched.bytes = touched.count = 0;
  for (u32 lane = 0; lane < WARP; lane++) {
    if (!(mask >> lane & 1)) continue;
    const struct Descriptor *d = (const struct Descriptor *)data->handle[lane];
    struct Tap taps[3];
    flag linear = taps_of(d, data, lane, &lookup, taps);
    touch_all(&touched, d, &lookup, taps, linear);
  }
  counts[0] += touched.bytes;
  counts[1] += touched.count;
}

/* -- what kernels call: each does its work for the lanes of a mask, lowest first -------------------------------- */

#define ASKED struct Launch *launch, u64 block, u32 first, u32 line, u32 mask, struct Exchange *data
#define FOR_EACH_LANE(asker)                                                                                     \
  for (struct Asker asker = {launch, block, first, line, 0}; asker.lane < WARP; asker.lane++)                    \
    if (mask >> (asker.lane & 31) & 1)

void cujit_texture(ASKED, u32 axes, flag layered, flag cube, flag whole, i32 gather) {
  struct Lookup lookup = {axes, layered, cube, whole, gather};
  struct Asker one = {launch, block, first, line, (u32)__builtin_ctz(mask | 1u << 31)};
  if (whole_warp(&one, mask, data, &lookup)) return;
  FOR_EACH_LANE(asker) {
    u32 out[CHANNELS];
    fetch(described(&asker, data->handle[asker.lane], TEXTURE_MARK), data, asker.lane, &lookup, out);
    for (u32 k = 0; k < CHANNELS; k++) data->values[k][asker.lane] = out[k];
  }
}

void cujit_surface(ASKED, u32 operation, u32 axes, flag layered, u32 unit, u32 bytes, u32 count, u32 bounds) {
  struct Access access = {operation, axes, layered, unit, bytes, count, bounds};
  FOR_EACH_LANE(asker) surface_lane(&asker, data, &access);
}

/* Give the word at an offset of a descriptor. */
void cujit_query(ASKED, u64 mark, u64 offset) {
  FOR_EACH_LANE(asker) {
    const u8 *found = (const u8 *)described(&asker, data->handle[asker.lane], mark);
    data->values[0][asker.lane] = *(const u32 *)(found + offset);
  }
}
