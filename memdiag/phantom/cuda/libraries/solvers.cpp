// libcusolver, libcufft, libcusparse: enough for optimizers and layers that decompose a matrix, transform or multiply a sparse one.
// Their workspaces are not known, and none is asked for: what they take on a device is missing from the trace.
#include <string.h>

#include <map>
#include <mutex>

#include "../core/values.h"
#include "calls.h"

using namespace phantom;

namespace {

template <class T>
int make(T** handle) {
  *handle = new T;
  return 0;
}
int set_stream(Handle* handle, Stream stream) {
  handle->stream = stream;
  return 0;
}

struct Fft {
  std::mutex mutex;
  std::map<int, Stream> plans;
};
Fft& fft() {
  static Fft* const all = new Fft;
  return *all;
}

}  // namespace

// ------------------------------------------------------------------------------------------------------------ cuSOLVER

API int cusolverDnCreate(Handle** handle) { return make(handle); }
API int cusolverDnDestroy(Handle* handle) {
  delete handle;
  return 0;
}
API int cusolverDnSetStream(Handle* handle, Stream stream) { return set_stream(handle, stream); }
API int cusolverDnSetDeterministicMode(Handle*, int) { return 0; }
API int cusolverDnCreateParams(Handle** params) { return make(params); }
API int cusolverDnDestroyParams(Handle* params) { return cusolverDnDestroy(params); }
API int cusolverDnCreateGesvdjInfo(Handle** info) { return make(info); }
API int cusolverDnDestroyGesvdjInfo(Handle* info) { return cusolverDnDestroy(info); }
API int cusolverDnCreateSyevjInfo(Handle** info) { return make(info); }
API int cusolverDnDestroySyevjInfo(Handle* info) { return cusolverDnDestroy(info); }
API int cusolverDnXgesvdjSetMaxSweeps(void*, int) { return 0; }
API int cusolverDnXgesvdjSetSortEig(void*, int) { return 0; }
API int cusolverDnXgesvdjSetTolerance(void*, double) { return 0; }

// The answer's place among the arguments, counted from 0; a size in elements (int), or for the functions with an X in bytes (size_t), on
// the device and on the host.
#define ELEMENTS(name, place)                        \
  API int name(PHANTOM_WORDS) {                      \
    const Word words[] = PHANTOM_WORD_LIST;          \
    *static_cast<int*>(pointer(words[place])) = 0;   \
    return 0;                                        \
  }
#define BOTH(name, place)                                   \
  API int name(PHANTOM_WORDS) {                             \
    const Word words[] = PHANTOM_WORD_LIST;                 \
    *static_cast<size_t*>(pointer(words[place])) = 0;       \
    *static_cast<size_t*>(pointer(words[(place) + 1])) = 0; \
    return 0;                                               \
  }
#define FOR_ALL(family, place)                                                                                      \
  ELEMENTS(cusolverDnS##family##_bufferSize, place) ELEMENTS(cusolverDnD##family##_bufferSize, place)               \
  ELEMENTS(cusolverDnC##family##_bufferSize, place) ELEMENTS(cusolverDnZ##family##_bufferSize, place)
#define FOR_REAL(family, place) ELEMENTS(cusolverDnS##family##_bufferSize, place) ELEMENTS(cusolverDnD##family##_bufferSize, place)
#define FOR_COMPLEX(family, place) ELEMENTS(cusolverDnC##family##_bufferSize, place) ELEMENTS(cusolverDnZ##family##_bufferSize, place)
FOR_ALL(potrf, 5)
FOR_ALL(getrf, 5)
FOR_ALL(geqrf, 5)
FOR_ALL(sytrf, 4)
FOR_ALL(gesvd, 3)
FOR_ALL(gesvdj, 12)
FOR_ALL(gesvdjBatched, 11)
FOR_ALL(gesvdaStridedBatched, 16)
FOR_REAL(orgqr, 7)
FOR_COMPLEX(ungqr, 7)
FOR_REAL(ormqr, 11)
FOR_COMPLEX(unmqr, 11)
FOR_REAL(syevd, 7)
FOR_COMPLEX(heevd, 7)
FOR_REAL(syevjBatched, 7)
FOR_COMPLEX(heevjBatched, 7)
BOTH(cusolverDnXpotrf_bufferSize, 8)
BOTH(cusolverDnXgeqrf_bufferSize, 10)
BOTH(cusolverDnXsyevd_bufferSize, 11)
BOTH(cusolverDnXsyevBatched_bufferSize, 11)
BOTH(cusolverDnXgeev_bufferSize, 17)
BOTH(cusolverDnXsytrs_bufferSize, 11)

// --------------------------------------------------------------------------------------------------------------- cuFFT

API int cufftCreate(int* plan) {
  Lock lock(fft().mutex);
  *plan = static_cast<int>(fft().plans.size()) + 1;
  fft().plans[*plan] = nullptr;
  return 0;
}
API int cufftDestroy(int) { return 0; }
API int cufftSetAutoAllocation(int, int) { return 0; }
API int cufftSetStream(int plan, Stream stream) {
  Lock lock(fft().mutex);
  fft().plans[plan] = stream;
  return 0;
}
API int cufftSetWorkArea(int, void*) { return 0; }
API int cufftXtMakePlanMany(int, int, void*, void*, int64_t, int64_t, int, void*, int64_t, int64_t, int, int64_t, size_t* bytes, int) {
  *bytes = 0;
  return 0;
}
API int cufftXtExec(int plan, void* from, void* to, int) {
  Stream stream;
  {
    Lock lock(fft().mutex);
    stream = fft().plans[plan];
  }
  const Word words[] = {number(from), number(to)};
  library_call(stream, words, 2);
  return 0;
}

// ------------------------------------------------------------------------------------------------------------ cuSPARSE

API int cusparseCreate(Handle** handle) { return make(handle); }
API int cusparseDestroy(Handle* handle) { return cusolverDnDestroy(handle); }
API int cusparseSetStream(Handle* handle, Stream stream) { return set_stream(handle, stream); }
API int cusparseSetPointerMode(Handle* handle, int mode) {
  handle->pointer_mode = mode;
  return 0;
}
API const char* cusparseGetErrorString(int status) { return status ? "operation not supported" : "success"; }

// A matrix or vector; of its description only where the values lie is kept.
struct Sparse : Handle {
  Word values = 0;
};
#define CREATED(name, place)              \
  API int name(PHANTOM_WORDS) {           \
    const Word words[] = PHANTOM_WORD_LIST; \
    auto* made = new Sparse;              \
    made->values = words[place];          \
    *static_cast<Sparse**>(pointer(a0)) = made; \
    return 0;                             \
  }
#define MULTIPLIED(name, place)                                                                 \
  API int name(PHANTOM_WORDS) {                                                                 \
    const Word words[] = PHANTOM_WORD_LIST;                                                     \
    library_call(static_cast<Handle*>(pointer(a0))->stream, &static_cast<Sparse*>(pointer(words[place]))->values, 1); \
    return 0;                                                                                   \
  }
#define DESTROYED(name) \
  API int name(Sparse* made) {   \
    delete made;                 \
    return 0;                    \
  }
#define ACCEPTED(name) \
  API int name(void*, ...) { return 0; }
#define SIZED(name, place)                             \
  API int name(PHANTOM_WORDS) {                        \
    const Word words[] = PHANTOM_WORD_LIST;            \
    *static_cast<size_t*>(pointer(words[place])) = 0;  \
    return 0;                                          \
  }
CREATED(cusparseCreateCsr, 6)
CREATED(cusparseCreateCoo, 6)
CREATED(cusparseCreateDnMat, 4)
CREATED(cusparseCreateDnVec, 2)
CREATED(cusparseCreateMatDescr, 0)
DESTROYED(cusparseDestroySpMat)
DESTROYED(cusparseDestroyDnMat)
DESTROYED(cusparseDestroyDnVec)
DESTROYED(cusparseDestroyMatDescr)
ACCEPTED(cusparseSetMatType)
ACCEPTED(cusparseSetMatFillMode)
ACCEPTED(cusparseSetMatDiagType)
ACCEPTED(cusparseSetMatIndexBase)
ACCEPTED(cusparseCsrSetPointers)
ACCEPTED(cusparseCsrSetStridedBatch)
ACCEPTED(cusparseDnMatSetStridedBatch)
ACCEPTED(cusparseSpMatSetAttribute)
SIZED(cusparseSpMM_bufferSize, 10)
SIZED(cusparseSpMV_bufferSize, 9)
SIZED(cusparseSDDMM_bufferSize, 10)
MULTIPLIED(cusparseSpMM, 7)
MULTIPLIED(cusparseSpMV, 6)
MULTIPLIED(cusparseSDDMM, 7)
ACCEPTED(cusparseSDDMM_preprocess)
ACCEPTED(cusparseXcoo2csr)
