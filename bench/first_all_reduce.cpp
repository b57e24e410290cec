// Measures the time from the command to the first all-reduce, as bench/peers/first_all_reduce.py does with PyTorch.
#include <ATen/ops/ones.h>

#include "yoke/dist/world.h"

int main(int, char**) {
  yoke::dist::World world;
  const auto tensor = at::ones({1});
  world.all_reduce(tensor);
  const bool right = tensor.item<float>() == static_cast<float>(world.size());
  world.shutdown();
  return right ? 0 : 1;
}
