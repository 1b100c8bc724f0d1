/* Virtual memory (expandable segments): addresses are reserved, physical memory is taken, and one is mapped to the other.
 *
 * Only taking physical memory counts against the limit. What was written is lost where memory is unmapped.
 */
#include "phantom.h"

#include <stdlib.h>

typedef struct {
  uint64_t bytes;
  int device;
} physical_t;

/* The head of the runtime's description of physical memory. */
typedef struct {
  int handle_kind, allocation_kind, memory_kind;
  struct {
    uint32_t id;
    int kind;
  } location;
  uint64_t reserved;
} description_t;

EXPORT int aclrtReserveMemAddress(void **out, size_t size, size_t alignment, void *wish, uint64_t flags) {
  (void)wish, (void)flags;
  if (!out || !size) return BAD_ARGUMENT;
  lock_ranges();
  range_t *range = add_range(size, alignment, current_device(), 1);
  if (range) begin_contents(range);
  *out = range ? (void *)range->start : NULL;
  unlock_ranges();
  return *out ? OK : OUT_OF_MEMORY;
}

EXPORT int aclrtReleaseMemAddress(void *pointer) {
  lock_ranges();
  range_t *range = find_range((uint64_t)pointer);
  int is_ours = range && range->start == (uint64_t)pointer && range->is_reserved;
  if (is_ours) {
    end_contents(range);
    remove_range(range);
  }
  unlock_ranges();
  return is_ours ? OK : BAD_ARGUMENT;
}

EXPORT int aclrtMallocPhysical(void **handle, size_t size, const description_t *description, uint64_t flags) {
  (void)flags;
  int device = description ? (int)description->location.id : current_device();
  if (!handle || !size || device < 0 || device >= settings()->devices) return BAD_ARGUMENT;
  uint64_t bytes = round_up(size, PAGE);
  if (!take_memory(device, bytes)) return OUT_OF_MEMORY;
  physical_t *physical = malloc(sizeof *physical);
  *physical = (physical_t){bytes, device};
  *handle = physical;
  return OK;
}

EXPORT int aclrtFreePhysical(void *handle) {
  physical_t *physical = handle;
  if (!physical) return BAD_ARGUMENT;
  give_memory(physical->device, physical->bytes);
  free(physical);
  return OK;
}

/* What is mapped where, to know how much an unmapping takes away: it names an address only. */
typedef struct mapping {
  uint64_t at, bytes;
  struct mapping *next;
} mapping_t;
static mapping_t *mappings[1024]; /* by page */

static mapping_t **place(uint64_t at) { return &mappings[at / PAGE % 1024]; }

EXPORT int aclrtMapMem(void *at, size_t size, size_t offset, void *handle, uint64_t flags) {
  (void)offset, (void)flags;
  if (!handle) return BAD_ARGUMENT;
  mapping_t *mapping = malloc(sizeof *mapping);
  lock_ranges();
  mapping_t **head = place((uint64_t)at);
  *mapping = (mapping_t){(uint64_t)at, size, *head};
  *head = mapping;
  unlock_ranges();
  return OK;
}

EXPORT int aclrtUnmapMem(void *at) {
  mapping_t *found = NULL;
  lock_ranges();
  for (mapping_t **link = place((uint64_t)at); *link; link = &(*link)->next) {
    if ((*link)->at != (uint64_t)at) continue;
    found = *link;
    *link = found->next;
    break;
  }
  unlock_ranges();
  if (!found) return BAD_ARGUMENT;
  clear_bytes(at, found->bytes);
  free(found);
  return OK;
}
