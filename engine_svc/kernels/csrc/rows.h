// Operations on single rows of activations: norms, rotation, gated activations, rounding and quantisation for products.
//
// Rows are float32, padded with zeros to a multiple of kGroup.
#pragma once

#include <cmath>

#include "matrix.h"
#include "simd.h"

namespace pellucid {

inline float sum_of_squares(const float* x, int size) {
  Floats sums = {};
  int i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    const Floats part = load<Floats>(x + i);
    sums = fma(part, part, sums);
  }
  float sum = reduce(sums, Sum());
  for (; i < size; ++i) sum += x[i] * x[i];
  return sum;
}

// out = x / rms(x) * weight; `out` may be `x`.
inline void norm(const float* x, const float* weight, float eps, int size, float* out) {
  const float factor = 1.0f / std::sqrt(sum_of_squares(x, size) / size + eps);
  for (int i = 0; i < size; ++i) out[i] = x[i] * factor * weight[i];
}

// Rotates the pairs (i, i + num_pairs) of a head.
inline void rotate(float* head, const float* cos, const float* sin, int num_pairs) {
  for (int i = 0; i < num_pairs; ++i) {
    const float first = head[i], second = head[i + num_pairs];
    head[i] = first * cos[i] - second * sin[i];
    head[i + num_pairs] = second * cos[i] + first * sin[i];
  }
}

inline Floats silu(Floats x) { return x / (1.0f + exp(-x)); }

// The tanh approximation (Hendrycks, Gimpel 2016).
inline Floats gelu(Floats x) {
  return 0.5f * x * (1.0f + tanh(0.7978845608f * fma(x * x * x, splat(0.044715f), x)));
}

// out = activation(gate) * up; reads and writes whole vectors, so up to kLanes - 1 elements past the end.
template <typename Activation>
void gate(const float* gates, const float* up, int size, float* out, Activation activation) {
  for (int i = 0; i < size; i += kLanes) store(out + i, activation(load<Floats>(gates + i)) * load<Floats>(up + i));
}

// Destination of one converted row: its part of `Activations`.
struct ActivationRow {
  char* data;
  char* low;
  Group* groups;
  uint64_t* decomposed;
};

// Rows of float activations, in the model's dtype.
template <typename T>
struct FloatRows {
  static constexpr bool kSameTypeAsAttention = true;  // the output of attention needs no conversion

  static int64_t stride(int size) { return int64_t{divide_up(size, kGroup)} * kGroup * sizeof(T); }
  static int num_groups(int) { return 0; }

  static void write(const float* x, int size, const ActivationRow& to) {
    for (int i = 0; i < size; i += kLanes) {
      Element<T>::store_rounded(reinterpret_cast<T*>(to.data) + i, load<Floats>(x + i));
    }
  }
};

// Groups of a row that are decomposed into high and low int8 parts.
enum Decomposed { kOutliers, kAll };

// Rows of int8 activations, quantised in groups of 32 with scale = absmax / 127. Some channels of a model are many
// times as large as the others (outliers), and rounding in their groups causes most of the error of a row. A group
// whose squared absmax is above twice the mean over the groups of the row is an outlier group, and is decomposed: a
// second int8, the low part, holds the remainder of the first, the high part. (Separate treatment of outliers:
// LLM.int8(), Dettmers et al. 2022.)
template <Decomposed kWhich>
struct IntegerRows {
  static constexpr bool kSameTypeAsAttention = false;

  static int64_t stride(int size) { return int64_t{num_groups(size)} * kGroup; }
  static int num_groups(int size) { return divide_up(size, kGroup); }

  static void write(const float* x, int size, const ActivationRow& to) {
    const int count = num_groups(size);
    float squares = 0.0f;
    for (int i = 0; i < count; ++i) {
      to.groups[i].scale = max_abs(x + i * kGroup) / kMaxInt8;
      squares += to.groups[i].scale * to.groups[i].scale;
    }
    const float threshold = 2.0f * squares / static_cast<float>(count);
    std::fill_n(to.decomposed, mask_words(count), uint64_t{0});
    for (int i = 0; i < count; ++i) {
      const bool decomposed = kWhich == kAll || to.groups[i].scale * to.groups[i].scale > threshold;
      to.decomposed[i / 64] |= uint64_t{decomposed} << (i % 64);
      write_group(x + i * kGroup, decomposed, to.data + i * kGroup, to.low + i * kGroup, to.groups[i]);
    }
  }

 private:
  static constexpr int kVectors = kGroup / kLanes;
  static constexpr float kMaxInt8 = 127.0f;
  using Bytes = int8_t __attribute__((vector_size(kLanes)));

  // NaN if the group has a NaN or an infinity: these must not become finite by quantisation.
  static float max_abs(const float* x) {
    Floats maximum = {}, poison = {};
    for (int i = 0; i < kVectors; ++i) {
      const Floats values = load<Floats>(x + i * kLanes);
      maximum = Max()(maximum, Max()(values, -values));
      poison = fma(values, Floats{}, poison);
    }
    return reduce(maximum, Max()) + reduce(poison, Sum());
  }

  // x = scale * (high + 2^-7 * low). Groups whose scale is too small become zeros. If the scale is NaN, the integers
  // are zeros too, and the product with the scale is NaN.
  static void write_group(const float* x, bool decomposed, char* highs, char* lows, Group& group) {
    const bool has_scale = group.scale > 0x1p-100f;
    const float inverse = has_scale ? (decomposed ? 0x1p7f : 1.0f) / group.scale : 0.0f;
    Ints sums[2] = {};
    for (int i = 0; i < kVectors; ++i) {
      const Ints integers = has_scale ? rounded(load<Floats>(x + i * kLanes) * inverse) : Ints{};
      const Ints high = decomposed ? (integers + 64) >> 7 : integers;
      const Ints low = decomposed ? integers - (high << 7) : Ints{};
      store(highs + i * kLanes, __builtin_convertvector(high, Bytes));
      store(lows + i * kLanes, __builtin_convertvector(low, Bytes));
      sums[0] += high;
      sums[1] += low;
    }
    const int32_t high = total(sums[0]), low = total(sums[1]);
    group.sum = group.scale * (static_cast<float>(high) + static_cast<float>(low) * 0x1p-7f);
    group.offsets[0] = -128 * high;
    group.offsets[1] = -128 * low;
  }

  static Ints rounded(Floats x) {
    const Floats rounder = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
    return bit_cast<Ints>(x + rounder) - bit_cast<Ints>(rounder);
  }

  static int32_t total(Ints values) {
    int32_t sum = 0;
    for (int lane = 0; lane < kLanes; ++lane) sum += values[lane];
    return sum;
  }
};

// Reads one row of a packed matrix, for embedding lookup.
class RowReader {
 public:
  RowReader(const PellucidMatrix& matrix, int64_t row)
      : matrix_(matrix),
        panel_(static_cast<const char*>(matrix.panels) + row / kLanes * matrix.panel_bytes),
        lane_(static_cast<int>(row % kLanes)) {}

  float operator[](int input) const {
    switch (matrix_.format) {
      case kFloat32: return load<float>(at(input));
      case kBfloat16: return to_float(load<Bfloat16>(at(input / 2) + input % 2 * 2));
      case kInt8: return scale(input) * static_cast<float>(byte(input / 4, input % 4) - 128);
      default: {
        const int nibbles = byte(input / 8, input % 4);
        const int value = input % 8 < 4 ? nibbles & 15 : nibbles >> 4;
        return scale(input) * static_cast<float>(value) + of_group(kMinimum, input);
      }
    }
  }

 private:
  const char* at(int word) const { return panel_ + (int64_t{word} * kLanes + lane_) * 4; }
  int byte(int word, int index) const { return static_cast<uint8_t>(at(word)[index]); }
  float scale(int input) const { return of_group(kScale, input); }

  float of_group(GroupParameter kind, int input) const {
    const int group_vectors = matrix_.format == kInt4 ? kGroupWords / 2 : kGroupWords;
    return group_parameters(panel_, divide_up(matrix_.inputs, kGroup), group_vectors, kind, input / kGroup)[lane_];
  }

  const PellucidMatrix& matrix_;
  const char* panel_;
  int lane_;
};

}  // namespace pellucid
