// The functions of LightGBM's C API that we call, with our own declarations, because the Python
// package has no headers.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::lightgbm {

struct Api {
  const char* (*last_error)();
  int (*set_log)(void (*log)(const char*));
  int (*dataset_from_mat)(const void* data, int type, std::int32_t rows, std::int32_t columns,
                          int by_row, const char* parameters, void* reference, void** out);
  int (*dataset_set_field)(void* dataset, const char* name, const void* data, int count, int type);
  int (*dataset_set_names)(void* dataset, const char** names, int count);
  int (*dataset_free)(void* dataset);
  int (*booster_create)(void* dataset, const char* parameters, void** out);
  int (*booster_from_string)(const char* text, int* iterations, void** out);
  int (*booster_free)(void* booster);
  int (*booster_add_valid)(void* booster, void* dataset);
  int (*booster_update)(void* booster, int* finished);
  int (*booster_roll_back)(void* booster);
  int (*booster_merge)(void* booster, void* other);
  int (*booster_eval_counts)(void* booster, int* count);
  int (*booster_eval)(void* booster, int data, int* count, double* out);
  int (*booster_to_string)(void* booster, int start, int iterations, int importance,
                           std::int64_t size, std::int64_t* needed, char* out);
  int (*booster_importance)(void* booster, int iterations, int kind, double* out);
  int (*booster_predict_mat)(void* booster, const void* data, int type, std::int32_t rows,
                             std::int32_t columns, int by_row, int kind, int start, int iterations,
                             const char* parameters, std::int64_t* count, double* out);
  std::string path;
};

// Loads the library once; throws as lightgbm::load() says.
const Api& api();

}  // namespace tessera::lightgbm
