// The layout of packed weight matrices, and of activations converted for products.
//
// A matrix is packed in *panels* of kLanes outputs. A panel holds words [inputs / per_word][kLanes], so that one vector
// has the same inputs of all its outputs; a word is one float, two bfloat16, four 8-bit or eight 4-bit values. Integer
// formats are quantised in groups of 32 inputs: the words are followed by float16 scales [groups][kLanes], and for 4
// bits by float16 minima [groups][kLanes]; a weight is scale * value + minimum. 8-bit values are stored with 128 added.
// Of eight 4-bit values, the low nibbles of the bytes are the first four inputs.
#pragma once

#include <cstdint>

#include "simd.h"
#include "structures.h"

namespace pellucid {

constexpr int kGroup = 32;
constexpr int kGroupWords = kGroup / 4;

constexpr int divide_up(int x, int by) { return (x + by - 1) / by; }

// Words of a mask with a bit for each group.
constexpr int mask_words(int num_groups) { return divide_up(num_groups, 64); }

// Quantisation parameters of a group of a row, and the sums needed for the zero points and minima of weights.
struct Group {
  float scale;         // of the high part; that of the low part is scale / 2^7
  float sum;           // sum of the dequantised activations
  int32_t offsets[2];  // for the high and the low part, -128 times the sum of its integers
};

// Rows of activations, converted for products. `stride` is in bytes. The other fields are for integers: `data` holds
// the high parts and `low` the low parts, in the same layout, zeros in groups that are not decomposed; `groups`
// [rows][num_groups]; `decomposed` [rows][mask_words(num_groups)] has a bit for each group with a low part.
struct Activations {
  const char* data;
  int64_t stride;
  const char* low;
  const Group* groups;
  const uint64_t* decomposed;
  int num_groups;
};

#if defined(__AVX512F__)
inline Floats load_float16(const uint16_t* from) {
  return bit_cast<Floats>(_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))));
}
#elif PELLUCID_LANES == 8 && defined(__F16C__)
inline Floats load_float16(const uint16_t* from) {
  return bit_cast<Floats>(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}
#else
// A multiplication corrects the bias of the exponent, which also handles subnormals. Infinity is not supported.
inline Floats load_float16(const uint16_t* from) {
  const Words bits = __builtin_convertvector(load<Halves>(from), Words);
  const Floats magnitude = bit_cast<Floats>((bits & 0x7fff) << 13) * 0x1p112f;
  return bit_cast<Floats>(bit_cast<Words>(magnitude) | ((bits & 0x8000) << 16));
}
#endif

enum GroupParameter { kScale = 0, kMinimum = 1 };

// Scales or minima of a group for all outputs of a panel. They follow the words, `group_vectors` vectors per group.
inline Floats group_parameters(const char* panel, int num_groups, int group_vectors, GroupParameter kind, int group) {
  const int64_t words = int64_t{num_groups} * group_vectors * int64_t{sizeof(Words)};
  const int64_t index = int64_t{kind} * num_groups + group;
  return load_float16(reinterpret_cast<const uint16_t*>(panel + words + index * int64_t{sizeof(Halves)}));
}

}  // namespace pellucid
