// Dot products of a group's weights and activations in integers, with the best instructions of each CPU. They are exact,
// so all CPUs have the same sums.
//
// `EightBitProducts` and `FourBitProducts` have the same members: `Weights` is one vector of packed words, prepared once
// for all rows; `Sums` are partial sums over the vectors of one group; kBytes are the activations per vector of weights.
#pragma once

#include "simd.h"

namespace pellucid {

#if PELLUCID_LANES == 16 && defined(__AVX512VNNI__)
#define PELLUCID_DOT_PRODUCTS
#elif PELLUCID_LANES == 8 && defined(__AVXVNNI__)
#define PELLUCID_DOT_PRODUCTS
#elif PELLUCID_LANES == 4 && defined(__ARM_FEATURE_DOTPROD)
#define PELLUCID_DOT_PRODUCTS
#elif PELLUCID_LANES == 16 && defined(__AVX512BW__)
#define PELLUCID_PAIR_PRODUCTS
#elif PELLUCID_LANES == 8 && defined(__AVX2__)
#define PELLUCID_PAIR_PRODUCTS
#endif

#if defined(PELLUCID_DOT_PRODUCTS) || defined(PELLUCID_PAIR_PRODUCTS)
constexpr bool kHasFastInt8 = true;
#else
constexpr bool kHasFastInt8 = false;
#endif

constexpr uint32_t kLowNibbles = 0x0f0f0f0fu;
constexpr uint32_t kSignBits = 0x80808080u;  // flipping them turns a byte with 128 added into a signed byte

inline Words broadcast(const char* activations) { return Words{} + load<uint32_t>(activations); }

#ifdef PELLUCID_PAIR_PRODUCTS  // 16-bit sums of two products, saturated

#if PELLUCID_LANES == 16
using Register = __m512i;
inline Register ones() { return _mm512_set1_epi16(1); }
inline Register add_pairs(Register x) { return _mm512_madd_epi16(x, ones()); }
inline Register add_shorts(Register a, Register b) { return _mm512_add_epi16(a, b); }
inline Register multiply_pairs(Register weights, Register activations) {
  return _mm512_maddubs_epi16(weights, activations);
}
inline Register magnitudes(Register x) { return _mm512_abs_epi8(x); }
inline Register with_signs(Register x, Register signs) {
  return _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(signs), Register{}, x);
}
#else
using Register = __m256i;
inline Register ones() { return _mm256_set1_epi16(1); }
inline Register add_pairs(Register x) { return _mm256_madd_epi16(x, ones()); }
inline Register add_shorts(Register a, Register b) { return _mm256_add_epi16(a, b); }
inline Register multiply_pairs(Register weights, Register activations) {
  return _mm256_maddubs_epi16(weights, activations);
}
inline Register magnitudes(Register x) { return _mm256_abs_epi8(x); }
inline Register with_signs(Register x, Register signs) { return _mm256_sign_epi8(x, signs); }
#endif

// Else GCC computes all products of an unrolled loop first, and keeps them on the stack.
template <typename Vector>
inline Vector in_register(Vector sums) {
  asm("" : "+v"(sums));
  return sums;
}

// The magnitude of a weight times the activation with the weight's sign: two products are at most 2 * 128 * 127, which
// fits into 16 bits.
struct EightBitProducts {
  using Sums = Ints;
  static constexpr int kBytes = 4;

  struct Weights {
    explicit Weights(Words words)
        : values(bit_cast<Register>(words ^ kSignBits)), absolute(magnitudes(values)) {}
    Register values, absolute;
  };

  static Sums start(int32_t) { return Sums{}; }

  static Sums add(Sums sums, const Weights& weights, const char* activations) {
    const Register moved = with_signs(bit_cast<Register>(broadcast(activations)), weights.values);
    return in_register(sums + bit_cast<Ints>(add_pairs(multiply_pairs(weights.absolute, moved))));
  }

  static Ints total(Sums sums) { return sums; }
};

// The sums of a group fit into 16 bits: 8 * 2 * 15 * 127 is 30,480.
struct FourBitProducts {
  using Sums = Register;
  static constexpr int kBytes = 8;

  struct Weights {
    explicit Weights(Words words)
        : low(bit_cast<Register>(words & kLowNibbles)), high(bit_cast<Register>((words >> 4) & kLowNibbles)) {}
    Register low, high;
  };

  static Sums start(int32_t) { return Sums{}; }

  static Sums add(Sums sums, const Weights& weights, const char* activations) {
    sums = in_register(add_shorts(sums, multiply_pairs(weights.low, bit_cast<Register>(broadcast(activations)))));
    return in_register(
        add_shorts(sums, multiply_pairs(weights.high, bit_cast<Register>(broadcast(activations + 4)))));
  }

  static Ints total(Sums sums) { return bit_cast<Ints>(add_pairs(sums)); }
};

#else

#if defined(PELLUCID_DOT_PRODUCTS) && defined(__ARM_FEATURE_DOTPROD) && !defined(__ARM_FEATURE_MATMUL_INT8)
constexpr bool kSignedWeights = true;
#else
constexpr bool kSignedWeights = false;
#endif

// sums + dot products of the four bytes of each word. Those of `weights` are signed if kSignedWeights, else unsigned.
inline Ints add_products(Ints sums, Words weights, Words activations) {
#if !defined(PELLUCID_DOT_PRODUCTS)
  for (int byte = 0; byte < 4; ++byte) {
    const Ints activation = bit_cast<Ints>(activations << (24 - 8 * byte)) >> 24;
    sums += bit_cast<Ints>((weights >> (8 * byte)) & 0xff) * activation;
  }
  return sums;
#elif defined(__AVX512VNNI__)
  return bit_cast<Ints>(
      _mm512_dpbusd_epi32(bit_cast<__m512i>(sums), bit_cast<__m512i>(weights), bit_cast<__m512i>(activations)));
#elif defined(__AVXVNNI__)
  return bit_cast<Ints>(
      _mm256_dpbusd_avx_epi32(bit_cast<__m256i>(sums), bit_cast<__m256i>(weights), bit_cast<__m256i>(activations)));
#elif defined(__ARM_FEATURE_MATMUL_INT8)
  return bit_cast<Ints>(
      vusdotq_s32(bit_cast<int32x4_t>(sums), bit_cast<uint8x16_t>(weights), bit_cast<int8x16_t>(activations)));
#else
  return bit_cast<Ints>(
      vdotq_s32(bit_cast<int32x4_t>(sums), bit_cast<int8x16_t>(weights), bit_cast<int8x16_t>(activations)));
#endif
}

struct EightBitProducts {
  using Sums = Ints;
  static constexpr int kBytes = 4;

  struct Weights {
    explicit Weights(Words words) : values(kSignedWeights ? words ^ kSignBits : words) {}
    Words values;
  };

  // `offset` is -128 times the sum of the activations.
  static Sums start(int32_t offset) { return splat(kSignedWeights ? 0 : offset); }

  static Sums add(Sums sums, const Weights& weights, const char* activations) {
    return add_products(sums, weights.values, broadcast(activations));
  }

  static Ints total(Sums sums) { return sums; }
};

struct FourBitProducts {
  using Sums = Ints;
  static constexpr int kBytes = 8;

  struct Weights {
    explicit Weights(Words words) : low(words & kLowNibbles), high((words >> 4) & kLowNibbles) {}
    Words low, high;
  };

  static Sums start(int32_t) { return Sums{}; }

  static Sums add(Sums sums, const Weights& weights, const char* activations) {
    sums = add_products(sums, weights.low, broadcast(activations));
    return add_products(sums, weights.high, broadcast(activations + 4));
  }

  static Ints total(Sums sums) { return sums; }
};

#endif

}  // namespace pellucid
