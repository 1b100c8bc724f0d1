// elementwise_kernel<…>(int N, lambda), for tensors that are broadcast or not contiguous. Its lambda also captures sizes and strides for 25
// dimensions. PyTorch fills only those of the tensors. The others contain old data of the stack, for example addresses.
#pragma once
#include <stdint.h>

#include <vector>

namespace phantom {

// Adds the addresses that may be the output. Returns false, and adds nothing, if the lambda has another form. Its memory ends before `end`.
bool words_of_elementwise(const void* lambda, uint64_t end, std::vector<uint64_t>& words);

}  // namespace phantom
