/* What device memory holds: the bytes that a host wrote there, and zeros everywhere else.
 *
 * Pages take memory only where something other than zeros was written: a model of any size can be put on the device as long as its
 * weights are zeros or are never written. Real weights are kept up to a limit (MEMDIAG_PHANTOM_DATA, bytes); beyond it large copies are
 * dropped and read as zeros, which is said once.
 */
#define _GNU_SOURCE
#include "phantom.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { SMALL = 1 << 20 }; /* copies up to this size steer programs: they are always kept */

static uint64_t kept, forgotten;

uint64_t forgotten_bytes(void) { return forgotten; }

static uint64_t index_of(const range_t *range, uint64_t address) { return (address - range->start) / GRANULE; }
static int is_written(const range_t *range, uint64_t index) { return range->written[index / 64] >> (index % 64) & 1; }

static void mark(range_t *range, uint64_t index) {
  if (!is_written(range, index)) kept += GRANULE;
  range->written[index / 64] |= UINT64_C(1) << (index % 64);
}

static void unmark(range_t *range, uint64_t index) {
  range->written[index / 64] &= ~(UINT64_C(1) << (index % 64));
  kept -= GRANULE;
}

/* Bytes from an address to the end of its granule, at most `most`. */
static uint64_t piece(uint64_t address, uint64_t most) {
  uint64_t left = GRANULE - address % GRANULE;
  return left < most ? left : most;
}

static int is_zero(const unsigned char *bytes, uint64_t length) { return !bytes[0] && !memcmp(bytes, bytes + 1, length - 1); }

static void clear(range_t *range, uint64_t at, uint64_t bytes) {
  while (bytes) {
    uint64_t index = index_of(range, at), length = piece(at, bytes);
    if (!range->written[index / 64] && index % 64 == 0 && bytes >= 64 * GRANULE && length == GRANULE) {
      length = 64 * GRANULE;
    } else if (is_written(range, index)) {
      if (length == GRANULE) {
        madvise((void *)at, GRANULE, MADV_DONTNEED);
        unmark(range, index);
      } else {
        memset((void *)at, 0, length);
      }
    }
    at += length, bytes -= length;
  }
}

static int is_too_much(uint64_t bytes) {
  static int was_said;
  if (bytes <= SMALL || kept + bytes <= settings()->kept) return 0;
  if (!was_said) {
    dprintf(2, "memdiag: more than %.1f GiB was copied to the phantom NPU: what more comes in copies above 1 MiB reads as zeros\n",
            (double)settings()->kept / (double)((uint64_t)1 << 30));
  }
  was_said = 1;
  return 1;
}

static void write_bytes(range_t *range, uint64_t at, const unsigned char *from, uint64_t bytes) {
  int is_dropped = is_too_much(bytes);
  set_known(range, at, bytes, !is_dropped);
  if (is_dropped) {
    forgotten += bytes;
    clear(range, at, bytes);
    return;
  }
  while (bytes) {
    uint64_t length = piece(at, bytes);
    if (is_zero(from, length)) {
      clear(range, at, length);
    } else {
      mark(range, index_of(range, at));
      memcpy((void *)at, from, length);
    }
    at += length, from += length, bytes -= length;
  }
}

/* Returns whether anything of it was made up. */
static int fill_in(const range_t *range, uint64_t at, unsigned char *to, uint64_t bytes) {
  int is_made_up = 0;
  while (bytes) {
    int is_known;
    uint64_t length = alike(range, at, bytes, &is_known);
    if (!is_known) make_up(to, length, type_at(range, at));
    is_made_up |= !is_known;
    at += length, to += length, bytes -= length;
  }
  return is_made_up;
}

static void read_bytes(const range_t *range, uint64_t at, unsigned char *to, uint64_t bytes) {
  while (bytes) {
    uint64_t length = piece(at, bytes);
    if (range->has_pages && is_written(range, index_of(range, at))) memcpy(to, (void *)at, length);
    else memset(to, 0, length); /* a look at the page itself would bring it into being */
    at += length, to += length, bytes -= length;
  }
}

static void copy_bytes(range_t *to_range, uint64_t to, const range_t *from_range, uint64_t from, uint64_t bytes) {
  unsigned char *between = malloc(GRANULE);
  int is_dropped = -1;
  uint64_t first = to, source = from, all = bytes;
  while (bytes) {
    uint64_t length = piece(from, bytes);
    if (is_dropped < 0 && is_written(from_range, index_of(from_range, from))) is_dropped = is_too_much(bytes);
    if (is_dropped != 1 && from_range->has_pages && is_written(from_range, index_of(from_range, from))) {
      memcpy(between, (void *)from, length);
      write_bytes(to_range, to, between, length);
    } else {
      clear(to_range, to, length);
    }
    to += length, from += length, bytes -= length;
  }
  free(between);
  for (uint64_t done = 0, length; done < all; done += length) {
    int is_known;
    length = alike(from_range, source + done, all - done, &is_known);
    set_known(to_range, first + done, length, is_known && is_dropped != 1);
  }
}

/* The live range that holds all of some bytes; *failed is set where they are device memory, but not that. */
static range_t *whole(const void *pointer, uint64_t bytes, int *failed) {
  if (!is_device_address(pointer)) return NULL;
  uint64_t address = (uint64_t)pointer;
  range_t *range = find_range(address);
  if (!range || bytes > range->start + round_up(range->length, PAGE) - address) {
    *failed = BAD_ARGUMENT;
    return NULL;
  }
  return range;
}

int move_bytes(void *to, const void *from, uint64_t bytes) {
  if (!bytes || to == from) return OK;
  if (!to || !from) return BAD_ARGUMENT;
  int failed = OK, is_made_up = 0;
  lock_ranges();
  range_t *there = whole(to, bytes, &failed), *here = whole(from, bytes, &failed);
  if (!failed) {
    if (there && here) {
      copy_bytes(there, (uint64_t)to, here, (uint64_t)from, bytes);
    } else if (there && there->has_pages) {
      write_bytes(there, (uint64_t)to, from, bytes);
    } else if (here) {
      read_bytes(here, (uint64_t)from, to, bytes);
      is_made_up = fill_in(here, (uint64_t)from, to, bytes);
      if (is_made_up && bytes == 1 && is_agreed()) *(char *)to = 1, is_made_up = 0;
    } else if (!there) {
      memmove(to, from, bytes);
    }
  }
  unlock_ranges();
  if (is_made_up) note_read_back();
  return failed;
}

int look_at(const void *at, void *to, uint64_t bytes) {
  int failed = OK, is_known = 0;
  lock_ranges();
  const range_t *range = whole(at, bytes, &failed);
  if (range && (alike(range, (uint64_t)at, bytes, &is_known) < bytes || !is_known)) is_known = 0;
  if (is_known && to) read_bytes(range, (uint64_t)at, to, bytes);
  unlock_ranges();
  return is_known;
}

contents_t contents_of(const void *at, uint64_t bytes) {
  int failed = OK, found = 0, is_known = 0, is_even = 0;
  lock_ranges();
  const range_t *range = whole(at, bytes, &failed);
  if (range && bytes) {
    is_even = alike(range, (uint64_t)at, bytes, &is_known) == bytes;
    uint64_t behind = index_of(range, (uint64_t)at + bytes - 1) + 1;
    for (uint64_t i = index_of(range, (uint64_t)at); i < behind && !found; i++) {
      if (!(i % 64) && !range->written[i / 64]) i += 63;
      else found = is_written(range, i);
    }
  }
  unlock_ranges();
  return !is_even || found ? ANYTHING : is_known ? KNOWN_ZEROS : UNTOUCHED;
}

static int empty_bytes(void *at, uint64_t bytes, int is_known, int is_block) {
  int failed = OK;
  lock_ranges();
  range_t *range = whole(at, bytes, &failed);
  if (range) {
    clear(range, (uint64_t)at, bytes);
    set_known(range, (uint64_t)at, bytes, is_known);
    if (is_block) begin_block(range, (uint64_t)at, bytes);
  } else if (!failed && bytes) {
    memset(at, 0, bytes);
  }
  unlock_ranges();
  return failed;
}

int clear_bytes(void *at, uint64_t bytes) { return empty_bytes(at, bytes, 0, 0); }
int set_zeros(void *at, uint64_t bytes) { return empty_bytes(at, bytes, 1, 0); }
void hand_out(void *at, uint64_t bytes) { empty_bytes(at, bytes, 0, 1); }

int fill_bytes(void *at, const void *pattern, int width, uint64_t count) {
  unsigned char some[GRANULE];
  uint64_t each = GRANULE / (uint64_t)width;
  lock_ranges();
  int is_dropped = is_too_much(count * (uint64_t)width);
  unlock_ranges();
  if (is_zero(pattern, (uint64_t)width)) return set_zeros(at, count * (uint64_t)width);
  if (is_dropped) return clear_bytes(at, count * (uint64_t)width);
  for (uint64_t i = 0; i < each && i < count; i++) memcpy(some + i * (uint64_t)width, pattern, (size_t)width);
  for (uint64_t done = 0; done < count; done += each) {
    uint64_t now = count - done < each ? count - done : each;
    int failed = move_bytes((char *)at + done * (uint64_t)width, some, now * (uint64_t)width);
    if (failed) return failed;
  }
  return OK;
}

void begin_contents(range_t *range) { make_known(range); }

void end_contents(range_t *range) {
  uint64_t granules = round_up(range->length, PAGE) / GRANULE;
  for (uint64_t i = 0; i < granules; i++) {
    if (!(i % 64) && !range->written[i / 64]) i += 63;
    else if (is_written(range, i)) unmark(range, i);
  }
  drop_known(range);
}
