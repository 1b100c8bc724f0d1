/* Names the option that simulates more devices, once for each process that selects one which is not simulated. */
#ifndef MEMDIAG_PHANTOM_TOO_FEW_H
#define MEMDIAG_PHANTOM_TOO_FEW_H

#include <stdio.h>
#include <stdlib.h>

static inline void too_few_devices(int device, int count) {
  static int is_said = 0;
  const char *name = getenv("MEMDIAG_PHANTOM_OPTION");
  if (is_said || device < count || !count || !name) return;
  is_said = 1;
  fprintf(stderr,
          "memdiag: error: the program selects device %d, but %d device%s simulated for this process\n"
          "memdiag: hint: --phantom %s,devices=%d\n",
          device, count, count == 1 ? " is" : "s are", name, device + 1);
}

#endif
