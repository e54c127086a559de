/* How a tensor is read: through the exchange of tensors in C that DLPack describes and PyTorch
 * offers since 2.10, and through the C functions behind PyTorch's attributes. Where there is none
 * of these, the attributes themselves say the same.
 */
#include <string.h>

#include "tensors.h"

/* DLPack's structs, whose layout is fixed for its first major version. */
typedef struct {
  void* data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} Exchanged;

typedef struct {
  uint32_t major, minor;
  void* previous;
  void* allocate;
  void* from_object;
  void* to_object;
  int (*read)(void* object, Exchanged* out);
  int (*stream)(int32_t device_type, int32_t device_id, void** out);
} Exchange;

enum { kCpu = 1, kCuda = 2, kHip = 10 }; /* DLPack's numbers of devices */

enum { kShape, kDtype, kLayout, kIsCpu, kIsCuda, kIsNested, kRequiresGrad, kAttributes };
enum { kStride = kAttributes, kAddress, kDevice, kIsNegative, kIsZero, kNames };
static const char* const kWords[kNames] = {
    "shape",         "dtype",  "layout",   "is_cpu",     "is_cuda", "is_nested",
    "requires_grad", "stride", "data_ptr", "get_device", "is_neg",  "_is_zerotensor"};

static struct {
  PyObject* types[2]; /* torch.Tensor, torch.nn.Parameter */
  PyObject* strided;  /* torch.strided */
  const Exchange* exchange;
  PyObject* names[kNames];
  PyGetSetDef attributes[kNames]; /* get is NULL where only the name is known */
  PyCFunction methods[kNames];    /* NULL where only the name is known */
} torch;

static PyObject* attribute(PyObject* tensor, int name) {
  const PyGetSetDef* const found = &torch.attributes[name];
  return found->get != NULL ? found->get(tensor, found->closure)
                            : PyObject_GetAttr(tensor, torch.names[name]);
}

static PyObject* method(PyObject* tensor, int name) {
  return torch.methods[name] != NULL ? torch.methods[name](tensor, NULL)
                                     : PyObject_CallMethodObjArgs(tensor, torch.names[name], NULL);
}

int is_tensor(const PyObject* object) {
  const PyObject* const type = (const PyObject*)Py_TYPE(object);
  return type == torch.types[0] || type == torch.types[1];
}

int is_plain(PyObject* tensor) {
  PyObject* const layout = attribute(tensor, kLayout);
  Py_XDECREF(layout); /* PyTorch keeps it */
  return layout == torch.strided && truth_of(attribute(tensor, kIsNested)) == 0 &&
         truth_of(method(tensor, kIsNegative)) == 0 && truth_of(method(tensor, kIsZero)) == 0;
}

int asks_gradient(PyObject* tensor) { return truth_of(attribute(tensor, kRequiresGrad)) != 0; }

/* Writes a tuple of numbers. Takes the reference. Returns their count, or -1. */
static Py_ssize_t numbers_of(PyObject* numbers, int64_t* to) {
  const Py_ssize_t count = numbers == NULL ? -1 : PyTuple_Size(numbers);
  for (Py_ssize_t i = 0; i < count && count <= kMostDimensions; ++i) {
    to[i] = PyLong_AsLongLong(PyTuple_GetItem(numbers, i));
  }
  Py_XDECREF(numbers);
  return count <= kMostDimensions && PyErr_Occurred() == NULL ? count : -1;
}

/* Types of PyTorch are never freed, so that their addresses name them. */
static int read_attributes(PyObject* tensor, Seen* seen) {
  const int is_cpu = truth_of(attribute(tensor, kIsCpu));
  if (is_cpu < 0 || (is_cpu == 0 && truth_of(attribute(tensor, kIsCuda)) != 1)) return 0;
  seen->device = is_cpu ? 0 : number_of(method(tensor, kDevice)) + 1;
  PyObject* const dtype = attribute(tensor, kDtype);
  if (dtype == NULL) return 0;
  Py_DECREF(dtype);
  seen->dtype = (int64_t)(intptr_t)dtype;
  const Py_ssize_t rank = numbers_of(attribute(tensor, kShape), seen->room);
  if (rank < 0) return 0;
  if (numbers_of(method(tensor, kStride), seen->room + kMostDimensions) != rank) return 0;
  seen->rank = (int)rank;
  seen->shape = seen->room;
  seen->strides = seen->room + kMostDimensions;
  PyObject* const address = method(tensor, kAddress);
  if (address == NULL) return 0;
  seen->address = PyLong_AsVoidPtr(address);
  Py_DECREF(address);
  return PyErr_Occurred() == NULL;
}

static int read_exchanged(const Exchange* exchange, PyObject* tensor, Seen* seen) {
  Exchanged found;
  if (exchange->read(tensor, &found) != 0 || found.ndim > kMostDimensions) return 0;
  if (found.ndim > 0 && (found.shape == NULL || found.strides == NULL)) return 0;
  const int is_cpu = found.device_type == kCpu;
  if (!is_cpu && found.device_type != kCuda && found.device_type != kHip) return 0;
  seen->device = is_cpu ? 0 : found.device_id + 1;
  seen->dtype = found.code | found.bits << 8 | (int64_t)found.lanes << 16;
  seen->rank = found.ndim;
  seen->shape = found.shape;
  seen->strides = found.strides;
  seen->address = (const char*)found.data + found.byte_offset;
  return 1;
}

int read_memory(PyObject* tensor, Seen* seen) {
  return torch.exchange != NULL ? read_exchanged(torch.exchange, tensor, seen)
                                : read_attributes(tensor, seen);
}

int read_stream(int gpu, void** stream) {
  return torch.exchange != NULL && torch.exchange->stream(kCuda, gpu, stream) == 0;
}

/* The C functions behind attributes and methods without arguments, from a type's own tables. */
static void find_functions(PyTypeObject* type) {
  const PyGetSetDef* const attributes = (const PyGetSetDef*)PyType_GetSlot(type, Py_tp_getset);
  const PyMethodDef* const methods = (const PyMethodDef*)PyType_GetSlot(type, Py_tp_methods);
  memset(torch.attributes, 0, sizeof(torch.attributes));
  memset(torch.methods, 0, sizeof(torch.methods));
  PyErr_Clear(); /* Python 3.9 has no such tables of a type that is not made at run time */
  for (int i = 0; i < kNames; ++i) {
    for (const PyGetSetDef* a = attributes; a != NULL && a->name != NULL; ++a) {
      if (i < kAttributes && strcmp(a->name, kWords[i]) == 0) torch.attributes[i] = *a;
    }
    for (const PyMethodDef* m = methods; m != NULL && m->ml_name != NULL; ++m) {
      if (i >= kAttributes && m->ml_flags == METH_NOARGS && strcmp(m->ml_name, kWords[i]) == 0) {
        torch.methods[i] = m->ml_meth;
      }
    }
  }
}

static int are_equal(const int64_t* one, const int64_t* other, int count) {
  return count == 0 || memcmp(one, other, (size_t)count * sizeof(*one)) == 0;
}

/* Whether the exchange says of a tensor what its attributes say. */
static int is_right(const Exchange* exchange, PyObject* tensor) {
  Seen one, other;
  if (!read_attributes(tensor, &one) || !read_exchanged(exchange, tensor, &other)) return 0;
  return one.address == other.address && one.device == other.device && one.rank == other.rank &&
         are_equal(one.shape, other.shape, one.rank) &&
         are_equal(one.strides, other.strides, one.rank);
}

/* The exchange, if it is of a version that is known and right for the sample. */
static const Exchange* exchange_of(PyObject* capsule, PyObject* sample) {
  const Exchange* found = NULL;
  if (PyCapsule_IsValid(capsule, "dlpack_exchange_api")) {
    found = (const Exchange*)PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
  }
  const int is_known = found != NULL && found->major == 1 && found->read != NULL &&
                       found->stream != NULL && is_right(found, sample);
  PyErr_Clear();
  return is_known ? found : NULL;
}

int bind_reading(PyObject* facts) {
  PyObject *tensor, *parameter, *base, *strided, *capsule, *sample;
  if (!PyArg_ParseTuple(facts, "OOOOOO", &tensor, &parameter, &base, &strided, &capsule, &sample)) {
    return 0;
  }
  for (int i = 0; i < kNames; ++i) {
    if (torch.names[i] == NULL) torch.names[i] = PyUnicode_InternFromString(kWords[i]);
    if (torch.names[i] == NULL) return 0;
  }
  PyObject* const kept[] = {tensor, parameter, strided, capsule};
  for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); ++i) Py_INCREF(kept[i]);
  torch.types[0] = tensor;
  torch.types[1] = parameter;
  torch.strided = strided;
  find_functions((PyTypeObject*)base);
  torch.exchange = exchange_of(capsule, sample);
  return 1;
}
