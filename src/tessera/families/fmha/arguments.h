// The arguments of attention's kernels, which the reference reads, too.
#pragma once

#include "tessera/device/fmha.h"
#include "tessera/device/fmha_append.h"  // a template below needs both
#include "tessera/device/fmha_backward.h"
#include "tessera/families/fmha/fmha.h"

namespace tessera::fmha {

// The problem has its strides.
device::FmhaArguments arguments_of(const FmhaProblem& problem, const FmhaOperands& operands);
device::FmhaBackwardArguments backward_arguments(const FmhaProblem& problem,
                                                 const FmhaOperands& operands);

void copy_strides(const FmhaStrides& from, device::i64 (&to)[device::kTokenStrides]);

// A grid of so many blocks. Kernels walk on from there where a side would be too large.
std::array<unsigned, 3> grid_of(const std::array<std::int64_t, 3>& blocks);

// The fields of pages, which the arguments of all kinds have.
template <class Arguments>
void set_page_fields(const FmhaProblem& p, const FmhaOperands& o, Arguments& g) {
  g.page_table = o.page_table, g.page_starts = o.page_starts;
  g.bad_page = p.check_pages ? o.bad_page : nullptr;
  g.page_size = p.page_size, g.num_pages = p.num_pages;
  g.max_pages = p.max_pages, g.table_stride = p.table_stride, g.page_entries = p.page_entries;
}

// What sequence_of() says of a sequence, `lengths` and `pages` being the problem's.
template <device::FmhaPages kPages, class Arguments>
auto sequence_in(FmhaLengths lengths, const Arguments& g, std::int64_t batch) {
  switch (lengths) {
    case FmhaLengths::packed:
      return device::sequence_of<device::FmhaLengths::packed, kPages>(g, batch);
    case FmhaLengths::padded:
      return device::sequence_of<device::FmhaLengths::padded, kPages>(g, batch);
    default:
      return device::sequence_of<device::FmhaLengths::equal, kPages>(g, batch);
  }
}

// Says that a page of an entry is out of range; `place` is the entry's in page_table.
[[noreturn]] void throw_bad_page(const FmhaProblem& problem, const device::FmhaBadPage& bad,
                                 std::int64_t place);

// Throws Error{invalid_argument} at the first page out of range of a problem with pages, with which
// a checked launch writes nothing that could be compared.
template <class Arguments>
void refuse_bad_page(const FmhaProblem& p, const Arguments& g) {
  const auto at = [&](std::int64_t batch) {
    return p.pages == FmhaPages::table ? sequence_in<device::FmhaPages::table>(p.lengths, g, batch)
                                       : sequence_in<device::FmhaPages::list>(p.lengths, g, batch);
  };
  const device::FmhaBadPage bad = device::first_bad_page(g, at);
  if (bad.found != 0) throw_bad_page(p, bad, at(bad.sequence).first_key + bad.entry);
}

}  // namespace tessera::fmha
