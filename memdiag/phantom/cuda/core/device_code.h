// The machine code that a library brings for its kernels: for which architectures it was compiled.
#pragma once

namespace phantom {

// What cudaFuncGetAttributes says of a kernel, for example 86 and 86 for code of sm_86. CUB chooses its policies by these.
struct CodeVersion {
  int ptx, binary;
  bool exists() const { return binary != 0; }
};

// The code that the driver would choose on this device; {0, 0} if none runs on it. `registered` is what
// __cudaRegisterFatBinary gets, or a fat binary itself. Of anything else the answer is the device's own capability.
CodeVersion choose_code(const void* registered);

CodeVersion code_for_this_device();

}  // namespace phantom
