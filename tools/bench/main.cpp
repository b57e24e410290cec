// tools/bench/main.cpp -- measures an exercise. `yoke bench` starts this program and shows its results.
//
//   yoke-bench TASK DATA    TASK: a JSON object (measure.h); DATA: the path of the loader's data set, or empty
//
// Prints progress in lines, and at the end one line with a JSON object. Under a launcher, all ranks measure together,
// and rank 0 prints.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <cstdlib>
#include <iostream>
#include <thread>

#include "tools/bench/measure.h"
#include "yoke/base/error.h"
#include "yoke/base/json_text.h"
#include "yoke/contract/program.h"
#include "yoke/train/cpu_speed.h"
#include "yoke/train/device/devices.h"
#include "yoke/train/seed.h"

namespace yoke::exercise {
namespace {

Task task_of(const Json& json) {
  return {.name = json.at("name"),
          .seconds = json.at("seconds"),
          .is_quick = json.at("is_quick"),
          .sizes = json.at("sizes"),
          .batch_sizes = json.at("batch_sizes"),
          .workers = json.at("workers"),
          .dtypes = json.at("dtypes"),
          .models = json.at("models")};
}

Json measure_task(const Task& task) {
  if (task.name == "all-reduce") return run_all_reduce(task);
  Progress progress(task.name);
  if (task.name == "matmul") return run_matmul(task, progress);
  if (task.name == "sync") return run_sync(task, progress);
  if (task.name == "two-devices") return run_two_devices(task, progress);
  if (task.name == "copies") return run_copies(task, progress);
  if (task.name == "batch") return run_batch(task, progress);
  if (task.name == "precision") return run_precision(task, progress);
  if (task.name == "loader") return run_loader(task, progress);
  throw Error(ErrorCode::kInvalidArgument, "there is no exercise {}", task.name);
}

/// Returns the properties of machine and libtorch that affect the figures.
Json surroundings() {
  const auto text = [](int number) { return std::to_string(number); };
  Json json{{"device", "cpu"},
            {"processor", train::device_name(c10::Device(c10::kCPU))},
            {"num_cpus", std::thread::hardware_concurrency()},
            {"num_threads", at::get_num_threads()},
            {"gpus", Json::array()},
            {"torch", text(TORCH_VERSION_MAJOR) + "." + text(TORCH_VERSION_MINOR) + "." + text(TORCH_VERSION_PATCH)}};
  for (int64_t i = 0; i < train::num_gpus(); ++i) json["gpus"].push_back(train::device_name(train::try_gpu(i)));
  return json;
}

/// Adds a note if the processors were busy, because other programs may then change figures by more than the effects.
void add_doubt(Json& object, double load) {
  const auto num_cpus = object["num_cpus"].get<double>();
  object["load_average"] = load;
  if (load < 0.5 * num_cpus) return;
  if (!object.contains("notes")) object["notes"] = Json::array();
  object["notes"].push_back(
      fmt::format("the processors were in use (load {:.1f} on {:.0f} CPUs in the minute before the start), so the "
                  "figures may be rough",
                  load, num_cpus));
}

void run_task(const std::string& text, const std::string& data) {
  train::flush_denormals();
  train::keep_freed_memory();
  train::seed({.seed = 0});
  auto task = task_of(Json::parse(text));
  task.data = data;
  double load = 0;
  if (getloadavg(&load, 1) != 1) load = 0;
  Json object{{"name", task.name}, {"is_quick", task.is_quick}};
  object.update(surroundings());
  const auto measured = measure_task(task);
  if (measured.is_null()) return;
  object.update(measured);
  add_doubt(object, load);
  std::cout << json_line(object) << std::endl;
}

}  // namespace
}  // namespace yoke::exercise

int main(int argc, char** argv) {
  return yoke::run_program("yoke bench", [&] {
    if (argc != 3) {
      throw yoke::Error(yoke::ErrorCode::kInvalidArgument, "usage: yoke-bench TASK DATA; `yoke bench` starts it");
    }
    yoke::exercise::run_task(argv[1], argv[2]);
  });
}
