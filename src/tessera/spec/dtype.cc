#include "tessera/spec/dtype.h"

#include "tessera/spec/words_internal.h"

namespace tessera {
namespace {

struct Row {
  DType dtype;
  DType accumulator;
  DType output;
  double epsilon;
  double max_finite;
  double min_normal;
};

// In enum order. tf32 has fp32's range and fp16's mantissa.
constexpr std::array kRows = {
    Row{DType::fp32, DType::fp32, DType::fp32, 0x1p-23, 0x1.fffffep127, 0x1p-126},
    Row{DType::tf32, DType::fp32, DType::tf32, 0x1p-10, 0x1.ffcp127, 0x1p-126},
    Row{DType::fp16, DType::fp32, DType::fp16, 0x1p-10, 0x1.ffcp15, 0x1p-14},
    Row{DType::bf16, DType::fp32, DType::bf16, 0x1p-7, 0x1.fep127, 0x1p-126},
    Row{DType::fp8, DType::fp32, DType::fp16, 0x1p-3, 448, 0x1p-6},
    Row{DType::bf8, DType::fp32, DType::fp16, 0x1p-2, 57344, 0x1p-14},
    Row{DType::int8, DType::int32, DType::int32, 0, 127, 1},
    Row{DType::int32, DType::int32, DType::int32, 0, 2147483647, 1},
};

constexpr std::array<DType, kRows.size()> kAll = {DType::fp32, DType::tf32, DType::fp16,
                                                  DType::bf16, DType::fp8,  DType::bf8,
                                                  DType::int8, DType::int32};

const Row& row_of(DType dtype) { return row_of_enum(kRows, Words<DType>::kNoun, dtype); }

static_assert(kDTypeBytes.size() == kRows.size());

}  // namespace

void refuse_dtype_number(DType dtype) {
  row_of(dtype);
  __builtin_unreachable();
}

std::span<const DType> all_dtypes() { return kAll; }
std::string_view to_string(DType dtype) { return word_of(dtype); }
std::string_view to_string(Fp8Encoding encoding) { return word_of(encoding); }
DType parse_dtype(std::string_view text) { return parse_word<DType>(text); }
bool is_integer(DType dtype) { return row_of(dtype).epsilon == 0; }
DType default_accumulator(DType operand) { return row_of(operand).accumulator; }
DType default_output(DType operand) { return row_of(operand).output; }
double epsilon(DType dtype) { return row_of(dtype).epsilon; }
double max_finite(DType dtype) { return row_of(dtype).max_finite; }
double min_normal(DType dtype) { return row_of(dtype).min_normal; }

}  // namespace tessera
