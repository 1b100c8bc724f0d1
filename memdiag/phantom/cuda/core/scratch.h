// Scratch memory of cuDNN's operations: how many calls took how much, and how many took an amount that nobody knows.
#pragma once
#include <stdint.h>

#include <string>
#include <vector>

namespace phantom {

enum class Operation : int { kConvolution, kAttention, kRecurrent, kOther };
constexpr int kNumOperations = 4;
constexpr int64_t kUnknownScratch = -1;

// One call of an operation. `bytes`: the workspace that the real cuDNN plans for it, or kUnknownScratch; `operand_bytes`: its tensors.
void note_scratch(Operation operation, int64_t bytes, uint64_t operand_bytes);

// The workspaces of the engines that the real cuDNN proposes for a convolution, in its order. PyTorch tries the next engine where the
// workspace of one cannot be allocated.
void note_workspaces(const std::vector<int64_t>& bytes);

// A plan of a convolution. Where PyTorch searches for the fastest engine, it makes a plan of each.
void note_convolution_plan();

// The cuDNN that plans, such as 92000; not called where none does.
void note_planner(uint64_t version);

// A communicator of NCCL and its device memory, an estimate.
void note_communicator(uint64_t bytes);

// A new executable graph, and the estimate of the device memory that all graphs of the device take now.
void note_graph(uint64_t num_nodes, uint64_t all_bytes);

std::string scratch_facts();  // as JSON, see memdiag/sources/phantom_scratch.py

}  // namespace phantom
