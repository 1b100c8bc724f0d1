/* The device that is pretended: read once from the environment, which memdiag's launcher has filled in and checked. */
#include "phantom.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static settings_t chosen;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static uint64_t number(const char *name, uint64_t otherwise) {
  const char *text = getenv(name);
  return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

static const char *text(const char *name, const char *otherwise) {
  const char *value = getenv(name);
  return value && *value ? strdup(value) : otherwise;
}

/* A launcher (torchrun, accelerate) starts one process for each device and says how many. */
static int devices(void) {
  uint64_t count = number("MEMDIAG_PHANTOM_NPU_DEVICES", 0);
  if (!count) count = number("LOCAL_WORLD_SIZE", 1);
  if (!count) count = 1;
  return count > MOST_DEVICES ? MOST_DEVICES : (int)count;
}

static values_t values(void) {
  static const char *const names[] = {"zeros", "ones", "random", "finite"};
  const char *given = text("MEMDIAG_PHANTOM_VALUES", names[ZEROS]);
  for (int i = ZEROS; i <= FINITE; i++) {
    if (!strcmp(given, names[i])) return (values_t)i;
  }
  return ZEROS; /* the launcher has checked it */
}

static void read_once(void) {
  chosen.devices = devices();
  chosen.total = number("MEMDIAG_PHANTOM_NPU_TOTAL", (uint64_t)64 << 30);
  chosen.context = number("MEMDIAG_PHANTOM_NPU_CONTEXT", 0);
  uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
  chosen.kept = number("MEMDIAG_PHANTOM_DATA", memory / 4);
  /* HCCL keeps two buffers for each communicator, 200 MB each unless told otherwise. */
  chosen.hccl_buffers = 2 * number("HCCL_BUFFSIZE", 200) * MIB;
  chosen.values = values();
  chosen.selected = strtod(text("MEMDIAG_PHANTOM_SELECTED", "1"), NULL);
  chosen.cube_cores = (int)number("MEMDIAG_PHANTOM_NPU_CUBE_CORES", 20);
  chosen.vector_cores = (int)number("MEMDIAG_PHANTOM_NPU_VECTOR_CORES", 40);
  chosen.soc = text("MEMDIAG_PHANTOM_NPU_SOC", "Ascend910B3");
  chosen.cann = text("MEMDIAG_PHANTOM_NPU_CANN", "8.5.0");
  chosen.driver = text("MEMDIAG_PHANTOM_NPU_DRIVER", "26.0.0");
}

const settings_t *settings(void) {
  pthread_once(&once, read_once);
  return &chosen;
}
