// Wishes narrow a list of kernels: patterns over the fields of a spec, by the fields' own names.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/spec/kernel_spec.h"

namespace tessera {

struct Family;

// A field that a family offers to wishes beside the fields of its signature and of the algorithm.
struct DerivedField {
  std::string_view name;
  std::vector<std::string> (*words)();  // every word that the field may have
  std::string_view (*word)(const Signature&);
};

// The fields that wishes about the family's kernels may name.
std::vector<std::string> wish_fields(const Family& family);

// Wishes that have been parsed and checked. A spec passes when, for each field that the wishes
// name, the field's word matches one of the patterns for it.
class KernelFilter {
 public:
  // Throws Error{parse_error} for an unknown field or word, with the nearest one, and
  // Error{invalid_argument} for a pattern that no number matches.
  KernelFilter(const Family& family, std::span<const Wish> wishes);

  bool accepts(const Signature& signature) const;
  bool accepts(const Algorithm& algorithm) const;
  bool accepts_name(const KernelSpec& spec) const;
  bool accepts(const KernelSpec& spec) const;

  bool has(std::string_view field) const;
  // Whether a field with this word passes.
  bool accepts_word(std::string_view field, std::string_view word) const;

  // A field that the wishes restrict, and its patterns.
  struct Wanted {
    std::string field;
    std::vector<std::string> patterns;
  };
  // In the order of the wishes.
  const std::vector<Wanted>& wanted() const { return wanted_; }

 private:
  const Wanted* find(std::string_view field) const;
  template <class Struct>
  bool accepts_fields(const Struct& object) const;

  std::span<const DerivedField> derived_;
  std::vector<Wanted> wanted_;
};

// "tile=128x*x64", "dtype=fp32,bf16"
std::string to_string(const KernelFilter::Wanted& wanted);

}  // namespace tessera
