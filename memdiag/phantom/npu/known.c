/* Which bytes of device memory hold what the program put there. All others are results of operators, of which nothing is known.
 *
 * What the host wrote and what was filled is known, and a copy is as known as its source. A block that is handed out, and a tensor that an
 * operator changes, is unknown. Most granules are all one or the other; only one that is both has a bit for each of its bytes.
 *
 * Beside that: the type of the tensor that was described last for each 512 bytes, to know what an unknown byte is a part of.
 */
#define _GNU_SOURCE
#include "phantom.h"

#include <string.h>
#include <sys/mman.h>

enum { NONE, ALL, MIXED, HAS_TYPES = 4, STATE = 3 };
enum { CHUNK = 512, CHUNKS = GRANULE / CHUNK, BITS = GRANULE / 8 };

static uint64_t granules_of(const range_t *range) { return round_up(range->length, PAGE) / GRANULE; }
static uint64_t area_of(const range_t *range) { return granules_of(range) * (1 + BITS + CHUNKS); }

void make_known(range_t *range) {
  void *got = mmap(NULL, area_of(range), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  range->known = got == MAP_FAILED ? NULL : got; /* without it all is taken to be known */
}

void drop_known(range_t *range) {
  if (range->known) munmap(range->known, area_of(range));
}

static unsigned char *bits_of(const range_t *range, uint64_t granule) { return range->known + granules_of(range) + granule * BITS; }
static unsigned char *types_of(const range_t *range, uint64_t granule) {
  return range->known + granules_of(range) * (1 + BITS) + granule * CHUNKS;
}

static void set_bits(unsigned char *bits, uint64_t first, uint64_t count, int is_known) {
  for (; count && first % 8; first++, count--) bits[first / 8] = (unsigned char)((bits[first / 8] & ~(1 << first % 8)) | is_known << first % 8);
  memset(bits + first / 8, is_known ? 0xff : 0, count / 8);
  first += count / 8 * 8, count %= 8;
  for (; count; first++, count--) bits[first / 8] = (unsigned char)((bits[first / 8] & ~(1 << first % 8)) | is_known << first % 8);
}

void set_known(range_t *range, uint64_t at, uint64_t bytes, int is_known) {
  if (!range->known) return;
  uint64_t offset = at - range->start;
  while (bytes) {
    uint64_t granule = offset / GRANULE, first = offset % GRANULE, count = GRANULE - first < bytes ? GRANULE - first : bytes;
    unsigned char *state = &range->known[granule];
    int wanted = is_known ? ALL : NONE, kept = *state & HAS_TYPES;
    if (count == GRANULE) {
      *state = (unsigned char)(wanted | kept);
    } else if ((*state & STATE) != wanted) {
      if ((*state & STATE) != MIXED) memset(bits_of(range, granule), (*state & STATE) == ALL ? 0xff : 0, BITS);
      *state = (unsigned char)(MIXED | kept);
      set_bits(bits_of(range, granule), first, count, is_known);
    }
    offset += count, bytes -= count;
  }
}

uint64_t alike(const range_t *range, uint64_t at, uint64_t bytes, int *is_known) {
  *is_known = 1;
  if (!range->known) return bytes;
  uint64_t offset = at - range->start, done = 0;
  while (done < bytes) {
    uint64_t granule = (offset + done) / GRANULE, first = (offset + done) % GRANULE;
    int state = range->known[granule] & STATE;
    if (state != MIXED) {
      if (done && *is_known != (state == ALL)) return done;
      *is_known = state == ALL;
      done += GRANULE - first;
      continue;
    }
    const unsigned char *bits = bits_of(range, granule);
    while (first < GRANULE && done < bytes) {
      uint64_t word, count = 1;
      int is = bits[first / 8] >> first % 8 & 1;
      if (first % 64 == 0) { /* 64 bytes at once, where they are alike */
        memcpy(&word, bits + first / 8, sizeof word);
        if (word == 0 || word == UINT64_MAX) count = 64;
      }
      if (done && *is_known != is) return done;
      *is_known = is;
      first += count, done += count;
    }
  }
  return bytes; /* perhaps counted a little beyond them */
}

/* ---- types: 0 none was described here, 1 a block begins and none was described since, else the type and 2 */

static unsigned char *place(range_t *range, uint64_t at) {
  uint64_t chunk = (at - range->start) / CHUNK;
  range->known[chunk / CHUNKS] |= HAS_TYPES;
  return types_of(range, chunk / CHUNKS) + chunk % CHUNKS;
}

void note_type(const void *data, int type) {
  if (!is_device_address(data) || type < 0 || type > 250) return;
  lock_ranges();
  range_t *range = find_range((uint64_t)data);
  if (range && range->known) *place(range, (uint64_t)data) = (unsigned char)(type + 2);
  unlock_ranges();
}

void begin_block(range_t *range, uint64_t at, uint64_t bytes) {
  if (!range->known || !bytes) return;
  uint64_t first = (at - range->start) / CHUNK, behind = (at + bytes - 1 - range->start) / CHUNK + 1;
  while (first < behind) {
    uint64_t granule = first / CHUNKS, count = CHUNKS - first % CHUNKS < behind - first ? CHUNKS - first % CHUNKS : behind - first;
    if (range->known[granule] & HAS_TYPES) memset(types_of(range, granule) + first % CHUNKS, 0, count);
    if (count == CHUNKS) range->known[granule] &= (unsigned char)~HAS_TYPES;
    first += count;
  }
  *place(range, at) = 1;
}

int type_at(const range_t *range, uint64_t at) {
  if (!range->known) return -1;
  uint64_t chunk = (at - range->start) / CHUNK, granule = chunk / CHUNKS;
  for (uint64_t within = chunk % CHUNKS + 1;; within = CHUNKS) {
    if (range->known[granule] & HAS_TYPES) {
      const unsigned char *types = types_of(range, granule);
      for (uint64_t i = within; i-- > 0;) {
        if (types[i]) return types[i] - 2;
      }
    }
    if (!granule--) return -1;
  }
}
