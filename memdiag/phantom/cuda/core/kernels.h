// Kernels: none runs. What is found out of a launch is which memory it may write.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "abi.h"
#include "device_code.h"

namespace phantom {

// `module` is what the library gave to __cudaRegisterFatBinary.
void name_kernel(const void* host_function, const char* device_name, const void* module);
CodeVersion code_of(const void* host_function);

// `function` may be null or unknown (kernels of the driver API): then every pointer among the arguments may be written.
// `num_blocks` is the number of blocks of threads in the first dimension, or 0 if it is unknown.
// Returns kNoKernelImage where the library has no code for this device, as the real runtime does.
int launch(const void* function, void** arguments, Stream stream, unsigned num_blocks = 0);
void launch_packed(const void* buffer, size_t bytes, Stream stream);

// A library call that may write through any of these words.
void library_call(Stream stream, const uint64_t* words, size_t num_words);

}  // namespace phantom
