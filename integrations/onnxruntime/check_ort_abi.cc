// Compares ort_abi.h with ONNX Runtime's own headers; compiling this file is the test.
#include <onnxruntime_c_api.h>

#include <type_traits>

#include "ort_abi.h"

namespace {

namespace ours = tessera_ort;

// Arguments and results agree where they are passed alike: pointers as pointers, and numbers with
// their sizes.
template <typename A, typename B>
constexpr bool passes_alike() {
  if constexpr (std::is_void_v<A> || std::is_void_v<B>) {
    return std::is_void_v<A> && std::is_void_v<B>;
  } else {
    return std::is_pointer_v<A> == std::is_pointer_v<B> && sizeof(A) == sizeof(B);
  }
}

template <typename A, typename B>
struct Alike {
  static constexpr bool value = passes_alike<A, B>();  // of members that are no functions
};

template <typename A, typename B, typename... As, typename... Bs>
struct Alike<A (*)(As...), B (*)(Bs...)> {
  static constexpr bool is_right() {
    if constexpr (sizeof...(As) == sizeof...(Bs)) {
      return passes_alike<A, B>() && (passes_alike<As, Bs>() && ...);
    }
    return false;
  }
  static constexpr bool value = is_right();
};

template <typename A, typename B, typename... As, typename... Bs>
struct Alike<A (*)(As...), B (*)(Bs...) noexcept> : Alike<A (*)(As...), B (*)(Bs...)> {};

#define SAME(TABLE, MEMBER)                                                  \
  static_assert(offsetof(ours::TABLE, MEMBER) == offsetof(::TABLE, MEMBER)); \
  static_assert(Alike<decltype(ours::TABLE::MEMBER), decltype(::TABLE::MEMBER)>::value)
#define SAME_NUMBER(TYPE, NUMBER)                       \
  static_assert(sizeof(ours::TYPE) == sizeof(::TYPE) && \
                static_cast<int>(ours::NUMBER) == static_cast<int>(::NUMBER))

static_assert(ours::kApiVersion <= ORT_API_VERSION);

SAME(OrtApiBase, GetApi);
SAME(OrtApiBase, GetVersionString);

SAME(OrtApi, CreateStatus);
SAME(OrtApi, GetErrorMessage);
SAME(OrtApi, GetTensorMutableData);
SAME(OrtApi, CastTypeInfoToTensorInfo);
SAME(OrtApi, GetTensorElementType);
SAME(OrtApi, GetDimensionsCount);
SAME(OrtApi, GetDimensions);
SAME(OrtApi, GetSymbolicDimensions);
SAME(OrtApi, GetTensorTypeAndShape);
SAME(OrtApi, KernelContext_GetInput);
SAME(OrtApi, KernelContext_GetOutput);
SAME(OrtApi, ReleaseStatus);
SAME(OrtApi, ReleaseTensorTypeAndShapeInfo);
SAME(OrtApi, HasSessionConfigEntry);
SAME(OrtApi, GetSessionConfigEntry);
SAME(OrtApi, ReadOpAttr);
SAME(OrtApi, GetValueInfoName);
SAME(OrtApi, GetValueInfoTypeInfo);
SAME(OrtApi, HardwareDevice_Type);
SAME(OrtApi, GetEpApi);
SAME(OrtApi, Graph_GetNumNodes);
SAME(OrtApi, Graph_GetNodes);
SAME(OrtApi, Node_GetName);
SAME(OrtApi, Node_GetOperatorType);
SAME(OrtApi, Node_GetDomain);
SAME(OrtApi, Node_GetSinceVersion);
SAME(OrtApi, Node_GetNumInputs);
SAME(OrtApi, Node_GetInputs);
SAME(OrtApi, Node_GetNumOutputs);
SAME(OrtApi, Node_GetOutputs);
SAME(OrtApi, Node_GetAttributeByName);
SAME(OrtApi, OpAttr_GetType);
SAME(OrtApi, GetTensorData);
SAME(OrtApi, TensorTypeAndShape_HasShape);

SAME(OrtEpApi, CreateEpDevice);
SAME(OrtEpApi, EpGraphSupportInfo_AddNodesToFuse);

SAME(OrtNodeFusionOptions, ort_version_supported);
SAME(OrtNodeFusionOptions, drop_constant_initializers);

SAME(OrtEp, ort_version_supported);
SAME(OrtEp, GetName);
SAME(OrtEp, GetCapability);
SAME(OrtEp, Compile);
SAME(OrtEp, ReleaseNodeComputeInfos);

SAME(OrtNodeComputeInfo, ort_version_supported);
SAME(OrtNodeComputeInfo, CreateState);
SAME(OrtNodeComputeInfo, Compute);
SAME(OrtNodeComputeInfo, ReleaseState);

SAME(OrtEpFactory, ort_version_supported);
SAME(OrtEpFactory, GetName);
SAME(OrtEpFactory, GetVendor);
SAME(OrtEpFactory, GetSupportedDevices);
SAME(OrtEpFactory, CreateEp);
SAME(OrtEpFactory, ReleaseEp);
SAME(OrtEpFactory, GetVendorId);
SAME(OrtEpFactory, GetVersion);
SAME(OrtEpFactory, CreateAllocator);
SAME(OrtEpFactory, ReleaseAllocator);
SAME(OrtEpFactory, CreateDataTransfer);
SAME(OrtEpFactory, IsStreamAware);

SAME_NUMBER(OrtErrorCode, ORT_EP_FAIL);
SAME_NUMBER(OrtHardwareDeviceType, OrtHardwareDeviceType_CPU);
SAME_NUMBER(OrtOpAttrType, ORT_OP_ATTR_UNDEFINED);
SAME_NUMBER(OrtOpAttrType, ORT_OP_ATTR_INT);
SAME_NUMBER(OrtOpAttrType, ORT_OP_ATTR_INTS);
SAME_NUMBER(OrtOpAttrType, ORT_OP_ATTR_FLOAT);
SAME_NUMBER(OrtOpAttrType, ORT_OP_ATTR_STRING);
SAME_NUMBER(ONNXTensorElementDataType, ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED);
SAME_NUMBER(ONNXTensorElementDataType, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT);
SAME_NUMBER(ONNXTensorElementDataType, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16);
SAME_NUMBER(ONNXTensorElementDataType, ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16);

// A table that the provider fills has all that its version reads.
static_assert(offsetof(::OrtEp, IsConcurrentRunSupported) < sizeof(ours::OrtEp));
static_assert(offsetof(::OrtEpFactory, GetCustomOpDomains) < sizeof(ours::OrtEpFactory));
static_assert(sizeof(ours::OrtNodeComputeInfo) == sizeof(::OrtNodeComputeInfo));
static_assert(sizeof(ours::OrtNodeFusionOptions) == sizeof(::OrtNodeFusionOptions));

}  // namespace
