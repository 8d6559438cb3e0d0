/* Texture and surface instructions of the lanes of a warp.

   The emitted kernel puts what the lanes ask for into an Exchange and finds the answers there. */

#include "sampling.h"
#include "surfaces.h"

/* -- lookups --------------------------------------------------------------------------------------------------- */

/* What a lookup is: whether there is a layer, whether x, y and z are a direction, whether coordinates are element
   numbers; `gather` is a component, or -1. */
struct Lookup {
  u32 axes;
  flag layered, cube, whole;
  i32 gather;
};

enum { PLANE = 4, VOLUME = 8 };

/* Where the lanes of a warp read in a texture, and of how many neighbours. */
struct Places {
  struct Taps x, y, z;
  u32 neighbours;
};

/* The faces of a cube that directions meet, and the coordinates on them, from 0 to 1, instead of x and y.
   Source: CUDA C++ Programming Guide, "Cubemap Textures", the table of faces. */
INLINE u32s faces_of(f32s *on_x, f32s *on_y, f32s z) {
  f32s x = *on_x, y = *on_y, zero = {};
  f32s ax = __builtin_elementwise_abs(x), ay = __builtin_elementwise_abs(y), az = __builtin_elementwise_abs(z);
  i32s is_x = (ax >= ay) & (ax >= az), is_y = ~is_x & (ay >= az);
  f32s m = pick_f32(is_x, ax, pick_f32(is_y, ay, az));
  f32s s = pick_f32(is_x, pick_f32(x < zero, z, -z), pick_f32(is_y, x, pick_f32(z < zero, -x, x)));
  f32s t = pick_f32(is_y, pick_f32(y < zero, -z, z), -y);
  *on_x = (s / m + 1.0f) * 0.5f;
  *on_y = (t / m + 1.0f) * 0.5f;
  i32s other = PICK(i32s, is_y, 2 - (y < zero), 4 - (z < zero));
  return (u32s)PICK(i32s, is_x, -(x < zero), other);
}

INLINE u32s at_most(u32s i, u32 last) {
  u32s most = (u32s){} + last;
  return PICK(u32s, (u32s)(i < most), i, most);
}

/* The slices or layers that lanes read; of cubes x and y become the coordinates on a face. */
static void take_levels(const struct Descriptor *d, const struct Lookup *lookup, const struct Exchange *data, u32 *x,
                        u32 *y, struct Taps *levels) {
  u32 depth = (u32)d->depth;
  FOR_GROUPS(lane) {
    u32s layer = lookup->layered ? AT(u32s, data->layer + lane) : (u32s){}, level = layer;
    if (lookup->cube) {
      f32s on_x = AT(f32s, x + lane), on_y = AT(f32s, y + lane);
      u32s face = faces_of(&on_x, &on_y, AT(f32s, data->z + lane));
      AT(f32s, x + lane) = on_x;
      AT(f32s, y + lane) = on_y;
      level = at_most(layer, depth / 6 - 1) * 6 + face;
    }
    level = at_most(level, depth - 1); /* a texture that is no cube has fewer */
    /* By element numbers, a layer beyond the last reads zeros. Source: measured on an H200. */
    if (lookup->whole) level |= (u32s)(layer > depth - 1);
    AT(u32s, levels->first + lane) = AT(u32s, levels->second + lane) = level;
    AT(i32s, levels->weight + lane) = (i32s){};
  }
}

/* The taps of one axis. */
static void take_taps(const u32 *words, const u32 *shifts, i32 size, i32 mode, const struct Descriptor *d, flag whole,
                      flag linear, struct Taps *taps) {
  if (whole) whole_taps(words, shifts, size, taps);
  else float_taps(words, shifts, size, mode, d->normalized != 0, linear, taps);
}

/* The taps along y of a line. A line is a plane of height 1 that is read at y = 0, between its only row and what is
   before it: with a border, a filtered line is half the border. Its elements have no numbers.
   Source: measured on an H200. */
static void taps_of_row(const struct Descriptor *d, flag whole, flag linear, struct Taps *taps) {
  u32 places[WARP], zeros[WARP] = {0};
  for (u32 lane = 0; lane < WARP; lane++) places[lane] = whole && !d->linear_memory ? (u32)OUTSIDE : 0;
  take_taps(places, zeros, d->height, d->address_1, d, whole, linear, taps);
}

/* Where lanes read along each axis. */
static NOINLINE void find_places(const struct Descriptor *d, const struct Exchange *data, const struct Lookup *lookup,
                                 struct Places *places) {
  flag whole = lookup->whole, linear = (d->filter || lookup->gather >= 0) && !whole;
  u32 x[WARP], y[WARP];
  __builtin_memcpy(x, data->x, sizeof x);
  __builtin_memcpy(y, data->y, sizeof y);
  places->neighbours = !linear ? 1 : lookup->axes == 3 && lookup->gather < 0 ? VOLUME : PLANE;
  if (lookup->axes == 3) take_taps(data->z, data->dz, d->depth, d->address_2, d, whole, linear, &places->z);
  else take_levels(d, lookup, data, x, y, &places->z);
  take_taps(x, data->dx, d->width, d->address_0, d, whole, linear, &places->x);
  if (lookup->axes >= 2) take_taps(y, data->dy, d->height, d->address_1, d, whole, linear, &places->y);
  else if (lookup->layered) places->y = (struct Taps){0};
  else taps_of_row(d, whole, linear, &places->y);
}

/* What eight lanes add up for an address: slices, rows and places in these. */
struct Ways {
  struct Steps x, y, z;
};

INLINE void find_ways(const struct Descriptor *d, const struct Places *places, u32 lane, struct Ways *ways) {
  find_steps(&places->x, lane, (u64)(u32)d->texel_bytes, &ways->x);
  find_steps(&places->y, lane, (u64)d->row, &ways->y);
  find_steps(&places->z, lane, (u64)d->slice, &ways->z);
  ways->z.bytes[0] += (u64)d->base;
  ways->z.bytes[1] += (u64)d->base;
}

/* Where the neighbours are whose numbers along the axes are 0 or 1. */
INLINE void find_spots(const struct Ways *ways, u32 sx, u32 sy, u32 sz, struct Spots *spots) {
  AT(u64s, spots->at) = ways->x.bytes[sx] + ways->y.bytes[sy] + ways->z.bytes[sz];
  spots->missing = ways->x.missing[sx] | ways->y.missing[sy] | ways->z.missing[sz];
}

/* -- filtering ------------------------------------------------------------------------------------------------- */

/* The integer that 1.0 stands for, of integers that are read as floats; else 0. sRGB codes are no integers. */
static f64 most_filtered(const struct Descriptor *d) {
  return d->as_float && !d->srgb ? (f64)most_of(d->format) : 0.0;
}

/* Means of integers as the integers that are returned: rounded half up, or down where they have 32 bits.
   Source: measured on an H200, along one axis. */
INLINE u32s rounded_whole(const struct Descriptor *d, f64s totals) {
  return (u32s)TO(i32s, TO(i64s, __builtin_elementwise_floor(most_of(d->format) > 0 ? totals + 0.5 : totals)));
}

/* Means as the words that are returned. Integers that are read as floats are filtered as such, and rounded half up to
   1/65535 or, signed, to 1/32767. Source: measured on an H200; there 1 in 60 means of int8 is one such step lower. */
INLINE u32s rounded(const struct Descriptor *d, f64s totals) {
  f64 most = most_filtered(d);
  if (is_whole(d)) return rounded_whole(d, totals);
  if (!(most > 0.0)) return (u32s)TO(f32s, totals);
  f64 steps = most == 127.0 || most == 32767.0 ? 32767.0 : 65535.0;
  f32s part = TO(f32s, __builtin_elementwise_floor(totals * steps / most + 0.5)) / (f32)steps;
  return (u32s)__builtin_elementwise_max(part, (f32s){} - 1.0f);
}

INLINE f64 border_number(const struct Descriptor *d, u32 c) {
  f64 most = most_filtered(d), color = (f64)AS(f32, d->border[c]);
  if (is_whole(d)) return d->format & 1 ? (f64)(i32)d->border[c] : (f64)d->border[c];
  return most > 0.0 ? __builtin_rint(color * most) : color;
}

/* How elements are filtered: their format, how many channels, whether as integers, and whether some places are outside.
   `is_known` is for code of its own, where all but the last are constants. */
struct Kind {
  i32 format;
  u32 channels;
  flag is_integer, is_outside, is_known;
};

/* A channel of eight elements as numbers, 0 where they do not count. */
INLINE f64s numbers_of(const struct Descriptor *d, struct Kind kind, const struct Spots *spots, u32 c, i32s counts) {
  flag is_read = kind.is_integer || kind.format >= FORMAT_FLOAT16;
  u32s words = (is_read ? memory_words(kind.format, spots, c) : words_there(d, spots, c)) & (u32s)counts;
  f64s numbers = kind.format == FORMAT_UINT32 ? TO(f64s, words) : TO(f64s, (i32s)words);
  if (!kind.is_integer) numbers = TO(f64s, (f32s)words);
  if (!kind.is_outside) return numbers;
  return pick(TO(i64s, spots->missing & counts), (f64s){} + border_number(d, c), numbers);
}

/* The weights of neighbours in 1/256; those of all eight add up to 256. First x and z are combined, then y, each time
   rounded to 8 bits: half up, but half down in the first column. Source: measured on an H200, all cases of the tests. */
struct Weights {
  i32s y, slices[2][2];
};

INLINE void find_weights(const struct Places *places, u32 lane, struct Weights *weights) {
  i32s x = AT(i32s, places->x.weight + lane), z = AT(i32s, places->z.weight + lane);
  i32s far = (x * z + 128) >> 8, near = z - far;
  weights->y = AT(i32s, places->y.weight + lane);
  weights->slices[0][0] = 256 - x - near, weights->slices[0][1] = near;
  weights->slices[1][0] = x - far, weights->slices[1][1] = far;
}

INLINE i32s weights_of(const struct Weights *weights, u32 sx, u32 sy, u32 sz) {
  i32s slice = weights->slices[sx][sz], lower = (slice * weights->y + (i32)(127 + sx)) >> 8;
  return sy ? lower : slice - lower;
}

INLINE void put(struct Exchange *data, u32 c, u32 lane, u32s words) {
  AT(u64s, data->values[c] + lane) = TO(u64s, words);
}

/* Eight lanes that filter, and their sums of each channel. */
struct Filter {
  struct Ways ways;
  struct Weights weights;
  f64s sums[CHANNELS];
};

/* Add one of the neighbours of eight lanes, times its weights; it is not looked at where they are 0. */
INLINE void add(const struct Descriptor *d, struct Kind kind, struct Filter *filter, u32 sx, u32 sy, u32 sz) {
  i32s weights = weights_of(&filter->weights, sx, sy, sz);
  if (!is_any(weights)) return;
  struct Spots spots;
  find_spots(&filter->ways, sx, sy, sz, &spots);
  f64s parts = TO(f64s, weights);
  for (u32 c = 0; c < kind.channels; c++) filter->sums[c] += numbers_of(d, kind, &spots, c, weights != 0) * parts;
}

INLINE flag is_outside(const struct Ways *ways) {
  const struct Steps *x = &ways->x, *y = &ways->y, *z = &ways->z;
  return is_any(x->missing[0] | x->missing[1] | y->missing[0] | y->missing[1] | z->missing[0] | z->missing[1]);
}

/* The means of neighbours, by weights of 8 bits each. A color times a weight has no more bits than f64 has. */
INLINE void filter_as(const struct Descriptor *d, struct Kind kind, const struct Places *places, u32 lane,
                      struct Exchange *data) {
  struct Filter filter = {.sums = {{}}};
  find_ways(d, places, lane, &filter.ways);
  find_weights(places, lane, &filter.weights);
  kind.is_outside = is_outside(&filter.ways);
  if (kind.is_known) {
    add(d, kind, &filter, 0, 0, 0), add(d, kind, &filter, 1, 0, 0);
    add(d, kind, &filter, 0, 1, 0), add(d, kind, &filter, 1, 1, 0);
    if (places->neighbours == VOLUME) {
      add(d, kind, &filter, 0, 0, 1), add(d, kind, &filter, 1, 0, 1);
      add(d, kind, &filter, 0, 1, 1), add(d, kind, &filter, 1, 1, 1);
    }
  } else
    for (u32 n = 0; n < places->neighbours; n++) add(d, kind, &filter, n & 1, n >> 1 & 1, n >> 2);
  for (u32 c = 0; c < kind.channels; c++) put(data, c, lane, rounded(d, filter.sums[c] * 0x1p-8));
}

static NOINLINE void filtered(const struct Descriptor *d, const struct Places *places, u32 lane, struct Exchange *data) {
  struct Kind kind = {d->format, (u32)d->channels, is_whole(d) || most_filtered(d) > 0.0, 0, 0};
  if (kind.channels == 1 && kind.format == FORMAT_FLOAT32)
    filter_as(d, (struct Kind){FORMAT_FLOAT32, 1, 0, 0, 1}, places, lane, data);
  else if (kind.channels == 1 && kind.format == FORMAT_FLOAT16)
    filter_as(d, (struct Kind){FORMAT_FLOAT16, 1, 0, 0, 1}, places, lane, data);
  else if (kind.channels == 1 && kind.format == FORMAT_UINT8 && kind.is_integer)
    filter_as(d, (struct Kind){FORMAT_UINT8, 1, 1, 0, 1}, places, lane, data);
  else if (kind.channels == 1 && kind.format == FORMAT_UINT16 && kind.is_integer)
    filter_as(d, (struct Kind){FORMAT_UINT16, 1, 1, 0, 1}, places, lane, data);
  else filter_as(d, kind, places, lane, data);
}

/* One component of the four neighbours, counter-clockwise from the lower left. Source: PTX ISA 9.1, "tld4". */
static NOINLINE void gathered(const struct Descriptor *d, const struct Places *places, u32 lane, u32 component,
                              struct Exchange *data) {
  struct Ways ways;
  find_ways(d, places, lane, &ways);
  for (u32 n = 0; n < PLANE; n++) {
    struct Spots spots;
    find_spots(&ways, (n + 1) >> 1 & 1, n >> 1 ^ 1, 0, &spots);
    put(data, n, lane, component < (u32)d->channels ? words_of(d, &spots, component, 0) : (u32s){});
  }
}

static NOINLINE void read_points(const struct Descriptor *d, const struct Places *places, u32 lane, flag whole,
                                 struct Exchange *data) {
  struct Ways ways;
  find_ways(d, places, lane, &ways);
  struct Spots spots;
  find_spots(&ways, 0, 0, 0, &spots);
  for (u32 c = 0; c < (u32)d->channels; c++) put(data, c, lane, words_of(d, &spots, c, whole));
}

/* Make the lookups of a warp in one texture. Channels that are not there are 0. */
static void look_up(const struct Descriptor *d, const struct Lookup *lookup, struct Exchange *data) {
  struct Places places;
  find_places(d, data, lookup, &places);
  for (u32 c = (u32)d->channels; c < CHANNELS && lookup->gather < 0; c++) __builtin_memset(data->values[c], 0, sizeof data->values[c]);
  FOR_GROUPS(lane) {
    if (lookup->gather >= 0) gathered(d, &places, lane, (u32)lookup->gather, data);
    else if (places.neighbours > 1) filtered(d, &places, lane, data);
    else read_points(d, &places, lane, lookup->whole, data);
  }
}

/* The lanes of a mask that have the handle of its first one. */
static u32 sharing(u32 mask, const struct Exchange *data) {
  u64 handle = data->handle[first_lane(mask)];
  u32 found = 0;
  for (u32 lane = 0; lane < WARP; lane++) found |= (u32)(data->handle[lane] == handle) << lane;
  return found & mask;
}

/* Keep what lanes outside a mask got before. */
static NOINLINE void merge(u32 mask, const struct Exchange *before, struct Exchange *data) {
  for (u32 c = 0; c < CHANNELS; c++)
    for (u32 lane = 0; lane < WARP; lane++)
      if (!(mask >> lane & 1)) data->values[c][lane] = before->values[c][lane];
}

/* -- what lookups cost ----------------------------------------------------------------------------------------- */

enum { TOUCHED = WARP * VOLUME };

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
                      const struct Places *places, u32 lane) {
  for (u32 n = 0; n < places->neighbours; n++) {
    u32 sx = n & 1, sy = n >> 1 & 1, sz = n >> 2;
    struct Weights of_axes;
    find_weights(places, lane & ~(LANES - 1u), &of_axes);
    i32s weights = weights_of(&of_axes, sx, sy, sz);
    flag reads = lookup->gather >= 0 || places->neighbours == 1 || weights[lane % LANES];
    const struct Taps *x = &places->x, *y = &places->y, *z = &places->z;
    if (reads)
      touch(touched, d, lookup->axes, (sx ? x->second : x->first)[lane], (sy ? y->second : y->first)[lane],
            (sz ? z->second : z->first)[lane]);
  }
}

/* Count the bytes of the elements that lanes read, and the sectors that these are in, after they did. */
void cujit_texels(u32 mask, const struct Exchange *data, u32 axes, flag layered, flag cube, flag whole, i32 gather,
                  u64 *counts) {
  struct Lookup lookup = {axes, layered, cube, whole, gather};
  struct Touched touched;
  struct Places places;
  touched.bytes = touched.count = 0;
  for (u32 left = mask, same; left; left &= ~same) {
    const struct Descriptor *d = (const struct Descriptor *)data->handle[first_lane(left)];
    same = sharing(left, data);
    find_places(d, data, &lookup, &places);
    EACH_LANE(lane, same) touch_all(&touched, d, &lookup, &places, lane);
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
  for (u32 left = mask, same; left; left &= ~same) {
    struct Asker asker = {launch, block, first, line, first_lane(left)};
    const struct Descriptor *d = described(&asker, data->handle[asker.lane], TEXTURE_MARK);
    same = sharing(left, data);
    struct Exchange before;
    if (same != mask) before = *data;
    look_up(d, &lookup, data);
    if (same != mask) merge(same, &before, data);
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
