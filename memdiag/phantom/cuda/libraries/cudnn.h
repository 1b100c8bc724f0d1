// What the parts of the stand-in for cuDNN share: descriptors that remember what they were told.
#pragma once
#include <vector>

#include "calls.h"

namespace phantom {

enum : int { kNotSupportedByCudnn = 3000 };

constexpr int kMostDimensions = 8;

struct Tensor {  // also a filter
  int type = 0, format = 0, num_dimensions = 0;
  int dimensions[kMostDimensions] = {}, strides[kMostDimensions] = {};
};

// Bytes of an element, by cudnnDataType_t: float, double, half, int8, int32, int8x4, uint8, uint8x4, int8x32, bfloat16, int64, bool, fp8 …
inline size_t element_bytes(int type) {
  constexpr size_t kBytes[] = {4, 8, 2, 1, 4, 4, 1, 4, 32, 2, 8, 1, 1, 1};
  return type >= 0 && type < 14 ? kBytes[type] : 1;
}

}  // namespace phantom
