/* The start of no kernel: the buffer is copied to the state's sink. For tests and for the floor of a measurement. */

#include "launcher.h"

object *cujit_copy(struct LaunchState *state, void *buffer, u64 size, void **each) {
  (void)each;
  __builtin_memcpy((void *)state->sink, buffer, size);
  return none();
}
