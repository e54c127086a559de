// The slow obvious answer of appending and attending: the cache as it is then, in copies, and
// attention over the copies.
#include <utility>

#include "tessera/families/fmha/extend.h"

namespace tessera::fmha {
namespace {

using tile::Bounded;

// All outputs of attention have the same rows. Each is computed by itself, so that outputs with
// rows of their own can stand beside it.
class ExtendRows {
 public:
  ExtendRows(const FmhaProblem& p, const FmhaOperands& o, const ReferenceLimits& limits)
      : p_(with_strides(attention_part(p))), o_(o), copies_(appended_copies(p, o)) {
    o_.k = copies_.k.data(), o_.v = copies_.v.data();
    if (p.rotate_q) o_.q = copies_.q.data();
    compute_ = attention_rows(p_, o_, limits, &copies_);
    for (const Tensor& tensor : tensors(p_)) {
      if (tensor.is_written() && !tensor.is_report) columns_.push_back(tensor.sizes[0]);
    }
  }

  std::size_t outputs() const { return columns_.size(); }

  void compute(std::size_t output, std::int64_t row, Bounded* to) const {
    std::vector<std::vector<Bounded>> others;
    std::vector<Bounded*> places;
    for (const std::int64_t columns : columns_) {
      others.emplace_back(static_cast<std::size_t>(columns));
      places.push_back(others.back().data());
    }
    places[output] = to;
    compute_(row, places.data());
  }

 private:
  FmhaProblem p_;
  FmhaOperands o_;
  AppendedCopies copies_;
  tile::ComputeRow compute_;
  std::vector<std::int64_t> columns_;
};

}  // namespace

Reference extend_reference(const FmhaProblem& p, const FmhaOperands& operands,
                           const ReferenceLimits& limits) {
  const ExtendRows attention(p, operands, limits);
  const std::size_t appended = p.rotate_q ? 3 : 2;
  ReferenceLimits of_one = limits;
  of_one.multiplications /= double(appended + attention.outputs());
  of_one.elements /= static_cast<std::int64_t>(appended + attention.outputs());
  WrittenRows append = written_rows(p, operands, of_one);
  // In the order of the tensors.
  std::vector<std::vector<std::int64_t>> rows;
  if (p.rotate_q) rows.push_back(std::move(append.rows[2]));
  rows.push_back(std::move(append.rows[0])), rows.push_back(std::move(append.rows[1]));
  for (const Tensor& tensor : tensors(p)) {
    if (tensor.name != "out") continue;
    rows.resize(rows.size() + attention.outputs(),
                tile::spread_rows(tensor, of_one, cost_of_row(p)));
  }
  return tile::reference_of_rows(family(), p, std::move(rows), limits.threads,
                                 [&](std::size_t output, std::int64_t row, Bounded* to) {
                                   if (output >= appended)
                                     return attention.compute(output - appended, row, to);
                                   append.compute(p.rotate_q ? (output + 2) % 3 : output, row, to);
                                 });
}

}  // namespace tessera::fmha
