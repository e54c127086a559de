/* The warm call of tessera.torch: finds the plan for a call's tensors in a dict, makes the results
 * and launches the plan. A tensor is read through PyTorch's own attributes, so that one binary
 * serves every version of PyTorch.
 */
#include "fast.h"

#include "tessera/tessera.h"

enum { kMostTensors = 8 };
enum { kMostWords = kMostTensors * (3 + 2 * kMostDimensions) };

/* What Python says of PyTorch once: bind_tensors(). */
static struct {
  PyObject* types[2];     /* torch.Tensor, torch.nn.Parameter */
  PyObject* strided;      /* torch.strided */
  PyObject* idle;         /* functions that all give something false while a call is plain */
  PyObject* settings;     /* functions whose results plans depend on */
  PyObject* has_gradient; /* torch.is_grad_enabled */
  PyObject* forward;      /* the module that counts levels of forward mode */
  PyObject* stream_of;    /* gives the current stream of a GPU, by its number */
} torch;

enum { kShape, kDtype, kLayout, kIsCpu, kIsCuda, kIsNested, kRequiresGrad, kLevel, kAttributes };
enum { kStride = kAttributes, kAddress, kDevice, kIsNegative, kIsZero, kNames };
static const char* const kWords[kNames] = {
    "shape",      "dtype",         "layout",         "is_cpu", "is_cuda",
    "is_nested",  "requires_grad", "_current_level", "stride", "data_ptr",
    "get_device", "is_neg",        "_is_zerotensor"};
static PyObject* names[kNames];

typedef struct {
  int64_t words[kMostWords];
  Py_ssize_t used, count;
  const void* address[kMostTensors];
  int needs_plain_gradient; /* whether gradients are on, so that no tensor may ask for one */
  int64_t device;           /* of the last tensor: 0 for the CPU, else the GPU's number + 1 */
} Call;

/* 1 and 0 for what is true and false; -1 with an exception. Takes the reference. */
static int truth_of(PyObject* value) {
  if (value == NULL) return -1;
  const int is_true = PyObject_IsTrue(value);
  Py_DECREF(value);
  return is_true;
}

static int attribute_is(PyObject* tensor, int name) {
  return truth_of(PyObject_GetAttr(tensor, names[name]));
}

static PyObject* method(PyObject* tensor, int name) {
  return PyObject_CallMethodObjArgs(tensor, names[name], NULL);
}

/* Takes the reference. -1 with an exception where it is no number. */
static int64_t number_of(PyObject* value) {
  if (value == NULL) return -1;
  const int64_t number = PyLong_AsLongLong(value);
  Py_DECREF(value);
  return number;
}

/* Adds a tuple of numbers to the key. Takes the reference. Returns their count, or -1. */
static Py_ssize_t add_numbers(Call* call, PyObject* numbers, Py_ssize_t step) {
  const Py_ssize_t rank = numbers == NULL ? -1 : PyTuple_Size(numbers);
  if (rank >= 0 && rank <= kMostDimensions) {
    for (Py_ssize_t d = 0; d < rank; ++d) {
      call->words[call->used + step * d] = PyLong_AsLongLong(PyTuple_GetItem(numbers, d));
    }
  }
  Py_XDECREF(numbers);
  return rank <= kMostDimensions && PyErr_Occurred() == NULL ? rank : -1;
}

/* Whether nothing but the memory of the tensor matters. */
static int is_plain(const Call* call, PyObject* tensor) {
  const PyObject* const type = (const PyObject*)Py_TYPE(tensor);
  if (type != torch.types[0] && type != torch.types[1]) return 0;
  PyObject* const layout = PyObject_GetAttr(tensor, names[kLayout]);
  Py_XDECREF(layout); /* PyTorch keeps it */
  return layout == torch.strided && attribute_is(tensor, kIsNested) == 0 &&
         truth_of(method(tensor, kIsNegative)) == 0 && truth_of(method(tensor, kIsZero)) == 0 &&
         !(call->needs_plain_gradient && attribute_is(tensor, kRequiresGrad) != 0);
}

/* Adds what distinguishes a tensor: its device, type, shape and strides. Types of PyTorch are never
 * freed, so that their addresses name them. Returns 0 where the call is not plain. */
static int read_tensor(Call* call, Py_ssize_t i, PyObject* tensor) {
  call->address[i] = NULL;
  if (tensor == Py_None) {
    call->words[call->used++] = 0;
    return 1;
  }
  if (!is_plain(call, tensor)) return 0;
  const int is_cpu = attribute_is(tensor, kIsCpu);
  if (is_cpu < 0 || (is_cpu == 0 && attribute_is(tensor, kIsCuda) != 1)) return 0;
  call->device = is_cpu ? 0 : number_of(method(tensor, kDevice)) + 1;
  PyObject* const dtype = PyObject_GetAttr(tensor, names[kDtype]);
  if (dtype == NULL) return 0;
  Py_DECREF(dtype);
  int64_t* const words = call->words + call->used;
  words[1] = (int64_t)(intptr_t)dtype;
  call->used += 2;
  const Py_ssize_t rank = add_numbers(call, PyObject_GetAttr(tensor, names[kShape]), 2);
  if (rank < 0) return 0;
  call->used += 1;
  if (add_numbers(call, method(tensor, kStride), 2) != rank) return 0;
  call->used += 2 * rank - 1;
  words[0] = 1 + rank + call->device * 256;
  PyObject* const address = method(tensor, kAddress);
  if (address == NULL) return 0;
  call->address[i] = PyLong_AsVoidPtr(address);
  Py_DECREF(address);
  return PyErr_Occurred() == NULL;
}

/* Whether PyTorch does nothing with a call but to compute it: no tracing, no other interpretation.
 */
static int is_idle(void) {
  const Py_ssize_t count = PyTuple_Size(torch.idle);
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (truth_of(PyObject_CallObject(PyTuple_GetItem(torch.idle, i), NULL)) != 0) return 0;
  }
  return number_of(PyObject_GetAttr(torch.forward, names[kLevel])) < 0 && PyErr_Occurred() == NULL;
}

static int read_call(Call* call, PyObject* tensors) {
  if (!is_idle()) return 0;
  call->needs_plain_gradient = truth_of(PyObject_CallObject(torch.has_gradient, NULL));
  for (Py_ssize_t i = 0; i < call->count; ++i) {
    if (!read_tensor(call, i, PyTuple_GetItem(tensors, i))) return 0;
  }
  return 1;
}

/* (the tensors' words, the options, the settings...), as a new reference. */
static PyObject* key_of(const Call* call, PyObject* options) {
  const Py_ssize_t settings = PyTuple_Size(torch.settings);
  PyObject* const key = PyTuple_New(2 + settings);
  PyObject* const words =
      PyBytes_FromStringAndSize((const char*)call->words, call->used * (Py_ssize_t)sizeof(int64_t));
  if (key == NULL || words == NULL) return NULL;
  PyTuple_SetItem(key, 0, words);
  Py_INCREF(options);
  PyTuple_SetItem(key, 1, options);
  for (Py_ssize_t i = 0; i < settings; ++i) {
    PyObject* const setting = PyObject_CallObject(PyTuple_GetItem(torch.settings, i), NULL);
    if (setting == NULL) {
      Py_DECREF(key);
      return NULL;
    }
    PyTuple_SetItem(key, 2 + i, setting);
  }
  return key;
}

/* A new tensor beside another one, and its address. */
static PyObject* made_by(PyObject* maker, PyObject* like, const void** address) {
  PyObject* const made = PyObject_CallFunctionObjArgs(maker, like, NULL);
  PyObject* const number = made == NULL ? NULL : method(made, kAddress);
  if (number == NULL) {
    Py_XDECREF(made);
    return NULL;
  }
  *address = PyLong_AsVoidPtr(number);
  Py_DECREF(number);
  return made;
}

/* On the CPU without options; on a GPU on PyTorch's current stream, with a workspace of its
 * allocator where the plan needs one. -1 where these cannot be had. */
static int launch(const Call* call, const Entry* entry, const void* const* operands,
                  PyObject* workspace, PyObject* like) {
  tsr_launch_options_t options = TSR_INIT(tsr_launch_options_t);
  PyObject* memory = NULL;
  if (call->device > 0) {
    PyObject* const stream = PyObject_CallFunction(torch.stream_of, "i", (int)(call->device - 1));
    if (stream == NULL) return -1;
    options.stream = PyLong_AsVoidPtr(stream);
    Py_DECREF(stream);
    if (workspace != Py_None) {
      const void* address = NULL;
      memory = made_by(PyTuple_GetItem(workspace, 1), like, &address);
      if (memory == NULL) return -1;
      options.workspace = (void*)(uintptr_t)address;
      options.workspace_bytes = PyLong_AsSize_t(PyTuple_GetItem(workspace, 0));
    }
  }
  PyThreadState* const state = PyEval_SaveThread();
  const int status =
      launch_plan(entry->plan, operands, (size_t)entry->count, call->device > 0 ? &options : NULL);
  PyEval_RestoreThread(state);
  Py_XDECREF(memory);
  return status;
}

/* value: (the entry, what makes each result, None or (bytes, what makes a workspace), what keeps
 * the plan alive). Returns the results; False where the launch failed; NULL with an exception. */
static PyObject* launch_value(const Call* call, PyObject* tensors, PyObject* value) {
  const Entry* const entry = (const Entry*)PyBytes_AsString(PyTuple_GetItem(value, 0));
  PyObject* const makers = PyTuple_GetItem(value, 1);
  PyObject* const like = PyTuple_GetItem(tensors, 0);
  const Py_ssize_t results = PyTuple_Size(makers);
  PyObject* const made = PyTuple_New(results);
  const void* address[kMostTensors];
  if (entry == NULL || made == NULL || results > kMostTensors) return NULL;
  for (Py_ssize_t i = 0; i < results; ++i) {
    PyObject* const result = made_by(PyTuple_GetItem(makers, i), like, &address[i]);
    if (result == NULL) {
      Py_DECREF(made);
      return NULL;
    }
    PyTuple_SetItem(made, i, result);
  }
  const void* operands[kMostOperands];
  for (int32_t i = 0; i < entry->count; ++i) {
    const int32_t source = entry->source[i];
    operands[i] = source < call->count ? call->address[source] : address[source - call->count];
  }
  if (launch(call, entry, operands, PyTuple_GetItem(value, 2), like) == 0) return made;
  Py_DECREF(made);
  if (PyErr_Occurred() != NULL) return NULL;
  Py_RETURN_FALSE;
}

static PyObject* find_and_launch(const Call* call, PyObject* table, PyObject* tensors,
                                 PyObject* options) {
  PyObject* const key = key_of(call, options);
  if (key == NULL) return NULL;
  PyObject* const value = PyDict_GetItemWithError(table, key);
  PyObject* result = NULL;
  if (value != NULL) {
    Py_INCREF(value); /* the plan lives until the launch has returned */
    result = launch_value(call, tensors, value);
    Py_DECREF(value);
  } else if (PyErr_Occurred() == NULL && (result = PyList_New(1)) != NULL) {
    Py_INCREF(key);
    PyList_SetItem(result, 0, key);
  }
  Py_DECREF(key);
  return result;
}

const char call_tensors_doc[] =
    "call_tensors(table, tensors, options)\n\n"
    "Launches table[key]; the key is made of the tensors, the options and PyTorch's settings.\n"
    "Returns the tuple of new results after a launch, a list of the key where the table lacks\n"
    "it, and False where the call is not plain, a tensor asks for a gradient, an option has no\n"
    "hash, or something failed.";

PyObject* call_tensors(PyObject* module, PyObject* const* arguments, Py_ssize_t count) {
  (void)module;
  if (count != 3 || !PyTuple_Check(arguments[1])) {
    PyErr_SetString(PyExc_TypeError, "call_tensors() takes a dict, a tuple and options");
    return NULL;
  }
  Call call;
  call.used = 0;
  call.device = 0;
  call.count = PyTuple_Size(arguments[1]);
  PyObject* result = NULL;
  if (call.count > 0 && call.count <= kMostTensors && torch.idle != NULL && launch_plan != NULL &&
      read_call(&call, arguments[1])) {
    result = find_and_launch(&call, arguments[0], arguments[1], arguments[2]);
  }
  if (result == NULL && (PyErr_Occurred() == NULL || PyErr_ExceptionMatches(PyExc_Exception))) {
    PyErr_Clear(); /* Python says what is wrong */
    Py_INCREF(Py_False);
    result = Py_False;
  }
  return result;
}

const char bind_tensors_doc[] =
    "bind_tensors((Tensor, Parameter, strided, idle, settings, is_grad_enabled, forward_ad,\n"
    "stream_of)): what call_tensors() asks of PyTorch.";

PyObject* bind_tensors(PyObject* module, PyObject* facts) {
  (void)module;
  PyObject** const places[] = {&torch.types[0], &torch.types[1], &torch.strided,
                               &torch.idle,     &torch.settings, &torch.has_gradient,
                               &torch.forward,  &torch.stream_of};
  const Py_ssize_t count = (Py_ssize_t)(sizeof(places) / sizeof(places[0]));
  if (!PyTuple_Check(facts) || PyTuple_Size(facts) != count) {
    PyErr_Format(PyExc_TypeError, "bind_tensors() takes a tuple of %zd", count);
    return NULL;
  }
  for (int i = 0; i < kNames; ++i) {
    if (names[i] == NULL) names[i] = PyUnicode_InternFromString(kWords[i]);
    if (names[i] == NULL) return NULL;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const fact = PyTuple_GetItem(facts, i);
    Py_INCREF(fact);
    *places[i] = fact; /* for as long as the process lives */
  }
  Py_RETURN_NONE;
}
