// Whether this process may use the CPU's matrix tiles.

#include "tiles.h"

#include <pthread.h>

#include <csetjmp>
#include <csignal>

#include "structures.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace pellucid {
namespace {

#if defined(__x86_64__) && defined(__linux__)

bool cpu_lists_tiles() {
  constexpr unsigned kOsXsave = 1u << 27, kTile = 1u << 24, kInt8 = 1u << 25;
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & kOsXsave)) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & kTile) && (d & kInt8);
}

// Whether the operating system saves the tiles' registers when it switches threads (XCR0).
bool system_saves_tiles() {
  constexpr unsigned kConfigAndData = 3u << 17;
  unsigned low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & kConfigAndData) == kConfigAndData;
}

// Asks for the permission, which all threads of the process then have.
bool request_permission() {
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

#else

bool cpu_lists_tiles() { return false; }
bool system_saves_tiles() { return false; }
bool request_permission() { return false; }

#endif

sigjmp_buf before_trial;
pthread_t trying;

[[maybe_unused]] void leave_trial(int) {
  if (pthread_equal(pthread_self(), trying)) siglongjmp(before_trial, 1);
  std::signal(SIGILL, SIG_DFL);  // of another thread: it fails again, as it would have without the trial
}

// A product of integers of all sizes.
template <typename T>
bool product_is_right() {
  constexpr int kWords = kTileBytes / 4;
  alignas(64) int8_t rows[kTileRows][kTileBytes], weights[kWords][kTileBytes];
  alignas(64) int32_t sums[kTileRows][kWords];
  for (int i = 0; i < kTileRows * kTileBytes; ++i) {
    rows[i / kTileBytes][i % kTileBytes] = static_cast<int8_t>(i * 7);
    weights[i / kTileBytes][i % kTileBytes] = static_cast<int8_t>(i * 11 + 3);
  }
  TileConfig config;
  for (int tile = 0; tile < 3; ++tile) config.set(tile, kTileRows, kTileBytes);
  T::configure(config);
  T::template zero<0>();
  T::template load<1>(rows, kTileBytes);
  T::template load<2>(weights, kTileBytes);
  T::template add_products<0, 1, 2>();
  T::template store<0>(sums, kTileBytes);
  T::release();
  for (int i = 0; i < kTileRows * kWords; ++i) {
    const int row = i / kWords, output = i % kWords;
    int32_t expected = 0;
    for (int k = 0; k < kTileBytes; ++k) expected += rows[row][k] * weights[k / 4][4 * output + k % 4];
    if (sums[row][output] != expected) return false;
  }
  return true;
}

// A virtual machine may list tiles and still refuse their instructions.
template <typename T>
PellucidTileSupport try_tiles() {
  struct sigaction caught = {}, previous;
  caught.sa_handler = leave_trial;
  trying = pthread_self();
  sigaction(SIGILL, &caught, &previous);
  volatile PellucidTileSupport support = kTilesIllegal;
  if (sigsetjmp(before_trial, 1) == 0) support = product_is_right<T>() ? kTilesUsable : kTilesWrong;
  sigaction(SIGILL, &previous, nullptr);
  return support;
}

template <typename T>
PellucidTileSupport tile_support() {
  if (!cpu_lists_tiles()) return kTilesAbsent;
  if constexpr (std::is_void_v<T>) {
    return kTilesNotCompiled;
  } else {
    if (!system_saves_tiles()) return kTilesNotSaved;
    return request_permission() ? try_tiles<T>() : kTilesNotPermitted;
  }
}

}  // namespace
}  // namespace pellucid

// Asks for permission to use tiles and tries them. Call it before the first product.
extern "C" int32_t pellucid_tile_support() { return pellucid::tile_support<pellucid::Tiles>(); }

#if defined(__AMX_TILE__) && defined(__AMX_INT8__)
// The trial alone: also without permission, and on CPUs without tiles, where it must survive. For tests.
extern "C" int32_t pellucid_try_tiles() { return pellucid::try_tiles<pellucid::HardwareTiles>(); }
#endif
