// Threads that do a piece of work together, phase by phase.
#pragma once

#include <omp.h>
#include <sched.h>

#include <atomic>
#include <utility>

namespace pellucid {

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

class Team {
 public:
  // Calls `work(team)` on `num_threads` threads. It must go through the same phases on each of them.
  template <typename Work>
  static void run(int num_threads, Work work) {
    Shared shared;
#pragma omp parallel num_threads(num_threads)
    {
#pragma omp single
      shared.num_threads = omp_get_num_threads();
      Team team(shared);
      work(team);
    }
  }

  // A phase: `work(i)` for each i below `count`, `chunk` at a time by whoever is free. All of it is done on return.
  template <typename Work>
  void share(int count, int chunk, Work work) {
    std::atomic<int>& next = shared_.next[phase_++ % 2].value;
    for (int first; (first = next.fetch_add(chunk, std::memory_order_relaxed)) < count;) {
      const int end = first + chunk < count ? first + chunk : count;
      for (int i = first; i < end; ++i) work(i);
    }
    wait();
  }

  // So many pieces that each thread gets some and the last ones are small enough to even out.
  int chunk(int count) const { return std::max(1, count / (shared_.num_threads * 4)); }

 private:
  struct alignas(64) Counter {
    std::atomic<int> value{0};
  };

  struct Shared {
    int num_threads = 1;
    Counter next[2];  // of this phase and of the one that follows
    Counter arrived;
    Counter passed;
  };

  explicit Team(Shared& shared) : shared_(shared) {}

  void wait() {
    const int passed = shared_.passed.value.load(std::memory_order_acquire);
    if (shared_.arrived.value.fetch_add(1, std::memory_order_acq_rel) + 1 == shared_.num_threads) {
      shared_.arrived.value.store(0, std::memory_order_relaxed);
      shared_.next[phase_ % 2].value.store(0, std::memory_order_relaxed);
      shared_.passed.value.store(passed + 1, std::memory_order_release);
      return;
    }
    // The others are as good as here, unless one had to leave its core to another process: that one gets ours then.
    for (int tries = 0; shared_.passed.value.load(std::memory_order_acquire) == passed; ++tries) {
      tries < kPauses ? pause() : static_cast<void>(sched_yield());
    }
  }

  static constexpr int kPauses = 2000;

  Shared& shared_;
  int phase_ = 0;
};

}  // namespace pellucid
