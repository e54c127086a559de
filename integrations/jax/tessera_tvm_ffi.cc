// Two functions for tvm-ffi, whose tensors are DLPack's:
// tessera_know(id, target, line, names): gives a number to a problem of a target, "" for this
//   machine's CPU. names are those of its operands, in the order in which tensors will be given.
// tessera_launch(id, *tensors): runs it.
// The number stands for the texts because jax-tvm-ffi 0.1.3 hands on strings of more than 7 bytes
// when their memory has been given back already.
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

#include <map>
#include <sstream>
#include <tuple>

#include "plans.h"

namespace {

using tessera_plugs::Operand;
using tessera_plugs::Plans;
using tessera_plugs::SharedPlan;

// The kernels of a target read this device's memory alone.
void check_memory(const tsr_dispatcher_t* dispatcher, const DLDevice& device) {
  char* json = nullptr;
  tessera_plugs::check(tsr_dispatcher_target(dispatcher, &json));
  size_t at = 0;
  const std::string backend = tessera_plugs::text_of(json, "\"backend\"", at);
  tsr_free(json);
  const int wanted = backend == "cpu" ? kDLCPU : backend == "cuda" ? kDLCUDA : kDLROCM;
  if (device.device_type != wanted) {
    TVM_FFI_THROW(ValueError) << "tessera_launch: the problem is for " << backend
                              << ", but the first tensor lies on a device of DLPack's type "
                              << device.device_type;
  }
}

tsr_dispatcher_t* make_dispatcher(const std::string& target, const DLDevice& device) {
  tsr_dispatcher_options_t options = TSR_INIT(tsr_dispatcher_options_t);
  options.target = target.empty() ? nullptr : target.c_str();
  options.device = device.device_id;
  tsr_dispatcher_t* made = nullptr;
  tessera_plugs::check(tsr_dispatcher_create(&options, &made));
  try {
    check_memory(made, device);
  } catch (...) {
    tsr_dispatcher_destroy(made);
    throw;
  }
  return made;
}

// The plans of a target on one device; "" is this machine's CPU.
Plans& plans_for(const std::string& target, const DLDevice& device) {
  static std::mutex mutex;
  static std::map<std::tuple<std::string, int, int>, Plans> all;
  const std::lock_guard<std::mutex> lock(mutex);
  Plans& plans = all[{target, device.device_type, device.device_id}];
  if (plans.dispatcher == nullptr) {
    plans.dispatcher = make_dispatcher(target, device);
  }
  return plans;
}

// Tessera's word for a type of DLPack; "" where it knows none.
std::string word_of(DLDataType type) {
  struct Word {
    int code, bits;
    const char* word;
  };
  constexpr Word kWords[] = {{kDLFloat, 32, "fp32"},    {kDLFloat, 16, "fp16"},
                             {kDLBfloat, 16, "bf16"},   {kDLInt, 8, "int8"},
                             {kDLInt, 32, "int32"},     {kDLFloat8_e4m3fn, 8, "fp8"},
                             {kDLFloat8_e5m2, 8, "bf8"}};
  for (const Word& known : kWords) {
    if (type.code == known.code && type.bits == known.bits && type.lanes == 1) {
      return known.word;
    }
  }
  return "";
}

bool is_packed(const DLTensor& tensor) {
  int64_t expected = 1;
  for (int i = tensor.ndim - 1; i >= 0 && tensor.strides != nullptr; --i) {
    if (tensor.shape[i] > 1 && tensor.strides[i] != expected) {
      return false;
    }
    expected *= tensor.shape[i];
  }
  return true;
}

int64_t bytes_of(const DLTensor& tensor) {
  int64_t count = 1;
  for (int i = 0; i < tensor.ndim; ++i) {
    count *= tensor.shape[i];
  }
  return count * tensor.dtype.bits / 8;
}

// The tensor's address, if the tensor is what the operand needs.
const void* address_of(const DLTensor& tensor, const Operand& operand, const DLDevice& device) {
  const std::string word = word_of(tensor.dtype);
  if (word != operand.dtype) {
    TVM_FFI_THROW(TypeError) << "tessera_launch: " << operand.name << " must have the type "
                             << operand.dtype << ", got " << (word.empty() ? "another" : word);
  }
  if (!is_packed(tensor) || bytes_of(tensor) < operand.bytes) {
    TVM_FFI_THROW(ValueError) << "tessera_launch: " << operand.name << " must be packed and have "
                              << operand.bytes << " bytes, got " << bytes_of(tensor)
                              << (is_packed(tensor) ? "" : " with gaps");
  }
  if (tensor.device.device_type != device.device_type ||
      tensor.device.device_id != device.device_id) {
    TVM_FFI_THROW(ValueError) << "tessera_launch: " << operand.name
                              << " lies on another device than the first tensor";
  }
  return static_cast<const char*>(tensor.data) + tensor.byte_offset;
}

size_t place_of(const SharedPlan& plan, const std::string& name) {
  for (size_t i = 0; i < plan->operands.size(); ++i) {
    if (plan->operands[i].name == name) {
      return i;
    }
  }
  TVM_FFI_THROW(ValueError) << "tessera_launch: the problem has no operand '" << name << "'";
  return 0;
}

// What a number stands for.
struct Known {
  std::string target, line, names;
};

struct Table {
  std::mutex mutex;
  std::unordered_map<int64_t, Known> by_id;  // grows by a line for each problem that is traced
};

Table& table() {
  static Table all;
  return all;
}

const Known& known_by(int64_t id) {
  const std::lock_guard<std::mutex> lock(table().mutex);
  const auto found = table().by_id.find(id);
  if (found == table().by_id.end()) {
    TVM_FFI_THROW(ValueError) << "tessera_launch: no problem has the number " << id
                              << " in this process; trace the function here, or call "
                                 "tessera_know() first";
  }
  return found->second;  // stays where it is, and is never changed
}

void know(int64_t id, const std::string& target, const std::string& line,
          const std::string& names) {
  const std::lock_guard<std::mutex> lock(table().mutex);
  const Known& kept = table().by_id.try_emplace(id, Known{target, line, names}).first->second;
  if (kept.target != target || kept.line != line || kept.names != names) {
    TVM_FFI_THROW(ValueError) << "tessera_know: the number " << id << " stands for '" << kept.line
                              << "' already";
  }
}

void launch(const Known& known, const std::vector<const DLTensor*>& tensors) {
  const DLDevice device = tensors.at(0)->device;
  const SharedPlan plan = plan_of(plans_for(known.target, device), known.line);
  std::vector<const void*> addresses(plan->operands.size());
  std::istringstream words(known.names);
  size_t given = 0;
  for (std::string name; words >> name && given < tensors.size(); ++given) {
    const size_t place = place_of(plan, name);
    addresses[place] = address_of(*tensors[given], plan->operands[place], device);
  }
  if (given != tensors.size() || given != addresses.size()) {
    TVM_FFI_THROW(ValueError) << "tessera_launch: '" << known.line << "' takes " << addresses.size()
                              << " operands, got " << tensors.size() << " tensors and the names '"
                              << known.names << "'";
  }
  tsr_launch_options_t options = TSR_INIT(tsr_launch_options_t);
  if (device.device_type != kDLCPU) {
    options.stream = TVMFFIEnvGetStream(device.device_type, device.device_id);
  }
  tessera_plugs::check(tsr_launch(plan->handle, addresses.data(), addresses.size(), &options));
}

void check_count(int32_t count, bool is_right, const char* what) {
  if (!is_right) {
    TVM_FFI_THROW(TypeError) << what << ", got " << count << " arguments";
  }
}

}  // namespace

extern "C" TVM_FFI_DLL_EXPORT int __tvm_ffi_tessera_know(void*, const TVMFFIAny* args,
                                                         int32_t count, TVMFFIAny*) {
  TVM_FFI_SAFE_CALL_BEGIN();
  check_count(count, count == 4, "tessera_know takes a number, a target, a problem and names");
  const auto* given = reinterpret_cast<const tvm::ffi::AnyView*>(args);
  know(given[0].cast<int64_t>(), given[1].cast<std::string>(), given[2].cast<std::string>(),
       given[3].cast<std::string>());
  TVM_FFI_SAFE_CALL_END();
}

extern "C" TVM_FFI_DLL_EXPORT int __tvm_ffi_tessera_launch(void*, const TVMFFIAny* args,
                                                           int32_t count, TVMFFIAny*) {
  TVM_FFI_SAFE_CALL_BEGIN();
  check_count(count, count >= 2, "tessera_launch takes a number and at least 1 tensor");
  const auto* given = reinterpret_cast<const tvm::ffi::AnyView*>(args);
  std::vector<const DLTensor*> tensors;
  for (int32_t i = 1; i < count; ++i) {
    tensors.push_back(given[i].cast<DLTensor*>());
  }
  launch(known_by(given[0].cast<int64_t>()), tensors);
  TVM_FFI_SAFE_CALL_END();
}
