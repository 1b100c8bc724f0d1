// What is read where nothing is known: the results of kernels.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace phantom {

// The types of elements that PyTorch copies, as it numbers them (c10::ScalarType); kAnyType where they are not known.
constexpr int kAnyType = -1;
unsigned type_bytes(int type);  // 0: none that is known here

// Fills `bytes` at `to` as MEMDIAG_PHANTOM_VALUES says:
//
//   zeros   zeros
//   ones    one, and true
//   random  floating point numbers from 0.5 to 1, integers 0 or 1, true or false; the same in each run
//   finite  floating point numbers 1, integers 0, false; besides, questions whether numbers are finite are answered with yes (folding.cpp)
//
// Where the type is not known these are zeros.
void make_up(void* to, uint64_t bytes, int type);

}  // namespace phantom
