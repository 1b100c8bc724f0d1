/* Device memory as a sum with a limit, in whole pages of 2 MiB, and host memory that devices may read. */
#include "phantom.h"

#include "../shared/cards.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t used[MOST_DEVICES];
static char has_context[MOST_DEVICES]; /* on a shared card: only a process that uses the device takes memory for its context */

int card_of(int device) { return cards_behind("ASCEND_RT_VISIBLE_DEVICES", device); }

/* Sets what this process has on a shared card: returns whether the sum of all processes fits. */
static int publish(int device) { return cards_set(card_of(device), settings()->context + used[device], settings()->total); }

static int begin_context(int device) {
  if (cards_are_shared() && !has_context[device]) has_context[device] = (char)publish(device);
  return has_context[device] || !cards_are_shared();
}

static uint64_t left(int device) {
  if (!begin_context(device)) return 0;
  uint64_t taken = settings()->context + used[device];
  if (cards_are_shared()) taken += cards_of_others(card_of(device));
  return taken > settings()->total ? 0 : settings()->total - taken;
}

int take_memory(int device, uint64_t bytes) {
  pthread_mutex_lock(&lock);
  int is_enough = bytes <= left(device);
  if (is_enough) {
    used[device] += bytes;
    is_enough = !cards_are_shared() || publish(device);
    if (!is_enough) used[device] -= bytes; /* another process was faster */
  }
  pthread_mutex_unlock(&lock);
  return is_enough;
}

void give_memory(int device, uint64_t bytes) {
  pthread_mutex_lock(&lock);
  used[device] -= bytes;
  if (cards_are_shared()) publish(device);
  pthread_mutex_unlock(&lock);
}

/* What the driver's tool tells: each process on a card. A card and its chip have one number here. */
typedef struct {
  int pid;
  unsigned long bytes;
} process_t;

enum { DCMI_MOST = 32 };

EXPORT int dcmi_init(void) { return 0; }
EXPORT int dcmi_get_card_id_device_id_from_logicid(int *card, int *chip, unsigned logical) {
  *card = (int)logical;
  *chip = 0;
  return 0;
}
EXPORT int dcmi_get_device_resource_info(int card, int chip, process_t *processes, int *count) {
  (void)chip;
  int64_t pids[DCMI_MOST];
  uint64_t bytes[DCMI_MOST];
  pthread_mutex_lock(&lock);
  int found = cards_are_shared() ? cards_processes(card, pids, bytes, DCMI_MOST) : 0;
  pthread_mutex_unlock(&lock);
  *count = found < DCMI_MOST ? found : DCMI_MOST;
  for (int i = 0; i < *count; i++) processes[i] = (process_t){(int)pids[i], (unsigned long)bytes[i]};
  return 0;
}

uint64_t free_memory(int device) {
  pthread_mutex_lock(&lock);
  uint64_t bytes = left(device);
  pthread_mutex_unlock(&lock);
  return bytes;
}

static int allocate(void **out, size_t size) {
  if (!out || !size) return BAD_ARGUMENT;
  *out = NULL;
  int device = current_device();
  uint64_t charge = round_up(size, PAGE);
  if (charge < size || !take_memory(device, charge)) return OUT_OF_MEMORY;
  lock_ranges();
  range_t *range = add_range(size, PAGE, device, 0);
  if (range) {
    begin_contents(range);
    range->charge = charge;
    *out = (void *)range->start;
  }
  unlock_ranges();
  if (*out) return OK;
  give_memory(device, charge);
  return OUT_OF_MEMORY;
}

EXPORT int aclrtMalloc(void **out, size_t size, int policy) {
  (void)policy;
  return allocate(out, size);
}
EXPORT int aclrtMallocAlign32(void **out, size_t size, int policy) {
  (void)policy;
  return allocate(out, size);
}

EXPORT int aclrtFree(void *pointer) {
  lock_ranges();
  range_t *range = find_range((uint64_t)pointer);
  int is_ours = range && range->start == (uint64_t)pointer && !range->is_reserved;
  if (is_ours) {
    give_memory(range->device, range->charge);
    end_contents(range);
    remove_range(range);
  }
  unlock_ranges();
  return is_ours ? OK : BAD_ARGUMENT;
}

EXPORT int aclrtGetMemInfo(int kind, size_t *free_bytes, size_t *total) {
  (void)kind;
  *free_bytes = free_memory(current_device());
  *total = settings()->total;
  return OK;
}

EXPORT int aclrtGetMemUsageInfo(int device, void *modules, size_t room, size_t *count) {
  (void)device, (void)modules, (void)room;
  if (count) *count = 0; /* what each module of the driver has: there are none */
  return OK;
}

/* Host memory that is pinned: PyTorch asks of any pointer whether it is. There are few, since PyTorch keeps them for the next time. */
static struct pinned {
  char *start;
  size_t length;
  struct pinned *next;
} *pinned;

static int is_pinned(const void *pointer) {
  pthread_mutex_lock(&lock);
  int found = 0;
  for (struct pinned *one = pinned; one && !found; one = one->next) found = (size_t)((const char *)pointer - one->start) < one->length;
  pthread_mutex_unlock(&lock);
  return found;
}

EXPORT int aclrtMallocHost(void **out, size_t size) {
  size_t length = round_up(size ? size : 1, 64);
  *out = aligned_alloc(64, length);
  if (!*out) return OUT_OF_MEMORY;
  struct pinned *one = malloc(sizeof *one);
  pthread_mutex_lock(&lock);
  *one = (struct pinned){*out, length, pinned};
  pinned = one;
  pthread_mutex_unlock(&lock);
  return OK;
}
EXPORT int aclrtMallocHostWithCfg(void **out, uint64_t size, void *options) {
  (void)options;
  return aclrtMallocHost(out, size);
}
EXPORT int aclrtFreeHost(void *pointer) {
  pthread_mutex_lock(&lock);
  for (struct pinned **link = &pinned; *link; link = &(*link)->next) {
    struct pinned *one = *link;
    if (one->start != pointer) continue;
    *link = one->next;
    free(one);
    break;
  }
  pthread_mutex_unlock(&lock);
  free(pointer);
  return OK;
}

/* The host's memory is the device's as well: they are one process. */
EXPORT int aclrtHostRegister(void *pointer, uint64_t size, int kind, void **device_pointer) {
  (void)size, (void)kind;
  *device_pointer = pointer;
  return OK;
}

typedef struct {
  uint32_t id;
  int kind; /* 0 host, 1 device, 2 neither allocated nor registered here */
  uint32_t page, reserved[4];
} attributes_t;

EXPORT int aclrtPointerGetAttributes(const void *pointer, attributes_t *attributes) {
  memset(attributes, 0, sizeof *attributes);
  attributes->kind = is_pinned(pointer) ? 0 : 2;
  lock_ranges();
  range_t *range = find_range((uint64_t)pointer);
  if (range) {
    attributes->id = (uint32_t)range->device;
    attributes->kind = 1;
    attributes->page = (uint32_t)PAGE;
  }
  unlock_ranges();
  return OK;
}
