// Instances of another library's kernel templates: a second way to write kernels down.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/families/answers.h"
#include "tessera/families/facts.h"
#include "tessera/spec/kernel_spec.h"
#include "tessera/spec/target.h"

namespace tessera {

struct Family;

// A file that another library's compiler reads. Its path may name a folder.
struct InstanceFile {
  std::string path;
  std::string text;
};

// One kernel as an instance: the name by which the library knows it, and its header.
struct Instance {
  std::string name;
  KernelSpec spec;
  InstanceFile file;
};

// A kernel that a row of the library's own files measured.
struct InstanceRow {
  Algorithm algorithm;
  // Whether it takes sizes that are no multiples of its tile. All kernels of ours do.
  bool is_padded = true;
  // Whether the row says wrongly that it does not.
  bool is_mended = false;
};

// How a family writes its kernels for one library. The specs and names belong to the family's
// own kernels; which of them the library has, its space and its rules decide.
struct InstanceSource {
  std::string_view name;  // the word of `tessera generate --source`
  // The lists of the target's space. Throws Error{unsupported} when its row has none for the
  // operation.
  std::vector<Signature> (*signatures)(const Target&);
  std::vector<Algorithm> (*algorithms)(const Target&, const Signature&);
  // The kernels of a named set that the library has, in name order. Throws Error{not_found} with
  // the nearest name.
  std::vector<KernelSpec> (*preselected)(std::string_view set, const Target&);
  // Whether the library has the kernel for the target, and whether a kernel that it has serves the
  // problem.
  Verdict (*is_legal)(const KernelSpec&, const Target&);
  Verdict (*supports)(const KernelSpec&, const Problem&);
  // The instance of a legal kernel.
  Instance (*emit)(const KernelSpec&, const Target&);
  // The files that register so many instances of one target, sorted by their names.
  std::vector<InstanceFile> (*registration)(std::span<const Instance>, const Target&);
  // What the library's names of kernels begin with: "grouped_conv". Empty where rows of its files
  // are not read.
  std::string_view word = {};
  // Reads a kernel from a row: its name, under "kernel", and its fields by the library's words, all
  // in lower case. The fields leave the row, and what they and the name say of the problem joins
  // it: types, layout, direction. Throws Error{parse_error}; its text continues a sentence of the
  // caller that begins with the row.
  InstanceRow (*from_row)(ProblemWords& row) = nullptr;
};

// The word for kernels of our own, and the words of all sources, that one first.
inline constexpr std::string_view kNativeSource = "native";
std::vector<std::string_view> instance_sources();

// The family's source of that name; null for kNativeSource. Throws Error{not_found} with the
// nearest word for an unknown one, and Error{unsupported} when the family has no such source.
const InstanceSource* find_instance_source(const Family& family, std::string_view name);

// The family and the source by whose word a kernel's name begins, or a row's operation; nulls when
// there is none.
struct SourceOfName {
  const Family* family = nullptr;
  const InstanceSource* source = nullptr;
};
SourceOfName find_source_of(std::string_view name);

// What the family's own functions of the same purpose do, for the kernels of a source: every legal
// one that passes the wishes, sorted by name; those that serve a problem; the instance of a kernel,
// or Error{illegal_spec} with the rule that it breaks.
std::vector<KernelSpec> enumerate_instances(const InstanceSource& source, const Family& family,
                                            const Target& target, std::span<const Wish> wishes);
std::vector<KernelSpec> instances_for(const InstanceSource& source, const Problem& problem,
                                      const Target& target);
Instance emit_instance(const InstanceSource& source, const KernelSpec& spec, const Target& target);

}  // namespace tessera
