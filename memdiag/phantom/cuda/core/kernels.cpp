// The arguments of a kernel come as an array of pointers to them; neither their number nor their sizes are said. Where the kernel's name
// tells its parameters (signatures.h), only those are looked at that it may write through; else all words from each argument to the
// next are, and taken for pointers if they look like device pointers: too many rather than too few.
#include "kernels.h"

#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "config.h"
#include "elementwise.h"
#include "errors.h"
#include "memory.h"
#include "signatures.h"
#include "stack.h"
#include "streams.h"
#include "values.h"
#include "watchdog.h"

namespace phantom {
namespace {

constexpr size_t kMostArguments = 96, kLargestArgument = 4096, kLargestTable = 32764;  // 32764: since CUDA 12.1

struct Kernel {
  const char* name;
  const void* module;
  std::shared_ptr<const Signature> signature;
};

struct Kernels {
  std::mutex mutex;
  std::unordered_map<const void*, Kernel> by_function;
  std::unordered_map<const void*, CodeVersion> by_module;
};

Kernels& kernels() {
  static Kernels* const all = new Kernels;
  return *all;
}

CodeVersion version_of(Kernels& all, const void* module) {
  auto found = all.by_module.find(module);
  if (found == all.by_module.end()) found = all.by_module.emplace(module, choose_code(module)).first;
  return found->second;
}

// None: the library has no code of this kernel for the device.
std::shared_ptr<const Signature> signature_of(const void* function) {
  static const auto unknown = std::make_shared<const Signature>();
  Kernels& all = kernels();
  Lock lock(all.mutex);
  auto found = all.by_function.find(function);
  if (found == all.by_function.end()) return unknown;
  Kernel& kernel = found->second;
  if (!kernel.signature) {
    if (!version_of(all, kernel.module).exists()) return nullptr;
    kernel.signature = std::make_shared<const Signature>(read_signature(kernel.name));
  }
  return kernel.signature;
}

int say_no_code() {
  static std::once_flag once;
  std::call_once(once, [] {
    fprintf(stderr,
            "memdiag: a library of this program has no kernels for %s (compute capability %d.%d), so the launch fails as on the "
            "real device. Install a build that supports it, or choose a newer device (memdiag devices).\n",
            config().name.c_str(), config().major, config().minor);
  });
  return remember(kNoKernelImage);
}

// Reads memory that may not be there.
size_t read_carefully(uint64_t address, void* to, size_t bytes) {
  iovec local{to, bytes}, remote{pointer(address), bytes};
  ssize_t got = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
  return got < 0 ? 0 : static_cast<size_t>(got);
}

void collect(const uint64_t* begin, const uint64_t* end, std::vector<uint64_t>& words) {
  for (; begin < end; ++begin)
    if (is_device(*begin)) words.push_back(*begin);
}

void words_on_stack(void** arguments, const Signature& signature, const Stack& stack, std::vector<uint64_t>& words) {
  struct Place {
    uint64_t first;
    bool is_written;
    uint64_t most_bytes;  // bytes of the argument at most: more would be leftovers of the stack
    bool operator<(const Place& other) const { return first < other.first; }
  } places[kMostArguments + 1];
  size_t largest = signature.lists.depth ? kLargestTable : kLargestArgument;
  size_t num_places = 0, most = signature.is_known ? std::min(signature.is_written.size(), kMostArguments) : kMostArguments;
  auto* last = reinterpret_cast<void**>(stack.end);
  for (size_t i = 0; i < most && arguments + i < last; i++) {
    uint64_t place = number(arguments[i]);
    if (!stack.holds(place)) break;
    bool is_pointer = signature.is_known && signature.is_pointer[i];
    places[num_places++] = {place & ~7ull, !signature.is_known || signature.is_written[i], is_pointer ? 8 : largest};
  }
  places[num_places++] = {number(arguments) & ~7ull, false, 0};
  std::sort(places, places + num_places);
  for (size_t i = 0; i < num_places; i++) {
    uint64_t end = std::min(places[i].first + places[i].most_bytes, stack.end);
    if (i + 1 < num_places) end = std::min(end, std::max(places[i + 1].first, places[i].first + 8));
    if (places[i].is_written) collect(reinterpret_cast<uint64_t*>(places[i].first), reinterpret_cast<uint64_t*>(end), words);
  }
}

// The parameters after the first that are one pointer.
void pointers_behind(void** arguments, const Signature& signature, std::vector<uint64_t>& words) {
  for (size_t i = 1; i < signature.is_written.size(); i++)
    if (signature.is_pointer[i] && signature.is_written[i]) words.push_back(*static_cast<uint64_t*>(arguments[i]));
}

// A ReduceOp ends with const void* from; char* to[2]; void *partial, *between_blocks; int* semaphores; int64 first; bool, bool, int num_to.
// What stands before it depends on the kernel, so that it is looked for by its form. Returns "from", or 0: not found.
uint64_t words_of_reduction(void** arguments, const Stack& stack, std::vector<uint64_t>& words) {
  constexpr size_t kWords = 8;
  if (!stack.holds(number(arguments[0]))) return 0;
  auto* first = reinterpret_cast<const uint64_t*>(number(arguments[0]) & ~7ull);
  auto* end = std::min(first + kLargestArgument / 8, reinterpret_cast<const uint64_t*>(stack.end)) - kWords;
  auto is_none_or_device = [](uint64_t word) { return !word || is_device(word); };
  for (; first < end; ++first) {
    uint64_t num_to = first[7] >> 32;
    if (!is_device(first[0]) || !is_device(first[1]) || num_to < 1 || num_to > 2 || (first[7] & 0xfefe)) continue;
    if (!is_none_or_device(first[3]) || !is_none_or_device(first[4]) || !is_none_or_device(first[5])) continue;
    collect(first + 1, first + 1 + num_to, words);
    collect(first + 3, first + 6, words);
    return first[0];
  }
  return 0;
}

void words_elsewhere(void** arguments, std::vector<uint64_t>& words) {
  void* places[kMostArguments];
  size_t num_places = read_carefully(number(arguments), places, sizeof places) / sizeof *places;
  for (size_t i = 0; i < num_places && number(places[i]) > 4096; i++) {
    uint64_t found[8];
    size_t got = read_carefully(number(places[i]) & ~7ull, found, sizeof found) / sizeof *found;
    if (!got) break;
    collect(found, found + got, words);
  }
}

void touch_on(Stream stream, std::vector<uint64_t> words) {
  if (!streams().num_capturing.load(std::memory_order_acquire)) return touch_words(words.data(), words.size());
  perform(stream, [words = std::move(words)] { touch_words(words.data(), words.size()); });
}

// The outputs of a kernel that has one for each block of threads. Returns whether there are such.
bool words_of_blocks(const Signature& signature, void** arguments, const Stack& stack, unsigned num_blocks, std::vector<uint64_t>& words) {
  if (signature.addresses < 0 || !stack.holds(number(arguments))) return false;
  auto* first = static_cast<const uint64_t*>(arguments[signature.addresses]);
  if (!stack.holds(number(first)) || !stack.holds(number(first + num_blocks))) return false;
  collect(first, first + num_blocks, words);
  return true;
}

// Finds which memory the kernel may write, and what is known of the values.
void write_through(const Signature& signature, void** arguments, Stream stream, unsigned num_blocks) {
  if (signature.fill_bytes) {
    int64_t count = *static_cast<int*>(arguments[0]);
    unsigned each = signature.fill_bytes;
    uint64_t value = 0, output = *static_cast<uint64_t*>(arguments[2]);
    memcpy(&value, arguments[1], each);
    return perform(stream, [=] { write_pattern(output, &value, each, static_cast<uint64_t>(count) * each); });
  }
  Question question = signature.asked.question;
  if (question != Question::kNone && question != Question::kAll && !is_capturing(stream) && answer(signature.asked, arguments)) return;
  if (signature.output >= 0) return touch_on(stream, {*static_cast<uint64_t*>(arguments[signature.output])});
  const Stack& stack = this_stack();
  std::vector<uint64_t> words;
  uint64_t input = signature.is_reduction && stack.holds(number(arguments)) ? words_of_reduction(arguments, stack, words) : 0;
  if (input) {
    uint64_t output = words.front();
    touch_on(stream, std::move(words));
    if (question == Question::kAll && !is_capturing(stream)) answer_all(output, input);
    return;
  }
  if (signature.lists.depth && stack.holds(number(arguments)) && stack.holds(number(arguments[0])) &&
      words_of_lists(signature.lists, arguments[0], stack.end, num_blocks, words)) {
    pointers_behind(arguments, signature, words);
    return touch_on(stream, std::move(words));
  }
  if (signature.is_elementwise && stack.holds(number(arguments)) && stack.holds(number(arguments[1])) &&
      words_of_elementwise(arguments[1], stack.end, words))
    return touch_on(stream, std::move(words));
  if (words_of_blocks(signature, arguments, stack, num_blocks, words)) return touch_on(stream, std::move(words));
  if (signature.inside.count && stack.holds(number(arguments)) && stack.holds(number(arguments[0]))) {
    auto* first = static_cast<const uint64_t*>(arguments[0]) + signature.inside.first;
    auto* end = reinterpret_cast<const uint64_t*>(stack.end);
    collect(std::min(first, end), std::min(first + signature.inside.count, end), words);
    return touch_on(stream, std::move(words));
  }
  if (stack.holds(number(arguments))) words_on_stack(arguments, signature, stack, words);
  else words_elsewhere(arguments, words);
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
  touch_on(stream, std::move(words));
}

}  // namespace

void name_kernel(const void* host_function, const char* device_name, const void* module) {
  Kernels& all = kernels();
  Lock lock(all.mutex);
  all.by_function[host_function] = {device_name, module, nullptr};
}

CodeVersion code_of(const void* host_function) {
  Kernels& all = kernels();
  Lock lock(all.mutex);
  auto found = all.by_function.find(host_function);
  return found == all.by_function.end() ? code_for_this_device() : version_of(all, found->second.module);
}

int launch(const void* function, void** arguments, Stream stream, unsigned num_blocks) {
  let_watchdog_see();
  leave_addresses();
  std::shared_ptr<const Signature> signature = signature_of(function);
  if (!signature) return say_no_code();
  if (arguments) write_through(*signature, arguments, stream, num_blocks);
  return kSuccess;
}

void launch_packed(const void* buffer, size_t bytes, Stream stream) {
  std::vector<uint64_t> words, all(bytes / 8);
  memcpy(all.data(), buffer, all.size() * 8);
  collect(all.data(), all.data() + all.size(), words);
  touch_on(stream, std::move(words));
}

void library_call(Stream stream, const uint64_t* words, size_t num_words) {
  let_watchdog_see();
  std::vector<uint64_t> found;
  collect(words, words + num_words, found);
  touch_on(stream, std::move(found));
}

}  // namespace phantom
