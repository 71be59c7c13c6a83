// Runs the kernels without Python: a small decoder with pseudo-random weights, in the format given as argument.
//
// Prints the logits, so that builds for several processors can be compared, and fails if a sequence has other bits in
// other batches or chunks. It packs weights for the lanes of its build.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "matrix.h"

using namespace pellucid;

extern "C" int64_t pellucid_workspace_bytes(const PellucidDecoder*, int32_t);
extern "C" void pellucid_forward(const PellucidDecoder*, const PellucidTokens*, const PellucidBatch*, void*, int64_t,
                                 void*, float*);
extern "C" void pellucid_logits(const PellucidDecoder*, const float*, int32_t, void*, float*);

namespace {

constexpr int kHidden = 64, kIntermediate = 160, kHeads = 4, kKvHeads = 2, kHeadDim = 16, kLayers = 2, kVocab = 101;
constexpr int kBlock = 16, kBlocks = 8, kThreads = 2, kNoTiles = 0;

uint32_t next_random() {
  static uint32_t state = 1;
  state = state * 1664525u + 1013904223u;
  return state >> 8;
}

float uniform() { return (next_random() % 20001) / 10000.0f - 1.0f; }

struct Weights {
  PellucidFormat format;      // of the activations
  PellucidFormat matrices;    // kFloat32, kBfloat16, kInt8 or kInt4
};

// Memory of all weights; never freed.
char* allocate(size_t bytes) { return static_cast<char*>(std::calloc(1, (bytes + 127) / 64 * 64)); }

uint16_t to_bfloat16(float x) { return static_cast<uint16_t>(bit_cast<uint32_t>(x) >> 16); }

// One row of a matrix in the order of its words, then its scales and minima.
struct Row {
  std::vector<uint32_t> words;
  std::vector<uint16_t> halves;
};

Row float_row(int inputs, PellucidFormat format) {
  Row row;
  for (int i = 0; i < inputs; i += format == kFloat32 ? 1 : 2) {
    const float first = uniform() / 4, second = uniform() / 4;
    row.words.push_back(format == kFloat32 ? bit_cast<uint32_t>(first)
                                           : to_bfloat16(first) | uint32_t{to_bfloat16(second)} << 16);
  }
  return row;
}

uint16_t small_float16(int exponent) { return static_cast<uint16_t>((exponent << 10) | (next_random() & 1023)); }

Row integer_row(int inputs, PellucidFormat format) {
  Row row;
  const int groups = inputs / kGroup;
  for (int i = 0; i < inputs / (format == kInt4 ? 8 : 4); ++i) {
    row.words.push_back(next_random() << 16 ^ next_random());
  }
  for (int i = 0; i < groups; ++i) row.halves.push_back(small_float16(format == kInt4 ? 10 : 6));
  for (int i = 0; i < (format == kInt4 ? groups : 0); ++i) row.halves.push_back(small_float16(12) | 0x8000);
  return row;
}

PellucidMatrix matrix(int outputs, int inputs, PellucidFormat format) {
  const bool is_float = format == kFloat32 || format == kBfloat16;
  std::vector<Row> rows;
  for (int i = 0; i < outputs; ++i) rows.push_back(is_float ? float_row(inputs, format) : integer_row(inputs, format));
  const size_t num_words = rows[0].words.size(), num_halves = rows[0].halves.size();
  const size_t panel_bytes = kLanes * (4 * num_words + 2 * num_halves);
  char* panels = allocate(panel_bytes * divide_up(outputs, kLanes) + 4096);
  for (int output = 0; output < outputs; ++output) {
    char* panel = panels + panel_bytes * (output / kLanes);
    const int lane = output % kLanes;
    for (size_t i = 0; i < num_words; ++i) store(panel + 4 * (i * kLanes + lane), rows[output].words[i]);
    char* halves = panel + 4 * num_words * kLanes;
    for (size_t i = 0; i < num_halves; ++i) store(halves + 2 * (i * kLanes + lane), rows[output].halves[i]);
  }
  return {panels, nullptr, outputs, inputs, format, static_cast<int32_t>(panel_bytes), kNoTiles};
}

PellucidLinear linear(std::initializer_list<int> outputs, int inputs, PellucidFormat format) {
  PellucidLinear made = {};
  for (int count : outputs) made.parts[made.num_parts++] = matrix(count, inputs, format);
  return made;
}

// With outliers, for which integer activations have low parts.
const float* norm() {
  float* weights = reinterpret_cast<float*>(allocate(4 * (kHidden + 64)));
  for (int i = 0; i < kHidden; ++i) weights[i] = i == 5 ? 40.0f : 1.0f + uniform() / 4;
  return weights;
}

PellucidDecoder decoder(Weights weights) {
  static PellucidLayer layers[kLayers];
  static PellucidRope rope;
  const PellucidFormat f = weights.matrices;
  for (PellucidLayer& layer : layers) {
    layer = {};
    layer.qkv = linear({kHeads * kHeadDim, kKvHeads * kHeadDim, kKvHeads * kHeadDim}, kHidden, f);
    layer.out = linear({kHidden}, kHeads * kHeadDim, f);
    layer.gate_up = linear({kIntermediate, kIntermediate}, kHidden, f);
    layer.down = linear({kHidden}, kIntermediate, f);
    layer.before_attention = norm();
    layer.before_mlp = norm();
  }
  layers[1].window = 12;
  float* frequencies = reinterpret_cast<float*>(allocate(4 * (kHeadDim / 2 + 64)));
  for (int i = 0; i < kHeadDim / 2; ++i) frequencies[i] = 1.0f / (1 << i);
  rope = {frequencies, kHeadDim / 2, 1.0f};
  PellucidDecoder made = {};
  made.attention = {kHeads, kKvHeads, kHeadDim, kBlock, 0.25f, 0.0f, weights.format != kFloat32, false, kThreads};
  made.embedding = matrix(kVocab, kHidden, f);
  made.head = {{made.embedding}, 1};
  made.layers = layers;
  made.ropes = &rope;
  made.norm = norm();
  made.num_layers = kLayers;
  made.num_ropes = 1;
  made.hidden_size = kHidden;
  made.intermediate_size = kIntermediate;
  made.format = weights.format;
  made.activation = kSilu;
  made.eps = 1e-5f;
  made.embedding_scale = 1.0f;
  return made;
}

// Tokens [start, end) of a sequence, whose blocks are 4 * sequence onwards.
struct Chunk {
  int sequence, start, end;
};

using Logits = std::vector<float>;

class Model {
 public:
  explicit Model(const PellucidDecoder& decoder) : decoder_(decoder) {
    layer_bytes_ = int64_t{kBlocks} * kBlock * 2 * kKvHeads * kHeadDim * (decoder.attention.is_bfloat16 ? 2 : 4);
    cache_ = allocate(layer_bytes_ * kLayers);
  }

  // Logits of the last token of each chunk, [chunks][vocab].
  Logits step(const std::vector<Chunk>& chunks) {
    std::vector<int64_t> ids, positions, slots, rows;
    std::vector<int32_t> starts = {0}, lens, tables;
    for (const Chunk& chunk : chunks) {
      for (int at = chunk.start; at < chunk.end; ++at) {
        ids.push_back((17 + 31 * chunk.sequence + 7 * at * at) % kVocab);
        positions.push_back(at);
        slots.push_back(4 * kBlock * chunk.sequence + at);
      }
      rows.push_back(static_cast<int64_t>(ids.size()) - 1);
      starts.push_back(static_cast<int32_t>(ids.size()));
      lens.push_back(chunk.end);
      for (int block = 0; block < 4; ++block) tables.push_back(4 * chunk.sequence + block);
    }
    const int num_tokens = static_cast<int>(ids.size()), num_rows = static_cast<int>(rows.size());
    char* workspace = static_cast<char*>(
        std::aligned_alloc(64, divide_up(static_cast<int>(pellucid_workspace_bytes(&decoder_, num_tokens)), 64) * 64));
    const PellucidTokens tokens = {ids.data(), positions.data(), rows.data(), num_rows};
    const PellucidBatch batch = {slots.data(), starts.data(), lens.data(), tables.data(), num_tokens, num_rows, 4};
    std::vector<float> hidden(num_rows * kHidden + 64);
    Logits logits(num_rows * kVocab);
    pellucid_forward(&decoder_, &tokens, &batch, cache_, layer_bytes_, workspace, hidden.data());
    pellucid_logits(&decoder_, hidden.data(), num_rows, workspace, logits.data());
    std::free(workspace);
    return logits;
  }

 private:
  PellucidDecoder decoder_;
  int64_t layer_bytes_;
  char* cache_;
};

bool same_bits(const float* a, const float* b) { return std::memcmp(a, b, kVocab * sizeof(float)) == 0; }

Weights weights_of(const std::string& name) {
  if (name == "float32") return {kFloat32, kFloat32};
  if (name == "bfloat16") return {kBfloat16, kBfloat16};
  if (name == "int8") return {kInt8, kInt8};
  if (name == "int4") return {kInt8, kInt4};
  if (name == "int16") return {kInt16, kInt4};
  std::fprintf(stderr, "unknown format: %s\n", name.c_str());
  std::exit(2);
}

}  // namespace

int main(int, char** arguments) {
  const PellucidDecoder made = decoder(weights_of(arguments[1]));
  Model together(made), alone(made);
  const Logits prompts = together.step({{0, 0, 21}, {1, 0, 9}});
  const Logits decoded = together.step({{0, 21, 22}, {1, 9, 10}});
  alone.step({{0, 0, 8}});
  const Logits prompt = alone.step({{0, 8, 21}}), next = alone.step({{0, 21, 22}});
  for (const Logits& logits : {prompts, decoded}) {
    for (float logit : logits) std::printf("%.9g\n", logit);
  }
  if (same_bits(prompts.data(), prompt.data()) && same_bits(decoded.data(), next.data())) return 0;
  std::fprintf(stderr, "a sequence has other bits alone than in a batch\n");
  return 1;
}
