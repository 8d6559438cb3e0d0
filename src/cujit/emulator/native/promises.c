/* Calls of threads that Python doesn't know.

   Who holds Python's lock may wait for such a thread: an extension that starts threads and joins them. So a thread of the
   emulator's own makes the call, with copies. One that makes no progress succeeds for now, with a handle that stands for
   what it will make: it is promised. The first call that uses the handle answers what came of it. */

#include "state.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_NS = 50000000, BUSY_NS = 2000000, IDLE_LOOKS = 6, MOST_OPTIONS = 64, PIECE = 4096, CONTEXTS = 8 };

typedef Answer Call(u64, u64, u64, u64, u64, u64, u64, u64);

static Call *calls[PROMISE_LINK_END + 1];
static Answer (*on_call)(struct Promise *);
static Answer (*on_late)(struct Promise *);
static void *(*python_state)(void);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static pthread_t worker;
static u32 works;
static u64 stalled_ns; /* what the worker had worked when a call was promised last */
static struct Promise *first; /* of those that are not done */

/* Give what Python has: the calls, what makes one, what registers one that came late, and PyGILState_GetThisThreadState.
 */
void cujit_promises_begin(Call *const *all, Answer (*does)(struct Promise *), Answer (*late)(struct Promise *),
                          void *(*known)(void)) {
  pthread_condattr_t clock;
  memcpy(calls, all, sizeof calls);
  on_call = does;
  on_late = late;
  python_state = known;
  pthread_condattr_init(&clock);
  pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
  pthread_cond_init(&changed, &clock);
}

/* The number of the thread that made the call which this one is in. */
u64 cujit_promises_asker(void) {
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

/* -- what a call has ------------------------------------------------------------------------------------------------ */

/* What the arguments of a call are, a letter each:

   -  a number or a handle, or memory of the caller's that stays
   o  where the result goes; z where its size goes
   i  an image; d bytes, as many as the next argument says
   t  a text
   c, n, v  options of the driver's compiler: how many, their numbers, their values
   m, l, w  options of a library: how many, their numbers, their values

   The kind is that of the handle which is promised. */
struct Form {
  const char *letters;
  u32 kind;
};

static const struct Form forms[] = {
    [PROMISE_MODULE_DATA] = {"oi", CELL_MODULE},
    [PROMISE_MODULE_FAT_BINARY] = {"oi", CELL_MODULE},
    [PROMISE_MODULE_DATA_EX] = {"oicnv", CELL_MODULE},
    [PROMISE_MODULE_FILE] = {"ot", CELL_MODULE},
    [PROMISE_LIBRARY_DATA] = {"oinvclwm", CELL_LIBRARY},
    [PROMISE_LIBRARY_FILE] = {"otnvclwm", CELL_LIBRARY},
    [PROMISE_FUNCTION] = {"o-t", CELL_FUNCTION},
    [PROMISE_KERNEL] = {"o-t", CELL_KERNEL},
    [PROMISE_KERNEL_FUNCTION] = {"o-", CELL_FUNCTION},
    [PROMISE_MODULE_UNLOAD] = {"-", CELL_FREE},
    [PROMISE_LIBRARY_UNLOAD] = {"-", CELL_FREE},
    [PROMISE_FUNCTION_LOAD] = {"-", CELL_FREE},
    [PROMISE_FUNCTION_ATTRIBUTE] = {"---", CELL_FREE},
    [PROMISE_KERNEL_ATTRIBUTE] = {"----", CELL_FREE},
    [PROMISE_FUNCTION_CACHE] = {"--", CELL_FREE},
    [PROMISE_FUNCTION_BANKS] = {"--", CELL_FREE},
    [PROMISE_KERNEL_CACHE] = {"---", CELL_FREE},
    [PROMISE_LINK] = {"---o", CELL_LINK},
    [PROMISE_LINK_DATA] = {"--d-tcnv", CELL_FREE},
    [PROMISE_LINK_FILE] = {"--tcnv", CELL_FREE},
    [PROMISE_LINKED] = {"-oz", CELL_IMAGE},
    [PROMISE_LINK_END] = {"-", CELL_FREE},
};

/* A call, and copies of what it was given. */
struct Asked {
  struct Promise promise;
  const struct Form *form;
  u64 *out, *size; /* the caller's */
  u64 made_size;
  struct Options options;
  u32 library_numbers[MOST_OPTIONS];
  void *copies[PROMISE_ARGUMENTS];
};

static void drop(struct Asked *asked) {
  for (u64 k = 0; k < asked->options.count; k++)
    if (is_buffer(asked->options.own_numbers[k])) free((void *)asked->options.own_values[k]);
  for (u64 k = 0; k < PROMISE_ARGUMENTS; k++) free(asked->copies[k]);
  free(asked);
}

/* The argument that a letter is for; 0 where the call has none. */
static u64 given_as(const struct Form *form, char letter, const u64 *given) {
  const char *found = strchr(form->letters, letter);
  return found ? given[found - form->letters] : 0;
}

/* Note the options that a call has; 0 where they cannot be copied. */
static u32 find_options(struct Asked *asked, const u64 *given) {
  struct Options *options = &asked->options;
  u64 own = (u32)given_as(asked->form, 'm', given), own_numbers = given_as(asked->form, 'l', given);
  u64 count = (u32)given_as(asked->form, 'c', given);
  options->numbers = (const u32 *)given_as(asked->form, 'n', given);
  options->values = (u64 *)given_as(asked->form, 'v', given);
  if (count > MOST_OPTIONS || (count && !(options->numbers && options->values))) return 0;
  if (own > MOST_OPTIONS || (own && !(own_numbers && given_as(asked->form, 'w', given)))) return 0;
  options->count = count;
  if (own) memcpy(asked->library_numbers, (void *)own_numbers, 4 * own);
  return take_options(options);
}

/* What the call is to get for an argument: a place of ours, a copy (which is noted), or the argument itself. */
static u64 argument_of(struct Asked *asked, u32 k, const u64 *given) {
  u64 value = given[k];
  if (!value) return 0;
  switch (asked->form->letters[k]) {
  case 'o': asked->out = (u64 *)value; return (u64)&asked->promise.made;
  case 'z': asked->size = (u64 *)value; return (u64)&asked->made_size;
  case 'n': return (u64)asked->options.own_numbers;
  case 'l': return (u64)asked->library_numbers;
  case 'v':
  case 'w': return (u64)asked->options.own_values;
  case 'i': return cell_of(value, CELL_IMAGE) ? value : (u64)(asked->copies[k] = image_of(value));
  case 'd': return (u64)(asked->copies[k] = copy_of(value, given[k + 1]));
  case 't': return (u64)(asked->copies[k] = text_of(value));
  default: return value;
  }
}

/* Copy all that a call has; null where Python is to look at it itself. */
static struct Asked *asked_of(u32 call, const u64 *given) {
  struct Asked *asked = calloc(1, sizeof *asked);
  if (!asked) return 0;
  asked->form = forms + call;
  asked->promise = (struct Promise){.call = call, .context = current_handle(), .asker = (u64)syscall(SYS_gettid)};
  u32 is_copied = find_options(asked, given);
  for (u32 k = 0; is_copied && asked->form->letters[k]; k++) {
    asked->promise.arguments[k] = argument_of(asked, k, given);
    is_copied = asked->promise.arguments[k] || !given[k];
  }
  if (is_copied) return asked;
  drop(asked);
  return 0;
}

/* -- the thread that calls ------------------------------------------------------------------------------------------- */

static void make(struct Promise *promise, struct Thread *thread) {
  thread->contexts[0] = promise->context;
  thread->depth = promise->context != 0;
  thread->asker = promise->asker;
  promise->answer = on_call(promise);
}

/* Take a call out of the list. */
static void settle(struct Promise *promise) {
  state.promises -= promise->is_promised;
  struct Promise **place = &first;
  while (*place != promise) place = (struct Promise **)&(*place)->next;
  *place = (struct Promise *)promise->next;
  promise->is_done = 1;
  if (promise->is_promised) drop((struct Asked *)promise);
  pthread_cond_broadcast(&changed);
}

static void *work(void *of_thread) {
  struct Thread *thread = cujit_this_thread();
  thread->contexts = of_thread;
  thread->room = CONTEXTS;
  pthread_mutex_lock(&lock);
  for (;;) {
    struct Promise *promise = first;
    if (!promise) {
      pthread_cond_wait(&changed, &lock);
      continue;
    }
    pthread_mutex_unlock(&lock);
    make(promise, thread);
    pthread_mutex_lock(&lock);
    if (promise->is_promised) {
      pthread_mutex_unlock(&lock);
      on_late(promise);
      pthread_mutex_lock(&lock);
    }
    settle(promise);
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

/* Promise what a call makes. */
static void give_word(struct Asked *asked) {
  struct Promise *promise = &asked->promise;
  u32 kind = asked->form->kind;
  if (kind) promise->handle = cujit_cell_new(kind, promise->context);
  promise->is_promised = !kind || promise->handle;
  state.promises += promise->is_promised;
}

/* Wait until a call is done, or the worker makes no progress: it waits for Python's lock. Calls behind one for which it
   still waits are promised at once. */
static void wait_for(struct Asked *asked) {
  struct Promise *promise = &asked->promise;
  u64 before = worked_ns();
  if (first->is_promised && before - stalled_ns <= BUSY_NS) give_word(asked);
  for (u32 idle = 0; !promise->is_done && !promise->is_promised && !state.ended;) {
    if (!look()) continue;
    u64 now = worked_ns();
    idle = now - before > BUSY_NS ? 0 : idle + 1;
    before = now;
    if (idle < IDLE_LOOKS || promise->is_done) continue;
    stalled_ns = now;
    give_word(asked);
  }
}

/* Give the caller what was made, or what stands for it. */
static Answer tell(const struct Asked *asked) {
  const struct Promise *promise = &asked->promise;
  u32 is_done = promise->is_done;
  Answer answer = is_done ? promise->answer : promise->is_promised ? RESULT_SUCCESS : RESULT_DEINITIALIZED;
  if (!answer && asked->out) *asked->out = is_done ? promise->made : promise->handle;
  if (!answer && asked->size) *asked->size = is_done ? asked->made_size : CELL_BYTES;
  return answer;
}

static Answer hand_over(struct Asked *asked) {
  struct Promise *promise = &asked->promise, **last = &first;
  pthread_mutex_lock(&lock);
  while (*last) last = (struct Promise **)&(*last)->next;
  *last = promise;
  pthread_cond_broadcast(&changed);
  wait_for(asked);
  Answer answer = tell(asked);
  u32 is_done = promise->is_done;
  pthread_mutex_unlock(&lock);
  if (!is_done) return answer;
  give_options(&asked->options);
  drop(asked);
  return answer;
}

/* Whether a promised call makes what a handle stands for, or is about it. */
static u32 is_about(const struct Promise *promise, u64 handle) {
  if (!promise->is_promised) return 0;
  for (u32 k = 0; k < PROMISE_ARGUMENTS; k++)
    if (promise->arguments[k] == handle) return 1;
  return promise->handle == handle;
}

static u32 is_open(u64 handle) {
  for (struct Promise *promise = first; promise; promise = (struct Promise *)promise->next)
    if (is_about(promise, handle)) return 1;
  return 0;
}

/* Whether calls that are promised are about a handle. The worker makes them, and never waits for one. */
u32 cujit_promises_about(u64 handle) {
  if (!state.promises || pthread_equal(pthread_self(), worker)) return 0;
  pthread_mutex_lock(&lock);
  u32 is = is_open(handle);
  pthread_mutex_unlock(&lock);
  return is;
}

/* Wait until no promised call is about a handle. */
void cujit_promises_wait(u64 handle) {
  if (pthread_equal(pthread_self(), worker)) return;
  pthread_mutex_lock(&lock);
  while (is_open(handle)) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
}

static u32 starts(void) {
  pthread_mutex_lock(&lock);
  u32 does = start_worker();
  pthread_mutex_unlock(&lock);
  return does;
}

static Answer ask(u32 call, const u64 *g) {
  READY();
  struct Asked *asked = !python_state() && starts() ? asked_of(call, g) : 0;
  return asked ? hand_over(asked) : calls[call](g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7]);
}

/* -- the driver's functions ------------------------------------------------------------------------------------------ */

/* Functions that take less find what they take where they look for it. */
#define DRIVER(function, call)                                                           \
  Answer cujit_##function(u64 a, u64 b, u64 c, u64 d, u64 e, u64 f, u64 g, u64 h) {      \
    return ask(PROMISE_##call, (u64[PROMISE_ARGUMENTS]){a, b, c, d, e, f, g, h});        \
  }

DRIVER(cuModuleLoadData, MODULE_DATA)
DRIVER(cuModuleLoadFatBinary, MODULE_FAT_BINARY)
DRIVER(cuModuleLoadDataEx, MODULE_DATA_EX)
DRIVER(cuModuleLoad, MODULE_FILE)
DRIVER(cuLibraryLoadData, LIBRARY_DATA)
DRIVER(cuLibraryLoadFromFile, LIBRARY_FILE)
DRIVER(cuModuleGetFunction, FUNCTION)
DRIVER(cuLibraryGetKernel, KERNEL)
DRIVER(cuKernelGetFunction, KERNEL_FUNCTION)
DRIVER(cuModuleUnload, MODULE_UNLOAD)
DRIVER(cuLibraryUnload, LIBRARY_UNLOAD)
DRIVER(cuFuncLoad, FUNCTION_LOAD)
DRIVER(cuFuncSetAttribute, FUNCTION_ATTRIBUTE)
DRIVER(cuKernelSetAttribute, KERNEL_ATTRIBUTE)
DRIVER(cuFuncSetCacheConfig, FUNCTION_CACHE)
DRIVER(cuFuncSetSharedMemConfig, FUNCTION_BANKS)
DRIVER(cuKernelSetCacheConfig, KERNEL_CACHE)
DRIVER(cuLinkCreate, LINK)
DRIVER(cuLinkCreate_v2, LINK)
DRIVER(cuLinkAddData, LINK_DATA)
DRIVER(cuLinkAddData_v2, LINK_DATA)
DRIVER(cuLinkAddFile, LINK_FILE)
DRIVER(cuLinkAddFile_v2, LINK_FILE)
DRIVER(cuLinkComplete, LINKED)
DRIVER(cuLinkDestroy, LINK_END)
