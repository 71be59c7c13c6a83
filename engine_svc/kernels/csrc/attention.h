// Paged attention: one pass over the keys with an online softmax, in float32.
//
// It is batch-invariant: the output for a query depends on its own keys only, bit for bit. Keys are processed in tiles
// that start at multiples of kTileKeys of the sequence, for any block layout, and every sum has one fixed order,
// independent of other queries, sequences and threads.

#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "kv_cache.h"
#include "simd.h"
#include "structures.h"
#include "team.h"

namespace pellucid {

constexpr int kItemRows = 128;  // maximum number of query rows of a work item, approximately
constexpr int kItemsPerThread = 4;  // items are smaller if that gives each thread so many, for balance
constexpr int kMaxRows = 6;  // query rows per register tile
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// sums + left * right, for a word of each. (`splat` of a float would add it to zero.)
template <typename Multiplied>
inline Floats add_product(Floats sums, uint32_t left, Words right) {
  if constexpr (std::is_same_v<Multiplied, float>) {
    return fma(bit_cast<Floats>(Words{} + left), bit_cast<Floats>(right), sums);
  } else {
    return Element<Multiplied>::add_product(sums, left, right);
  }
}

// A product of query rows with a tile. Left operands are words of what is multiplied: a float or two bfloat16.
//
// sums[row][vector] += left[row] * right, for vectors `right[vector]` of `num_words` stored words, `stride` bytes apart.
// The operands of which there are fewer are held in registers, those of the other side one at a time.
template <typename KV, int kRows, int kVectors>
inline void accumulate(const uint32_t* left, int64_t left_stride, const char* const* right, int64_t stride,
                         int num_words, Floats (*sums)[kVectors]) {
  using Right = Stored<KV>;
  using Multiplied = typename Right::Multiplied;
#pragma GCC unroll 2
  for (int word = 0; word < num_words; ++word) {
    PELLUCID_UNROLL
    for (int step = 0; step < Right::kSteps; ++step) {
      const auto left_of = [&](int row) { return left[row * left_stride + word * Right::kSteps + step]; };
      const auto right_of = [&](int vector) { return Right::load(right[vector] + word * stride, step); };
      if constexpr (kRows < kVectors) {
        uint32_t lefts[kRows];
        PELLUCID_UNROLL
        for (int row = 0; row < kRows; ++row) lefts[row] = left_of(row);
        PELLUCID_UNROLL
        for (int vector = 0; vector < kVectors; ++vector) {
          const Words of_vector = right_of(vector);
          PELLUCID_UNROLL
          for (int row = 0; row < kRows; ++row) {
            sums[row][vector] = add_product<Multiplied>(sums[row][vector], lefts[row], of_vector);
          }
        }
      } else {
        Words rights[kVectors];
        PELLUCID_UNROLL
        for (int vector = 0; vector < kVectors; ++vector) rights[vector] = right_of(vector);
        PELLUCID_UNROLL
        for (int row = 0; row < kRows; ++row) {
          const uint32_t of_row = left_of(row);
          PELLUCID_UNROLL
          for (int vector = 0; vector < kVectors; ++vector) {
            sums[row][vector] = add_product<Multiplied>(sums[row][vector], of_row, rights[vector]);
          }
        }
      }
    }
  }
}

// Vectors per register tile: sums, operands, and the mask that converts bfloat16 fit in the registers.
template <typename KV, int kRows>
constexpr int kTileVectors = kRegisters >= 32 || kRows < 3 || (kRows == 3 && Stored<KV>::kSteps == 1) ? 4 : 2;

// The operands and results of some rows of an item. Pointers are to the first row.
struct RowTile {
  int head_dim, width;
  const uint32_t* queries;  // words [rows][query_words]
  int64_t query_words;
  float* scores;  // [rows][kTileKeys]
  const uint32_t* weights;  // words [rows][kTileKeys]
  const float* rescale;  // of the sums so far, [rows]
  float* sums;  // [rows][width]
};

template <typename KV, int kRows, int kVectors>
void score(const RowTile& rows, const Tile& tile, int part) {
  Floats sums[kRows][kVectors] = {};
  accumulate<KV, kRows, kVectors>(rows.queries, rows.query_words, tile.keys + part, tile.key_stride,
                                    rows.head_dim / Stored<KV>::kPerWord, sums);
  PELLUCID_UNROLL
  for (int row = 0; row < kRows; ++row) {
    PELLUCID_UNROLL
    for (int vector = 0; vector < kVectors; ++vector) {
      store(rows.scores + row * kTileKeys + (part + vector) * kLanes, sums[row][vector]);
    }
  }
}

// Dot products of queries and keys. Unrolled for each number of rows, so that the sums stay in registers.
template <typename KV, int kRows = kMaxRows>
void add_scores(int num_rows, int num_parts, const RowTile& rows, const Tile& tile) {
  if constexpr (kRows > 1) {
    if (num_rows < kRows) return add_scores<KV, kRows - 1>(num_rows, num_parts, rows, tile);
  }
  constexpr int kVectors = kTileVectors<KV, kRows>;
  int part = 0;
  for (; part + kVectors <= num_parts; part += kVectors) score<KV, kRows, kVectors>(rows, tile, part);
  for (; part < num_parts; ++part) score<KV, kRows, 1>(rows, tile, part);
}

template <typename KV, int kRows, int kVectors>
void sum_values(int num_parts, const RowTile& rows, const Tile& tile, int dim) {
  constexpr int kPerOperand = Element<typename Stored<KV>::Multiplied>::kPerWord;
  Floats sums[kRows][kVectors];
  PELLUCID_UNROLL
  for (int row = 0; row < kRows; ++row) {
    PELLUCID_UNROLL
    for (int vector = 0; vector < kVectors; ++vector) {
      sums[row][vector] = load<Floats>(rows.sums + row * rows.width + dim + vector * kLanes) * rows.rescale[row];
    }
  }
  for (int part = 0; part < num_parts; ++part) {
    const char* vectors[kVectors];
    PELLUCID_UNROLL
    for (int vector = 0; vector < kVectors; ++vector) {
      vectors[vector] = tile.values[part] + (dim + vector * kLanes) * kWordBytes<KV>;
    }
    accumulate<KV, kRows, kVectors>(rows.weights + part * kLanes / kPerOperand, kTileKeys, vectors,
                                      tile.value_stride, kLanes / Stored<KV>::kPerWord, sums);
  }
  PELLUCID_UNROLL
  for (int row = 0; row < kRows; ++row) {
    PELLUCID_UNROLL
    for (int vector = 0; vector < kVectors; ++vector) {
      store(rows.sums + row * rows.width + dim + vector * kLanes, sums[row][vector]);
    }
  }
}

// Sums of values by their weights, unrolled likewise.
template <typename KV, int kRows = kMaxRows>
void add_values(int num_rows, int num_parts, const RowTile& rows, const Tile& tile) {
  if constexpr (kRows > 1) {
    if (num_rows < kRows) return add_values<KV, kRows - 1>(num_rows, num_parts, rows, tile);
  }
  constexpr int kVectors = kTileVectors<KV, kRows>;
  int dim = 0;
  for (; dim + kVectors * kLanes <= rows.width; dim += kVectors * kLanes) {
    sum_values<KV, kRows, kVectors>(num_parts, rows, tile, dim);
  }
  for (; dim < rows.width; dim += kLanes) sum_values<KV, kRows, 1>(num_parts, rows, tile, dim);
}

// A query row and the state of its online softmax.
template <typename T>
struct Row {
  T* out;
  int first, last;  // positions of the keys that it attends to
  float max_score = -kInfinity;
  float sum = 0.0f;
};

// A work item: queries of one sequence that share a KV head.
struct Item {
  int sequence, kv_head;
  int first_token, end_token;  // in the batch
};

// The rows of an item with their operands and results.
template <typename T>
struct ItemRows {
  std::vector<Row<T>> rows;
  int per_tile;  // rows per register tile
  int64_t query_words;
  std::unique_ptr<uint32_t[]> queries;  // words [rows][query_words]
  std::unique_ptr<float[]> scores;  // [rows][kTileKeys]; weights replace them, in words
  std::vector<float> rescale;  // [rows]
  std::vector<float> sums;  // [rows][width]

  int size() const { return static_cast<int>(rows.size()); }
};

// `T` is the type of queries, new keys and values, and outputs, `KV` that of the cache.
template <typename T, typename KV>
class Attention {
 public:
  Attention(const PellucidAttention& shape, const PellucidBatch& batch, void* cache, int window)
      : shape_(shape),
        batch_(batch),
        cache_(shape, cache),
        window_(window),
        group_(shape.num_heads / shape.num_kv_heads),
        width_(round_up(shape.head_dim, kLanes)) {}

  // On all threads of a team: writes the new keys and values to the cache, then attends.
  void run(Team& team, const PellucidRows& query, const PellucidRows& key, const PellucidRows& value,
           const PellucidRows& out) const {
    team.parallel_for(batch_.num_tokens, [&](int token) { put(token, key, value); });
    attend(team, query, out);
  }

  void put(int token, const PellucidRows& key, const PellucidRows& value) const {
    for (int head = 0; head < shape_.num_kv_heads; ++head) {
      cache_.put(batch_.slot_mapping[token], head, at(key, token, head), at(value, token, head));
    }
  }

  void attend(Team& team, const PellucidRows& query, const PellucidRows& out) const {
    const std::vector<Item> items = split();
    team.parallel_for(static_cast<int>(items.size()), [&](int index) { attend(items[index], query, out); });
  }

 private:
  using Multiplied = typename Stored<KV>::Multiplied;
  static constexpr bool kConverts = !std::is_same_v<KV, Multiplied>;
  static constexpr int kPerOperand = Element<Multiplied>::kPerWord;

  T* at(const PellucidRows& rows, int64_t token, int head) const {
    return static_cast<T*>(rows.data) + token * rows.stride + int64_t{head} * shape_.head_dim;
  }

  std::vector<Item> split() const {
    const int64_t total = int64_t{batch_.num_tokens} * shape_.num_kv_heads;
    const int64_t balanced = total / (kItemsPerThread * shape_.num_threads);
    const int64_t most = std::max(1, kItemRows / group_), least = std::max(1, 2 * kMaxRows / group_);
    const int tokens_per_item = static_cast<int>(std::clamp(balanced, std::min(least, most), most));
    std::vector<Item> items;
    for (int sequence = 0; sequence < batch_.num_sequences; ++sequence) {
      const int end = batch_.query_starts[sequence + 1];
      for (int first = batch_.query_starts[sequence]; first < end; first += tokens_per_item) {
        for (int head = 0; head < shape_.num_kv_heads; ++head) {
          items.push_back({sequence, head, first, std::min(end, first + tokens_per_item)});
        }
      }
    }
    return items;
  }

  ItemRows<T> rows_of(const Item& item, const PellucidRows& query, const PellucidRows& out) const {
    ItemRows<T> found;
    const int num_rows = (item.end_token - item.first_token) * group_;
    const int num_tiles = (num_rows + kMaxRows - 1) / kMaxRows;
    found.per_tile = (num_rows + num_tiles - 1) / num_tiles;
    found.query_words = shape_.head_dim / kPerOperand;
    found.queries.reset(new uint32_t[num_rows * found.query_words]);
    found.scores.reset(new float[int64_t{num_rows} * kTileKeys]);
    found.rescale.resize(num_rows);
    found.sums.resize(int64_t{num_rows} * width_);
    found.rows.reserve(num_rows);
    const int position_of_end = batch_.context_lens[item.sequence] - batch_.query_starts[item.sequence + 1];
    for (int token = item.first_token; token < item.end_token; ++token) {
      const int last = position_of_end + token;
      const int first = window_ > 0 ? std::max(0, last - window_ + 1) : 0;
      for (int head = item.kv_head * group_; head < (item.kv_head + 1) * group_; ++head) {
        copy_query(at(query, token, head), &found.queries[found.size() * found.query_words]);
        found.rows.push_back({at(out, token, head), first, last});
      }
    }
    return found;
  }

  void copy_query(const T* query, uint32_t* words) const {
    if constexpr (std::is_same_v<T, Multiplied>) {
      std::memcpy(words, query, shape_.head_dim * sizeof(T));
    } else {
      for (int dim = 0; dim < shape_.head_dim; ++dim) words[dim] = bit_cast<uint32_t>(to_float(query[dim]));
    }
  }

  void attend(const Item& item, const PellucidRows& query, const PellucidRows& out) const {
    ItemRows<T> rows = rows_of(item, query, out);
    const int32_t* table = batch_.block_tables + int64_t{item.sequence} * batch_.table_stride;
    TileReader<KV> reader(cache_, table, item.kv_head, shape_.head_dim);
    // With many rows it pays to convert a tile once for all of them. The results are the same.
    const bool converts = kConverts && rows.size() > 2 * kMaxRows;
    std::unique_ptr<float[]> converted;
    if (converts) converted.reset(new float[int64_t{kTileKeys} * (shape_.head_dim + width_)]);
    const int end = rows.rows.back().last + 1;
    for (int first = rows.rows.front().first / kTileKeys * kTileKeys; first < end; first += kTileKeys) {
      const Tile tile = reader.read(first, end);
      reader.prefetch(first + kTileKeys, end);
      if (converts) {
        add_tile<float>(rows, convert(tile, parts_before(first, end), converted.get()), first);
      } else {
        add_tile<KV>(rows, tile, first);
      }
    }
    for (int row = 0; row < rows.size(); ++row) write_output(rows.rows[row], &rows.sums[int64_t{row} * width_]);
  }

  void write_output(const Row<T>& row, const float* sums) const {
    alignas(64) T rounded[kLanes];
    for (int dim = 0; dim < shape_.head_dim; dim += kLanes) {
      Element<T>::store_rounded(rounded, load<Floats>(sums + dim) / row.sum);
      std::copy_n(rounded, std::min(kLanes, shape_.head_dim - dim), row.out + dim);
    }
  }

  // Parts of the tile at `first` with keys before `end`
  static int parts_before(int first, int end) { return (std::min(kTileKeys, end - first) + kLanes - 1) / kLanes; }

  // To floats [head_dim][kTileKeys] and [kTileKeys][width].
  Tile convert(const Tile& tile, int num_parts, float* to) const {
    using Right = Stored<KV>;
    Tile converted = tile;
    converted.key_stride = kTileKeys * sizeof(float);
    converted.value_stride = width_ * sizeof(float);
    float* const values = to + int64_t{shape_.head_dim} * kTileKeys;
    for (int part = 0; part < num_parts; ++part) {
      converted.keys[part] = reinterpret_cast<const char*>(to + part * kLanes);
      converted.values[part] = reinterpret_cast<const char*>(values + int64_t{part} * kLanes * width_);
    }
    for (int row = 0; row < shape_.head_dim; ++row) {
      for (int part = 0; part < num_parts; ++part) {
        const char* words = tile.keys[part] + row / Right::kPerWord * tile.key_stride;
        store(to + row * kTileKeys + part * kLanes, Right::load(words, row % Right::kPerWord));
      }
    }
    for (int row = 0; row < num_parts * kLanes; ++row) {
      const char* words = tile.values[row / kLanes] + row % kLanes / Right::kPerWord * tile.value_stride;
      for (int dim = 0; dim < width_; dim += kLanes) {
        store(values + int64_t{row} * width_ + dim, Right::load(words + dim * kWordBytes<KV>, row % Right::kPerWord));
      }
    }
    return converted;
  }

  RowTile from_row(ItemRows<T>& rows, int row) const {
    float* const scores = &rows.scores[int64_t{row} * kTileKeys];
    return {shape_.head_dim, width_, &rows.queries[row * rows.query_words], rows.query_words, scores,
            reinterpret_cast<const uint32_t*>(scores), &rows.rescale[row], &rows.sums[int64_t{row} * width_]};
  }

  // All scores first, then all sums of values, so that either keys or values are in the L1 cache.
  template <typename Read>
  void add_tile(ItemRows<T>& rows, const Tile& tile, int first) const {
    for_each_tile(rows, first, [&](int row, int num_rows, int num_parts) {
      add_scores<Read>(num_rows, num_parts, from_row(rows, row), tile);
      for (int i = row; i < row + num_rows; ++i) {
        rows.rescale[i] = update_softmax(rows.rows[i], &rows.scores[int64_t{i} * kTileKeys], num_parts, first, tile);
      }
    });
    for_each_tile(rows, first, [&](int row, int num_rows, int num_parts) {
      add_values<Read>(num_rows, num_parts, from_row(rows, row), tile);
    });
  }

  // Calls `use(row, num_rows, num_parts)` for rows that attend to keys from `first` on, in that many parts.
  template <typename Use>
  static void for_each_tile(const ItemRows<T>& rows, int first, const Use& use) {
    for (int row = 0; row < rows.size(); row += rows.per_tile) {
      const int num_rows = std::min(rows.per_tile, rows.size() - row);
      const int end = rows.rows[row + num_rows - 1].last + 1;
      if (end > first) use(row, num_rows, parts_before(first, end));
    }
  }

  // Replaces the dot products of a row with one tile by softmax weights; returns the factor of its sums so far.
  float update_softmax(Row<T>& row, float* stored, int num_parts, int first, const Tile& tile) const {
    const bool masks = row.first > first || row.last < first + num_parts * kLanes - 1;
    Floats highest = splat(row.max_score);
    for (int part = 0; part < num_parts; ++part) {
      Floats scores = scaled(load<Floats>(stored + part * kLanes), tile.key_scales[part]);
      if (masks) scores = masked(row, scores, first + part * kLanes);
      highest = Max()(highest, scores);
      store(stored + part * kLanes, scores);
    }
    const float max_score = reduce(highest, Max());
    const float shift = max_score == -kInfinity ? 0.0f : max_score;  // no keys so far
    Floats sums = {};
    auto* const weights = reinterpret_cast<Multiplied*>(stored);
    for (int part = 0; part < num_parts; ++part) {
      const Floats of_part = exp(load<Floats>(stored + part * kLanes) - shift);
      sums += of_part;
      Element<Multiplied>::store_rounded(weights + part * kLanes, weighted(of_part, tile.value_scales[part]));
    }
    const float rescale = exp(splat(row.max_score - shift))[0];
    row.sum = row.sum * rescale + reduce(sums, Sum());
    row.max_score = max_score;
    return rescale;
  }

  Floats scaled(Floats products, const float* key_scales) const {
    if (Cache<KV>::kHasScales) products *= load<Floats>(key_scales);
    const Floats scores = products * shape_.scale;
    return shape_.softcap > 0 ? shape_.softcap * tanh(scores / shape_.softcap) : scores;
  }

  // The scale of a masked value may be NaN.
  static Floats weighted(Floats weights, const float* value_scales) {
    if (!Cache<KV>::kHasScales) return weights;
    return weights == 0.0f ? Floats{} : weights * load<Floats>(value_scales);
  }

  // -infinity for keys that the row does not attend to
  static Floats masked(const Row<T>& row, Floats scores, int first_key) {
    Ints keys;
    for (int lane = 0; lane < kLanes; ++lane) keys[lane] = first_key + lane;
    return (keys < row.first) | (keys > row.last) ? splat(-kInfinity) : scores;
  }

  const PellucidAttention& shape_;
  const PellucidBatch& batch_;
  Cache<KV> cache_;
  int window_, group_, width_;
};

// Calls `use` with an `Attention` over the cache of the shape: int8, or of the same type as queries, keys and values.
template <typename T, typename Use>
void with_attention(const PellucidAttention& shape, const PellucidBatch& batch, void* cache, int window,
                    const Use& use) {
  if (shape.is_int8_cache) {
    use(Attention<T, Int8>(shape, batch, cache, window));
  } else {
    use(Attention<T, T>(shape, batch, cache, window));
  }
}

}  // namespace pellucid
