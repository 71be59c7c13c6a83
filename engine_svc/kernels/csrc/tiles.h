// Matrix tiles of the CPU (Intel AMX): registers of up to 16 rows of 64 bytes, and their products.
//
// The semantics are those of Intel's Software Developer's Manual, volume 2. A class of tiles has the operations of
// `HardwareTiles`; tile numbers are template parameters because the instructions contain them.
#pragma once

#include <cstdint>
#include <type_traits>

#include "simd.h"

namespace pellucid {

constexpr int kNumTiles = 8;
constexpr int kTileRows = 16;
constexpr int kTileBytes = 64;  // of a row

// The operand of LDTILECFG for palette 1. A tile without rows is not used.
struct TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  void set(int tile, int num_rows, int num_bytes) {
    rows[tile] = static_cast<uint8_t>(num_rows);
    row_bytes[tile] = static_cast<uint16_t>(num_bytes);
  }
};
static_assert(sizeof(TileConfig) == 64);

#if defined(__AMX_TILE__) && defined(__AMX_INT8__)
// The compilers' intrinsics do not take template parameters, and GCC's do not tell that loads read memory.
struct HardwareTiles {
  static void configure(const TileConfig& config) { asm volatile("ldtilecfg %0" ::"m"(config)); }
  static void release() { asm volatile("tilerelease"); }

  template <int kTile>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }

  // Rows are `stride` bytes apart.
  template <int kTile>
  static void load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(kTile) : "memory");
  }

  template <int kTile>
  static void store(void* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(kTile) : "memory");
  }

  // sums[m][n] += the sum over k, b of rows[m][4 k + b] * weights[k][4 n + b]; int8 to int32
  template <int kSums, int kRows, int kWeights>
  static void add_products() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kRows), "i"(kWeights));
  }
};
#endif

}  // namespace pellucid

#if defined(PELLUCID_TILES_HEADER)
#include PELLUCID_TILES_HEADER  // tests define `Tiles` there, to run on any CPU
#endif

namespace pellucid {

#if !defined(PELLUCID_TILES_HEADER)
#if defined(__AMX_TILE__) && defined(__AMX_INT8__) && PELLUCID_LANES == 16
using Tiles = HardwareTiles;
#else
using Tiles = void;
#endif
#endif

constexpr bool kHasTiles = !std::is_void_v<Tiles>;

}  // namespace pellucid
