// Options that several commands share, and what they stand for.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/tessera.hpp"

namespace CLI {
class App;
}

namespace tessera {
// The files of bench/shapes, carried inside the program.
std::span<const EmbeddedFile> shape_files();
}  // namespace tessera

namespace tessera::cli {

// Which problems: words after the command, or a shape file.
struct ProblemOptions {
  std::vector<std::string> words;  // {"gemm", "m=128", ...}
  std::string shapes;              // a file, or the name of one of bench/shapes
  std::string dtype;               // replaces every problem's types
  std::string layout;
};
void add_problem_options(CLI::App& app, ProblemOptions& options);
// The names of all families' lists of problems.
std::vector<std::string> problem_set_names();
std::vector<Problem> read_problems(const ProblemOptions& options);

// The same for a shape file alone: one problem a line, '#' starts a comment. All of its problems
// are valid; errors name file and line.
std::vector<Problem> read_shapes(const std::string& name_or_path);

// Which machine: a row's name or file, else TESSERA_TARGET, else this machine.
void add_target_option(CLI::App& app, std::string& name);
Target resolve_target(const std::string& name);

// What CLI::Option::check() takes: empty for a good text, else what it must be.
using Check = std::function<std::string(const std::string& text)>;
std::string check_not_empty(const std::string& text);

// Times are at most some thirty years: every clock can count them.
constexpr double kLeastSeconds = 1e-3;  // of a limit
constexpr double kMostSeconds = 1e9;
// A finite number from `least` to `most`.
Check real_from(double least, double most = kMostSeconds);

// Decimal digits, without leading zeros, of a number from `least` to `most`.
bool read_whole(std::string_view text, std::int64_t least, std::int64_t most, std::int64_t& value);

// An integer that is refused below `least`.
void add_integer_option(CLI::App& app, const std::string& name, int& value, int least,
                        const std::string& description);
void add_seed_option(CLI::App& app, std::uint64_t& seed, const std::string& description);
void add_threads_option(CLI::App& app, int& threads);
void add_device_option(CLI::App& app, int& device);
void add_jobs_option(CLI::App& app, int& jobs);

// Which kernels: names, a preselected set, or all of the operation that pass the wishes.
struct KernelOptions {
  std::string op = "gemm";
  std::vector<std::string> names;
  std::string preselected;
  std::vector<Wish> wishes;
  std::string pattern;  // a wildcard over the whole name; empty: any
  std::string target;
};
void add_kernel_options(CLI::App& app, KernelOptions& options);
// Wishes narrow a preselected set too. Throws Error{not_found} when nothing is left.
KernelSet select_kernels(const KernelOptions& options, const Target& target);

// A kernel's spec by name. Throws Error{not_found} with the target's nearest kernel name.
KernelSpec find_kernel(const std::string& name);

}  // namespace tessera::cli
