// The part of cuDNN's C API that the peer uses, declared by hand: the library is loaded with dlopen
// and its headers are not needed. In the backend interface of version 9 everything is a descriptor
// with attributes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tessera::peers::cudnn {

// Values of the C API's enumerations.
enum class Kind : int {
  pointwise = 0,
  convolution = 1,
  engine = 2,
  config = 3,  // an engine with its knobs
  heuristics = 4,
  plan = 5,
  knob = 7,
  forward = 10,
  backward_weight = 11,
  backward_data = 12,
  pointwise_operation = 13,
  graph = 15,
  pack = 16,  // the pointers of one run
  tensor = 17,
  matmul = 18,
  matmul_operation = 19,
  reduction = 21,
  reduction_operation = 22
};
enum class Attribute : int {
  pointwise_mode = 0,
  pointwise_compute = 1,
  pointwise_axis = 9,
  convolution_compute = 100,
  convolution_mode = 101,
  convolution_dilations = 102,
  convolution_strides = 103,
  convolution_pads_right = 104,
  convolution_pads = 105,
  convolution_places = 106,
  heuristics_mode = 200,
  heuristics_graph = 201,
  heuristics_results = 202,
  config_engine = 300,
  config_knobs = 302,
  plan_handle = 400,
  plan_config = 401,
  plan_workspace = 402,
  knob_type = 600,
  knob_value = 601,
  forward_alpha = 700,  // beta, convolution, w, x and y follow, as in the next two
  backward_data_alpha = 706,
  backward_weight_alpha = 712,
  pointwise_of = 750,  // the descriptor with the mode
  pointwise_x = 751,
  pointwise_b = 752,
  pointwise_y = 753,
  pointwise_condition = 758,
  graph_handle = 800,
  graph_operations = 801,
  tensor_alignment = 900,
  tensor_type = 901,
  tensor_dims = 902,
  tensor_strides = 903,
  tensor_id = 906,
  tensor_is_virtual = 907,
  tensor_is_value = 908,  // its one element is in the host's memory
  tensor_offsets = 913,   // a tensor of where its batches begin
  pack_ids = 1000,
  pack_pointers = 1001,
  pack_workspace = 1003,
  engine_index = 1301,
  engine_notes = 1303,
  matmul_compute = 1500,
  matmul_a = 1520,
  matmul_b = 1521,
  matmul_c = 1522,
  matmul_of = 1523,    // the descriptor with the type
  matmul_rows = 1525,  // how many of each batch count, as in the next two
  matmul_columns = 1526,
  matmul_depth = 1527,
  reduction_mode = 1600,
  reduction_compute = 1601,
  reduction_x = 1610,
  reduction_y = 1611,
  reduction_of = 1612  // the descriptor with the mode
};
// How an attribute's values lie in memory.
enum class As : int {
  handle = 0,
  data_type = 1,
  boolean = 2,
  int64 = 3,
  float32 = 4,
  pointer = 6,
  convolution_mode = 7,
  heuristics_mode = 8,
  knob_type = 9,
  note = 11,
  pointwise_mode = 14,
  descriptor = 15,
  reduction_mode = 18
};
enum class DataType : int {
  fp32 = 0,
  fp16 = 2,
  int8 = 3,
  int32 = 4,
  bf16 = 9,
  boolean = 11,
  e4m3 = 12,
  e5m2 = 13
};
enum class Pointwise : int {
  add = 0,
  multiply = 1,
  divide = 6,
  subtract = 9,
  exp = 13,
  log = 15,
  tanh = 101,
  is_greater = 302,
  is_at_least = 303,
  is_less = 304,
  logical_and = 400,
  index = 501,  // of an element along an axis
  select = 601  // x where the condition holds, else b
};
enum class Reduction : int { add = 0, max = 3 };
// Where heuristics get their proposals from; `fallback` are engines that run, however slowly.
enum class Mode : int { instant = 0, by_network = 1, fallback = 2 };
enum class Note : int { tensor_core = 0, converts_inputs_down = 1 };

// Destroyed with its last owner.
using Descriptor = std::shared_ptr<void>;

// The loaded library. Functions throw Error{unsupported} with a sentence that ends in the library's
// own words.
class Library {
 public:
  // Null when cuDNN is not installed.
  static std::unique_ptr<Library> load();
  ~Library();

  std::string version() const;         // "9.19.0 (libcudnn.so.9)"
  std::size_t version_number() const;  // 91900
  // Makes the handle, once, which runs on the default stream of the current device.
  void start();

  Descriptor make(Kind kind) const;
  void finish(const Descriptor& descriptor) const;
  void set(const Descriptor& descriptor, Attribute attribute, As as, std::int64_t count,
           const void* values) const;
  void set(const Descriptor& descriptor, Attribute attribute,
           const std::vector<std::int64_t>& values) const;
  void set(const Descriptor& descriptor, Attribute attribute, std::int64_t value) const;
  void set(const Descriptor& descriptor, Attribute attribute, float value) const;
  void set(const Descriptor& descriptor, Attribute attribute, DataType value) const;
  void set(const Descriptor& descriptor, Attribute attribute, const Descriptor& value) const;
  void set(const Descriptor& descriptor, Attribute attribute,
           const std::vector<Descriptor>& values) const;
  void set_handle(const Descriptor& descriptor, Attribute attribute) const;
  // Writes at most `room` values and returns how many there are.
  std::int64_t get(const Descriptor& descriptor, Attribute attribute, As as, std::int64_t room,
                   void* values) const;
  std::int64_t get_number(const Descriptor& descriptor, Attribute attribute) const;
  // The descriptors that an attribute holds.
  std::vector<Descriptor> get_all(const Descriptor& descriptor, Attribute attribute, Kind kind,
                                  std::int64_t most) const;
  void execute(const Descriptor& plan, const Descriptor& pack) const;

 private:
  struct Api;
  explicit Library(std::unique_ptr<Api> api);
  void check(int status, const char* what, int which = 0) const;
  std::unique_ptr<Api> api_;
};

}  // namespace tessera::peers::cudnn
