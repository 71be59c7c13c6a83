// Attention only, for models whose other layers are computed by torch.

#include "attention.h"

// Writes the new keys and values to the KV cache, then attends. `window` 0: no sliding window.
extern "C" void pellucid_attend(const PellucidAttention* shape, const PellucidBatch* batch, void* cache, int32_t window,
                                const PellucidRows* query, const PellucidRows* key, const PellucidRows* value,
                                const PellucidRows* out) {
  using namespace pellucid;
  const auto run = [&](const auto& attention) {
    Team::run(shape->num_threads, 2, [&](Team& team) { attention.run(team, *query, *key, *value, *out); });
  };
  if (shape->is_bfloat16) {
    with_attention<Bfloat16>(*shape, *batch, cache, window, run);
  } else {
    with_attention<float>(*shape, *batch, cache, window, run);
  }
}
