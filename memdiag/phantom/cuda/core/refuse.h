// Says on stderr what cannot be imitated, once for each function, and gives the error that the caller is to return.
#pragma once
#include <string>
#include <vector>

namespace phantom {

int refuse(const char* library, const char* function, int error);
std::vector<std::string> refused();  // "cudaMallocManaged of libcudart", in order

}  // namespace phantom

extern "C" int memdiag_phantom_refuse(const char* library, const char* function, int error);
