/* Operators: each exists and succeeds without doing anything, so that host code makes its outputs exactly as it would on a device.
 *
 * What they compute reads as zeros. A new tensor holds zeros anyway; an operator that changes a tensor in place clears it. Copies and
 * fills are done for real, since scripts read back what they copied and flags that they set.
 */
#define _GNU_SOURCE
#include "phantom.h"

#include <stdlib.h>
#include <string.h>


/* ---- operators of which only it is known where their results go */

static void clear_handle(const void *handle) {
  clear_tensor(as_tensor(handle));
  const tensor_t *tensor;
  for (uint64_t i = 0; (tensor = last_tensor_of(handle, i)); i++) clear_tensor(tensor);
}

int changed_first(const void *const *arguments, int count) {
  for (int i = 0; i < count; i++) clear_handle(arguments[i]);
  return OK;
}

/* The arguments end with two addresses of the caller's stack (workspace size, executor); behind them is anything. */
int changed_last(const void *const *arguments) {
  const char *here = __builtin_frame_address(0);
  const void *last = NULL;
  for (int i = 0; i < 8; i++) {
    const char *word = arguments[i];
    if (word > here && word < here + MIB) break;
    if (last_tensor_of(word, 0)) last = word;
  }
  clear_handle(last);
  return OK;
}

/* ---- operators that are done: the first call describes the work, the second does it, in the order of the stream */

typedef struct job {
  tensor_t to, from, inner;
  int is_padded; /* after a fill, `from` is copied to `inner`, a part of `to` */
  int width; /* of a value to fill with; 0: a copy */
  unsigned char value[16];
} job_t;

static int run(void *workspace, uint64_t size, job_t *job, void *stream) {
  (void)workspace, (void)size, (void)stream;
  if (!job) return OK;
  int error = OK;
  if (!job->width) {
    error = copy_tensor(&job->to, &job->from);
  } else if (is_contiguous(&job->to)) {
    error = fill_bytes(start_of(&job->to), job->value, job->width, num_elements(&job->to));
  } else {
    clear_tensor(&job->to);
  }
  if (job->is_padded && !error) error = copy_tensor(&job->inner, &job->from);
  free(job);
  return error;
}

static int plan(const void *to, const void *from, const void *value, int width, job_t **executor) {
  const tensor_t *tensor = as_tensor(to), *source = as_tensor(from);
  if (!tensor || !executor || (!width && !source)) return OK;
  job_t *job = calloc(1, sizeof *job);
  job->to = *tensor;
  if (source) job->from = *source;
  job->width = width;
  if (width) memcpy(job->value, value, (size_t)width);
  *executor = job;
  return OK;
}

EXPORT int aclnnInplaceCopyGetWorkspaceSize(const void *to, const void *from, uint64_t *size, job_t **executor) {
  *size = 0;
  return plan(to, from, NULL, 0, executor);
}
EXPORT int aclnnInplaceCopy(void *workspace, uint64_t size, job_t *job, void *stream) { return run(workspace, size, job, stream); }

/* ---- fills: a scalar of any type becomes an element of any type */

static uint16_t half_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00);
  if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
  if (magnitude < 0x38800000) { /* too small for a full exponent: in units of 2^-24 */
    float scaled;
    memcpy(&scaled, &magnitude, sizeof scaled);
    return (uint16_t)(sign | (uint32_t)(scaled * 16777216.0f + 0.5f));
  }
  return (uint16_t)(sign | ((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13));
}

static uint16_t brain_half_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static double number_in(const scalar_t *scalar, int64_t *whole) {
  double number = 0;
  *whole = 0;
  switch (scalar->type) {
    case 0: { float value; memcpy(&value, scalar->value, 4); number = value; *whole = (int64_t)number; break; }
    case 3: { int32_t value; memcpy(&value, scalar->value, 4); number = value; *whole = value; break; }
    case 9: case 10: { memcpy(whole, scalar->value, 8); number = (double)*whole; break; }
    case 11: { memcpy(&number, scalar->value, 8); *whole = number > -9e18 && number < 9e18 ? (int64_t)number : 0; break; }
    case 4: case 12: number = scalar->value[0]; *whole = scalar->value[0]; break;
    case 2: number = (signed char)scalar->value[0]; *whole = (signed char)scalar->value[0]; break;
    case 6: { int16_t value; memcpy(&value, scalar->value, 2); number = value; *whole = value; break; }
    default: break; /* a half or a complex number: torch hands over doubles and integers */
  }
  return number;
}

/* Writes a scalar as an element; returns its width, 0 where the type is not known here. */
static int element(const scalar_t *scalar, int type, unsigned char *value) {
  int64_t whole;
  double number = number_in(scalar, &whole);
  float single = (float)number;
  uint16_t half;
  switch (type) {
    case 0: memcpy(value, &single, 4); return 4;
    case 1: half = half_of(single); memcpy(value, &half, 2); return 2;
    case 27: half = brain_half_of(single); memcpy(value, &half, 2); return 2;
    case 11: memcpy(value, &number, 8); return 8;
    case 12: value[0] = number != 0; return 1;
    case 2: case 4: memcpy(value, &whole, 1); return 1; /* the low bytes, as both our processors keep them first */
    case 6: case 7: memcpy(value, &whole, 2); return 2;
    case 3: case 8: memcpy(value, &whole, 4); return 4;
    case 9: case 10: memcpy(value, &whole, 8); return 8;
    default: return 0;
  }
}

static int plan_fill(const void *to, const scalar_t *scalar, job_t **executor) {
  unsigned char value[16] = {0};
  const tensor_t *tensor = as_tensor(to);
  int width = tensor ? element(scalar, tensor->type, value) : 0;
  if (width) return plan(to, NULL, value, width, executor);
  clear_tensor(tensor);
  return OK;
}

EXPORT int aclnnInplaceFillScalarGetWorkspaceSize(const void *to, const scalar_t *scalar, uint64_t *size, job_t **executor) {
  *size = 0;
  return scalar ? plan_fill(to, scalar, executor) : OK;
}
EXPORT int aclnnInplaceFillScalar(void *workspace, uint64_t size, job_t *job, void *stream) { return run(workspace, size, job, stream); }

EXPORT int aclnnInplaceOneGetWorkspaceSize(const void *to, uint64_t *size, job_t **executor) {
  scalar_t one = {.type = 9, .value = {1}};
  *size = 0;
  return plan_fill(to, &one, executor);
}
EXPORT int aclnnInplaceOne(void *workspace, uint64_t size, job_t *job, void *stream) { return run(workspace, size, job, stream); }

EXPORT int aclnnInplaceZeroGetWorkspaceSize(const void *to, uint64_t *size, job_t **executor) {
  scalar_t zero = {.type = 9};
  *size = 0;
  return plan_fill(to, &zero, executor);
}
EXPORT int aclnnInplaceZero(void *workspace, uint64_t size, job_t *job, void *stream) { return run(workspace, size, job, stream); }

/* ---- whether two tensors are equal: only known if they are the same one */

static int is_same(const tensor_t *one, const tensor_t *other) {
  if (!one || !other || one->type != other->type || one->dims != other->dims || start_of(one) != start_of(other)) return 0;
  size_t bytes = one->dims * sizeof one->dim[0];
  return !memcmp(one->dim, other->dim, bytes) && !memcmp(one->stride, other->stride, bytes);
}
EXPORT int aclnnEqualGetWorkspaceSize(const void *of, const void *other, const void *to, uint64_t *size, job_t **executor) {
  scalar_t yes = {.type = 9, .value = {1}};
  *size = 0;
  return is_same(as_tensor(of), as_tensor(other)) ? plan_fill(to, &yes, executor) : OK;
}
EXPORT int aclnnEqual(void *workspace, uint64_t size, job_t *job, void *stream) { return run(workspace, size, job, stream); }

/* ---- whether numbers are finite: made-up ones are, and so all() of such answers is yes; with values=finite, all() of any answers */

/* A copy of a tensor's bytes, to be freed; NULL: not all are known, or they are too many or not contiguous. */
static char *known_copy(const tensor_t *of, uint64_t *bytes) {
  *bytes = of ? num_elements(of) * (uint64_t)type_size(of->type) : 0;
  if (!*bytes || *bytes > 64 * MIB || !is_contiguous(of)) return NULL;
  char *copy = malloc(*bytes);
  if (copy && look_at(start_of(of), copy, *bytes)) return copy;
  free(copy);
  return NULL;
}

int64_t count_nonzero(const tensor_t *of) {
  static const unsigned char is_whole[] = {[2] = 1, [3] = 1, [4] = 1, [6] = 1, [7] = 1, [8] = 1, [9] = 1, [10] = 1, [12] = 1}; /* types */
  if (!of || of->type < 0 || of->type >= (int)sizeof is_whole || !is_whole[of->type]) return -1;
  uint64_t bytes, width = (uint64_t)type_size(of->type), count = 0;
  char *copy = known_copy(of, &bytes);
  if (!copy) return -1;
  for (uint64_t at = 0; at < bytes; at += width) {
    uint64_t element = 0;
    memcpy(&element, copy + at, width);
    count += element != 0;
  }
  free(copy);
  return (int64_t)count;
}

static int are_known_true(const tensor_t *bools) {
  uint64_t bytes;
  char *copy = bools && type_size(bools->type) == 1 ? known_copy(bools, &bytes) : NULL;
  int are_true = copy && !memchr(copy, 0, bytes);
  free(copy);
  return are_true;
}

/* Whether numbers are known, and one of them is infinite or not a number: all bits of its exponent are set. */
static int holds_no_number(const tensor_t *of) {
  uint64_t exponent = !of ? 0 : of->type == 0 ? 0x7f800000 : of->type == 1 ? 0x7c00 : of->type == 27 ? 0x7f80 : of->type == 11 ? 0x7ffull << 52 : 0;
  uint64_t bytes, number = 0;
  char *copy = exponent ? known_copy(of, &bytes) : NULL;
  int holds = 0;
  for (uint64_t at = 0; copy && !holds && at < bytes; at += (uint64_t)type_size(of->type)) {
    memcpy(&number, copy + at, (size_t)type_size(of->type));
    holds = (number & exponent) == exponent;
  }
  free(copy);
  return holds;
}

static int plan_yes(int is_said, const void *to, uint64_t *size, job_t **executor) {
  scalar_t yes = {.type = 9, .value = {1}};
  *size = 0;
  return is_said ? plan_fill(to, &yes, executor) : OK;
}
EXPORT int aclnnIsFiniteGetWorkspaceSize(const void *of, const void *to, uint64_t *size, job_t **executor) {
  return plan_yes(!holds_no_number(as_tensor(of)), to, size, executor);
}
EXPORT int aclnnIsFinite(void *workspace, uint64_t size, job_t *job, void *stream) { return run(workspace, size, job, stream); }
EXPORT int aclnnAllGetWorkspaceSize(const void *of, const void *dims, int keeps, const void *to, uint64_t *size, job_t **executor) {
  (void)dims, (void)keeps;
  return plan_yes(settings()->values == FINITE || are_known_true(as_tensor(of)), to, size, executor);
}
EXPORT int aclnnAll(void *workspace, uint64_t size, job_t *job, void *stream) { return run(workspace, size, job, stream); }

/* Padding: the sides are filled, the tensor is copied between them. Collectives of lists of tensors do it. */
EXPORT int aclnnConstantPadNdGetWorkspaceSize(const void *from, const void *sides, const scalar_t *scalar, const void *to, uint64_t *size,
                                              job_t **executor) {
  const tensor_t *source = as_tensor(from), *target = as_tensor(to);
  uint64_t count;
  const int64_t *side = numbers_of(sides, &count);
  *size = 0;
  int error = scalar && target ? plan_fill(to, scalar, executor) : OK;
  if (error || !*executor || !source || !side || source->dims != target->dims || count / 2 > target->dims) return error;
  job_t *job = *executor;
  job->from = *source;
  job->inner = *target;
  job->is_padded = source->type == target->type;
  for (uint64_t i = 0; i < count / 2; i++) { /* from the last dimension on: before it, behind it */
    uint64_t dim = target->dims - 1 - i;
    if (side[2 * i] < 0 || side[2 * i + 1] < 0) job->is_padded = 0;
    else part_of(&job->inner, &job->inner, dim, side[2 * i], source->dim[dim]);
  }
  return OK;
}
EXPORT int aclnnConstantPadNd(void *workspace, uint64_t size, job_t *job, void *stream) { return run(workspace, size, job, stream); }

/* ---- the older interface */

EXPORT size_t aclGetCompileoptSize(int option) {
  (void)option;
  return 16;
}
EXPORT int aclGetCompileopt(int option, char *value, size_t length) {
  (void)option;
  if (length) value[0] = 0, strncat(value, "disable", length - 1);
  return OK;
}
EXPORT int aclrtGetSysParamOpt(int option, int64_t *value) {
  (void)option;
  *value = 0;
  return OK;
}
