// Products of activations with a weight matrix (GEMM), in all formats of weights.
//
// They are batch-invariant: a row of the result depends on its own activations only, bit for bit. Every sum runs over
// the inputs in one fixed order, independent of the number of rows and of the thread.
//
// Integer products of many rows go through matrix tiles (tile_products.h) where the CPU has them, with the same bits.
#pragma once

#include <algorithm>
#include <type_traits>

#include "integer_products.h"
#include "panels.h"
#include "simd.h"
#include "structures.h"
#include "team.h"
#include "tile_products.h"

namespace pellucid {

// Micro-kernels: for each format, the product of kRows rows and kPanels panels over all inputs. The integer formats
// prefetch the next panels, because theirs are too short for the hardware prefetcher.
template <typename T>
struct FloatFormat {
  static constexpr int kRows = kRegisters >= 32 ? 6 : 3;
  static constexpr int kPanels = kRegisters >= 32 ? 4 : 3;

  template <int kNumRows, int kNumPanels>
  static void add(const PellucidMatrix& matrix, const char* panels, const Activations& x, int row,
                  Floats (*sums)[kNumPanels]) {
    const int num_words = divide_up(matrix.inputs, Element<T>::kPerWord);
    for (int word = 0; word < num_words; ++word) {
      Words weights[kNumPanels];
      PELLUCID_UNROLL
      for (int panel = 0; panel < kNumPanels; ++panel) {
        weights[panel] = load<Words>(panels + int64_t{panel} * matrix.panel_bytes + word * sizeof(Words));
      }
      PELLUCID_UNROLL
      for (int i = 0; i < kNumRows; ++i) {
        const auto activation = load<uint32_t>(x.data + (row + i) * x.stride + word * 4);
        PELLUCID_UNROLL
        for (int panel = 0; panel < kNumPanels; ++panel) {
          sums[i][panel] = Element<T>::add_product(sums[i][panel], activation, weights[panel]);
        }
      }
    }
  }
};

template <bool kFourBits>
struct IntegerFormat {
  using Products = std::conditional_t<kFourBits, FourBitProducts, EightBitProducts>;

  static constexpr int kRows = 4;
  static constexpr int kPanels = kRegisters >= 32 ? 3 : 2;
  static constexpr int kGroupVectors = kFourBits ? kGroupWords / 2 : kGroupWords;

  template <int kNumRows, int kNumPanels>
  static void add(const PellucidMatrix& matrix, const char* panels, const Activations& x, int row,
                  Floats (*sums)[kNumPanels]) {
    for (int group = 0; group < x.num_groups; ++group) {
      add_parts<0, kNumRows, kNumPanels>(matrix, panels, x, row, group, sums);
      if constexpr (kFourBits) add_minima<kNumRows, kNumPanels>(matrix, panels, x, row, group, sums);
    }
    // If any row of the tile has a low part, the other rows add zeros, which do not change their sums.
    const int num_words = mask_words(x.num_groups);
    for (int word = 0; word < num_words; ++word) {
      uint64_t mask = 0;
      for (int i = 0; i < kNumRows; ++i) mask |= x.decomposed[int64_t{row + i} * num_words + word];
      for (; mask != 0; mask &= mask - 1) {
        add_parts<1, kNumRows, kNumPanels>(matrix, panels, x, row, word * 64 + __builtin_ctzll(mask), sums);
      }
    }
  }

 private:
  template <int kPart, int kNumRows, int kNumPanels>
  static void add_parts(const PellucidMatrix& matrix, const char* panels, const Activations& x, int row, int group,
                         Floats (*sums)[kNumPanels]) {
    const Group* of_rows = x.groups + int64_t{row} * x.num_groups + group;
    typename Products::Sums products[kNumRows][kNumPanels];
    PELLUCID_UNROLL
    for (int i = 0; i < kNumRows; ++i) {
      PELLUCID_UNROLL
      for (int panel = 0; panel < kNumPanels; ++panel) {
        products[i][panel] = Products::start(of_rows[int64_t{i} * x.num_groups].offsets[kPart]);
      }
    }
    const char* parts = (kPart == 0 ? x.data : x.low) + row * x.stride + group * kGroup;
    const char* words = panels + group * kGroupVectors * int64_t{sizeof(Words)};
    multiply<kNumRows, kNumPanels>(matrix, words, parts, x.stride, products);
    PELLUCID_UNROLL
    for (int panel = 0; panel < kNumPanels; ++panel) {
      const Floats scale = parameters(matrix, panels, x, kScale, group, panel);
      PELLUCID_UNROLL
      for (int i = 0; i < kNumRows; ++i) {
        const float of_row = of_rows[int64_t{i} * x.num_groups].scale * (kPart == 0 ? 1.0f : 0x1p-7f);
        const Floats product = __builtin_convertvector(Products::total(products[i][panel]), Floats);
        sums[i][panel] = fma(product * of_row, scale, sums[i][panel]);
      }
    }
  }

  template <int kNumRows, int kNumPanels>
  static void add_minima(const PellucidMatrix& matrix, const char* panels, const Activations& x, int row, int group,
                         Floats (*sums)[kNumPanels]) {
    const Group* of_rows = x.groups + int64_t{row} * x.num_groups + group;
    PELLUCID_UNROLL
    for (int panel = 0; panel < kNumPanels; ++panel) {
      const Floats minimum = parameters(matrix, panels, x, kMinimum, group, panel);
      PELLUCID_UNROLL
      for (int i = 0; i < kNumRows; ++i) {
        sums[i][panel] = fma(splat(of_rows[int64_t{i} * x.num_groups].sum), minimum, sums[i][panel]);
      }
    }
  }

  static Floats parameters(const PellucidMatrix& matrix, const char* panels, const Activations& x, GroupParameter kind,
                        int group, int panel) {
    return group_parameters(panels + int64_t{panel} * matrix.panel_bytes, x.num_groups, kGroupVectors, kind, group);
  }

  template <int kNumRows, int kNumPanels>
  static void multiply(const PellucidMatrix& matrix, const char* words, const char* parts, int64_t stride,
                       typename Products::Sums (*products)[kNumPanels]) {
    const int64_t next_tile = int64_t{kNumPanels} * matrix.panel_bytes;
    PELLUCID_UNROLL
    for (int vector = 0; vector < kGroupVectors; ++vector) {
      PELLUCID_UNROLL
      for (int panel = 0; panel < kNumPanels; ++panel) {
        const char* from = words + int64_t{panel} * matrix.panel_bytes + vector * sizeof(Words);
        __builtin_prefetch(from + next_tile);
        const typename Products::Weights weights(load<Words>(from));
        PELLUCID_UNROLL
        for (int i = 0; i < kNumRows; ++i) {
          const char* of_row = parts + i * stride + vector * Products::kBytes;
          products[i][panel] = Products::add(products[i][panel], weights, of_row);
        }
      }
    }
  }
};

template <typename Format, int kNumRows, int kNumPanels>
void multiply_whole_tile(const PellucidMatrix& matrix, const char* panels, const Activations& x, int row,
                         Floats* results, int stride) {
  Floats sums[kNumRows][kNumPanels] = {};
  Format::template add<kNumRows, kNumPanels>(matrix, panels, x, row, sums);
  for (int i = 0; i < kNumRows; ++i) std::copy_n(sums[i], kNumPanels, results + i * stride);
}

inline Floats with_bias(const PellucidMatrix& matrix, int output, Floats sums) {
  return matrix.bias == nullptr ? sums : sums + load_partial(matrix.bias + output, matrix.outputs - output);
}

// Maximum vectors of a tile of results, [rows][panels][kLanes].
constexpr int kMaxTileVectors = kRegisters;

// Computes a tile of results, unrolled for each number of rows, and for one panel or kPanels.
template <typename Format, int kNumRows = Format::kRows>
void multiply_tile(const PellucidMatrix& matrix, const char* panels, int num_panels, const Activations& x, int row,
                   int num_rows, Floats* results) {
  static_assert(Format::kRows * Format::kPanels <= kMaxTileVectors);
  if constexpr (kNumRows > 1) {
    if (num_rows < kNumRows) {
      return multiply_tile<Format, kNumRows - 1>(matrix, panels, num_panels, x, row, num_rows, results);
    }
  }
  if (num_panels == Format::kPanels) {
    return multiply_whole_tile<Format, kNumRows, Format::kPanels>(matrix, panels, x, row, results, num_panels);
  }
  for (int panel = 0; panel < num_panels; ++panel) {
    const char* one = panels + int64_t{panel} * matrix.panel_bytes;
    multiply_whole_tile<Format, kNumRows, 1>(matrix, one, x, row, results + panel, num_panels);
  }
}

inline void multiply_tile(const PellucidMatrix& matrix, const char* panels, int num_panels, const Activations& x,
                          int row, int num_rows, Floats* results) {
  switch (matrix.format) {
    case kFloat32: return multiply_tile<FloatFormat<float>>(matrix, panels, num_panels, x, row, num_rows, results);
    case kBfloat16: return multiply_tile<FloatFormat<Bfloat16>>(matrix, panels, num_panels, x, row, num_rows, results);
    case kInt8: return multiply_tile<IntegerFormat<false>>(matrix, panels, num_panels, x, row, num_rows, results);
    default: return multiply_tile<IntegerFormat<true>>(matrix, panels, num_panels, x, row, num_rows, results);
  }
}

struct TileSize {
  int rows, panels;
};

inline TileSize tile_size(const PellucidMatrix& matrix) {
  switch (matrix.format) {
    case kFloat32:
    case kBfloat16: return {FloatFormat<float>::kRows, FloatFormat<float>::kPanels};
    default: return {IntegerFormat<true>::kRows, IntegerFormat<true>::kPanels};
  }
}

// One work item: up to kPanels panels of one matrix, for all rows.
template <typename Store>
void multiply_piece(const PellucidMatrix& matrix, int piece, const Activations& x, int num_rows, const Store& store) {
  const TileSize size = tile_size(matrix);
  const int first = piece * size.panels;
  const int num_panels = std::min(size.panels, divide_up(matrix.outputs, kLanes) - first);
  const char* panels = static_cast<const char*>(matrix.panels) + int64_t{first} * matrix.panel_bytes;
  const auto finish = [&](int row, int panel, Floats sums) {
    const int output = (first + panel) * kLanes;
    store(row, output, std::min(kLanes, matrix.outputs - output), with_bias(matrix, output, sums));
  };
  if constexpr (kHasTiles) {
    if (uses_tiles(matrix, num_rows)) return multiply_by_tiles(matrix, panels, num_panels, x, num_rows, finish);
  }
  Floats results[kMaxTileVectors];
  for (int row = 0; row < num_rows; row += size.rows) {
    const int rows = std::min(size.rows, num_rows - row);
    multiply_tile(matrix, panels, num_panels, x, row, rows, results);
    for (int i = 0; i < rows; ++i) {
      for (int panel = 0; panel < num_panels; ++panel) finish(row + i, panel, results[i * num_panels + panel]);
    }
  }
}

inline int num_pieces(const PellucidMatrix& matrix) {
  return divide_up(divide_up(matrix.outputs, kLanes), tile_size(matrix).panels);
}

// A phase of the team: x W^T + bias. Calls `store(row, first output, count, results)` for each vector of results.
template <typename Store>
void multiply(Team& team, const PellucidLinear& linear, const Activations& x, int num_rows, const Store& store) {
  int total = 0;
  for (int part = 0; part < linear.num_parts; ++part) total += num_pieces(linear.parts[part]);
  team.parallel_for(total, [&](int piece) {
    const PellucidMatrix* matrix = linear.parts;
    int first_output = 0;
    for (int count; piece >= (count = num_pieces(*matrix)); ++matrix) {
      piece -= count;
      first_output += matrix->outputs;
    }
    multiply_piece(*matrix, piece, x, num_rows, [&](int row, int output, int count, Floats sums) {
      store(row, first_output + output, count, sums);
    });
  });
}

}  // namespace pellucid
