/* Textures and surfaces by themselves, under the sanitizers of a compiler: every kind of lookup and access, also at
   coordinates that nothing has, in memory that is as large as what it holds. */

#include "crew.h"
#include "textures.h"

enum { ALL = ~0u, BLOCKS = 4, WIDTH = 16, HEIGHT = 3, DEPTH = 2, SHARED = 64 };
enum { FORMATS = FORMAT_FLOAT32 + 1, MODES = ADDRESS_BORDER + 1, STEPS = SURFACE_MAX + 1 };

#define ASKED struct Launch *launch, u64 block, u32 first, u32 line, u32 mask, struct Exchange *data
void cujit_texture(ASKED, u32 axes, flag layered, flag cube, flag whole, i32 gather);
void cujit_surface(ASKED, u32 operation, u32 axes, flag layered, u32 unit, u32 bytes, u32 count, u32 bounds);
void cujit_query(ASKED, u64 mark, u64 offset);
#define WHERE launch, block, 0, 7, ALL

typedef void Work(struct Launch *launch, u64 block, struct Exchange *data);
static Work *work;
static struct Descriptor *common; /* which all threads change at once */

static void kernel(struct Launch *launch, u8 *shared, u8 *local) {
  (void)local;
  u64 block;
  while ((block = __atomic_fetch_add(&launch->next, 1, __ATOMIC_RELAXED)) < launch->blocks) {
    struct Exchange data;
    memset(&data, 0, sizeof data);
    running_at(shared)->block = block;
    work(launch, block, &data);
  }
}

static u32 run(struct Crew *crew, Work *what, u32 helpers) {
  struct Launch launch = {.blocks = BLOCKS, .chunk = 1};
  work = what;
  cujit_pool_run(crew->pool, kernel, &launch, helpers, SHARED, 0);
  return launch.fault_kind;
}

/* -- what is read and written ---------------------------------------------------------------------------------------- */

static u32 random_word(u64 *state) {
  *state = *state * 6364136223846793005ull + 1442695040888963407ull;
  return (u32)(*state >> 32);
}

static u32 channel_bytes(i32 format) { return format < FORMAT_UINT16 ? 1 : format < FORMAT_UINT32 || format == FORMAT_FLOAT16 ? 2 : 4; }

static struct Descriptor made(u64 mark, i32 format, i32 channels, i32 height, i32 depth) {
  struct Descriptor d = {.mark = mark, .width = WIDTH, .height = height, .depth = depth, .channels = channels, .format = format};
  d.texel_bytes = channels * (i32)channel_bytes(format);
  d.row = WIDTH * d.texel_bytes, d.slice = d.row * height;
  d.base = malloc((u64)d.slice * (u64)depth);
  for (i64 k = 0; k < d.slice * depth; k++) d.base[k] = (u8)k;
  return d;
}

/* Numbers, and what is none. */
static u32 coordinate(u64 *state, flag whole) {
  static const f32 odd[] = {0.0f, -0.0f, 1.0f, __builtin_nanf(""), __builtin_inff(), -__builtin_inff(), 1e30f, -1e-30f};
  u32 word = random_word(state);
  if (whole) return word & 1 ? word : (word >> 1) % 24 - 4;
  return AS(u32, word & 1 ? odd[word >> 1 & 7] : (f32)(i32)word * 0x1p-26f);
}

static void place(struct Exchange *data, const struct Descriptor *d, u64 *state, flag whole) {
  for (u32 k = 0; k < WARP; k++) {
    data->handle[k] = (u64)d;
    data->layer[k] = random_word(state) & 1 ? random_word(state) : random_word(state) & 3;
    data->x[k] = coordinate(state, whole), data->y[k] = coordinate(state, whole), data->z[k] = coordinate(state, whole);
    data->dx[k] = random_word(state) % 17 - 8, data->dy[k] = random_word(state) % 17 - 8, data->dz[k] = random_word(state) % 17 - 8;
  }
}

/* -- lookups --------------------------------------------------------------------------------------------------------- */

static void look_up(struct Launch *launch, u64 block, struct Exchange *data, const struct Descriptor *d, u64 *state) {
  for (u32 whole = 0; whole < 2; whole++) {
    place(data, d, state, whole);
    for (u32 axes = 1; axes <= 3; axes++) cujit_texture(WHERE, data, axes, 0, 0, whole, -1);
    for (u32 axes = 1; axes <= 2; axes++) cujit_texture(WHERE, data, axes, 1, 0, whole, -1);
  }
  place(data, d, state, 0);
  for (i32 k = 0; k < CHANNELS; k++) cujit_texture(WHERE, data, 2, 0, 0, 0, k);
}

static void every_lookup(struct Launch *launch, u64 block, struct Exchange *data) {
  u64 state = block;
  for (i32 k = 0; k < FORMATS * MODES * 3; k++) {
    i32 format = k % FORMATS, mode = k / FORMATS % MODES;
    struct Descriptor d = made(TEXTURE_MARK, format, 1 << k / FORMATS / MODES, HEIGHT, DEPTH);
    d.address_0 = d.address_1 = d.address_2 = mode;
    for (u32 how = 0; how < 16; how++) {
      d.as_float = how & 1 && format < FORMAT_UINT32, d.srgb = how & 1 && format == FORMAT_UINT8;
      d.normalized = how >> 1 & 1, d.linear_memory = how >> 2 & 1;
      d.filter = how >> 3 && (d.as_float || format >= FORMAT_FLOAT16);
      look_up(launch, block, data, &d, &state);
    }
    free(d.base);
  }
}

static void every_face(struct Launch *launch, u64 block, struct Exchange *data) {
  u64 state = block;
  for (u32 k = 0; k < 4; k++) {
    struct Descriptor d = made(TEXTURE_MARK, FORMAT_FLOAT32, 4, WIDTH, 12);
    d.normalized = 1, d.filter = k & 1, d.address_0 = d.address_1 = ADDRESS_CLAMP;
    place(data, &d, &state, 0);
    cujit_texture(WHERE, data, 2, k >> 1, 1, 0, -1);
    free(d.base);
  }
}

/* By its number each element is what is there, and 0 beyond. */
static void finds_elements(struct Launch *launch, u64 block, struct Exchange *data) {
  u64 state = block, offset = offsetof(struct Descriptor, height);
  struct Descriptor d = made(TEXTURE_MARK, FORMAT_UINT8, 1, HEIGHT, DEPTH);
  place(data, &d, &state, 1);
  memset(data->dx, 0, sizeof data->dx), memset(data->dy, 0, sizeof data->dy), memset(data->dz, 0, sizeof data->dz);
  for (u32 k = 0; k < WARP; k++) data->y[k] %= 4, data->z[k] %= 3;
  cujit_texture(WHERE, data, 3, 0, 0, 1, -1);
  for (u32 k = 0; k < WARP; k++) {
    u32 x = data->x[k], y = data->y[k], z = data->z[k];
    HOLDS(data->values[0][k] == (x < WIDTH && y < HEIGHT && z < DEPTH ? (z * HEIGHT + y) * WIDTH + x : 0));
  }
  cujit_query(WHERE, data, TEXTURE_MARK, offset);
  for (u32 k = 0; k < WARP; k++) HOLDS(data->values[0][k] == HEIGHT);
  free(d.base);
}

/* -- surfaces -------------------------------------------------------------------------------------------------------- */

static void every_access(struct Launch *launch, u64 block, struct Exchange *data) {
  u64 state = block;
  for (i32 format = 0; format < FORMATS; format++) {
    struct Descriptor d = made(SURFACE_MARK, format, 4, HEIGHT, DEPTH);
    for (u32 k = 0; k < 4 * 3 * 2; k++) {
      u32 bytes = 1u << (k & 3), count = 1u << k / 4 % 3, bounds = k & 1 ? BOUNDS_CLAMP : BOUNDS_ZERO;
      if (bytes * count > 16) continue;
      for (u32 axes = 1; axes <= 3; axes++) {
        place(data, &d, &state, 1);
        for (u32 lane = 0; lane < WARP; lane++) data->x[lane] *= bytes * count;
        cujit_surface(WHERE, data, SURFACE_STORE, axes, k / 12, 1, bytes, count, bounds);
        cujit_surface(WHERE, data, SURFACE_LOAD, axes, k / 12, 1, bytes, count, bounds);
        cujit_surface(WHERE, data, SURFACE_FORMAT, axes, k / 12, 0, 4, count, bounds);
      }
    }
    free(d.base);
  }
}

static void every_step(struct Launch *launch, u64 block, struct Exchange *data) {
  u64 state = block;
  for (u32 k = 0; k < 2 * STEPS; k++) {
    if (k / 2 <= SURFACE_FORMAT) continue;
    place(data, common, &state, 1);
    for (u32 lane = 0; lane < WARP; lane++) data->values[0][lane] = random_word(&state);
    cujit_surface(WHERE, data, k / 2, 2, 0, 4 << (k & 1), 4 << (k & 1), 1, BOUNDS_ZERO);
  }
}

/* -- what is wrong --------------------------------------------------------------------------------------------------- */

static void has_no_handle(struct Launch *launch, u64 block, struct Exchange *data) {
  static u64 nothing[32];
  data->handle[3] = (u64)nothing;
  cujit_texture(launch, block, 0, 7, 8, data, 2, 0, 0, 0, -1);
}

static void is_outside(struct Launch *launch, u64 block, struct Exchange *data) {
  data->handle[0] = (u64)common, data->x[0] = -1u;
  cujit_surface(launch, block, 0, 7, 1, data, SURFACE_LOAD, 2, 0, 1, 4, 1, BOUNDS_TRAP);
}

static void is_crooked(struct Launch *launch, u64 block, struct Exchange *data) {
  data->handle[0] = (u64)common, data->x[0] = 2;
  cujit_surface(launch, block, 0, 7, 1, data, SURFACE_LOAD, 2, 0, 1, 4, 1, BOUNDS_TRAP);
}

int main(void) {
  static Work *const right[] = {every_lookup, every_face, finds_elements, every_access, every_step};
  struct Descriptor d = made(SURFACE_MARK, FORMAT_INT32, 2, HEIGHT, DEPTH);
  struct Crew crew;
  crew_begin(&crew);
  common = &d;
  for (u32 k = 0; k < sizeof right / sizeof *right; k++) HOLDS(run(&crew, right[k], WORKERS) == FAULT_NONE);
  HOLDS(run(&crew, has_no_handle, WORKERS) == FAULT_ILLEGAL_ADDRESS);
  HOLDS(run(&crew, is_outside, WORKERS) == FAULT_TRAP);
  HOLDS(run(&crew, is_crooked, WORKERS) == FAULT_MISALIGNED);
  crew_end(&crew);
  free(d.base);
  puts("good");
}
