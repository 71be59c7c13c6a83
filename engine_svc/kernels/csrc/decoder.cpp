// The forward pass of a decoder: all layers in one call, in one parallel region.
//
// The residual stream is float32. Activations are rounded to the model's dtype for matrix products, or quantised to
// integers if its weights are.

#include <cmath>
#include <cstddef>

#include "attention.h"
#include "matrix.h"
#include "rows.h"
#include "structures.h"
#include "team.h"

namespace pellucid {
namespace {

// Bump allocator over the workspace of a step. With a null pointer it only counts bytes.
class Arena {
 public:
  explicit Arena(char* memory) : memory_(memory) {}

  template <typename T>
  T* take(int64_t count) {
    char* taken = memory_ + used_;
    used_ += divide_up64(count * sizeof(T) + kSlack);
    return reinterpret_cast<T*>(taken);
  }

  int64_t used() const { return used_; }

 private:
  static int64_t divide_up64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

  static constexpr int64_t kSlack = kLanes * sizeof(float);  // vector loads and stores may pass the end of the last row
  char* memory_;
  int64_t used_ = 0;
};

int64_t padded(int64_t size) { return round_up(static_cast<int>(size), kGroup); }

// `T` is the type of queries, keys and values; `Rows` converts rows of activations for matrix products.
template <typename T, typename Rows>
class Forward {
 public:
  Forward(const PellucidDecoder& decoder, int num_tokens, char* memory) : d_(decoder), arena_(memory) {
    const PellucidAttention& a = d_.attention;
    q_size_ = a.num_heads * a.head_dim;
    kv_size_ = a.num_kv_heads * a.head_dim;
    projected_size_ = std::max(q_size_ + 2 * kv_size_, 2 * d_.intermediate_size);
    const int64_t widest = std::max({d_.hidden_size, d_.intermediate_size, q_size_});
    x_ = arena_.take<float>(num_tokens * int64_t{d_.hidden_size});
    branch_ = arena_.take<float>(num_tokens * int64_t{d_.hidden_size});
    projected_ = arena_.take<float>(num_tokens * projected_size_);
    query_ = arena_.take<T>(num_tokens * int64_t{q_size_});
    key_ = arena_.take<T>(num_tokens * int64_t{kv_size_});
    value_ = arena_.take<T>(num_tokens * int64_t{kv_size_});
    attended_ = arena_.take<T>(num_tokens * padded(q_size_));
    const int num_groups = Rows::num_groups(static_cast<int>(widest));
    data_ = arena_.take<char>(num_tokens * Rows::stride(static_cast<int>(widest)));
    low_ = arena_.take<char>(num_tokens * int64_t{num_groups} * kGroup);
    groups_ = arena_.take<Group>(num_tokens * int64_t{num_groups});
    decomposed_ = arena_.take<uint64_t>(num_tokens * int64_t{mask_words(num_groups)});
    for (int rope = 0; rope < d_.num_ropes; ++rope) num_angles_ += d_.ropes[rope].num_pairs;
    cos_ = arena_.take<float>(num_tokens * num_angles_);
    sin_ = arena_.take<float>(num_tokens * num_angles_);
    num_tokens_ = num_tokens;
  }

  int64_t memory() const { return arena_.used(); }

  // Hidden states of the requested rows after the final norm: float32 [rows][hidden_size].
  void run(const PellucidTokens& tokens, const PellucidBatch& batch, char* cache, int64_t layer_bytes, float* hidden) {
    Team::run(d_.attention.num_threads, kLayerPhases * d_.num_layers + 2, [&](Team& team) {
      std::vector<float> row(padded(std::max({d_.hidden_size, d_.intermediate_size, q_size_ + 2 * kv_size_})));
      begin(team, tokens, row.data());
      for (int layer = 0; layer < d_.num_layers; ++layer) {
        attend(team, d_.layers[layer], batch, cache + layer * layer_bytes, row.data());
        const float* next = layer + 1 < d_.num_layers ? d_.layers[layer + 1].before_attention : nullptr;
        feed_forward(team, d_.layers[layer], layer + 1 < d_.num_layers, next, row.data());
      }
      team.parallel_for(static_cast<int>(tokens.num_rows), [&](int64_t index) {
        norm(x(tokens.rows[index]), d_.norm, d_.eps, d_.hidden_size, hidden + index * d_.hidden_size);
      });
    });
  }

  // float32 [rows][hidden_size] -> [rows][vocab_size]
  void logits(const float* hidden, float* logits) {
    Team::run(d_.attention.num_threads, 2, [&](Team& team) {
      std::vector<float> row(padded(d_.hidden_size));
      team.parallel_for(num_tokens_, [&](int64_t index) {
        std::copy_n(hidden + index * d_.hidden_size, d_.hidden_size, row.data());
        write(row.data(), d_.hidden_size, index);
      });
      const Activations input = activations(d_.hidden_size);
      multiply(team, d_.head, input, num_tokens_, [&](int64_t index, int output, int count, Floats sums) {
        if (d_.logit_softcap > 0) sums = d_.logit_softcap * tanh(sums / d_.logit_softcap);
        store_partial(logits + index * d_.embedding.outputs + output, sums, count);
      });
    });
  }

 private:
  static constexpr int kLayerPhases = 10;

  float* x(int64_t token) const { return x_ + token * d_.hidden_size; }

  Activations activations(int size) const {
    return {data_, Rows::stride(size), low_, groups_, decomposed_, Rows::num_groups(size)};
  }

  // Converts `size` elements of `row`, which has room for padding, to row `index` of the next product's activations.
  void write(float* row, int size, int64_t index) const {
    std::fill(row + size, row + padded(size), 0.0f);
    const int64_t stride = Rows::stride(size), num_groups = Rows::num_groups(size);
    Rows::write(row, size,
                {data_ + index * stride, low_ + index * stride, groups_ + index * num_groups,
                 decomposed_ + index * mask_words(static_cast<int>(num_groups))});
  }

  void write_normed(int64_t token, const float* weight, float* row, int64_t index) const {
    if (weight == nullptr) {
      std::copy_n(x(token), d_.hidden_size, row);
    } else {
      norm(x(token), weight, d_.eps, d_.hidden_size, row);
    }
    write(row, d_.hidden_size, index);
  }

  // Embeddings, rotary angles, and the input of the first layer.
  void begin(Team& team, const PellucidTokens& tokens, float* row) {
    team.parallel_for(num_tokens_, [&](int token) {
      const RowReader embedding(d_.embedding, tokens.input_ids[token]);
      for (int i = 0; i < d_.hidden_size; ++i) x(token)[i] = embedding[i] * d_.embedding_scale;
      int64_t angle = token * num_angles_;
      for (int rope = 0; rope < d_.num_ropes; ++rope) {
        const PellucidRope& r = d_.ropes[rope];
        for (int pair = 0; pair < r.num_pairs; ++pair, ++angle) {
          const float radians = static_cast<float>(tokens.positions[token]) * r.inverse_frequencies[pair];
          cos_[angle] = std::cos(radians) * r.attention_factor;
          sin_[angle] = std::sin(radians) * r.attention_factor;
        }
      }
      // The padding after the last head is multiplied too, by zero weights.
      std::fill(attended_ + token * padded(q_size_) + q_size_, attended_ + (token + 1) * padded(q_size_), T{});
      write_normed(token, d_.layers[0].before_attention, row, token);
    });
  }

  void attend(Team& team, const PellucidLayer& layer, const PellucidBatch& batch, char* cache, float* row) {
    const int size = q_size_ + 2 * kv_size_;
    const Activations input = activations(d_.hidden_size);
    multiply(team, layer.qkv, input, num_tokens_, [&](int token, int output, int count, Floats sums) {
      store_partial(projected_ + int64_t{token} * size + output, sums, count);
    });
    const PellucidRows query{query_, q_size_}, key{key_, kv_size_}, value{value_, kv_size_};
    const PellucidRows attended{attended_, padded(q_size_)};
    with_attention<T>(d_.attention, batch, cache, layer.window, [&](const auto& attention) {
      team.parallel_for(num_tokens_, [&](int token) {
        prepare_heads(layer, token, row);
        attention.put(token, key, value);
      });
      attention.attend(team, query, attended);
    });
    add_branch(team, layer.out, attended_activations(team, row), layer.after_attention != nullptr);
    end_branch(team, layer.after_attention, true, layer.before_mlp, row);
  }

  // Normalises and rotates queries and keys of a token, and rounds them and the values.
  void prepare_heads(const PellucidLayer& layer, int64_t token, float* row) const {
    const PellucidAttention& a = d_.attention;
    std::copy_n(projected_ + token * (q_size_ + 2 * kv_size_), q_size_ + 2 * kv_size_, row);
    norm_heads(row, layer.query_norm, q_size_);
    norm_heads(row + q_size_, layer.key_norm, kv_size_);
    int64_t angle = token * num_angles_;
    for (int rope = 0; rope < layer.rope; ++rope) angle += d_.ropes[rope].num_pairs;
    for (int head = 0; head < a.num_heads + a.num_kv_heads; ++head) {
      rotate(row + head * a.head_dim, cos_ + angle, sin_ + angle, d_.ropes[layer.rope].num_pairs);
    }
    round(row, q_size_, query_ + token * q_size_);
    round(row + q_size_, kv_size_, key_ + token * kv_size_);
    round(row + q_size_ + kv_size_, kv_size_, value_ + token * kv_size_);
  }

  void norm_heads(float* heads, const float* weight, int size) const {
    if (d_.qk_norm == kNoQKNorm) return;
    const int normed = d_.qk_norm == kPerHead ? d_.attention.head_dim : size;
    for (int i = 0; i < size; i += normed) norm(heads + i, weight, d_.eps, normed, heads + i);
  }

  static void round(const float* from, int size, T* to) {
    alignas(64) T rounded[kLanes];
    for (int i = 0; i < size; i += kLanes) {
      const int count = std::min(kLanes, size - i);
      Element<T>::store_rounded(rounded, load_partial(from + i, count));
      std::copy_n(rounded, count, to + i);
    }
  }

  Activations attended_activations(Team& team, float* row) {
    if constexpr (Rows::kSameTypeAsAttention) {
      const int64_t stride = padded(q_size_) * int64_t{sizeof(T)};
      return {reinterpret_cast<const char*>(attended_), stride, nullptr, nullptr, nullptr, 0};
    }
    team.parallel_for(num_tokens_, [&](int64_t token) {
      const T* attended = attended_ + token * padded(q_size_);
      for (int i = 0; i < q_size_; ++i) row[i] = to_float(attended[i]);
      write(row, q_size_, token);
    });
    return activations(q_size_);
  }

  void feed_forward(Team& team, const PellucidLayer& layer, bool has_next_layer, const float* next_norm, float* row) {
    const int size = d_.intermediate_size;
    const Activations input = activations(d_.hidden_size);
    multiply(team, layer.gate_up, input, num_tokens_, [&](int token, int output, int count, Floats sums) {
      store_partial(projected_ + int64_t{token} * 2 * size + output, sums, count);
    });
    team.parallel_for(num_tokens_, [&](int64_t token) {
      const float* gates = projected_ + token * 2 * size;
      if (d_.activation == kSilu) {
        gate(gates, gates + size, size, row, silu);
      } else {
        gate(gates, gates + size, size, row, gelu);
      }
      write(row, size, token);
    });
    add_branch(team, layer.down, activations(size), layer.after_mlp != nullptr);
    if (has_next_layer || layer.after_mlp != nullptr) end_branch(team, layer.after_mlp, has_next_layer, next_norm, row);
  }

  // Output projection of attention or MLP. Its result is added to the residual stream at once, or by `end_branch` if it
  // is normalised first.
  void add_branch(Team& team, const PellucidLinear& linear, const Activations& input, bool normed) {
    float* to = normed ? branch_ : x_;
    multiply(team, linear, input, num_tokens_, [&](int token, int output, int count, Floats sums) {
      float* place = to + int64_t{token} * d_.hidden_size + output;
      store_partial(place, normed ? sums : sums + load_partial(place, count), count);
    });
  }

  void end_branch(Team& team, const float* after, bool has_next_layer, const float* next, float* row) {
    team.parallel_for(num_tokens_, [&](int64_t token) {
      if (after != nullptr) {
        norm(branch_ + token * d_.hidden_size, after, d_.eps, d_.hidden_size, row);
        for (int i = 0; i < d_.hidden_size; ++i) x(token)[i] += row[i];
      }
      if (has_next_layer) write_normed(token, next, row, token);
    });
  }

  const PellucidDecoder& d_;
  Arena arena_;
  int64_t num_tokens_, num_angles_ = 0;
  int q_size_, kv_size_;
  int64_t projected_size_;
  float *x_, *branch_, *projected_, *cos_, *sin_;
  T *query_, *key_, *value_, *attended_;
  char *data_, *low_;
  Group* groups_;
  uint64_t* decomposed_;
};

template <typename Use>
auto dispatch(const PellucidDecoder& decoder, int num_tokens, char* memory, const Use& use) {
  switch (decoder.format) {
    case kFloat32: {
      Forward<float, FloatRows<float>> forward(decoder, num_tokens, memory);
      return use(forward);
    }
    case kBfloat16: {
      Forward<Bfloat16, FloatRows<Bfloat16>> forward(decoder, num_tokens, memory);
      return use(forward);
    }
    case kInt8: {
      Forward<Bfloat16, IntegerRows<kOutliers>> forward(decoder, num_tokens, memory);
      return use(forward);
    }
    default: {
      Forward<Bfloat16, IntegerRows<kAll>> forward(decoder, num_tokens, memory);
      return use(forward);
    }
  }
}

}  // namespace
}  // namespace pellucid

extern "C" int32_t pellucid_lanes() { return pellucid::kLanes; }

extern "C" int32_t pellucid_has_fast_int8() { return pellucid::kHasFastInt8; }

// Workspace size in bytes of a step with `num_tokens` tokens.
extern "C" int64_t pellucid_workspace_bytes(const PellucidDecoder* decoder, int32_t num_tokens) {
  return pellucid::dispatch(*decoder, num_tokens, nullptr, [](auto& forward) { return forward.memory(); });
}

// Writes the hidden states, float32 [rows][hidden_size]. The KV cache has `layer_bytes` per layer; `workspace` is
// aligned to 64 bytes.
extern "C" void pellucid_forward(const PellucidDecoder* decoder, const PellucidTokens* tokens,
                                 const PellucidBatch* batch, void* cache, int64_t layer_bytes, void* workspace,
                                 float* hidden) {
  pellucid::dispatch(*decoder, batch->num_tokens, static_cast<char*>(workspace), [&](auto& forward) {
    forward.run(*tokens, *batch, static_cast<char*>(cache), layer_bytes, hidden);
  });
}

// Writes the logits, float32 [rows][vocab_size], of hidden states [rows][hidden_size].
extern "C" void pellucid_logits(const PellucidDecoder* decoder, const float* hidden, int32_t num_rows, void* workspace,
                                float* logits) {
  pellucid::dispatch(*decoder, num_rows, static_cast<char*>(workspace),
                       [&](auto& forward) { forward.logits(hidden, logits); });
}
