/* What the two files of the extension share: the launch of a plan, and how a call's operands are
 * those of the plan. */
#ifndef TESSERA_FAST_H
#define TESSERA_FAST_H

#define Py_LIMITED_API 0x03090000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

enum { kMostOperands = 24, kMostDimensions = 8 };
enum { kFastCall = 0x0080 }; /* METH_FASTCALL, which came into the limited API with Python 3.10 */

typedef int (*Launch)(const void* plan, const void* const* operands, size_t count,
                      const void* options);
extern Launch launch_plan; /* tsr_launch; NULL until bind() */

/* What Python stores for a key, as bytes: the plan, and which operands of the call it takes. */
typedef struct {
  const void* plan;
  int32_t count;
  int32_t source[kMostOperands];
} Entry;

/* tensors.c */
extern const char call_tensors_doc[];
extern const char bind_tensors_doc[];
PyObject* call_tensors(PyObject* module, PyObject* const* arguments, Py_ssize_t count);
PyObject* bind_tensors(PyObject* module, PyObject* facts);

#endif
