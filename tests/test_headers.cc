// A precompiled header needs a program, with the flags of the tests that take it.
int main() {}
