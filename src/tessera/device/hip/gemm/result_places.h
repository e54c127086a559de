// Where the results of a product go in the output, as the operands' type says: rows lie as rows,
// elsewhere, or their elements are scattered.
#pragma once

#include "tessera/device/hip/epilogue.h"

namespace tessera::device {

template <class C, class Operands, class Arguments>
struct ResultPlaces {
  // Whether the elements of a row lie anywhere, so that rows are neighbours of lanes.
  static constexpr bool is_scattered() {
    if constexpr (requires { Operands::kScattered; }) return Operands::kScattered;
    return false;
  }
  static __device__ __forceinline__ void put(const Finish<C, Arguments>& finish, const Place& at,
                                             const Vec<typename C::Acc, 4>& quad) {
    if constexpr (is_scattered()) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (i >= at.count) break;
        const i64 place = Operands::result_place(at.row, at.column + i);
        if (place < 0) continue;
        finish.store({place - (at.column + i), at.column + i, 1},
                     Vec<typename C::Acc, 4>{quad[i], 0, 0, 0});
      }
    } else {
      finish.store({Operands::result_row(at.row), at.column, at.count}, quad);
    }
  }
};

}  // namespace tessera::device
