/* Descriptions of tensors and scalars that host code makes for operators. Some are read back: what an operator changed, how large an
 * output whose size depends on data became (here: as large as it may be).
 *
 * They live in one area, so that any word can be asked whether it is one of them. */
#define _GNU_SOURCE
#include "phantom.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { TENSOR = 0x74656e73, LIST, NUMBERS, OTHER, FREED };

typedef struct object {
  int kind, number; /* how many handles or numbers a list has */
  union {
    tensor_t tensor;
    scalar_t scalar;
    const void **handles;
    int64_t *numbers;
    struct object *next; /* free */
  };
} object_t;

enum { MOST = 1 << 22 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static object_t *area, *free_ones;
static size_t used;

static object_t *make(int kind) {
  pthread_mutex_lock(&lock);
  if (!area) {
    void *got = mmap(NULL, MOST * sizeof *area, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    area = got == MAP_FAILED ? NULL : got;
  }
  object_t *object = free_ones;
  if (object) free_ones = object->next;
  else if (area && used < MOST) object = &area[used++];
  pthread_mutex_unlock(&lock);
  if (!object) { /* millions at once: no program has them, unless it never gives any back */
    dprintf(2, "memdiag: the phantom NPU has no room for more descriptions of tensors (aclCreateTensor, libopapi)\n");
    abort();
  }
  memset(object, 0, sizeof *object);
  object->kind = kind;
  return object;
}

static int drop(void *handle) {
  object_t *object = handle;
  if (!object || object->kind == FREED) return OK;
  if (object->kind == LIST || object->kind == NUMBERS) free(object->handles);
  pthread_mutex_lock(&lock);
  object->kind = FREED;
  object->next = free_ones;
  free_ones = object;
  pthread_mutex_unlock(&lock);
  return OK;
}

static const object_t *as_object(const void *handle) {
  uint64_t offset = (uint64_t)handle - (uint64_t)area;
  return area && (uint64_t)handle >= (uint64_t)area && offset < used * sizeof *area && !(offset % sizeof *area) ? handle : NULL;
}

const tensor_t *as_tensor(const void *handle) {
  const object_t *object = as_object(handle);
  return object && object->kind == TENSOR ? &object->tensor : NULL;
}

const tensor_t *last_tensor_of(const void *handle, uint64_t index) {
  const object_t *object = as_object(handle);
  return object && object->kind == LIST && index < (uint64_t)object->number ? as_tensor(object->handles[index]) : NULL;
}

int type_size(int type) {
  static const signed char sizes[] = {4, 2, 1, 4, 1, 0, 2, 2, 4, 8, 8, 8, 1, 0, 0, 0, 8, 16};
  if (type >= 0 && type < (int)sizeof sizes) return sizes[type];
  return type == 27 ? 2 : type == 33 ? 4 : type >= 34 && type <= 37 ? 1 : 0; /* bfloat16, complex32, float8 */
}

EXPORT void *aclCreateTensor(const int64_t *shape, uint64_t dims, int type, const int64_t *strides, int64_t offset, int format,
                             const int64_t *storage_shape, uint64_t storage_dims, void *data) {
  (void)format, (void)storage_shape, (void)storage_dims;
  object_t *object = make(TENSOR);
  tensor_t *tensor = &object->tensor;
  *tensor = (tensor_t){.dims = dims > 32 ? 32 : dims, .type = type, .offset = offset, .data = data};
  for (uint64_t i = 0; i < tensor->dims; i++) {
    tensor->dim[i] = (uint64_t)shape[i];
    tensor->stride[i] = strides ? strides[i] : 0;
  }
  note_type(data, type);
  return object;
}
EXPORT int aclGetViewShape(const void *handle, int64_t **shape, uint64_t *dims) {
  const tensor_t *tensor = as_tensor(handle);
  if (!tensor) return BAD_ARGUMENT;
  *shape = malloc(sizeof **shape * (tensor->dims + 1)); /* the caller frees it */
  memcpy(*shape, tensor->dim, sizeof **shape * tensor->dims);
  if (tensor->dims && told_count() >= 0) (*shape)[tensor->found] = told_count();
  else if (tensor->dims && tensor->num_found) (*shape)[tensor->found] = (int64_t)tensor->num_found - 1;
  else if (tensor->dims) {
    note_assumed_size();
    (*shape)[tensor->found] = (int64_t)((double)(*shape)[tensor->found] * settings()->selected);
  }
  *dims = tensor->dims;
  return OK;
}
EXPORT void *aclCreateTensorList(const void *const *tensors, uint64_t count) {
  object_t *object = make(LIST);
  object->number = (int)count;
  object->handles = malloc((count + 1) * sizeof *object->handles);
  memcpy(object->handles, tensors, count * sizeof *object->handles);
  return object;
}
EXPORT int aclDestroyTensor(void *handle) { return drop(handle); }
EXPORT int aclDestroyTensorList(void *handle) {
  const object_t *object = as_object(handle);
  for (int i = 0; object && object->kind == LIST && i < object->number; i++) drop((void *)object->handles[i]); /* they are its own */
  return drop(handle);
}

EXPORT void *aclCreateScalar(const void *value, int type) {
  object_t *object = make(OTHER);
  int size = type_size(type);
  object->scalar.type = type;
  if (value && size) memcpy(object->scalar.value, value, (size_t)size);
  return &object->scalar;
}
EXPORT int aclDestroyScalar(void *scalar) {
  return drop(scalar ? (char *)scalar - offsetof(object_t, scalar) : NULL);
}

EXPORT void *aclCreateScalarList(const void *const *scalars, uint64_t count) { return aclCreateTensorList(scalars, count); }
EXPORT int aclDestroyScalarList(void *handle) {
  const object_t *object = as_object(handle);
  for (int i = 0; object && object->kind == LIST && i < object->number; i++) aclDestroyScalar((void *)object->handles[i]);
  return drop(handle);
}

EXPORT void *aclCreateIntArray(const int64_t *numbers, uint64_t count) {
  object_t *object = make(NUMBERS);
  object->number = (int)count;
  object->numbers = malloc((count + 1) * sizeof *numbers);
  memcpy(object->numbers, numbers, count * sizeof *numbers);
  return object;
}
const int64_t *numbers_of(const void *handle, uint64_t *count) {
  const object_t *object = as_object(handle);
  int is_list = object && object->kind == NUMBERS;
  *count = is_list ? (uint64_t)object->number : 0;
  return is_list ? object->numbers : NULL;
}

/* Other lists of numbers are passed on and never looked at. */
EXPORT void *aclCreateFloatArray(void) { return make(OTHER); }
EXPORT void *aclCreateBoolArray(void) { return make(OTHER); }
EXPORT int aclDestroyIntArray(void *handle) { return drop(handle); }
EXPORT int aclDestroyFloatArray(void *handle) { return drop(handle); }
EXPORT int aclDestroyBoolArray(void *handle) { return drop(handle); }

/* ---- descriptions of the older interface (aclop…), with the same shape */

EXPORT void *aclCreateTensorDesc(int type, int dims, const int64_t *shape, int format) {
  object_t *object = make(OTHER);
  object->number = format;
  object->tensor.type = type;
  object->tensor.dims = dims > 32 || dims < 0 ? 0 : (uint64_t)dims;
  if (object->tensor.dims) memcpy(object->tensor.dim, shape, sizeof *shape * object->tensor.dims);
  return object;
}
EXPORT void aclDestroyTensorDesc(void *handle) { drop(handle); }
EXPORT size_t aclGetTensorDescNumDims(const object_t *object) { return object ? object->tensor.dims : 0; }
EXPORT int aclGetTensorDescDimV2(const object_t *object, size_t index, int64_t *size) {
  *size = (int64_t)object->tensor.dim[index];
  return OK;
}
EXPORT int aclGetTensorDescFormat(const object_t *object) { return object->number; }
EXPORT int aclGetTensorDescType(const object_t *object) { return object->tensor.type; }
EXPORT void *aclCreateDataBuffer(void *data, size_t size) {
  (void)data, (void)size;
  return make(OTHER);
}
EXPORT int aclDestroyDataBuffer(void *handle) { return drop(handle); }
EXPORT void *aclopCreateAttr(void) { return make(OTHER); }
EXPORT void aclopDestroyAttr(void *handle) { drop(handle); }
