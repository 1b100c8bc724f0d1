// libcublas: handles and their settings. What computes is written by recipe.py.
#include "calls.h"

using namespace phantom;

API int cublasCreate_v2(Handle** handle) {
  *handle = new Handle;
  return 0;
}
API int cublasDestroy_v2(Handle* handle) {
  delete handle;
  return 0;
}
API int cublasGetVersion_v2(Handle*, int* version) {
  *version = PHANTOM_CUBLAS_VERSION;
  return 0;
}
API int cublasGetProperty(int which, int* value) {
  *value = which == 0 ? PHANTOM_CUBLAS_VERSION / 10000 : which == 1 ? PHANTOM_CUBLAS_VERSION / 100 % 100 : PHANTOM_CUBLAS_VERSION % 100;
  return 0;
}
API size_t cublasGetCudartVersion() { return PHANTOM_CUDA_VERSION; }
API const char* cublasGetStatusName(int status) { return status ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_STATUS_SUCCESS"; }
API const char* cublasGetStatusString(int status) { return status ? "the functionality requested is not supported" : "success"; }
API int cublasSetStream_v2(Handle* handle, Stream stream) {
  handle->stream = stream;
  return 0;
}
API int cublasGetStream_v2(Handle* handle, Stream* stream) {
  *stream = handle->stream;
  return 0;
}
API int cublasSetWorkspace_v2(Handle*, void*, size_t) { return 0; }
API int cublasSetMathMode(Handle* handle, int mode) {
  handle->math_mode = mode;
  return 0;
}
API int cublasGetMathMode(Handle* handle, int* mode) {
  *mode = handle->math_mode;
  return 0;
}
API int cublasSetPointerMode_v2(Handle* handle, int mode) {
  handle->pointer_mode = mode;
  return 0;
}
API int cublasGetPointerMode_v2(Handle* handle, int* mode) {
  *mode = handle->pointer_mode;
  return 0;
}
API int cublasSetAtomicsMode(Handle*, int) { return 0; }
API int cublasGetAtomicsMode(Handle*, int* mode) {
  *mode = 0;
  return 0;
}
API int cublasSetSmCountTarget(Handle* handle, int target) {
  handle->sm_target = target;
  return 0;
}
API int cublasGetSmCountTarget(Handle* handle, int* target) {
  *target = handle->sm_target;
  return 0;
}
