// Matrix tiles in plain C++, after the pseudocode of Intel's Software Developer's Manual. It aborts where the CPU would
// raise an exception. `-DPELLUCID_TILES_HEADER` puts it in place of the CPU's tiles.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace pellucid {

class EmulatedTiles {
 public:
  static void configure(const TileConfig& config) {
    if (config.palette != 1 || config.start_row != 0) std::abort();
    for (int tile = 0; tile < 16; ++tile) {
      const int rows = config.rows[tile], bytes = config.row_bytes[tile];
      if (rows > kTileRows || bytes > kTileBytes || (rows == 0) != (bytes == 0)) std::abort();
      if (tile >= kNumTiles && rows != 0) std::abort();
    }
    state = State{true, config, {}};
  }

  static void release() { state = State{}; }

  template <int kTile>
  static void zero() {
    require_tile(kTile);
    std::memset(state.data[kTile], 0, sizeof(state.data[kTile]));
  }

  template <int kTile>
  static void load(const void* from, int64_t stride) {
    zero<kTile>();
    for (int row = 0; row < rows(kTile); ++row) {
      std::memcpy(state.data[kTile][row], static_cast<const char*>(from) + row * stride, bytes(kTile));
    }
  }

  template <int kTile>
  static void store(void* to, int64_t stride) {
    require_tile(kTile);
    for (int row = 0; row < rows(kTile); ++row) {
      std::memcpy(static_cast<char*>(to) + row * stride, state.data[kTile][row], bytes(kTile));
    }
  }

  template <int kSums, int kRows, int kWeights>
  static void add_products() {
    static_assert(kSums != kRows && kSums != kWeights && kRows != kWeights);
    for (int tile : {kSums, kRows, kWeights}) require_tile(tile);
    if (bytes(kSums) != bytes(kWeights) || rows(kSums) != rows(kRows)) std::abort();
    if (bytes(kRows) != 4 * rows(kWeights) || bytes(kSums) % 4 != 0) std::abort();
    for (int m = 0; m < rows(kSums); ++m) {
      for (int n = 0; n < bytes(kSums) / 4; ++n) {
        int32_t sum;
        std::memcpy(&sum, &state.data[kSums][m][4 * n], sizeof(sum));
        for (int k = 0; k < bytes(kRows); ++k) {
          sum += state.data[kRows][m][k] * state.data[kWeights][k / 4][4 * n + k % 4];
        }
        std::memcpy(&state.data[kSums][m][4 * n], &sum, sizeof(sum));
      }
    }
    ++num_products;
  }

  static inline std::atomic<int64_t> num_products{0};

 private:
  struct State {
    bool configured;
    TileConfig config;
    int8_t data[kNumTiles][kTileRows][kTileBytes];
  };

  static int rows(int tile) { return state.config.rows[tile]; }
  static int bytes(int tile) { return state.config.row_bytes[tile]; }

  static void require_tile(int tile) {
    if (!state.configured || rows(tile) == 0) std::abort();
  }

  static thread_local State state;
};

inline thread_local EmulatedTiles::State EmulatedTiles::state{};

using Tiles = EmulatedTiles;

}  // namespace pellucid

extern "C" [[gnu::weak]] int64_t emulated_products() { return pellucid::EmulatedTiles::num_products; }
