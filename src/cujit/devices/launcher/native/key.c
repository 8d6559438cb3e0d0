/* The key of a compile of a text that reads no header (cujit.compiler.keys.frame, which is the reference). */

#include "launcher.h"

static const char *const TELLING[] = {TELLING_WORDS};
enum { WORDS = sizeof TELLING / sizeof *TELLING };
static const char HEX[] = "0123456789abcdef";

/* A bit for each pair of characters that one of the words begins with. */
static u8 pairs[1 << 13];

static u32 pair_of(const char *at) { return (u32)(u8)at[0] << 8 | (u8)at[1]; }

static void note_pairs(void) {
  for (int i = 0; i < WORDS; i++) pairs[pair_of(TELLING[i]) >> 3] |= (u8)(1 << (pair_of(TELLING[i]) & 7));
}

static bool begins(const char *at, const char *end, const char *word) {
  for (; *word; word++, at++)
    if (at == end || *at != *word) return false;
  return true;
}

static bool is_word(char c) { return ((c | 32) >= 'a' && (c | 32) <= 'z') || (c >= '0' && c <= '9'); }

/* Whether a text is ASCII without a telling word, and no name of a file. */
static bool is_plain(const char *text, i64 size) {
  static bool is_noted;
  if (!is_noted) note_pairs();
  is_noted = true;
  const char *end = text + size;
  if (!size || is_word(end[-1])) return false;
  for (const char *at = text; at < end; at++) {
    if ((i8)*at <= 0) return false;
    u32 pair = pair_of(at); /* after the last character is a zero, which begins no word */
    if (!(pairs[pair >> 3] >> (pair & 7) & 1)) continue;
    for (int i = 0; i < WORDS; i++)
      if (begins(at, end, TELLING[i])) return false;
  }
  return true;
}

/* A name of printable ASCII that is not all spaces. */
static bool is_name(const char *text, i64 size) {
  bool is_blank = true;
  for (const char *at = text; at < text + size; at++) {
    if (*at < ' ' || *at > '~') return false;
    is_blank = is_blank && *at == ' ';
  }
  return !is_blank;
}

static void add(struct Digest *digest, const char *text, i64 size) {
  cujit_digest_add(digest, (const u8 *)text, (u64)size);
}

static void add_text(struct Digest *digest, const char *text) {
  i64 size = 0;
  while (text[size]) size++;
  add(digest, text, size);
}

static void add_number(struct Digest *digest, u64 number) {
  char digits[20], *at = digits + sizeof digits;
  do *--at = (char)('0' + number % 10);
  while (number /= 10);
  add(digest, at, digits + sizeof digits - at);
}

static void end_hex(struct Digest *digest, char *out) {
  u8 found[DIGEST];
  cujit_digest_end(digest, found);
  for (int i = 0; i < DIGEST; i++) out[2 * i] = HEX[found[i] >> 4], out[2 * i + 1] = HEX[found[i] & 15];
}

static bool add_names(struct Digest *digest, object *names) {
  for (i64 i = 0, size; i < CALL(PyTuple_Size)(names); i++) {
    object *name = CALL(PyTuple_GetItem)(names, i);
    const char *text = TYPE(name) == OBJECT(str) ? CALL(PyUnicode_AsUTF8AndSize)(name, &size) : 0;
    if (!text || !is_name(text, size)) return false;
    add_text(digest, "15 ");
    add_number(digest, (u64)size);
    add_text(digest, " None:name expression");
    add(digest, text, size);
  }
  return true;
}

/* Given are the pieces of a frame in a tuple of bytes, how many parts they are, the sorted names, the text, and whether
   it was found to need no header. The digest of the key as text; None where Python is to look. */
object *cujit_key(object *self, object *const *given, i64 count) {
  enum { FRAME, PARTS, NAMES, TEXT, KNOWN, ALL };
  enum { HEAD, BEFORE, MIDDLE, LAST };
  (void)self;
  i64 size;
  int over;
  if (count != ALL || TYPE(given[NAMES]) != OBJECT(tuple) || TYPE(given[TEXT]) != OBJECT(str)) return none();
  const char *text = CALL(PyUnicode_AsUTF8AndSize)(given[TEXT], &size);
  struct Digest source, digest;
  if (!text || !cujit_digest_begin(&source) || (given[KNOWN] != OBJECT(True) && !is_plain(text, size))) {
    CALL(PyErr_Clear)();
    return none();
  }
  char hex[2 * DIGEST];
  object *pieces[LAST + 1];
  for (i64 i = 0; i <= LAST; i++) pieces[i] = CALL(PyTuple_GetItem)(given[FRAME], i);
#define ADD(piece) add(&digest, CALL(PyBytes_AsString)(pieces[piece]), CALL(PyBytes_Size)(pieces[piece]))
  add(&source, text, size);
  end_hex(&source, hex);
  cujit_digest_begin(&digest);
  ADD(HEAD);
  i64 parts = CALL(PyLong_AsLongLongAndOverflow)(given[PARTS], &over) + CALL(PyTuple_Size)(given[NAMES]);
  add_number(&digest, (u64)parts);
  ADD(BEFORE);
  if (!add_names(&digest, given[NAMES])) {
    CALL(PyErr_Clear)();
    return none();
  }
  ADD(MIDDLE);
  add_text(&digest, "6 64 ");
  add_number(&digest, (u64)size);
  add_text(&digest, ":source");
  add(&digest, hex, sizeof hex);
  ADD(LAST);
  end_hex(&digest, hex);
  return CALL(PyUnicode_FromStringAndSize)(hex, sizeof hex);
}
