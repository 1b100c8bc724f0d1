/* What torch_npu tells tools about its blocks: that is how the bytes of a freed block disappear.
 *
 * The caching allocator gives memory out again without a word to the driver. But where the library of this name is preloaded, it tells
 * a tool of each block through libms_tools_ext (the interface of MindStudio's memory tools). A block that is handed out is cleared, and what it
 * holds is not known.
 *
 * How many were handed out and given back is counted by the way: memdiag's recorder asks at every call of a module, and asking the allocator
 * takes it twenty microseconds.
 */
#include "phantom.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  uint32_t device;
  const void *pointer;
  uint64_t bytes;
} block_t;

/* torch_npu fills in only this much of the interface's structure: the kind and the place for handles hold anything. */
typedef struct {
  void *heap;
  uint64_t kind;
  size_t count;
  const block_t *blocks;
} blocks_t;

typedef struct {
  _Atomic int64_t handed_out, given_back;
} counts_t;
static counts_t counts[MOST_DEVICES];

/* The two counts of a device, which stay where they are; NULL: no such device. */
EXPORT const counts_t *memdiag_phantom_blocks(int device) {
  return device >= 0 && device < MOST_DEVICES ? &counts[device] : NULL;
}

EXPORT void *mstxDomainCreateA(const char *name) { return strdup(name ? name : ""); }
EXPORT void mstxDomainDestroy(void *domain) { free(domain); }

EXPORT void *mstxMemHeapRegister(void *domain, const void *description) {
  static char heap;
  (void)domain, (void)description;
  return &heap;
}
EXPORT void mstxMemHeapUnregister(void *domain, void *heap) { (void)domain, (void)heap; }

EXPORT void mstxMemRegionsRegister(void *domain, const blocks_t *given) {
  (void)domain;
  if (!given || given->count != 1 || !given->blocks) return; /* it tells one at a time */
  const block_t *block = given->blocks;
  if (block->device < MOST_DEVICES) atomic_fetch_add(&counts[block->device].handed_out, 1);
  if (is_device_address(block->pointer)) hand_out((void *)block->pointer, block->bytes);
}
EXPORT void mstxMemRegionsUnregister(void *domain, const void *given) {
  (void)domain, (void)given;
  int device = current_device();
  if (device >= 0 && device < MOST_DEVICES) atomic_fetch_add(&counts[device].given_back, 1);
}

/* Marks and ranges of tools: nobody looks at them. */
EXPORT void mstxMarkA(const char *text, void *stream) { (void)text, (void)stream; }
EXPORT uint64_t mstxRangeStartA(const char *text, void *stream) {
  (void)text, (void)stream;
  return 1;
}
EXPORT void mstxRangeEnd(uint64_t range) { (void)range; }
EXPORT void mstxDomainMarkA(void *domain, const char *text, void *stream) { (void)domain, (void)text, (void)stream; }
EXPORT uint64_t mstxDomainRangeStartA(void *domain, const char *text, void *stream) {
  (void)domain, (void)text, (void)stream;
  return 1;
}
EXPORT void mstxDomainRangeEnd(void *domain, uint64_t range) { (void)domain, (void)range; }
