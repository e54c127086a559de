/* The warm call: finds the plan for a call's arrays in a dict, makes the results that the call
 * lacks and launches the plan, without Python code between. All else of the package is Python over
 * ctypes.
 *
 * The file is compiled against the limited API of Python 3.9, so that one binary serves every later
 * version. It does not link the library: Python tells it the address of tsr_launch.
 */
#include "fast.h"

#include <dlfcn.h>
#include <string.h>

enum { kBufStrides = 0x18 };
enum { kMostWords = kMostOperands * (3 + 2 * kMostDimensions) };

/* The buffer protocol came into the limited API with Python 3.11. Its struct and functions have
 * been the same in all versions since 3.0, and their layout is frozen as of 3.11, so that this
 * declaration of them serves older versions too. The functions are looked up in the process. */
typedef struct {
  void* buf;
  PyObject* obj;
  Py_ssize_t len;
  Py_ssize_t itemsize;
  int readonly;
  int ndim;
  char* format;
  Py_ssize_t* shape;
  Py_ssize_t* strides;
  Py_ssize_t* suboffsets;
  void* internal;
} Buffer;

typedef int (*GetBuffer)(PyObject*, Buffer*, int);
typedef void (*ReleaseBuffer)(Buffer*);

static GetBuffer get_buffer;
static ReleaseBuffer release_buffer;
Launch launch_plan;
static PyObject* dtype_name;

typedef struct {
  Buffer buffers[kMostOperands];
  int is_held[kMostOperands];
  int64_t words[kMostWords];
  Py_ssize_t count, used;
} Call;

static void release_all(Call* call) {
  for (Py_ssize_t i = 0; i < call->count; ++i) {
    if (call->is_held[i]) release_buffer(&call->buffers[i]);
  }
}

/* Adds what distinguishes an operand: the dtype object, whether it may be written, its shape and
 * strides. The dict's value keeps the dtype, so that its address cannot become another's. Returns 0
 * where the array cannot be read this way. */
static int read_operand(Call* call, Py_ssize_t i, PyObject* array) {
  int64_t* const words = call->words + call->used;
  if (array == Py_None) {
    words[0] = 0;
    call->used += 1;
    return 1;
  }
  PyObject* const dtype = PyObject_GetAttr(array, dtype_name);
  if (dtype == NULL) return 0;
  Py_DECREF(dtype); /* the array holds it */
  Buffer* const buffer = &call->buffers[i];
  if (get_buffer(array, buffer, kBufStrides) != 0) return 0;
  call->is_held[i] = 1;
  const int rank = buffer->ndim;
  if (rank > kMostDimensions || (rank > 0 && buffer->strides == NULL)) return 0;
  words[0] = (int64_t)(intptr_t)dtype;
  words[1] = rank * 2 + (buffer->readonly != 0);
  for (int d = 0; d < rank; ++d) {
    words[2 + 2 * d] = buffer->shape[d];
    words[3 + 2 * d] = buffer->strides[d];
  }
  call->used += 2 + 2 * rank;
  return 1;
}

static int read_operands(Call* call, PyObject* operands) {
  for (Py_ssize_t i = 0; i < call->count; ++i) {
    if (!read_operand(call, i, PyTuple_GetItem(operands, i))) return 0;
  }
  return 1;
}

/* Makes a result and puts it into the place of the arrays where it lacks. maker: the place, a
 * function and its arguments. */
static int add_result(Call* call, PyObject* arrays, PyObject* maker) {
  PyObject* const number = PyTuple_GetItem(maker, 0);
  PyObject* const make = PyTuple_GetItem(maker, 1);
  PyObject* const arguments = PyTuple_GetItem(maker, 2);
  if (number == NULL || make == NULL || arguments == NULL) return 0;
  const Py_ssize_t place = PyLong_AsSsize_t(number);
  PyObject* const made = PyObject_CallObject(make, arguments);
  if (made == NULL) return 0;
  PyTuple_SetItem(arrays, place, made); /* the arrays hold it from here on */
  if (get_buffer(made, &call->buffers[place], kBufStrides) != 0) return 0;
  call->is_held[place] = 1;
  return 1;
}

/* The arrays with the results that the makers make, as a new reference. */
static PyObject* complete(Call* call, PyObject* operands, PyObject* makers) {
  const Py_ssize_t lacking = PyTuple_Size(makers);
  if (lacking == 0) {
    Py_INCREF(operands);
    return operands;
  }
  PyObject* const arrays = PyTuple_New(call->count);
  if (arrays == NULL) return NULL;
  for (Py_ssize_t i = 0; i < call->count; ++i) {
    PyObject* const array = PyTuple_GetItem(operands, i);
    Py_INCREF(array);
    PyTuple_SetItem(arrays, i, array);
  }
  for (Py_ssize_t i = 0; i < lacking; ++i) {
    if (!add_result(call, arrays, PyTuple_GetItem(makers, i))) {
      Py_DECREF(arrays);
      return NULL;
    }
  }
  return arrays;
}

/* The arrays after a launch, or its status. The table's value holds the plan's address
 * (_abi.Owned), and this call holds the value, so that the plan is destroyed when the launch has
 * returned, though another thread closes it while the GIL is away. */
static PyObject* launch_entry(Call* call, PyObject* operands, PyObject* value) {
  PyObject* const bytes = PyTuple_GetItem(value, 0);
  PyObject* const makers = PyTuple_GetItem(value, 1);
  const Entry* const entry = bytes == NULL ? NULL : (const Entry*)PyBytes_AsString(bytes);
  PyObject* const arrays =
      entry == NULL || makers == NULL ? NULL : complete(call, operands, makers);
  if (arrays == NULL) return NULL;
  const void* addresses[kMostOperands];
  for (int32_t i = 0; i < entry->count; ++i) addresses[i] = call->buffers[entry->source[i]].buf;
  PyThreadState* const state = PyEval_SaveThread();
  const int status = launch_plan(entry->plan, addresses, (size_t)entry->count, NULL);
  PyEval_RestoreThread(state);
  if (status == 0) return arrays;
  Py_DECREF(arrays);
  return PyLong_FromLong(status);
}

/* The table's value for a key, as a new reference; NULL without an exception where there is none.
 */
static PyObject* value_of(PyObject* table, PyObject* key) {
  PyObject* const value = PyDict_GetItemWithError(table, key);
  Py_XINCREF(value);
  return value;
}

static PyObject* find_and_launch(Call* call, PyObject* table, PyObject* operands,
                                 PyObject* options) {
  PyObject* const bytes =
      PyBytes_FromStringAndSize((const char*)call->words, call->used * (Py_ssize_t)sizeof(int64_t));
  if (bytes == NULL) return NULL;
  PyObject* const key = PyTuple_Pack(2, bytes, options);
  Py_DECREF(bytes);
  if (key == NULL) return NULL;
  PyObject* const value = value_of(table, key);
  PyObject* result = NULL;
  if (value != NULL) {
    result = launch_entry(call, operands, value);
    Py_DECREF(value);
  } else if (PyErr_Occurred() == NULL) {
    result = PyList_New(1);
    if (result != NULL) {
      Py_INCREF(key);
      PyList_SetItem(result, 0, key);
    }
  }
  Py_DECREF(key);
  return result;
}

PyDoc_STRVAR(call_doc,
             "call(table, arrays, options)\n\n"
             "Launches table[key]; the key is made of the arrays and the options. Returns the\n"
             "arrays with new results after a launch, its status where it failed, a list of the\n"
             "key where the table lacks it, and False where an array cannot be read through the\n"
             "buffer protocol, an option has no hash, or a result cannot be made.");

static PyObject* call(PyObject* module, PyObject* const* arguments, Py_ssize_t count) {
  (void)module;
  if (count != 3 || !PyTuple_Check(arguments[1])) {
    PyErr_SetString(PyExc_TypeError, "call() takes a dict, a tuple and options");
    return NULL;
  }
  Call made;
  made.used = 0;
  made.count = PyTuple_Size(arguments[1]);
  if (made.count > kMostOperands || launch_plan == NULL) Py_RETURN_FALSE;
  for (Py_ssize_t i = 0; i < made.count; ++i) made.is_held[i] = 0;
  PyObject* result = NULL;
  if (read_operands(&made, arguments[1])) {
    result = find_and_launch(&made, arguments[0], arguments[1], arguments[2]);
  }
  if (result == NULL && (PyErr_Occurred() == NULL || PyErr_ExceptionMatches(PyExc_Exception))) {
    PyErr_Clear(); /* Python says what is wrong */
    Py_INCREF(Py_False);
    result = Py_False;
  }
  release_all(&made);
  return result;
}

PyDoc_STRVAR(bind_doc, "bind(address): the address of tsr_launch.");

static PyObject* bind(PyObject* module, PyObject* address) {
  (void)module;
  void* const given = PyLong_AsVoidPtr(address);
  if (given == NULL && PyErr_Occurred() != NULL) return NULL;
  launch_plan = (Launch)(intptr_t)given;
  Py_RETURN_NONE;
}

PyDoc_STRVAR(read_doc, "read(addresses, size): the memory at each of the addresses, as bytes.");

static PyObject* read_at(PyObject* module, PyObject* arguments) {
  (void)module;
  const char* addresses = NULL;
  Py_ssize_t bytes = 0, size = 0;
  if (!PyArg_ParseTuple(arguments, "y#n", &addresses, &bytes, &size)) return NULL;
  const Py_ssize_t count = bytes / (Py_ssize_t)sizeof(void*);
  PyObject* const made = PyBytes_FromStringAndSize(NULL, count * size);
  if (made == NULL) return NULL;
  char* const to = PyBytes_AsString(made);
  for (Py_ssize_t i = 0; i < count; ++i) {
    const void* from;
    memcpy(&from, addresses + i * (Py_ssize_t)sizeof(from), sizeof(from));
    memcpy(to + i * size, from, (size_t)size);
  }
  return made;
}

static PyMethodDef methods[] = {
    {"call", (PyCFunction)(void (*)(void))call, kFastCall, call_doc},
    {"bind", bind, METH_O, bind_doc},
    {"read", read_at, METH_VARARGS, read_doc},
    {"call_tensors", (PyCFunction)(void (*)(void))call_tensors, kFastCall, call_tensors_doc},
    {"bind_tensors", bind_tensors, METH_O, bind_tensors_doc},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_fast", "The warm call.", -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__fast(void) {
  get_buffer = (GetBuffer)(intptr_t)dlsym(RTLD_DEFAULT, "PyObject_GetBuffer");
  release_buffer = (ReleaseBuffer)(intptr_t)dlsym(RTLD_DEFAULT, "PyBuffer_Release");
  if (get_buffer == NULL || release_buffer == NULL) {
    PyErr_SetString(PyExc_ImportError, "this Python has no buffer protocol in its C API");
    return NULL;
  }
  dtype_name = PyUnicode_InternFromString("dtype");
  if (dtype_name == NULL) return NULL;
  return PyModule_Create(&definition);
}
