#include "tessera/spec/epilogue.h"

#include "host/spec/expect_error.h"

namespace tessera {
namespace {

using enum EpilogueOp;

TEST(Epilogue, TextRoundTrips) {
  struct Row {
    const char* text;
    Epilogue epilogue;
  };
  const Row rows[] = {
      {"none", {}},
      {"relu", {{relu}, 0}},
      {"bias+gelu", {{bias, gelu}, 1}},
      {"add+multiply+add+bias", {{add, multiply, add, bias}, 4}},
      {"multi_d_add2", {{multi_d_add}, 2}},
      {"multi_d_add1+relu", {{multi_d_add, relu}, 1}},
      {"bias+multi_d_multiply3+clamp", {{bias, multi_d_multiply, clamp}, 4}},
      {"pass_through+relu", {{pass_through, relu}, 0}},
      {"row_scale+col_scale+bias", {{row_scale, col_scale, bias}, 3}},
      {"relu+gelu+gelu_tanh+silu+sigmoid+tanh", {{relu, gelu, gelu_tanh, silu, sigmoid, tanh}, 0}},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(to_string(row.epilogue), row.text);
    EXPECT_EQ(parse_epilogue(row.text), row.epilogue) << row.text;
    EXPECT_EQ(invalid_reason(row.epilogue), "") << row.text;
  }
}

TEST(Epilogue, OtherSpellingsOfTheSame) {
  EXPECT_EQ(to_string(parse_epilogue("multi_d_add")), "multi_d_add2");
  EXPECT_EQ(to_string(parse_epilogue("relu+pass_through")), "relu");
  EXPECT_EQ(to_string(parse_epilogue("pass_through")), "none");
}

TEST(Epilogue, RefusesWithASentence) {
  struct Row {
    const char* text;
    const char* message;
  };
  const Row rows[] = {
      {"gelo", "unknown epilogue op 'gelo', did you mean 'gelu'?"},
      {"bias+gelo", "unknown epilogue op 'gelo', did you mean 'gelu'?"},
      {"nine", "unknown epilogue op 'nine', did you mean 'none'?"},
      {"bias+none",
       "unknown epilogue op 'none': it must be one of pass_through, bias, add, multiply, "
       "multi_d_add, multi_d_multiply, relu, gelu, gelu_tanh, silu, sigmoid, tanh, clamp, "
       "row_scale, "
       "col_scale"},
      {"relu2", "unknown epilogue op 'relu2', did you mean 'relu'?"},
      {"multi_d_add99999999999",
       "unknown epilogue op 'multi_d_add99999999999': it must be one of pass_through, bias, add, "
       "multiply, multi_d_add, multi_d_multiply, relu, gelu, gelu_tanh, silu, sigmoid, tanh, "
       "clamp, row_scale, col_scale, none"},
      {"relu+relu+relu+relu+relu+relu+relu", "epilogue: at most 6 steps, got 7"},
      {"bias+add+add+add+add", "epilogue: at most 4 D tensors, got 5"},
      {"multi_d_add5", "epilogue: at most 4 D tensors, got 5"},
      {"multi_d_add0", "epilogue: multi_d_add takes at least 1 D tensor, got 0"},
      {"multi_d_add2+bias",
       "epilogue: multi_d_add takes all D tensors that remain, so that bias after it has none"},
  };
  for (const Row& row : rows) {
    expect_error(ErrorCode::parse_error, row.message, [&] { parse_epilogue(row.text); });
  }
}

TEST(Epilogue, NamesTheWrongNumberOfTensors) {
  EXPECT_EQ(invalid_reason({{relu}, 3}), "epilogue: its steps take 0 D tensors, but num_d is 3");
  EXPECT_EQ(to_string(Epilogue{{relu}, 3}), "relu(num_d=3)");
  EXPECT_EQ(invalid_reason({{bias, multi_d_add}, 1}),
            "epilogue: multi_d_add takes all D tensors that remain, at least 1, got 0 left");
  EXPECT_EQ(invalid_reason({{multi_d_add, bias}, 2}),
            "epilogue: its steps take 3 D tensors, but num_d is 2");
  EXPECT_EQ(invalid_reason({{multi_d_add}, 5}), "epilogue: at most 4 D tensors, got 5");
}

TEST(Epilogue, UsesOfEachTensor) {
  const auto uses = d_uses(parse_epilogue("bias+relu+multi_d_multiply3"));
  const EpilogueOp ops[] = {bias, multi_d_multiply, multi_d_multiply, multi_d_multiply};
  for (std::size_t i = 0; i < uses.size(); ++i) {
    EXPECT_EQ(uses[i].op, ops[i]);
    EXPECT_EQ(uses[i].shape, i == 0 ? DShape::along_n : DShape::matrix);
    EXPECT_EQ(uses[i].is_vector(), i == 0);
  }
  const auto scales = d_uses(parse_epilogue("row_scale+multiply+col_scale"));
  const DShape shapes[] = {DShape::along_m, DShape::matrix, DShape::along_n};
  for (std::size_t i = 0; i < std::size(shapes); ++i) EXPECT_EQ(scales[i].shape, shapes[i]) << i;
  EXPECT_EQ(num_ops(parse_epilogue("pass_through+relu")), 2);
  EXPECT_EQ(num_ops({}), 0);
  EXPECT_EQ(d_uses({{bias, add, add, add, add, add}, 9})[3].op, add) << "out of range";
}

}  // namespace
}  // namespace tessera
