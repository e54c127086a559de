/* The warm call of tessera.torch: finds the plan for a call's tensors in a dict, makes the results
 * and launches the plan. One binary serves every version of PyTorch; see reading.c and making.c.
 */
#include "tensors.h"

#include "tessera/tessera.h"

enum { kMostArguments = 40, kMostTensors = 12, kMostQuestions = 8 };
enum { kMostWords = kMostArguments + kMostTensors * (3 + 2 * kMostDimensions) + kMostQuestions };

/* What Python says of PyTorch once: bind_tensors(). */
static struct {
  PyObject* table;
  Question idle[kMostQuestions];     /* all give something false while a call is plain */
  Question settings[kMostQuestions]; /* numbers on which plans depend */
  Py_ssize_t idles, numbers;
  Question has_gradient; /* torch.is_grad_enabled */
  PyObject* forward;     /* the names of the module that counts levels of forward mode */
  PyObject* run;         /* the names of _run.py */
  PyObject* stream_of;   /* gives the current stream of a GPU, by its number */
  PyObject *level, *is_invariant;
  PyObject* dtype; /* torch.dtype */
} torch;

typedef struct {
  int64_t words[kMostWords];
  Py_ssize_t used, count, tensors, others;
  const void* address[kMostArguments];
  PyObject* other[kMostArguments]; /* arguments that are no tensors; owned */
  PyObject* like;                  /* the first tensor */
  int has_gradients;               /* whether they are switched on */
  int asks_gradient;               /* whether a tensor asks for one */
  int64_t device; /* of the last tensor: 0 for the CPU, else the GPU's number + 1 */
} Call;

int truth_of(PyObject* value) {
  if (value == NULL) return -1;
  const int is_true = PyObject_IsTrue(value);
  Py_DECREF(value);
  return is_true;
}

int64_t number_of(PyObject* value) {
  if (value == NULL) return -1;
  const int64_t number = PyLong_AsLongLong(value);
  Py_DECREF(value);
  return number;
}

Question question_of(PyObject* object) {
  Question made = {object, NULL, NULL};
  Py_INCREF(object); /* for as long as the process lives */
  const int flags = PyCFunction_GetFlags(object);
  if (flags == METH_NOARGS) {
    made.function = PyCFunction_GetFunction(object);
    made.self = PyCFunction_GetSelf(object);
  }
  PyErr_Clear(); /* what is no C function is called as an object */
  return made;
}

PyObject* ask(const Question* question) {
  return question->function != NULL ? question->function(question->self, NULL)
                                    : PyObject_CallObject(question->object, NULL);
}

/* Whether elements have an address. Those of a wrapper of another tensor, or of a storage that was
 * emptied, have none. */
static int has_memory(const Seen* seen) {
  int is_empty = 0;
  for (int d = 0; d < seen->rank; ++d) is_empty = is_empty || seen->shape[d] == 0;
  return seen->address != NULL || is_empty;
}

/* Adds what distinguishes a tensor: its device, type, shape and strides. Returns 0 where the call
 * is not plain. */
static int read_tensor(Call* call, Py_ssize_t i, PyObject* tensor) {
  Seen seen;
  if (call->tensors == kMostTensors || !is_plain(tensor) || !read_memory(tensor, &seen) ||
      !has_memory(&seen)) {
    return 0;
  }
  if (call->tensors++ == 0) call->like = tensor;
  if (call->has_gradients && asks_gradient(tensor)) call->asks_gradient = 1;
  call->address[i] = seen.address;
  call->device = seen.device;
  int64_t* word = call->words + call->used;
  *word++ = 2 + seen.rank + seen.device * 256;
  *word++ = seen.dtype;
  for (int d = 0; d < seen.rank; ++d) {
    *word++ = seen.shape[d];
    *word++ = seen.strides[d];
  }
  call->used = word - call->words;
  return 1;
}

/* Whether a value is all that an argument says, and never changes. */
static int is_constant(PyObject* argument) {
  const PyTypeObject* const type = Py_TYPE(argument);
  return argument == Py_None || type == &PyLong_Type || type == &PyFloat_Type ||
         type == &PyUnicode_Type || type == &PyBool_Type || (PyObject*)type == torch.dtype;
}

/* An argument that is no tensor, as a new reference: a constant, or a tuple of some. A list is one
 * as a tuple. NULL, perhaps without an exception, for others. */
static PyObject* constant_of(PyObject* argument) {
  if (PyList_Check(argument)) {
    argument = PyList_AsTuple(argument);
    if (argument == NULL) return NULL;
  } else {
    Py_INCREF(argument);
  }
  int is_right = PyTuple_Check(argument) || is_constant(argument);
  for (Py_ssize_t i = 0; PyTuple_Check(argument) && i < PyTuple_Size(argument); ++i) {
    is_right = is_right && is_constant(PyTuple_GetItem(argument, i));
  }
  if (is_right) return argument;
  Py_DECREF(argument);
  return NULL;
}

static int read_argument(Call* call, Py_ssize_t i, PyObject* argument) {
  call->address[i] = NULL;
  if (is_tensor(argument)) return read_tensor(call, i, argument);
  call->words[call->used++] = argument != Py_None;
  if (argument == Py_None) return 1;
  PyObject* const kept = constant_of(argument);
  if (kept == NULL) return 0;
  call->other[call->others++] = kept;
  return 1;
}

/* Whether PyTorch does nothing with a call but to compute it: no tracing, no other interpretation.
 */
static int is_idle(void) {
  for (Py_ssize_t i = 0; i < torch.idles; ++i) {
    if (truth_of(ask(&torch.idle[i])) != 0) return 0;
  }
  PyObject* const level = PyDict_GetItemWithError(torch.forward, torch.level);
  return level != NULL && PyLong_AsLong(level) < 0 && PyErr_Occurred() == NULL;
}

static int read_settings(Call* call) {
  for (Py_ssize_t i = 0; i < torch.numbers; ++i) {
    call->words[call->used++] = number_of(ask(&torch.settings[i]));
  }
  PyObject* const is_invariant = PyDict_GetItemWithError(torch.run, torch.is_invariant);
  call->words[call->used++] = is_invariant == Py_True;
  return is_invariant != NULL && PyErr_Occurred() == NULL;
}

static int read_call(Call* call, PyObject* const* arguments) {
  if (!is_idle() || !read_settings(call)) return 0;
  call->has_gradients = truth_of(ask(&torch.has_gradient));
  for (Py_ssize_t i = 0; i < call->count; ++i) {
    if (!read_argument(call, i, arguments[i])) return 0;
  }
  return call->like != NULL;
}

/* (what is called, the words, the arguments that are no tensors...), as a new reference. */
static PyObject* key_of(Call* call, PyObject* what) {
  PyObject* const key = PyTuple_New(2 + call->others);
  PyObject* const words =
      PyBytes_FromStringAndSize((const char*)call->words, call->used * (Py_ssize_t)sizeof(int64_t));
  if (key == NULL || words == NULL) {
    Py_XDECREF(key);
    Py_XDECREF(words);
    return NULL;
  }
  Py_INCREF(what);
  PyTuple_SetItem(key, 0, what);
  PyTuple_SetItem(key, 1, words);
  for (Py_ssize_t i = 0; i < call->others; ++i) PyTuple_SetItem(key, 2 + i, call->other[i]);
  call->others = 0;
  return key;
}

/* What a launch of a table's value needs, and makes. */
typedef struct {
  const Entry* entry;
  PyObject* makers;
  Py_ssize_t results;
  const Lying* lying[kMostTensors]; /* NULL where Python has made the result */
  Made made[kMostTensors + 1];      /* the last one is the workspace */
  const Lying* workspace;
  tsr_launch_options_t options;
} Work;

/* Makes what Python makes: results, and a workspace beside the first tensor. */
static int prepare(const Call* call, PyObject* value, Work* work) {
  PyObject* const workspace = PyTuple_GetItem(value, 2);
  work->entry = (const Entry*)PyBytes_AsString(PyTuple_GetItem(value, 0));
  work->makers = PyTuple_GetItem(value, 1);
  work->results = PyTuple_Size(work->makers);
  if (work->entry == NULL || work->results > kMostTensors) return 0;
  for (Py_ssize_t i = 0; i <= work->results; ++i) {
    const int is_workspace = i == work->results;
    if (is_workspace && (workspace == Py_None || call->device == 0)) break;
    PyObject* const maker =
        is_workspace ? PyTuple_GetItem(workspace, 1) : PyTuple_GetItem(work->makers, i);
    const int at = is_workspace ? kMostTensors : (int)i;
    if (is_workspace)
      work->options.workspace_bytes = PyLong_AsSize_t(PyTuple_GetItem(workspace, 0));
    if (PyBytes_Check(maker)) {
      *(is_workspace ? &work->workspace : &work->lying[i]) = (const Lying*)PyBytes_AsString(maker);
    } else if (!make_object(maker, call->like, &work->made[at])) {
      return 0;
    }
  }
  return PyErr_Occurred() == NULL;
}

/* On the CPU without options; on a GPU on PyTorch's current stream, with a workspace of its
 * allocator where the plan needs one. Without the GIL. Returns a status, or -1. */
static int launch(const Call* call, Work* work) {
  const int gpu = call->device > 0 ? (int)(call->device - 1) : 0;
  const void* operands[kMostOperands];
  for (Py_ssize_t i = 0; i < work->results; ++i) {
    if (work->lying[i] != NULL && !make_raw(work->lying[i], gpu, &work->made[i])) return -1;
  }
  Made* const workspace = &work->made[kMostTensors];
  if (work->workspace != NULL && !make_raw(work->workspace, gpu, workspace)) return -1;
  work->options.workspace = (void*)(uintptr_t)workspace->address;
  for (int32_t i = 0; i < work->entry->count; ++i) {
    const int32_t source = work->entry->source[i];
    operands[i] =
        source < call->count ? call->address[source] : work->made[source - call->count].address;
  }
  return launch_plan(work->entry->plan, operands, (size_t)work->entry->count,
                     call->device > 0 ? &work->options : NULL);
}

static int find_stream(const Call* call, tsr_launch_options_t* options) {
  const int gpu = (int)(call->device - 1);
  if (call->device == 0 || read_stream(gpu, &options->stream)) return 1;
  PyErr_Clear();
  PyObject* const stream = PyObject_CallFunction(torch.stream_of, "i", gpu);
  if (stream == NULL) return 0;
  options->stream = PyLong_AsVoidPtr(stream);
  Py_DECREF(stream);
  return PyErr_Occurred() == NULL;
}

/* The result, or the tuple of several. */
static PyObject* take_results(Work* work) {
  if (work->results == 1) return take_object(&work->made[0]);
  PyObject* const results = PyTuple_New(work->results);
  for (Py_ssize_t i = 0; results != NULL && i < work->results; ++i) {
    PyObject* const result = take_object(&work->made[i]);
    if (result == NULL) {
      Py_DECREF(results);
      return NULL;
    }
    PyTuple_SetItem(results, i, result);
  }
  return results;
}

/* value: (the entry, what makes each result, None or (bytes, what makes a workspace), what keeps
 * the plan alive). NULL, perhaps without an exception, where something fails. */
static PyObject* launch_value(const Call* call, PyObject* value) {
  Work work = {.options = TSR_INIT(tsr_launch_options_t)};
  PyObject* results = NULL;
  if (prepare(call, value, &work) && find_stream(call, &work.options)) {
    PyThreadState* const state = PyEval_SaveThread();
    const int status = launch(call, &work);
    PyEval_RestoreThread(state);
    if (status == 0) results = take_results(&work);
  }
  for (int i = 0; i <= kMostTensors; ++i) forget(&work.made[i]);
  return results;
}

static PyObject* find_and_launch(Call* call, PyObject* what) {
  PyObject* const key = key_of(call, what);
  if (key == NULL) return NULL;
  PyObject* const value = PyDict_GetItemWithError(torch.table, key);
  PyObject* result = NULL;
  if (value != NULL) {
    Py_INCREF(value); /* the plan lives until the launch has returned */
    result = launch_value(call, value);
    Py_DECREF(value);
  } else if (PyErr_Occurred() == NULL && (result = PyList_New(1)) != NULL) {
    Py_INCREF(key);
    PyList_SetItem(result, 0, key);
  }
  Py_DECREF(key);
  return result;
}

const char call_tensors_doc[] =
    "call_tensors(what, *arguments)\n\n"
    "Launches table[key]; the key is made of `what`, the arguments and PyTorch's settings.\n"
    "Returns the new result after a launch, a tuple of several, a list of the key where the\n"
    "table lacks it, False where a gradient is asked for and nothing else, and None where the\n"
    "call is not plain, an argument is no constant, or something failed.";

PyObject* call_tensors(PyObject* module, PyObject* const* arguments, Py_ssize_t count) {
  (void)module;
  Call call;
  call.used = call.tensors = call.others = 0;
  call.asks_gradient = 0;
  call.device = 0;
  call.like = NULL;
  call.count = count - 1;
  PyObject* result = NULL;
  if (call.count > 0 && call.count <= kMostArguments && torch.table != NULL &&
      launch_plan != NULL && read_call(&call, arguments + 1)) {
    if (call.asks_gradient) {
      Py_INCREF(Py_False);
      result = Py_False;
    } else {
      result = find_and_launch(&call, arguments[0]);
    }
  }
  for (Py_ssize_t i = 0; i < call.others; ++i) Py_DECREF(call.other[i]);
  if (result == NULL && (PyErr_Occurred() == NULL || PyErr_ExceptionMatches(PyExc_Exception))) {
    PyErr_Clear(); /* Python says what is wrong */
    Py_INCREF(Py_None);
    result = Py_None;
  }
  return result;
}

/* Their count, or -1. */
static Py_ssize_t find_questions(PyObject* objects, Question* to) {
  const Py_ssize_t count = PyTuple_Size(objects);
  if (count > kMostQuestions - 1) return -1;
  for (Py_ssize_t i = 0; i < count; ++i) to[i] = question_of(PyTuple_GetItem(objects, i));
  return count;
}

const char bind_tensors_doc[] =
    "bind_tensors(table, reading, making, (idle, settings, is_grad_enabled, names of forward_ad,\n"
    "names of _run, stream_of, dtype)): what call_tensors() asks of PyTorch; see tensors.h.";

PyObject* bind_tensors(PyObject* module, PyObject* facts) {
  (void)module;
  PyObject *table, *reading, *making, *idle, *settings, *has_gradient, *forward, *run, *stream_of,
      *dtype;
  if (!PyArg_ParseTuple(facts, "OOO(OOOOOOO)", &table, &reading, &making, &idle, &settings,
                        &has_gradient, &forward, &run, &stream_of, &dtype) ||
      !bind_reading(reading) || !bind_making(making)) {
    return NULL;
  }
  torch.level = PyUnicode_InternFromString("_current_level");
  torch.is_invariant = PyUnicode_InternFromString("_is_batch_invariant");
  torch.idles = find_questions(idle, torch.idle);
  torch.numbers = find_questions(settings, torch.settings);
  if (torch.level == NULL || torch.is_invariant == NULL || torch.idles < 0 || torch.numbers < 0) {
    return NULL;
  }
  torch.has_gradient = question_of(has_gradient);
  PyObject* const kept[] = {table, forward, run, stream_of, dtype};
  for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); ++i) Py_INCREF(kept[i]);
  torch.forward = forward;
  torch.run = run;
  torch.stream_of = stream_of;
  torch.dtype = dtype;
  torch.table = table;
  Py_RETURN_NONE;
}
