// What tests with libtorch have as a precompiled header; see machine.cpp.
#include <torch/torch.h>

#include "tests/headers/machine.cpp"
