// A team of threads that runs a sequence of parallel loops (phases) in one parallel region.
//
// A phase ends when all of its iterations are done, not when all threads have arrived. So a thread that was preempted
// by another process between iterations does not delay the others.
#pragma once

#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

namespace pellucid {

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

class Team {
 public:
  // Calls `work(team)` on `num_threads` threads. All of them must run the same phases, at most `max_phases`.
  template <typename Work>
  static void run(int num_threads, int max_phases, Work work) {
    std::vector<Counter> counters(size_t(max_phases) * (num_threads + 1));
#pragma omp parallel num_threads(num_threads)
    {
      Team team(counters.data(), omp_get_thread_num(), omp_get_num_threads());
      work(team);
    }
  }

  // A phase: calls `work(i)` for each i below `count`; all calls are done on return. Each thread has a contiguous
  // range, for cache locality, and steals from the other ranges when its own is done.
  template <typename Work>
  void parallel_for(int count, Work work) {
    Counter* const phase = std::exchange(phase_, phase_ + num_threads_ + 1);
    std::atomic<int>& done = phase[num_threads_].value;
    for (int i = 0; i < num_threads_; ++i) {
      const int owner = (thread_ + i) % num_threads_;
      const int first = first_of(owner, count), end = first_of(owner + 1, count);
      int taken = 0;
      for (int next; (next = first + phase[owner].value.fetch_add(1, std::memory_order_relaxed)) < end; ++taken) {
        work(next);
      }
      if (taken > 0) done.fetch_add(taken, std::memory_order_release);
    }
    for (int tries = 0; done.load(std::memory_order_acquire) < count; ++tries) {
      // The other threads are about to finish, unless they were preempted: then yield this core.
      tries < kPauses ? pause() : static_cast<void>(sched_yield());
    }
  }

 private:
  struct alignas(64) Counter {
    std::atomic<int> value{0};
  };

  Team(Counter* phases, int thread, int num_threads) : phase_(phases), thread_(thread), num_threads_(num_threads) {}

  int first_of(int owner, int count) const { return static_cast<int>(int64_t{owner} * count / num_threads_); }

  static constexpr int kPauses = 2000;

  Counter* phase_;  // iterations taken from the range of each thread, then the number of iterations done
  int thread_, num_threads_;
};

}  // namespace pellucid
