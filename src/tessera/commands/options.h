// Options that several commands share, and the objects that they select.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/tools.hpp"

namespace CLI {
class App;
}

namespace tessera {
// The files of bench/shapes, which the program contains.
std::span<const EmbeddedFile> shape_files();
// And the files of bench/usual.
std::span<const EmbeddedFile> usual_files();
}  // namespace tessera

namespace tessera::commands {

// The operation that commands are about where none is named.
std::string usual_op();
// What a bench times where no problem is given: the first line of bench/usual/<bench>.txt.
Problem usual_problem(std::string_view bench);

// Which problems: words after the command, or a shape file.
struct ProblemOptions {
  std::vector<std::string> words;  // {"gemm", "m=128", ...}
  std::string shapes;              // a file, or the name of a file of bench/shapes
  std::string dtype;               // replaces every problem's types
  std::string layout;
  std::vector<std::string> set = {};  // "n=1": replaces this field of every problem
  std::string op = {};                // takes a shape file's problems of this operation alone
};
void add_problem_options(CLI::App& app, ProblemOptions& options);
// The names of all families' lists of problems.
std::vector<std::string> problem_set_names();
std::vector<Problem> read_problems(const ProblemOptions& options);

// The problems of a shape file: one problem on each line, '#' starts a comment. All problems are
// validated; errors name the file and the line.
std::vector<Problem> read_shapes(const std::string& name_or_path);

// Adds the option that selects a target: a row's name or a file; the default is TESSERA_TARGET,
// otherwise this machine.
void add_target_option(CLI::App& app, std::string& name);
Target resolve_target(const std::string& name);
// The same where kernels are to run on this machine: see load_target_here().
Target resolve_target_here(const std::string& name);

// A check for CLI::Option::check(): returns an empty text for a valid value, otherwise what the
// value must be.
using Check = std::function<std::string(const std::string& text)>;
std::string check_not_empty(const std::string& text);

// Limits of options in seconds. The largest is what the calls that get them allow.
constexpr double kLeastSeconds = 1e-3;  // the least time limit
constexpr double kMostSeconds = kMostCallSeconds;
// Reads a decimal number whose point is a point, whatever the host's locale.
bool read_real(std::string_view text, double& value);
// Checks for a number from `least` to `most`.
Check real_from(double least, double most = kMostSeconds);
// Check for a whole number of at least `least`.
Check whole_from(int least);

// Reads a number from `least` to `most`, in decimal digits without leading zeros.
bool read_whole(std::string_view text, std::int64_t least, std::int64_t most, std::int64_t& value);

// Adds an integer option; values below `least` are refused.
void add_integer_option(CLI::App& app, const std::string& name, int& value, int least,
                        const std::string& description);
// The same for numbers that have fractions, up to `most`.
void add_real_option(CLI::App& app, const std::string& name, double& value, double least,
                     const std::string& description, double most = kMostSeconds);
void add_seed_option(CLI::App& app, std::uint64_t& seed, const std::string& description);
void add_threads_option(CLI::App& app, int& threads);
void add_device_option(CLI::App& app, int& device);
void add_jobs_option(CLI::App& app, int& jobs);

// The options that select kernels: names, a preselected set, a receipt, or all kernels of the
// operation that pass the wishes.
struct KernelOptions {
  std::string op = usual_op();
  std::vector<std::string> names;
  std::string preselected;
  std::string receipt;
  std::vector<Wish> wishes;
  std::string pattern;  // a wildcard over the whole name; empty: any
  std::string target;
};
void add_kernel_options(CLI::App& app, KernelOptions& options);
// The selected kernels. Wishes narrow sets and receipts, too. Throws Error{not_found} when nothing
// is left.
KernelSet select_kernels(const KernelOptions& options, const Target& target);
// Leaves the kernels of a set that pass the wishes and the pattern. Throws Error{not_found} when
// none is left; what `whose` says is the end of its sentence.
void narrow(const KernelOptions& options, const Target& target, std::string_view whose,
            KernelSet& set);
// The same of an instance source: names may be of any kernel, whose rules are then looked at when
// it is written.
KernelSet select_instances(const InstanceSource& source, const KernelOptions& options,
                           const Target& target);

// The kernels of the families' essential sets, which ship ready-built. Empty for a target without
// such sets.
std::vector<KernelSpec> essential_kernels(std::span<const Family* const> families,
                                          const Target& target);

// The spec of a kernel's name. Throws Error{not_found} with the target's nearest kernel name.
KernelSpec find_kernel(const std::string& name);

}  // namespace tessera::commands
