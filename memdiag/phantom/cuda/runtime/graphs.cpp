// libcudart: graphs. A graph is the list of what was issued under capture; a replay does to values what the capture did.
//
// The driver keeps an executable graph in device memory, outside PyTorch's pool. NVIDIA publishes no size. Measured by others: about 5 KiB
// for each node of a decoder's graph of about 400 nodes, and 2 KiB in graphs of up to 50,000 (github.com/pegainfer-project/pegainfer/issues/780,
// RTX 5070 Ti, 2026); 64 KiB with an old driver (470, forums.developer.nvidia.com/t/244901). Here it is 5 KiB unless the user says otherwise.
#include "../core/errors.h"
#include "../core/memory.h"
#include "../core/refuse.h"
#include "../core/scratch.h"
#include "../core/streams.h"

using namespace phantom;

namespace {

using Handle = std::shared_ptr<Graph>*;  // cudaGraph_t

struct Executable {  // cudaGraphExec_t
  std::shared_ptr<Graph> graph;
  int device;
  uint64_t bytes;
};

int no_such(const char* function) { return remember(refuse("libcudart", function, kNotSupported)); }

int begin(Stream stream) {
  Streams& every = streams();
  Lock lock(every.mutex);
  StreamState& own = every.state(stream);
  if (own.graph) return remember(kIllegalState);
  own.graph = std::make_shared<Graph>();
  own.capture = ++every.last_capture;
  own.is_origin = true;
  every.num_capturing++;
  return kSuccess;
}

int info(Stream stream, int* status, unsigned long long* id, Handle* graph, const void*** dependencies, size_t* count) {
  // The handle is only good for asking and for comparing: it belongs to the capture.
  static thread_local std::shared_ptr<Graph> t_shown;
  *status = kCaptureNone;
  if (dependencies) *dependencies = nullptr;
  if (count) *count = 0;
  Streams& every = streams();
  if (!every.num_capturing.load(std::memory_order_acquire)) return kSuccess;
  Lock lock(every.mutex);
  StreamState& own = every.state(stream);
  if (!own.graph) return kSuccess;
  *status = kCaptureActive;
  if (id) *id = own.capture;
  if (graph) {
    t_shown = own.graph;
    *graph = &t_shown;
  }
  return kSuccess;
}

}  // namespace

API int cudaThreadExchangeStreamCaptureMode(int*) { return kSuccess; }
API int cudaStreamBeginCapture(Stream stream, int) { return begin(stream); }
API int cudaStreamIsCapturing(Stream stream, int* status) {
  *status = is_capturing(stream) ? kCaptureActive : kCaptureNone;
  return kSuccess;
}
API int cudaStreamEndCapture(Stream stream, Handle* graph) {
  Streams& every = streams();
  Lock lock(every.mutex);
  StreamState& own = every.state(stream);
  if (!own.graph || !own.is_origin) return remember(kIllegalState);
  *graph = new std::shared_ptr<Graph>(own.graph);
  for (StreamState& other : every.all) {
    if (!other.graph || other.capture != own.capture || &other == &own) continue;
    other.graph.reset();
    other.capture = 0;
  }
  own.graph.reset();
  own.is_origin = false;
  every.num_capturing--;
  return kSuccess;
}
API int cudaStreamGetCaptureInfo_v2(Stream stream, int* status, unsigned long long* id, Handle* graph, const void*** dependencies, size_t* count) {
  return info(stream, status, id, graph, dependencies, count);
}
API int cudaStreamGetCaptureInfo_v3(
    Stream stream, int* status, unsigned long long* id, Handle* graph, const void*** dependencies, const void** edges, size_t* count) {
  if (edges) *edges = nullptr;
  return info(stream, status, id, graph, dependencies, count);
}
#if PHANTOM_CUDA_13
API int cudaStreamGetCaptureInfo(
    Stream stream, int* status, unsigned long long* id, Handle* graph, const void*** dependencies, const void** edges, size_t* count) {
  return cudaStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, edges, count);
}
#else
API int cudaStreamGetCaptureInfo(Stream stream, int* status, unsigned long long* id) {
  return info(stream, status, id, nullptr, nullptr, nullptr);
}
#endif
// Nodes have no dependencies here: the order in which things were issued is the order in which they are done again.
API int cudaStreamUpdateCaptureDependencies(Stream, ...) { return kSuccess; }
API int cudaStreamUpdateCaptureDependencies_v2(Stream, ...) { return kSuccess; }
#if PHANTOM_CUDA_13
API int cudaGraphNodeGetDependencies(void*, void**, void*, size_t* count) {
#else
API int cudaGraphNodeGetDependencies(void*, void**, size_t* count) {
#endif
  *count = 0;
  return kSuccess;
}

API int cudaGraphCreate(Handle* graph, unsigned) {
  *graph = new std::shared_ptr<Graph>(std::make_shared<Graph>());
  return kSuccess;
}
API int cudaGraphGetNodes(Handle graph, void**, size_t* count) {
  Lock lock((*graph)->mutex);
  *count = static_cast<size_t>((*graph)->num_nodes);
  return kSuccess;
}
API int cudaGraphInstantiateWithFlags(Executable** executable, Handle graph, unsigned long long) {
  uint64_t num_nodes;
  {
    Lock lock((*graph)->mutex);
    num_nodes = static_cast<uint64_t>((*graph)->num_nodes);
  }
  auto* made = new Executable{*graph, current_device(), num_nodes * config().graph_node_bytes};
  Memory& all = memory();
  Lock lock(all.mutex);
  if (!all.resize_graphs(made->device, all.devices[made->device].graph_bytes + made->bytes)) {
    delete made;
    return remember(kMemoryAllocation);
  }
  note_graph(num_nodes, all.devices[made->device].graph_bytes);
  *executable = made;
  return kSuccess;
}
API int cudaGraphInstantiate(Executable** executable, Handle graph, unsigned long long flags) {
  return cudaGraphInstantiateWithFlags(executable, graph, flags);
}
API int cudaGraphUpload(Executable*, Stream) { return kSuccess; }
API int cudaGraphLaunch(Executable* executable, Stream) {
  std::vector<std::function<void()>> steps;
  {
    Lock lock(executable->graph->mutex);
    steps = executable->graph->steps;
  }
  for (const auto& step : steps) step();
  return kSuccess;
}
API int cudaGraphDestroy(Handle graph) {
  delete graph;
  return kSuccess;
}
API int cudaGraphExecDestroy(Executable* executable) {
  Memory& all = memory();
  Lock lock(all.mutex);
  all.resize_graphs(executable->device, all.devices[executable->device].graph_bytes - executable->bytes);
  delete executable;
  return kSuccess;
}
API int cudaGraphDebugDotPrint(Handle, const char*, unsigned) { return no_such("cudaGraphDebugDotPrint"); }
API int cudaStreamBeginCaptureToGraph(Stream, ...) { return no_such("cudaStreamBeginCaptureToGraph"); }
API int cudaGraphAddNode(void**, ...) { return no_such("cudaGraphAddNode"); }
API int cudaGraphConditionalHandleCreate(void*, ...) { return no_such("cudaGraphConditionalHandleCreate"); }
