#include "tools/bench/loader.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <ctime>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/base/sysfs.h"
#include "yoke/train/device/devices.h"

namespace yoke::exercise {
namespace {

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

int64_t num_cpus() { return std::max(1U, std::thread::hardware_concurrency()); }

struct Taken {
  train::Batch batch;
  bool was_ready = true;
};

/// Trains for `seconds` of the clock `now`. `take` returns a batch and whether the batch was ready.
///
/// The step time is the median over groups of `group` steps, because other programs interrupt some of the steps.
/// Workers that start together finish together, so a group should have as many steps as there are workers.
Stretch train_stretch(const FedTraining& training, const std::function<Taken()>& take, double seconds, int64_t group,
                      const std::function<double()>& now) {
  for (int i = 0; i < 2; ++i) training.step(take().batch);  // starts the loader and maps its memory
  constexpr size_t kFewestGroups = 3;
  const double start = now(), cpu_start = cpu_seconds();
  int64_t num_ready = 0;
  std::vector<double> steps;
  double last = start;
  while (last - start < seconds || steps.size() < kFewestGroups) {
    const double begin = last;
    for (int64_t i = 0; i < group; ++i) {
      const auto taken = take();
      num_ready += taken.was_ready ? 1 : 0;
      training.step(taken.batch);
    }
    last = now();
    steps.push_back((last - begin) / static_cast<double>(group));
  }
  return {.step_seconds = quantile(steps, 0.5),
          .ready_share = static_cast<double>(num_ready) / static_cast<double>(std::ssize(steps) * group),
          .cpu_load = (cpu_seconds() - cpu_start) / (last - start) / static_cast<double>(num_cpus())};
}

/// The resident memory of this process; 0 if the kernel does not tell.
int64_t resident_bytes() {
  const auto status = parse_properties(text_of("/proc/self/status"));
  const auto kibibytes = status.find("VmRSS");
  return kibibytes == status.end() ? 0 : kibibytes->second * 1024;
}

/// Takes batches from a loader that feeds nothing else.
void measure_alone(const FedTraining& training, int64_t round, double seconds, const std::function<double()>& now,
                   WorkersMeasurement& measured) {
  const auto at_least = 3 * std::max<int64_t>(1, measured.num_workers);
  malloc_trim(
      0);  // the kernel takes back what earlier loaders have freed, and then counts memory that this one uses again
  const int64_t bytes_before = resident_bytes();
  const auto feed = training.open(measured.num_workers, round);
  feed->next();
  const double start = now();
  int64_t num_batches = 0;
  double elapsed = 0;
  do {
    feed->next();
    ++num_batches;
    elapsed = now() - start;
  } while (elapsed < seconds || num_batches < at_least);
  measured.samples_per_second.push_back(static_cast<double>(num_batches * training.batch_size) / elapsed);
  measured.memory_bytes = std::max(measured.memory_bytes, resident_bytes() - bytes_before);
}

}  // namespace

std::vector<WorkersMeasurement> measure_loader(const FedTraining& training, const std::vector<int64_t>& workers,
                                               const Rounds& rounds, Progress& progress) {
  std::vector<WorkersMeasurement> all;
  for (const int64_t count : workers) all.push_back({.num_workers = count});
  constexpr double kUsualRounds = 8, kLongestStretch = 0.1;
  const double stretch = std::min(kLongestStretch, rounds.seconds / kUsualRounds / static_cast<double>(4 * all.size()));
  size_t place = 0;
  const auto next_cached = [&] { return Taken{training.cached[place++ % training.cached.size()]}; };
  const auto same = [&] { return Taken{training.cached.front()}; };
  const double start = rounds.now();
  for (int64_t round = 0; round < rounds.at_least || rounds.now() - start < rounds.seconds; ++round) {
    for (size_t i = 0; i < all.size(); ++i) {
      auto& one = all[(i + static_cast<size_t>(round)) % all.size()];
      progress.show(fmt::format("workers: {}, round {}, {:.0f} of {:.0f} s", one.num_workers, round + 1,
                                rounds.now() - start, rounds.seconds));
      const auto group = std::max<int64_t>(1, one.num_workers);
      measure_alone(training, round, stretch, rounds.now, one);
      for (int64_t part = 0; part < 3; ++part) {
        if ((part + round) % 3 == 0) {
          const auto feed = training.open(one.num_workers, round);
          const auto next_fed = [&] {
            const bool was_ready = feed->is_ready();
            return Taken{feed->next(), was_ready};
          };
          one.fed.push_back(train_stretch(training, next_fed, stretch, group, rounds.now));
        } else if ((part + round) % 3 == 1) {
          one.cached.push_back(train_stretch(training, next_cached, stretch, group, rounds.now));
        } else {
          one.one_batch.push_back(train_stretch(training, same, stretch, group, rounds.now));
        }
      }
    }
  }
  return all;
}

std::vector<double> costs_of(const std::vector<Stretch>& fed, const std::vector<Stretch>& floor) {
  std::vector<double> costs;
  for (size_t i = 0; i < fed.size(); ++i) costs.push_back(1 - floor[i].step_seconds / fed[i].step_seconds);
  return costs;
}

std::vector<int64_t> usual_workers(int64_t num_cpus) {
  std::vector<int64_t> workers = {0};
  for (int64_t count = 1; count < num_cpus; count *= 2) workers.push_back(count);
  workers.push_back(num_cpus);
  return workers;
}

namespace {

using Stretches = std::vector<Stretch> WorkersMeasurement::*;

/// Returns the stretches of one kind, for all numbers of workers.
std::vector<Stretch> all_of(const std::vector<WorkersMeasurement>& measured, Stretches kind) {
  std::vector<Stretch> all;
  for (const auto& one : measured) all.insert(all.end(), (one.*kind).begin(), (one.*kind).end());
  return all;
}

Times steps_of(const std::vector<Stretch>& stretches) {
  Times times;
  for (const auto& stretch : stretches) times.seconds.push_back(stretch.step_seconds);
  return times;
}

double median_percent(const std::vector<Stretch>& stretches, double Stretch::*member) {
  std::vector<double> values;
  for (const auto& stretch : stretches) values.push_back(100 * stretch.*member);
  return quantile(values, 0.5);
}

std::string chosen_model(const Task& task, const DataSet& data) {
  if (task.models.size() > 1)
    throw Error(ErrorCode::kInvalidArgument, "--model: the loader is measured with one network");
  if (!task.models.empty()) return task.models[0];
  return data.network.sample_sizes.size() == 3 && data.network.sample_sizes[1] >= 64 ? "cnn" : "mlp";
}

int64_t chosen_batch_size(const Task& task, const DataSet& data) {
  if (task.batch_sizes.size() > 1) {
    throw Error(ErrorCode::kInvalidArgument, "--batch-size: the loader is measured with one batch size");
  }
  const bool is_large = data.network.sample_sizes.size() == 3 && data.network.sample_sizes[1] >= 64;
  const int64_t usual = std::min<int64_t>(is_large ? 32 : data.network.has_tokens ? 16 : 256, data.num_samples);
  const int64_t size = task.batch_sizes.empty() ? usual : task.batch_sizes[0];
  if (size <= data.num_samples && size > 0) return size;
  throw Error(ErrorCode::kInvalidArgument,
              "a batch of {} has more samples than the data, {}; give a smaller --batch-size", size, data.description);
}

/// Takes about a quarter of a gigabyte of batches, so that training on them resembles reading new memory.
std::vector<train::Batch> cached_batches(Feed& feed) {
  std::vector<train::Batch> batches = {feed.next()};
  constexpr size_t kMostBytes = 256 << 20, kMost = 16;
  const auto count = std::clamp<size_t>(kMostBytes / std::max<size_t>(1, batches[0].data.nbytes()), 2, kMost);
  while (batches.size() < count) batches.push_back(feed.next());
  return batches;
}

}  // namespace

Json run_loader(const Task& task, Progress& progress) {
  progress.show("opening the data");
  const auto data = open_data(task.data);
  const auto device = train::try_gpu();
  auto network = data.network;
  network.name = chosen_model(task, data);
  network.device = device;
  const auto batch_size = chosen_batch_size(task, data);
  const auto training = std::make_shared<Training>(network);
  auto workers = task.workers.empty() ? usual_workers(num_cpus()) : task.workers;
  std::ranges::sort(workers);
  workers.erase(std::unique(workers.begin(), workers.end()), workers.end());

  FedTraining fed{.open =
                      [&](int64_t num_workers, int64_t round) {
                        return data.open({.batch_size = batch_size,
                                          .num_workers = num_workers,
                                          .num_prefetch = std::max<int64_t>(4, 2 * num_workers),
                                          .first_epoch = round,
                                          .device = device});
                      },
                  .step =
                      [&](const train::Batch& batch) {
                        training->step(batch);
                        wait_for(device);
                      },
                  .batch_size = batch_size};
  fed.cached = cached_batches(*fed.open(0, 0));
  const auto measured = measure_loader(fed, workers, {.seconds = task.seconds}, progress);

  Json object{{"device", device.str()},
              {"model", network.name},
              {"batch_size", batch_size},
              {"data", data.description},
              {"num_samples", data.num_samples}};
  if (!data.note.empty()) object["notes"] = {data.note};
  const auto cached = all_of(measured, &WorkersMeasurement::cached);
  add_times(object, "cached_step", steps_of(cached));
  object["cached_cpu_load_percent"] = median_percent(cached, &Stretch::cpu_load);
  add_times(object, "one_batch_step", steps_of(all_of(measured, &WorkersMeasurement::one_batch)));
  object["results"] = Json::array();
  for (const auto& one : measured) {
    Json row{{"num_workers", one.num_workers}};
    row["memory_bytes"] = one.memory_bytes;
    row["samples_per_second"] = quantile(one.samples_per_second, 0.5);
    row["samples_per_second_p10"] = quantile(one.samples_per_second, 0.1);
    row["samples_per_second_p90"] = quantile(one.samples_per_second, 0.9);
    add_times(row, "step", steps_of(one.fed));
    const auto costs = costs_of(one.fed, one.cached);
    row["loader_cost_percent"] = 100 * quantile(costs, 0.5);
    row["loader_cost_p10_percent"] = 100 * quantile(costs, 0.1);
    row["loader_cost_p90_percent"] = 100 * quantile(costs, 0.9);
    row["loader_cost_over_one_batch_percent"] = 100 * quantile(costs_of(one.fed, one.one_batch), 0.5);
    row["ready_percent"] = median_percent(one.fed, &Stretch::ready_share);
    row["cpu_load_percent"] = median_percent(one.fed, &Stretch::cpu_load);
    object["results"].push_back(std::move(row));
  }
  return object;
}

}  // namespace yoke::exercise
