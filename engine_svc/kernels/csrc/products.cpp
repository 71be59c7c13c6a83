// One product of rows with a linear layer of integers, timed: for the choice between tiles and vectors, and for tests.

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "matrix.h"
#include "rows.h"
#include "structures.h"
#include "team.h"

namespace pellucid {
namespace {

struct alignas(64) CacheLine {
  char bytes[64];
};

// Rows of activations, with the memory that they need.
template <typename Rows>
class ConvertedRows {
 public:
  ConvertedRows(int num_rows, int size)
      : size_(size),
        num_groups_(Rows::num_groups(size)),
        data_(num_lines(num_rows)),
        low_(num_lines(num_rows)),
        groups_(size_t(num_rows) * num_groups_),
        decomposed_(size_t(num_rows) * mask_words(num_groups_)) {}

  // `row` is padded to a multiple of kGroup.
  void write(const float* row, int index) {
    const int64_t stride = Rows::stride(size_);
    Rows::write(row, size_,
                {data_[0].bytes + index * stride, low_[0].bytes + index * stride,
                 &groups_[int64_t{index} * num_groups_], &decomposed_[int64_t{index} * mask_words(num_groups_)]});
  }

  Activations activations() const {
    return {data_[0].bytes, Rows::stride(size_), low_[0].bytes, groups_.data(), decomposed_.data(), num_groups_};
  }

 private:
  size_t num_lines(int num_rows) const { return num_rows * Rows::stride(size_) / sizeof(CacheLine) + 1; }

  int size_, num_groups_;
  std::vector<CacheLine> data_, low_;
  std::vector<Group> groups_;
  std::vector<uint64_t> decomposed_;
};

int count_outputs(const PellucidLinear& linear) {
  int outputs = 0;
  for (int part = 0; part < linear.num_parts; ++part) outputs += linear.parts[part].outputs;
  return outputs;
}

template <typename Rows>
double multiply_rows(const PellucidLinear& linear, const float* rows, int num_rows, int num_threads, float* results) {
  using Clock = std::chrono::steady_clock;
  const int inputs = linear.parts[0].inputs, outputs = count_outputs(linear);
  ConvertedRows<Rows> converted(num_rows, inputs);
  std::chrono::duration<double> taken{};
  Team::run(num_threads, 2, [&](Team& team) {
    team.parallel_for(num_rows, [&](int row) { converted.write(rows + int64_t{row} * inputs, row); });
    const auto started = Clock::now();
    multiply(team, linear, converted.activations(), num_rows, [&](int row, int output, int count, Floats sums) {
      float* place = results + int64_t{row} * outputs + output;
      store_partial(place, sums + load_partial(place, count), count);
    });
    if (omp_get_thread_num() == 0) taken = Clock::now() - started;
  });
  return taken.count();
}

}  // namespace
}  // namespace pellucid

// Adds the product of rows [rows][inputs], converted to activations of `format` (integers), to results [rows][outputs],
// as a layer adds to the residual stream. Returns the seconds of the product, without those of the conversion and of
// starting the threads.
extern "C" double pellucid_multiply(const PellucidLinear* linear, int32_t format, const float* rows, int32_t num_rows,
                                    int32_t num_threads, float* results) {
  using namespace pellucid;
  const auto multiply_as = format == kInt8 ? multiply_rows<IntegerRows<kOutliers>> : multiply_rows<IntegerRows<kAll>>;
  return multiply_as(*linear, rows, num_rows, num_threads, results);
}
