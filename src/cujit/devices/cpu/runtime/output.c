/* vprintf and failed assertions, kept for Python to read after the launch.

   Launch.output is the record that was made last; each names the one before it. A record holds what the call prints, for
   the kernel's memory may change or be gone when Python reads it. libc prints, as the host does for a GPU: the arguments
   are taken here, one after the other. */

#include "launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a format or a string that are kept, and characters that one specification may fill. */
#define LONGEST (1 << 20)

/* What may stand between % and its letter, in any order; and what of it says that a number has 8 bytes. */
#define SHAPES "-+ #0123456789.*hljztqL"
#define WIDE "ljztqL"
#define WHOLE "diouxX"
#define LETTERS WHOLE "fFeEgGaAcps"

/* A walk over a format. What it prints goes to `text`, which has `room` bytes and one more, or is only counted in
   `used`. `offset` is how far into the arguments it came, `count` how many those are. `see` is shown each, if somebody
   looks. */
typedef void See(void *who, const u8 *argument, u64 size);

struct Walk {
  const u8 *arguments;
  char *text;
  u64 room, used, offset, count;
  See *see;
  void *who;
};

/* A specification as C knows it; a precision below 0 is none. */
struct Shape {
  char text[16];
  i32 width, precision;
  flag is_wide;
};

INLINE u64 less(u64 x, u64 y) { return x < y ? x : y; }
INLINE flag is_one_of(i32 c, const char *set) { return c && strchr(set, c); }

/* Arguments lie at multiples of their size, 4 or 8 bytes. Source: CUDA C++ Programming Guide, "Formatted Output"; the
   layout is what NVRTC 13.5 stores. */
static u64 take(struct Walk *walk, u64 size) {
  u64 start = (walk->offset + size - 1) & -size, wide = 0;
  walk->offset = start + size;
  walk->count++;
  if (walk->see) walk->see(walk->who, walk->arguments + start, size);
  memcpy(&wide, walk->arguments + start, size);
  return wide;
}

/* Strings may be longer now than when they were counted. */
INLINE u64 room_for(const struct Walk *walk, u64 length) {
  return walk->text ? less(length, walk->room - walk->used) : length;
}

/* Print text as it stands. */
static void put(struct Walk *walk, const char *text, u64 length) {
  length = room_for(walk, length);
  if (walk->text) memcpy(walk->text + walk->used, text, length);
  walk->used += length;
}

/* Print a value by its specification. */
static void put_value(struct Walk *walk, const struct Shape *shape, i32 letter, u64 value) {
  char *to = walk->text ? walk->text + walk->used : 0;
  u64 room = walk->text ? walk->room - walk->used + 1 : 0;
  const char *format = shape->text;
  i32 width = shape->width, precision = shape->precision, length;
  f64 real;
  if (letter == 's') {
    const char *string = value ? (const char *)value : "(null)";
    /* Where there is a precision a string needs no zero at its end. */
    precision = (i32)strnlen(string, precision < 0 ? LONGEST : (u64)precision);
    length = snprintf(to, room, format, width, precision, string);
  } else if (letter == 'p' || (shape->is_wide && is_one_of(letter, WHOLE))) {
    length = snprintf(to, room, format, width, precision, value);
  } else if (letter == 'c' || is_one_of(letter, WHOLE)) {
    length = snprintf(to, room, format, width, precision, (u32)value);
  } else {
    memcpy(&real, &value, sizeof real);
    length = snprintf(to, room, format, width, precision, real);
  }
  if (length > 0) walk->used += room_for(walk, (u64)length);
}

/* A number of a specification, or that of `stars` which is next: what is behind it. */
static const char *number_at(const char *p, const i32 **stars, i32 *number) {
  if (*p == '*') {
    i32 given = *(*stars)++;
    *number = given > LONGEST ? LONGEST : given < -LONGEST ? -LONGEST : given;
    return p + 1;
  }
  for (; *p >= '0' && *p <= '9'; p++) *number = (i32)less((u64)*number * 10 + (u64)(*p - '0'), LONGEST);
  return p;
}

/* Read what is before the letter at `end`; 0 where C does not know that. Widths and precisions come as arguments. */
static flag read_shape(const char *p, const char *end, const i32 *stars, struct Shape *shape) {
  static const char flags[] = "-+ #0";
  flag given[sizeof flags] = {0};
  for (; is_one_of(*p, flags); p++) given[strchr(flags, *p) - flags] = 1;
  shape->width = 0, shape->precision = -1;
  p = number_at(p, &stars, &shape->width);
  if (shape->width < 0) { /* as libc should take it */
    given[0] = 1;
    shape->width = -shape->width;
  }
  if (*p == '.') {
    shape->precision = 0;
    p = number_at(p + 1, &stars, &shape->precision);
  }
  u32 halves = (*p == 'h') + (*p == 'h' && p[1] == 'h');
  shape->is_wide = !halves && is_one_of(*p, WIDE);
  p += shape->is_wide ? 1 + (*p == 'l' && p[1] == 'l') : halves;
  i32 letter = *end;
  char *to = shape->text;
  *to++ = '%';
  for (u32 k = 0; flags[k]; k++) {
    if (given[k]) *to++ = flags[k];
  }
  const char *size = !is_one_of(letter, WHOLE) ? "" : shape->is_wide ? "ll" : &"hh"[2 - halves];
  sprintf(to, "*.*%s%c", size, letter);
  return p == end;
}

/* A specification that begins at `begin`: flags, width, precision and size in any order until a letter ends it. That is
   more than C allows; what is no good to C is printed as it stands, and its arguments are passed over all the same.
   Gives what is behind it. */
static const char *walk_one(struct Walk *walk, const char *begin, const char *end) {
  const char *p = begin + 1;
  i32 stars[2] = {0, 0};
  u64 size = 4;
  for (u32 k = 0; p < end && is_one_of(*p, SHAPES); p++) {
    if (is_one_of(*p, WIDE)) size = 8;
    if (*p != '*') continue;
    i32 given = (i32)take(walk, 4);
    if (k < 2) stars[k++] = given;
  }
  i32 letter = p < end ? *p++ : 0;
  struct Shape shape;
  if (letter == '%') {
    put(walk, "%", 1);
    return p;
  }
  if (is_one_of(letter, LETTERS)) {
    u64 value = take(walk, is_one_of(letter, WHOLE) ? size : letter == 'c' ? 4 : 8);
    if (read_shape(begin + 1, p - 1, stars, &shape)) {
      put_value(walk, &shape, letter, value);
      return p;
    }
  }
  put(walk, begin, (u64)(p - begin));
  return p;
}

static void walk_format(struct Walk *walk, const char *format, u64 length) {
  for (const char *p = format, *end = format + length; p < end;) {
    const char *from = p;
    while (p < end && *p != '%') p++;
    put(walk, from, (u64)(p - from));
    if (p < end) p = walk_one(walk, p, end);
  }
}

/* Put a record in front of those that there are. */
static void join(struct Launch *launch, struct Printed *record) {
  record->previous = __atomic_load_n(&launch->output, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(&launch->output, &record->previous, record, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
  }
}

/* Source for the results: CUDA C++ Programming Guide, "Formatted Output": the number of arguments, -1 for a format that
   is null, -2 for an internal error. */
static i32 print_one(struct Launch *launch, const char *format, const u8 *arguments, u64 block, u32 thread) {
  if (!format) return -1;
  u64 length = strnlen(format, LONGEST);
  struct Walk count = {.arguments = arguments};
  walk_format(&count, format, length);
  struct Printed *record = malloc(sizeof *record + count.used + 1);
  if (!record) return -2;
  struct Walk walk = {.arguments = arguments, .text = (char *)(record + 1), .room = count.used};
  walk_format(&walk, format, length);
  *record = (struct Printed){0, block, thread, walk.used};
  join(launch, record);
  return (i32)walk.count;
}

/* Show each argument that a format takes. */
void cujit_each_argument(const char *format, const u8 *arguments, See *see, void *who) {
  if (!format) return;
  struct Walk walk = {.arguments = arguments, .see = see, .who = who};
  walk_format(&walk, format, strnlen(format, LONGEST));
}

/* For each lane of `lanes`, in order, print by `formats[lane]` what lies at `arguments[lane]`. */
void cujit_vprintf(struct Launch *launch, u32 lanes, const char **formats, const u8 **arguments, i32 *results, u64 block,
                   u32 first) {
  EACH_LANE(lane, lanes) results[lane] = print_one(launch, formats[lane], arguments[lane], block, first + lane);
}

/* -- assertions ------------------------------------------------------------------------------------------------- */

static u64 text_length(const char *text) { return text ? strnlen(text, LONGEST) : 0; }

static u8 *append(u8 *to, const char *text, u64 length) {
  if (length) memcpy(to, text, length);
  return to + length;
}

static struct Assertion *keep_assertion(const char *message, const char *file, const char *function, u32 line) {
  struct Assertion said = {text_length(message), text_length(file), text_length(function), line};
  struct Assertion *record = malloc(sizeof *record + said.message + said.file + said.function);
  if (!record) return 0;
  *record = said;
  u8 *end = append((u8 *)(record + 1), message, said.message);
  append(append(end, file, said.file), function, said.function);
  return record;
}

/* `line` is the PTX's, `source_line` the assertion's own. */
NORETURN void cujit_assert(struct Launch *launch, u64 block, u32 thread, u32 line, const char *message, const char *file,
                           u32 source_line, const char *function) {
  struct Assertion *record = keep_assertion(message, file, function, source_line);
  if (cujit_claim(launch, FAULT_ASSERT)) {
    cujit_fault_here(launch, block, thread, line, 0);
    launch->fault_more[0] = (u64)record;
  } else {
    free(record);
  }
  cujit_stop();
}
