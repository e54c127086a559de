// The part of ONNX Runtime's C ABI that the provider uses, from version 24 of it on: the tables of
// functions have these ones at these places in every later version, because the tables only grow.
// check_ort_abi.cc compares all of it with ONNX Runtime's own headers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera_ort {

// The version of the C API that the provider asks for.
constexpr uint32_t kApiVersion = 24;

// ---- What is known by its address alone ---------------------------------------------------------

struct OrtAllocator;
struct OrtDataTransferImpl;
struct OrtEpDevice;
struct OrtEpGraphSupportInfo;
struct OrtGraph;
struct OrtHardwareDevice;
struct OrtKernelContext;
struct OrtKeyValuePairs;
struct OrtLogger;
struct OrtMemoryInfo;
struct OrtNode;
struct OrtNodeComputeContext;
struct OrtOpAttr;
struct OrtSessionOptions;
struct OrtStatus;
struct OrtTensorTypeAndShapeInfo;
struct OrtTypeInfo;
struct OrtValue;
struct OrtValueInfo;

// ---- Numbers ------------------------------------------------------------------------------------

enum OrtErrorCode : unsigned { ORT_EP_FAIL = 11 };
enum OrtHardwareDeviceType : unsigned { OrtHardwareDeviceType_CPU = 0 };
enum OrtOpAttrType : unsigned {
  ORT_OP_ATTR_UNDEFINED = 0,
  ORT_OP_ATTR_INT = 1,
  ORT_OP_ATTR_INTS = 2,
  ORT_OP_ATTR_FLOAT = 3,
  ORT_OP_ATTR_STRING = 5,
};
enum ONNXTensorElementDataType : unsigned {
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED = 0,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT = 1,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16 = 10,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16 = 16,
};

// ---- Tables of functions that ONNX Runtime fills ------------------------------------------------

// So many functions that the provider does not call. The member's name has the place of the next
// one.
template <size_t kCount>
struct Gap {
  void (*skipped[kCount])();
};

struct OrtEp;
struct OrtEpFactory;
struct OrtNodeComputeInfo;

struct OrtNodeFusionOptions {
  uint32_t ort_version_supported;
  bool drop_constant_initializers;
};

struct OrtEpApi {
  OrtStatus* (*CreateEpDevice)(OrtEpFactory*, const OrtHardwareDevice*, const OrtKeyValuePairs*,
                               const OrtKeyValuePairs*, OrtEpDevice**);
  Gap<1> before_2;
  OrtStatus* (*EpGraphSupportInfo_AddNodesToFuse)(OrtEpGraphSupportInfo*, const OrtNode* const*,
                                                  size_t, const OrtNodeFusionOptions*);
};

struct OrtApi {
  OrtStatus* (*CreateStatus)(OrtErrorCode, const char*);
  Gap<1> before_2;
  const char* (*GetErrorMessage)(const OrtStatus*);
  Gap<48> before_51;
  OrtStatus* (*GetTensorMutableData)(OrtValue*, void**);
  Gap<3> before_55;
  OrtStatus* (*CastTypeInfoToTensorInfo)(const OrtTypeInfo*, const OrtTensorTypeAndShapeInfo**);
  Gap<4> before_60;
  OrtStatus* (*GetTensorElementType)(const OrtTensorTypeAndShapeInfo*, ONNXTensorElementDataType*);
  OrtStatus* (*GetDimensionsCount)(const OrtTensorTypeAndShapeInfo*, size_t*);
  OrtStatus* (*GetDimensions)(const OrtTensorTypeAndShapeInfo*, int64_t*, size_t);
  OrtStatus* (*GetSymbolicDimensions)(const OrtTensorTypeAndShapeInfo*, const char**, size_t);
  Gap<1> before_65;
  OrtStatus* (*GetTensorTypeAndShape)(const OrtValue*, OrtTensorTypeAndShapeInfo**);
  Gap<24> before_90;
  OrtStatus* (*KernelContext_GetInput)(const OrtKernelContext*, size_t, const OrtValue**);
  OrtStatus* (*KernelContext_GetOutput)(OrtKernelContext*, size_t, const int64_t*, size_t,
                                        OrtValue**);
  Gap<1> before_93;
  void (*ReleaseStatus)(OrtStatus*);
  Gap<5> before_99;
  void (*ReleaseTensorTypeAndShapeInfo)(OrtTensorTypeAndShapeInfo*);
  Gap<137> before_237;
  OrtStatus* (*HasSessionConfigEntry)(const OrtSessionOptions*, const char*, int*);
  OrtStatus* (*GetSessionConfigEntry)(const OrtSessionOptions*, const char*, char*, size_t*);
  Gap<33> before_272;
  OrtStatus* (*ReadOpAttr)(const OrtOpAttr*, OrtOpAttrType, void*, size_t, size_t*);
  Gap<16> before_289;
  OrtStatus* (*GetValueInfoName)(const OrtValueInfo*, const char**);
  OrtStatus* (*GetValueInfoTypeInfo)(const OrtValueInfo*, const OrtTypeInfo**);
  Gap<16> before_307;
  OrtHardwareDeviceType (*HardwareDevice_Type)(const OrtHardwareDevice*);
  Gap<9> before_317;
  const OrtEpApi* (*GetEpApi)();
  Gap<26> before_344;
  OrtStatus* (*Graph_GetNumNodes)(const OrtGraph*, size_t*);
  OrtStatus* (*Graph_GetNodes)(const OrtGraph*, const OrtNode**, size_t);
  Gap<3> before_349;
  OrtStatus* (*Node_GetName)(const OrtNode*, const char**);
  OrtStatus* (*Node_GetOperatorType)(const OrtNode*, const char**);
  OrtStatus* (*Node_GetDomain)(const OrtNode*, const char**);
  OrtStatus* (*Node_GetSinceVersion)(const OrtNode*, int*);
  OrtStatus* (*Node_GetNumInputs)(const OrtNode*, size_t*);
  OrtStatus* (*Node_GetInputs)(const OrtNode*, const OrtValueInfo**, size_t);
  OrtStatus* (*Node_GetNumOutputs)(const OrtNode*, size_t*);
  OrtStatus* (*Node_GetOutputs)(const OrtNode*, const OrtValueInfo**, size_t);
  Gap<4> before_361;
  OrtStatus* (*Node_GetAttributeByName)(const OrtNode*, const char*, const OrtOpAttr**);
  Gap<1> before_363;
  OrtStatus* (*OpAttr_GetType)(const OrtOpAttr*, OrtOpAttrType*);
  Gap<14> before_378;
  OrtStatus* (*GetTensorData)(const OrtValue*, const void**);
  Gap<11> before_390;
  bool (*TensorTypeAndShape_HasShape)(const OrtTensorTypeAndShapeInfo*);
};

struct OrtApiBase {
  const OrtApi* (*GetApi)(uint32_t version);
  const char* (*GetVersionString)();
};

// ---- Tables of functions that the provider fills ------------------------------------------------
// ONNX Runtime reads no further than the version says that a table has. What the provider leaves
// out stays null, which means that it has no such function.

struct OrtEp {
  uint32_t ort_version_supported;
  const char* (*GetName)(const OrtEp*);
  OrtStatus* (*GetCapability)(OrtEp*, const OrtGraph*, OrtEpGraphSupportInfo*);
  OrtStatus* (*Compile)(OrtEp*, const OrtGraph**, const OrtNode**, size_t, OrtNodeComputeInfo**,
                        OrtNode**);
  void (*ReleaseNodeComputeInfos)(OrtEp*, OrtNodeComputeInfo**, size_t);
  Gap<10> behind;
};

struct OrtNodeComputeInfo {
  uint32_t ort_version_supported;
  OrtStatus* (*CreateState)(OrtNodeComputeInfo*, OrtNodeComputeContext*, void**);
  OrtStatus* (*Compute)(OrtNodeComputeInfo*, void*, OrtKernelContext*);
  void (*ReleaseState)(OrtNodeComputeInfo*, void*);
};

struct OrtEpFactory {
  uint32_t ort_version_supported;
  const char* (*GetName)(const OrtEpFactory*);
  const char* (*GetVendor)(const OrtEpFactory*);
  OrtStatus* (*GetSupportedDevices)(OrtEpFactory*, const OrtHardwareDevice* const*, size_t,
                                    OrtEpDevice**, size_t, size_t*);
  OrtStatus* (*CreateEp)(OrtEpFactory*, const OrtHardwareDevice* const*,
                         const OrtKeyValuePairs* const*, size_t, const OrtSessionOptions*,
                         const OrtLogger*, OrtEp**);
  void (*ReleaseEp)(OrtEpFactory*, OrtEp*);
  uint32_t (*GetVendorId)(const OrtEpFactory*);
  const char* (*GetVersion)(const OrtEpFactory*);
  Gap<1> before_create_allocator;
  OrtStatus* (*CreateAllocator)(OrtEpFactory*, const OrtMemoryInfo*, const OrtKeyValuePairs*,
                                OrtAllocator**);
  void (*ReleaseAllocator)(OrtEpFactory*, OrtAllocator*);
  OrtStatus* (*CreateDataTransfer)(OrtEpFactory*, OrtDataTransferImpl**);
  bool (*IsStreamAware)(const OrtEpFactory*);
  Gap<5> behind;
};

}  // namespace tessera_ort
