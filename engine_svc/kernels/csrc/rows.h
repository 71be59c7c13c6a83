// What is done with one row of activations at a time: norms, rotation, gates, and making it ready to be multiplied.
//
// Rows are float32 and may be read up to the next multiple of kGroup, where zeros lie.
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

// Turns the pairs (i, i + num_pairs) of a head.
inline void rotate(float* head, const float* cos, const float* sin, int num_pairs) {
  for (int i = 0; i < num_pairs; ++i) {
    const float first = head[i], second = head[i + num_pairs];
    head[i] = first * cos[i] - second * sin[i];
    head[i + num_pairs] = second * cos[i] + first * sin[i];
  }
}

inline Floats silu(Floats x) { return x / (1.0f + exp(-x)); }

// The approximation with tanh (Hendrycks, Gimpel 2016).
inline Floats gelu(Floats x) {
  return 0.5f * x * (1.0f + tanh(0.7978845608f * fma(x * x * x, splat(0.044715f), x)));
}

// out = activation(gate) * up; all three may be read and written a vector too far.
template <typename Activation>
void gate(const float* gates, const float* up, int size, float* out, Activation activation) {
  for (int i = 0; i < size; i += kLanes) store(out + i, activation(load<Floats>(gates + i)) * load<Floats>(up + i));
}

// Rows of floats of a model's own type.
template <typename T>
struct FloatRows {
  static constexpr bool kTakesAttention = true;  // its result is such rows already

  static int64_t stride(int size) { return int64_t{divide_up(size, kGroup)} * kGroup * sizeof(T); }
  static int64_t num_groups(int) { return 0; }

  static void write(const float* x, int size, char* data, Group*) {
    for (int i = 0; i < size; i += kLanes) Element<T>::store_rounded(reinterpret_cast<T*>(data) + i, load<Floats>(x + i));
  }
};

// Rows of integers, each group of 32 divided by its largest number / 127, or / (127 * 128) with two digits.
template <int kDigits>
struct IntegerRows {
  static constexpr bool kTakesAttention = false;

  static int64_t stride(int size) { return num_groups(size) * kDigits * kGroup; }
  static int64_t num_groups(int size) { return divide_up(size, kGroup); }

  static void write(const float* x, int size, char* data, Group* groups) {
    for (int group = 0; group * kGroup < size; ++group) {
      groups[group] = write(x + group * kGroup, data + group * kDigits * kGroup);
    }
  }

 private:
  static constexpr int kVectors = kGroup / kLanes;
  static constexpr float kLargest = kDigits == 1 ? 127.0f : 127.0f * 128.0f;
  using Bytes = int8_t __attribute__((vector_size(kLanes)));

  static Group write(const float* x, char* data) {
    Floats values[kVectors], largest = {}, poison = {};
    for (int i = 0; i < kVectors; ++i) {
      values[i] = load<Floats>(x + i * kLanes);
      largest = Max()(largest, Max()(values[i], -values[i]));
      poison = fma(values[i], Floats{}, poison);  // NaN and infinity must not become numbers
    }
    const float most = reduce(largest, Max()) + reduce(poison, Sum());
    const float inverse = most > 0.0f ? kLargest / most : 0.0f;
    const Floats rounder = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
    Ints sum = {};
    for (int i = 0; i < kVectors; ++i) {
      const Ints integers = bit_cast<Ints>(fma(values[i], splat(inverse), rounder)) - bit_cast<Ints>(rounder);
      const Ints upper = kDigits == 1 ? integers : (integers + 64) >> 7;
      store(data + i * kLanes, __builtin_convertvector(upper, Bytes));
      if (kDigits > 1) store(data + kGroup + i * kLanes, __builtin_convertvector(integers - (upper << 7), Bytes));
      sum += integers;
    }
    int32_t total = 0;
    for (int lane = 0; lane < kLanes; ++lane) total += sum[lane];
    const float scale = most / kLargest;
    return {scale, scale * static_cast<float>(total), -128 * total};
  }
};

// Row `row` of a matrix, as for looking up an embedding.
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
        const int both = byte(input / 8, input % 4);
        const int number = input % 8 < 4 ? both & 15 : both >> 4;
        return scale(input) * static_cast<float>(number) + float16(1, input);
      }
    }
  }

 private:
  const char* at(int word) const { return panel_ + (int64_t{word} * kLanes + lane_) * 4; }
  int byte(int word, int index) const { return static_cast<uint8_t>(at(word)[index]); }
  int num_groups() const { return divide_up(matrix_.inputs, kGroup); }
  int num_words() const { return num_groups() * (matrix_.format == kInt4 ? kGroupWords / 2 : kGroupWords); }
  float scale(int input) const { return float16(0, input); }

  // Scales are of kind 0, minima of kind 1.
  float float16(int kind, int input) const {
    const char* numbers = panel_ + int64_t{num_words()} * kLanes * 4;
    const int64_t group = int64_t{kind} * num_groups() + input / kGroup;
    return load_float16(reinterpret_cast<const uint16_t*>(numbers) + group * kLanes)[lane_];
  }

  const PellucidMatrix& matrix_;
  const char* panel_;
  int lane_;
};

}  // namespace pellucid
