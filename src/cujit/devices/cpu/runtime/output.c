/* vprintf and failed assertions, kept for Python to read after the launch.

   Launch.output is the record that was made last; each names the one before it. A record holds copies of all that the
   format speaks of, for the kernel's memory may change or be gone when Python reads it. Python formats; here the format
   is only walked over, to know how wide the arguments are and which are strings. */

#include "launch.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of a format or a string that are kept. */
#define LONGEST (1ull << 20)
#define NO_TEXT (~0ull) /* the length of a string whose address is null */
#define UNBOUND (~0ull)

/* A walk over a format. At most `most` values and `room` bytes of text are written; where `values` and `text` are null,
   they are only counted, in `count` and `used`. `offset` is how far into the arguments it came. */
struct Walk {
  const u8 *arguments;
  u64 *values;
  u8 *text;
  u64 most, room, count, used, offset;
};

static void put(struct Walk *walk, u64 value) {
  u64 k = walk->count++;
  if (walk->values) walk->values[k] = value;
}

/* Arguments lie at multiples of their size, 4 or 8 bytes. Source: CUDA C++ Programming Guide, "Formatted Output"; the
   layout is what NVRTC 13.5 stores. */
static u64 take(struct Walk *walk, u64 size) {
  u64 start = (walk->offset + size - 1) & -size, wide = 0;
  walk->offset = start + size;
  memcpy(&wide, walk->arguments + start, size);
  return wide;
}

INLINE u64 less(u64 x, u64 y) { return x < y ? x : y; }

static void put_string(struct Walk *walk, u64 limit) {
  const char *string = (const char *)take(walk, 8);
  if (!string) {
    put(walk, NO_TEXT);
    return;
  }
  u64 length = strnlen(string, less(less(walk->room - walk->used, LONGEST), limit));
  put(walk, length);
  if (walk->text) memcpy(walk->text + walk->used, string, length);
  walk->used += length;
}

/* A specification, once `%` was read: flags, width, precision and size in any order until a letter ends it. That is
   more than C allows; what is no good to C is printed as it stands, and its arguments are passed over all the same.
   Gives what is behind it; null where there is no more to do. */
static const u8 *walk_one(struct Walk *walk, const u8 *p, const u8 *end) {
  u64 size = 4, limit = UNBOUND;
  flag dotted = 0;
  while (p < end && walk->count < walk->most) {
    u8 c = *p++;
    switch (c) {
    case '-': case '+': case ' ': case '#': case 'h':
      break;
    case '.':
      dotted = 1, limit = 0;
      break;
    case '0': case '1': case '2': case '3': case '4': case '5': case '6': case '7': case '8': case '9':
      /* The precision counts for strings, which need no zero at their end then. */
      if (dotted) limit = less(limit * 10 + (c - '0'), LONGEST);
      break;
    case '*': {
      u64 given = take(walk, 4);
      put(walk, given);
      if (dotted) limit = (u64)(i64)(i32)given;
      break;
    }
    case 'l': case 'j': case 'z': case 't': case 'q': case 'L':
      size = 8;
      break;
    case 'd': case 'i': case 'o': case 'u': case 'x': case 'X':
      put(walk, take(walk, size));
      return p;
    case 'c':
      put(walk, take(walk, 4));
      return p;
    case 'f': case 'F': case 'e': case 'E': case 'g': case 'G': case 'a': case 'A': case 'p':
      put(walk, take(walk, 8));
      return p;
    case 's':
      put_string(walk, limit);
      return p;
    default:
      return p;
    }
  }
  return 0;
}

static void walk_format(struct Walk *walk, const u8 *format, u64 length) {
  const u8 *p = format, *end = format + length;
  walk->count = walk->used = walk->offset = 0;
  while (p && p < end) {
    if (*p++ == '%') p = walk_one(walk, p, end);
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
static i32 print_one(struct Launch *launch, const u8 *format, const u8 *arguments, u64 block, u32 thread) {
  if (!format) return -1;
  u64 length = strnlen((const char *)format, LONGEST);
  struct Walk walk = {arguments, 0, 0, UNBOUND, UNBOUND, 0, 0, 0};
  walk_format(&walk, format, length);
  u64 format_bytes = (length + 7) & ~7ull, values_bytes = walk.count * sizeof(u64);
  struct Printed *record = malloc(sizeof *record + format_bytes + values_bytes + walk.used);
  if (!record) return -2;
  u8 *copy = (u8 *)(record + 1);
  memcpy(copy, format, length);
  struct Walk keep = {arguments, (u64 *)(copy + format_bytes), copy + format_bytes + values_bytes, walk.count, walk.used, 0, 0, 0};
  walk_format(&keep, copy, length);
  *record = (struct Printed){0, block, thread, length, keep.count, keep.used};
  join(launch, record);
  return (i32)keep.count;
}

/* For each lane of `lanes`, in order, print by `formats[lane]` what lies at `arguments[lane]`. */
void cujit_vprintf(struct Launch *launch, u32 lanes, const u8 **formats, const u8 **arguments, i32 *results, u64 block,
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
