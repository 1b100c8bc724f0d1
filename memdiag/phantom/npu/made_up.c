/* What is read where nothing is known: results of operators, as MEMDIAG_PHANTOM_VALUES says (docs/phantom.md).
 *
 *   zeros   zeros
 *   ones    one, and true
 *   random  floating point numbers from 0.5 to 1, integers 0 or 1, true or false; the same in each run
 *   finite  floating point numbers 1, integers 0, false; besides, questions whether numbers are finite are answered with yes (operators.c)
 */
#include "phantom.h"

#include <string.h>

typedef struct {
  int type; /* as ACL numbers them */
  int width, is_float;
  uint64_t one;  /* 1 in its bits */
  uint64_t half; /* 0.5: to these bits those of `fraction` may be added, and it stays below 1 */
  int fraction;
} kind_t;

static const kind_t kinds[] = {
    {0, 4, 1, 0x3f800000, 0x3f000000, 23},
    {1, 2, 1, 0x3c00, 0x3800, 10},
    {27, 2, 1, 0x3f80, 0x3f00, 7},
    {11, 8, 1, UINT64_C(0x3ff0000000000000), UINT64_C(0x3fe0000000000000), 52},
    {16, 8, 1, 0x3f800000, 0x3f000000, 23}, /* complex: the real part */
    {35, 1, 1, 0x3c, 0x38, 2},
    {36, 1, 1, 0x38, 0x30, 3},
    {2, 1, 0, 1, 0, 1},
    {4, 1, 0, 1, 0, 1},
    {12, 1, 0, 1, 0, 1},
    {6, 2, 0, 1, 0, 1},
    {7, 2, 0, 1, 0, 1},
    {3, 4, 0, 1, 0, 1},
    {8, 4, 0, 1, 0, 1},
    {9, 8, 0, 1, 0, 1},
    {10, 8, 0, 1, 0, 1},
};

static uint64_t mix(uint64_t x) { /* splitmix64 */
  x += UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

static uint64_t element(const kind_t *kind, uint64_t draw) {
  switch (settings()->values) {
    case ONES: return kind->one;
    case FINITE: return kind->is_float ? kind->one : 0;
    case RANDOM: return kind->half | (draw & ((UINT64_C(1) << kind->fraction) - 1));
    default: return 0;
  }
}

void make_up(void *to, uint64_t bytes, int type) {
  static uint64_t draws;
  memset(to, 0, bytes);
  if (settings()->values == ZEROS) return;
  const kind_t *kind = NULL;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (kinds[i].type == type) kind = &kinds[i];
  }
  if (!kind) return;
  uint64_t seed = mix(__sync_fetch_and_add(&draws, 1));
  for (uint64_t at = 0; at + (uint64_t)kind->width <= bytes; at += (uint64_t)kind->width) {
    uint64_t value = element(kind, mix(seed + at)); /* both our processors keep the low bytes first */
    memcpy((char *)to + at, &value, (size_t)kind->width);
  }
}
