/* For the part of memdiag that computes small tensors inside the program (boot/computing): what is known of bytes on the device, new
 * bytes for them, and how many elements an operator will find.
 */
#include "phantom.h"

enum { MOST_DEPTH = 64 };
static __thread int64_t told[MOST_DEPTH];
static __thread int depth, num_agreed;

int is_agreed(void) { return num_agreed > 0; }
int64_t told_count(void) { return depth && depth <= MOST_DEPTH ? told[depth - 1] : -1; }

/* Copies bytes to the host, if there is one, and if all of them are known; whether they are. Not counted as read by the program. */
EXPORT int memdiag_phantom_peek(void *host, uint64_t device, uint64_t bytes) {
  return is_device_address((void *)device) && bytes && look_at((void *)device, host, bytes);
}

/* Makes bytes known; without a host's, unknown. */
EXPORT void memdiag_phantom_poke(uint64_t device, const void *host, uint64_t bytes) {
  if (!is_device_address((void *)device)) return;
  if (host) move_bytes((void *)device, host, bytes);
  else clear_bytes((void *)device, bytes);
}

/* Peeks at or pokes the contiguous pieces of a strided tensor, from dimension `dim` on, in the order of the elements. `numbers` are its
 * address, bytes of an element, number of dimensions, sizes and strides (in elements). Returns 0 if a piece is not known. */
static int each_piece(const uint64_t *numbers, uint64_t at, uint64_t dim, uint64_t dims, uint64_t bytes, char **host, int is_poke) {
  if (dim == dims) {
    char *here = *host;
    if (here) *host += bytes;
    if (!is_poke) return memdiag_phantom_peek(here, at, bytes);
    memdiag_phantom_poke(at, here, bytes);
    return 1;
  }
  uint64_t size = numbers[3 + dim], step = numbers[3 + numbers[2] + dim] * numbers[1];
  for (uint64_t i = 0; i < size; i++) {
    if (!each_piece(numbers, at + i * step, dim + 1, dims, bytes, host, is_poke)) return 0;
  }
  return 1;
}

static int all_pieces(const uint64_t *numbers, char *host, int is_poke) {
  uint64_t dims = numbers[2], bytes = numbers[1];
  const uint64_t *sizes = numbers + 3, *strides = sizes + dims;
  for (; dims && (sizes[dims - 1] == 1 || strides[dims - 1] * numbers[1] == bytes); dims--) bytes *= sizes[dims - 1];
  return each_piece(numbers, numbers[0], 0, dims, bytes, &host, is_poke);
}

/* The same for the elements of a strided tensor. On the host, the values are contiguous. The gaps on the device are left alone. */
EXPORT int memdiag_phantom_peek_strided(void *host, const uint64_t *numbers) { return all_pieces(numbers, host, 0); }
EXPORT void memdiag_phantom_poke_strided(const uint64_t *numbers, const void *host) { all_pieces(numbers, (char *)host, 1); }

/* This thread begins an operator, perhaps within another: what it writes does not matter here, where nothing else is forgotten; and how
 * many elements it will find (-1: that is not known). */
EXPORT void memdiag_phantom_begin(const uint64_t *numbers, uint64_t num_tensors, int64_t count) {
  (void)numbers, (void)num_tensors;
  if (depth++ < MOST_DEPTH) told[depth - 1] = count;
}

/* It has ended. */
EXPORT void memdiag_phantom_end(void) {
  if (depth) depth--;
}

/* With 1, a condition that this thread reads, and that is not known, is true, until the same call with -1. See boot/validation.py. */
EXPORT void memdiag_phantom_agree(int change) { num_agreed += change; }

/* Notes in the tensor of the result how large its dimension `found` is, if what the operator selects by is known. */
static int selects(const void *by, const void *to, int is_last, uint64_t *size) {
  tensor_t *tensor = (tensor_t *)as_tensor(to);
  if (tensor && tensor->dims) {
    tensor->found = is_last ? (int)tensor->dims - 1 : 0;
    tensor->num_found = (uint64_t)(count_nonzero(as_tensor(by)) + 1);
  }
  *size = 0;
  return OK;
}

/* Where elements are that are not zero: each has a column in the second version, and a row in the first. */
EXPORT int aclnnNonzeroV2GetWorkspaceSize(const void *of, const void *to, uint64_t *size, void **executor) {
  (void)executor;
  return selects(of, to, 1, size);
}
EXPORT int aclnnNonzeroGetWorkspaceSize(const void *of, const void *to, uint64_t *size, void **executor) {
  (void)executor;
  return selects(of, to, 0, size);
}
EXPORT int aclnnMaskedSelectGetWorkspaceSize(const void *of, const void *mask, const void *to, uint64_t *size, void **executor) {
  const tensor_t *tensor = as_tensor(of), *by = as_tensor(mask);
  (void)executor;
  *size = 0; /* a mask that is broadcast selects more than it has */
  return tensor && by && num_elements(tensor) == num_elements(by) ? selects(mask, to, 0, size) : OK;
}
