// PyTorch's process group keeps the tensors of a collective alive until its watchdog, a thread that looks every 100 ms, has seen that the
// collective is done. On a device a training step takes longer than that; here it takes a millisecond, and whether a buffer was still
// held when the next was allocated would be left to chance. (Two runs of one DDP program had peaks of 17.1 and 20.3 GiB.)
//
// So the watchdog is woken at once, and whoever launches or allocates next waits until it has seen all collectives before: as if the
// work between two collectives took longer than the watchdog's period.
//
// The watchdog sleeps in std::condition_variable::wait_for, which ends when the clock says so. In watchdog threads, which are known by
// their names, the clock is therefore put forward when they are to wake up. Only by so much, and only until they sleep again: nothing
// adds up.
#include "watchdog.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "memory.h"
#include "streams.h"

namespace phantom {
namespace {

constexpr int64_t kPeriodNs = 150000000;  // longer than the watchdog's own
constexpr long kPatienceMs = 2000;

struct Watcher {  // a watchdog thread
  pthread_cond_t* bed = nullptr;  // where it sleeps
  int64_t num_rounds = 0;         // how often it has gone through its list
};

struct Watch {
  std::mutex mutex;
  std::unordered_set<const StreamState*> busy;  // streams with collectives that no event follows yet
  std::unordered_set<const void*> unseen;       // events that the watchdog has not asked for yet
  std::unordered_set<const void*> seen;         // asked for, and the watchdog has not gone back to sleep
  std::set<Watcher*> watchers;
  std::atomic<int> num_open{0};                 // events in unseen or seen
  std::atomic<int> num_watchdogs{0};
};

Watch& watch() {
  static Watch* const all = new Watch;
  return *all;
}

thread_local bool t_is_watchdog = false;
thread_local bool t_is_ahead[2] = {};      // the steady clock and the system's, at their next reading
thread_local bool t_is_on_round = false;  // it did not wake up by chance

struct Registered : Watcher {
  ~Registered() {
    Lock lock(watch().mutex);
    watch().watchers.erase(this);
  }
};
std::atomic<bool> g_is_waking{false};

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

// A watchdog goes to sleep: what it has asked for it has dealt with.
void fall_asleep(pthread_cond_t* bed) {
  static thread_local Registered t_self;
  Watch& all = watch();
  Lock lock(all.mutex);
  all.num_open -= static_cast<int>(all.seen.size());
  all.seen.clear();
  all.watchers.insert(&t_self);
  t_self.bed = bed;
  if (t_is_on_round) t_self.num_rounds++;
  t_is_on_round = t_is_ahead[0] = t_is_ahead[1] = false;
}

int wake_up(int result, bool by_system_clock) {
  bool is_called = g_is_waking.load();
  t_is_ahead[0] = is_called;
  t_is_ahead[1] = is_called && by_system_clock;
  t_is_on_round = is_called || result == ETIMEDOUT;
  return result;
}

// Forgets what was not asked for, if each watchdog has ended two rounds since `before`: at least the second began after.
void give_up_unwatched(Watch& all, const std::map<Watcher*, int64_t>& before) {
  for (Watcher* watcher : all.watchers) {
    auto then = before.find(watcher);
    if (then != before.end() && watcher->num_rounds < then->second + 2) return;
  }
  all.num_open -= static_cast<int>(all.unseen.size());
  all.unseen.clear();
}

void nap() {
  timespec pause{0, 20000};
  nanosleep(&pause, nullptr);
}

}  // namespace

void note_collective(Stream stream) {
  Watch& all = watch();
  if (!all.num_watchdogs.load() || is_capturing(stream)) return;  // works under capture are not watched
  const StreamState* state;
  {
    Lock lock(streams().mutex);
    state = &streams().state(stream);
  }
  Lock lock(all.mutex);
  all.busy.insert(state);
}

void note_recorded(Event event, Stream stream) {
  Watch& all = watch();
  if (!all.num_watchdogs.load() || t_is_watchdog) return;
  const StreamState* state;
  {
    Lock lock(streams().mutex);
    state = &streams().state(stream);
  }
  Lock lock(all.mutex);
  if (!all.busy.erase(state)) return;
  if (all.unseen.insert(event).second) all.num_open++;
}

void note_queried(Event event) {
  if (!t_is_watchdog) return;
  Watch& all = watch();
  Lock lock(all.mutex);
  if (all.unseen.erase(event) && !all.seen.insert(event).second) all.num_open--;
}

void note_destroyed(Event event) {
  Watch& all = watch();
  if (!all.num_open.load()) return;
  Lock lock(all.mutex);
  if (all.unseen.erase(event)) all.num_open--;
}

void let_watchdog_see() {
  Watch& all = watch();
  if (!all.num_open.load(std::memory_order_acquire) || t_is_watchdog) return;
  std::map<Watcher*, int64_t> before;
  {
    Lock lock(all.mutex);
    for (Watcher* watcher : all.watchers) before[watcher] = watcher->num_rounds;
  }
  timespec start, now;
  clock_gettime(CLOCK_MONOTONIC, &start);
  g_is_waking = true;
  while (all.num_open.load(std::memory_order_acquire)) {
    {
      Lock lock(all.mutex);
      for (Watcher* watcher : all.watchers) pthread_cond_broadcast(watcher->bed);
    }
    nap();
    clock_gettime(CLOCK_MONOTONIC, &now);
    bool is_late = (now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 > kPatienceMs;
    Lock lock(all.mutex);
    if (!before.empty()) give_up_unwatched(all, before);
    if (!is_late) continue;
    all.unseen.clear();  // nobody watches any more: a group that is being taken down
    all.seen.clear();
    all.num_open = 0;
  }
  g_is_waking = false;
}

}  // namespace phantom

using namespace phantom;

API int pthread_setname_np(pthread_t thread, const char* name) {
  static const auto original = next<int (*)(pthread_t, const char*)>("pthread_setname_np");
  if (!strcmp(name, "pt_nccl_watchdg") && pthread_equal(thread, pthread_self()) && !t_is_watchdog) {
    t_is_watchdog = true;
    watch().num_watchdogs++;
  }
  return original(thread, name);
}

API int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* until) {
  static const auto original = next<int (*)(pthread_cond_t*, pthread_mutex_t*, const timespec*)>("pthread_cond_timedwait");
  if (!t_is_watchdog) return original(condition, mutex, until);
  fall_asleep(condition);
  int result = original(condition, mutex, until);
  return wake_up(result, true);
}

API int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const timespec* until) {
  static const auto original = next<int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*)>("pthread_cond_clockwait");
  if (!t_is_watchdog) return original(condition, mutex, clock, until);
  fall_asleep(condition);
  int result = original(condition, mutex, clock, until);
  return wake_up(result, clock == CLOCK_REALTIME);
}

namespace {

int64_t now_of(clockid_t clock, bool& is_ahead) {
  timespec now;
  clock_gettime(clock, &now);
  int64_t time = now.tv_sec * 1000000000 + now.tv_nsec;
  if (!is_ahead) return time;
  is_ahead = false;
  return time + kPeriodNs;
}

}  // namespace

// std::chrono::steady_clock::now() and system_clock::now(), under the names that the C++ library gives them.
API int64_t memdiag_phantom_steady_now() __asm__("_ZNSt6chrono3_V212steady_clock3nowEv");
API int64_t memdiag_phantom_steady_now() { return now_of(CLOCK_MONOTONIC, t_is_ahead[0]); }
API int64_t memdiag_phantom_system_now() __asm__("_ZNSt6chrono3_V212system_clock3nowEv");
API int64_t memdiag_phantom_system_now() { return now_of(CLOCK_REALTIME, t_is_ahead[1]); }
