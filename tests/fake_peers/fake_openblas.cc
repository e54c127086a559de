// OpenBLAS's entry points, for tests of what is done with a peer that misbehaves. It fails while it
// is loaded or started where FAKE_PEER is "load" or "start"; else it computes plainly, but for
// some numbers of rows: at 101 it crashes, at 102 it ends the process, at 103 it hangs, at 104 and
// 105 an element is wrong or NaN.
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

bool is_to(const char* what) {
  const char* wanted = std::getenv("FAKE_PEER");
  return wanted != nullptr && std::strcmp(wanted, what) == 0;
}

struct Loaded {
  Loaded() {
    if (is_to("load")) std::raise(SIGSEGV);
  }
} g_loaded;

[[maybe_unused]] float at(const float* matrix, int is_transposed, int ld, int row, int column) {
  return is_transposed != 0 ? matrix[column * ld + row] : matrix[row * ld + column];
}

}  // namespace

EXPORT void openblas_set_num_threads(int) {
  if (is_to("start")) std::raise(SIGABRT);
}
EXPORT const char* openblas_get_config() { return "OpenBLAS 9.9 NONE"; }
#ifndef FAKE_INCOMPLETE
EXPORT const char* openblas_get_corename() { return "none"; }
EXPORT void cblas_sgemm(int, int trans_a, int trans_b, int m, int n, int k, float alpha,
                        const float* a, int ld_a, const float* b, int ld_b, float, float* c,
                        int ld_c) {
  constexpr int kTrans = 112;
  if (m == 101) std::raise(SIGSEGV);
  if (m == 102) _exit(3);
  if (m == 103) {
    while (true) pause();
  }
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      float sum = 0;
      for (int p = 0; p < k; ++p) {
        sum += at(a, trans_a == kTrans ? 1 : 0, ld_a, i, p) *
               at(b, trans_b == kTrans ? 1 : 0, ld_b, p, j);
      }
      c[i * ld_c + j] = alpha * sum;
    }
  }
  if (m == 104) c[0] += 1000;
  if (m == 105) c[0] = std::nanf("");
}
#endif
