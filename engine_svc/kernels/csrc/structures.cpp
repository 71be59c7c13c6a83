// Reports the layout of the structures as compiled.

#include "structures.h"

#include <cstddef>

#define WHOLE(S) {#S, "", 0, sizeof(S)}
#define FIELD(S, F) {#S, #F, offsetof(S, F), sizeof(S::F)}

extern "C" const PellucidField* pellucid_structures() {
  static const PellucidField fields[] = {
      WHOLE(PellucidAttention), FIELD(PellucidAttention, num_heads), FIELD(PellucidAttention, num_kv_heads),
      FIELD(PellucidAttention, head_dim), FIELD(PellucidAttention, block_size), FIELD(PellucidAttention, scale),
      FIELD(PellucidAttention, softcap), FIELD(PellucidAttention, is_bfloat16),
      FIELD(PellucidAttention, is_int8_cache),
      FIELD(PellucidAttention, num_threads),

      WHOLE(PellucidBatch), FIELD(PellucidBatch, slot_mapping), FIELD(PellucidBatch, query_starts),
      FIELD(PellucidBatch, context_lens), FIELD(PellucidBatch, block_tables), FIELD(PellucidBatch, num_tokens),
      FIELD(PellucidBatch, num_sequences), FIELD(PellucidBatch, table_stride),

      WHOLE(PellucidRows), FIELD(PellucidRows, data), FIELD(PellucidRows, stride),

      WHOLE(PellucidMatrix), FIELD(PellucidMatrix, panels), FIELD(PellucidMatrix, bias),
      FIELD(PellucidMatrix, outputs), FIELD(PellucidMatrix, inputs), FIELD(PellucidMatrix, format),
      FIELD(PellucidMatrix, panel_bytes), FIELD(PellucidMatrix, tile_rows),

      WHOLE(PellucidLinear), FIELD(PellucidLinear, parts), FIELD(PellucidLinear, num_parts),

      WHOLE(PellucidLayer), FIELD(PellucidLayer, qkv), FIELD(PellucidLayer, out), FIELD(PellucidLayer, gate_up),
      FIELD(PellucidLayer, down), FIELD(PellucidLayer, before_attention), FIELD(PellucidLayer, after_attention),
      FIELD(PellucidLayer, before_mlp), FIELD(PellucidLayer, after_mlp), FIELD(PellucidLayer, query_norm),
      FIELD(PellucidLayer, key_norm), FIELD(PellucidLayer, window), FIELD(PellucidLayer, rope),

      WHOLE(PellucidRope), FIELD(PellucidRope, inverse_frequencies), FIELD(PellucidRope, num_pairs),
      FIELD(PellucidRope, attention_factor),

      WHOLE(PellucidDecoder), FIELD(PellucidDecoder, attention), FIELD(PellucidDecoder, embedding),
      FIELD(PellucidDecoder, head), FIELD(PellucidDecoder, layers), FIELD(PellucidDecoder, ropes),
      FIELD(PellucidDecoder, norm), FIELD(PellucidDecoder, num_layers), FIELD(PellucidDecoder, num_ropes),
      FIELD(PellucidDecoder, hidden_size), FIELD(PellucidDecoder, intermediate_size),
      FIELD(PellucidDecoder, format), FIELD(PellucidDecoder, activation), FIELD(PellucidDecoder, qk_norm),
      FIELD(PellucidDecoder, eps), FIELD(PellucidDecoder, embedding_scale), FIELD(PellucidDecoder, logit_softcap),

      WHOLE(PellucidTokens), FIELD(PellucidTokens, input_ids), FIELD(PellucidTokens, positions),
      FIELD(PellucidTokens, rows), FIELD(PellucidTokens, num_rows),

      {nullptr, nullptr, 0, 0},
  };
  return fields;
}
