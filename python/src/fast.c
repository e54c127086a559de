/* The warm call: finds the plan for a call's operands in a dict and launches it, without Python
 * code between. All else of the package is Python over ctypes.
 *
 * The file is compiled against the limited API of Python 3.9, so that one binary serves every later
 * version. It does not link the library: Python tells it the address of tsr_launch.
 */
#define Py_LIMITED_API 0x03090000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <stdint.h>

enum { kMostOperands = 24, kMostDimensions = 8, kBufStrides = 0x18 };
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
typedef int (*Launch)(const void* plan, const void* const* operands, size_t count,
                      const void* options);

static GetBuffer get_buffer;
static ReleaseBuffer release_buffer;
static Launch launch_plan;
static PyObject* dtype_name;

/* What Python stores for a key, as bytes: the plan, and which operands of the call it takes. */
typedef struct {
  const void* plan;
  int32_t count;
  int32_t source[kMostOperands];
} Entry;

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

/* None after a launch, or its status. The table's value holds the plan's address (_abi.Owned), and
 * this call holds the value, so that the plan is destroyed when the launch has returned, though
 * another thread closes it while the GIL is away. */
static PyObject* launch_entry(Call* call, PyObject* value) {
  PyObject* const bytes = PyTuple_GetItem(value, 0);
  const Entry* const entry = bytes == NULL ? NULL : (const Entry*)PyBytes_AsString(bytes);
  if (entry == NULL) return NULL;
  const void* addresses[kMostOperands];
  for (int32_t i = 0; i < entry->count; ++i) addresses[i] = call->buffers[entry->source[i]].buf;
  Py_INCREF(value);
  PyThreadState* const state = PyEval_SaveThread();
  const int status = launch_plan(entry->plan, addresses, (size_t)entry->count, NULL);
  PyEval_RestoreThread(state);
  Py_DECREF(value);
  if (status != 0) return PyLong_FromLong(status);
  Py_RETURN_NONE;
}

static PyObject* find_and_launch(Call* call, PyObject* table, PyObject* options) {
  PyObject* const bytes =
      PyBytes_FromStringAndSize((const char*)call->words, call->used * (Py_ssize_t)sizeof(int64_t));
  if (bytes == NULL) return NULL;
  PyObject* const key = PyTuple_Pack(2, bytes, options);
  Py_DECREF(bytes);
  if (key == NULL) return NULL;
  PyObject* const value = PyDict_GetItemWithError(table, key);
  if (value == NULL) {
    if (PyErr_Occurred() == NULL) return key;
    PyErr_Clear(); /* an option has no hash; Python says which options there are */
    Py_DECREF(key);
    Py_RETURN_FALSE;
  }
  Py_DECREF(key);
  return launch_entry(call, value);
}

PyDoc_STRVAR(call_doc,
             "call(table, operands, options)\n\n"
             "Launches table[key]; the key is made of the arrays and the options. Returns None\n"
             "after a launch, its status where it failed, the key where the table lacks it, and\n"
             "False where an operand cannot be read through the buffer protocol, or an\n"
             "option has no hash.");

static PyObject* call(PyObject* module, PyObject* arguments) {
  (void)module;
  PyObject* const table = PyTuple_GetItem(arguments, 0);
  PyObject* const operands = PyTuple_GetItem(arguments, 1);
  PyObject* const options = PyTuple_GetItem(arguments, 2);
  if (table == NULL || operands == NULL || options == NULL) return NULL;
  Call made;
  made.used = 0;
  made.count = PyTuple_Size(operands);
  if (made.count < 0) return NULL;
  if (made.count > kMostOperands || launch_plan == NULL) Py_RETURN_FALSE;
  for (Py_ssize_t i = 0; i < made.count; ++i) made.is_held[i] = 0;
  PyObject* result;
  if (read_operands(&made, operands)) {
    result = find_and_launch(&made, table, options);
  } else {
    PyErr_Clear();
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

static PyMethodDef methods[] = {{"call", call, METH_VARARGS, call_doc},
                                {"bind", bind, METH_O, bind_doc},
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
