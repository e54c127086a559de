// LightGBM through its C API, loaded at the first use: used for training, and to check our own
// evaluator. Choosing and running kernels does not need it.
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
// Error{not_found}, which says how to install it, and Error{load_failed} with the loader's message.
void load();

// Loads the library and returns its path.
std::string library_path();

// Every function below loads the library, and throws Error{internal} with LightGBM's message when
// LightGBM refuses (LightGBM also writes the message to stderr, which cannot be turned off).
// Parameters are LightGBM's: "objective=regression num_leaves=31 verbosity=-1".
using Dataset = std::shared_ptr<void>;
using Booster = std::shared_ptr<void>;

enum class Order : std::uint8_t { by_row, by_column };

// rows x columns numbers. A data set for validation names the training data set as `reference`.
Dataset make_dataset(std::span<const double> values, std::size_t rows, std::size_t columns,
                     Order order, const std::string& parameters, const Dataset& reference = {});
// Sets a field with one value for each row: "label" and "weight" (float), "init_score" (double); or
// "group", the number of rows of each query.
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
// Puts the trees of `other` before the trees of `booster`: to go on training, `booster` was made
// with `other`'s raw predictions as its init_score.
void merge(const Booster& booster, const Booster& other);
// The model as text, with its first num_iterations trees; 0 means all of them.
std::string save_text(const Booster& booster, int num_iterations = 0);

enum class Importance : std::uint8_t { splits, gain };
std::vector<double> importance(const Booster& booster, std::size_t features, Importance kind);

// One prediction for each row. `parameters` are further ones such as "num_threads=1".
std::vector<double> predict(const Booster& booster, std::span<const double> values,
                            std::size_t rows, std::size_t columns, Order order,
                            const std::string& parameters = "");

}  // namespace tessera::lightgbm
