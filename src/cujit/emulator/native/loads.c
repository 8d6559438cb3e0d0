/* Loads of images by threads that Python doesn't know.

   Who holds Python's lock may wait for such a thread: an extension that starts threads and joins them. So a thread of the
   emulator's own does the load, of copies. A load that makes no progress succeeds for now, as loads do that are lazy. The
   first call that uses the module or library answers what came of it. */

#include "state.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_NS = 50000000, BUSY_NS = 2000000, IDLE_LOOKS = 6, MOST_OPTIONS = 64, PIECE = 4096, CONTEXTS = 8 };

typedef Answer Call(u64, u64, u64, u64, u64, u64, u64, u64);

static Call *calls[LOAD_LIBRARY_FILE + 1];
static Answer (*on_load)(struct Load *);
static Answer (*on_late)(struct Load *);
static void *(*python_state)(void);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static pthread_t worker;
static u32 works;
static struct Load *first; /* of those that are not done */

/* Give what Python has: the calls, what does a load, what registers one that came late, and PyGILState_GetThisThreadState. */
void cujit_loads_begin(Call *const *all, Answer (*does)(struct Load *), Answer (*late)(struct Load *), void *(*known)(void)) {
  pthread_condattr_t clock;
  memcpy(calls, all, sizeof calls);
  on_load = does;
  on_late = late;
  python_state = known;
  pthread_condattr_init(&clock);
  pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
  pthread_cond_init(&changed, &clock);
}

/* The number of the thread that made the call which this one is in. */
u64 cujit_loads_asker(void) {
  struct Thread *thread = pthread_getspecific((pthread_key_t)state.thread_key);
  return thread && thread->asker ? thread->asker : (u64)syscall(SYS_gettid);
}

/* -- copies ---------------------------------------------------------------------------------------------------------- */

/* Copy memory of this process, of which nobody knows whether it is there; null where it is not. The caller frees it. */
static u8 *copy_of(u64 address, u64 size) {
  int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  u8 *copy = memory < 0 ? 0 : malloc(size);
  if (copy && pread(memory, copy, size, (off_t)address) != (ssize_t)size) {
    free(copy);
    copy = 0;
  }
  if (memory >= 0) close(memory);
  return copy;
}

/* Copy a text with its end. */
static u8 *text_of(u64 address) {
  for (u64 size = PIECE - address % PIECE;; size *= 2) {
    u8 *copy = copy_of(address, size);
    if (!copy || memchr(copy, 0, size)) return copy;
    free(copy);
  }
}

/* Source: System V gABI, "ELF Header" and "Sections". */
struct ElfHeader {
  u8 ident[16];
  u16 type, machine;
  u32 version;
  u64 entry, programs_at, sections_at;
  u32 flags;
  u16 header_bytes, program_bytes, programs, section_bytes, sections, names;
};
struct Section {
  u32 name, type;
  u64 flags, address, offset, size, more[3];
};
struct Program {
  u32 type, flags;
  u64 offset, more[2], size, rest[2];
};
enum { WITHOUT_CONTENT = 8 };

INLINE u64 larger(u64 a, u64 b) { return a > b ? a : b; }

/* Copy an ELF file up to where its tables say that it ends; null where they are of other sizes. */
static u8 *elf_of(u64 address) {
  struct ElfHeader *head = (struct ElfHeader *)copy_of(address, sizeof *head);
  if (!head) return 0;
  struct ElfHeader h = *head;
  free(head);
  if ((h.sections && h.section_bytes != sizeof(struct Section)) || (h.programs && h.program_bytes != sizeof(struct Program)))
    return 0;
  u64 end = larger(h.programs_at + h.programs * sizeof(struct Program), h.sections_at + h.sections * sizeof(struct Section));
  u8 *tables = copy_of(address, larger(end, sizeof h));
  if (!tables) return 0;
  const struct Section *section = (const struct Section *)(tables + h.sections_at);
  const struct Program *program = (const struct Program *)(tables + h.programs_at);
  end = larger(end, sizeof h);
  for (u32 k = 0; k < h.sections; k++)
    if (section[k].type != WITHOUT_CONTENT) end = larger(end, section[k].offset + section[k].size);
  for (u32 k = 0; k < h.programs; k++) end = larger(end, program[k].offset + program[k].size);
  free(tables);
  return copy_of(address, end);
}

/* Source: fatbinary.h of CUDA 13.5. */
enum { FATBIN_WRAPPER = 0x466243b1, FATBIN = 0xba55ed50, ELF = 0x464c457f };
struct Fatbin {
  u32 magic;
  u16 version, header_bytes;
  u64 size;
};
struct Wrapper {
  u32 magic, version;
  u64 data, more;
};

/* Copy an image, whatever a driver takes that says how long it is; null for all others. */
static u8 *image_of(u64 address) {
  u8 *start = copy_of(address, sizeof(struct Wrapper));
  if (!start) return text_of(address); /* a short text at the end of memory */
  struct Wrapper wrapper = *(struct Wrapper *)start;
  free(start);
  if (wrapper.magic == FATBIN_WRAPPER) address = wrapper.data;
  if (wrapper.magic == ELF) return elf_of(address);
  if (wrapper.magic != FATBIN_WRAPPER && wrapper.magic != FATBIN) return text_of(address);
  struct Fatbin *head = (struct Fatbin *)copy_of(address, sizeof *head);
  u64 size = head && head->magic == FATBIN ? head->header_bytes + head->size : 0;
  free(head);
  return size ? copy_of(address, size) : 0;
}

/* -- options of the driver's compiler, whose buffers are the caller's ------------------------------------------------ */

/* Source: CUDA Driver API manual, CUjit_option. */
enum { INFO = 3, INFO_BYTES, ERRORS, ERRORS_BYTES };

struct Options {
  u64 count;
  const u32 *numbers;
  u64 *values; /* the caller's */
  u32 own_numbers[MOST_OPTIONS];
  u64 own_values[MOST_OPTIONS];
};

static u64 bytes_of(const struct Options *options, u32 which) {
  u64 bytes = 0;
  for (u64 k = 0; k < options->count; k++)
    if (options->numbers[k] == which) bytes = (u32)options->values[k];
  return bytes;
}

INLINE u32 is_buffer(u32 number) { return number == INFO || number == ERRORS; }

/* Put copies in place of what the caller has; 0 where there is no memory. */
static u32 take_options(struct Options *options) {
  for (u64 k = 0; k < options->count; k++) {
    u32 number = options->own_numbers[k] = options->numbers[k];
    options->own_values[k] = options->values[k];
    if (!is_buffer(number) || !options->values[k]) continue;
    options->own_values[k] = (u64)calloc(1, bytes_of(options, number + 1) + 1);
    if (!options->own_values[k]) return 0;
  }
  return 1;
}

/* Give the caller what the load wrote. */
static void give_options(const struct Options *options) {
  for (u64 k = 0; k < options->count; k++) {
    u64 *value = options->values + k;
    if (!is_buffer(options->own_numbers[k])) continue;
    u64 bytes = bytes_of(options, options->own_numbers[k] + 1);
    if (*value && bytes) memccpy((void *)*value, (const void *)options->own_values[k], 0, bytes);
  }
  for (u64 k = 0; k < options->count; k++)
    if (!is_buffer(options->own_numbers[k])) options->values[k] = options->own_values[k];
}

/* -- the thread that loads ------------------------------------------------------------------------------------------- */

/* A load, and copies of what it was given. */
struct Asked {
  struct Load load;
  struct Options options;
  u32 library_numbers[MOST_OPTIONS];
};

static void drop(struct Asked *asked) {
  for (u64 k = 0; k < asked->options.count; k++)
    if (is_buffer(asked->options.own_numbers[k])) free((void *)asked->options.own_values[k]);
  free((void *)asked->load.arguments[1]);
  free(asked);
}

static void make(struct Load *load, struct Thread *thread) {
  thread->contexts[0] = load->context;
  thread->depth = load->context != 0;
  thread->asker = load->asker;
  load->answer = on_load(load);
}

/* Take a load out of the list. */
static void settle(struct Load *load) {
  struct Load **place = &first;
  while (*place != load) place = (struct Load **)&(*place)->next;
  *place = (struct Load *)load->next;
  load->is_done = 1;
  if (load->handle) drop((struct Asked *)load);
  pthread_cond_broadcast(&changed);
}

static void *work(void *of_thread) {
  struct Thread *thread = cujit_this_thread();
  thread->contexts = of_thread;
  thread->room = CONTEXTS;
  pthread_mutex_lock(&lock);
  for (;;) {
    struct Load *load = first;
    if (!load) {
      pthread_cond_wait(&changed, &lock);
      continue;
    }
    pthread_mutex_unlock(&lock);
    make(load, thread);
    pthread_mutex_lock(&lock);
    if (load->handle) {
      pthread_mutex_unlock(&lock);
      on_late(load);
      pthread_mutex_lock(&lock);
    }
    settle(load);
  }
  return 0;
}

static u32 start_worker(void) {
  if (works) return 1;
  u64 *contexts = calloc(CONTEXTS, sizeof *contexts);
  works = contexts && !pthread_create(&worker, 0, work, contexts);
  if (works) pthread_detach(worker);
  else free(contexts);
  return works;
}

static u64 worked_ns(void) {
  struct timespec time = {0};
  clockid_t clock;
  if (!pthread_getcpuclockid(worker, &clock)) clock_gettime(clock, &time);
  return (u64)time.tv_sec * 1000000000 + (u64)time.tv_nsec;
}

/* Wait for a change or a while; 1 after a while. */
static u32 look(void) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += LOOK_NS;
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  return pthread_cond_timedwait(&changed, &lock, &until) != 0;
}

/* Wait until a load is done, or the worker makes no progress: it waits for Python's lock. Then the load gets a handle. */
static void wait_for(struct Load *load, u32 kind) {
  u64 before = worked_ns();
  for (u32 idle = 0; !load->is_done && !load->handle && !state.ended;) {
    if (!look()) continue;
    u64 now = worked_ns();
    idle = now - before > BUSY_NS ? 0 : idle + 1;
    before = now;
    if (idle >= IDLE_LOOKS && !load->is_done) load->handle = cujit_cell_new(kind, load->context);
  }
}

static Answer hand_over(struct Asked *asked, u64 *out, u32 kind) {
  struct Load *load = &asked->load, **last = &first;
  pthread_mutex_lock(&lock);
  while (*last) last = (struct Load **)&(*last)->next;
  *last = load;
  pthread_cond_broadcast(&changed);
  wait_for(load, kind);
  Answer answer = load->is_done ? load->answer : load->handle ? RESULT_SUCCESS : RESULT_DEINITIALIZED;
  if (!answer) *out = load->is_done ? load->made : load->handle;
  u32 is_done = load->is_done;
  pthread_mutex_unlock(&lock);
  if (!is_done) return answer;
  give_options(&asked->options);
  drop(asked);
  return answer;
}

/* Wait until no load has a handle. */
void cujit_loads_wait(u64 handle) {
  pthread_mutex_lock(&lock);
  for (struct Load *load = first; load;) {
    u32 is_it = load->handle == handle;
    if (is_it) pthread_cond_wait(&changed, &lock);
    load = is_it ? first : (struct Load *)load->next;
  }
  pthread_mutex_unlock(&lock);
}

/* -- the driver's functions ------------------------------------------------------------------------------------------ */

/* What a call says besides the place for its result and the image. */
struct Said {
  u64 count, numbers, values, own_count, own_numbers, own_values;
};

/* Write the arguments of a call as it has them. */
static void spread(u32 call, const struct Said *said, u64 *arguments) {
  u64 of_module[] = {said->count, said->numbers, said->values};
  u64 of_library[] = {said->numbers, said->values, said->count, said->own_numbers, said->own_values, said->own_count};
  if (call < LOAD_LIBRARY_DATA) memcpy(arguments, of_module, sizeof of_module);
  else memcpy(arguments, of_library, sizeof of_library);
}

static u32 starts(void) {
  pthread_mutex_lock(&lock);
  u32 does = start_worker();
  pthread_mutex_unlock(&lock);
  return does;
}

/* Whether a list can be copied. */
static u32 is_list(u64 count, u64 numbers, u64 values) { return !count || (count <= MOST_OPTIONS && numbers && values); }

static u8 *copy_for(u32 call, u64 image) {
  return call == LOAD_MODULE_FILE || call == LOAD_LIBRARY_FILE ? text_of(image) : image_of(image);
}

/* Copy all that a call has; null where Python is to look at it itself. */
static struct Asked *asked_of(u32 call, u64 image, const struct Said *said) {
  if (!image || !is_list(said->count, said->numbers, said->values) || !starts()) return 0;
  struct Asked *asked = is_list(said->own_count, said->own_numbers, said->own_values) ? calloc(1, sizeof *asked) : 0;
  if (!asked) return 0;
  asked->load = (struct Load){.call = call, .context = current_handle(), .asker = (u64)syscall(SYS_gettid)};
  asked->options.count = said->count;
  asked->options.numbers = (const u32 *)said->numbers;
  asked->options.values = (u64 *)said->values;
  if (said->own_count) memcpy(asked->library_numbers, (void *)said->own_numbers, 4 * said->own_count);
  struct Said copied = {said->count, (u64)asked->options.own_numbers, (u64)asked->options.own_values,
                        said->own_count, (u64)asked->library_numbers, (u64)asked->options.own_values};
  asked->load.arguments[0] = (u64)&asked->load.made;
  spread(call, &copied, asked->load.arguments + 2);
  asked->load.arguments[1] = (u64)copy_for(call, image);
  if (asked->load.arguments[1] && take_options(&asked->options)) return asked;
  drop(asked);
  return 0;
}

static Answer load(u32 call, u64 *out, u64 image, struct Said said) {
  READY();
  struct Asked *asked = out && !python_state() ? asked_of(call, image, &said) : 0;
  if (asked) return hand_over(asked, out, call < LOAD_LIBRARY_DATA ? CELL_MODULE : CELL_LIBRARY);
  u64 more[6] = {0};
  spread(call, &said, more);
  return calls[call]((u64)out, image, more[0], more[1], more[2], more[3], more[4], more[5]);
}

Answer cujit_cuModuleLoadData(u64 *out, u64 image) { return load(LOAD_MODULE_DATA, out, image, (struct Said){0}); }

Answer cujit_cuModuleLoadFatBinary(u64 *out, u64 image) {
  return load(LOAD_MODULE_FAT_BINARY, out, image, (struct Said){0});
}

Answer cujit_cuModuleLoad(u64 *out, u64 path) { return load(LOAD_MODULE_FILE, out, path, (struct Said){0}); }

Answer cujit_cuModuleLoadDataEx(u64 *out, u64 image, u32 count, u64 numbers, u64 values) {
  return load(LOAD_MODULE_DATA_EX, out, image, (struct Said){count, numbers, values, 0, 0, 0});
}

Answer cujit_cuLibraryLoadData(u64 *out, u64 image, u64 numbers, u64 values, u32 count, u64 own_numbers,
                               u64 own_values, u32 own_count) {
  return load(LOAD_LIBRARY_DATA, out, image, (struct Said){count, numbers, values, own_count, own_numbers, own_values});
}

Answer cujit_cuLibraryLoadFromFile(u64 *out, u64 path, u64 numbers, u64 values, u32 count, u64 own_numbers,
                                   u64 own_values, u32 own_count) {
  return load(LOAD_LIBRARY_FILE, out, path, (struct Said){count, numbers, values, own_count, own_numbers, own_values});
}
