// LightGBM through its C API, loaded at the first use: for training, and as the measure of our own
// evaluator. Nothing that chooses or runs kernels needs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::lightgbm {

// Looks for lib_lightgbm.so at TESSERA_LIGHTGBM (a path; then nowhere else), through the loader,
// and in the site-packages folders of $VIRTUAL_ENV, of $HOME/.local and of the system. Throws
// Error{not_found} with how to get it, Error{load_failed} with the loader's words.
void load();

// Where the library was found; loads it.
std::string library_path();

// Everything below loads the library, and throws Error{internal} with LightGBM's own words when it
// refuses (it also writes them to stderr, which cannot be turned off). Parameters are LightGBM's:
// "objective=regression num_leaves=31 verbosity=-1".
using Dataset = std::shared_ptr<void>;
using Booster = std::shared_ptr<void>;

enum class Order : std::uint8_t { by_row, by_column };

// rows x columns numbers. A data set for validation names the one for training as `reference`.
Dataset make_dataset(std::span<const double> values, std::size_t rows, std::size_t columns,
                     Order order, const std::string& parameters, const Dataset& reference = {});
// One value per row: "label" and "weight" (float), "init_score" (double); "group": rows per query.
void set_field(const Dataset& dataset, const char* name, std::span<const float> values);
void set_field(const Dataset& dataset, const char* name, std::span<const double> values);
void set_field(const Dataset& dataset, const char* name, std::span<const std::int32_t> values);
void set_feature_names(const Dataset& dataset, std::span<const std::string_view> names);

// A booster keeps its data sets alive.
Booster make_booster(const Dataset& train, const std::string& parameters);
Booster load_booster(const std::string& text);
void add_validation(Booster& booster, const Dataset& dataset);
// Adds one tree; false when no further split helps.
bool update(const Booster& booster);
void roll_back(const Booster& booster);
// The metrics of the training data (0) or of the i-th validation set (i), in the order of the
// parameters.
std::vector<double> evaluate(const Booster& booster, int index);
// Puts the trees of `other` before those of `booster`: to go on training, `booster` was made with
// `other`'s raw predictions as its init_score.
void merge(const Booster& booster, const Booster& other);
// num_iterations 0: all of them.
std::string save_text(const Booster& booster, int num_iterations = 0);

enum class Importance : std::uint8_t { splits, gain };
std::vector<double> importance(const Booster& booster, std::size_t features, Importance kind);

// One prediction per row; more parameters such as "num_threads=1".
std::vector<double> predict(const Booster& booster, std::span<const double> values,
                            std::size_t rows, std::size_t columns, Order order,
                            const std::string& parameters = "");

}  // namespace tessera::lightgbm
