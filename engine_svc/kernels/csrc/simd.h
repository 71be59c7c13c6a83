// Vectors of sixteen floats in the compilers' own vector types: one source for every processor.
//
// A *word* is 32 bits: one float, or two bfloat16 of which the first is the lower half. Products are taken word by word,
// so that processors which multiply pairs of bfloat16 can do so.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

namespace pellucid {

constexpr int kLanes = 16;

using Floats = float __attribute__((vector_size(64)));
using Ints = int32_t __attribute__((vector_size(64)));
using Words = uint32_t __attribute__((vector_size(64)));
using Halves = uint16_t __attribute__((vector_size(32)));

struct Bfloat16 {
  uint16_t bits;
};

template <typename To, typename From>
inline To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

template <typename Vector>
inline Vector load(const void* from) {
  Vector vector;
  std::memcpy(&vector, from, sizeof(vector));
  return vector;
}

template <typename Vector>
inline void store(void* to, const Vector& vector) {
  std::memcpy(to, &vector, sizeof(vector));
}

inline Floats splat(float x) { return Floats{} + x; }

inline float to_float(float x) { return x; }
inline float to_float(Bfloat16 x) { return bit_cast<float>(uint32_t{x.bits} << 16); }

// Rounded to nearest even. NaN may become another NaN or a number on processors without bfloat16.
inline Halves round_to_bfloat16(Floats x) {
#ifdef __AVX512BF16__
  return bit_cast<Halves>(_mm512_cvtneps_pbh(bit_cast<__m512>(x)));
#else
  const Words bits = bit_cast<Words>(x);
  return __builtin_convertvector((bits + 0x7fff + ((bits >> 16) & 1)) >> 16, Halves);
#endif
}

template <typename T>
struct Element;

template <>
struct Element<float> {
  static constexpr int kPerWord = 1;

  static void store_rounded(float* to, Floats x) { store(to, x); }

  // sums + a * b
  static Floats add_product(Floats sums, uint32_t a, Words b) {
    return sums + bit_cast<float>(a) * bit_cast<Floats>(b);
  }
};

template <>
struct Element<Bfloat16> {
  static constexpr int kPerWord = 2;

  static void store_rounded(Bfloat16* to, Floats x) { store(to, round_to_bfloat16(x)); }

  // sums + a[0] * b[0] + a[1] * b[1]
  static Floats add_product(Floats sums, uint32_t a, Words b) {
#ifdef __AVX512BF16__
    const auto pairs = bit_cast<__m512bh>(Words{} + a);
    return bit_cast<Floats>(_mm512_dpbf16_ps(bit_cast<__m512>(sums), pairs, bit_cast<__m512bh>(b)));
#else
    const uint32_t upper = 0xffff0000u;
    sums += bit_cast<float>(a << 16) * bit_cast<Floats>(b << 16);
    return sums + bit_cast<float>(a & upper) * bit_cast<Floats>(b & upper);
#endif
  }
};

struct Sum {
  template <typename V>
  V operator()(V a, V b) const { return a + b; }
};

struct Max {
  template <typename V>
  V operator()(V a, V b) const { return a > b ? a : b; }
};

// All lanes into one, always in the same order.
template <typename Operation>
inline float reduce(Floats x, Operation op) {
  using Eight = float __attribute__((vector_size(32)));
  using Four = float __attribute__((vector_size(16)));
  struct Eights { Eight low, high; } eights = bit_cast<Eights>(x);
  struct Fours { Four low, high; } fours = bit_cast<Fours>(op(eights.low, eights.high));
  const Four four = op(fours.low, fours.high);
  return op(op(four[0], four[2]), op(four[1], four[3]));
}

// e^x, to about one unit in the last place. exp(0) is 1; below -87, where results would be subnormal, 0; above 88 the
// value at 88. Reduction and polynomial as in Cephes' expf.
inline Floats exp(Floats x) {
  const Floats bounded = x > splat(88.0f) ? splat(88.0f) : x;
  const Floats rounder = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Floats shifted = bounded * 1.44269504f + rounder;
  const Floats n = shifted - rounder;
  const Floats r = bounded - n * 0.693359375f + n * 2.12194440e-4f;
  Floats p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const Ints exponent = (bit_cast<Ints>(shifted) - bit_cast<Ints>(rounder)) << 23;
  const Floats result = bit_cast<Floats>(bit_cast<Ints>(p) + exponent);
  return x < splat(-87.0f) ? Floats{} : result;
}

inline Floats tanh(Floats x) { return 1.0f - 2.0f / (exp(x + x) + 1.0f); }

}  // namespace pellucid
