/* Memory of a GPU, got and given back by one call from Python, which holds no lock meanwhile.

   Arrays go at any moment, also while a stream is captured into a graph: so the driver is called in the relaxed mode of
   captures (devices.cuda.memory). */

#include "launcher.h"

typedef i32 (*on_context)(void *context);
typedef i32 (*give_context)(void **context);
typedef i32 (*exchange)(i32 *mode);
typedef i32 (*allocate)(u64 *address, u64 bytes);
typedef i32 (*release)(u64 address);

enum { RELAXED = 2 }; /* cuda.h: CU_STREAM_CAPTURE_MODE_RELAXED */

/* Allocate where ``bytes`` are asked for, else free ``*address``: what the driver answers. */
i32 cujit_memory(const struct MemoryCalls *calls, u64 bytes, u64 *address) {
  void *context = (void *)calls->context, *current = 0;
  ((give_context)calls->get_context)(&current);
  if (current != context) {
    i32 refused = ((on_context)calls->push_context)(context);
    if (refused) return refused;
  }
  i32 mode = RELAXED;
  i32 status = ((exchange)calls->exchange)(&mode);
  if (!status) {
    status = bytes ? ((allocate)calls->allocate)(address, bytes) : ((release)calls->release)(*address);
    ((exchange)calls->exchange)(&mode);
  }
  if (current != context) ((give_context)calls->pop_context)(&current);
  return status;
}
