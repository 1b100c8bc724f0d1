// libcudart: streams and events.
#include "../core/streams.h"

#include "../core/calls.h"
#include "../core/errors.h"
#include "../core/memory.h"
#include "../core/refuse.h"
#include "../core/watchdog.h"

using namespace phantom;

namespace {

EventState& state_of(Event event) { return *reinterpret_cast<EventState*>(event); }

StreamState copy_of(Stream stream) {
  Lock lock(streams().mutex);
  return streams().state(stream);
}

}  // namespace

API int cudaStreamCreateWithPriority(Stream* result, unsigned flags, int priority) {
  *result = make_stream(flags, priority);
  return kSuccess;
}
API int cudaStreamCreateWithFlags(Stream* result, unsigned flags) { return cudaStreamCreateWithPriority(result, flags, 0); }
API int cudaStreamCreate(Stream* result) { return cudaStreamCreateWithPriority(result, 0, 0); }
API int cudaStreamDestroy(Stream) { return kSuccess; }  // its number is not used again: events may still speak of it
API int cudaStreamGetPriority(Stream stream, int* priority) {
  *priority = copy_of(stream).priority;
  return kSuccess;
}
API int cudaStreamGetFlags(Stream stream, unsigned* flags) {
  *flags = copy_of(stream).flags;
  return kSuccess;
}
API int cudaStreamGetDevice(Stream stream, int* device) {
  *device = copy_of(stream).device;
  return kSuccess;
}
API int cudaStreamGetId(Stream stream, unsigned long long* id) {
  *id = number(stream);
  return kSuccess;
}
API int cudaStreamQuery(Stream stream) {
  StreamState state = copy_of(stream);
  return config().events < 0 && state.num_done < state.num_issued ? kNotReady : kSuccess;
}
API int cudaStreamSynchronize(Stream stream) {
  complete(stream);
  Lock lock(memory().mutex);
  note_call(Call::kStreamSync, current_device(), number(stream), 0, -1);
  return kSuccess;
}
API int cudaStreamWaitEvent(Stream stream, Event event, unsigned) {
  wait_for(stream, event);
  return kSuccess;
}
API int cudaStreamAddCallback(Stream stream, void (*callback)(Stream, int, void*), void* data, unsigned) {
  callback(stream, kSuccess, data);
  return kSuccess;
}
API int cudaLaunchHostFunc(Stream stream, void (*callback)(void*), void* data) {
  if (is_capturing(stream)) perform(stream, [=] { callback(data); });
  else callback(data);
  return kSuccess;
}
API int cudaStreamAttachMemAsync(Stream, void*, size_t, unsigned) { return kSuccess; }

API int cudaEventCreateWithFlags(Event* result, unsigned) {
  *result = reinterpret_cast<Event>(new EventState);
  return kSuccess;
}
API int cudaEventCreate(Event* result) { return cudaEventCreateWithFlags(result, 0); }
API int cudaEventDestroy(Event event) {
  note_destroyed(event);
  delete reinterpret_cast<EventState*>(event);
  return kSuccess;
}
API int cudaEventRecord(Event event, Stream stream) {
  if (!event) return remember(kInvalidHandle);
  record(event, stream);
  note_recorded(event, stream);
  return kSuccess;
}
API int cudaEventRecordWithFlags(Event event, Stream stream, unsigned) { return cudaEventRecord(event, stream); }
API int cudaEventQuery(Event event) {
  if (!is_done(event, true)) return kNotReady;
  note_queried(event);
  return kSuccess;
}
API int cudaEventSynchronize(Event event) {
  synchronize(event);
  return kSuccess;
}
// Time is not imitated: each event is a microsecond after the one before, so that no ratio divides by zero.
API int cudaEventElapsedTime(float* ms, Event from, Event to) {
  Lock lock(streams().mutex);
  *ms = 1e-3f * static_cast<float>(static_cast<int64_t>(state_of(to).stamp - state_of(from).stamp));
  return kSuccess;
}
API int cudaEventElapsedTime_v2(float* ms, Event from, Event to) { return cudaEventElapsedTime(ms, from, to); }
API int cudaIpcGetEventHandle(void*, Event) { return remember(refuse("libcudart", "cudaIpcGetEventHandle", kNotSupported)); }
API int cudaIpcOpenEventHandle(Event*, ...) { return remember(refuse("libcudart", "cudaIpcOpenEventHandle", kNotSupported)); }
