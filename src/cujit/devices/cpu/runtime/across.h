/* The check for races between blocks in global memory.

   Clocks as in races.h, but of blocks: what one thread of a block tells others, or learns of them, counts for all of its
   threads. A block's clock goes on with each fence or release; who reads what that block wrote by an atomic, volatile or
   relaxed access behind it knows what came before. Blocks whose numbers are BLOCK_CLOCKS apart have one clock, which
   hides races and makes none.

   Of each grain of global memory, one element of the least size that the kernel accesses, there are three records: who
   wrote it, and two blocks that read it. A record is the number of a deed, and the thread in the low bits. Deeds are
   numbered over all launches, so that nothing has to be cleared when one begins. */

#pragma once

#include "races.h"

#include <sched.h>
#include <sys/mman.h>

enum { MOST_DEEDS = 1 << (32 - THREAD_BITS), TAKEN = 32, SPACES_BETWEEN = 64, CHUNK = 16, LINE = 32 };

/* What a block did by one line at a clock of its own. */
struct Deed {
  u32 launch, block, clock, line, flags;
};

/* All that launches have in common: the number of the next deed, which begin again in each generation; the clocks of
   blocks; what was told by objects in memory, by their addresses, and how often that changed. */
struct Orders {
  u32 next, generation, clocks[BLOCK_CLOCKS], told[TELLERS][BLOCK_CLOCKS], versions[TELLERS];
  struct Deed deeds[MOST_DEEDS];
};

static struct Orders *orders_of_blocks;

/* Whether an access counts as atomic for other blocks. */
INLINE flag is_strong_across(u32 flags) {
  return flags & ACCESS_LOOKS || (flags & (ACCESS_STRONG | ACCESS_INSIDE)) == ACCESS_STRONG;
}

/* Whether an access may be one of global memory. */
INLINE flag may_be_global(u32 flags) {
  u32 space = space_of(flags);
  return space == SPACE_GLOBAL || space == SPACE_GENERIC;
}

INLINE u32 launch_tag(const struct Place *place) { return (u32)(place->watch->serial >> 16); }

/* -- a launch and a block begin ---------------------------------------------------------------------------------------- */

/* Records of another generation say nothing. */
static void renew_records(const struct Watch *watch, struct RecordHead *head) {
  if (head->generation && head->generation != watch->generation) {
    u64 page = 1 << 16, begin = (u64)head->records, end = begin + head->bytes;
    u64 first = (begin + page - 1) & -page, last = end & -page;
    if (first < last && !madvise((void *)first, last - first, MADV_DONTNEED)) {
      memset((void *)begin, 0, first - begin);
      memset((void *)last, 0, end - last);
    } else {
      memset((void *)begin, 0, end - begin);
    }
    if (~head->written) head->written = 0;
  }
  head->generation = watch->generation;
}

/* The launch may write this memory: what it reads there counts. */
INLINE void note_written(const struct Watch *watch, struct RecordHead *head) {
  if (head->written < watch->first_deed) head->written = watch->first_deed;
}

/* Note which memory the launch may write. */
static void begin_written(const struct Place *place, struct Watch *watch) {
  watch->anywhere = !watch->writes;
  for (const u32 *group = watch->writes; group && *group; group += *group + 1) {
    flag leads = 0;
    for (u32 k = 1; k <= *group; k++) {
      u64 address;
      memcpy(&address, (const u8 *)place->launch->parameters + group[k], sizeof address);
      const struct Span *span = span_of(place, address, 1);
      leads |= span != 0;
      if (!span || !span->records) continue;
      renew_records(watch, span->records);
      note_written(watch, span->records);
    }
    watch->anywhere |= !leads;
  }
}

static NOINLINE void begin_orders(const struct Place *place) {
  struct Watch *watch = (struct Watch *)place->watch;
  cujit_check_lock();
  struct Orders *all = orders_of_blocks;
  if (!all && (all = calloc(1, sizeof *all))) {
    all->next = all->generation = 1;
    for (u32 k = 0; k < BLOCK_CLOCKS; k++) all->clocks[k] = 2;
    orders_of_blocks = all;
  }
  if (all && !watch->first_deed) {
    if (all->next > MOST_DEEDS / 2) all->next = 1, all->generation++;
    watch->generation = all->generation;
    watch->first_deed = ++all->next;
    begin_written(place, watch);
  }
  cujit_check_unlock();
  if (!all) cujit_fault(place->launch, FAULT_NO_MEMORY, ~0ull, ~0u, 0, 0);
}

/* A block begins, the `first` of a launch for this piece of memory. */
static void begin_across(const struct Place *place, flag first) {
  struct Across *own = &place->piece->across;
  if (first) {
    begin_orders(place);
    memset(own, 0, sizeof *own);
  }
  if (own->informed) {
    memset(own->known, 0, sizeof own->known);
    memset(own->learns, 0, sizeof own->learns);
  }
  own->own = own->next, own->clock = (u32)place->block % BLOCK_CLOCKS;
  own->informed = own->waiting = own->fence = 0;
  own->source = own->target = TELLERS;
}

/* -- what orders blocks -------------------------------------------------------------------------------------------------- */

/* The object at an address. The barrier of a cooperative grid is two, of which blocks use one after the other: who comes to it
   again tells nothing to those who still wait. The highest bit of its word turns when all have come. */
static u32 object_across(const struct Place *place, u64 address, flag comes) {
  struct Across *own = &place->piece->across;
  u32 object = (u32)((address >> 2) ^ (address >> 12) * 37) % TELLERS;
  if (address - place->launch->workspace >= WORKSPACE_BYTES) return object;
  if (comes) own->turn = *(const u32 *)address >> 31;
  return object ^ own->turn;
}

/* to = the later of both, clock by clock. Gives whether that changes any. */
INLINE flag take_later(u32 *to, const u32 *from) {
  u32 changed = 0;
  for (u32 k = 0; k < BLOCK_CLOCKS; k++) {
    changed |= from[k] > to[k];
    to[k] = to[k] > from[k] ? to[k] : from[k];
  }
  return changed;
}

/* What an object tells is known to this block. All warps of a block come from a barrier, and learn of it once. */
INLINE void learn_of(struct Across *own, u32 object) {
  u32 version = orders_of_blocks->versions[object];
  if (own->source == object && own->source_version == version) return;
  if (own->known[own->clock] < own->fence) own->known[own->clock] = own->fence; /* which is no news */
  own->known_version += take_later(own->known, orders_of_blocks->told[object]);
  own->source = object, own->source_version = version;
}

/* What was told by objects that this block has read is known to it. It is so only now: whoever reads an object is looked at
   before it does. */
static NOINLINE void learn(struct Across *own) {
  cujit_check_lock();
  for (u32 word = 0; word < TELLERS / 32; word++) {
    EACH_LANE(bit, own->learns[word]) learn_of(own, word * 32 + bit);
  }
  cujit_check_unlock();
  memset(own->learns, 0, sizeof own->learns);
  own->waiting = 0, own->informed = 1;
}

/* The access that read objects is done, where another one begins. */
INLINE void catch_up(const struct Place *place) {
  if (place->piece->across.waiting) learn(&place->piece->across);
}

/* Who reads this object soon knows what was told by it. */
INLINE void acquire_across(const struct Place *place, u64 address) {
  struct Across *own = &place->piece->across;
  u32 k = object_across(place, address, 0);
  own->learns[k / 32] |= 1u << k % 32;
  own->waiting = 1;
}

/* From here on the block does other deeds: what it did so far has a clock that may be told. */
static NOINLINE void fence_across(const struct Place *place) {
  struct Across *own = &place->piece->across;
  ((struct Watch *)place->watch)->ordered = 1;
  own->fence = __atomic_fetch_add(&orders_of_blocks->clocks[own->clock], own->next != own->own, __ATOMIC_RELAXED);
  own->fence -= own->next == own->own;
  own->own = own->next;
}

/* An object tells what the block did up to its last fence. */
static NOINLINE void tell_across(const struct Place *place, u64 address) {
  struct Across *own = &place->piece->across;
  if (!own->fence) return;
  u32 object = object_across(place, address, 1), *told = orders_of_blocks->told[object];
  flag knows_more = own->target != object || own->target_version != own->known_version;
  if (!knows_more && told[own->clock] >= own->fence) return;
  cujit_check_lock();
  if (knows_more) take_later(told, own->known);
  own->target = object, own->target_version = own->known_version;
  if (told[own->clock] < own->fence) told[own->clock] = own->fence;
  u32 version = orders_of_blocks->versions[object]++;
  if (own->source == object && own->source_version == version) own->source_version++;
  cujit_check_unlock();
}

/* What an access tells other blocks and learns of them; in shared memory only those of a cluster have it in common. */
static void order_across(const struct Place *place, const struct Access *access) {
  u32 flags = access->flags;
  if (flags & ACCESS_INSIDE) return;
  if (in_shared(place, access->address, access->size) && place->watch->cluster_blocks < 2) return;
  if (flags & ACCESS_RELEASE) {
    if (!(flags & ACCESS_RELAXED)) fence_across(place);
    tell_across(place, access->address);
  }
  if (flags & ACCESS_ACQUIRE) acquire_across(place, access->address);
}

/* -- deeds --------------------------------------------------------------------------------------------------------------- */

INLINE flag is_own(const struct Across *own, u32 deed) { return deed - own->own < own->next - own->own; }

/* 0 where there are too many: that is no deed, and nothing is known of it later. */
static NOINLINE u32 new_deed(const struct Place *place, struct Across *own, u32 flags, u32 line) {
  struct Orders *all = orders_of_blocks;
  if (own->next == own->end) {
    if (__atomic_load_n(&all->next, __ATOMIC_RELAXED) > MOST_DEEDS - 2 * TAKEN * TAKEN) return 0;
    own->own = own->next = __atomic_fetch_add(&all->next, TAKEN, __ATOMIC_RELAXED);
    own->end = own->next + TAKEN;
  }
  u32 clock = __atomic_load_n(&all->clocks[own->clock], __ATOMIC_RELAXED);
  /* What tells of all before a fence tells of itself, too. */
  if (flags & ACCESS_RELAXED && flags & ACCESS_RELEASE && own->fence) clock = own->fence;
  all->deeds[own->next] = (struct Deed){launch_tag(place), (u32)place->block, clock, line, flags};
  __atomic_thread_fence(__ATOMIC_RELEASE);
  return own->next++;
}

/* What records of an access hold beside the thread. */
INLINE u32 deed_of(const struct Place *place, u32 flags, u32 line) {
  struct Across *own = &place->piece->across;
  u32 key = line << 2 | (flags & ACCESS_WRITE) | (u32)is_strong_across(flags);
  struct LineDeed *recent = &own->recent[(key ^ key >> 6) % RECENT];
  if (recent->key != key || !is_own(own, recent->deed)) *recent = (struct LineDeed){key, new_deed(place, own, flags, line)};
  return recent->deed << THREAD_BITS;
}

/* The deed of a record if it is of this launch and not known to be of this block: else null. */
INLINE const struct Deed *deed_in(const struct Place *place, u32 record) {
  u32 number = record >> THREAD_BITS;
  if (number < place->watch->first_deed || is_own(&place->piece->across, number)) return 0;
  const struct Deed *deed = &orders_of_blocks->deeds[number];
  return deed->launch == launch_tag(place) ? deed : 0;
}

/* Whether a deed is ordered before what the block does now. */
INLINE flag is_known_across(const struct Place *place, const struct Deed *deed) {
  return deed->block == (u32)place->block || deed->clock <= place->piece->across.known[deed->block % BLOCK_CLOCKS];
}

/* The deed of a record if an access with these flags may be a race with it: else null. */
INLINE const struct Deed *race_across(const struct Place *place, u32 record, u32 flags) {
  const struct Deed *deed = deed_in(place, record);
  if (!deed || is_known_across(place, deed)) return 0;
  return is_strong_across(flags) && is_strong_across(deed->flags) ? 0 : deed;
}

/* -- records ------------------------------------------------------------------------------------------------------------- */

enum { WROTE, READ_FIRST, READ_TOO, RECORDS };

/* What rows did to a line: LINE grains side by side, of which `mask`. The first grain's thread and a deed are in `record`;
   threads count up from there. */
struct LineSlot {
  u32 record, mask;
};

/* What is known of a line in a `launch`, by its first deed. As long as it is not LINE_APART, its slots say all: of each kind
   `state` has the logarithm of the grains that a thread accesses. All slots are of one block since its last fence; or
   nobody wrote, and the last slot is of another block than the one before; or the first and the last slot are
   LINE_WRITERS of different grains, and nobody read. Where a line is LINE_APART, each grain has records. */
struct Line {
  u32 launch, state;
  struct LineSlot slots[RECORDS];
};

enum { LINE_LOG = 3, LINE_APART = 1 << 16, LINE_WROTE = 1 << 17, LINE_READ = 1 << 18, LINE_WRITERS = 1 << 19 };

/* Where the records of a span are: those of a kind for each grain, then those of the next kind, then lines. */
struct Plane {
  u32 *records;
  u64 begin, step;
  u32 grain;
};

static NOINLINE void clear_records(const struct Watch *watch, struct RecordHead *head) {
  cujit_check_lock();
  renew_records(watch, head);
  cujit_check_unlock();
}

/* Whether an access with these flags reads memory that the launch does not write, so that no record is needed. */
INLINE flag is_only_read(const struct Place *place, const struct Span *span, u32 flags) {
  const struct Watch *watch = place->watch;
  return !(flags & ACCESS_WRITE) && !watch->anywhere && span->records && span->records->written < watch->first_deed;
}

/* The records of a span; 0 where there are none, or none are needed. */
INLINE flag plane_of(const struct Place *place, const struct Span *span, u32 flags, struct Plane *plane) {
  struct RecordHead *head = span->records;
  const struct Watch *watch = place->watch;
  if (!head || !head->records || is_only_read(place, span, flags)) return 0;
  u32 grain = watch->grain & 3;
  if (head->generation != watch->generation) clear_records(watch, head);
  if (flags & ACCESS_WRITE) note_written(watch, head);
  u64 begin = head->begin >> grain & -(u64)LINE;
  *plane = (struct Plane){(u32 *)head->records, begin, ((head->size >> grain) + SPACES_BETWEEN) & -(u64)8, grain};
  return 1;
}

/* The number of the grain at an address. */
INLINE u64 grain_at(const struct Plane *plane, u64 address) { return (address >> plane->grain) - plane->begin; }

/* The line of a grain. */
INLINE struct Line *line_at(const struct Plane *plane, u64 grain) {
  return (struct Line *)(plane->records + RECORDS * plane->step) + grain / LINE;
}

/* The record of a grain of a line, by its slot: that of the `k`th. */
INLINE u32 record_in(const struct Line *line, u32 kind, u32 k) {
  u32 record = line->slots[kind].record, log = line->state >> LINE_LOG * kind & ((1 << LINE_LOG) - 1);
  return (record & -(u32)THREADS) | ((record + (k >> log)) & (THREADS - 1));
}

/* From now on each grain of a line has records. */
static NOINLINE void spread_line(const struct Plane *plane, u64 grain, u32 launch) {
  struct Line *line = line_at(plane, grain);
  u32 *records = plane->records + (grain & -(u64)LINE), state = LINE_APART;
  if (line->launch != launch) *line = (struct Line){.launch = launch};
  for (u32 kind = WROTE; kind < RECORDS; kind++) {
    u32 as = line->state & LINE_WRITERS ? WROTE : kind;
    EACH_LANE(k, line->slots[kind].mask) records[as * plane->step + k] = record_in(line, kind, k);
    if (line->slots[kind].mask) state |= as == WROTE ? LINE_WROTE : LINE_READ;
  }
  *line = (struct Line){launch, state, {{0, 0}}};
}

/* The line of a grain, of which each grain has records. */
INLINE struct Line *line_apart(const struct Plane *plane, u64 grain, u32 launch) {
  struct Line *line = line_at(plane, grain);
  if (line->launch != launch || !(line->state & LINE_APART)) spread_line(plane, grain, launch);
  return line;
}

/* Turns in which a block of another thread has stored what it was about to. */
enum { TURNS_OF_OTHERS = 2000 };

/* Whether a store leaves a grain as it is, or as the other block, which was looked at before it stored, makes it. */
static NOINLINE flag stores_same_grain(const struct Place *place, const struct Access *access, u64 k, u64 grain) {
  if (!place->data) return 0;
  for (u32 turn = 0; turn < TURNS_OF_OTHERS; turn++) {
    u64 same = 0;
    while (same < grain && is_same(place, access, k + same)) same++;
    if (same == grain) return 1;
    sched_yield();
  }
  return 0;
}

static NORETURN NOINLINE void fail_across(const struct Place *place, const struct Access *access, u64 at, u32 record,
                                          const struct Deed *deed) {
  struct Launch *launch = place->launch;
  u32 line = deed->line, flags = deed->flags;
  u64 block = deed->block;
  if (cujit_claim(launch, FAULT_RACE)) {
    cujit_fault_here(launch, place->block, place->first + access->lane, access->line, at);
    u64 more[] = {access->size, access->flags, CODE_ACROSS, block << 32 | (record & (THREADS - 1)), line, flags};
    memcpy(launch->fault_more, more, sizeof more);
  }
  cujit_stop();
}

/* Whether a record may give way to another one of this block. What is atomic leaves what the block wrote before as it is,
   and what others did whom this block does not know. */
INLINE flag is_free_across(const struct Place *place, u32 record, u32 flags) {
  u32 number = record >> THREAD_BITS;
  const struct Deed *deed = &orders_of_blocks->deeds[number];
  if (number < place->watch->first_deed || deed->launch != launch_tag(place)) return 1;
  flag strong = is_strong_across(flags), was_strong = is_strong_across(deed->flags);
  if (deed->block == (u32)place->block) return !strong || was_strong;
  return is_known_across(place, deed) || (was_strong && !strong && !(flags & ACCESS_WRITE));
}

/* Look at the grains that an access meets one by one, and note it. */
static NOINLINE void check_grains(const struct Place *place, const struct Access *access, const struct Plane *plane) {
  u64 step = 1ull << plane->grain;
  u64 grain = grain_at(plane, access->address);
  u32 *record = plane->records + grain, writes = access->flags & ACCESS_WRITE;
  u32 now = deed_of(place, access->flags, access->line) | (place->first + access->lane);
  for (u64 k = 0; k < access->size; k += step, record++, grain++) {
    line_apart(plane, grain, place->watch->first_deed)->state |= writes ? LINE_WROTE : LINE_READ;
    for (u32 kind = WROTE; kind < (writes ? RECORDS : READ_FIRST); kind++) {
      const struct Deed *deed = race_across(place, record[kind * plane->step], access->flags);
      if (!deed || (writes && stores_same_grain(place, access, k, step))) continue;
      fail_across(place, access, access->address + k, record[kind * plane->step], deed);
    }
    u32 *read = record + READ_FIRST * plane->step, *too = record + READ_TOO * plane->step;
    if (writes) {
      if (is_free_across(place, *record, access->flags)) *record = now;
    } else if (is_free_across(place, *read, access->flags)) {
      *read = now;
    } else if (is_free_across(place, *too, access->flags)) {
      *too = now;
    }
  }
}

/* A lane's access, if it is of global memory that is known. */
static NOINLINE void check_across(struct Place *place, const struct Access *access) {
  struct Plane plane;
  if (!may_be_global(access->flags) || !(access->flags & (ACCESS_READ | ACCESS_WRITE))) return;
  if (!in_one_span(place, access->address, access->size) || !plane_of(place, place->span, access->flags, &plane)) return;
  check_grains(place, access, &plane);
}

/* -- rows ---------------------------------------------------------------------------------------------------------------- */

typedef u32 __attribute__((ext_vector_type(CHUNK), aligned(4), may_alias)) chunk;
typedef i32 __attribute__((ext_vector_type(CHUNK), aligned(4), may_alias)) answers;

/* What records are compared with: the first deed of the launch, and those of this block since its last fence. Where blocks
   are `ordered`, a record of another one may be known. */
struct Since {
  u32 launch, own, count, ordered;
};

INLINE void begin_since(const struct Place *place, struct Since *since) {
  const struct Across *own = &place->piece->across;
  since->launch = place->watch->first_deed, since->ordered = place->watch->ordered;
  since->own = own->own, since->count = own->next - own->own;
}

INLINE flag any(answers found) { return __builtin_reduce_or(found) != 0; }

INLINE answers is_of_launch(chunk records, const struct Since *since) {
  return records >> THREAD_BITS >= since->launch;
}

/* All ones where a record may be of another block. */
INLINE answers is_others(chunk records, const struct Since *since) {
  return is_of_launch(records, since) & ((records >> THREAD_BITS) - since->own >= since->count);
}

/* Replace records where `active`. */
INLINE chunk note_where(u32 *at, chunk now, answers active) {
  chunk old = *(chunk *)at;
  return *(chunk *)at = old ^ ((chunk)active & (old ^ now));
}

/* Note that threads read `active` grains of a chunk of records, each of whom has a record `now`; 0 where that has to be
   looked at. */
INLINE flag chunk_is_read(const struct Line *line, u32 *record, u64 step, chunk now, answers active, const struct Since *since) {
  u32 *read = record + READ_FIRST * step, *too = record + READ_TOO * step;
  if (line->state & LINE_WROTE && any(active & is_others(*(chunk *)record, since))) return 0;
  chunk first = *(chunk *)read;
  answers others = active & is_others(first, since);
  note_where(read, now, active & ~is_of_launch(first, since));
  if (!any(others)) return 1;
  chunk second = *(chunk *)too;
  if (since->ordered && any(others & is_others(second, since))) return 0;
  note_where(too, now, others & ~is_of_launch(second, since));
  return 1;
}

/* The same where they write. */
INLINE flag chunk_is_written(const struct Line *line, u32 *record, u64 step, chunk now, answers active, const struct Since *since) {
  const chunk *read = (const chunk *)(record + READ_FIRST * step), *too = (const chunk *)(record + READ_TOO * step);
  if (line->state & LINE_WROTE && any(active & is_others(*(chunk *)record, since))) return 0;
  if (line->state & LINE_READ && any(active & (is_others(*read, since) | is_others(*too, since)))) return 0;
  note_where(record, now, active);
  return 1;
}

static const chunk NEXT = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* Whether an access is of global memory, and neither atomic nor an order. */
INLINE flag is_plain_global(u32 flags) {
  return space_of(flags) == SPACE_GLOBAL && !(flags & (ACCESS_STRONG | ACCESS_LOOKS | ACCESS_ACQUIRE | ACCESS_RELEASE));
}

/* Where the span is kept that a site accessed last. */
INLINE u64 *span_of_site(struct Place *place, const struct Site *site) {
  return &place->spans[(u32)((u64)site >> 3) * 2654435769u >> 28 & (SPANS - 1)];
}

/* What a row does to a line: `record` is what its slot would hold, `log` the logarithm of a thread's grains. */
struct Share {
  u32 record, mask, log, writes;
};

/* Whether a slot is of this block since its last fence, or empty. */
INLINE flag is_slot_own(const struct Across *own, const struct LineSlot *slot) {
  return !slot->mask || is_own(own, slot->record >> THREAD_BITS);
}

/* Whether this block did the same, since its last fence, to all grains of a mask. */
INLINE flag is_covered(const struct Across *own, const struct LineSlot *slot, u32 mask) {
  return !(mask & ~slot->mask) && is_own(own, slot->record >> THREAD_BITS);
}

/* The slot goes on to more grains, if the same threads do the same to them, or takes the share in place of what it held. */
INLINE flag slot_takes(struct Line *line, u32 kind, const struct Share *share) {
  struct LineSlot *slot = &line->slots[kind];
  u32 at = LINE_LOG * kind, shape = share->log << at;
  flag same = slot->record == share->record && (line->state & ((1u << LINE_LOG) - 1) << at) == shape;
  if (same) {
    slot->mask |= share->mask;
    return 1;
  }
  if (slot->mask & ~share->mask) return 0;
  *slot = (struct LineSlot){share->record, share->mask};
  line->state = (line->state & ~(((1u << LINE_LOG) - 1) << at)) | shape;
  return 1;
}

/* Whether a line takes a share of which other blocks read grains, if nobody wrote any. */
INLINE flag line_takes_read(const struct Place *place, struct Line *line, const struct Share *share) {
  struct LineSlot *first = &line->slots[READ_FIRST], *too = &line->slots[READ_TOO];
  const struct Deed *deed = deed_in(place, first->record);
  if (!place->watch->ordered && !(share->mask & ~(first->mask & too->mask))) return 1;
  if (!deed || deed->block == (u32)place->block) return slot_takes(line, READ_FIRST, share);
  return is_slot_own(&place->piece->across, too) && slot_takes(line, READ_TOO, share);
}

/* Whether a line takes a share of other grains than another block wrote, if nobody read any. */
INLINE flag line_takes_writer(const struct Place *place, struct Line *line, const struct Share *share) {
  const struct LineSlot *slots = line->slots;
  if (share->mask & slots[WROTE].mask || slots[READ_FIRST].mask) return 0;
  if (slots[READ_TOO].mask && !(line->state & LINE_WRITERS)) return 0;
  if (!is_slot_own(&place->piece->across, &slots[READ_TOO]) || !slot_takes(line, READ_TOO, share)) return 0;
  line->state |= LINE_WRITERS;
  return 1;
}

/* Whether a share of a line that is not apart fits into its slots, by deeds of other blocks, too. */
static NOINLINE flag line_takes_others(const struct Place *place, struct Line *line, const struct Share *share) {
  if (!share->writes) return !line->slots[WROTE].mask && line_takes_read(place, line, share);
  if (line_takes_writer(place, line, share)) return 1;
  for (u32 kind = WROTE; kind < RECORDS; kind++) {
    const struct LineSlot *slot = &line->slots[kind];
    const struct Deed *deed = slot->mask ? deed_in(place, slot->record) : 0;
    if (slot->mask & ~share->mask || (deed && !is_known_across(place, deed))) return 0;
  }
  *line = (struct Line){line->launch, share->log, {{share->record, share->mask}}};
  return 1;
}

/* Whether a share of a line is plainly no race, and is noted in a slot. */
INLINE flag line_takes(const struct Place *place, struct Line *line, const struct Share *share) {
  const struct Across *own = &place->piece->across;
  struct LineSlot *slots = line->slots;
  u32 kind = share->writes ? WROTE : READ_FIRST, launch = place->watch->first_deed;
  if (line->launch != launch) {
    *line = (struct Line){launch, share->log << LINE_LOG * kind, {{0, 0}}};
    slots[kind] = (struct LineSlot){share->record, share->mask};
    return 1;
  }
  if (line->state & LINE_APART) return 0;
  if (!is_slot_own(own, &slots[WROTE]) || !is_slot_own(own, &slots[READ_FIRST]) || slots[READ_TOO].mask) {
    return line_takes_others(place, line, share);
  }
  if (is_covered(own, &slots[WROTE], share->mask) || is_covered(own, &slots[kind], share->mask)) return 1;
  return slot_takes(line, kind, share);
}

/* Whether what lanes do to grains of a line, the first of them `grain`, is plainly no race, by the records of each grain. */
static NOINLINE flag line_is_quick(const struct Place *place, const struct Plane *plane, u64 grain, const struct Share *share) {
  struct Since since;
  begin_since(place, &since);
  struct Line *line = line_apart(plane, grain, since.launch);
  u32 record = share->record & -(u32)THREADS, thread = share->record & (THREADS - 1);
  for (u32 k = 0; k < LINE; k += CHUNK) {
    chunk number = NEXT + k, now = record | ((thread + (number >> share->log)) & (THREADS - 1));
    answers active = (answers)(0 - (share->mask >> number & 1));
    flag known = share->writes ? chunk_is_written(line, plane->records + grain + k, plane->step, now, active, &since)
                               : chunk_is_read(line, plane->records + grain + k, plane->step, now, active, &since);
    if (!known) return 0;
  }
  line->state |= share->writes ? LINE_WROTE : LINE_READ;
  return 1;
}

/* Which grains of the line that begins `before` the first grain of a row lanes access, 1 << `log` each, by `count` grains
   from the first lane to the last. */
INLINE u32 grains_in_line(i64 before, u64 count, u32 log, u32 lanes) {
  u32 own = lanes >> first_lane(lanes), found = 0;
  if (!(own & (own + 1))) {
    u64 low = before > 0 ? (u64)before : 0, high = (u64)(before + (i64)count);
    u32 below = high >= LINE ? ~0u : (1u << high) - 1;
    return below & ~0u << low;
  }
  if (!log) return before >= 0 ? own << before : own >> -before;
  for (u32 k = 0; k < LINE; k++) {
    i64 lane = ((i64)k - before) >> log;
    if (lane >= 0 && lane < WARP) found |= (own >> lane & 1) << k;
  }
  return found;
}

/* Whether the line of a row takes its part, which is the `begin`th grain of all lines and those behind it. */
INLINE flag line_takes_part(const struct Place *place, struct Line *lines, u64 k, u64 begin, u64 count, u32 lanes,
                            struct Share *share) {
  i64 before = (i64)(begin - k);
  u32 thread = place->warp * WARP + first_lane(lanes) - (u32)(before >> share->log);
  share->record = (share->record & -(u32)THREADS) | (thread & (THREADS - 1));
  share->mask = grains_in_line(before, count, share->log, lanes);
  return !share->mask || line_takes(place, lines + k / LINE, share);
}

/* Whether what `lanes` do to grains side by side, 1 << `log` each, is plainly no race, which is then noted; the first of the
   lanes is at the grain `begin`, the last one's grains end after `count`. */
INLINE flag grains_are_quick(const struct Place *place, const struct Plane *plane, u64 begin, u64 count, u32 log, u32 lanes,
                             u32 flags, u32 line) {
  struct Share share = {deed_of(place, flags, line), 0, log, flags & ACCESS_WRITE};
  for (u64 k = begin & -(u64)LINE; k < begin + count; k += LINE) {
    if (line_takes_part(place, line_at(plane, 0), k, begin, count, lanes, &share)) continue;
    if (!line_is_quick(place, plane, k, &share)) return 0;
  }
  return 1;
}

/* Whether what lanes side by side access, that of lane 0 at `base`, is plainly no race, which is then noted. 0 where that
   has to be looked at. */
INLINE flag row_is_quick(struct Place *place, u32 lanes, u64 base, const struct Site *site, u32 line) {
  const struct Span *span = (const struct Span *)*span_of_site(place, site);
  struct Plane plane;
  u64 size = site->size;
  u32 first = first_lane(lanes), count = last_lane(lanes) - first + 1, writes = site->flags & ACCESS_WRITE;
  if (!span) return 0;
  u64 at = base + first * (u64)site->stride, room = span->end - span->begin;
  if (is_only_read(place, span, site->flags)) {
    u64 reach = (u64)site->stride * (count - 1), low = site->stride < 0 ? at + reach : at;
    return within(low - span->begin, (site->stride < 0 ? -reach : reach) + size, room);
  }
  if (!site->stride && !writes) count = 1;
  else if (site->stride != (i64)size) return 0;
  u64 bytes = count * size;
  if (size & (size - 1) || !within(at - span->begin, bytes, room)) return 0;
  if (!plane_of(place, span, site->flags, &plane)) return 1;
  if (place->piece->across.waiting || (at | size) & ((1u << plane.grain) - 1)) return 0;
  u32 log = (u32)__builtin_ctz((u32)size) - plane.grain;
  u64 begin = grain_at(&plane, at);
  count <<= log;
  return grains_are_quick(place, &plane, begin, count, log, lanes, site->flags, line);
}

/* Remember the memory that a site stores to, one grain a lane, by its lines. */
static NOINLINE void open_stored(struct Place *place, const struct Site *site, u32 line, struct StoredLines *to) {
  const struct Span *span = (const struct Span *)*span_of_site(place, site);
  struct Plane plane;
  *to = (struct StoredLines){.own = place->piece->across.own};
  if (site->count != 1 || site->stride != site->size || !span || !plane_of(place, span, site->flags, &plane)) return;
  if (site->size != 1u << plane.grain) return;
  u64 bytes = (u64)LINE << plane.grain, begin = (span->begin + bytes - 1) & -bytes;
  if (span->end < begin + bytes) return;
  *to = (struct StoredLines){begin, span->end - begin - bytes + 1, (u64)line_at(&plane, grain_at(&plane, begin)),
                         place->watch->first_deed, deed_of(place, site->flags, line), place->piece->across.own, plane.grain};
}

/* Whether what lanes store there is plainly no race, which is then noted. */
INLINE flag stored_takes(const struct Place *place, const struct StoredLines *stored, u32 lanes, u64 base) {
  u32 first = first_lane(lanes), count = last_lane(lanes) - first + 1;
  u64 offset = base + ((u64)first << (stored->grain & 3)) - stored->begin, begin = offset >> (stored->grain & 3);
  if (offset >= stored->room || begin << (stored->grain & 3) != offset) return 0;
  if (place->piece->across.own != stored->own) return 0;
  struct Share share = {stored->record, 0, 0, ACCESS_WRITE};
  u64 k = begin & -(u64)LINE;
  if (!line_takes_part(place, (struct Line *)stored->lines, k, begin, count, lanes, &share)) return 0;
  return k + LINE >= begin + count ||
         line_takes_part(place, (struct Line *)stored->lines, k + LINE, begin, count, lanes, &share);
}

/* -- lanes ---------------------------------------------------------------------------------------------------------------- */

/* Whether a record may be of another block. */
INLINE u32 is_other(u32 record, const struct Since *since) {
  return (record >> THREAD_BITS >= since->launch) & ((record >> THREAD_BITS) - since->own >= since->count);
}

/* Whether what a lane does to a grain is plainly no race, which is then noted. */
INLINE flag grain_is_quick(struct Line *line, u32 *record, u64 step, u32 now, flag writes, const struct Since *since) {
  u32 *read = record + READ_FIRST * step, *too = record + READ_TOO * step;
  if (line->state & LINE_WROTE && is_other(*record, since)) return 0;
  if (writes) {
    if (line->state & LINE_READ && is_other(*read, since) | is_other(*too, since)) return 0;
    *record = now;
  } else if (*read >> THREAD_BITS < since->launch) {
    *read = now;
  } else if (is_other(*read, since)) {
    if (*too >> THREAD_BITS < since->launch) {
      *too = now;
    } else {
      return !(since->ordered && is_other(*too, since));
    }
  }
  return 1;
}

/* Whether all lanes access what lies side by side. */
INLINE flag is_side_by_side(const struct Lanes *all) {
  u64 size = all->size, low = ((const u64 *)all->addresses)[0];
  if (all->lanes != ~0u || size & (size - 1)) return 0;
  return !__builtin_reduce_or(*all->addresses - __builtin_convertvector(LANES, u64x32) * size - low);
}

/* Which lanes are left to be looked at, of those that access `count` grains each. */
INLINE u32 lanes_left(const struct Place *place, const struct Lanes *all, const struct Plane *plane, u64 count, flag writes) {
  const u64 *addresses = (const u64 *)all->addresses;
  struct Since since;
  u32 left = 0, now = deed_of(place, all->flags, all->line) | place->warp * WARP, does = writes ? LINE_WROTE : LINE_READ;
  begin_since(place, &since);
  EACH_LANE(lane, all->lanes) {
    u64 grain = grain_at(plane, addresses[lane]);
    flag quick = 1;
    for (u64 k = grain; k < grain + count && quick; k++) {
      struct Line *line = line_apart(plane, k, since.launch);
      quick = grain_is_quick(line, plane->records + k, plane->step, now | lane, writes, &since);
      if (!(line->state & does)) line->state |= does;
    }
    left |= (u32)(quick ^ 1) << lane;
  }
  return left;
}

/* Look at what lanes access in the span that was looked at last. */
static NOINLINE void check_lanes_across(struct Place *place, const struct Lanes *all) {
  struct Plane plane;
  const u64 *addresses = (const u64 *)all->addresses;
  u64 size = all->size, last = 0;
  u32 left = all->lanes;
  if (!plane_of(place, place->span, all->flags, &plane)) return;
  u64 count = size >> plane.grain;
  if (!(all->flags & (ACCESS_STRONG | ACCESS_LOOKS)) && count) {
    u32 log = (u32)__builtin_ctzll(size) - plane.grain;
    if (is_side_by_side(all) && !(addresses[0] & ((1u << plane.grain) - 1))) {
      if (grains_are_quick(place, &plane, grain_at(&plane, addresses[0]), count * WARP, log, ~0u, all->flags, all->line)) return;
    } else if (all->flags & ACCESS_WRITE) {
      left = lanes_left(place, all, &plane, count, 1);
    } else {
      left = count == 1 ? lanes_left(place, all, &plane, 1, 0) : lanes_left(place, all, &plane, count, 0);
    }
  }
  EACH_LANE(lane, left) {
    struct Access access = {lane, all->flags, all->line, addresses[lane], size};
    if (access.address == last && all->flags & ACCESS_STRONG) continue;
    last = access.address;
    check_grains(place, &access, &plane);
  }
}
