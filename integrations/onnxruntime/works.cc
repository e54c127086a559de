#include "works.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <numeric>
#include <stdexcept>

namespace tessera_ort {
namespace {

constexpr int kOut = -1;

int64_t product(const Shape& shape, size_t first, size_t end) {
  return std::accumulate(shape.begin() + first, shape.begin() + end, int64_t{1},
                         std::multiplies<int64_t>());
}

int64_t count(const Shape& shape) { return product(shape, 0, shape.size()); }

std::string word(const char* key, int64_t value) {
  return std::string(" ") + key + "=" + std::to_string(value);
}

std::string number(const char* key, double value) {
  char text[40];
  std::snprintf(text, sizeof(text), " %s=%.9g", key, value);
  return text;
}

std::string shown(const Shape& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  }
  return text + ")";
}

void require(bool is_right, const std::string& sentence) {
  if (!is_right) {
    throw std::runtime_error(sentence);
  }
}

int64_t bytes_of(const Node& node) { return node.inputs[0].type == "fp32" ? 4 : 2; }

bool has_input(const Node& node, size_t i) {
  return node.inputs.size() > i && node.inputs[i].is_given;
}

bool are_equal(const Dim& a, const Dim& b) {
  return a.size >= 0 ? a.size == b.size : b.size < 0 && !a.name.empty() && a.name == b.name;
}

// A dimension that ONNX broadcasts: more than 1 element must be as many as the whole has, where the
// call checks it. Less is known of others.
bool must_be(const Dim& dim, const Dim& whole) {
  return are_equal(dim, whole) || (dim.size > 1 && whole.size < 0);
}

std::string why_not_rank(const Node& node, size_t input, size_t least, size_t most) {
  const Value& value = node.inputs[input];
  if (!value.has_shape) {
    return "the rank of input " + std::to_string(input) + " is not known before the run";
  }
  if (value.shape.size() < least || value.shape.size() > most) {
    return "input " + std::to_string(input) + " has " + std::to_string(value.shape.size()) +
           " dimensions, but the provider takes " + std::to_string(least) + " to " +
           std::to_string(most);
  }
  return "";
}

std::string why_not_types(const Node& node) {
  for (const Value& value : node.inputs) {
    if (value.is_given && value.type.empty()) {
      return value.name + " is no tensor of float32, float16 or bfloat16";
    }
    if (value.is_given && value.type != node.inputs[0].type) {
      return "the inputs have different types, " + node.inputs[0].type + " and " + value.type;
    }
  }
  return "";
}

// ---- MatMul -------------------------------------------------------------------------------------

std::string why_not_matmul(const Node&) { return ""; }  // any shapes, which a call brings

// Leading dimensions of both, as NumPy broadcasts them.
Shape broadcast(const Shape& a, const Shape& b) {
  const size_t rank = std::max(a.size(), b.size());
  Shape lead(rank - 2);
  for (size_t i = 0; i < lead.size(); ++i) {
    const int64_t x = i + a.size() < rank ? 1 : a[i + a.size() - rank];
    const int64_t y = i + b.size() < rank ? 1 : b[i + b.size() - rank];
    require(x == y || x == 1 || y == 1,
            "MatMul: the shapes " + shown(a) + " and " + shown(b) + " do not broadcast");
    lead[i] = x == 1 ? y : x;
  }
  return lead;
}

// How many matrices into `own` the one at `at` of the broadcast dimensions lies.
int64_t matrix_at(const Shape& own, const Shape& lead, int64_t at) {
  int64_t found = 0, stride = 1;
  for (size_t i = 0; i < lead.size(); ++i) {
    const size_t back = lead.size() - 1 - i;
    const int64_t place = at % lead[back];
    at /= lead[back];
    if (own.size() >= i + 3) {
      const int64_t size = own[own.size() - 3 - i];
      found += size == 1 ? 0 : place * stride;
      stride *= size;
    }
  }
  return found;
}

// Vectors lack a dimension, and so do their results.
Work matmul(const Node& node, const std::vector<Shape>& inputs) {
  Shape a = inputs[0], b = inputs[1];
  require(!a.empty() && !b.empty(), "MatMul: a and b must have at least 1 dimension");
  const bool is_row = a.size() == 1, is_column = b.size() == 1;
  a.insert(a.begin(), is_row ? 1 : 0, 1);
  b.insert(b.end(), is_column ? 1 : 0, 1);
  const int64_t m = a.end()[-2], k = a.back(), n = b.back();
  require(k == b.end()[-2], "MatMul: the shapes " + shown(a) + " and " + shown(b) + " do not fit");
  const Shape lead = broadcast(a, b);
  Work work;
  work.out = lead;
  work.out.insert(work.out.end(), is_row ? 0 : 1, m);
  work.out.insert(work.out.end(), is_column ? 0 : 1, n);
  if (count(work.out) == 0 || k == 0) {
    return work;
  }
  const int64_t all = count(lead), bytes = bytes_of(node);
  const int64_t in_a = product(a, 0, a.size() - 2), in_b = product(b, 0, b.size() - 2);
  const std::string sizes =
      word("n", n) + word("k", k) + " layout=rrr dtype=" + node.inputs[0].type;
  const bool is_one_b = in_b == 1;  // the rows of all a are those of one product
  if (is_one_b || ((in_a == all || in_a == 1) && in_b == all)) {
    std::string line = "gemm" + word("m", is_one_b ? m * all : m) + sizes;
    if (!is_one_b && all > 1) {
      line += word("batch", all) + (in_a == 1 ? " batch_stride_a=0" : "");
    }
    work.launches.push_back({line, {{"a", 0, 0}, {"b", 1, 0}, {"out", kOut, 0}}});
    return work;
  }
  for (int64_t at = 0; at < all; ++at) {
    work.launches.push_back({"gemm" + word("m", m) + sizes,
                             {{"a", 0, matrix_at(a, lead, at) * m * k * bytes},
                              {"b", 1, matrix_at(b, lead, at) * k * n * bytes},
                              {"out", kOut, at * m * n * bytes}}});
  }
  return work;
}

// ---- Gemm ---------------------------------------------------------------------------------------

bool is_row(const Value& c) {
  return c.shape.size() == 1 || (c.shape.size() == 2 && c.shape[0].size == 1);
}

std::string why_not_gemm(const Node& node) {
  for (size_t i = 0; i < 2; ++i) {
    const std::string why = why_not_rank(node, i, 2, 2);
    if (!why.empty()) {
      return why;
    }
  }
  if (!has_input(node, 2) || number_or(node, "beta", 1) == 0) {
    return "";
  }
  const Value& c = node.inputs[2];
  const Dim& m = node.inputs[0].shape[int_or(node, "transA", 0) != 0 ? 1 : 0];
  const Dim& n = node.inputs[1].shape[int_or(node, "transB", 0) != 0 ? 0 : 1];
  if (!c.has_shape || c.shape.empty() || c.shape.size() > 2 || !must_be(c.shape.back(), n)) {
    return "C is not known to have as many columns as the product";
  }
  if (is_row(c)) {
    return number_or(node, "beta", 1) == 1 ? "" : "C is one row, and beta is not 1";
  }
  return must_be(c.shape[0], m) ? "" : "C is not known to have 1 row, or those of the product";
}

Work gemm(const Node& node, const std::vector<Shape>& inputs) {
  const bool turns_a = int_or(node, "transA", 0) != 0, turns_b = int_or(node, "transB", 0) != 0;
  require(
      inputs[0].size() == 2 && inputs[1].size() == 2,
      "Gemm: a and b must have 2 dimensions, got " + shown(inputs[0]) + " and " + shown(inputs[1]));
  const int64_t m = inputs[0][turns_a ? 1 : 0], k = inputs[0][turns_a ? 0 : 1];
  const int64_t n = inputs[1][turns_b ? 0 : 1];
  require(k == inputs[1][turns_b ? 1 : 0] && k > 0,
          "Gemm: the shapes " + shown(inputs[0]) + " and " + shown(inputs[1]) + " do not fit");
  Work work{{m, n}, {}};
  if (m * n == 0) {
    return work;
  }
  std::string line = "gemm" + word("m", m) + word("n", n) + word("k", k) + " layout=";
  line += std::string(turns_a ? "c" : "r") + (turns_b ? "c" : "r") + "r";
  line += " dtype=" + node.inputs[0].type + number("alpha", number_or(node, "alpha", 1));
  std::vector<Place> places = {{"a", 0, 0}, {"b", 1, 0}, {"out", kOut, 0}};
  const double beta = number_or(node, "beta", 1);
  if (has_input(node, 2) && beta != 0) {
    const Shape& c = inputs[2];
    require(!c.empty(), "Gemm: C is a single number");
    require(count(c) == (is_row(node.inputs[2]) ? n : m * n) && c.back() == n,
            "Gemm: C has the shape " + shown(c) + ", the product " + shown(work.out));
    line += is_row(node.inputs[2]) ? " epilogue=bias" : number("beta", beta);
    places.push_back({is_row(node.inputs[2]) ? "d0" : "c", 2, 0});
  }
  work.launches.push_back({line, places});
  return work;
}

// ---- Conv ---------------------------------------------------------------------------------------

std::string why_not_conv(const Node& node) {
  const std::string pad = text_or(node, "auto_pad", "NOTSET");
  if (pad != "NOTSET" && pad != "VALID") {
    return "auto_pad is " + pad + "; the provider takes NOTSET and VALID";
  }
  const std::string why = why_not_rank(node, 0, 3, 5);
  return why.empty() ? why_not_rank(node, 1, 3, 5) : why;
}

Work conv(const Node& node, const std::vector<Shape>& inputs) {
  const Shape &x = inputs[0], &w = inputs[1];
  require(x.size() == w.size() && x.size() >= 3 && x.size() <= 5,
          "Conv: the shapes " + shown(x) + " and " + shown(w) + " must have 3 to 5 dimensions");
  const size_t ndim = x.size() - 2;
  const int64_t groups = int_or(node, "group", 1);
  require(x[1] == w[1] * groups,
          "Conv: x of " + shown(x) + " must have " + std::to_string(w[1] * groups) + " channels");
  const bool is_valid = text_or(node, "auto_pad", "NOTSET") == "VALID";
  const Shape strides = ints_or(node, "strides", ndim, 1);
  const Shape dilations = ints_or(node, "dilations", ndim, 1);
  const Shape pads = is_valid ? Shape(2 * ndim, 0) : ints_or(node, "pads", 2 * ndim, 0);
  require(strides.size() == ndim && dilations.size() == ndim && pads.size() == 2 * ndim,
          "Conv: strides, dilations and pads must be for " + std::to_string(ndim) + " dimensions");
  const char* const sizes[] = {"d", "h", "w"};
  const char* const filters[] = {"z", "y", "x"};
  Work work{{x[0], w[0]}, {}};
  std::string line = "conv direction=forward layout=nchw dtype=" + node.inputs[0].type +
                     word("ndim", ndim) + word("n", x[0]) + word("c", x[1]) + word("k", w[0]) +
                     word("g", groups);
  for (size_t i = 0; i < ndim; ++i) {
    const std::string name = sizes[3 - ndim + i];
    require(strides[i] > 0 && dilations[i] > 0, "Conv: strides and dilations must be at least 1");
    const int64_t reach = dilations[i] * (w[2 + i] - 1) + 1;
    const int64_t space = x[2 + i] + pads[i] + pads[ndim + i] - reach;
    require(space >= 0, "Conv: the filter reaches over " + std::to_string(reach) +
                            " elements of an image of " + shown(x));
    work.out.push_back(space / strides[i] + 1);
    line += word(name.c_str(), x[2 + i]) + word(filters[3 - ndim + i], w[2 + i]) +
            word(("stride_" + name).c_str(), strides[i]) +
            word(("dilation_" + name).c_str(), dilations[i]) +
            word(("pad_" + name).c_str(), pads[i]) +
            word(("pad_right_" + name).c_str(), pads[ndim + i]);
  }
  if (count(work.out) == 0) {
    return work;
  }
  std::vector<Place> places = {{"in", 0, 0}, {"weight", 1, 0}, {"out", kOut, 0}};
  if (has_input(node, 2)) {
    require(inputs[2] == Shape{w[0]}, "Conv: the bias has the shape " + shown(inputs[2]));
    line += " epilogue=bias";
    places.push_back({"d0", 2, 0});
  }
  work.launches.push_back({line, places});
  return work;
}

// ---- LayerNormalization, RMSNormalization, Softmax ----------------------------------------------

// The first dimension that is normalised, or -1 where there is no such dimension.
int64_t axis_of(const Node& node, int64_t rank) {
  const int64_t axis = int_or(node, "axis", node.op == "Softmax" && node.since < 13 ? 1 : -1);
  const int64_t found = axis < 0 ? axis + rank : axis;
  return found < rank ? std::max<int64_t>(found, -1) : -1;
}

std::string why_not_norm(const Node& node) {
  const std::string why = why_not_rank(node, 0, 1, 8);
  if (!why.empty()) {
    return why;
  }
  const std::vector<Dim>& x = node.inputs[0].shape;
  const int64_t rank = static_cast<int64_t>(x.size()), axis = axis_of(node, rank);
  if (axis < 0) {
    return "its axis is none of the dimensions";
  }
  if (node.op == "Softmax") {
    return axis == rank - 1 ? "" : "it is not over the last dimension";
  }
  if (int_or(node, "stash_type", 1) != 1) {
    return "stash_type is not 1, float32";
  }
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    if (!node.inputs[i].is_given) {
      continue;
    }
    const std::vector<Dim>& row = node.inputs[i].shape;
    bool fits = node.inputs[i].has_shape && static_cast<int64_t>(row.size()) == rank - axis;
    for (size_t j = 0; fits && j < row.size(); ++j) {
      fits = must_be(row[j], x[axis + j]);
    }
    if (!fits) {
      return node.inputs[i].name + " is not known to have the shape of the normalised dimensions";
    }
  }
  return "";
}

Work norm(const Node& node, const std::vector<Shape>& inputs) {
  const Shape& x = inputs[0];
  const int64_t first = axis_of(node, static_cast<int64_t>(x.size()));
  require(first >= 0, node.op + ": the axis is no dimension of " + shown(x));
  const size_t axis = static_cast<size_t>(first);
  const int64_t rows = product(x, 0, axis), columns = product(x, axis, x.size());
  Work work{x, {}};
  if (rows * columns == 0) {
    return work;
  }
  const std::string kind = node.op == "Softmax"            ? "softmax"
                           : node.op == "RMSNormalization" ? "rmsnorm"
                                                           : "layernorm";
  std::string line = "norm kind=" + kind + word("rows", rows) + word("columns", columns) +
                     " dtype=" + node.inputs[0].type;
  std::vector<Place> places = {{"in", 0, 0}, {"out", kOut, 0}};
  const char* const names[] = {"", "scale", "shift"};
  for (int i = 1; i <= 2; ++i) {
    if (has_input(node, i)) {
      require(count(inputs[i]) == columns,
              node.op + ": " + shown(inputs[i]) + " is no row of " + shown(x));
      line += word(names[i], 1);
      places.push_back({names[i], i, 0});
    }
  }
  if (kind != "softmax") {
    line += number("epsilon", number_or(node, "epsilon", 1e-5));
  }
  work.launches.push_back({line, places});
  return work;
}

// ---- Attention ----------------------------------------------------------------------------------

std::string why_not_mask(const Node& node) {
  const std::string why = why_not_rank(node, 3, 2, 4);
  if (!why.empty()) {
    return why;
  }
  const size_t tokens = node.inputs[0].shape.size() - 2;  // of three or four dimensions
  // Version 23 wants all keys in a mask, which the call checks; later ones fill up what is missing.
  const auto fits = [&](const Dim& dim, const Dim& whole) {
    return are_equal(dim, whole) || (node.since == 23 && (dim.size < 0 || whole.size < 0));
  };
  const std::vector<Dim>& mask = node.inputs[3].shape;
  if (!fits(mask.back(), node.inputs[1].shape[tokens])) {
    return "attn_mask is not known to have as many columns as there are keys";
  }
  return mask.end()[-2].size == 1 || fits(mask.end()[-2], node.inputs[0].shape[tokens])
             ? ""
             : "attn_mask is not known to have 1 row, or as many as there are queries";
}

std::string why_not_attention(const Node& node) {
  for (size_t i = 0; i < 3; ++i) {
    const std::string why = why_not_rank(node, i, 3, 4);
    if (!why.empty()) {
      return why;
    }
    const std::vector<Dim>& shape = node.inputs[i].shape;
    if (shape.size() != node.inputs[0].shape.size()) {
      return "Q, K and V have different numbers of dimensions";
    }
    const char* const count = i == 0 ? "q_num_heads" : "kv_num_heads";
    const int64_t heads = shape.size() == 4 ? 1 : int_or(node, count, 0);
    if (heads <= 0) {
      return std::string(count) + " is not given";
    }
    const int64_t hdim = shape.back().size / heads;
    if (shape.back().size <= 0 || hdim > (i == 2 ? 512 : 576)) {
      return "the elements of a head are not known to be at most 576 (V: 512)";
    }
  }
  for (size_t i = 4; i < node.inputs.size(); ++i) {
    if (node.inputs[i].is_given) {
      return "it has a cache of past keys, or lengths";
    }
  }
  const bool has_mask = has_input(node, 3);
  if (number_or(node, "softcap", 0) != 0 && (has_mask || int_or(node, "is_causal", 0) != 0)) {
    return "softcap is given beside a mask, whose order differs between versions of ONNX";
  }
  if (int_or(node, "softmax_precision", 1) != 1) {
    return "softmax_precision is not 1, float32";
  }
  return has_mask ? why_not_mask(node) : "";
}

struct Heads {
  int64_t batch, heads, tokens, hdim;
};

Heads heads_of(const Shape& shape, int64_t heads) {
  if (shape.size() == 4) {
    return {shape[0], shape[1], shape[2], shape[3]};
  }
  require(shape.size() == 3 && heads > 0 && shape[2] % heads == 0,
          "Attention: " + shown(shape) + " has no " + std::to_string(heads) + " heads");
  return {shape[0], heads, shape[1], shape[2] / heads};
}

// Heads before tokens, as arrays of four dimensions have them.
std::string strides(const char* name, const Heads& of) {
  const std::string begin = std::string(name) + "_stride_";
  return word((begin + "b").c_str(), of.heads * of.tokens * of.hdim) +
         word((begin + "h").c_str(), of.tokens * of.hdim) + word((begin + "s").c_str(), of.hdim);
}

std::string bias_words(const Shape& mask, const Heads& q, const Heads& k) {
  require(mask.size() >= 2 && mask.size() <= 4,
          "Attention: attn_mask has the shape " + shown(mask));
  Shape whole(4 - mask.size(), 1);
  whole.insert(whole.end(), mask.begin(), mask.end());
  const int64_t wanted[] = {q.batch, q.heads, q.tokens, k.tokens};
  const char* const keys[] = {"bias_stride_b", "bias_stride_h", "bias_stride_q", "bias_stride_k"};
  std::string words = " bias=elementwise";
  for (size_t i = 0; i < 4; ++i) {
    require((whole[i] == 1 && i < 3) || whole[i] == wanted[i],
            "Attention: attn_mask has the shape " + shown(mask));
    words += word(keys[i], whole[i] == 1 ? 0 : product(whole, i + 1, 4));
  }
  return words;
}

Work attention(const Node& node, const std::vector<Shape>& inputs) {
  require(inputs[1].size() == inputs[0].size() && inputs[2].size() == inputs[0].size(),
          "Attention: Q, K and V must have equally many dimensions");
  const Heads q = heads_of(inputs[0], int_or(node, "q_num_heads", 0));
  const Heads k = heads_of(inputs[1], int_or(node, "kv_num_heads", 0));
  const Heads v = heads_of(inputs[2], int_or(node, "kv_num_heads", 0));
  require(q.batch == k.batch && q.batch == v.batch && k.heads == v.heads && k.tokens == v.tokens &&
              q.hdim == k.hdim && k.heads > 0 && q.heads % k.heads == 0,
          "Attention: Q, K and V have the shapes " + shown(inputs[0]) + ", " + shown(inputs[1]) +
              " and " + shown(inputs[2]));
  const Heads out = {q.batch, q.heads, q.tokens, v.hdim};
  const bool is_wide = inputs[0].size() == 4;
  Work work;
  work.out = is_wide ? Shape{q.batch, q.heads, q.tokens, v.hdim}
                     : Shape{q.batch, q.tokens, q.heads * v.hdim};
  if (count(work.out) == 0 || k.tokens == 0) {
    return work;
  }
  std::string line = "fmha" + word("batch", q.batch) + word("heads", q.heads) +
                     word("heads_kv", k.heads) + word("seqlen_q", q.tokens) +
                     word("seqlen_k", k.tokens) + word("hdim", q.hdim) + word("hdim_v", v.hdim) +
                     " dtype=" + node.inputs[0].type;
  if (is_wide) {
    line += strides("q", q) + strides("k", k) + strides("v", v) + strides("out", out);
  }
  line += node.attributes.count("scale") != 0 ? number("scale", number_or(node, "scale", 1)) : "";
  line += number("soft_cap", number_or(node, "softcap", 0));
  line += int_or(node, "is_causal", 0) != 0 ? " mask=top_left" : "";
  std::vector<Place> places = {{"q", 0, 0}, {"k", 1, 0}, {"v", 2, 0}, {"out", kOut, 0}};
  if (has_input(node, 3)) {
    line += bias_words(inputs[3], q, k);
    places.push_back({"bias", 3, 0});
  }
  work.launches.push_back({line, places});
  return work;
}

// ---- The table ----------------------------------------------------------------------------------

struct Row {
  const char* op;
  std::string (*why_not)(const Node& node);
  Work (*work)(const Node& node, const std::vector<Shape>& inputs);
};

constexpr Row kRows[] = {{"MatMul", why_not_matmul, matmul},
                         {"Gemm", why_not_gemm, gemm},
                         {"Conv", why_not_conv, conv},
                         {"LayerNormalization", why_not_norm, norm},
                         {"RMSNormalization", why_not_norm, norm},
                         {"Softmax", why_not_norm, norm},
                         {"Attention", why_not_attention, attention}};

const Row* row_of(const Node& node) {
  for (const Row& row : kRows) {
    if (node.op == row.op && (node.domain.empty() || node.domain == "ai.onnx")) {
      return &row;
    }
  }
  return nullptr;
}

bool is_static(const Value& value) {
  return !value.is_given ||
         (value.has_shape && std::all_of(value.shape.begin(), value.shape.end(),
                                         [](const Dim& dim) { return dim.size >= 0; }));
}

}  // namespace

std::string why_not(const Node& node) {
  const Row* row = row_of(node);
  if (row == nullptr) {
    return "Tessera has no such operator";
  }
  for (size_t i = 1; i < node.outputs.size(); ++i) {
    if (node.outputs[i].is_given) {
      return "more than its first output is used";
    }
  }
  const std::string types = why_not_types(node);
  const std::string why = types.empty() ? row->why_not(node) : types;
  if (!why.empty() || !std::all_of(node.inputs.begin(), node.inputs.end(), is_static)) {
    return why;
  }
  std::vector<Shape> shapes(node.inputs.size());
  for (size_t i = 0; i < shapes.size(); ++i) {
    for (const Dim& dim : node.inputs[i].shape) {
      shapes[i].push_back(dim.size);
    }
  }
  try {
    row->work(node, shapes);
  } catch (const std::runtime_error& refusal) {
    return refusal.what();
  }
  return "";
}

Work work_of(const Node& node, const std::vector<Shape>& inputs) {
  return row_of(node)->work(node, inputs);
}

}  // namespace tessera_ort
