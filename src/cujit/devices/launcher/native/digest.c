/* SHA-256 by the instructions of x86-64 processors: to load OpenSSL takes milliseconds (values.hashing).

   Source: FIPS 180-4. */

#include "launcher.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

enum { LENGTH_AT = 56, SIMPLE = 0 /* CPython: PyBUF_SIMPLE */ };

static const u32 ROUNDS[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

#if defined(__x86_64__)
/* Source: Intel SDM, volume 2, SHA256RNDS2, SHA256MSG1, SHA256MSG2. */
__attribute__((target("sha,sse4.1"))) static void digest_blocks(u32 *state, const u8 *data, u64 count) {
  const __m128i order = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  __m128i low = _mm_shuffle_epi32(_mm_loadu_si128((void *)state), 0xb1);
  __m128i high = _mm_shuffle_epi32(_mm_loadu_si128((void *)(state + 4)), 0x1b);
  __m128i abef = _mm_alignr_epi8(low, high, 8), cdgh = _mm_blend_epi16(high, low, 0xf0);
  for (; count--; data += BLOCK) {
    __m128i words[4], abef_before = abef, cdgh_before = cdgh;
    for (int i = 0; i < 4; i++) words[i] = _mm_shuffle_epi8(_mm_loadu_si128((void *)(data + 16 * i)), order);
#pragma clang loop unroll(full)
    for (int i = 0; i < 16; i++) {
      __m128i now = words[i & 3], *next = &words[(i + 1) & 3], *before = &words[(i + 3) & 3];
      __m128i round = _mm_add_epi32(now, _mm_loadu_si128((void *)(ROUNDS + 4 * i)));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, round);
      if (i >= 3 && i < 15) *next = _mm_sha256msg2_epu32(_mm_add_epi32(*next, _mm_alignr_epi8(now, *before, 4)), now);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(round, 0x0e));
      if (i >= 1 && i < 13) *before = _mm_sha256msg1_epu32(*before, now);
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  low = _mm_shuffle_epi32(abef, 0x1b);
  high = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128((void *)state, _mm_blend_epi16(low, high, 0xf0));
  _mm_storeu_si128((void *)(state + 4), _mm_alignr_epi8(high, low, 8));
}

enum { SSSE3 = 1 << 9, SSE4_1 = 1 << 19, SHA = 1 << 29 };

static bool has_instructions(void) {
  u32 a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & (SSSE3 | SSE4_1)) != (SSSE3 | SSE4_1)) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && b & SHA;
}
#else
static void digest_blocks(u32 *state, const u8 *data, u64 count) { (void)state, (void)data, (void)count, (void)ROUNDS; }
static bool has_instructions(void) { return false; }
#endif

void cujit_digest_add(struct Digest *digest, const u8 *data, u64 bytes) {
  u64 kept = digest->bytes % BLOCK;
  digest->bytes += bytes;
  if (kept) {
    u64 room = BLOCK - kept, taken = bytes < room ? bytes : room;
    __builtin_memcpy(digest->rest + kept, data, taken);
    if (taken < room) return;
    digest_blocks(digest->state, digest->rest, 1);
    data += taken;
    bytes -= taken;
  }
  digest_blocks(digest->state, data, bytes / BLOCK);
  __builtin_memcpy(digest->rest, data + bytes / BLOCK * BLOCK, bytes % BLOCK);
}

void cujit_digest_end(struct Digest *digest, u8 *out) {
  static const u8 mark[BLOCK] = {0x80};
  u64 bits = __builtin_bswap64(digest->bytes * 8), kept = digest->bytes % BLOCK;
  cujit_digest_add(digest, mark, (kept < LENGTH_AT ? LENGTH_AT : LENGTH_AT + BLOCK) - kept);
  cujit_digest_add(digest, (void *)&bits, sizeof bits);
  for (int k = 0; k < 8; k++) {
    u32 word = __builtin_bswap32(digest->state[k]);
    __builtin_memcpy(out + 4 * k, &word, 4);
  }
}

bool cujit_digest_begin(struct Digest *digest) {
  static i32 known;
  if (!known) known = has_instructions() ? 2 : 1;
  *digest = (struct Digest){
      .state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
  return known == 2;
}

/* The digest of pieces one after the other, as bytes; None if the processor has no instructions for it. */
object *cujit_digest(object *self, object *const *given, i64 count) {
  (void)self;
  struct Digest digest;
  if (!cujit_digest_begin(&digest)) return none();
  for (i64 i = 0; i < count; i++) {
    struct Buffer view;
    if (CALL(PyObject_GetBuffer)(given[i], &view, SIMPLE)) return 0;
    cujit_digest_add(&digest, view.memory, (u64)view.bytes);
    CALL(PyBuffer_Release)(&view);
  }
  u8 out[DIGEST];
  cujit_digest_end(&digest, out);
  return CALL(PyBytes_FromStringAndSize)((char *)out, DIGEST);
}
