// How long does a checkpoint hold the training up: saved in place, and behind its back?
//
//     checkpoint [--mb 500] [--rounds 5] [--folder DIR]
//
// One JSON object: seconds for which the training's thread waits, the median and slowest of the rounds of each kind,
// taken in turn; and the seconds until the asynchronous one is on disk. What was written is read again: bits that
// differ end the program with status 1.
#include <ATen/ops/full.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "yoke/base/environment.h"
#include "yoke/train/checkpoint/async_saver.h"

namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

nlohmann::json summary(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return {{"median", times[times.size() / 2]}, {"slowest", times.back()}};
}

bool holds(const yoke::train::Checkpoint& checkpoint, double value) {
  return std::ranges::all_of(checkpoint.state.tensors,
                             [&](const auto& entry) { return entry.second.eq(value).all().template item<bool>(); });
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
  yoke::train::CheckpointState state;
  for (int64_t i = 0; i < num_mb; i += 10) {
    state.tensors["w" + std::to_string(i)] = at::full({std::min<int64_t>(10, num_mb - i) * 250'000}, 0, at::kFloat);
  }
  const auto root = std::filesystem::path(given["--folder"]) / ("bench-checkpoint." + std::to_string(getpid()));
  const yoke::train::CheckpointFolder in_place(root / "a", {.keep = 1}), behind(root / "b", {.keep = 1});
  const auto warn = [](const std::string& message) { std::cerr << message << '\n'; };
  std::vector<double> held_in_place, held_behind, written;
  bool right = true;
  {
    yoke::train::AsyncSaver saver(behind, warn);
    saver.save(0, state);  // makes the buffers
    saver.finish();
    for (int64_t round = 1; round <= num_rounds; ++round) {
      const auto value = static_cast<double>(round);
      for (const auto& entry : state.tensors) entry.second.fill_(value);
      auto start = Clock::now();
      in_place.save(round, state);
      held_in_place.push_back(seconds(Clock::now() - start));
      start = Clock::now();
      saver.save(round, state);
      held_behind.push_back(seconds(Clock::now() - start));
      for (const auto& entry : state.tensors) entry.second.fill_(-1);
      saver.finish();
      written.push_back(seconds(saver.progress().writing));
      right = right && holds(*behind.load_latest(warn), value) && holds(*in_place.load_latest(warn), value);
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
