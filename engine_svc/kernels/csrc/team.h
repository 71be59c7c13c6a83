// Threads that do a piece of work together, phase by phase.
//
// A phase is over when all of its work is done, not when all threads have come: one that had to leave its core to another
// process while it held no work holds nobody up, and catches up later.
#pragma once

#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <vector>

namespace pellucid {

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

class Team {
 public:
  // Calls `work(team)` on `num_threads` threads. It must go through the same phases on each of them, at most `most_phases`.
  template <typename Work>
  static void run(int num_threads, int most_phases, Work work) {
    std::vector<Phase> phases(most_phases);
#pragma omp parallel num_threads(num_threads)
    {
      Team team(phases.data(), omp_get_num_threads());
      work(team);
    }
  }

  // A phase: `work(i)` for each i below `count`, `chunk` at a time by whoever is free. All of it is done on return.
  template <typename Work>
  void share(int count, int chunk, Work work) {
    Phase& phase = *phase_++;
    for (int first; (first = phase.next.fetch_add(chunk, std::memory_order_relaxed)) < count;) {
      const int end = std::min(first + chunk, count);
      for (int i = first; i < end; ++i) work(i);
      phase.done.fetch_add(end - first, std::memory_order_release);
    }
    for (int tries = 0; phase.done.load(std::memory_order_acquire) < count; ++tries) {
      // Others are about to finish, unless they lost their core: then whoever waits for one may have ours.
      tries < kPauses ? pause() : static_cast<void>(sched_yield());
    }
  }

  // So many pieces that each thread gets some, and the last ones are small enough to even out.
  int chunk(int count) const { return std::max(1, count / (num_threads_ * 4)); }

 private:
  struct alignas(64) Phase {
    std::atomic<int> next{0};
    std::atomic<int> done{0};
  };

  Team(Phase* phases, int num_threads) : phase_(phases), num_threads_(num_threads) {}

  static constexpr int kPauses = 2000;

  Phase* phase_;
  int num_threads_;
};

}  // namespace pellucid
