#include "tessera/commands/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

namespace tessera::commands {
namespace {

constexpr std::string_view kShapeExtension = ".txt";

std::vector<std::string> shape_names() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : shape_files()) {
    names.emplace_back(file.path.substr(0, file.path.size() - kShapeExtension.size()));
  }
  return names;
}

std::string shape_text(const std::string& name_or_path) {
  for (const EmbeddedFile& file : shape_files()) {
    if (file.path == name_or_path + std::string(kShapeExtension)) return std::string(file.content);
  }
  if (!fs::exists(name_or_path)) {
    throw Error(
        ErrorCode::not_found,
        fmt::format(
            "unknown shape file '{}'{} (known: {}; a file of your own is named by its path)",
            name_or_path, did_you_mean(name_or_path, shape_names()), join(shape_names(), ", ")));
  }
  return read_file(name_or_path);
}

// The problem in the types that the options name.
Problem with_types(const Problem& problem, const ProblemOptions& options) {
  if (options.dtype.empty() && options.layout.empty()) return problem;
  return family_of(problem).retyped(problem, {options.dtype, options.layout});
}

// The problem with fields replaced by the words that the options set.
Problem with_fields(const Problem& problem, const ProblemOptions& options) {
  if (options.set.empty()) return problem;
  const auto key_of = [](std::string_view word) { return word.substr(0, word.find('=')); };
  std::string line;
  const std::string given = to_string(problem);
  for (const std::string_view word : split_words(given)) {
    const bool is_replaced = std::ranges::any_of(
        options.set, [&](const std::string& set) { return key_of(set) == key_of(word); });
    if (!is_replaced) line += fmt::format("{} ", word);
  }
  return parse_problem(line + join(options.set, " "));
}

// Calls `read` and returns its result; errors get the line as a prefix.
template <class Read>
Problem read_line(const ProblemOptions& options, int number, Read read) {
  try {
    return read();
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}:{}: {}", options.shapes, number, error.what()));
  }
}

// The problems of a shape file. All are checked before the first one runs.
std::vector<Problem> read_lines(const ProblemOptions& options) {
  const std::string text = shape_text(options.shapes);
  std::vector<Problem> problems;
  int number = 0;
  for (std::string_view line : split(without_byte_order_mark(text), '\n')) {
    ++number;
    line = line.substr(0, line.find('#'));
    if (split_words(line).empty()) continue;
    const Problem given = read_line(options, number, [&] { return parse_problem(line); });
    if (!options.op.empty() && to_string(op_of(given)) != options.op) continue;
    // errors here come from options, not from a line
    const Problem problem = with_types(with_fields(given, options), options);
    problems.push_back(read_line(options, number, [&] {
      family_of(problem).validate(problem);
      return problem;
    }));
  }
  if (problems.empty()) {
    const std::string of = options.op.empty() ? "" : " of " + options.op;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} holds no problem{}", options.shapes, of));
  }
  return problems;
}

// The words that a family offers for a derived field.
std::string derived_words(std::string_view name) {
  for (const Family* family : all_families()) {
    for (const DerivedField& field : family->derived()) {
      if (field.name == name) return join(field.words(), ", ");
    }
  }
  return {};
}

// Options that are wishes, by the name of their field.
struct WishOption {
  const char* option;
  const char* field;
  std::string description;
  bool many;  // whether the option takes all words that follow
};
std::vector<WishOption> wish_options() {
  return {{"--datatype,--dtype", "dtype", "Element types of A", true},
          {"--layout", "layout", "rcr, rrr, crr or ccr", true},
          {"--variants", "variant", derived_words("variant"), true},
          {"--ndim-spatial", "ndim", "Spatial dimensions of convolutions: 1, 2, 3", true},
          {"--pipeline", "pipeline", "packab, packb, packa, direct, stream, ...", false},
          {"--tile", "tile", "Such as 128x*x64", false},
          {"--wave", "wave", "Such as 0x0x1", false},
          {"--warp-tile", "warp_tile", "Such as 12x*x1", false}};
}

bool is_assignment(std::string_view text) {
  const std::size_t equals = text.find('=');
  return equals != 0 && equals != std::string_view::npos;
}

std::string check_assignment(const std::string& text) {
  return is_assignment(text) ? "" : fmt::format("must be KEY=VALUE such as n=1, got {}", text);
}

std::string check_wish(const std::string& text) {
  if (is_assignment(text)) return "";
  return fmt::format("must be FIELD=PATTERN such as stages=4, got {}", text);
}

void add_wish_options(CLI::App& app, std::vector<Wish>& wishes) {
  using Patterns = std::vector<std::string>;
  for (const WishOption& row : wish_options()) {
    const auto add = [&wishes, field = row.field](const Patterns& patterns) {
      for (const std::string& pattern : patterns) wishes.push_back({field, pattern});
    };
    app.add_option_function<Patterns>(row.option, add, row.description)
        ->delimiter(',')
        ->allow_extra_args(row.many);
  }
  const auto add = [&wishes](const Patterns& texts) {
    for (const std::string& text : texts) {
      const std::size_t equals = text.find('=');
      wishes.push_back({text.substr(0, equals), text.substr(equals + 1)});
    }
  };
  app.add_option_function<Patterns>(
         "--where", add, "FIELD=PATTERN, of any field that 'tessera show' prints: stages=4")
      ->check(check_wish)
      ->allow_extra_args(false);
}

KernelSet named_set(const std::vector<std::string>& names, const Target& target) {
  KernelSetBuilder builder("named", target);
  for (const std::string& name : names) builder.add(name_of(find_kernel(name)));
  return builder.build();
}

// All kernels of the operation that pass the wishes. The builder throws when there are none.
KernelSet wished_set(const KernelOptions& options, const Target& target) {
  KernelSetBuilder builder("selected", target);
  builder.op(parse_op(options.op));
  for (const Wish& wish : options.wishes) builder.where(wish.field, wish.pattern);
  return builder.build();
}

KernelSet narrowed(KernelSet set, const KernelOptions& options) {
  const KernelFilter wishes(family_of(parse_op(options.op)), options.wishes);
  std::erase_if(set.specs, [&](const KernelSpec& spec) { return !wishes.accepts(spec); });
  return set;
}

// A shipped set, narrowed by the wishes.
KernelSet preselected_set(const KernelOptions& options, const Target& target) {
  const Family& family = family_of(parse_op(options.op));
  KernelSet set{.name = options.preselected,
                .specs = family.preselected(options.preselected, target)};
  return narrowed(std::move(set), options);
}

// What a framework needs, narrowed by the wishes.
KernelSet receipt_set(const KernelOptions& options, const Target& target) {
  const FoundReceipt found = find_receipt(options.receipt);
  if (found.family->op != parse_op(options.op)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("receipt '{}' is one of --op {}, got --op {}", options.receipt,
                            to_string(found.family->op), options.op));
  }
  const std::string name(found.receipt->name);
  return narrowed(KernelSetBuilder(name, target).receipt(name).build(), options);
}

void match_pattern(const KernelOptions& options, KernelSet& set) {
  if (options.pattern.empty()) return;
  std::erase_if(set.specs, [&](const KernelSpec& spec) {
    return !matches_wildcard(options.pattern, name_of(spec));
  });
}

KernelSet declared_set(const KernelOptions& options, const Target& target) {
  if (!options.preselected.empty()) return preselected_set(options, target);
  if (!options.receipt.empty()) return receipt_set(options, target);
  return wished_set(options, target);
}

}  // namespace

std::vector<std::string> problem_set_names() {
  std::vector<std::string> names;
  for (const Family* family : all_families()) {
    for (const std::string_view name : family->problem_sets()) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
    }
  }
  return names;
}

void add_problem_options(CLI::App& app, ProblemOptions& options) {
  app.add_option("problem", options.words, "The problem: gemm m=128 n=3072 k=768 dtype=bf16 ...");
  app.add_option(
      "--shapes", options.shapes,
      fmt::format("A file with a problem a line, or one of {}", join(shape_names(), ", ")));
  app.add_option("--dtype", options.dtype, "Replaces the problems' element types");
  app.add_option("--layout", options.layout, "Replaces the problems' layouts");
  app.add_option("--set", options.set, "KEY=VALUE, replaces this field of every problem: n=1")
      ->check(check_assignment)
      ->allow_extra_args(false);
}

std::string usual_op() { return std::string(to_string(all_families().front()->op)); }

Problem usual_problem(std::string_view bench) {
  const std::string path = fmt::format("{}{}", bench, kShapeExtension);
  for (const EmbeddedFile& file : usual_files()) {
    if (file.path == path) return parse_problem(file.content.substr(0, file.content.find('\n')));
  }
  throw Error(ErrorCode::internal, fmt::format("bench/usual has no {}", path));
}

std::vector<Problem> read_shapes(const std::string& name_or_path) {
  ProblemOptions options;
  options.shapes = name_or_path;
  return read_problems(options);
}

std::vector<Problem> read_problems(const ProblemOptions& options) {
  if (options.words.empty() == options.shapes.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "give a problem, such as 'gemm m=128 n=3072 k=768', or a file after --shapes");
  }
  if (!options.shapes.empty()) return read_lines(options);
  return {with_types(with_fields(parse_problem(join(options.words, " ")), options), options)};
}

void add_target_option(CLI::App& app, std::string& name) {
  app.add_option("--target,--gpu-target", name,
                 "A machine's row (tessera targets lists them) or a .json file; this machine if "
                 "left out");
}

Target resolve_target(const std::string& name) {
  const std::string wanted = name.empty() ? environment("TESSERA_TARGET") : name;
  return wanted.empty() ? host_target() : load_target(wanted);
}

Target resolve_target_here(const std::string& name) {
  const std::string wanted = name.empty() ? environment("TESSERA_TARGET") : name;
  return wanted.empty() ? host_target() : load_target_here(wanted);
}

std::string check_not_empty(const std::string& text) {
  return text.empty() ? "must not be empty" : "";
}

bool read_real(std::string_view text, double& value) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}

// A comparison with NaN is false.
Check real_from(double least, double most) {
  return [least, most](const std::string& text) {
    double value = 0;
    const bool fits = read_real(text, value) && value >= least && value <= most;
    return fits ? "" : fmt::format("must be a number from {} to {}, got {}", least, most, text);
  };
}

// CLI11 itself reads 010 as 8 and, where there is no sign, -1 as 2^64 - 1.
bool read_whole(std::string_view text, std::int64_t least, std::int64_t most, std::int64_t& value) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::result_out_of_range && stop == end && !text.starts_with('-')) {
    value = std::numeric_limits<std::int64_t>::max();  // the caller's error then says that it is
                                                       // too large
  }
  return error == std::errc() && stop == end && text == std::to_string(value) && value >= least &&
         value <= most;
}

Check whole_from(int least) {
  return [least](const std::string& text) -> std::string {
    constexpr int kMost = std::numeric_limits<int>::max();
    std::int64_t number = 0;
    if (read_whole(text, least, kMost, number)) return "";
    if (number > kMost) return fmt::format("must be at most {}, got {}", kMost, text);
    return fmt::format("must be a whole number of at least {}, got {}", least, text);
  };
}

void add_integer_option(CLI::App& app, const std::string& name, int& value, int least,
                        const std::string& description) {
  app.add_option(name, value, description)->check(whole_from(least))->capture_default_str();
}

// CLI11 itself reads with strtold(), to which the host's locale says what a decimal point is.
void add_real_option(CLI::App& app, const std::string& name, double& value, double least,
                     const std::string& description, double most) {
  const auto read = [&value](const std::string& text) { read_real(text, value); };
  app.add_option_function<std::string>(name, read, description)
      ->check(real_from(least, most))
      ->type_name("FLOAT")
      ->default_str(fmt::format("{}", value));
}

// Stores keep seeds as signed numbers.
void add_seed_option(CLI::App& app, std::uint64_t& seed, const std::string& description) {
  const auto check = [](const std::string& text) {
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    std::int64_t number = 0;
    return read_whole(text, 0, kMost, number)
               ? ""
               : fmt::format("must be a whole number from 0 to {}, got {}", kMost, text);
  };
  app.add_option("--seed", seed, description)->check(check)->capture_default_str();
}

void add_threads_option(CLI::App& app, int& threads) {
  add_integer_option(app, "--threads", threads, 0,
                     "At most this many, and no more than the processors that may be used or "
                     "OMP_NUM_THREADS; 0: all");
}

void add_device_option(CLI::App& app, int& device) {
  add_integer_option(app, "--device", device, 0, "Which GPU, for targets of that kind");
}

void add_jobs_option(CLI::App& app, int& jobs) {
  add_integer_option(app, "--jobs", jobs, 0,
                     "This many at a time, at most 1024; 0: one per processor that may be used");
}

void add_kernel_options(CLI::App& app, KernelOptions& options) {
  app.add_option("--op", options.op, "The operation")->capture_default_str();
  add_wish_options(app, options.wishes);
  app.add_option("--pattern", options.pattern, "A wildcard over the whole name");
  CLI::Option* const set = app.add_option("--preselected", options.preselected,
                                          "A shipped set (tessera list --sets lists them)");
  app.add_option("--receipt", options.receipt,
                 "What a framework needs: flash, 4, ... (tessera list --receipts lists them)")
      ->excludes(set);
  add_target_option(app, options.target);
}

KernelSet select_kernels(const KernelOptions& options, const Target& target) {
  family_of(parse_op(options.op));
  if (!options.names.empty()) return named_set(options.names, target);
  KernelSet set = declared_set(options, target);
  match_pattern(options, set);
  if (set.specs.empty()) {
    throw Error(
        ErrorCode::not_found,
        fmt::format("no kernel for {} passes these filters; tessera list shows what there is",
                    target.name));
  }
  return set;
}

std::vector<KernelSpec> essential_kernels(std::span<const Family* const> families,
                                          const Target& target) {
  std::vector<KernelSpec> specs;
  for (const Family* family : families) {
    for (const std::string& set : family->preselected_names()) {
      if (!matches_wildcard("*_essential", set)) continue;
      try {
        for (KernelSpec& spec : family->preselected(set, target)) specs.push_back(std::move(spec));
      } catch (const Error& error) {
        if (error.code() != ErrorCode::not_found) throw;  // another target's set
      }
    }
  }
  return specs;
}

KernelSet select_instances(const InstanceSource& source, const KernelOptions& options,
                           const Target& target) {
  KernelSet set{.name = options.preselected.empty() ? "selected" : options.preselected,
                .specs = {}};
  if (!options.names.empty()) {
    set.name = "named";
    for (const std::string& name : options.names) set.specs.push_back(find_kernel(name));
    return set;
  }
  const Family& family = family_of(parse_op(options.op));
  if (!options.receipt.empty()) {
    throw Error(ErrorCode::unsupported,
                fmt::format("--receipt takes kernels of our own, got --source {}", source.name));
  }
  if (options.preselected.empty()) {
    set.specs = enumerate_instances(source, family, target, options.wishes);
  } else {
    set.specs = source.preselected(options.preselected, target);
  }
  narrow(options, target, fmt::format("has a {} instance", source.name), set);
  return set;
}

void narrow(const KernelOptions& options, const Target& target, std::string_view whose,
            KernelSet& set) {
  if (!set.specs.empty()) {
    const KernelFilter wishes(family_of(set.specs.front()), options.wishes);
    std::erase_if(set.specs, [&](const KernelSpec& spec) { return !wishes.accepts(spec); });
  }
  match_pattern(options, set);
  if (!set.specs.empty()) return;
  throw Error(ErrorCode::not_found,
              fmt::format("no kernel for {} that passes these filters {}", target.name, whose));
}

KernelSpec find_kernel(const std::string& name) {
  KernelSpec spec;
  try {
    spec = parse_name(name);
  } catch (const Error& error) {
    // The last word of the name is its target, even when the rest is misspelt.
    const std::string target = name.substr(name.rfind('_') + 1);
    const std::vector<std::string> targets = target_names();
    if (std::find(targets.begin(), targets.end(), target) == targets.end()) throw;
    std::vector<std::string> names;
    for (const Family* family : all_families()) {
      for (const KernelSpec& each : family->enumerate(load_target(target), {})) {
        names.push_back(name_of(each));
      }
    }
    throw Error(ErrorCode::not_found, fmt::format("unknown kernel '{}'{} ({})", name,
                                                  did_you_mean(name, names), error.what()));
  }
  return spec;
}

}  // namespace tessera::commands
