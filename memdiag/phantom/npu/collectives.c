/* HCCL: communicators, and collectives of a group in which every rank has what this one has.
 *
 * So a gather holds this rank's part in every place, and a sum holds this rank's values: there is no other rank to ask. HCCL's own
 * buffers are device memory and are counted.
 */
#include "phantom.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEMORY_ERROR = 3, ROOT_INFO_BYTES = 4108 };

typedef struct {
  uint32_t ranks, rank, number;
  int device;
  uint64_t bytes;
} group_t;

static int create(uint32_t ranks, uint32_t rank, void **out) {
  static uint32_t count;
  int device = current_device();
  uint64_t bytes = settings()->hccl_buffers;
  if (!take_memory(device, bytes)) return MEMORY_ERROR;
  group_t *group = malloc(sizeof *group);
  *group = (group_t){ranks, rank, __sync_add_and_fetch(&count, 1), device, bytes};
  *out = group;
  return OK;
}

EXPORT int HcclGetRootInfo(void *info) {
  memset(info, 1, ROOT_INFO_BYTES);
  return OK;
}
EXPORT int HcclGetRootInfoScalable(void *info) { return HcclGetRootInfo(info); }
EXPORT int HcclCommInitRootInfo(uint32_t ranks, const void *root, uint32_t rank, void **out) {
  (void)root;
  return create(ranks, rank, out);
}
EXPORT int HcclCommInitRootInfoConfig(uint32_t ranks, const void *root, uint32_t rank, const void *options, void **out) {
  (void)root, (void)options;
  return create(ranks, rank, out);
}
EXPORT int HcclCommInitRootInfoScalable(uint32_t ranks, uint32_t roots, const void *root, uint32_t rank, uint32_t more,
                                        const void *options, void **out) {
  (void)roots, (void)root, (void)more, (void)options;
  return create(ranks, rank, out);
}
EXPORT int HcclCreateSubCommConfig(void **parent, uint32_t ranks, uint32_t *ids, uint64_t id, uint32_t rank, void *options, void **out) {
  (void)parent, (void)ids, (void)id, (void)options;
  return create(ranks, rank, out);
}
EXPORT int HcclCommDestroy(group_t *group) {
  if (group) give_memory(group->device, group->bytes);
  free(group);
  return OK;
}
EXPORT int HcclGetCommName(const group_t *group, char *name) {
  snprintf(name, 128, "phantom%u", group ? group->number : 0);
  return OK;
}
EXPORT int HcclGetCommAsyncError(void *group, int *error) {
  (void)group;
  *error = OK;
  return OK;
}
EXPORT const char *HcclGetErrorString(int code) { return code == MEMORY_ERROR ? "out of device memory" : "error of the phantom HCCL"; }
EXPORT int HcclGetRankSize(const group_t *group, uint32_t *ranks) {
  *ranks = group->ranks;
  return OK;
}
EXPORT int HcclGetRankId(const group_t *group, uint32_t *rank) {
  *rank = group->rank;
  return OK;
}
EXPORT uint32_t HcclGetCommConfigCapability(void) { return 0; /* none of the optional fields of a configuration is read */ }

/* ---- collectives */

static uint64_t bytes_of(uint64_t count, int type) {
  static const unsigned char sizes[] = {1, 2, 4, 2, 4, 8, 8, 1, 2, 4, 8, 2, 16, 0, 1, 1, 1, 1};
  return type >= 0 && type < (int)sizeof sizes ? count * sizes[type] : 0;
}

EXPORT int HcclAllReduce(void *send, void *receive, uint64_t count, int type, int how, void *group, void *stream) {
  (void)how, (void)group, (void)stream;
  return move_bytes(receive, send, bytes_of(count, type));
}
EXPORT int HcclReduce(void *send, void *receive, uint64_t count, int type, int how, uint32_t root, void *group, void *stream) {
  (void)root;
  return HcclAllReduce(send, receive, count, type, how, group, stream);
}
EXPORT int HcclAllGather(void *send, void *receive, uint64_t count, int type, const group_t *group, void *stream) {
  (void)stream;
  uint64_t bytes = bytes_of(count, type);
  for (uint64_t i = 0; i < group->ranks; i++) {
    int error = move_bytes((char *)receive + i * bytes, send, bytes);
    if (error) return error;
  }
  return OK;
}
EXPORT int HcclReduceScatter(void *send, void *receive, uint64_t count, int type, int how, const group_t *group, void *stream) {
  (void)how, (void)stream;
  uint64_t bytes = bytes_of(count, type);
  return move_bytes(receive, (char *)send + group->rank * bytes, bytes);
}
EXPORT int HcclScatter(void *send, void *receive, uint64_t count, int type, uint32_t root, const group_t *group, void *stream) {
  (void)stream;
  uint64_t bytes = bytes_of(count, type);
  if (group->rank != root || !send) return clear_bytes(receive, bytes);
  return move_bytes(receive, (char *)send + group->rank * bytes, bytes);
}
EXPORT int HcclAlltoAll(const void *send, uint64_t count, int type, void *receive, uint64_t receive_count, int receive_type,
                        const group_t *group, void *stream) {
  (void)receive_count, (void)receive_type, (void)stream;
  return move_bytes(receive, send, group->ranks * bytes_of(count, type));
}
EXPORT int HcclRecv(void *receive, uint64_t count, int type, uint32_t from, void *group, void *stream) {
  (void)from, (void)group, (void)stream;
  return clear_bytes(receive, bytes_of(count, type));
}
