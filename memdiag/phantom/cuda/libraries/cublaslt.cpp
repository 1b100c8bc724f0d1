// libcublasLt: every matrix product is offered one algorithm that wants no workspace. PyTorch hands over its own workspace before it
// knows, so nothing about memory depends on the answer.
#include <string.h>

#include "calls.h"

using namespace phantom;

namespace {

struct HeuristicResult {  // cublasLtMatmulHeuristicResult_t
  uint64_t algorithm[8];
  size_t workspace_bytes;
  int status;
  float waves;
  int reserved[4];
};

int make(void** result) {
  *result = new uint64_t[8]();
  return 0;
}
int unmake(void* made) {
  delete[] static_cast<uint64_t*>(made);
  return 0;
}
int initialise(void* place, size_t bytes) {
  memset(place, 0, bytes);
  return 0;
}

}  // namespace

API int cublasLtCreate(Handle** handle) {
  *handle = new Handle;
  return 0;
}
API int cublasLtDestroy(Handle* handle) {
  delete handle;
  return 0;
}
API size_t cublasLtGetVersion() { return PHANTOM_CUBLAS_VERSION; }
API size_t cublasLtGetCudartVersion() { return PHANTOM_CUDA_VERSION; }
API const char* cublasLtGetStatusString(int status) { return status ? "not supported" : "success"; }
API int cublasLtMatmulDescCreate(void** made, int, int) { return make(made); }
API int cublasLtMatmulDescDestroy(void* made) { return unmake(made); }
API int cublasLtMatmulDescInit_internal(void* place, size_t bytes, int, int) { return initialise(place, bytes); }
API int cublasLtMatmulDescSetAttribute(void*, int, const void*, size_t) { return 0; }
API int cublasLtMatmulPreferenceCreate(void** made) { return make(made); }
API int cublasLtMatmulPreferenceDestroy(void* made) { return unmake(made); }
API int cublasLtMatmulPreferenceInit_internal(void* place, size_t bytes) { return initialise(place, bytes); }
API int cublasLtMatmulPreferenceSetAttribute(void*, int, const void*, size_t) { return 0; }
API int cublasLtMatrixLayoutCreate(void** made, int, uint64_t, uint64_t, int64_t) { return make(made); }
API int cublasLtMatrixLayoutDestroy(void* made) { return unmake(made); }
API int cublasLtMatrixLayoutInit_internal(void* place, size_t bytes, int, uint64_t, uint64_t, int64_t) { return initialise(place, bytes); }
API int cublasLtMatrixLayoutSetAttribute(void*, int, const void*, size_t) { return 0; }
API int cublasLtMatrixTransformDescCreate(void** made, int) { return make(made); }
API int cublasLtMatrixTransformDescDestroy(void* made) { return unmake(made); }
API int cublasLtMatrixTransformDescSetAttribute(void*, int, const void*, size_t) { return 0; }
API int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int, HeuristicResult* results, int* count) {
  memset(results, 0, sizeof *results);
  *count = 1;
  return 0;
}
// The products take the stream themselves, last; handle, description, alpha, A, Adesc, B, Bdesc, beta, C, Cdesc, D, …
API int cublasLtMatmul(void*, void*, const void*, const void*, void*, const void*, void*, const void*, const void*, void*, void* d, void*, const void*,
                       void* workspace, size_t, Stream stream) {
  const Word written[] = {number(d), number(workspace)};
  library_call(stream, written, 2);
  return 0;
}
API int cublasLtMatrixTransform(void*, void*, const void*, const void*, void*, const void*, const void*, void*, void* c, void*, Stream stream) {
  const Word written[] = {number(c)};
  library_call(stream, written, 1);
  return 0;
}
