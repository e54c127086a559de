// cuDNN's backend interface over host memory, for tests of what its peer asks for and does with the
// answers. It knows convolutions in fp32 and graphs of attention, and checks the kind of every
// value. Its heuristics propose engines:
//   0 computes                  3 wants 2 GiB of workspace
//   1 computes in tf32          4 computes slowly
//   2 cannot be built           5 fails when it runs
// FAKE_PEER=create: no handle can be made. FAKE_PEER=none: nothing is proposed.
#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <map>
#include <vector>

#include "fake_cudnn.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using fake_cudnn::Descriptor;

constexpr int kOk = 0, kBadParameter = 2000, kNotSupported = 3000, kFailed = 5000;
enum Kind {
  kPointwise,
  kConvolution,
  kEngine,
  kConfig,
  kHeuristics,
  kPlan,
  kKnob = 7,
  kForward = 10,
  kBackwardData = 12,
  kPointwiseOperation,
  kGraph = 15,
  kPack,
  kTensor,
  kMatmul,
  kMatmulOperation,
  kReduction = 21,
  kReductionOperation
};
enum As {
  kHandle,
  kDataType,
  kBoolean,
  kInt64,
  kFloat,
  kPointer = 6,
  kMode,
  kHeuristicsMode,
  kKnobType,
  kNote = 11,
  kPointwiseMode = 14,
  kDescriptor,
  kReductionMode = 18
};

bool is_wanted(const char* what) {
  const char* wanted = std::getenv("FAKE_PEER");
  return wanted != nullptr && std::strcmp(wanted, what) == 0;
}

// Values are kept as they were given; what an attribute holds is looked up here.
std::size_t size_of(int as) {
  switch (as) {
    case kHandle:
    case kInt64:
    case kPointer:
    case kDescriptor:
      return 8;
    case kBoolean:
      return 1;
    default:
      return 4;
  }
}

int expected(int attribute) {
  static const std::map<int, int> all = {
      {100, kDataType},       {101, kMode},        {102, kInt64},      {103, kInt64},
      {104, kInt64},          {105, kInt64},       {106, kInt64},      {200, kHeuristicsMode},
      {201, kDescriptor},     {400, kHandle},      {401, kDescriptor}, {800, kHandle},
      {801, kDescriptor},     {900, kInt64},       {901, kDataType},   {902, kInt64},
      {903, kInt64},          {906, kInt64},       {1000, kInt64},     {1001, kPointer},
      {1003, kPointer},       {0, kPointwiseMode}, {1, kDataType},     {9, kInt64},
      {907, kBoolean},        {908, kBoolean},     {913, kDescriptor}, {1500, kDataType},
      {1600, kReductionMode}, {1601, kDataType}};
  const bool is_part = (attribute >= 750 && attribute <= 758) ||
                       (attribute >= 1520 && attribute <= 1527) ||
                       (attribute >= 1610 && attribute <= 1612);
  if (is_part) return kDescriptor;
  if (attribute >= 700 && attribute < 718) {
    return (attribute - 700) % 6 < 2 ? kFloat : kDescriptor;
  }
  const auto found = all.find(attribute);
  return found == all.end() ? -1 : found->second;
}

// ---- the convolution ----

struct Image {
  std::vector<std::int64_t> dims, strides;
  float* data = nullptr;
  float& at(std::int64_t n, std::int64_t c, const std::int64_t* place) const {
    std::int64_t offset = n * strides[0] + c * strides[1];
    for (std::size_t i = 2; i < dims.size(); ++i) offset += place[i - 2] * strides[i];
    return data[offset];
  }
};

// All places below the sizes, the last one running fastest.
template <class Each>
void for_each_place(const std::vector<std::int64_t>& dims, Each each) {
  std::vector<std::int64_t> place(dims.size() - 2);
  for (;;) {
    each(place.data());
    std::size_t i = place.size();
    while (i > 0 && ++place[i - 1] == dims[i + 1]) place[--i] = 0;
    if (i == 0) return;
  }
}

Image image_of(const Descriptor& operation, int attribute, const Descriptor& pack) {
  const Descriptor& tensor = operation.part(attribute);
  Image image{tensor.get<std::int64_t>(902), tensor.get<std::int64_t>(903)};
  image.data = static_cast<float*>(fake_cudnn::pointer_of(tensor, pack));
  return image;
}

// Every product of x and w is added to its y, or gives its share of a gradient.
void compute(const Descriptor& operation, const Descriptor& pack) {
  const int base = operation.kind == kForward ? 700 : operation.kind == kBackwardData ? 706 : 712;
  const float alpha = operation.get<float>(base).at(0);
  const Descriptor& conv = operation.part(base + 2);
  const Image w = image_of(operation, base + 3, pack), x = image_of(operation, base + 4, pack);
  const Image y = image_of(operation, base + 5, pack);
  const Image& result = base == 700 ? y : base == 706 ? x : w;
  const auto strides = conv.get<std::int64_t>(103), dilations = conv.get<std::int64_t>(102);
  const auto pads = conv.get<std::int64_t>(105);
  const std::int64_t c = w.dims[1], groups = x.dims[1] / c, k = w.dims[0] / groups;
  const auto each_product = [&](auto each) {
    for_each_place(y.dims, [&](const std::int64_t* out) {
      for_each_place(w.dims, [&](const std::int64_t* tap) {
        std::vector<std::int64_t> in(strides.size());
        for (std::size_t i = 0; i < in.size(); ++i) {
          in[i] = out[i] * strides[i] + tap[i] * dilations[i] - pads[i];
          if (in[i] < 0 || in[i] >= x.dims[i + 2]) return;
        }
        for (std::int64_t n = 0; n < x.dims[0]; ++n) {
          for (std::int64_t o = 0; o < groups * k; ++o) {
            for (std::int64_t i = 0; i < c; ++i) {
              each(x.at(n, o / k * c + i, in.data()), w.at(o, i, tap), y.at(n, o, out));
            }
          }
        }
      });
    });
  };
  for (std::int64_t n = 0; n < result.dims[0]; ++n) {
    for (std::int64_t i = 0; i < result.dims[1]; ++i) {
      for_each_place(result.dims, [&](const std::int64_t* at) { result.at(n, i, at) = 0; });
    }
  }
  if (base == 700) each_product([&](float a, float b, float& sum) { sum += alpha * a * b; });
  if (base == 706) each_product([&](float& sum, float a, float b) { sum += alpha * a * b; });
  if (base == 712) each_product([&](float a, float& sum, float b) { sum += alpha * a * b; });
}

// The plans that a mode of the heuristics proposes.
std::vector<std::int64_t> proposals(int mode) {
  if (is_wanted("none")) return {};
  if (mode == 0) return {1, 2, 4};
  if (mode == 1) return {4, 3, 0};
  return {5, 0};
}

bool has_all(const Descriptor& d, std::initializer_list<int> attributes) {
  for (const int attribute : attributes) {
    if (d.values.count(attribute) == 0) return false;
  }
  return true;
}

// Whether a descriptor has all that its kind needs.
bool is_whole(const Descriptor& d) {
  switch (d.kind) {
    case kTensor:
      return has_all(d, {900, 901, 902, 903, 906});
    case kConvolution:
      return has_all(d, {100, 101, 102, 103, 104, 105, 106});
    case kHeuristics:
      return has_all(d, {200, 201});
    case kPlan:
      return has_all(d, {400, 401});
    case kGraph:
      return has_all(d, {801});
    case kPack:
      return has_all(d, {1000, 1001, 1003});
    case kPointwise:
      return has_all(d, {0, 1}) && (d.get<int>(0).at(0) != 501 || d.has(9));
    case kPointwiseOperation:
      return has_all(d, {750, 751, 753});
    case kMatmul:
      return has_all(d, {1500});
    case kMatmulOperation:
      return has_all(d, {1520, 1521, 1522, 1523});
    case kReduction:
      return has_all(d, {1600, 1601});
    case kReductionOperation:
      return has_all(d, {1610, 1611, 1612});
    default:
      return true;
  }
}

bool is_convolution(const Descriptor& d) { return d.kind >= kForward && d.kind <= kBackwardData; }

// Whether a convolution's operation is in fp32.
bool is_fp32(const Descriptor& d) {
  const int base = d.kind == kForward ? 700 : d.kind == kBackwardData ? 706 : 712;
  for (int i = 3; i < 6; ++i) {
    if (d.part(base + i).get<int>(901).at(0) != 0) return false;
  }
  return true;
}

template <class T>
int give(const std::vector<T>& from, std::int64_t room, std::int64_t* count, void* to) {
  *count = static_cast<std::int64_t>(from.size());
  const auto some = static_cast<std::size_t>(std::min(room, *count));
  if (some > 0) std::memcpy(to, from.data(), some * sizeof(T));
  return kOk;
}

// Fills the descriptors that the caller has made.
int fill(const Descriptor& from, const std::vector<std::int64_t>& numbers, std::int64_t room,
         std::int64_t* count, void* to) {
  *count = static_cast<std::int64_t>(numbers.size());
  for (std::int64_t i = 0; i < std::min(room, *count); ++i) {
    auto* const made = static_cast<Descriptor**>(to)[i];
    made->number = numbers[static_cast<std::size_t>(i)];
    made->graph = from.kind == kHeuristics ? &from.part(201) : from.graph;
    made->is_finished = true;
  }
  return kOk;
}

int g_runs[8];

// On the clock of the driver that is none.
void pass(double milliseconds) {
  void* const driver = dlopen(std::getenv("TESSERA_CUDA_DRIVER"), RTLD_NOW | RTLD_LOCAL);
  reinterpret_cast<void (*)(double)>(dlsym(driver, "fake_cuda_pass"))(milliseconds);
}

}  // namespace

// How often an engine has run.
EXPORT int fake_cudnn_runs(int engine) { return g_runs[engine]; }

EXPORT std::size_t cudnnGetVersion() { return 91203; }
EXPORT const char* cudnnGetErrorString(int status) {
  if (status == kBadParameter) return "FAKE_BAD_PARAM";
  return status == kFailed ? "FAKE_FAILED" : "FAKE_NOT_SUPPORTED";
}
EXPORT void cudnnGetLastErrorString(char* message, std::size_t bytes) {
  std::strncpy(message, "as the test wished", bytes);
}
EXPORT int cudnnCreate(void** handle) {
  *handle = handle;
  return is_wanted("create") ? kFailed : kOk;
}
EXPORT int cudnnDestroy(void*) { return kOk; }

EXPORT int cudnnBackendCreateDescriptor(int kind, void** descriptor) {
  auto* const made = new Descriptor;
  made->kind = kind;
  *descriptor = made;
  return kOk;
}
EXPORT int cudnnBackendDestroyDescriptor(void* descriptor) {
  delete static_cast<Descriptor*>(descriptor);
  return kOk;
}

EXPORT int cudnnBackendSetAttribute(void* descriptor, int attribute, int as, std::int64_t count,
                                    const void* values) {
  auto& d = *static_cast<Descriptor*>(descriptor);
  if (d.is_finished || as != expected(attribute) || count < 1) return kBadParameter;
  const auto* const bytes = static_cast<const char*>(values);
  d.values[attribute].assign(bytes, bytes + static_cast<std::size_t>(count) * size_of(as));
  if (as == kDescriptor) {
    for (const auto* const part : d.get<const Descriptor*>(attribute)) {
      if (part == nullptr || !part->is_finished) return kBadParameter;
    }
  }
  if (attribute == 401) d.number = d.part(401).number, d.graph = d.part(401).graph;
  return kOk;
}

EXPORT int cudnnBackendFinalize(void* descriptor) {
  auto& d = *static_cast<Descriptor*>(descriptor);
  if (!is_whole(d) || d.is_finished) return kBadParameter;
  if (is_convolution(d) && !is_fp32(d)) return kNotSupported;
  if (d.kind == kPlan && d.number == 2) return kNotSupported;
  d.is_finished = true;
  return kOk;
}

EXPORT int cudnnBackendGetAttribute(void* descriptor, int attribute, int as, std::int64_t room,
                                    std::int64_t* count, void* values) {
  const auto& d = *static_cast<Descriptor*>(descriptor);
  if (!d.is_finished) return kBadParameter;
  switch (attribute) {
    case 202:
      if (as != kDescriptor) return kBadParameter;
      return fill(d, proposals(d.get<int>(200).at(0)), room, count, values);
    case 302:  // one knob
      return as == kDescriptor ? fill(d, {d.number}, room, count, values) : kBadParameter;
    case 402:
      if (as != kInt64) return kBadParameter;
      return give(std::vector<std::int64_t>{d.number == 3 ? std::int64_t{2} << 30 : 4096}, room,
                  count, values);
    case 300:
      return as == kDescriptor ? fill(d, {d.number}, room, count, values) : kBadParameter;
    case 600:
      return as == kKnobType ? give(std::vector<int>{5}, room, count, values) : kBadParameter;
    case 601:
    case 1301:
      if (as != kInt64) return kBadParameter;
      return give(std::vector<std::int64_t>{d.number}, room, count, values);
    case 1303:
      if (as != kNote) return kBadParameter;
      return give(d.number == 1 ? std::vector<int>{4, 0} : std::vector<int>{}, room, count, values);
    default:
      return kBadParameter;
  }
}

EXPORT int cudnnBackendExecute(void* handle, void* plan, void* pack) {
  const auto& d = *static_cast<Descriptor*>(plan);
  if (handle == nullptr || d.kind != kPlan || !d.is_finished) return kBadParameter;
  ++g_runs[d.number];
  if (d.number == 5) return kFailed;
  pass(d.number == 4 ? 5 : 1);
  const auto operations = d.graph->get<const Descriptor*>(801);
  const auto& packed = *static_cast<const Descriptor*>(pack);
  if (is_convolution(*operations.front())) {
    compute(*operations.front(), packed);
  } else {
    fake_cudnn::compute_fusion(operations, packed);
  }
  return kOk;
}
