/* Tensors as views of memory: where their elements lie, and copies between views of the same type and shape. */
#include "phantom.h"

#include <string.h>

enum { MOST_LINES = 1 << 20 }; /* of a copy that is done; a longer one reads as zeros */

uint64_t num_elements(const tensor_t *tensor) {
  uint64_t count = 1;
  for (uint64_t i = 0; i < tensor->dims; i++) count *= tensor->dim[i];
  return count;
}

int is_contiguous(const tensor_t *tensor) {
  uint64_t expected = 1;
  for (uint64_t i = tensor->dims; i-- > 0;) {
    if (tensor->dim[i] != 1 && (uint64_t)tensor->stride[i] != expected) return 0;
    expected *= tensor->dim[i];
  }
  return 1;
}

/* From the first to behind the last of its elements, holes included. */
static uint64_t span(const tensor_t *tensor) {
  uint64_t last = 0;
  for (uint64_t i = 0; i < tensor->dims; i++) {
    if (!tensor->dim[i]) return 0;
    last += (tensor->dim[i] - 1) * (uint64_t)tensor->stride[i];
  }
  return (last + 1) * (uint64_t)type_size(tensor->type);
}

char *start_of(const tensor_t *tensor) { return (char *)tensor->data + tensor->offset * type_size(tensor->type); }

/* Line by line: a view with holes is cleared with its holes left alone. */
static void clear_lines(const tensor_t *tensor) {
  if (is_contiguous(tensor)) {
    clear_bytes(start_of(tensor), span(tensor));
    return;
  }
  tensor_t line = *tensor;
  if (line.dims < 2) {
    for (uint64_t i = 0; i < line.dim[0]; i++) {
      clear_bytes(start_of(&line) + (int64_t)i * line.stride[0] * type_size(line.type), (uint64_t)type_size(line.type));
    }
    return;
  }
  memmove(line.dim, line.dim + 1, (size_t)--line.dims * sizeof *line.dim);
  memmove(line.stride, line.stride + 1, (size_t)line.dims * sizeof *line.stride);
  for (uint64_t i = 0; i < tensor->dim[0]; i++, line.offset += tensor->stride[0]) clear_lines(&line);
}

void clear_tensor(const tensor_t *tensor) {
  if (!tensor || !type_size(tensor->type) || !is_device_address(tensor->data) || !num_elements(tensor)) return;
  if (contents_of(start_of(tensor), span(tensor)) != UNTOUCHED) clear_lines(tensor);
}

/* Whether a copy of `to`'s shape can be done: lines of elements that lie together in both, not too many. */
static int is_short(const tensor_t *to, const tensor_t *from) {
  uint64_t lines = 1, last = to->dims ? to->dims - 1 : 0;
  for (uint64_t i = 0; i < to->dims; i++) {
    if (to->dim[i] != from->dim[i]) return 0;
    if (i < last || to->stride[i] != 1 || from->stride[i] != 1) lines *= to->dim[i];
  }
  return lines <= MOST_LINES;
}

static int copy_lines(char *to, const char *from, const tensor_t *a, const tensor_t *b, uint64_t dim) {
  uint64_t width = (uint64_t)type_size(a->type);
  if (dim == a->dims) return move_bytes(to, from, width);
  if (dim + 1 == a->dims && a->stride[dim] == 1 && b->stride[dim] == 1) return move_bytes(to, from, a->dim[dim] * width);
  int error = OK;
  for (uint64_t i = 0; i < a->dim[dim] && !error; i++) {
    error = copy_lines(to + (int64_t)i * a->stride[dim] * (int64_t)width, from + (int64_t)i * b->stride[dim] * (int64_t)width, a, b, dim + 1);
  }
  return error;
}

int copy_tensor(const tensor_t *to, const tensor_t *from) {
  int is_alike = to->type == from->type && type_size(to->type) && num_elements(to) == num_elements(from);
  if (is_alike && is_contiguous(to) && is_contiguous(from)) {
    return move_bytes(start_of(to), start_of(from), num_elements(to) * (uint64_t)type_size(to->type));
  }
  contents_t contents = is_alike && num_elements(to) ? contents_of(start_of(from), span(from)) : UNTOUCHED;
  if (contents == KNOWN_ZEROS && is_contiguous(to)) return set_zeros(start_of(to), span(to));
  if (contents != UNTOUCHED && to->dims == from->dims && is_short(to, from)) {
    return copy_lines(start_of(to), start_of(from), to, from, 0);
  }
  clear_tensor(to); /* results of operators, or a conversion: what that would hold is not worked out */
  return OK;
}

void part_of(tensor_t *part, const tensor_t *whole, uint64_t dim, int64_t first, uint64_t count) {
  *part = *whole;
  part->offset += first * whole->stride[dim];
  part->dim[dim] = count;
}
