/* Device addresses: where they lie, which are in use.
 *
 * They are addresses of this process, so that whatever is written there has a place. They begin at the same address in every run, go
 * up in steps of 2 MiB and are not used twice, which makes traces repeatable. Behind them is nothing until something is written.
 */
#define _GNU_SOURCE
#include "phantom.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define FIRST UINT64_C(0x120000000000)
#define LAST UINT64_C(0x500000000000)
/* Where the system gives a process 39 bits of addresses only (some aarch64 kernels). */
#define SMALL_FIRST UINT64_C(0x1000000000)
#define SMALL_LAST UINT64_C(0x5000000000)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static range_t **ranges; /* by address */
static size_t count, room;
static uint64_t first = FIRST, last = LAST, next = FIRST;

void lock_ranges(void) { pthread_mutex_lock(&lock); }
void unlock_ranges(void) { pthread_mutex_unlock(&lock); }

int is_device_address(const void *pointer) {
  uint64_t address = (uint64_t)pointer;
  return address >= first && address < last;
}

/* Number of ranges that start at or below an address. */
static size_t up_to(uint64_t address) {
  size_t low = 0, high = count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (ranges[middle]->start <= address) low = middle + 1;
    else high = middle;
  }
  return low;
}

range_t *find_range(uint64_t address) {
  size_t at = up_to(address);
  if (!at) return NULL;
  range_t *range = ranges[at - 1];
  return address - range->start < round_up(range->length, PAGE) ? range : NULL;
}

static int map(uint64_t start, uint64_t length, int protection) {
  void *got = mmap((void *)start, length, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == (void *)start) return 0;
  if (got != MAP_FAILED) { /* kernels before 4.17 take the address for a wish */
    munmap(got, length);
    return EEXIST;
  }
  return errno;
}

static void choose_area(void) {
  static int was_chosen;
  if (was_chosen) return;
  was_chosen = 1;
  if (map(FIRST, PAGE, PROT_NONE) == OK) {
    munmap((void *)FIRST, PAGE);
  } else {
    first = next = SMALL_FIRST;
    last = SMALL_LAST;
  }
}

/* Finds free addresses, from `next` on and then once from the beginning, and maps them. Returns 0 where there are none. */
static uint64_t take_addresses(uint64_t length, uint64_t alignment, int *has_pages) {
  choose_area();
  for (int round = 0; round < 2; round++, next = first) {
    for (uint64_t start = round_up(next, alignment); start + length <= last; start = round_up(start + length, alignment)) {
      int failed = map(start, length, PROT_READ | PROT_WRITE);
      *has_pages = !failed;
      /* A limit on the memory of processes (ulimit -v, strict overcommit) may still allow addresses without pages. */
      if (failed && failed != EEXIST) failed = map(start, length, PROT_NONE);
      if (!failed) {
        next = start + length;
        return start;
      }
      if (failed != EEXIST) return 0;
    }
  }
  return 0;
}

range_t *add_range(uint64_t length, uint64_t alignment, int device, int is_reserved) {
  int has_pages = 0;
  uint64_t mapped = round_up(length, PAGE);
  uint64_t start = mapped < length ? 0 : take_addresses(mapped, alignment < PAGE ? PAGE : round_up(alignment, PAGE), &has_pages);
  if (!start) return NULL;
  if (count == room) {
    room = room ? 2 * room : 256;
    ranges = realloc(ranges, room * sizeof *ranges);
  }
  range_t *range = calloc(1, sizeof *range);
  *range = (range_t){.start = start, .length = length, .device = device, .is_reserved = is_reserved, .has_pages = has_pages};
  range->written = calloc(mapped / GRANULE / 64 + 1, sizeof *range->written);
  size_t at = up_to(start);
  memmove(ranges + at + 1, ranges + at, (count++ - at) * sizeof *ranges);
  ranges[at] = range;
  return range;
}

void remove_range(range_t *range) {
  munmap((void *)range->start, round_up(range->length, PAGE));
  size_t at = up_to(range->start) - 1;
  memmove(ranges + at, ranges + at + 1, (--count - at) * sizeof *ranges);
  free(range->written);
  free(range);
}
