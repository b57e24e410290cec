// How long does a checkpoint delay the training if it is saved by save(), and how long if by save_async()?
//
//     checkpoint [--mb 500] [--rounds 5] [--folder DIR]
//
// Prints one JSON object. It has the seconds that the training's thread waits, as median and maximum over the rounds of
// each function; rounds of the two functions alternate. It also has the seconds until the asynchronous checkpoint is on
// disk. Each checkpoint is read back, and the program exits with 1 if a bit differs.
#include <ATen/ops/full.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "yoke/base/environment.h"
#include "yoke/dist/world.h"
#include "yoke/train/checkpoint/checkpoint_folder.h"

namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

nlohmann::json summary(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return {{"median", times[times.size() / 2]}, {"slowest", times.back()}};
}

bool holds(const yoke::train::CheckpointFolder& folder, int64_t step, double value) {
  const auto source = yoke::train::read_checkpoint(folder.path_of(step)).source;
  return std::ranges::all_of(source.tensors, [&](const auto& entry) {
    return yoke::train::read_whole(source, entry.first).eq(value).all().template item<bool>();
  });
}

}  // namespace

int main(int argc, char** argv) try {
  std::map<std::string, std::string> given{{"--mb", "500"}, {"--rounds", "5"}, {"--folder", "."}};
  for (int i = 1; i < argc; i += 2) {
    if (!given.contains(argv[i]) || i + 1 == argc) {
      std::cerr << "usage: checkpoint [--mb 500] [--rounds 5] [--folder DIR]\n";
      return 2;
    }
    given[argv[i]] = argv[i + 1];
  }
  const int64_t num_mb = yoke::parse_int(given["--mb"]).value_or(500);
  const int64_t num_rounds = std::max<int64_t>(1, yoke::parse_int(given["--rounds"]).value_or(5));
  yoke::dist::World world;
  yoke::train::TrainState state(world);
  std::deque<at::Tensor> tensors;
  for (int64_t i = 0; i < num_mb; i += 10) {
    tensors.push_back(at::full({std::min<int64_t>(10, num_mb - i) * 250'000}, 0, at::kFloat));
    state.add("w" + std::to_string(i), tensors.back());
  }
  const auto root = std::filesystem::path(given["--folder"]) / ("bench-checkpoint." + std::to_string(getpid()));
  std::vector<double> held_in_place, held_behind, written;
  bool right = true;
  {
    yoke::train::CheckpointFolder in_place(root / "a", {.keep = 1}), behind(root / "b", {.keep = 1});
    behind.save_async(0, state);  // allocates the buffers
    behind.finish();
    for (int64_t round = 1; round <= num_rounds; ++round) {
      const auto value = static_cast<double>(round);
      for (const auto& tensor : tensors) tensor.fill_(value);
      auto start = Clock::now();
      in_place.save(round, state);
      held_in_place.push_back(seconds(Clock::now() - start));
      start = Clock::now();
      behind.save_async(round, state);
      held_behind.push_back(seconds(Clock::now() - start));
      for (const auto& tensor : tensors) tensor.fill_(-1);
      behind.finish();
      written.push_back(seconds(behind.progress().writing));
      right = right && holds(behind, round, value) && holds(in_place, round, value);
    }
  }
  std::filesystem::remove_all(root);
  const nlohmann::ordered_json result{{"mb", num_mb},
                                      {"rounds", num_rounds},
                                      {"unit", "s"},
                                      {"checked", right},
                                      {"held_in_place", summary(held_in_place)},
                                      {"held_asynchronous", summary(held_behind)},
                                      {"asynchronous_until_on_disk", summary(written)}};
  std::cout << result << '\n';
  return right ? 0 : 1;
} catch (const std::exception& error) {
  std::cerr << "checkpoint: " << error.what() << '\n';
  return 1;
}
