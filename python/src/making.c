/* How a result is made: by PyTorch's functions in C for libraries that are not compiled against it,
 * where there are these; else by a function of Python. The former are called without the GIL.
 */
#include <string.h>

#include "tensors.h"

static struct {
  int (*empty)(int64_t rank, const int64_t* shape, const int64_t* strides, int32_t dtype,
               int32_t device, int32_t number, void** made);
  int (*address)(void* tensor, void** address);
  int (*forget)(void* tensor);
  PyObject* (*wrap)(const void* tensor);
} torch;

static void* address_of(PyObject* addresses, Py_ssize_t i) {
  return PyLong_AsVoidPtr(PyTuple_GetItem(addresses, i));
}

int bind_making(PyObject* addresses) {
  if (!PyTuple_Check(addresses)) return 0;
  torch.wrap = NULL;
  if (PyTuple_Size(addresses) != 4) return 1;
  void* found[4];
  for (Py_ssize_t i = 0; i < 4; ++i) {
    found[i] = address_of(addresses, i);
    if (found[i] == NULL) return PyErr_Occurred() == NULL;
  }
  memcpy(&torch.empty, &found[0], sizeof(void*));
  memcpy(&torch.address, &found[1], sizeof(void*));
  memcpy(&torch.forget, &found[2], sizeof(void*));
  memcpy(&torch.wrap, &found[3], sizeof(void*));
  return 1;
}

int make_raw(const Lying* lying, int gpu, Made* made) {
  void* memory = NULL;
  if (torch.wrap == NULL ||
      torch.empty(lying->rank, lying->shape, lying->strides, (int32_t)lying->dtype,
                  (int32_t)lying->device, gpu, &made->tensor) != 0) {
    return 0;
  }
  const int is_there = torch.address(made->tensor, &memory) == 0;
  made->address = memory;
  return is_there;
}

int make_object(PyObject* maker, PyObject* like, Made* made) {
  Seen seen;
  made->object = PyObject_CallFunctionObjArgs(maker, like, NULL);
  if (made->object == NULL || !read_memory(made->object, &seen)) return 0;
  made->address = seen.address;
  return 1;
}

PyObject* take_object(Made* made) {
  PyObject* const object = made->tensor != NULL ? torch.wrap(made->tensor) : made->object;
  if (made->tensor != NULL) torch.forget(made->tensor);
  made->tensor = NULL;
  made->object = NULL;
  return object;
}

void forget(Made* made) {
  if (made->tensor != NULL) torch.forget(made->tensor);
  Py_XDECREF(made->object);
  made->tensor = NULL;
  made->object = NULL;
}
