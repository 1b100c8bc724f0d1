// Kernels on lists of tensors (multi_tensor_apply_kernel), which optimizers launch. Their first parameter is a table of addresses. PyTorch
// fills only the rows that it needs. The other rows contain old data of the stack, for example addresses of an earlier launch.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <string>
#include <vector>

namespace phantom {

struct TensorLists {
  unsigned depth = 0;     // number of lists, or 0 if the kernel is not one of these
  size_t each_bytes = 0;  // size of the number, or of the address of a counter, that the table has for each tensor
  bool is_read = false;  // no list is written: norms, whose results have addresses of their own
  int written = -1;      // index of the list that is written, or -1 if each list may be written
};

TensorLists tensor_lists_of(const std::string& kernel);  // its demangled name

// Adds the addresses that are written. Returns false, and adds nothing, if the table has another form. Its memory ends before `end`.
bool words_of_lists(const TensorLists& lists, const void* table, uint64_t end, unsigned num_blocks, std::vector<uint64_t>& words);

}  // namespace phantom
