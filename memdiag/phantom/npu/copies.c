/* Copies between host and device, done at once: a stream of a phantom has nothing to wait for. */
#include "phantom.h"

static int copy(void *to, size_t room, const void *from, size_t bytes) {
  return bytes > room ? BAD_ARGUMENT : move_bytes(to, from, bytes);
}

EXPORT int aclrtMemcpy(void *to, size_t room, const void *from, size_t bytes, int kind) {
  (void)kind;
  return copy(to, room, from, bytes);
}
EXPORT int aclrtMemcpyAsync(void *to, size_t room, const void *from, size_t bytes, int kind, void *stream) {
  (void)kind, (void)stream;
  return copy(to, room, from, bytes);
}
EXPORT int aclrtMemcpyAsyncWithCondition(void *to, size_t room, const void *from, size_t bytes, int kind, void *stream) {
  (void)kind, (void)stream;
  return copy(to, room, from, bytes);
}

EXPORT int aclrtMemcpyBatch(void **to, size_t *room, void **from, size_t *bytes, size_t count, void *attributes, size_t *indices,
                            size_t num_attributes, size_t *failed) {
  (void)attributes, (void)indices, (void)num_attributes;
  for (size_t i = 0; i < count; i++) {
    int error = copy(to[i], room[i], from[i], bytes[i]);
    if (!error) continue;
    if (failed) *failed = i;
    return error;
  }
  return OK;
}
EXPORT int aclrtMemcpyBatchAsync(void **to, size_t *room, void **from, size_t *bytes, size_t count, void *attributes, size_t *indices,
                                 size_t num_attributes, size_t *failed, void *stream) {
  (void)stream;
  return aclrtMemcpyBatch(to, room, from, bytes, count, attributes, indices, num_attributes, failed);
}

EXPORT int aclrtMemset(void *at, size_t room, int32_t value, size_t bytes) {
  unsigned char byte = (unsigned char)value;
  return bytes > room ? BAD_ARGUMENT : fill_bytes(at, &byte, 1, bytes);
}
EXPORT int aclrtMemsetAsync(void *at, size_t room, int32_t value, size_t bytes, void *stream) {
  (void)stream;
  return aclrtMemset(at, room, value, bytes);
}
