// Vectors of the CPU's register width, with the compiler's vector extensions: one source for all CPUs.
//
// A *word* is 32 bits: one float, or two bfloat16, the first in the lower half. Products are computed word by word, to
// use instructions that multiply pairs of bfloat16.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

// For loops over arrays that must stay in registers: by default the compiler unrolls short loops only.
#define PELLUCID_UNROLL _Pragma("GCC unroll 16")

// Lanes of a vector. Tests may compile the products for 16 lanes on any CPU: then vectors are several registers.
#if !defined(PELLUCID_LANES)
#if defined(__AVX512F__)
#define PELLUCID_LANES 16
#elif defined(__AVX__)
#define PELLUCID_LANES 8
#else
#define PELLUCID_LANES 4
#endif
#endif

namespace pellucid {

constexpr int kLanes = PELLUCID_LANES;
#if PELLUCID_LANES == 16 || defined(__aarch64__)
constexpr int kRegisters = 32;
#else
constexpr int kRegisters = 16;
#endif

using Floats = float __attribute__((vector_size(4 * kLanes)));
using Ints = int32_t __attribute__((vector_size(4 * kLanes)));
using Words = uint32_t __attribute__((vector_size(4 * kLanes)));
using Halves = uint16_t __attribute__((vector_size(2 * kLanes)));

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

// The first min(count, kLanes) lanes, zeros in the others.
inline Floats load_partial(const float* from, int count) {
  if (count >= kLanes) return load<Floats>(from);
  Floats vector = {};
  std::memcpy(&vector, from, count * sizeof(float));
  return vector;
}

inline void store_partial(float* to, const Floats& vector, int count) {
  if (count >= kLanes) return store(to, vector);
  std::memcpy(to, &vector, count * sizeof(float));
}

inline float to_float(float x) { return x; }
inline float to_float(Bfloat16 x) { return bit_cast<float>(uint32_t{x.bits} << 16); }

// Not Floats{} + x, which compilers must compute, because it turns -0 into 0.
inline Floats splat(float x) { return bit_cast<Floats>(Words{} + bit_cast<uint32_t>(x)); }
inline Ints splat(int32_t x) { return Ints{} + x; }

// a * b + c, rounded once if the CPU has FMA. -ffp-contract=off keeps the compiler from fusing other products, so that
// a sum is the same in every unrolled version of a loop.
inline Floats fma(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
  return bit_cast<Floats>(_mm512_fmadd_ps(bit_cast<__m512>(a), bit_cast<__m512>(b), bit_cast<__m512>(c)));
#elif PELLUCID_LANES == 8 && defined(__FMA__)
  return bit_cast<Floats>(_mm256_fmadd_ps(bit_cast<__m256>(a), bit_cast<__m256>(b), bit_cast<__m256>(c)));
#elif PELLUCID_LANES == 4 && defined(__aarch64__)
  return bit_cast<Floats>(vfmaq_f32(bit_cast<float32x4_t>(c), bit_cast<float32x4_t>(a), bit_cast<float32x4_t>(b)));
#else
  return a * b + c;
#endif
}

// Rounds to nearest even. On CPUs without bfloat16, NaN may become another NaN or a finite number.
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
    return fma(splat(bit_cast<float>(a)), bit_cast<Floats>(b), sums);
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
    sums = fma(splat(bit_cast<float>(a << 16)), bit_cast<Floats>(b << 16), sums);
    return fma(splat(bit_cast<float>(a & upper)), bit_cast<Floats>(b & upper), sums);
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

template <int kWidth>
struct Vector {
  typedef float Type __attribute__((vector_size(4 * kWidth)));
};

// Reduces all lanes to one, in a fixed order.
template <int kWidth = kLanes, typename Operation>
inline float reduce(typename Vector<kWidth>::Type x, Operation op) {
  if constexpr (kWidth == 4) {
    return op(op(x[0], x[2]), op(x[1], x[3]));
  } else {
    struct Halves { typename Vector<kWidth / 2>::Type low, high; } halves = bit_cast<Halves>(x);
    return reduce<kWidth / 2>(op(halves.low, halves.high), op);
  }
}

// e^x, to about one ulp. exp(0) is 1; below -87, where results would be subnormal, the result is 0; above 88 it is
// e^88. Range reduction and polynomial as in Cephes' expf.
inline Floats exp(Floats x) {
  const Floats bounded = x > splat(88.0f) ? splat(88.0f) : x;
  const Floats rounder = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Floats shifted = fma(bounded, splat(1.44269504f), rounder);
  const Floats n = shifted - rounder;
  const Floats r = fma(n, splat(2.12194440e-4f), fma(n, splat(-0.693359375f), bounded));
  Floats p = splat(1.9875691500e-4f);
  p = fma(p, r, splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  p = fma(p, r * r, r) + 1.0f;
  const Ints exponent = (bit_cast<Ints>(shifted) - bit_cast<Ints>(rounder)) << 23;
  const Floats result = bit_cast<Floats>(bit_cast<Ints>(p) + exponent);
  return x < splat(-87.0f) ? Floats{} : result;
}

inline Floats tanh(Floats x) { return 1.0f - 2.0f / (exp(x + x) + 1.0f); }

}  // namespace pellucid
