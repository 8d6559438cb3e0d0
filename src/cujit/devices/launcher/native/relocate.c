/* The addresses in the code of the CPU device: devices.object_loader.relocate is the reference. */

#include "launcher.h"

struct Relocation {
  u64 at, index, addend;
};

/* Given are the address of the code, the bytes of its places, and the bytes of the addresses that these count from. The
   checksum of the cache proves that the places are those of the code. */
object *cujit_relocate(object *self, object *const *given, i64 count) {
  enum { MEMORY, ROWS, VALUES, ALL };
  (void)self;
  if (count != ALL) return none();
  char *memory = (char *)CALL(PyLong_AsUnsignedLongLong)(given[MEMORY]);
  const struct Relocation *rows = (const void *)CALL(PyBytes_AsString)(given[ROWS]);
  const u64 *values = (const void *)CALL(PyBytes_AsString)(given[VALUES]);
  if (!rows || !values) return 0;
  u64 places = (u64)CALL(PyBytes_Size)(given[ROWS]) / sizeof *rows;
  for (u64 i = 0; i < places; i++) {
    u64 address = values[rows[i].index] + rows[i].addend;
    __builtin_memcpy(memory + rows[i].at, &address, sizeof address);
  }
  return none();
}
