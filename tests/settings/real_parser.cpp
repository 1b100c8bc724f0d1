// Runs texts through the allocator's own parsers and prints the resulting settings. Built by real_parsers.py:
//   g++ -DWITH_CUDA or -DWITH_NPU or neither (the parser that all accelerators share)
// Input: texts, each ended by a NUL byte. Output: a line of JSON for each. Each text is parsed in its own process, since
// settings are kept for the lifetime of a process.
#include <c10/core/AllocatorConfig.h>
#ifdef WITH_CUDA
#include <c10/cuda/CUDAAllocatorConfig.h>
#endif
#ifdef WITH_NPU
#include <torch_npu/csrc/core/npu/NPUAllocatorConfig.h>
#endif
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>

using Common = c10::CachingAllocator::AcceleratorAllocatorConfig;

static std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (unsigned char c : text.substr(0, text.find('\n'))) {
    char escaped[8];
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c < 32 || c > 126) {
      std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

static std::string real(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "\"%.17g\"", value);
  return text;
}

static std::string values() {
  std::ostringstream out;
  out << "{\"max_split_size_mb\": " << Common::max_split_size() << ", \"max_non_split_rounding_mb\": " << Common::max_non_split_rounding_size()
      << ", \"large_segment_size_mb\": " << Common::large_segment_size() << ", \"garbage_collection_threshold\": "
      << real(Common::garbage_collection_threshold()) << ", \"expandable_segments\": " << Common::use_expandable_segments()
      << ", \"pinned_use_background_threads\": " << Common::pinned_use_background_threads()
      << ", \"pinned_max_round_threshold_mb\": " << Common::pinned_max_round_threshold()
      << ", \"pinned_max_cached_size_mb\": " << Common::pinned_max_cached_size() << ", \"roundup_power2_divisions\": [";
  const auto& divisions = Common::roundup_power2_divisions();
  for (size_t i = 0; i < divisions.size(); i++) {
    out << (i ? ", " : "") << divisions[i];
  }
  out << "]";
#ifdef WITH_CUDA
  using Config = c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig;
  out << ", \"release_lock_on_cudamalloc\": " << Config::release_lock_on_cudamalloc()
      << ", \"graph_capture_record_stream_reuse\": " << Config::graph_capture_record_stream_reuse()
      << ", \"per_process_memory_fraction\": " << real(Config::per_process_memory_fraction())
      << ", \"throw_on_cudamalloc_oom\": " << Config::throw_on_cudamalloc_oom()
      << ", \"pinned_use_cuda_host_register\": " << Config::pinned_use_cuda_host_register()
      << ", \"pinned_num_register_threads\": " << Config::pinned_num_register_threads()
      << ", \"pinned_reserve_segment_size_mb\": " << Config::pinned_reserve_segment_size_mb()
      << ", \"pinned_free_catch_all\": " << Config::pinned_free_catch_all();
#endif
#ifdef WITH_NPU
  using Config = c10_npu::NPUCachingAllocator::NPUAllocatorConfig;
  out << ", \"base_addr_aligned_kb\": " << Config::base_addr_aligned_size() << ", \"page_size\": " << Config::page_size_1g_enable()
      << ", \"segment_size_mb\": " << Config::segment_size_mb() << ", \"multi_stream_lazy_reclaim\": " << Config::multi_stream_lazy_reclaim()
      << ", \"per_process_memory_fraction\": " << real(Config::per_process_memory_fraction())
      << ", \"pinned_reserve_segment_size_mb\": " << Config::pinned_reserve_segment_size_mb()
      << ", \"pin_memory_expandable_segments\": " << Config::pin_memory_expandable_segments()
      << ", \"pinned_mem_register\": " << Config::pinned_mem_register()
      << ", \"release_lock_on_npumalloc\": " << Config::release_lock_on_npumalloc()
      << ", \"throw_on_npumalloc_oom\": " << Config::throw_on_npumalloc_oom();
#endif
  out << "}";
  return out.str();
}

static void parse(const std::string& text) {
#ifdef WITH_NPU
  setenv("PYTORCH_NPU_ALLOC_CONF", text.c_str(), 1);  // read when the configuration is first used
  c10_npu::NPUCachingAllocator::NPUAllocatorConfig::instance();
#else
  c10::CachingAllocator::setAllocatorSettings(text);
#endif
}

static void one(const std::string& text) {
  std::string line;
  try {
    parse(text);
    line = "{\"accepted\": true, \"values\": " + values() + "}";
  } catch (const c10::Error& error) {
    line = "{\"accepted\": false, \"error\": " + quoted(error.what_without_backtrace()) + "}";
  } catch (const std::exception& error) {
    line = "{\"accepted\": false, \"error\": " + quoted(error.what()) + "}";
  }
  std::printf("%s\n", line.c_str());
}

int main() {
  unsetenv("PYTORCH_CUDA_ALLOC_CONF");
  unsetenv("PYTORCH_ALLOC_CONF");
  unsetenv("PYTORCH_HIP_ALLOC_CONF");
  unsetenv("PYTORCH_NPU_ALLOC_CONF");
  std::string text;
  while (std::getline(std::cin, text, '\0')) {
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
  }
}
