// Arguments passed from Python. Mirrored in engine_svc/kernels/structures.py; structures.cpp reports the layout, and
// both are compared when the library is loaded.

#pragma once

#include <cstdint>

extern "C" {

struct PellucidAttention {
  int32_t num_heads, num_kv_heads, head_dim, block_size;
  float scale;
  float softcap;  // 0: none
  int32_t is_bfloat16;    // queries, keys and values; else float
  int32_t is_int8_cache;  // else the cache has the type of keys and values
  int32_t num_threads;
};

// As PagedBatch in engine_svc/attention/interface.py.
struct PellucidBatch {
  const int64_t* slot_mapping;
  const int32_t* query_starts;
  const int32_t* context_lens;
  const int32_t* block_tables;
  int32_t num_tokens, num_sequences, table_stride;
};

// Rows are `stride` elements apart; the heads of a row are contiguous.
struct PellucidRows {
  void* data;
  int64_t stride;
};

// kInt16 is for activations only: all groups are decomposed into a high and a low int8 part, not only outlier groups.
enum PellucidFormat : int32_t { kFloat32 = 0, kBfloat16 = 1, kInt8 = 2, kInt4 = 3, kInt16 = 4 };

struct PellucidMatrix {
  const void* panels;
  const float* bias;  // null: none
  int32_t outputs, inputs;
  int32_t format;
  int32_t panel_bytes;
  int32_t tile_rows;  // from this number of rows on, matrix tiles are faster than vectors; 0: never
};

// Several matrices with the same input; their outputs are concatenated.
struct PellucidLinear {
  PellucidMatrix parts[3];
  int32_t num_parts;
};

enum PellucidActivation : int32_t { kSilu = 0, kGelu = 1 };
enum PellucidQKNorm : int32_t { kNoQKNorm = 0, kPerHead = 1, kAllHeads = 2 };

// Norms are null if the layer has none at that place.
struct PellucidLayer {
  PellucidLinear qkv, out, gate_up, down;
  const float *before_attention, *after_attention, *before_mlp, *after_mlp, *query_norm, *key_norm;
  int32_t window;  // 0: none
  int32_t rope;    // index of a PellucidRope
};

struct PellucidRope {
  const float* inverse_frequencies;
  int32_t num_pairs;
  float attention_factor;
};

struct PellucidDecoder {
  PellucidAttention attention;
  PellucidMatrix embedding;
  PellucidLinear head;
  const PellucidLayer* layers;
  const PellucidRope* ropes;
  const float* norm;
  int32_t num_layers, num_ropes, hidden_size, intermediate_size;
  int32_t format;  // of the activations
  int32_t activation;
  int32_t qk_norm;
  float eps, embedding_scale;
  float logit_softcap;  // 0: none
};

struct PellucidTokens {
  const int64_t *input_ids, *positions;
  const int64_t* rows;  // indices of the tokens whose hidden states are returned
  int64_t num_rows;
};

// What prevents matrix tiles. Mirrored by TileSupport in engine_svc/kernels/tiles.py.
enum PellucidTileSupport : int32_t {
  kTilesUsable = 0,
  kTilesAbsent = 1,       // the CPU does not list them
  kTilesNotCompiled = 2,  // the compiler did not know them
  kTilesNotSaved = 3,     // the operating system does not switch their registers
  kTilesNotPermitted = 4,
  kTilesIllegal = 5,  // their instructions are illegal in spite of all
  kTilesWrong = 6,    // their product is wrong
};

// A field of a structure, or a whole structure if `name` is empty. The last entry has a null `structure`.
struct PellucidField {
  const char *structure, *name;
  int64_t offset, size;
};
}
