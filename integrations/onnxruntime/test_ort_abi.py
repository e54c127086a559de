"""The C ABI that the plugin is compiled for: against ONNX Runtime's own headers, where ORT_INCLUDE
names their folder, and against a library that is too old."""
import ctypes
import os
import pathlib
import re
import subprocess

import pytest

import tessera_onnxruntime

HERE = pathlib.Path(__file__).resolve().parent
HEADERS = os.environ.get("ORT_INCLUDE", "")


def compiled(folder):
    """The compiler's sentences about check_ort_abi.cc beside the header of `folder`."""
    command = [os.environ.get("CXX", "c++"), "-std=c++17", "-fsyntax-only", "-w", f"-I{HEADERS}",
               f"-I{folder}", "-x", "c++", "-"]
    text = (HERE / "check_ort_abi.cc").read_text()
    return subprocess.run(command, input=text, capture_output=True, text=True).stderr


@pytest.mark.skipif(not HEADERS, reason="ORT_INCLUDE names no folder of ONNX Runtime's headers, "
                    "which no package of PyPI has")
def test_tables_are_those_of_the_headers(tmp_path):
    assert compiled(HERE) == ""
    header = (HERE / "ort_abi.h").read_text()
    for count in re.findall(r"Gap<(\d+)> before", header):  # a wrong gap is found
        wrong = header.replace(f"Gap<{count}> before", f"Gap<{int(count) + 1}> before", 1)
        (tmp_path / "ort_abi.h").write_text(wrong)
        assert "static assertion failed" in compiled(tmp_path)


def test_library_that_is_too_old_is_refused_with_its_version(monkeypatch):
    sentences = []
    Create = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_uint, ctypes.c_char_p)
    Get = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_uint32)
    Version = ctypes.CFUNCTYPE(ctypes.c_size_t)

    @Create
    def create_status(code, sentence):
        sentences.append(sentence.decode())
        return 1

    table = (ctypes.c_void_p * 1)(ctypes.cast(create_status, ctypes.c_void_p).value)
    get = Get(lambda version: ctypes.addressof(table) if version <= 22 else 0)
    text = ctypes.create_string_buffer(b"1.22.1")
    version = Version(lambda: ctypes.addressof(text))
    base = (ctypes.c_void_p * 2)(*(ctypes.cast(one, ctypes.c_void_p).value
                                   for one in (get, version)))
    plugin = ctypes.CDLL(str(tessera_onnxruntime.build.build(
        [HERE / source for source in tessera_onnxruntime._SOURCES])))
    plugin.CreateEpFactories.restype = ctypes.c_size_t
    found = ctypes.c_size_t(0)
    assert plugin.CreateEpFactories(b"", base, None, None, ctypes.c_size_t(1),
                                    ctypes.byref(found)) == 1
    assert sentences == ["Tessera's provider needs ONNX Runtime 1.24 or newer, got 1.22.1"]
    assert found.value == 0
    monkeypatch.setattr(tessera_onnxruntime.onnxruntime, "__version__", "1.23.2")
    with pytest.raises(RuntimeError, match="1.24 or newer, got 1.23.2"):
        tessera_onnxruntime.register()
