// libnccl: communicators of which only this rank exists.
//
// The others are taken to hold the same values as this one: what is known before a collective is known after it (sums are multiplied),
// and what was not stays unknown. Right where ranks do the same to the same data, as in most training; wrong where they differ, and
// then the values are: never the sizes, which each rank works out before.
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "../core/scratch.h"
#include "../core/streams.h"
#include "../core/values.h"
#include "../core/watchdog.h"
#include "calls.h"

using namespace phantom;

namespace {

struct Communicator {
  int num_ranks, rank, device;  // num_ranks 0: split off, and nobody said how many there are
  void* memory;
};
struct UniqueId { char bytes[128]; };

enum : int { kSum = 0, kProduct = 1, kLast = 4, kUnhandledCudaError = 1, kInternalError = 3 };
constexpr uint64_t kSmall = 64 << 10;  // sums of more are not worked out
constexpr size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
constexpr int kInt32 = 2, kInt64 = 4, kFloat = 7, kDouble = 8;

uint64_t size_of(size_t count, int type) { return count * (type >= 0 && type < 12 ? kSizes[type] : 1); }

// Device memory of a communicator, as measured on an A100: 544 MiB with two ranks, 688 MiB with more (github.com/NVIDIA/nccl/issues/964).
// Each channel has buffers for a neighbour in the ring and one in the tree: NCCL_BUFFSIZE, and those of the protocols LL and LL128, in
// pages of 2 MiB (10 MiB, as github.com/NVIDIA/nccl/issues/1685 lists them). A third rank adds a neighbour, with the protocols' only.
uint64_t memory_of(int num_ranks) {
  if (config().is_nccl_given) return config().nccl_bytes;
  if (num_ranks == 1) return 0;
  constexpr uint64_t kProtocols = (512 << 10) + 120 * 640 * 8 * 8, kShared = 64 << 20;
  uint64_t channels = static_cast<uint64_t>(config().nccl_channels), bytes = environment_bytes("NCCL_BUFFSIZE", 4 << 20);
  for (const char* name : {"NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS"}) channels = std::min(channels, environment_bytes(name, channels));
  uint64_t third = num_ranks == 2 ? 0 : round_up(kProtocols, kPage);
  return channels * (2 * round_up(bytes + kProtocols, kPage) + third) + kShared;
}

std::atomic<const char*> last_error{""};

int make(Communicator** result, int num_ranks, int rank) {
  uint64_t bytes = memory_of(num_ranks);
  void* memory = nullptr;
  if (bytes && allocate(&memory, bytes, Kind::kMalloc) != kSuccess) {
    last_error = "Cuda failure 2 'out of memory'";  // the words of NCCL, which PyTorch puts into its exception
    return kUnhandledCudaError;
  }
  note_communicator(bytes);
  *result = new Communicator{num_ranks, rank, current_device(), memory};
  return kSuccess;
}

template <class T>
void multiply(std::vector<char>& bytes, int by) {
  for (size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
    T value;
    memcpy(&value, &bytes[i], sizeof value);
    value = static_cast<T>(value * by);
    memcpy(&bytes[i], &value, sizeof value);
  }
}

// The result of a reduction over ranks that all have what is at `from`.
void reduce(uint64_t to, uint64_t from, uint64_t bytes, int type, int operation, int num_ranks) {
  bool is_changed = operation == kSum || operation == kProduct || operation > kLast;
  if (!is_changed) return copy_device(to, from, bytes);
  if (operation != kSum || bytes > kSmall || !num_ranks || !is_known(from, bytes)) return forget(to, bytes);
  std::vector<char> values(bytes);
  read_known(values.data(), from, bytes);
  if (type == kInt32) multiply<int>(values, num_ranks);
  else if (type == kInt64) multiply<int64_t>(values, num_ranks);
  else if (type == kFloat) multiply<float>(values, num_ranks);
  else if (type == kDouble) multiply<double>(values, num_ranks);
  else return forget(to, bytes);
  write_host(to, values.data(), bytes);
}

// `bytes` of each of the ranks, one after the other.
void gather(uint64_t to, uint64_t from, uint64_t bytes, const Communicator& group) {
  if (!group.num_ranks) return touch(to);
  uint64_t num_ranks = static_cast<uint64_t>(group.num_ranks), own = to + static_cast<uint64_t>(group.rank) * bytes;
  copy_device(own, from, bytes);
  bool is_worth_it = is_known(own, bytes);
  for (uint64_t rank = 0; rank < num_ranks; rank++) {
    uint64_t other = to + rank * bytes;
    if (other == own) continue;
    if (is_worth_it) copy_device(other, own, bytes);
    else forget(other, bytes);
  }
}

template <class Step>
int collective(Stream stream, Step step) {
  note_collective(stream);
  perform(stream, step);
  return kSuccess;
}

// One ncclSend or ncclRecv between ncclGroupStart and ncclGroupEnd.
struct Transfer {
  uint64_t address, bytes;
  bool is_to_self, is_send;
  const Communicator* group;
  Stream stream;
};
thread_local int t_group_depth = 0;
thread_local std::vector<Transfer> t_transfers;

// PyTorch makes an all-to-all of sends and receives, one pair per rank. Each rank sends this one what this one sends itself.
void end_group() {
  for (const Transfer& received : t_transfers) {
    if (received.is_send) continue;
    const Transfer* own = nullptr;
    for (const Transfer& sent : t_transfers)
      if (sent.is_send && sent.is_to_self && sent.group == received.group && sent.bytes == received.bytes) own = &sent;
    uint64_t to = received.address, bytes = received.bytes, from = own ? own->address : 0;
    collective(received.stream, [=] {
      if (from) copy_device(to, from, bytes);
      else forget(to, bytes);
    });
  }
  t_transfers.clear();
}

}  // namespace

API int ncclGetVersion(int* version) {
  *version = PHANTOM_NCCL_VERSION;
  return kSuccess;
}
API int ncclGetUniqueId(UniqueId* id) {
  memset(id, 7, sizeof *id);
  return kSuccess;
}
API const char* ncclGetErrorString(int error) { return error ? "unhandled cuda error" : "no error"; }
API const char* ncclGetLastError(Communicator*) { return last_error; }
API void ncclResetDebugInit() {}

API int ncclCommInitRank(Communicator** result, int num_ranks, UniqueId, int rank) { return make(result, num_ranks, rank); }
API int ncclCommInitRankConfig(Communicator** result, int num_ranks, UniqueId, int rank, void*) { return make(result, num_ranks, rank); }
API int ncclCommInitRankScalable(Communicator** result, int num_ranks, int rank, int, UniqueId*, void*) { return make(result, num_ranks, rank); }
API int ncclCommInitAll(Communicator** results, int count, const int*) {
  for (int i = 0; i < count; i++) make(results + i, count, i);
  return kSuccess;
}
API int ncclCommSplit(Communicator*, int color, int key, Communicator** result, void*) {
  if (color >= 0) return make(result, 0, key);
  *result = nullptr;
  return kSuccess;
}
API int ncclCommShrink(Communicator* from, int*, int count, Communicator** result, void*, int) {
  return make(result, from->num_ranks - count, from->rank);
}
API int ncclCommDestroy(Communicator* group) {
  release(group->memory);
  delete group;
  return kSuccess;
}
API int ncclCommAbort(Communicator* group) { return ncclCommDestroy(group); }
API int ncclCommFinalize(Communicator*) { return kSuccess; }
API int ncclCommCount(const Communicator* group, int* count) {
  *count = group->num_ranks;
  return kSuccess;
}
API int ncclCommUserRank(const Communicator* group, int* rank) {
  *rank = group->rank;
  return kSuccess;
}
API int ncclCommCuDevice(const Communicator* group, int* device) {
  *device = group->device;
  return kSuccess;
}
API int ncclCommGetAsyncError(Communicator*, int* error) {
  *error = kSuccess;
  return kSuccess;
}
API int ncclCommSuspend(Communicator*, int) { return kSuccess; }
API int ncclCommResume(Communicator*) { return kSuccess; }
API int ncclMemAlloc(void** result, size_t bytes) { return allocate(result, bytes, Kind::kMalloc) ? 1 : 0; }
API int ncclMemFree(void* address) { return release(address) ? 1 : 0; }
API int ncclCommRegister(const Communicator*, void* address, size_t, void** handle) {
  *handle = address;
  return kSuccess;
}
API int ncclCommDeregister(const Communicator*, void*) { return kSuccess; }
API int ncclCommWindowRegister(Communicator*, void* address, size_t, void** handle, int) {
  *handle = address;
  return kSuccess;
}
API int ncclCommWindowDeregister(Communicator*, void*) { return kSuccess; }
API int ncclRedOpCreatePreMulSum(int* operation, void*, int, int, Communicator*) {
  *operation = kLast + 1;
  return kSuccess;
}
API int ncclRedOpDestroy(int, Communicator*) { return kSuccess; }
API int ncclGroupStart() {
  t_group_depth++;
  return kSuccess;
}
API int ncclGroupEnd() {
  if (t_group_depth > 0 && --t_group_depth == 0) end_group();
  return kSuccess;
}
API int ncclGroupSimulateEnd(void*) { return kSuccess; }

API int ncclAllReduce(const void* from, void* to, size_t count, int type, int operation, Communicator* group, Stream stream) {
  int num_ranks = group->num_ranks;
  return collective(stream, [=] { reduce(number(to), number(from), size_of(count, type), type, operation, num_ranks); });
}
API int ncclReduce(const void* from, void* to, size_t count, int type, int operation, int root, Communicator* group, Stream stream) {
  if (group->rank != root) return collective(stream, [] {});
  return ncclAllReduce(from, to, count, type, operation, group, stream);
}
API int ncclReduceScatter(const void* from, void* to, size_t count, int type, int operation, Communicator* group, Stream stream) {
  int num_ranks = group->num_ranks;
  uint64_t bytes = size_of(count, type), own = number(from) + static_cast<uint64_t>(group->rank) * bytes;
  return collective(stream, [=] { reduce(number(to), own, bytes, type, operation, num_ranks); });
}
API int ncclBroadcast(const void* from, void* to, size_t count, int type, int root, Communicator* group, Stream stream) {
  // who is not the root has its own values at `to`, which the root's are taken to be like
  bool is_root = group->rank == root;
  return collective(stream, [=] {
    if (is_root && from != to) copy_device(number(to), number(from), size_of(count, type));
  });
}
API int ncclBcast(void* at, size_t count, int type, int root, Communicator* group, Stream stream) {
  return ncclBroadcast(at, at, count, type, root, group, stream);
}
API int ncclAllGather(const void* from, void* to, size_t count, int type, Communicator* group, Stream stream) {
  Communicator own = *group;
  return collective(stream, [=] { gather(number(to), number(from), size_of(count, type), own); });
}
API int ncclGather(const void* from, void* to, size_t count, int type, int root, Communicator* group, Stream stream) {
  if (group->rank != root) return collective(stream, [] {});
  return ncclAllGather(from, to, count, type, group, stream);
}
API int ncclScatter(const void* from, void* to, size_t count, int type, int root, Communicator* group, Stream stream) {
  uint64_t bytes = size_of(count, type), own = number(from) + static_cast<uint64_t>(group->rank) * bytes;
  bool is_root = group->rank == root;
  return collective(stream, [=] {
    if (is_root) copy_device(number(to), own, bytes);
    else forget(number(to), bytes);
  });
}
API int ncclAlltoAll(const void* from, void* to, size_t count, int type, Communicator* group, Stream stream) {
  // each rank sends everyone the piece that it sends me: mine for myself is what all have for me
  Communicator own = *group;
  uint64_t bytes = size_of(count, type);
  return collective(stream, [=] { gather(number(to), number(from) + static_cast<uint64_t>(own.rank) * bytes, bytes, own); });
}
API int ncclSend(const void* from, size_t count, int type, int peer, Communicator* group, Stream stream) {
  if (t_group_depth) t_transfers.push_back({number(from), size_of(count, type), peer == group->rank, true, group, stream});
  return collective(stream, [] {});
}
API int ncclRecv(void* to, size_t count, int type, int peer, Communicator* group, Stream stream) {
  if (t_group_depth) {
    t_transfers.push_back({number(to), size_of(count, type), peer == group->rank, false, group, stream});
    return kSuccess;
  }
  return collective(stream, [=] { forget(number(to), size_of(count, type)); });
}
