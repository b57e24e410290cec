// Runs one check of scripts/gpu-check: `yoke_gpu_program CHECK [ARGUMENT...]`. tests/gpu/run starts this program and
// compares its results.
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <torch/headeronly/version.h>

#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/gpu/checks.h"
#include "yoke/base/error.h"
#include "yoke/dist/plug.h"
#include "yoke/dist/world.h"
#include "yoke/train/device/devices.h"

namespace yoke::gpu_check {

void expect(bool is_right, const std::string& what) {
  if (!is_right) throw Error(ErrorCode::kInternal, "{}", what);
}

Json facts() {
  const auto* plug = dist::loaded_plug();
  Json result{{"torch", TORCH_VERSION},
              {"plug", plug != nullptr ? Json(plug->name) : Json()},
              {"reason", dist::plug_status().reason},
              // The address is the same in ranks forked from one process, and differs in ranks started by exec.
              {"address", reinterpret_cast<uintptr_t>(&at::detail::getCUDAHooks)},
              {"libtorch_sees", at::detail::getCUDAHooks().deviceCount()}};
  if (plug != nullptr && plug->num_devices() > 0) {
    result["num_devices"] = plug->num_devices();
    result["name"] = plug->device_name(0);
    result["has_bfloat16"] = plug->has_bfloat16(0);
  }
  dist::World world;
  result["device"] = world.device().str();
  world.shutdown();
  return result;
}

namespace {

int run(const std::vector<std::string>& words) {
  const auto word = [&](size_t i) { return i < words.size() ? words[i] : ""; };
  const std::map<std::string, std::function<Json()>> checks = {
      {"facts", facts},
      {"collectives", collectives},
      {"two-ranks", two_ranks},
      {"sharded", sharded},
      {"loader", [] { return loader(train::try_gpu()); }},
      {"trajectories", [] { return trajectories(train::try_gpu()); }},
      {"scaled", [] { return scaled(train::try_gpu()); }},
      {"checkpoint", [&] { return checkpoint(train::try_gpu(), word(1)); }},
      {"steps", [&] { return steps(train::try_gpu(), word(1), std::stoll(word(2))); }},
      {"recorded", [&] { return recorded(train::try_gpu(), word(1), std::stoll(word(2))); }},
      {"burn", [&] { return burn(train::try_gpu(), std::stod(word(1))); }},
  };
  const auto check = checks.find(word(0));
  if (check == checks.end()) {
    std::cerr << "yoke_gpu_program: there is no check '" << word(0) << "'\n";
    return 2;
  }
  std::cout << check->second().dump() << std::endl;
  return 0;
}

}  // namespace
}  // namespace yoke::gpu_check

int main(int argc, char** argv) try {
  return yoke::gpu_check::run({argv + 1, argv + argc});
} catch (const std::exception& error) {
  std::cerr << "yoke_gpu_program: " << error.what() << '\n';
  return 1;
}
