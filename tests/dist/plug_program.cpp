// Seeds the random generator and runs a backward pass before it creates its World. Then prints which devices it sees.
//
//   plug_program              the plug is loaded by libyoke_dist, before main
//   plug_program --late FILE  the program itself loads the plug after the backward, which is too late
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <dlfcn.h>

#include <cstdio>
#include <string_view>

#include "yoke/base/error.h"
#include "yoke/dist/plug.h"
#include "yoke/dist/world.h"

int main(int argc, char** argv) {
  at::manual_seed(1);
  const auto x = at::ones({3}).requires_grad_();
  x.mul(x).sum().backward();
  if (argc == 3 && std::string_view(argv[1]) == "--late" && dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    std::puts(dlerror());
    return 2;
  }
  try {
    std::printf("libtorch sees %d\n", int{at::detail::getCUDAHooks().deviceCount()});
    yoke::dist::World world;
    std::printf("device %s\n", world.device().str().c_str());
    world.shutdown();
  } catch (const yoke::Error& error) {
    std::printf("error: %s\n", error.what());
  }
  return 0;
}
