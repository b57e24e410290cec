// Prints the devices of this machine, then waits until a GPU is free and prints its UUID.
//
//   CUDA_VISIBLE_DEVICES=$(build/wait_for_gpu 60) ./train      # at most a minute
//
// Looking is not claiming: another may take it meanwhile.
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <thread>

#include "yoke/base/text.h"
#include "yoke/device/source.h"

using namespace yoke;

int main(int argc, char** argv) {
  const std::chrono::seconds patience(argc > 1 ? std::atoi(argv[1]) : 0);
  const auto until = std::chrono::steady_clock::now() + patience;

  // A source keeps the drivers open; each sample reads the devices side by side, and waits a second at most.
  const auto source = device::make_live_source({.with_cpu = false});
  for (bool is_first = true;; is_first = false) {
    const auto snapshot = source->sample(device::Want{});
    for (const auto& gpu : snapshot.devices) {
      // What a driver does not tell is no zero: it is not there.
      const auto used = gpu.readings.memory_used_bytes;
      if (is_first) {
        std::cerr << gpu.index << ' ' << printable(gpu.facts.name) << ": " << name(gpu.state) << ", "
                  << (used ? std::to_string(*used >> 20) + " MiB used" : "memory unknown") << '\n';
      }
    }
    for (const auto& gpu : snapshot.devices) {
      if (gpu.state != device::State::kFree) continue;
      std::cout << gpu.facts.uuid << std::endl;
      std::_Exit(0);  // a driver that hangs would keep its library's destructors waiting
    }
    if (std::chrono::steady_clock::now() >= until) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
  std::cerr << "no GPU is free\n";
  std::_Exit(1);
}
