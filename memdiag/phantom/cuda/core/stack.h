// The stack of a thread. Kernels get structures of which PyTorch fills only a part, and the rest contains old data of the stack, for example
// addresses of tensors that the kernel does not get.
#pragma once
#include <stdint.h>

namespace phantom {

struct Stack {
  uint64_t begin = 0, end = 0;
  bool holds(uint64_t address) const { return address >= begin && address < end; }
};

const Stack& this_stack();

// Notes that the stack below the caller's frame may hold addresses from now on.
void leave_addresses();

// Overwrites them in the part that no function uses at the moment.
void wipe_addresses();

}  // namespace phantom
