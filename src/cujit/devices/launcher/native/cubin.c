/* What a launch has to know of a cubin: its architecture, and of each kernel the name, the parameters and what limits a
   block. formats.cubin is the reference, which reads all of it and says what is wrong; this gives up (-1) instead.

   Source of the layouts: System V gABI, and formats/cubin.py and formats/cubin_info.py, where they are explained. */

#include "launcher.h"

enum { CUDA = 190, EXECUTABLE = 2, FUNCTION = 2, KERNEL = 0x10, NOBITS = 8, RESERVED = 1024, RESERVED_SINCE = 90 };
enum { MAX_THREADS = 0x05, REQNTID = 0x10, KPARAM = 0x17, REGCOUNT = 0x2f, CLUSTER = 0x3d, EXPLICIT_CLUSTER = 0x3e,
       CLUSTER_RANK = 0x3f, KPARAM_V2 = 0x45, GENERIC = 5, MOST_PARAMETERS = 256 };

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
  *out = (struct Span){cubin->file.data + section->at, section->type == NOBITS ? 0 : section->size};
  return section->type == NOBITS || is_inside(cubin->file, section->at, section->size);
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

static bool begins(const char *name, u64 length, const char *head) {
  for (; *head; head++, name++, length--)
    if (!length || *name != *head) return false;
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

/* The first section of a name; null if there is none, or a name is cut off. */
static const struct Section *section_called(const struct Cubin *cubin, struct Span names, const char *wanted, u64 size) {
  for (u32 i = 0; i < cubin->count; i++) {
    u64 length;
    const char *name = text(names, cubin->sections[i].name, &length);
    if (!name) return 0;
    if (is_same(name, length, wanted, size)) return cubin->sections + i;
  }
  return 0;
}

/* Note for each section of code where its records and its shared memory are, and for each symbol its registers. */
static bool survey(struct Cubin *cubin, struct Span names, u64 symbols) {
  const struct Section *module = section_called(cubin, names, ".nv.info", 8);
  for (u32 i = 0; i < cubin->count; i++) {
    const struct Section *section = cubin->sections + i;
    u64 length;
    const char *name = text(names, section->name, &length);
    if (!name) return false;
    bool is_info = begins(name, length, ".nv.info."), is_shared = begins(name, length, ".nv.shared.");
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

/* Write architecture and count, then for each kernel: where its name is, its length, registers, threads (0: any), static
   shared bytes, whether clusters are spoken of, the count of its parameters, and a word for each. Gives the count of words,
   -1 where this is not a cubin as expected, -2 where there is no room: the end of ``out`` is used for notes. */
static i64 survey_all(const u8 *data, u64 size, u32 *out, u64 room) {
  struct Span file = {data, size}, names, strings, records;
  const struct Header *head = (const void *)data;
  if (size < sizeof *head || word(data) != 0x464c457f || head->class != 2 || head->order != 1) return -1;
  if (head->machine != CUDA || head->type != EXECUTABLE || head->section_bytes != sizeof(struct Section)) return -1;
  struct Cubin cubin = {file, (const void *)(data + head->sections_at), head->sections, 0, 0, 0, 0};
  if (!is_inside(file, head->sections_at, (u64)cubin.count * sizeof(struct Section))) return -1;
  if (head->names >= cubin.count || !content(&cubin, cubin.sections + head->names, &names)) return -1;
  cubin.arch = arch_of(head);
  const struct Section *table = section_called(&cubin, names, ".symtab", 7);
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
  i64 used = data ? -2 : -1;
  for (u64 room = 1024; used == -2 && room <= 1024 + size; room = room < size / 4 ? size / 4 : 1024 + size + 1) {
    object *scratch = CALL(PyBytes_FromStringAndSize)(0, (i64)(room * sizeof(u32)));
    if (!scratch) return 0;
    u32 *words = (u32 *)CALL(PyBytes_AsString)(scratch);
    used = survey_all((const u8 *)data, size, words, room);
    object *rows = used < 0 ? 0 : rows_of(data, words);
    CALL(Py_DecRef)(scratch);
    if (rows) return rows;
  }
  CALL(PyErr_Clear)(); /* a name that is no text */
  return 0;
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

/* Have the driver load a linked cubin for this architecture: a dict of its kernels, and of the module under None; or None
   where Python is to find out why not. ``self`` is the bytes of the calls. */
object *cujit_load(object *self, object *image) {
  const struct CubinCalls *calls = (void *)((char *)self + cujit_places.bytes);
  object *rows = rows_in(image);
  if (!rows) return CALL(PyErr_Occurred)() ? 0 : none();
  const struct Header *head = (const void *)CALL(PyBytes_AsString)(image);
  void *module = 0;
  bool is_pushed;
  i32 status = -1;
  if (arch_of(head) == calls->number && !enter_for(calls, &is_pushed)) {
    void *thread = CALL(PyEval_SaveThread)();
    status = ((load)calls->load)(&module, head);
    CALL(PyEval_RestoreThread)(thread);
    leave(calls->pop_context, is_pushed);
  }
  object *handle = status ? 0 : CALL(PyLong_FromUnsignedLongLong)((u64)module);
  bool is_kept = handle && !CALL(PyDict_SetItem)(rows, OBJECT(None), handle);
  if (handle) CALL(Py_DecRef)(handle);
  if (is_kept) return rows;
  CALL(Py_DecRef)(rows);
  return CALL(PyErr_Occurred)() ? 0 : none();
}

/* The most threads that a block surely has room for: a block has 65536 registers, given to warps in pieces of 256, to four
   warps at a time (devices.cuda.kernel, which says where that is from). */
static u32 room_for(u32 registers) {
  u32 of_warp = (registers * 32 + 255) / 256 * 256;
  return of_warp ? 65536 / of_warp / 4 * 4 * 32 : 0;
}

/* Find a kernel of a module: the bytes of its LaunchPattern, or None where Python is to find it. Given are the module, the
   name, the row of the kernel, the patterns by parameters, the address of the word of its module, what launches refer to,
   and the names by label. */
object *cujit_kernel(object *self, object *const *given, i64 count) {
  const struct CubinCalls *calls = (void *)((char *)self + cujit_places.bytes);
  enum { MODULE, NAME, ROW, PATTERNS, ALIVE, ENTRY, NAMES, ALL };
  if (count != ALL) return none();
  const u32 *row = (const u32 *)CALL(PyBytes_AsString)(given[ROW]);
  i64 bytes = row ? CALL(PyBytes_Size)(given[ROW]) : 0;
  if (bytes < 16 || row[3] || row[2] > calls->shared_bytes || CALL(PyDict_Size)(given[NAMES]) >= MOST_LABELS) return none();
  object *parameters = CALL(PyBytes_FromStringAndSize)((const char *)(row + 4), bytes - 16);
  object *known = parameters ? CALL(PyDict_GetItem)(given[PATTERNS], parameters) : 0;
  const char *name = known ? CALL(PyUnicode_AsUTF8AndSize)(given[NAME], 0) : 0;
  struct LaunchPattern plain;
  if (name) plain = *(struct LaunchPattern *)((char *)known + cujit_places.bytes);
  if (parameters) CALL(Py_DecRef)(parameters);
  if (!name) return CALL(PyErr_Occurred)() ? 0 : none();
  void *module = (void *)CALL(PyLong_AsUnsignedLongLong)(given[MODULE]), *function = 0;
  bool is_pushed;
  if (enter_for(calls, &is_pushed)) return none();
  void *thread = CALL(PyEval_SaveThread)();
  i32 status = ((get_function)calls->get_function)(&function, module, name);
  CALL(PyEval_RestoreThread)(thread);
  leave(calls->pop_context, is_pushed);
  if (status) return none();
  object *made = CALL(PyBytes_FromStringAndSize)(0, sizeof(struct LaunchPattern));
  object *label = made ? CALL(PyLong_FromUnsignedLongLong)((u64)function) : 0;
  if (!label) return made;
  struct LaunchPattern *pattern = (void *)((char *)made + cujit_places.bytes);
  *pattern = plain;
  pattern->alive = CALL(PyLong_AsUnsignedLongLong)(given[ALIVE]);
  pattern->function = pattern->label = (u64)function;
  pattern->entry = (u64)given[ENTRY];
  u32 most = room_for(row[0]), limits[] = {calls->max_threads, row[1] ? row[1] : most};
  for (int i = 0; i < 2; i++) most = most < limits[i] ? most : limits[i];
  pattern->max_threads = most;
  bool is_named = !CALL(PyDict_SetItem)(given[NAMES], label, given[NAME]);
  CALL(Py_DecRef)(label);
  if (is_named) return made;
  CALL(Py_DecRef)(made);
  return 0;
}
