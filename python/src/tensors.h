/* What the files of the warm call of tessera.torch share: what Python says of PyTorch, how a tensor
 * is read, and how a result is made. */
#ifndef TESSERA_TENSORS_H
#define TESSERA_TENSORS_H

#include "fast.h"

/* A question to PyTorch without arguments. */
typedef struct {
  PyObject* object;     /* what to call */
  PyCFunction function; /* its C function, where it is one without arguments; else NULL */
  PyObject* self;
} Question;

/* A tensor's memory, as long as the tensor is not changed. */
typedef struct {
  const void* address;
  int64_t device; /* 0 for the CPU, else the GPU's number + 1 */
  int64_t dtype;
  int rank;
  const int64_t* shape;
  const int64_t* strides;
  int64_t room[2 * kMostDimensions];
} Seen;

/* How a result lies, as Python stores it: bytes. */
typedef struct {
  int64_t rank, dtype, device;
  int64_t shape[kMostDimensions], strides[kMostDimensions];
} Lying;

/* A new tensor: PyTorch's own handle of it, or the object. */
typedef struct {
  void* tensor;
  PyObject* object;
  const void* address;
} Made;

/* 1 and 0 for what is true and false; -1 with an exception. Takes the reference. */
int truth_of(PyObject* value);
/* Takes the reference. -1 with an exception where it is no number. */
int64_t number_of(PyObject* value);
Question question_of(PyObject* object);
PyObject* ask(const Question* question);

/* reading.c. bind_reading: torch.Tensor, torch.nn.Parameter, the type that has their attributes,
 * torch.strided, the capsule of the exchange of tensors in C or None, and a tensor with its numbers
 * as (address, shape, strides), by which that exchange is tried. */
int bind_reading(PyObject* facts);
int is_tensor(const PyObject* object);
/* Whether nothing but the memory of the tensor and its derivative matter. */
int is_plain(PyObject* tensor);
int asks_gradient(PyObject* tensor); /* or an exception is set */
int read_memory(PyObject* tensor, Seen* seen);
/* 1 with PyTorch's current stream of a GPU; 0 where only Python can say it. */
int read_stream(int gpu, void** stream);

/* making.c. bind_making: the addresses of aoti_torch_empty_strided, aoti_torch_get_data_ptr,
 * aoti_torch_delete_tensor_object and THPVariable_Wrap, or none of them. */
int bind_making(PyObject* addresses);
int make_raw(const Lying* lying, int gpu, Made* made);        /* without the GIL */
int make_object(PyObject* maker, PyObject* like, Made* made); /* maker: of a tensor */
PyObject* take_object(Made* made);                            /* as a new reference */
void forget(Made* made);

#endif
