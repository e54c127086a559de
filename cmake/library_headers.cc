// Nothing: CMake makes a precompiled header where something is compiled.
