// Paged attention: one pass over the keys with an online softmax, in float32.
//
// It is batch-invariant: the output for a query depends on its own keys only, bit for bit. Keys are processed in tiles
// that start at multiples of kTileKeys of the sequence, for any block layout, and every sum has one fixed order,
// independent of other queries, sequences and threads.
//
// For each block and KV head the cache holds the keys as words [head_dim / per_word][block_size], then the values as
// words [block_size / per_word][head_dim], so that neither needs to be transposed for the product.

#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "simd.h"
#include "structures.h"
#include "team.h"

namespace pellucid {

constexpr int kParts = 4;
constexpr int kTileKeys = kParts * kLanes;
constexpr int kLineWords = 16;  // words of a CPU cache line
constexpr int kItemRows = 64;  // approximate number of query rows of a work item
constexpr int kMaxRows = kRegisters / 8;  // query rows per register tile: sums take half of the registers
constexpr float kInfinity = std::numeric_limits<float>::infinity();

inline int round_up(int x, int multiple) { return (x + multiple - 1) / multiple * multiple; }

// Locates the keys and values of a head in the KV cache of one layer.
template <typename T>
class Cache {
 public:
  static constexpr int kPerWord = Element<T>::kPerWord;

  Cache(const PellucidAttention& shape, void* data)
      : data_(static_cast<uint32_t*>(data)),
        num_kv_heads_(shape.num_kv_heads),
        head_dim_(shape.head_dim),
        block_size_(shape.block_size),
        key_words_(int64_t{shape.head_dim / kPerWord} * shape.block_size),
        head_words_(key_words_ + int64_t{round_up(shape.block_size, kPerWord) / kPerWord} * shape.head_dim) {}

  int block_size() const { return block_size_; }

  // Words [head_dim / kPerWord][block_size]
  uint32_t* keys(int64_t block, int head) const { return data_ + (block * num_kv_heads_ + head) * head_words_; }

  // Words [block_size / kPerWord][head_dim]
  uint32_t* values(int64_t block, int head) const { return keys(block, head) + key_words_; }

  void put(int64_t slot, int head, const T* key, const T* value) const {
    const int64_t block = slot / block_size_;
    const int offset = static_cast<int>(slot % block_size_);
    uint32_t* key_words = keys(block, head) + offset;
    for (int word = 0; word < head_dim_ / kPerWord; ++word) {
      std::memcpy(key_words + int64_t{word} * block_size_, key + word * kPerWord, sizeof(uint32_t));
    }
    T* row = reinterpret_cast<T*>(values(block, head) + int64_t{offset / kPerWord} * head_dim_) + offset % kPerWord;
    for (int dim = 0; dim < head_dim_; ++dim) row[dim * kPerWord] = value[dim];
  }

 private:
  uint32_t* data_;
  int num_kv_heads_, head_dim_, block_size_;
  int64_t key_words_, head_words_;
};

// One vector of keys (kLanes keys), and their values.
struct Part {
  const uint32_t* keys;  // words [head_dim / per_word][lanes], rows `key_stride` apart
  int64_t key_stride;
  const uint32_t* values;  // words [lanes / per_word][head_dim rounded up to lanes], rows `value_stride` apart
  int64_t value_stride;
};

// Reads the keys and values of one sequence and head, one vector of keys at a time: in place where the layout of the
// cache allows, else from a copy that is padded with zeros.
template <typename T>
class KVReader {
 public:
  static constexpr int kPerWord = Element<T>::kPerWord;

  KVReader(const Cache<T>& cache, const int32_t* table, int head, int head_dim)
      : cache_(cache),
        table_(table),
        head_(head),
        head_dim_(head_dim),
        width_(round_up(head_dim, kLanes)),
        whole_blocks_(cache.block_size() % kLanes == 0 && head_dim % kLanes == 0),
        copies_(new uint32_t[size_t(kParts) * copy_words()]) {}

  // Keys from `first` (a multiple of kLanes) on; keys from `end` on are not read.
  Part read(int index, int first, int end) {
    if (!whole_blocks_ || first + kLanes > end) return copy(&copies_[size_t(index) * copy_words()], first, end);
    const int block_size = cache_.block_size();
    const int64_t block = table_[first / block_size];
    const int offset = first % block_size;
    const uint32_t* values = cache_.values(block, head_) + int64_t{offset / kPerWord} * head_dim_;
    return {cache_.keys(block, head_) + offset, block_size, values, head_dim_};
  }

  // Prefetches the next tile: the hardware prefetcher cannot follow the block table.
  void prefetch(int first, int end) const {
    const int block_size = cache_.block_size();
    if (block_size > kTileKeys) return;
    for (int key = first; key < std::min(first + kTileKeys, end); key += block_size) {
      const uint32_t* line = cache_.keys(table_[key / block_size], head_);
      const uint32_t* last = cache_.keys(table_[key / block_size], head_ + 1);
      for (; line < last; line += kLineWords) __builtin_prefetch(line);
    }
  }

 private:
  size_t copy_words() const { return size_t(kLanes / kPerWord) * (head_dim_ + width_); }

  Part copy(uint32_t* to, int first, int end) {
    std::fill_n(to, copy_words(), 0);
    uint32_t* values = to + (kLanes / kPerWord) * head_dim_;
    const int block_size = cache_.block_size();
    for (int lane = 0; lane < std::min(kLanes, end - first); ++lane) {
      const int64_t block = table_[(first + lane) / block_size];
      const int offset = (first + lane) % block_size;
      const uint32_t* from_keys = cache_.keys(block, head_) + offset;
      for (int word = 0; word < head_dim_ / kPerWord; ++word) {
        to[word * kLanes + lane] = from_keys[int64_t{word} * block_size];
      }
      const uint32_t* from_row = cache_.values(block, head_) + int64_t{offset / kPerWord} * head_dim_;
      const T* from = reinterpret_cast<const T*>(from_row) + offset % kPerWord;
      T* row = reinterpret_cast<T*>(values + (lane / kPerWord) * width_) + lane % kPerWord;
      for (int dim = 0; dim < head_dim_; ++dim) row[dim * kPerWord] = from[dim * kPerWord];
    }
    return {to, kLanes, values, width_};
  }

  const Cache<T>& cache_;
  const int32_t* table_;
  int head_, head_dim_, width_;
  bool whole_blocks_;
  std::unique_ptr<uint32_t[]> copies_;  // never read before it is written
};

// A query row and the state of its online softmax.
template <typename T>
struct Row {
  const T* query;
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

template <typename T>
class Attention {
 public:
  static constexpr int kPerWord = Element<T>::kPerWord;

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
  T* at(const PellucidRows& rows, int64_t token, int head) const {
    return static_cast<T*>(rows.data) + token * rows.stride + int64_t{head} * shape_.head_dim;
  }

  std::vector<Item> split() const {
    const int tokens_per_item = std::max(1, kItemRows / group_);
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

  std::vector<Row<T>> rows_of(const Item& item, const PellucidRows& query, const PellucidRows& out) const {
    const int position_of_end = batch_.context_lens[item.sequence] - batch_.query_starts[item.sequence + 1];
    std::vector<Row<T>> rows;
    for (int token = item.first_token; token < item.end_token; ++token) {
      const int last = position_of_end + token;
      const int first = window_ > 0 ? std::max(0, last - window_ + 1) : 0;
      for (int head = item.kv_head * group_; head < (item.kv_head + 1) * group_; ++head) {
        rows.push_back({at(query, token, head), at(out, token, head), first, last});
      }
    }
    return rows;
  }

  void attend(const Item& item, const PellucidRows& query, const PellucidRows& out) const {
    std::vector<Row<T>> rows = rows_of(item, query, out);
    std::vector<float> sums(rows.size() * width_);  // [rows][width]
    const int32_t* table = batch_.block_tables + int64_t{item.sequence} * batch_.table_stride;
    KVReader<T> reader(cache_, table, item.kv_head, shape_.head_dim);
    const int end = rows.back().last + 1;
    for (int first = rows.front().first / kTileKeys * kTileKeys; first < end; first += kTileKeys) {
      Part parts[kParts];
      const int num_parts = (std::min(kTileKeys, end - first) + kLanes - 1) / kLanes;
      for (int part = 0; part < num_parts; ++part) parts[part] = reader.read(part, first + part * kLanes, end);
      reader.prefetch(first + kTileKeys, end);
      for (size_t row = 0; row < rows.size(); row += kMaxRows) {
        const int num_rows = static_cast<int>(std::min<size_t>(kMaxRows, rows.size() - row));
        if (rows[row + num_rows - 1].last < first) continue;
        add_tile(num_rows, num_parts, &rows[row], &sums[row * width_], parts, first);
      }
    }
    for (size_t row = 0; row < rows.size(); ++row) write_output(rows[row], &sums[row * width_]);
  }

  void write_output(const Row<T>& row, const float* sums) const {
    alignas(64) T rounded[kLanes];
    for (int dim = 0; dim < shape_.head_dim; dim += kLanes) {
      Element<T>::store_rounded(rounded, load<Floats>(sums + dim) / row.sum);
      std::copy_n(rounded, std::min(kLanes, shape_.head_dim - dim), row.out + dim);
    }
  }

  // The loops below are unrolled for each number of rows and parts, so that the sums stay in registers.
  void add_tile(int num_rows, int num_parts, Row<T>* rows, float* sums, const Part* parts, int first) const {
    static_assert(kMaxRows == 2 || kMaxRows == 4);
    if constexpr (kMaxRows == 4) {
      if (num_rows == 4) return add_tile_of<4>(num_parts, rows, sums, parts, first);
      if (num_rows == 3) return add_tile_of<3>(num_parts, rows, sums, parts, first);
    }
    if (num_rows == 2) return add_tile_of<2>(num_parts, rows, sums, parts, first);
    add_tile_of<1>(num_parts, rows, sums, parts, first);
  }

  template <int kRows>
  void add_tile_of(int num_parts, Row<T>* rows, float* sums, const Part* parts, int first) const {
    Floats scores[kRows][kParts];
    switch (num_parts) {
      case 1: score<kRows, 1>(rows, parts, scores); break;
      case 2: score<kRows, 2>(rows, parts, scores); break;
      case 3: score<kRows, 3>(rows, parts, scores); break;
      default: score<kRows, 4>(rows, parts, scores); break;
    }
    alignas(64) T weights[kRows][kTileKeys];
    float rescale[kRows];
    PELLUCID_UNROLL
    for (int row = 0; row < kRows; ++row) {
      rescale[row] = update_softmax(rows[row], scores[row], num_parts, first, weights[row]);
    }
    for (int dim = 0; dim < width_;) {
      const int vectors = (width_ - dim) / kLanes;
      if (vectors >= 4) {
        add_values<kRows, 4>(parts, num_parts, weights, rescale, sums, dim);
        dim += 4 * kLanes;
      } else {
        add_values<kRows, 1>(parts, num_parts, weights, rescale, sums, dim);
        dim += kLanes;
      }
    }
  }

  template <int kRows, int kNumParts>
  void score(const Row<T>* rows, const Part* parts, Floats (*scores)[kParts]) const {
    Floats sums[kRows][kNumParts] = {};
    for (int word = 0; word < shape_.head_dim / kPerWord; ++word) {
      Words keys[kNumParts];
      PELLUCID_UNROLL
      for (int part = 0; part < kNumParts; ++part) {
        keys[part] = load<Words>(parts[part].keys + word * parts[part].key_stride);
      }
      PELLUCID_UNROLL
      for (int row = 0; row < kRows; ++row) {
        const uint32_t query = load<uint32_t>(rows[row].query + word * kPerWord);
        PELLUCID_UNROLL
        for (int part = 0; part < kNumParts; ++part) {
          sums[row][part] = Element<T>::add_product(sums[row][part], query, keys[part]);
        }
      }
    }
    PELLUCID_UNROLL
    for (int row = 0; row < kRows; ++row) {
      PELLUCID_UNROLL
      for (int part = 0; part < kNumParts; ++part) scores[row][part] = scaled(sums[row][part]);
    }
  }

  Floats scaled(Floats products) const {
    const Floats scores = products * shape_.scale;
    return shape_.softcap > 0 ? shape_.softcap * tanh(scores / shape_.softcap) : scores;
  }

  // Computes the softmax weights of one tile; returns the factor by which previous sums are rescaled.
  float update_softmax(Row<T>& row, Floats* scores, int num_parts, int first, T* weights) const {
    apply_mask(row, scores, num_parts, first);
    for (int part = num_parts; part < kParts; ++part) scores[part] = splat(-kInfinity);
    const Max max;
    const Floats highest = max(max(scores[0], scores[1]), max(scores[2], scores[3]));
    const float max_score = max(row.max_score, reduce(highest, max));
    const float shift = max_score == -kInfinity ? 0.0f : max_score;  // no keys so far
    PELLUCID_UNROLL
    for (int part = 0; part < kParts; ++part) {
      scores[part] = exp(scores[part] - shift);
      Element<T>::store_rounded(weights + part * kLanes, scores[part]);
    }
    const float rescale = exp(splat(row.max_score - shift))[0];
    row.sum = row.sum * rescale + reduce((scores[0] + scores[1]) + (scores[2] + scores[3]), Sum());
    row.max_score = max_score;
    return rescale;
  }

  static void apply_mask(const Row<T>& row, Floats* scores, int num_parts, int first) {
    if (row.first <= first && row.last >= first + num_parts * kLanes - 1) return;
    Ints lanes;
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = lane;
    for (int part = 0; part < num_parts; ++part) {
      const Ints keys = lanes + (first + part * kLanes);
      scores[part] = (keys < row.first) | (keys > row.last) ? splat(-kInfinity) : scores[part];
    }
  }

  template <int kRows, int kVectors>
  void add_values(const Part* parts, int num_parts, const T (*weights)[kTileKeys], const float* rescale, float* sums,
                  int dim) const {
    Floats added[kRows][kVectors];
    PELLUCID_UNROLL
    for (int row = 0; row < kRows; ++row) {
      PELLUCID_UNROLL
      for (int vector = 0; vector < kVectors; ++vector) {
        added[row][vector] = load<Floats>(sums + row * width_ + dim + vector * kLanes) * rescale[row];
      }
    }
    for (int part = 0; part < num_parts; ++part) {
      for (int word = 0; word < kLanes / kPerWord; ++word) {
        const uint32_t* from = parts[part].values + word * parts[part].value_stride + dim;
        Words values[kVectors];
        PELLUCID_UNROLL
        for (int vector = 0; vector < kVectors; ++vector) values[vector] = load<Words>(from + vector * kLanes);
        PELLUCID_UNROLL
        for (int row = 0; row < kRows; ++row) {
          const uint32_t weight = load<uint32_t>(weights[row] + part * kLanes + word * kPerWord);
          PELLUCID_UNROLL
          for (int vector = 0; vector < kVectors; ++vector) {
            added[row][vector] = Element<T>::add_product(added[row][vector], weight, values[vector]);
          }
        }
      }
    }
    PELLUCID_UNROLL
    for (int row = 0; row < kRows; ++row) {
      PELLUCID_UNROLL
      for (int vector = 0; vector < kVectors; ++vector) {
        store(sums + row * width_ + dim + vector * kLanes, added[row][vector]);
      }
    }
  }

  const PellucidAttention& shape_;
  const PellucidBatch& batch_;
  Cache<T> cache_;
  int window_, group_, width_;
};

}  // namespace pellucid
