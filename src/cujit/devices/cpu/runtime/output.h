/* What kernels say, as Python finds it after the launch. */

#pragma once

#include "launch.h"

/* One call of vprintf, followed by its data. These are: the format (`format_bytes`), then from the next multiple of 8
   on `values` words, one for each argument as it lay in memory (a string's is its length in bytes), then the bytes of
   the strings in turn. */
struct Printed {
  struct Printed *previous;
  u64 block, thread, format_bytes, values, text_bytes;
};

/* A failed assertion: the lengths in bytes of its texts, which follow in this order, and the source line. */
struct Assertion {
  u64 message, file, function, line;
};
