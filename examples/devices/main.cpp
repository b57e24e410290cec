// Prints the devices of this machine, then waits until a GPU is free and prints its UUID.
//
//   CUDA_VISIBLE_DEVICES=$(build/wait_for_gpu 60) ./train      # at most a minute
//
// The program does not reserve the GPU, so another program may take the GPU before yours does.
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

  // A source keeps the drivers loaded. Each sample reads all devices concurrently and waits for at most a second.
  const auto source = device::make_live_source({.with_cpu = false});
  for (bool is_first = true;; is_first = false) {
    const auto snapshot = source->sample(device::Want{});
    for (const auto& gpu : snapshot.devices) {
      // Readings are optional: a value that the driver does not report is absent, not zero.
      const auto used = gpu.readings.memory_used_bytes;
      if (is_first) {
        std::cerr << gpu.index << ' ' << printable(gpu.facts.name) << ": " << name(gpu.state) << ", "
                  << (used ? std::to_string(*used >> 20) + " MiB used" : "memory unknown") << '\n';
      }
    }
    for (const auto& gpu : snapshot.devices) {
      if (gpu.state != device::State::kFree) continue;
      std::cout << gpu.facts.uuid << std::endl;
      std::_Exit(0);  // skips destructors, which would wait for a driver that hangs
    }
    if (std::chrono::steady_clock::now() >= until) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
  std::cerr << "no GPU is free\n";
  std::_Exit(1);
}
