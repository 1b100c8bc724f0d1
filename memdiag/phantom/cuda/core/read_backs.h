// What the program reads back of the device: which copies to the host were of computed values, and from where in the program.
//
// Sizes that depend on data are read back by PyTorch itself. What they are is found out here as well, see read_backs.cpp.
#pragma once
#include <stdint.h>

namespace phantom {

void read_back(void* host, uint64_t device, uint64_t bytes);  // a copy from the device to the host

}  // namespace phantom
