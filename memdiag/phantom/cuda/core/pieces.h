// The contiguous pieces of a strided tensor's bytes.
#pragma once
#include <stdint.h>

namespace phantom {

struct Strided {
  uint64_t begin, each, dims;  // address, bytes of an element
  const uint64_t *sizes, *strides;  // in elements; none is negative
};

template <class Use>
bool walk_pieces(const Strided& of, uint64_t at, uint64_t dim, uint64_t dims, uint64_t bytes, Use& use) {
  if (dim == dims) return use(at, bytes);
  for (uint64_t i = 0; i < of.sizes[dim]; i++)
    if (!walk_pieces(of, at + i * of.strides[dim] * of.each, dim + 1, dims, bytes, use)) return false;
  return true;
}

// Calls `use(address, bytes)` for each piece, in the order of the elements, until it returns false; whether it never did.
template <class Use>
bool each_piece(const Strided& of, Use use) {
  uint64_t dims = of.dims, bytes = of.each;
  for (; dims && (of.sizes[dims - 1] == 1 || of.strides[dims - 1] * of.each == bytes); dims--) bytes *= of.sizes[dims - 1];
  return walk_pieces(of, of.begin, 0, dims, bytes, use);
}

}  // namespace phantom
