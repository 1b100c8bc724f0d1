// libcudart: modules, kernels, entry points of the driver.
#include "../core/kernels.h"

#include <string.h>

#include "../core/errors.h"
#include "../core/memory.h"
#include "../core/properties.h"
#include "../driver/entry.h"

using namespace phantom;

namespace {

// Variables of modules have an address that no allocation has.
constexpr uint64_t kSymbols = kReservedEnd - 4096;

thread_local struct {
  Dim3 grid, block;
  size_t shared_bytes;
  Stream stream;
} t_call;

}  // namespace

API void** __cudaRegisterFatBinary(void* module) { return new void*(module); }
API void __cudaRegisterFatBinaryEnd(void**) {}
API void __cudaUnregisterFatBinary(void**) {}  // at exit: kernels still name the module
API void __cudaRegisterFunction(void** module, const char* host, char*, const char* name, int, void*, void*, void*, void*, int*) {
  name_kernel(host, name, *module);
}
API void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
API void __cudaRegisterManagedVar(void**, void**, char*, const char*, int, size_t, int, int) {}
API char __cudaInitModule(void**) { return 1; }
API int __cudaGetKernel(const void** kernel, const void* function) {
  *kernel = function;
  return kSuccess;
}
API unsigned __cudaPushCallConfiguration(Dim3 grid, Dim3 block, size_t shared_bytes, Stream stream) {
  t_call = {grid, block, shared_bytes, stream};
  return 0;
}
API int __cudaPopCallConfiguration(Dim3* grid, Dim3* block, size_t* shared_bytes, Stream* stream) {
  *grid = t_call.grid;
  *block = t_call.block;
  *shared_bytes = t_call.shared_bytes;
  *stream = t_call.stream;
  return kSuccess;
}

API int cudaLaunchKernel(const void* function, Dim3 grid, Dim3, void** arguments, size_t, Stream stream) {
  return launch(function, arguments, stream, grid.x);
}
API int __cudaLaunchKernel(const void* kernel, Dim3 grid, Dim3, void** arguments, size_t, Stream stream) {
  return launch(kernel, arguments, stream, grid.x);
}
API int cudaLaunchCooperativeKernel(const void* function, Dim3 grid, Dim3, void** arguments, size_t, Stream stream) {
  return launch(function, arguments, stream, grid.x);
}
API int cudaLaunchKernelExC(const LaunchConfig* how, const void* function, void** arguments) {
  return launch(function, arguments, how->stream, how->grid.x);
}
API int cudaFuncGetAttributes(FuncAttributes* attributes, const void* function) {
  CodeVersion code = code_of(function);
  if (!code.exists()) return remember(kNoKernelImage);
  fill(*attributes, code);
  return kSuccess;
}
API int cudaFuncSetAttribute(const void*, int, int) { return kSuccess; }
API int cudaFuncSetCacheConfig(const void*, int) { return kSuccess; }
API int cudaGetFuncBySymbol(const void** function, const void* symbol) {
  *function = symbol;
  return kSuccess;
}
API int cudaGetSymbolAddress(void** address, const void*) {
  *address = pointer(kSymbols);
  return kSuccess;
}
API int cudaGetSymbolSize(size_t* bytes, const void*) {
  *bytes = 8;
  return kSuccess;
}
API int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) {
  *blocks = occupancy();
  return kSuccess;
}
API int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, size_t, unsigned) {
  *blocks = occupancy();
  return kSuccess;
}
API int cudaOccupancyMaxActiveClusters(int* clusters, const void*, const void*) {
  *clusters = occupancy();
  return kSuccess;
}
API int cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, const void*, int, int) {
  *bytes = 49152;
  return kSuccess;
}

API int cudaLibraryLoadData(void** library, const void* code, ...) {
  *library = const_cast<void*>(code);
  return kSuccess;
}
API int cudaLibraryUnload(void*) { return kSuccess; }
API int cudaLibraryGetKernel(void** kernel, void* library, const char*) {
  *kernel = library;
  return kSuccess;
}
API int cudaKernelSetAttributeForDevice(void*, int, int, int) { return kSuccess; }

API int cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long, int* status) {
  *function = entry_point(name);
  if (status) *status = *function ? 0 : 1;
  return kSuccess;
}
API int cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long flags, int* status) {
  return cudaGetDriverEntryPointByVersion(name, function, 0, flags, status);
}
