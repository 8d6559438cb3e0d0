/* A record of the cache (cujit.cache.record, which is the reference): proved, and read as far as a hit needs it.

   Only what that module writes is read: no space, no escape, no number that a double does not hold exactly. None says
   that Python is to look. */

#include "launcher.h"

struct Prefix {
  u8 magic[8];
  u32 version, header, parts, recipe;
  u64 payload;
  u8 key[DIGEST], proof[DIGEST];
};

enum { VERSION = 1, EM_CUDA = 190, ELF_HEADER = 64, MACHINE_AT = 18, MOST_DIGITS = 15, SIMPLE = 0 };
static const u8 MAGIC[8] = {0x93, 'c', 'u', 'j', 'i', 't', '\r', '\n'};
static const char HEX[] = "0123456789abcdef";

/* What is left of a header. */
struct Rest {
  const char *at, *end;
};

static bool skip(struct Rest *rest, const char *word) {
  const char *at = rest->at;
  for (; *word; word++, at++)
    if (at == rest->end || *at != *word) return false;
  rest->at = at;
  return true;
}

/* A text of printable ASCII without escapes: a new reference, or null. */
static object *text(struct Rest *rest) {
  if (!skip(rest, "\"")) return 0;
  const char *begin = rest->at;
  for (; rest->at < rest->end && *rest->at != '"'; rest->at++)
    if (*rest->at < ' ' || *rest->at > '~' || *rest->at == '\\') return 0;
  object *found = CALL(PyUnicode_FromStringAndSize)(begin, rest->at - begin);
  if (skip(rest, "\"") || !found) return found;
  CALL(Py_DecRef)(found);
  return 0;
}

/* What Python has read of these characters before, which begin with a label or are a list: a new reference, or null.
   They end where a bracket closes that opens in them, or before a comma. */
static object *known(struct Rest *rest, object *memo, const char *label) {
  const char *begin = rest->at;
  bool is_in_text = false;
  if (!skip(rest, label) || (!*label && (rest->at == rest->end || *rest->at != '['))) return 0;
  for (i64 depth = 0; rest->at < rest->end && (depth || *rest->at != ','); rest->at++) {
    if (*rest->at == '\\') return 0;
    if (*rest->at == '"') is_in_text = !is_in_text;
    if (is_in_text) continue;
    depth += (*rest->at == '[') - (*rest->at == ']');
    if (depth < 0) break;
  }
  object *key = CALL(PyBytes_FromStringAndSize)(begin, rest->at - begin);
  object *found = key ? CALL(PyDict_GetItem)(memo, key) : 0;
  if (key) CALL(Py_DecRef)(key);
  if (found) CALL(Py_IncRef)(found);
  return found;
}

/* A mapping of names, with texts or with what Python has read before, as it is in an Artifact. */
static object *mapping(struct Rest *rest, object *memo) {
  object *rows = CALL(PyDict_New)(), *proxy = 0;
  bool is_good = rows && skip(rest, "[");
  for (bool is_first = true; is_good && !skip(rest, "]"); is_first = false) {
    is_good = (is_first || skip(rest, ",")) && skip(rest, "[");
    object *name = is_good ? text(rest) : 0, *value = 0;
    if (name && skip(rest, ",")) value = memo ? known(rest, memo, "") : text(rest);
    is_good = value && skip(rest, "]") && !CALL(PyDict_SetItem)(rows, name, value);
    if (name) CALL(Py_DecRef)(name);
    if (value) CALL(Py_DecRef)(value);
  }
  if (is_good) proxy = CALL(PyDictProxy_New)(rows);
  if (rows) CALL(Py_DecRef)(rows);
  return proxy;
}

/* Digits, of which there may be few enough for a double. */
static bool digits(struct Rest *rest, u64 *number, int *count) {
  const char *begin = rest->at;
  for (; rest->at < rest->end && *rest->at >= '0' && *rest->at <= '9'; rest->at++)
    *number = *number * 10 + (u64)(*rest->at - '0');
  *count = (int)(rest->at - begin);
  return *count && *count <= MOST_DIGITS;
}

/* Digits that are a whole number, as JSON has it. */
static bool whole(struct Rest *rest, u64 *number, int *count) {
  const char *begin = rest->at;
  return digits(rest, number, count) && (*begin != '0' || *count == 1);
}

/* A number that is a quotient of two which a double holds. The quotient is the nearest double, as Python reads it. */
static object *number(struct Rest *rest) {
  u64 digits_of_both = 0;
  int before, after = 0;
  if (!whole(rest, &digits_of_both, &before)) return 0;
  if (skip(rest, ".") && !digits(rest, &digits_of_both, &after)) return 0;
  double scale = 1;
  for (int i = 0; i < after; i++) scale *= 10;
  return before + after > MOST_DIGITS ? 0 : CALL(PyFloat_FromDouble)((double)digits_of_both / scale);
}

static object *integer(struct Rest *rest) {
  u64 found = 0;
  int count;
  return whole(rest, &found, &count) ? CALL(PyLong_FromUnsignedLongLong)(found) : 0;
}

static bool put(object *fields, object *name, object *value) {
  bool is_good = value && !CALL(PyDict_SetItem)(fields, name, value);
  if (value) CALL(Py_DecRef)(value);
  return is_good;
}

/* The header, into the fields of an Artifact, and into what else a hit needs of it. */
static bool read_header(struct Rest rest, object *memo, object *fields, object **more) {
  enum { WORK, MAKE_MS, MADE_S };
  if (!skip(&rest, "{\"work\":") || !(more[WORK] = text(&rest))) return false;
  if (!skip(&rest, ",") || !put(fields, OBJECT(kind), known(&rest, memo, "\"kind\":"))) return false;
  if (!skip(&rest, ",") || !put(fields, OBJECT(arch), known(&rest, memo, "\"arch\":"))) return false;
  if (!skip(&rest, ",\"names\":") || !put(fields, OBJECT(names), mapping(&rest, 0))) return false;
  if (!skip(&rest, ",\"signatures\":") || !put(fields, OBJECT(signatures), mapping(&rest, memo))) return false;
  if (!skip(&rest, ",\"log\":") || !put(fields, OBJECT(log), text(&rest))) return false;
  if (!skip(&rest, ",\"name\":") || !put(fields, OBJECT(name), text(&rest))) return false;
  if (!skip(&rest, ",\"tool\":") || !put(fields, OBJECT(tool), text(&rest))) return false;
  if (!skip(&rest, ",\"make_ms\":") || !(more[MAKE_MS] = number(&rest))) return false;
  if (!skip(&rest, ",\"made_s\":") || !(more[MADE_S] = integer(&rest))) return false;
  return skip(&rest, "}") && rest.at == rest.end;
}

static bool is_key(const u8 *key, object *digest) {
  i64 length;
  const char *text = TYPE(digest) == OBJECT(str) ? CALL(PyUnicode_AsUTF8AndSize)(digest, &length) : 0;
  if (!text || length != 2 * DIGEST) return false;
  for (int i = 0; i < DIGEST; i++)
    if (text[2 * i] != HEX[key[i] >> 4] || text[2 * i + 1] != HEX[key[i] & 15]) return false;
  return true;
}

static bool is_proved(const struct Prefix *prefix, const u8 *data, u64 size) {
  struct Digest digest;
  u8 found[DIGEST];
  if (!cujit_digest_begin(&digest)) return false;
  cujit_digest_add(&digest, data, __builtin_offsetof(struct Prefix, proof));
  cujit_digest_add(&digest, data + sizeof *prefix, size - sizeof *prefix);
  cujit_digest_end(&digest, found);
  return !__builtin_memcmp(found, prefix->proof, DIGEST);
}

static bool is_cubin(const u8 *data, u64 size) {
  return size >= ELF_HEADER && !__builtin_memcmp(data, "\177ELF", 4) && data[5] == 1 &&
         (data[MACHINE_AT] | data[MACHINE_AT + 1] << 8) == EM_CUDA;
}

/* Fields, work, milliseconds and seconds, as a tuple; null, perhaps with an error, if anything is not as expected. */
static object *read_record(const u8 *data, u64 size, object *digest, bool is_trusted, object *memo) {
  struct Prefix prefix;
  if (size < sizeof prefix) return 0;
  __builtin_memcpy(&prefix, data, sizeof prefix);
  u64 payload_at = sizeof prefix + (u64)prefix.header + prefix.parts + prefix.recipe;
  if (__builtin_memcmp(prefix.magic, MAGIC, sizeof MAGIC) || prefix.version != VERSION || payload_at > size) return 0;
  if (prefix.payload != size - payload_at || !is_key(prefix.key, digest)) return 0;
  if (!is_trusted && !is_proved(&prefix, data, size)) return 0;
  object *fields = CALL(PyDict_New)(), *more[3] = {0}, *made = 0;
  struct Rest header = {(const char *)data + sizeof prefix, (const char *)data + sizeof prefix + prefix.header};
  bool is_good = fields && read_header(header, memo, fields, more);
  bool is_elf = is_good && CALL(PyDict_GetItem)(fields, OBJECT(kind)) == OBJECT(cubin);
  is_good = is_good && (!is_elf || is_cubin(data + payload_at, prefix.payload));
  object *image = is_good ? CALL(PyBytes_FromStringAndSize)((const char *)data + payload_at, (i64)prefix.payload) : 0;
  is_good = put(fields, OBJECT(data), image) && put(fields, OBJECT(provenance), none());
  is_good = is_good && !CALL(PyDict_SetItem)(fields, OBJECT(places), OBJECT(empty));
  if (is_good) made = CALL(PyTuple_Pack)(4, fields, more[0], more[1], more[2]);
  for (int i = 0; i < 3; i++)
    if (more[i]) CALL(Py_DecRef)(more[i]);
  if (fields) CALL(Py_DecRef)(fields);
  return made;
}

/* Given are the bytes of a record, the digest of its key, whether the bytes were proved, and what Python has read. */
object *cujit_record(object *self, object *const *given, i64 count) {
  enum { DATA, KEY, TRUSTED, MEMO, ALL };
  struct Buffer view;
  (void)self;
  if (count != ALL || TYPE(given[MEMO]) != OBJECT(dict)) return none();
  if (CALL(PyObject_GetBuffer)(given[DATA], &view, SIMPLE)) return 0;
  object *made = read_record(view.memory, (u64)view.bytes, given[KEY], given[TRUSTED] == OBJECT(True), given[MEMO]);
  CALL(PyBuffer_Release)(&view);
  return made || CALL(PyErr_Occurred)() ? made : none();
}

int open(const char *path, int flags, ...); /* these four of the C library of the process */
i64 read(int file, void *data, u64 bytes);
int close(int file);
long syscall(long number, ...);

/* What the kernel says of an open file: the numbers and places are those of this processor.
   Source: Linux, arch/x86/include/uapi/asm/stat.h, include/uapi/asm-generic/stat.h, and the tables of system calls. */
#if defined(__x86_64__)
enum { FSTAT = 5, MODE_AT = 24, UID_AT = 28, GID_AT = 32 };
#else
enum { FSTAT = 80, MODE_AT = 16, UID_AT = 24, GID_AT = 28 };
#endif
enum { SIZE_AT = 48, CHANGED_AT = 88, STATUS_WORDS = 18, REGULAR = 0100000, KIND = 0170000, GROUP = 020, OTHERS = 02 };
enum { MOST_BYTES = 1 << 18 };

static u32 status_word(const u64 *status, int at) {
  u32 found;
  __builtin_memcpy(&found, (const char *)status + at, sizeof found);
  return found;
}

/* Whether nobody but those who are believed can have written a file: cujit.cache.trust, whose Trust.words these are. */
static bool is_trusted_file(const u64 *status, const u32 *words, u64 count) {
  u32 mode = status_word(status, MODE_AT), gid = status_word(status, GID_AT);
  bool is_group = words[0] && words[1] == gid, is_owner = is_group;
  for (u64 i = 2; i < count; i++) is_owner = is_owner || words[i] == status_word(status, UID_AT);
  return (mode & KIND) == REGULAR && is_owner && !(mode & OTHERS) && (is_group || !(mode & GROUP));
}

/* The bytes of an open file, read without Python's lock; null, perhaps with an error, where Python is to read it. */
static object *bytes_of(int file, const u64 *status) {
  u64 size = status[SIZE_AT / sizeof(u64)];
  object *data = size > MOST_BYTES ? 0 : CALL(PyBytes_FromStringAndSize)(0, (i64)size);
  if (!data) return 0;
  char *to = CALL(PyBytes_AsString)(data);
  void *thread = CALL(PyEval_SaveThread)();
  i64 got = read(file, to, size);
  CALL(PyEval_RestoreThread)(thread);
  if (got == (i64)size) return data;
  CALL(Py_DecRef)(data);
  return 0;
}

/* Read and prove an entry of a cache. Given are its path, the digest of its key, what Python has read before, whom the
   cache believes, and the flags to open it with. What record gives, the size in bytes, and when it was last used. */
object *cujit_entry(object *self, object *const *given, i64 count) {
  enum { PATH, KEY, MEMO, TRUST, FLAGS, ALL };
  (void)self;
  int over;
  if (count != ALL || TYPE(given[PATH]) != OBJECT(str) || TYPE(given[TRUST]) != OBJECT(bytes)) return none();
  if (TYPE(given[MEMO]) != OBJECT(dict)) return none();
  const char *path = CALL(PyUnicode_AsUTF8AndSize)(given[PATH], 0);
  if (!path) {
    CALL(PyErr_Clear)();
    return none();
  }
  u64 status[STATUS_WORDS], words = (u64)CALL(PyBytes_Size)(given[TRUST]) / sizeof(u32);
  int flags = (int)CALL(PyLong_AsLongLongAndOverflow)(given[FLAGS], &over);
  void *thread = CALL(PyEval_SaveThread)();
  int file = open(path, flags);
  bool is_known = file >= 0 && !syscall(FSTAT, file, status);
  CALL(PyEval_RestoreThread)(thread);
  if (file < 0) return none();
  const u32 *trust = (const u32 *)(const void *)CALL(PyBytes_AsString)(given[TRUST]);
  object *data = is_known && is_trusted_file(status, trust, words) ? bytes_of(file, status) : 0;
  close(file);
  u64 bytes = status[SIZE_AT / sizeof(u64)];
  const u8 *begin = data ? (const u8 *)CALL(PyBytes_AsString)(data) : 0;
  object *made = data ? read_record(begin, bytes, given[KEY], false, given[MEMO]) : 0;
  object *size = made ? CALL(PyLong_FromUnsignedLongLong)(bytes) : 0;
  object *used = size ? CALL(PyLong_FromUnsignedLongLong)(status[CHANGED_AT / sizeof(u64)]) : 0;
  object *whole = used ? CALL(PyTuple_Pack)(3, made, size, used) : 0;
  object *parts[] = {data, made, size, used};
  for (int i = 0; i < 4; i++)
    if (parts[i]) CALL(Py_DecRef)(parts[i]);
  return whole || CALL(PyErr_Occurred)() ? whole : none();
}

/* Whether bytes contain bytes, of which there are 1 to 255: Horspool's search. */
object *cujit_contains(object *self, object *const *given, i64 count) {
  (void)self;
  if (count != 2 || TYPE(given[0]) != OBJECT(bytes) || TYPE(given[1]) != OBJECT(bytes)) return none();
  const u8 *data = (const u8 *)CALL(PyBytes_AsString)(given[0]), *word = (const u8 *)CALL(PyBytes_AsString)(given[1]);
  i64 size = CALL(PyBytes_Size)(given[0]), length = CALL(PyBytes_Size)(given[1]);
  u8 steps[256];
  if (length < 1 || length > 255) return none();
  __builtin_memset(steps, (int)length, sizeof steps);
  for (i64 i = 0; i < length - 1; i++) steps[word[i]] = (u8)(length - 1 - i);
  for (i64 at = 0; at + length <= size; at += steps[data[at + length - 1]])
    if (data[at + length - 1] == word[length - 1] && !__builtin_memcmp(data + at, word, (u64)length))
      return CALL(Py_IncRef)(OBJECT(True)), OBJECT(True);
  return CALL(Py_IncRef)(OBJECT(False)), OBJECT(False);
}
