// libcudart: graphs. A graph is the list of what was issued under capture; a replay does to values what the capture did.
#include "../core/errors.h"
#include "../core/memory.h"
#include "../core/refuse.h"
#include "../core/streams.h"

using namespace phantom;

namespace {

using Handle = std::shared_ptr<Graph>*;  // cudaGraph_t and cudaGraphExec_t

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
API int cudaGraphInstantiateWithFlags(Handle* executable, Handle graph, unsigned long long) {
  *executable = new std::shared_ptr<Graph>(*graph);
  return kSuccess;
}
API int cudaGraphInstantiate(Handle* executable, Handle graph, unsigned long long flags) {
  return cudaGraphInstantiateWithFlags(executable, graph, flags);
}
API int cudaGraphUpload(Handle, Stream) { return kSuccess; }
API int cudaGraphLaunch(Handle executable, Stream) {
  std::vector<std::function<void()>> steps;
  {
    Lock lock((*executable)->mutex);
    steps = (*executable)->steps;
  }
  for (const auto& step : steps) step();
  return kSuccess;
}
API int cudaGraphDestroy(Handle graph) {
  delete graph;
  return kSuccess;
}
API int cudaGraphExecDestroy(Handle executable) {
  delete executable;
  return kSuccess;
}
API int cudaGraphDebugDotPrint(Handle, const char*, unsigned) { return no_such("cudaGraphDebugDotPrint"); }
API int cudaStreamBeginCaptureToGraph(Stream, ...) { return no_such("cudaStreamBeginCaptureToGraph"); }
API int cudaGraphAddNode(void**, ...) { return no_such("cudaGraphAddNode"); }
API int cudaGraphConditionalHandleCreate(void*, ...) { return no_such("cudaGraphConditionalHandleCreate"); }
