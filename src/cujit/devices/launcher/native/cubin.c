/* What a launch has to know of a cubin: its architecture, and of each kernel the name, the parameters and what limits a
   block. formats.cubin is the reference, which reads all of it and says what is wrong; this gives up (-1) instead.

   Source of the layouts: System V gABI, and formats/cubin.py and formats/cubin_info.py, where they are explained. */

#include "launcher.h"

enum { CUDA = 190, EXECUTABLE = 2, FUNCTION = 2, KERNEL = 0x10, NOBITS = 8, RESERVED = 1024, RESERVED_SINCE = 90 };
enum { MAX_THREADS = 0x05, REQNTID = 0x10, KPARAM = 0x17, REGCOUNT = 0x2f, CLUSTER = 0x3d, EXPLICIT_CLUSTER = 0x3e,
       CLUSTER_RANK = 0x3f, KPARAM_V2 = 0x45, GENERIC = 5, MOST_PARAMETERS = 256, FEW_WORDS = 1024 };

struct __attribute__((packed)) Header {
  u8 magic[4], class, order, version, os_abi, abi, rest[7];
  u16 type, machine;
  u32 elf_version;
  u64 entry, programs_at, sections_at;
  u32 flags;
  u16 bytes, program_bytes, programs, section_bytes, sections, names;
};
struct __attribute__((packed)) Section {
  u32 name, type;
  u64 flags, address, at, size;
  u32 link, info;
  u64 align, entry_bytes;
};
struct __attribute__((packed)) Symbol {
  u32 name;
  u8 info, other;
  u16 section;
  u64 value, size;
};
struct Span {
  const u8 *data;
  u64 size;
};
struct Cubin {
  struct Span file;
  const struct Section *sections;
  u32 count, arch, *info_of, *shared_of, *registers_of;
};
/* What the records of one kernel say. */
struct Facts {
  u32 threads, clusters, count;
  u32 words[MOST_PARAMETERS];
};

static u32 word(const u8 *at) {
  u32 value;
  __builtin_memcpy(&value, at, 4);
  return value;
}

static u32 arch_of(const struct Header *head) { return (head->abi >= 8 ? head->flags >> 8 : head->flags) & 0xff; }

static bool is_inside(struct Span file, u64 at, u64 size) { return at <= file.size && size <= file.size - at; }

/* The bytes of a section; none, and false, where it lies outside of the file. */
static bool content(const struct Cubin *cubin, const struct Section *section, struct Span *out) {
  u64 size = section->type == NOBITS ? 0 : section->size, at = size ? section->at : 0;
  if (!is_inside(cubin->file, at, size)) return false;
  *out = (struct Span){cubin->file.data + at, size};
  return true;
}

/* A name in a table of strings; null where it does not end inside of it. */
static const char *text(struct Span strings, u64 at, u64 *length) {
  for (u64 end = at; end < strings.size; end++)
    if (!strings.data[end]) {
      *length = end - at;
      return (const char *)strings.data + at;
    }
  return 0;
}

/* Whether a text that ends with a zero begins with another. */
static bool begins(const char *name, const char *head) {
  while (*head)
    if (*name++ != *head++) return false;
  return true;
}

static bool is_same(const char *left, u64 left_length, const char *right, u64 length) {
  return left_length == length && !__builtin_memcmp(left, right, length);
}

/* The next record: its attribute, its words and how many; false at the end, or (-1 in *attribute) at what is none. */
static bool record(struct Span *records, i32 *attribute, struct Span *found) {
  if (!records->size) return false;
  *attribute = -1;
  if (records->size < 4) return true;
  u8 format = records->data[0];
  u64 more = format == 4 ? (u64)(records->data[2] | records->data[3] << 8) : 0;
  if (format < 1 || format > 4 || more > records->size - 4) return true;
  *attribute = records->data[1];
  *found = (struct Span){records->data + 4, more};
  records->data += 4 + more;
  records->size -= 4 + more;
  return true;
}

static bool product(struct Span found, u32 *out) {
  u64 threads = 1;
  if (found.size < 12) return false;
  for (int axis = 0; axis < 3; axis++) {
    u32 size = word(found.data + 4 * axis);
    if (size > 1024) return false;
    threads *= size;
  }
  if (!threads || threads > 1024 || (*out && *out < threads)) return threads != 0 && threads <= 1024;
  *out = (u32)threads;
  return true;
}

/* Read a parameter into its place; false where it has been there, or does not fit the word: pointer, offset, size. */
static bool parameter(struct Span found, bool is_second, struct Facts *facts) {
  if (found.size < 12) return false;
  u32 place = word(found.data + 4), packed = word(found.data + 8), ordinal = place & 0xffff, offset = place >> 16;
  u32 size = is_second ? packed & 0xffff : packed >> 18, space = packed >> (is_second ? 24 : 8) & 15;
  if (ordinal >= MOST_PARAMETERS || offset >= 1 << 15 || facts->words[ordinal] != UINT32_MAX) return false;
  facts->words[ordinal] = (u32)(space == GENERIC) << 31 | offset << 16 | size;
  facts->count++;
  return facts->words[ordinal] != UINT32_MAX;
}

static bool facts_of(struct Span records, struct Facts *facts) {
  struct Span found = {0, 0};
  i32 attribute;
  __builtin_memset(facts, 0, sizeof *facts);
  __builtin_memset(facts->words, 0xff, sizeof facts->words);
  while (record(&records, &attribute, &found)) switch (attribute) {
      case -1: return false;
      case KPARAM:
      case KPARAM_V2:
        if (!parameter(found, attribute == KPARAM_V2, facts)) return false;
        break;
      case MAX_THREADS:
      case REQNTID:
        if (!product(found, &facts->threads)) return false;
        break;
      case CLUSTER:
      case EXPLICIT_CLUSTER:
      case CLUSTER_RANK: facts->clusters = 1;
    }
  u64 end = 0;
  for (u32 i = 0; i < facts->count; i++) {
    u32 offset = facts->words[i] >> 16 & 0x7fff;
    if (facts->words[i] == UINT32_MAX || offset < end) return false;
    end = offset + (facts->words[i] & 0xffff);
  }
  return true;
}

/* The first section of a name, which is of ``size`` bytes with the zero at its end; null if there is none. */
static const struct Section *section_called(const struct Cubin *cubin, struct Span names, const char *wanted, u64 size) {
  for (u32 i = 0; i < cubin->count; i++) {
    u64 at = cubin->sections[i].name;
    if (is_inside(names, at, size) && !__builtin_memcmp(names.data + at, wanted, size)) return cubin->sections + i;
  }
  return 0;
}

/* Note for each section of code where its records and its shared memory are, and for each symbol its registers. */
static bool survey(struct Cubin *cubin, struct Span names, u64 symbols) {
  const struct Section *module = section_called(cubin, names, ".nv.info", 9);
  for (u32 i = 0; i < cubin->count; i++) {
    const struct Section *section = cubin->sections + i;
    if (section->name >= names.size) return false;
    const char *name = (const char *)names.data + section->name;
    bool is_info = begins(name, ".nv.info."), is_shared = begins(name, ".nv.shared.");
    if ((is_info || is_shared) && section->info >= cubin->count) return false;
    if (is_info) cubin->info_of[section->info] = i;
    if (is_shared && section->info) cubin->shared_of[section->info] = i;
    if (section != module) continue;
    struct Span records, found = {0, 0};
    i32 attribute;
    if (!content(cubin, section, &records)) return false;
    while (record(&records, &attribute, &found)) {
      if (attribute < 0 || (attribute == REGCOUNT && found.size < 8)) return false;
      if (attribute == REGCOUNT && word(found.data) < symbols) cubin->registers_of[word(found.data)] = word(found.data + 4);
    }
  }
  return true;
}

/* Static shared memory of the source, without what the system takes; false where the section is another kernel's. */
static bool shared_bytes(const struct Cubin *cubin, struct Span names, u16 code, const char *kernel, u64 length, u32 *out) {
  const struct Section *section = cubin->sections + cubin->shared_of[code];
  *out = 0;
  if (!cubin->shared_of[code]) return true;
  u64 whole;
  const char *name = text(names, section->name, &whole);
  if (whole < 11 || !is_same(name + 11, whole - 11, kernel, length) || section->size > UINT32_MAX) return false;
  *out = (u32)section->size - (cubin->arch >= RESERVED_SINCE && section->size >= RESERVED ? RESERVED : 0);
  return true;
}

/* The header of a linked cubin whose table of sections is inside of it; null where it is none. */
static const struct Header *header_of(struct Span file) {
  const struct Header *head = (const void *)file.data;
  if (file.size < sizeof *head || word(file.data) != 0x464c457f || head->class != 2 || head->order != 1) return 0;
  if (head->machine != CUDA || head->type != EXECUTABLE || head->section_bytes != sizeof(struct Section)) return 0;
  return is_inside(file, head->sections_at, (u64)head->sections * sizeof(struct Section)) ? head : 0;
}

/* Whether a linked cubin of an architecture is all there: the driver does not learn how many bytes it gets. */
static bool is_whole(struct Span file, u32 arch) {
  const struct Header *head = header_of(file);
  if (!head || arch_of(head) != arch) return false;
  if (!is_inside(file, head->programs_at, (u64)head->programs * head->program_bytes)) return false;
  struct Cubin cubin = {file, (const void *)(file.data + head->sections_at), head->sections, 0, 0, 0, 0};
  struct Span bytes;
  for (u32 i = 0; i < cubin.count; i++)
    if (!content(&cubin, cubin.sections + i, &bytes)) return false;
  return true;
}

/* Write architecture and count, then for each kernel: where its name is, its length, registers, threads (0: any), static
   shared bytes, whether clusters are spoken of, the count of its parameters, and a word for each. Gives the count of words,
   -1 where this is not a cubin as expected, -2 where there is no room: the end of ``out`` is used for notes. */
static i64 survey_all(const u8 *data, u64 size, u32 *out, u64 room) {
  struct Span file = {data, size}, names, strings, records;
  const struct Header *head = header_of(file);
  if (!head) return -1;
  struct Cubin cubin = {file, (const void *)(data + head->sections_at), head->sections, 0, 0, 0, 0};
  if (head->names >= cubin.count || !content(&cubin, cubin.sections + head->names, &names)) return -1;
  cubin.arch = arch_of(head);
  if (!names.size || names.data[names.size - 1]) return -1;
  const struct Section *table = section_called(&cubin, names, ".symtab", 8);
  if (!table || !content(&cubin, table, &records) || table->link >= cubin.count) return -1;
  if (!content(&cubin, cubin.sections + table->link, &strings)) return -1;
  u64 symbols = records.size / sizeof(struct Symbol), used = 2, scratch = 2 * (u64)cubin.count + symbols;
  if (records.size % sizeof(struct Symbol)) return -1;
  if (room < used + scratch) return -2;
  room -= scratch;
  cubin.info_of = out + room;
  cubin.shared_of = cubin.info_of + cubin.count;
  cubin.registers_of = cubin.shared_of + cubin.count;
  __builtin_memset(cubin.info_of, 0, scratch * sizeof(u32));
  if (!survey(&cubin, names, symbols)) return -1;
  out[0] = cubin.arch;
  out[1] = 0;
  struct Facts facts;
  for (u64 i = 0; i < symbols; i++) {
    const struct Symbol *symbol = (const struct Symbol *)(const void *)records.data + i;
    if ((symbol->info & 15) != FUNCTION || !symbol->section || !(symbol->other & KERNEL)) continue;
    u64 length;
    u32 shared;
    const char *name = text(strings, symbol->name, &length);
    if (!name || !length || symbol->section >= cubin.count) return -1;
    if (!content(&cubin, cubin.sections + cubin.info_of[symbol->section], &records)) return -1;
    if (!facts_of(cubin.info_of[symbol->section] ? records : (struct Span){0, 0}, &facts)) return -1;
    if (!shared_bytes(&cubin, names, symbol->section, name, length, &shared)) return -1;
    if (used + 7 + facts.count > room) return -2;
    u32 row[] = {(u32)((const u8 *)name - data), (u32)length, cubin.registers_of[i], facts.threads, shared, facts.clusters,
                 facts.count};
    __builtin_memcpy(out + used, row, sizeof row);
    __builtin_memcpy(out + used + 7, facts.words, facts.count * sizeof(u32));
    used += 7 + facts.count;
    out[1]++;
    content(&cubin, table, &records);
  }
  return out[1] ? (i64)used : -1;
}

/* The kernels that were written down, by name: registers, threads, shared bytes, clusters, and a word for each parameter. */
static object *rows_of(const char *data, const u32 *words) {
  object *rows = CALL(PyDict_New)();
  const u32 *row = words + 2;
  for (u32 i = 0; rows && i < words[1]; i++, row += 7 + row[6]) {
    u32 kept[4 + MOST_PARAMETERS];
    __builtin_memcpy(kept, row + 2, 4 * sizeof(u32));
    __builtin_memcpy(kept + 4, row + 7, row[6] * sizeof(u32));
    object *name = CALL(PyUnicode_FromStringAndSize)(data + row[0], row[1]);
    object *bytes = name ? CALL(PyBytes_FromStringAndSize)((const char *)kept, (4 + row[6]) * sizeof(u32)) : 0;
    bool is_kept = bytes && !CALL(PyDict_SetItem)(rows, name, bytes);
    if (name) CALL(Py_DecRef)(name);
    if (bytes) CALL(Py_DecRef)(bytes);
    if (is_kept) continue;
    CALL(Py_DecRef)(rows);
    rows = 0;
  }
  return rows;
}

/* A dict of the kernels of a linked cubin; null, with an error where memory is short, if anything is not as expected. */
static object *rows_in(object *image) {
  const char *data = TYPE(image) == OBJECT(bytes) ? CALL(PyBytes_AsString)(image) : 0;
  u64 size = data ? (u64)CALL(PyBytes_Size)(image) : 0;
  u32 few[FEW_WORDS];
  i64 used = data ? survey_all((const u8 *)data, size, few, FEW_WORDS) : -1;
  object *rows = used < 0 ? 0 : rows_of(data, few);
  for (u64 room = size / 4; used == -2 && room <= 1024 + size; room = room < size ? size : 1024 + size + 1) {
    object *scratch = CALL(PyBytes_FromStringAndSize)(0, (i64)(room * sizeof(u32)));
    if (!scratch) return 0;
    u32 *words = (u32 *)CALL(PyBytes_AsString)(scratch);
    used = survey_all((const u8 *)data, size, words, room);
    rows = used < 0 ? 0 : rows_of(data, words);
    CALL(Py_DecRef)(scratch);
  }
  if (!rows) CALL(PyErr_Clear)(); /* a name that is no text */
  return rows;
}

/* The same, or None. */
object *cujit_rows(object *self, object *image) {
  (void)self;
  object *rows = rows_in(image);
  return rows || CALL(PyErr_Occurred)() ? rows : none();
}

typedef i32 (*load)(void **module, const void *image);
typedef i32 (*get_function)(void **function, void *module, const char *name);

static i32 enter_for(const struct CubinCalls *calls, bool *is_pushed) {
  return enter((void *)calls->context, calls->get_context, calls->set_context, calls->push_context, is_pushed);
}

/* A copy of the words of an object that had filled slots and nothing else; null, with an error, where memory is short. */
static object *copy(u64 original) {
  const u64 *words = (const u64 *)original;
  object *type = TYPE(original), *made = CALL(PyType_GenericAlloc)(type, 0);
  u64 count = (u64)AT(type, cujit_places.basic_size) / sizeof(u64);
  for (u64 i = (u64)cujit_places.type / sizeof(u64) + 1; made && i < count; i++) {
    if (words[i]) CALL(Py_IncRef)((object *)words[i]);
    ((u64 *)made)[i] = words[i];
  }
  return made;
}

/* A copy with other parts in places that are empty in the original. It takes the references to the parts, also where it
   is null: where a part is null, or memory is short. */
static object *copy_with(u64 original, u64 count, const i64 *places, object *const *parts) {
  bool is_whole = true;
  for (u64 i = 0; i < count; i++) is_whole = is_whole && parts[i];
  object *made = is_whole ? copy(original) : 0;
  for (u64 i = 0; i < count; i++) {
    if (made) AT(made, places[i]) = parts[i];
    else if (parts[i]) CALL(Py_DecRef)(parts[i]);
  }
  return made;
}

struct Time {
  i64 seconds, nanoseconds;
};
int clock_gettime(int clock, struct Time *time); /* of the C library of the process; Linux: CLOCK_MONOTONIC is 1 */

static double seconds(void) {
  struct Time now = {0, 0};
  clock_gettime(1, &now);
  return (double)now.seconds + (double)now.nanoseconds * 1e-9;
}

static object *kept(object *value) {
  CALL(Py_IncRef)(value);
  return value;
}

/* The module of what the driver has loaded: its handle, in what the back end has of it, in an image, in a module. */
static object *module_of(const struct CubinCalls *calls, void *driver_module, object *const *given, double seconds) {
  i64 of_handle[] = {cujit_places.handle_handle};
  i64 of_loaded[] = {cujit_places.loaded_data, cujit_places.loaded_module};
  i64 of_image[] = {cujit_places.image_given, cujit_places.image_word, cujit_places.image_loaded};
  i64 of_module[] = {cujit_places.module_kernels, cujit_places.module_image, cujit_places.module_load_s};
  object *number = CALL(PyLong_FromUnsignedLongLong)((u64)driver_module);
  object *handle = copy_with(calls->handle, 1, of_handle, &number);
  object *loaded = copy_with(calls->loaded, 2, of_loaded, (object *[]){kept(given[0]), handle});
  object *word = CALL(PyBytes_FromStringAndSize)((const char *)cujit_places.process, sizeof(u64));
  object *image = copy_with(calls->image, 3, of_image, (object *[]){kept(given[1]), word, loaded});
  object *load_s = CALL(PyFloat_FromDouble)(seconds);
  return copy_with(calls->module, 3, of_module, (object *[]){CALL(PyDict_New)(), image, load_s});
}

/* Have the driver load a linked cubin for this architecture: a module, or None where Python is to find out why not.
   ``self`` is the bytes of the calls. Given are the bytes of the cubin, and what the module keeps of it. */
object *cujit_load(object *self, object *const *given, i64 count) {
  const struct CubinCalls *calls = (void *)((char *)self + cujit_places.bytes);
  double start = seconds();
  if (count != 2 || TYPE(given[0]) != OBJECT(bytes)) return none();
  struct Span file = {(const u8 *)CALL(PyBytes_AsString)(given[0]), (u64)CALL(PyBytes_Size)(given[0])};
  void *module = 0;
  bool is_pushed;
  if (!is_whole(file, calls->number) || enter_for(calls, &is_pushed)) return none();
  void *thread = CALL(PyEval_SaveThread)();
  i32 status = ((load)calls->load)(&module, file.data);
  CALL(PyEval_RestoreThread)(thread);
  leave(calls->pop_context, is_pushed);
  return status ? none() : module_of(calls, module, given, seconds() - start);
}

/* The most threads that a block surely has room for: a block has 65536 registers, given to warps in pieces of 256, to four
   warps at a time (devices.cuda.kernel, which says where that is from). */
static u32 room_for(u32 registers) {
  u32 of_warp = (registers * 32 + 255) / 256 * 256;
  return of_warp ? 65536 / of_warp / 4 * 4 * 32 : 0;
}

/* Have the driver find a kernel; null where it does not. */
static void *function_of(const struct CubinCalls *calls, object *handle, const char *name) {
  object *number = AT(handle, cujit_places.handle_handle);
  bool is_pushed;
  if (TYPE(number) != OBJECT(int) || enter_for(calls, &is_pushed)) return 0;
  void *module = (void *)CALL(PyLong_AsUnsignedLongLong)(number), *function = 0;
  void *thread = CALL(PyEval_SaveThread)();
  i32 status = ((get_function)calls->get_function)(&function, module, name);
  CALL(PyEval_RestoreThread)(thread);
  leave(calls->pop_context, is_pushed);
  return status ? 0 : function;
}

/* What is known of a kernel: registers, threads, shared bytes, clusters; null if nothing is. Then its parameters. */
struct Row {
  const u32 *limits, *parameters;
  i64 count;
};

/* The row of the only kernel of a cubin, in words that live on; or of one of several, which are then kept. */
static struct Row row_of(object *loaded, object *name, u32 *few) {
  object *rows = AT(loaded, cujit_places.loaded_rows), *image = AT(loaded, cujit_places.loaded_data);
  if (rows == OBJECT(None) && TYPE(image) == OBJECT(bytes)) {
    const char *data = CALL(PyBytes_AsString)(image);
    i64 length, used = survey_all((const u8 *)data, (u64)CALL(PyBytes_Size)(image), few, FEW_WORDS);
    if (used > 0 && few[1] == 1) {
      const char *text = CALL(PyUnicode_AsUTF8AndSize)(name, &length);
      if (text && is_same(text, (u64)length, data + few[2], few[3])) return (struct Row){few + 4, few + 9, few[8]};
      CALL(PyErr_Clear)();
      return (struct Row){0, 0, 0};
    }
    object *found = rows_in(image);
    if (!found) return (struct Row){0, 0, 0};
    AT(loaded, cujit_places.loaded_rows) = found;
    CALL(Py_DecRef)(rows);
    rows = found;
  }
  object *row = TYPE(rows) == OBJECT(dict) ? CALL(PyDict_GetItem)(rows, name) : 0;
  const u32 *words = row ? (const u32 *)CALL(PyBytes_AsString)(row) : 0;
  return (struct Row){words, words ? words + 4 : 0, words ? CALL(PyBytes_Size)(row) / (i64)sizeof(u32) - 4 : 0};
}

/* The bytes of the pattern that a kernel shares with others, with its own limits and no function yet; null, with or
   without an error, where it is not plain, or no such kernel was launched by Python so far. */
static object *pattern_of(const struct CubinCalls *calls, const struct Row *row, object *patterns) {
  if (!row->limits || row->limits[3] || row->limits[2] > calls->shared_bytes) return 0;
  object *parameters = CALL(PyBytes_FromStringAndSize)((const char *)row->parameters, row->count * sizeof(u32));
  object *known = parameters ? CALL(PyDict_GetItem)(patterns, parameters) : 0;
  if (parameters) CALL(Py_DecRef)(parameters);
  if (!known) return 0;
  object *made = CALL(PyBytes_FromStringAndSize)((char *)known + cujit_places.bytes, sizeof(struct LaunchPattern));
  u32 most = room_for(row->limits[0]), limits[] = {calls->max_threads, row->limits[1] ? row->limits[1] : most};
  for (int i = 0; i < 2; i++) most = most < limits[i] ? most : limits[i];
  if (made) ((struct LaunchPattern *)((char *)made + cujit_places.bytes))->max_threads = most;
  return made;
}

/* A kernel whose plain launches native code makes by a pattern, to which it takes the reference. */
static object *kernel_of(const struct CubinCalls *calls, object *image, object *name, object *pattern) {
  i64 of_entry[] = {cujit_places.entry_image, cujit_places.entry_lowered};
  i64 of_kernel[] = {cujit_places.kernel_entry, cujit_places.kernel_pattern, cujit_places.kernel_launches};
  struct LaunchPattern *plain = (void *)((char *)pattern + cujit_places.bytes);
  object *entry = copy_with(calls->entry, 2, of_entry, (object *[]){kept(image), kept(name)});
  plain->entry = (u64)entry;
  plain->alive = (u64)AT(image, cujit_places.image_word) + (u64)cujit_places.bytes;
  return copy_with(calls->kernel, 3, of_kernel, (object *[]){entry, pattern, CALL(PyDict_New)()});
}

/* Find a kernel by its lowered name, which the module then keeps; null, with or without an error, where Python is to find
   it. Without ``patterns``, which are those of such kernels by their parameters, the image alone says what they are. */
static object *find(const struct CubinCalls *calls, object *module, object *name, object *patterns) {
  object *image = AT(module, cujit_places.module_image), *kernels = AT(module, cujit_places.module_kernels);
  object *loaded = AT(image, cujit_places.image_loaded), *names = (object *)calls->names;
  object *found = loaded == OBJECT(None) ? 0 : CALL(PyDict_GetItem)(kernels, name);
  if (found) return kept(found);
  if (TYPE(loaded) != TYPE(calls->loaded) || CALL(PyDict_Size)(names) >= MOST_LABELS) return 0;
  object *handle = AT(loaded, cujit_places.loaded_module);
  if (AT(handle, cujit_places.handle_is_loaded) != OBJECT(True)) return 0;
  u32 few[FEW_WORDS];
  struct Row row = row_of(loaded, name, few);
  object *pattern = pattern_of(calls, &row, patterns ? patterns : (object *)calls->patterns);
  const char *text = pattern ? CALL(PyUnicode_AsUTF8AndSize)(name, 0) : 0;
  bool is_plain = text && (patterns || !begins(text, "_Z"));
  void *function = is_plain ? function_of(calls, handle, text) : 0;
  if (!function) {
    if (pattern) CALL(Py_DecRef)(pattern);
    return 0;
  }
  struct LaunchPattern *plain = (void *)((char *)pattern + cujit_places.bytes);
  plain->function = plain->label = (u64)function;
  object *kernel = kernel_of(calls, image, name, pattern);
  object *label = kernel ? CALL(PyLong_FromUnsignedLongLong)((u64)function) : 0;
  bool is_kept = label && !CALL(PyDict_SetItem)(names, label, name) && !CALL(PyDict_SetItem)(kernels, name, kernel);
  if (label) CALL(Py_DecRef)(label);
  if (is_kept || !kernel) return kernel;
  CALL(Py_DecRef)(kernel);
  return 0;
}

/* The same for Python, or None. ``self`` is the bytes of the calls. Given are the module, the name, and the patterns. */
object *cujit_kernel(object *self, object *const *given, i64 count) {
  enum { MODULE, NAME, PATTERNS, ALL };
  if (count != ALL || TYPE(given[NAME]) != OBJECT(str) || TYPE(given[PATTERNS]) != OBJECT(dict)) return none();
  object *kernel = find((void *)((char *)self + cujit_places.bytes), given[MODULE], given[NAME], given[PATTERNS]);
  return kernel || CALL(PyErr_Occurred)() ? kernel : none();
}

/* module[name] */
object *cujit_item(object *module, object *name) {
  object *image = AT(module, cujit_places.module_image), *calls = AT(image, cujit_places.image_calls), *kernel = 0;
  bool is_bare = TYPE(AT(image, cujit_places.image_given)) == OBJECT(bytes) && TYPE(calls) == OBJECT(bytes);
  if (is_bare && TYPE(name) == OBJECT(str)) kernel = find((void *)((char *)calls + cujit_places.bytes), module, name, 0);
  if (kernel || CALL(PyErr_Occurred)()) return kernel;
  return CALL(PyObject_CallMethodObjArgs)(module, OBJECT(look_up), name, (object *)0);
}
