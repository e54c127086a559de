// Tessera as a plugin execution provider of ONNX Runtime: CreateEpFactories and ReleaseEpFactory.
// Every node that it takes becomes a fused node of its own, whose plans are made for the shapes
// that its calls bring.
#include <fstream>
#include <memory>

#include "node.h"
#include "plans.h"
#include "works.h"

namespace {

using namespace tessera_ort;
using tessera_plugs::Plans;
using tessera_plugs::SharedPlan;

constexpr const char* kName = "TesseraExecutionProvider";
constexpr const char* kPrefix = "ep.tesseraexecutionprovider.";

const OrtApi* api = nullptr;  // of the ONNX Runtime that loaded this library
const OrtEpApi* ep_api = nullptr;

// A node of the report: why it was left, or "" where it was taken.
struct Entry {
  std::string node, op, why;
};

// A provider of one session. ONNX Runtime knows it by its first member.
struct Provider {
  OrtEp base = {};
  Plans plans;
  std::string report;                    // the file, or ""
  std::map<std::string, Entry> entries;  // by the name of the node's first output
};

// What a launch needs when its line's plan is known.
struct Step {
  SharedPlan plan;
  std::vector<Place> places;  // in the order of tsr_launch()
};

struct Ready {
  Shape out;
  std::vector<Step> steps;
};

// A node that was taken.
struct Compiled {
  OrtNodeComputeInfo base = {};
  Node node;
  std::vector<int> inputs;  // which of the fused node's inputs each input is; -1: left out
  Plans* plans = nullptr;
  std::mutex mutex;
  std::map<std::vector<Shape>, std::shared_ptr<const Ready>> by_shapes;
};

constexpr size_t kMostShapes = 1024;  // more are forgotten, all at once

OrtStatus* failure(const std::string& sentence) {
  return api->CreateStatus(ORT_EP_FAIL, ("Tessera: " + sentence).c_str());
}

// No exception leaves this library.
template <typename Function>
OrtStatus* guarded(Function function) noexcept {
  try {
    function();
    return nullptr;
  } catch (const std::exception& error) {
    return failure(error.what());
  }
}

// ---- The report ---------------------------------------------------------------------------------

std::string quoted(const std::string& text) {
  std::string found = "\"";
  for (const char letter : text) {
    const bool is_control = static_cast<unsigned char>(letter) < 0x20;
    found += letter == '"' || letter == '\\' ? "\\" : "";
    found += is_control ? ' ' : letter;
  }
  return found + "\"";
}

void write_report(const Provider& provider) {
  if (provider.report.empty()) {
    return;
  }
  std::ofstream file(provider.report);
  for (const bool is_taken : {true, false}) {
    file << (is_taken ? "{\"taken\": [" : "],\n\"left\": [");
    const char* between = "\n";
    for (const auto& [output, entry] : provider.entries) {
      if (entry.why.empty() == is_taken) {
        file << between << "{\"node\": " << quoted(entry.node) << ", \"op\": " << quoted(entry.op)
             << ", \"output\": " << quoted(output);
        file << (is_taken ? "" : ", \"why\": " + quoted(entry.why)) << "}";
        between = ",\n";
      }
    }
  }
  file << "]}\n";
  file.flush();
  if (!file) {
    throw std::runtime_error("the report " + provider.report + " could not be written");
  }
}

// ---- Choosing and compiling nodes ---------------------------------------------------------------

std::vector<const OrtNode*> nodes_of(const OrtGraph* graph) {
  size_t count = 0;
  check(*api, api->Graph_GetNumNodes(graph, &count));
  std::vector<const OrtNode*> nodes(count);
  check(*api, api->Graph_GetNodes(graph, nodes.data(), count));
  return nodes;
}

OrtStatus* choose(OrtEp* self, const OrtGraph* graph, OrtEpGraphSupportInfo* info) noexcept {
  return guarded([&] {
    auto& provider = *reinterpret_cast<Provider*>(self);
    OrtNodeFusionOptions options = {};
    options.ort_version_supported = kApiVersion;
    for (const OrtNode* given : nodes_of(graph)) {
      const Node node = read_node(*api, given);
      const std::string why = why_not(node);
      provider.entries[node.outputs.empty() ? node.name : node.outputs[0].name] = {node.name,
                                                                                   node.op, why};
      if (why.empty()) {
        check(*api, ep_api->EpGraphSupportInfo_AddNodesToFuse(info, &given, 1, &options));
      }
    }
    write_report(provider);
  });
}

// The inputs of a fused node have an order of their own, without those that are left out.
std::vector<int> places_of(const Node& node, const Node& fused) {
  std::vector<int> places;
  for (const Value& input : node.inputs) {
    int place = -1;
    for (size_t i = 0; i < fused.inputs.size() && input.is_given; ++i) {
      place = fused.inputs[i].name == input.name ? static_cast<int>(i) : place;
    }
    if (input.is_given && place < 0) {
      throw std::runtime_error("the fused node of " + node.name + " lacks " + input.name);
    }
    places.push_back(place);
  }
  return places;
}

Ready ready_for(Compiled& compiled, const std::vector<Shape>& shapes) {
  const Work work = work_of(compiled.node, shapes);
  Ready ready{work.out, {}};
  for (const Launch& launch : work.launches) {
    Step step{plan_of(*compiled.plans, launch.line), {}};
    for (const tessera_plugs::Operand& operand : step.plan->operands) {
      for (const Place& place : launch.places) {
        if (place.operand == operand.name) {
          step.places.push_back(place);
        }
      }
    }
    if (step.places.size() != step.plan->operands.size()) {
      throw std::runtime_error("'" + launch.line + "' has other operands than " + compiled.node.op);
    }
    ready.steps.push_back(step);
  }
  return ready;
}

std::shared_ptr<const Ready> find_ready(Compiled& compiled, const std::vector<Shape>& shapes) {
  {
    const std::lock_guard<std::mutex> lock(compiled.mutex);
    const auto found = compiled.by_shapes.find(shapes);
    if (found != compiled.by_shapes.end()) {
      return found->second;
    }
  }
  auto made = std::make_shared<const Ready>(ready_for(compiled, shapes));
  const std::lock_guard<std::mutex> lock(compiled.mutex);
  if (compiled.by_shapes.size() >= kMostShapes) {
    compiled.by_shapes.clear();
  }
  return compiled.by_shapes.emplace(shapes, made).first->second;
}

void run(Compiled& compiled, OrtKernelContext* context) {
  std::vector<Shape> shapes(compiled.inputs.size());
  std::vector<const char*> inputs(compiled.inputs.size(), nullptr);
  for (size_t i = 0; i < compiled.inputs.size(); ++i) {
    if (compiled.inputs[i] < 0) {
      continue;
    }
    const OrtValue* value = nullptr;
    const void* data = nullptr;
    check(*api, api->KernelContext_GetInput(context, compiled.inputs[i], &value));
    check(*api, api->GetTensorData(value, &data));
    shapes[i] = shape_of(*api, value);
    inputs[i] = static_cast<const char*>(data);
  }
  const std::shared_ptr<const Ready> ready = find_ready(compiled, shapes);
  OrtValue* value = nullptr;
  void* out = nullptr;
  check(*api,
        api->KernelContext_GetOutput(context, 0, ready->out.data(), ready->out.size(), &value));
  check(*api, api->GetTensorMutableData(value, &out));
  if (ready->steps.empty()) {
    size_t bytes = compiled.node.inputs[0].type == "fp32" ? 4 : 2;
    for (const int64_t size : ready->out) {
      bytes *= static_cast<size_t>(size);
    }
    std::fill_n(static_cast<char*>(out), bytes, 0);
  }
  std::vector<const void*> addresses;
  for (const Step& step : ready->steps) {
    addresses.clear();
    for (const Place& place : step.places) {
      const char* begin = place.input < 0 ? static_cast<char*>(out) : inputs[place.input];
      addresses.push_back(begin + place.offset);
    }
    tessera_plugs::check(
        tsr_launch(step.plan->handle, addresses.data(), addresses.size(), nullptr));
  }
}

OrtStatus* create_state(OrtNodeComputeInfo* self, OrtNodeComputeContext*, void** state) noexcept {
  *state = self;
  return nullptr;
}

void release_state(OrtNodeComputeInfo*, void*) noexcept {}

OrtStatus* compute(OrtNodeComputeInfo* self, void*, OrtKernelContext* context) noexcept {
  auto& compiled = *reinterpret_cast<Compiled*>(self);
  return guarded([&] {
    try {
      run(compiled, context);
    } catch (const std::exception& error) {
      throw std::runtime_error("node " + compiled.node.name + ": " + error.what());
    }
  });
}

std::unique_ptr<Compiled> compile_one(Provider& provider, const OrtGraph* graph,
                                      const OrtNode* fused) {
  const std::vector<const OrtNode*> nodes = nodes_of(graph);
  if (nodes.size() != 1) {
    throw std::runtime_error("a fused node has 1 node, got " + std::to_string(nodes.size()));
  }
  auto compiled = std::make_unique<Compiled>();
  compiled->node = read_node(*api, nodes[0]);
  compiled->inputs = places_of(compiled->node, read_node(*api, fused));
  compiled->plans = &provider.plans;
  compiled->base.ort_version_supported = kApiVersion;
  compiled->base.CreateState = create_state;
  compiled->base.Compute = compute;
  compiled->base.ReleaseState = release_state;
  return compiled;
}

OrtStatus* compile(OrtEp* self, const OrtGraph** graphs, const OrtNode** fused, size_t count,
                   OrtNodeComputeInfo** infos, OrtNode**) noexcept {
  return guarded([&] {
    std::vector<std::unique_ptr<Compiled>> made;
    for (size_t i = 0; i < count; ++i) {
      made.push_back(compile_one(*reinterpret_cast<Provider*>(self), graphs[i], fused[i]));
    }
    for (size_t i = 0; i < count; ++i) {
      infos[i] = &made[i].release()->base;
    }
  });
}

void release_infos(OrtEp*, OrtNodeComputeInfo** infos, size_t count) noexcept {
  for (size_t i = 0; i < count; ++i) {
    delete reinterpret_cast<Compiled*>(infos[i]);
  }
}

// ---- Providers and their factory ----------------------------------------------------------------

std::string option(const OrtSessionOptions* options, const char* name) {
  const std::string key = std::string(kPrefix) + name;
  int is_given = 0;
  check(*api, api->HasSessionConfigEntry(options, key.c_str(), &is_given));
  if (is_given == 0) {
    return "";
  }
  size_t size = 0;
  check(*api, api->GetSessionConfigEntry(options, key.c_str(), nullptr, &size));
  std::string text(size, '\0');
  check(*api, api->GetSessionConfigEntry(options, key.c_str(), text.data(), &size));
  return text.c_str();  // the size counts its end
}

int threads_of(const std::string& text) {
  char* end = nullptr;
  const long threads = std::strtol(text.c_str(), &end, 10);
  if (*end != '\0' || threads < 0 || threads > 4096) {
    throw std::runtime_error("threads must be a number from 0 to 4096, got '" + text + "'");
  }
  return static_cast<int>(threads);
}

const char* provider_name(const OrtEp*) noexcept { return kName; }

OrtStatus* create_provider(OrtEpFactory*, const OrtHardwareDevice* const*,
                           const OrtKeyValuePairs* const*, size_t, const OrtSessionOptions* options,
                           const OrtLogger*, OrtEp** provider) noexcept {
  return guarded([&] {
    auto made = std::make_unique<Provider>();
    made->report = option(options, "report");
    write_report(
        *made);  // a file that cannot be written is refused here, and not when nodes are chosen
    tsr_dispatcher_options_t how = TSR_INIT(tsr_dispatcher_options_t);
    how.threads = threads_of(option(options, "threads"));
    tessera_plugs::check(tsr_dispatcher_create(&how, &made->plans.dispatcher));
    made->base.ort_version_supported = kApiVersion;
    made->base.GetName = provider_name;
    made->base.GetCapability = choose;
    made->base.Compile = compile;
    made->base.ReleaseNodeComputeInfos = release_infos;
    *provider = &made.release()->base;
  });
}

void release_provider(OrtEpFactory*, OrtEp* provider) noexcept {
  auto* made = reinterpret_cast<Provider*>(provider);
  tsr_dispatcher_t* dispatcher = made->plans.dispatcher;
  delete made;
  tsr_dispatcher_destroy(dispatcher);
}

const char* factory_name(const OrtEpFactory*) noexcept { return kName; }
const char* vendor(const OrtEpFactory*) noexcept { return "Tessera"; }
uint32_t vendor_id(const OrtEpFactory*) noexcept { return 0; }
const char* version(const OrtEpFactory*) noexcept { return tsr_version(); }

OrtStatus* devices_of(OrtEpFactory* self, const OrtHardwareDevice* const* devices, size_t count,
                      OrtEpDevice** found, size_t most, size_t* found_count) noexcept {
  *found_count = 0;
  for (size_t i = 0; i < count && *found_count < most; ++i) {
    if (api->HardwareDevice_Type(devices[i]) == OrtHardwareDeviceType_CPU) {
      OrtStatus* status =
          ep_api->CreateEpDevice(self, devices[i], nullptr, nullptr, &found[*found_count]);
      if (status != nullptr) {
        return status;
      }
      ++*found_count;
    }
  }
  return nullptr;
}

OrtStatus* no_allocator(OrtEpFactory*, const OrtMemoryInfo*, const OrtKeyValuePairs*,
                        OrtAllocator** allocator) noexcept {
  *allocator = nullptr;  // ONNX Runtime's own memory is the host's, where the kernels run
  return nullptr;
}

void release_allocator(OrtEpFactory*, OrtAllocator*) noexcept {}

OrtStatus* no_transfer(OrtEpFactory*, OrtDataTransferImpl** transfer) noexcept {
  *transfer = nullptr;
  return nullptr;
}

bool has_no_streams(const OrtEpFactory*) noexcept { return false; }

OrtEpFactory* factory() {
  static OrtEpFactory made = [] {
    OrtEpFactory one = {};
    one.ort_version_supported = kApiVersion;
    one.GetName = factory_name;
    one.GetVendor = vendor;
    one.GetVendorId = vendor_id;
    one.GetVersion = version;
    one.GetSupportedDevices = devices_of;
    one.CreateEp = create_provider;
    one.ReleaseEp = release_provider;
    one.CreateAllocator = no_allocator;
    one.ReleaseAllocator = release_allocator;
    one.CreateDataTransfer = no_transfer;
    one.IsStreamAware = has_no_streams;
    return one;
  }();
  return &made;
}

}  // namespace

extern "C" TSR_API tessera_ort::OrtStatus* CreateEpFactories(const char*, const OrtApiBase* base,
                                                             const OrtLogger*,
                                                             OrtEpFactory** factories, size_t most,
                                                             size_t* count) {
  api = base->GetApi(kApiVersion);
  if (api == nullptr) {  // the oldest API has the function that makes a status
    return base->GetApi(1)->CreateStatus(
        ORT_EP_FAIL, ("Tessera's provider needs ONNX Runtime 1.24 or newer, got " +
                      std::string(base->GetVersionString()))
                         .c_str());
  }
  ep_api = api->GetEpApi();
  if (tsr_abi() != TSR_ABI || most < 1) {
    return failure("libtessera.so has ABI number " + std::to_string(tsr_abi()) +
                   ", the provider needs " + std::to_string(TSR_ABI));
  }
  factories[0] = factory();
  *count = 1;
  return nullptr;
}

extern "C" TSR_API OrtStatus* ReleaseEpFactory(OrtEpFactory*) { return nullptr; }
