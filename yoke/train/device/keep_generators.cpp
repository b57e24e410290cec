#include "yoke/train/device/detail/keep_generators.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <mutex>

namespace yoke::train {

KeepGenerators::KeepGenerators(const std::vector<c10::Device>& devices) {
  keep(at::detail::getDefaultCPUGenerator());
  for (const auto device : devices) {
    if (!device.is_cpu()) keep(at::globalContext().defaultGenerator(device));
  }
}

KeepGenerators::~KeepGenerators() {
  for (auto& [generator, state] : kept_) {
    const std::lock_guard lock(generator.mutex());
    generator.set_state(state);
  }
}

void KeepGenerators::keep(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  kept_.emplace_back(generator, generator.get_state());
}

}  // namespace yoke::train
