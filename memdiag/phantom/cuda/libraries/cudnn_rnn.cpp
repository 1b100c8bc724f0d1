// libcudnn: recurrent layers.
//
// Weights lie as cuDNN documents them: for each layer and direction the matrices that the input is multiplied with, one a gate, then
// those of the state; after the matrices of all layers the biases in the same order. How large the reserve space is (what training
// keeps for the backward pass) is not documented. It is as large here as cudnnGetRNNTempSpaceSizes of cuDNN 9.20 says. That function
// also writes the size of the workspace, which holds about 8 MiB for each layer and direction, but then fails without a card.
#include <string.h>

#include <algorithm>

#include "../core/scratch.h"
#include "cudnn.h"

using namespace phantom;

namespace {

enum : int { kRelu = 0, kTanh = 1, kLstm = 2, kGru = 3 };
enum : int { kNoBias = 0, kDoubleBias = 2 };

constexpr int64_t kAlignment = 32, kHeader = 256;    // bytes, of the parts of the reserve space
constexpr int64_t kLayerWorkspace = int64_t{8} << 20;  // bytes

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

struct Dropout {
  float probability = 0;
};

struct Rnn {
  int cell, bias, num_directions, skips_input, type, input, hidden, projection, num_layers;
  bool has_dropout;

  int64_t num_gates() const { return cell == kLstm ? 4 : cell == kGru ? 3 : 1; }
  int64_t output() const { return projection && projection != hidden ? projection : hidden; }
  int64_t input_of(int64_t pseudo_layer) const {
    int64_t layer = pseudo_layer / num_directions;
    return layer == 0 ? input : output() * num_directions;
  }
  bool has_projection() const { return output() != hidden; }
  int64_t num_biases() const { return bias == kNoBias ? 0 : bias == kDoubleBias ? 2 : 1; }

  // All in elements.
  int64_t matrices_of(int64_t pseudo_layer) const {
    int64_t from_input = num_gates() * hidden * input_of(pseudo_layer), from_state = num_gates() * hidden * output();
    return from_input + from_state + (has_projection() ? output() * hidden : 0);
  }
  int64_t matrices_before(int64_t pseudo_layer) const {
    int64_t sum = 0;
    for (int64_t i = 0; i < pseudo_layer; i++) sum += matrices_of(i);
    return sum;
  }
  int64_t num_pseudo_layers() const { return int64_t{num_layers} * num_directions; }
  int64_t biases_of() const { return num_gates() * hidden * num_biases(); }
  int64_t all() const { return matrices_before(num_pseudo_layers()) + num_pseudo_layers() * biases_of(); }

  // Bytes of the reserve space. Each part holds one array of all layers and directions: the gates and the cell of LSTM, and with a
  // projection what goes in and comes out; six values of GRU or one of other layers. The inputs of all layers but the first follow, and
  // with dropout a bit for each element of those, for each direction, where sequences are padded.
  int64_t reserve(int64_t num_steps, int64_t num_padded_steps) const {
    int64_t each = num_steps * static_cast<int64_t>(element_bytes(type)), num_between = num_layers - 1;
    auto part = [&](int64_t width) { return aligned(each * width * num_pseudo_layers()); };
    int64_t bytes = kHeader + aligned(each * hidden * num_directions * num_between);
    bytes += cell == kLstm ? part(int64_t{4} * hidden) + part(hidden) : part((cell == kGru ? int64_t{6} : 1) * hidden);
    if (has_projection()) bytes += part(hidden) + part(output());
    if (has_dropout) bytes += num_between * num_directions * aligned((num_padded_steps * output() * num_directions + 7) / 8);
    return bytes;
  }
};

struct RnnData {
  int type = 0, longest = 0, batch = 0, vector = 0;
  int64_t num_steps = 0;  // of all sequences together
};

void show(Tensor* to, int type, int64_t rows, int64_t columns) {
  to->type = type;
  to->num_dimensions = 3;
  int dimensions[] = {1, static_cast<int>(rows), static_cast<int>(columns)};
  int strides[] = {static_cast<int>(rows * columns), static_cast<int>(columns), 1};
  std::copy_n(dimensions, 3, to->dimensions);
  std::copy_n(strides, 3, to->strides);
}

}  // namespace

API int cudnnCreateDropoutDescriptor(Dropout** result) {
  *result = new Dropout;
  return 0;
}
API int cudnnDestroyDropoutDescriptor(Dropout* dropout) {
  delete dropout;
  return 0;
}
API int cudnnSetDropoutDescriptor(Dropout* dropout, Handle*, float probability, void*, size_t, unsigned long long) {
  dropout->probability = probability;
  return 0;
}
API int cudnnRestoreDropoutDescriptor(Dropout* dropout, Handle*, float probability, void*, size_t, unsigned long long) {
  dropout->probability = probability;
  return 0;
}
API int cudnnCreateRNNDescriptor(Rnn** result) {
  *result = new Rnn();
  return 0;
}
API int cudnnDestroyRNNDescriptor(Rnn* rnn) {
  delete rnn;
  return 0;
}
API int cudnnSetRNNDescriptor_v8(Rnn* rnn, int, int cell, int bias, int direction, int input_mode, int type, int, int, int32_t input, int32_t hidden,
                                 int32_t projection, int32_t num_layers, const Dropout* dropout, uint32_t) {
  bool has_dropout = dropout && dropout->probability > 0;
  *rnn = {cell, bias, direction ? 2 : 1, input_mode, type, input, hidden, projection, num_layers, has_dropout};
  return 0;
}
API int cudnnCreateRNNDataDescriptor(RnnData** result) {
  *result = new RnnData;
  return 0;
}
API int cudnnDestroyRNNDataDescriptor(RnnData* data) {
  delete data;
  return 0;
}
API int cudnnSetRNNDataDescriptor(RnnData* data, int type, int, int longest, int batch, int vector, const int* lengths, void*) {
  *data = {type, longest, batch, vector, 0};
  for (int i = 0; i < batch; i++) data->num_steps += lengths ? lengths[i] : longest;
  return 0;
}
API int cudnnGetRNNWeightSpaceSize(Handle*, const Rnn* rnn, size_t* bytes) {
  *bytes = static_cast<size_t>(rnn->all()) * element_bytes(rnn->type);
  return 0;
}
API int cudnnGetRNNTempSpaceSizes(Handle*, const Rnn* rnn, int is_training, const RnnData* x, size_t* workspace, size_t* reserve) {
  int64_t kept = rnn->reserve(x->num_steps, int64_t{x->longest} * x->batch);
  if (workspace) {
    *workspace = config().cudnn_workspace;
    note_scratch(Operation::kRecurrent, kUnknownScratch, static_cast<uint64_t>(kept + kLayerWorkspace * rnn->num_pseudo_layers()));
  }
  if (reserve) *reserve = is_training ? static_cast<size_t>(kept) : 0;
  return 0;
}
// linear: the gates of the input come first, then those of the state, then the projection.
API int cudnnGetRNNWeightParams(Handle*, const Rnn* rnn, int32_t pseudo_layer, size_t, const void* weights, int32_t linear, Tensor* matrix,
                                void** matrix_at, Tensor* bias, void** bias_at) {
  int64_t gates = rnn->num_gates(), hidden = rnn->hidden, input = rnn->input_of(pseudo_layer), output = rnn->output();
  bool is_projection = linear == 2 * gates;
  // callers who want only one of the two give no places for the other
  Tensor no_matrix, no_bias;
  void *nowhere_matrix, *nowhere_bias;
  if (!matrix) matrix = &no_matrix;
  if (!matrix_at) matrix_at = &nowhere_matrix;
  if (!bias) bias = &no_bias;
  if (!bias_at) bias_at = &nowhere_bias;
  *matrix_at = *bias_at = nullptr;
  matrix->num_dimensions = bias->num_dimensions = 0;
  if (linear > 2 * gates || (is_projection && !rnn->has_projection())) return 0;
  int64_t place = rnn->matrices_before(pseudo_layer), rows = is_projection ? output : hidden;
  int64_t columns = is_projection ? hidden : linear < gates ? input : output;
  place += std::min<int64_t>(linear, gates) * hidden * input + std::max<int64_t>(linear - gates, 0) * hidden * output;
  char* first = static_cast<char*>(const_cast<void*>(weights));
  size_t each = element_bytes(rnn->type);
  *matrix_at = first + static_cast<size_t>(place) * each;
  show(matrix, rnn->type, rows, columns);
  bool has_bias = !is_projection && (rnn->num_biases() == 2 || (rnn->num_biases() == 1 && linear < gates));
  if (!has_bias) return 0;
  int64_t bias_place = rnn->matrices_before(rnn->num_pseudo_layers()) + pseudo_layer * rnn->biases_of() + linear * hidden;
  *bias_at = first + static_cast<size_t>(bias_place) * each;
  show(bias, rnn->type, hidden, 1);
  return 0;
}
