/* Code of the stand-in library itself: what a call of a function does that nobody has filled in yet.

   It gets Python to fill the table, in a process of Python or of anything else. The library has no other code and no
   constants of its own, so all texts come out of the table. What this is compiled to must need no relocation. */

#include "shared.h"

enum { GLOBAL_NOW = 0x102, LAZY = 1 };
enum { IDLE, STARTING, READY, BROKEN };

typedef void *(*Finder)(void *, const char *);
typedef void *(*Opener)(const char *, int);
typedef int (*Answer)(void);
typedef int (*Keeper)(void);
typedef void (*Release)(int);
typedef int (*Runner)(const char *);
typedef void (*Starter)(int);
typedef void *(*Saver)(void);
typedef int (*Yielder)(void);
typedef i64 (*Writer)(int, const void *, u64);

enum { STANDARD_ERROR = 2 };

/* Run the statement, with the address of the table in place of its last word of zeros. */
static int attach(struct BootTable *table, Runner run) {
  char text[4096];
  const char *statement = (const char *)table->texts[TEXT_STATEMENT];
  u64 size = 0, value = (u64)table;
  while (statement[size] && size < sizeof text - 1) {
    ((volatile char *)text)[size] = statement[size];
    size++;
  }
  ((volatile char *)text)[size] = 0;
  for (u64 k = 0; k < 16; k++) {
    u64 digit = value >> 4 * k & 15;
    ((volatile char *)text)[size - 2 - k] = (char)(digit < 10 ? '0' + digit : 'a' + digit - 10);
  }
  return run(text);
}

#define FIND(type, name) ((type)find(where, (const char *)table->texts[TEXT_##name]))

/* Fill the table by a Python that runs. Who holds its lock, or not, may come here. */
static int by_python(struct BootTable *table, void *where) {
  Finder find = (Finder)table->dlsym;
  int held = FIND(Keeper, ENSURE)();
  int failed = attach(table, FIND(Runner, RUN));
  FIND(Release, RELEASE)(held);
  return !failed;
}

/* Start a Python, fill the table by it, and leave its lock open. */
static int by_new_python(struct BootTable *table) {
  Finder find = (Finder)table->dlsym;
  const char *path = (const char *)table->texts[TEXT_PYTHON];
  void *where = *path ? ((Opener)table->dlopen)(path, GLOBAL_NOW) : 0;
  if (!where || !FIND(Starter, START)) {
    volatile const char *words = (const char *)table->texts[TEXT_WORDS]; /* else strlen would be called */
    u64 size = 0;
    while (words[size]) size++;
    where = 0;
    FIND(Writer, WRITE)(STANDARD_ERROR, (const char *)words, size);
    return 0;
  }
  FIND(Starter, START)(0);
  int failed = attach(table, FIND(Runner, RUN));
  FIND(Saver, SAVE)();
  return !failed;
}

/* Say where to go on for a call of function `index`. */
void *cujit_boot(u64 index, struct BootTable *table) {
  Finder find = (Finder)table->dlsym;
  void *where = 0; /* whatever the process has */
  Answer runs = FIND(Answer, RUNS);
  u64 *slots = (u64 *)(table + 1), before = slots[index], own = table->resolve;
  u64 state = IDLE;
  if (runs && runs()) {
    /* Python's lock keeps the others out; a thread that waits here for them would hold it. */
    if (!by_python(table, where)) return (void *)table->failed;
  } else if (__atomic_compare_exchange_n(&table->state, &state, STARTING, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    state = by_new_python(table) ? READY : BROKEN;
    __atomic_store_n(&table->state, state, __ATOMIC_RELEASE);
  } else {
    Yielder yield = FIND(Yielder, YIELD);
    while (__atomic_load_n(&table->state, __ATOMIC_ACQUIRE) == STARTING) yield();
  }
  if (slots[index] != before) return (void *)slots[index];
  if (table->resolve == own) return (void *)table->failed;
  return ((void *(*)(u64, struct BootTable *))table->resolve)(index, table);
}
