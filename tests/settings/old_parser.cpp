// Runs texts through the settings parser of torch 2.2 to 2.8, which is in libc10_cuda of each release, and prints the
// outcomes. Build it by hand against the library of one release; a libcudart whose functions do nothing is enough:
//   g++ -std=c++17 old_parser.cpp -o old_parser libc10_cuda.so libc10.so -Wl,--allow-shlib-undefined
// Input: texts, each ended by a NUL byte. Output: a line of JSON for each. Without headers, only the values of divisions
// are accessible.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

namespace c10::cuda::CUDACachingAllocator {
struct CUDAAllocatorConfig {
  static size_t roundup_power2_divisions(size_t size);  // reads the environment at its first call
};
}  // namespace c10::cuda::CUDACachingAllocator
using c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig;

static std::string quoted(const std::string& text) {
  std::string out;
  for (char c : text.substr(0, text.find('\n'))) {
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    if (c >= 32 && c < 127) {
      out += c;
    }
  }
  return '"' + out + '"';
}

static void one(const std::string& text) {
  setenv("PYTORCH_CUDA_ALLOC_CONF", text.c_str(), 1);
  std::string line;
  try {
    std::string divisions;
    for (int k = 0; k < 16; k++) {
      divisions += (k ? ", " : "") + std::to_string(CUDAAllocatorConfig::roundup_power2_divisions(size_t(1) << (20 + k)));
    }
    line = "{\"accepted\": true, \"values\": {\"roundup_power2_divisions\": [" + divisions + "]}}";
  } catch (const std::exception& error) {
    line = "{\"accepted\": false, \"error\": " + quoted(error.what()) + "}";
  }
  std::printf("%s\n", line.c_str());
}

int main() {
  unsetenv("PYTORCH_CUDA_ALLOC_CONF");
  for (int c = std::getchar(); c != EOF; c = std::getchar()) {
    std::string text;
    for (; c != 0 && c != EOF; c = std::getchar()) {
      text += static_cast<char>(c);
    }
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      one(text);
      std::fflush(stdout);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) {
      std::printf("{\"accepted\": false, \"error\": \"died\"}\n");
    }
    std::fflush(stdout);
  }
}
