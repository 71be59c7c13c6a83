// Integer products of many rows by matrix tiles, with the same bits as the vector path in matrix.h.
//
// A tile product computes the sums of one group exactly, for 16 rows and the 16 outputs of a panel. Vectors then scale
// and add them in the order of the vector path: all groups first, then the low parts. While vectors add one group, the
// tiles compute the next two. Floats stay on the vector path: TDPBF16PS has another order of additions, and flushes
// denormals, so a row would have other bits in a batch of another size.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "panels.h"
#include "simd.h"
#include "structures.h"
#include "tiles.h"

namespace pellucid {

// Vectors add the rows of a block in units of four, which share the address arithmetic of their scales.
constexpr int kUnit = 4;
constexpr int kUnits = kTileRows / kUnit;

inline bool uses_tiles(const PellucidMatrix& matrix, int num_rows) {
  const bool is_integer = matrix.format == kInt8 || matrix.format == kInt4;
  return is_integer && matrix.tile_rows > 0 && num_rows >= std::max(matrix.tile_rows, kUnit);
}

// Whole blocks use two tiles of each kind in turn; the last rows, if fewer than 16, have tiles of their own size.
enum TileNumber { kSumsTile = 0, kRowsTile = 2, kWeightsTile = 4, kRestSumsTile = 6, kRestRowsTile = 7 };

// The tile registers of a thread, configured during the life of this object.
template <typename T>
class TileSession {
 public:
  explicit TileSession(int rest_rows) {
    TileConfig config;
    for (int slot = 0; slot < 2; ++slot) {
      config.set(kSumsTile + slot, kTileRows, kTileBytes);
      config.set(kRowsTile + slot, kTileRows, kGroup);
      config.set(kWeightsTile + slot, kGroupWords, kTileBytes);
    }
    if (rest_rows > 0) {
      config.set(kRestSumsTile, rest_rows, kTileBytes);
      config.set(kRestRowsTile, rest_rows, kGroup);
    }
    T::configure(config);
  }
  TileSession(const TileSession&) = delete;
  TileSession& operator=(const TileSession&) = delete;
  ~TileSession() { T::release(); }
};

// A group of a panel as signed int8 in the layout of a tile, and its parameters as float32. All rows share it.
struct alignas(64) TileGroup {
  Words weights[kGroupWords];
  Floats scale, minimum;
};

template <bool kFourBits>
constexpr int kGroupVectors = kFourBits ? kGroupWords / 2 : kGroupWords;

template <bool kFourBits>
void prepare_panel(const char* panel, int num_groups, TileGroup* to) {
  for (int group = 0; group < num_groups; ++group) {
    TileGroup& prepared = to[group];
    PELLUCID_UNROLL
    for (int vector = 0; vector < kGroupVectors<kFourBits>; ++vector) {
      const Words words = load<Words>(panel + (group * kGroupVectors<kFourBits> + vector) * int64_t{sizeof(Words)});
      if constexpr (kFourBits) {
        prepared.weights[2 * vector] = words & 0x0f0f0f0f;
        prepared.weights[2 * vector + 1] = (words >> 4) & 0x0f0f0f0f;
      } else {
        prepared.weights[vector] = words ^ 0x80808080;  // subtracts the 128 of the stored values
      }
    }
    prepared.scale = group_parameters(panel, num_groups, kGroupVectors<kFourBits>, kScale, group);
    if constexpr (kFourBits) {
      prepared.minimum = group_parameters(panel, num_groups, kGroupVectors<kFourBits>, kMinimum, group);
    }
  }
}

// Up to 16 consecutive rows. `low_groups` are those in which any of the rows has a low part.
struct TileBlock {
  int row, num_rows;
  const int* low_groups;
  int num_low_groups;
};

// The product of a block and a panel. Of a block of fewer rows than 16, the last unit overlaps the one before.
template <typename T, bool kFourBits, int kNumUnits, bool kWhole>
class BlockProduct {
 public:
  // `next` is null, or a packed panel to prefetch meanwhile.
  static void multiply(const Activations& x, const TileBlock& block, const TileGroup* panel, const char* next,
                       Floats* results) {
    const BlockProduct product(x, block, panel, next);
    Floats sums[kNumUnits * kUnit] = {};
    product.add_part<0>(x.num_groups, sums);
    product.add_part<1>(block.num_low_groups, sums);
    PELLUCID_UNROLL
    for (int i = 0; i < kNumUnits * kUnit; ++i) results[product.first_row(i / kUnit) + i % kUnit] = sums[i];
  }

 private:
  BlockProduct(const Activations& x, const TileBlock& block, const TileGroup* panel, const char* next)
      : panel_(panel),
        next_(next),
        parts_{x.data + block.row * x.stride, x.low + block.row * x.stride},
        stride_(x.stride),
        num_groups_(x.num_groups),
        row_bytes_(num_groups_ * int64_t{sizeof(Group)}),
        low_groups_(block.low_groups),
        last_unit_(block.num_rows - kUnit) {
    const char* groups = reinterpret_cast<const char*>(x.groups) + block.row * row_bytes_;
    for (int unit = 0; unit < kNumUnits; ++unit) units_[unit] = groups + first_row(unit) * row_bytes_;
  }

  // A pipeline over groups: the sums of a group are stored one step after their product, and added one step later.
  template <int kPart>
  [[gnu::always_inline]] void add_part(int count, Floats* sums) const {
    Ints products[2][kTileRows];
    for (int i = 0; i < count + 2; i += 2) {
      step<kPart, 0>(i, count, products, sums);
      step<kPart, 1>(i + 1, count, products, sums);
    }
  }

  template <int kPart, int kSlot>
  [[gnu::always_inline]] void step(int i, int count, Ints (*products)[kTileRows], Floats* sums) const {
    if (i >= 1 && i <= count) T::template store<sums_tile(1 - kSlot)>(products[1 - kSlot], kTileBytes);
    if (i < count) multiply_group<kPart, kSlot>(group_at<kPart>(i));
    if (i >= 2 && i < count + 2) add_group<kPart>(group_at<kPart>(i - 2), products[kSlot], sums);
  }

  template <int kPart, int kSlot>
  [[gnu::always_inline]] void multiply_group(int group) const {
    T::template zero<sums_tile(kSlot)>();
    T::template load<rows_tile(kSlot)>(parts_[kPart] + group * kGroup, stride_);
    T::template load<kWeightsTile + kSlot>(panel_[group].weights, kTileBytes);
    T::template add_products<sums_tile(kSlot), rows_tile(kSlot), kWeightsTile + kSlot>();
    if (kPart == 0 && next_ != nullptr) prefetch(group);
  }

  template <int kPart>
  [[gnu::always_inline]] void add_group(int group, const Ints* products, Floats* sums) const {
    const Floats scale = panel_[group].scale, minimum = panel_[group].minimum;
    PELLUCID_UNROLL
    for (int unit = 0; unit < kNumUnits; ++unit) {
      const char* of_unit = units_[unit] + group * int64_t{sizeof(Group)};
      PELLUCID_UNROLL
      for (int i = 0; i < kUnit; ++i) {
        const char* of_row = of_unit + i * row_bytes_;
        Floats& sum = sums[unit * kUnit + i];
        Floats product = __builtin_convertvector(products[first_row(unit) + i], Floats);
        if constexpr (kPart == 1) product *= 0x1p-7f;  // the vector path scales the scale, which is as exact
        sum = fma(product * load<float>(of_row + offsetof(Group, scale)), scale, sum);
        if constexpr (kFourBits && kPart == 0) {
          sum = fma(splat(load<float>(of_row + offsetof(Group, sum))), minimum, sum);
        }
      }
    }
  }

  // Packed weights are read in pieces too short for the hardware prefetcher. They go to the second-level cache: the
  // first has the rows and the panels of this product.
  [[gnu::always_inline]] void prefetch(int group) const {
    constexpr int kVectors = kGroupVectors<kFourBits>;
    PELLUCID_UNROLL
    for (int vector = 0; vector < kVectors; ++vector) {
      __builtin_prefetch(next_ + (int64_t{group} * kVectors + vector) * int64_t{sizeof(Words)}, 0, 2);
    }
    const char* parameters = next_ + num_groups_ * kVectors * int64_t{sizeof(Words)} + group * int64_t{sizeof(Halves)};
    __builtin_prefetch(parameters, 0, 2);
    if constexpr (kFourBits) __builtin_prefetch(parameters + num_groups_ * int64_t{sizeof(Halves)}, 0, 2);
  }

  static constexpr int sums_tile(int slot) { return kWhole ? kSumsTile + slot : int{kRestSumsTile}; }
  static constexpr int rows_tile(int slot) { return kWhole ? kRowsTile + slot : int{kRestRowsTile}; }

  template <int kPart>
  int group_at(int i) const {
    return kPart == 0 ? i : low_groups_[i];
  }

  int first_row(int unit) const { return !kWhole && unit == kNumUnits - 1 ? last_unit_ : unit * kUnit; }

  const TileGroup* panel_;
  const char* next_;
  const char* parts_[2];
  int64_t stride_;
  int64_t num_groups_, row_bytes_;  // of `Group`s
  const int* low_groups_;
  int last_unit_;
  const char* units_[kNumUnits];  // parameters of the first row of each
};

template <typename T, bool kFourBits>
void multiply_block(const Activations& x, const TileBlock& block, const TileGroup* panel, const char* next,
                    Floats* results) {
  if (block.num_rows == kTileRows) {
    return BlockProduct<T, kFourBits, kUnits, true>::multiply(x, block, panel, next, results);
  }
  switch (divide_up(block.num_rows, kUnit)) {
    case 1: return BlockProduct<T, kFourBits, 1, false>::multiply(x, block, panel, next, results);
    case 2: return BlockProduct<T, kFourBits, 2, false>::multiply(x, block, panel, next, results);
    case 3: return BlockProduct<T, kFourBits, 3, false>::multiply(x, block, panel, next, results);
    default: return BlockProduct<T, kFourBits, 4, false>::multiply(x, block, panel, next, results);
  }
}

// Groups in which any of the rows has a low part, in ascending order.
inline void find_low_groups(const Activations& x, int row, int num_rows, std::vector<int>& groups) {
  const int num_words = mask_words(x.num_groups);
  groups.clear();
  for (int word = 0; word < num_words; ++word) {
    uint64_t mask = 0;
    for (int i = 0; i < num_rows; ++i) mask |= x.decomposed[int64_t{row + i} * num_words + word];
    for (; mask != 0; mask &= mask - 1) groups.push_back(word * 64 + __builtin_ctzll(mask));
  }
}

template <typename T, bool kFourBits, typename Finish>
void multiply_panels(const PellucidMatrix& matrix, const char* panels, int num_panels, const Activations& x,
                     int num_rows, const Finish& finish) {
  static thread_local std::vector<TileGroup> prepared;
  static thread_local std::vector<int> low_groups;
  if (prepared.size() < size_t(num_panels) * x.num_groups) prepared.resize(size_t(num_panels) * x.num_groups);
  for (int panel = 0; panel < num_panels; ++panel) {
    const char* packed = panels + panel * int64_t{matrix.panel_bytes};
    prepare_panel<kFourBits>(packed, x.num_groups, &prepared[panel * x.num_groups]);
  }
  // A last block has at least the rows of a unit: it may repeat some, whose results are dropped.
  const int rest = num_rows % kTileRows, rest_rows = rest == 0 ? 0 : std::max(rest, kUnit);
  const TileSession<T> session(rest_rows);
  for (int done = 0; done < num_rows; done += kTileRows) {
    const bool is_whole = num_rows - done >= kTileRows;
    const int row = is_whole ? done : num_rows - rest_rows, rows = is_whole ? kTileRows : rest_rows;
    find_low_groups(x, row, rows, low_groups);
    const TileBlock block{row, rows, low_groups.data(), static_cast<int>(low_groups.size())};
    for (int panel = 0; panel < num_panels; ++panel) {
      const char* next = done == 0 ? panels + (num_panels + panel) * int64_t{matrix.panel_bytes} : nullptr;
      Floats results[kTileRows];
      multiply_block<T, kFourBits>(x, block, &prepared[panel * x.num_groups], next, results);
      for (int i = done - row; i < rows; ++i) finish(row + i, panel, results[i]);
    }
  }
}

// Calls `finish(row, panel, sums)` for each row and panel. Needs at least kUnit rows.
template <typename Finish>
void multiply_by_tiles(const PellucidMatrix& matrix, const char* panels, int num_panels, const Activations& x,
                       int num_rows, const Finish& finish) {
  if (matrix.format == kInt4) {
    multiply_panels<Tiles, true>(matrix, panels, num_panels, x, num_rows, finish);
  } else {
    multiply_panels<Tiles, false>(matrix, panels, num_panels, x, num_rows, finish);
  }
}

}  // namespace pellucid
