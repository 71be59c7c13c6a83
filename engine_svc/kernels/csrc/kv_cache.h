// The paged KV cache of one layer: its layout, writing, and reading in tiles.
//
// For each block and KV head it holds the keys as words [head_dim / per_word][block_size], then the values as words
// [block_size / per_word][head_dim], so that neither needs to be transposed for a product. A word is one float, two
// bfloat16 or one int8. A cache of int8 has the scales of the keys, then of the values, float [2][block_size], before
// both: one for each token and KV head.

#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>

#include "simd.h"
#include "structures.h"

namespace pellucid {

constexpr int kTileKeys = 64;
constexpr int kParts = kTileKeys / kLanes;
constexpr int kLineBytes = 64;  // of a CPU cache line

#ifdef __AVX512BF16__
constexpr bool kMultipliesBfloat16 = true;
#else
constexpr bool kMultipliesBfloat16 = false;
#endif

inline int round_up(int x, int multiple) { return (x + multiple - 1) / multiple * multiple; }

// An element of a quantised cache.
struct Int8 {
  int8_t value;
};

// How elements are stored, and what products multiply: `load` converts a vector of words, in `kSteps` steps.
template <typename KV>
struct Stored;

template <>
struct Stored<float> {
  using Multiplied = float;
  static constexpr int kPerWord = 1, kSteps = 1;

  static Words load(const char* words, int) { return pellucid::load<Words>(words); }
};

template <>
struct Stored<Bfloat16> {
  using Multiplied = std::conditional_t<kMultipliesBfloat16, Bfloat16, float>;
  static constexpr int kPerWord = 2, kSteps = kMultipliesBfloat16 ? 1 : 2;

  static Words load(const char* words, int step) {
    const Words pairs = pellucid::load<Words>(words);
    if (kMultipliesBfloat16) return pairs;
    return step == 0 ? pairs << 16 : pairs & 0xffff0000u;
  }
};

template <>
struct Stored<Int8> {
  using Multiplied = float;
  static constexpr int kPerWord = 1, kSteps = 1;

  static Words load(const char* bytes, int) {
#if defined(__AVX512F__)
    const __m128i packed = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
    return bit_cast<Words>(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(packed)));
#elif defined(__AVX2__)
    const __m128i packed = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes));
    return bit_cast<Words>(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(packed)));
#else
    using Bytes = int8_t __attribute__((vector_size(kLanes)));
    return bit_cast<Words>(__builtin_convertvector(pellucid::load<Bytes>(bytes), Floats));
#endif
  }
};

template <typename KV>
constexpr int kWordBytes = Stored<KV>::kPerWord * static_cast<int>(sizeof(KV));

// The first min(count, kLanes) elements as floats, zeros in the other lanes.
inline Floats load_floats(const float* from, int count) { return load_partial(from, count); }

inline Floats load_floats(const Bfloat16* from, int count) {
  Halves halves = {};
  std::memcpy(&halves, from, std::min(count, kLanes) * sizeof(Bfloat16));
  return bit_cast<Floats>(__builtin_convertvector(halves, Words) << 16);
}

// Quantises a key or value with scale = absmax / 127, which is returned.
//
// A NaN or an infinity must not become finite: the scale is NaN then, and the integers are zeros. A row whose scale is
// too small becomes zeros.
template <typename T>
float quantize(const T* row, int size, int8_t* to) {
  Floats maximum = {}, poison = {};
  for (int i = 0; i < size; i += kLanes) {
    const Floats values = load_floats(row + i, size - i);
    maximum = Max()(maximum, Max()(values, -values));
    poison = fma(values, Floats{}, poison);
  }
  const float scale = reduce(maximum, Max()) / 127.0f + reduce(poison, Sum());
  const bool has_scale = scale > 0x1p-100f;
  const float inverse = has_scale ? 1.0f / scale : 0.0f;
  const Floats rounder = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  for (int i = 0; i < size; i += kLanes) {
    using Bytes = int8_t __attribute__((vector_size(kLanes)));
    const Floats shifted = load_floats(row + i, size - i) * inverse + rounder;
    const Ints integers = has_scale ? bit_cast<Ints>(shifted) - bit_cast<Ints>(rounder) : Ints{};
    const Bytes bytes = __builtin_convertvector(integers, Bytes);
    std::memcpy(to + i, &bytes, std::min(kLanes, size - i));
  }
  return scale;
}

// Locates keys and values. Strides and sizes are in bytes.
template <typename KV>
class Cache {
 public:
  static constexpr int kPerWord = Stored<KV>::kPerWord;
  static constexpr bool kHasScales = std::is_same_v<KV, Int8>;

  Cache(const PellucidAttention& shape, void* data)
      : data_(static_cast<char*>(data)),
        num_kv_heads_(shape.num_kv_heads),
        head_dim_(shape.head_dim),
        block_size_(shape.block_size),
        scale_bytes_(kHasScales ? 2 * shape.block_size * int64_t{sizeof(float)} : 0),
        key_bytes_(int64_t{shape.head_dim / kPerWord} * shape.block_size * kWordBytes<KV>),
        head_bytes_(scale_bytes_ + key_bytes_ + value_bytes()) {}

  int block_size() const { return block_size_; }
  int64_t key_stride() const { return int64_t{block_size_} * kWordBytes<KV>; }
  int64_t value_stride() const { return int64_t{head_dim_} * kWordBytes<KV>; }

  const char* head(int64_t block, int head) const { return data_ + (block * num_kv_heads_ + head) * head_bytes_; }

  // Keys from `offset` on: words [head_dim / kPerWord][...], `key_stride` apart
  char* keys(int64_t block, int head, int offset) const {
    return at(block, head) + scale_bytes_ + int64_t{offset} * kWordBytes<KV>;
  }

  // Values from `offset` on, which is rounded down to a word: words [...][head_dim]
  char* values(int64_t block, int head, int offset) const {
    return at(block, head) + scale_bytes_ + key_bytes_ + offset / kPerWord * value_stride();
  }

  float* key_scales(int64_t block, int head, int offset) const {
    return kHasScales ? reinterpret_cast<float*>(at(block, head)) + offset : nullptr;
  }

  float* value_scales(int64_t block, int head, int offset) const {
    return kHasScales ? key_scales(block, head, offset) + block_size_ : nullptr;
  }

  template <typename T>
  void put(int64_t slot, int head, const T* key, const T* value) const {
    const int64_t block = slot / block_size_;
    const int offset = static_cast<int>(slot % block_size_);
    if constexpr (kHasScales) {
      put_quantized(block, head, offset, key, value);
    } else {
      put_key(block, head, offset, key);
      KV* row = reinterpret_cast<KV*>(values(block, head, offset)) + offset % kPerWord;
      for (int dim = 0; dim < head_dim_; ++dim) row[dim * kPerWord] = value[dim];
    }
  }

 private:
  char* at(int64_t block, int head) const { return data_ + (block * num_kv_heads_ + head) * head_bytes_; }

  // Rounded up, so that the scales are aligned.
  int64_t value_bytes() const {
    const int64_t size = int64_t{round_up(block_size_, kPerWord) / kPerWord} * value_stride();
    return kHasScales ? (key_bytes_ + size + 3) / 4 * 4 - key_bytes_ : size;
  }

  void put_key(int64_t block, int head, int offset, const KV* key) const {
    char* words = keys(block, head, offset);
    for (int word = 0; word < head_dim_ / kPerWord; ++word) {
      std::memcpy(words + word * key_stride(), key + word * kPerWord, kWordBytes<KV>);
    }
  }

  template <typename T>
  void put_quantized(int64_t block, int head, int offset, const T* key, const T* value) const {
    int8_t* to = reinterpret_cast<int8_t*>(values(block, head, offset));
    // Via the place of the values, which are written next.
    *key_scales(block, head, offset) = quantize(key, head_dim_, to);
    put_key(block, head, offset, reinterpret_cast<const Int8*>(to));
    *value_scales(block, head, offset) = quantize(value, head_dim_, to);
  }

  char* data_;
  int num_kv_heads_, head_dim_, block_size_;
  int64_t scale_bytes_, key_bytes_, head_bytes_;
};

// A tile of kTileKeys keys and their values, in parts of kLanes keys. Strides are in bytes.
struct Tile {
  const char* keys[kParts];  // words [head_dim / per_word][lanes], rows `key_stride` apart
  int64_t key_stride;
  const char* values[kParts];  // words [lanes / per_word][head_dim rounded up to lanes], rows `value_stride` apart
  int64_t value_stride;
  const float* key_scales[kParts];  // null: none
  const float* value_scales[kParts];
};

// Reads the keys and values of one sequence and head, one tile at a time: in place where the layout of the cache
// allows, else from a copy that is padded with zeros.
//
// Keys past the end of the sequence may be read in place. They are masked, so it does not matter what they are.
template <typename KV>
class TileReader {
 public:
  static constexpr int kPerWord = Stored<KV>::kPerWord;

  TileReader(const Cache<KV>& cache, const int32_t* table, int head, int head_dim)
      : cache_(cache),
        table_(table),
        head_(head),
        head_dim_(head_dim),
        width_(round_up(head_dim, kLanes)),
        whole_blocks_(cache.block_size() % kLanes == 0 && head_dim % kLanes == 0) {}

  // `first` is a multiple of kTileKeys; there are no keys from `end` on.
  Tile read(int first, int end) {
    const int num_parts = (std::min(kTileKeys, end - first) + kLanes - 1) / kLanes;
    if (!whole_blocks_) return copy_tile(first, end, num_parts);
    Tile tile;
    tile.key_stride = cache_.key_stride();
    tile.value_stride = cache_.value_stride();
    for (int part = 0; part < num_parts; ++part) {
      const int key = first + part * kLanes;
      const int64_t block = table_[key / cache_.block_size()];
      const int offset = key % cache_.block_size();
      tile.keys[part] = cache_.keys(block, head_, offset);
      tile.values[part] = cache_.values(block, head_, offset);
      tile.key_scales[part] = cache_.key_scales(block, head_, offset);
      tile.value_scales[part] = cache_.value_scales(block, head_, offset);
    }
    const int rest = (end - first) % kLanes;
    if (!Cache<KV>::kHasScales && first + kTileKeys > end && rest != 0) {
      tile.values[num_parts - 1] = copy_values(tile.values[num_parts - 1], rest);
    }
    return tile;
  }

  // Prefetches the next tile: the hardware prefetcher cannot follow the block table.
  void prefetch(int first, int end) const {
    const int block_size = cache_.block_size();
    if (block_size > kTileKeys) return;
    for (int key = first; key < std::min(first + kTileKeys, end); key += block_size) {
      const char* line = cache_.head(table_[key / block_size], head_);
      const char* last = cache_.head(table_[key / block_size], head_ + 1);
      for (; line < last; line += kLineBytes) __builtin_prefetch(line);
    }
  }

 private:
  char* copies(size_t bytes) {
    if (!copies_) copies_.reset(new char[bytes]);
    std::fill_n(copies_.get(), bytes, 0);
    return copies_.get();
  }

  // The values of `count` keys, less than a part: the other keys have weight 0, but their values may be NaN.
  const char* copy_values(const char* from, int count) {
    const int64_t stride = cache_.value_stride();
    char* to = copies((kLanes / kPerWord) * stride);
    std::memcpy(to, from, count / kPerWord * stride);
    if (count % kPerWord != 0) {
      const int64_t last = count / kPerWord * stride;
      for (int dim = 0; dim < head_dim_; ++dim) {
        std::memcpy(to + last + dim * kWordBytes<KV>, from + last + dim * kWordBytes<KV>, sizeof(KV));
      }
    }
    return to;
  }

  Tile copy_tile(int first, int end, int num_parts) {
    Tile tile;
    tile.key_stride = kTileKeys * kWordBytes<KV>;
    tile.value_stride = int64_t{width_} * kWordBytes<KV>;
    const size_t scale_bytes = 2 * kTileKeys * sizeof(float);
    const size_t key_bytes = head_dim_ / kPerWord * tile.key_stride;
    char* scales = copies(scale_bytes + key_bytes + (kTileKeys / kPerWord) * tile.value_stride);
    char* keys = scales + scale_bytes;
    char* values = keys + key_bytes;
    for (int part = 0; part < num_parts; ++part) {
      tile.keys[part] = keys + part * kLanes * kWordBytes<KV>;
      tile.values[part] = values + part * (kLanes / kPerWord) * tile.value_stride;
      tile.key_scales[part] = reinterpret_cast<float*>(scales) + part * kLanes;
      tile.value_scales[part] = tile.key_scales[part] + kTileKeys;
    }
    for (int index = 0; index < std::min(kTileKeys, end - first); ++index) {
      copy_key(first + index, index, tile, scales, keys, values);
    }
    return tile;
  }

  void copy_key(int key, int index, const Tile& tile, char* scales, char* keys, char* values) const {
    const int64_t block = table_[key / cache_.block_size()];
    const int offset = key % cache_.block_size();
    const char* from = cache_.keys(block, head_, offset);
    for (int word = 0; word < head_dim_ / kPerWord; ++word) {
      std::memcpy(keys + word * tile.key_stride + index * kWordBytes<KV>, from + word * cache_.key_stride(),
                  kWordBytes<KV>);
    }
    const KV* value = reinterpret_cast<const KV*>(cache_.values(block, head_, offset)) + offset % kPerWord;
    KV* to = reinterpret_cast<KV*>(values + index / kPerWord * tile.value_stride) + index % kPerWord;
    for (int dim = 0; dim < head_dim_; ++dim) to[dim * kPerWord] = value[dim * kPerWord];
    if (!Cache<KV>::kHasScales) return;
    std::memcpy(scales + index * sizeof(float), cache_.key_scales(block, head_, offset), sizeof(float));
    std::memcpy(scales + (kTileKeys + index) * sizeof(float), cache_.value_scales(block, head_, offset), sizeof(float));
  }

  const Cache<KV>& cache_;
  const int32_t* table_;
  int head_, head_dim_, width_;
  bool whole_blocks_;
  std::unique_ptr<char[]> copies_;
};

}  // namespace pellucid
