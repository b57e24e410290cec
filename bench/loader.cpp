// How many samples per second does the loader give, on Fashion-MNIST, shuffled? Peer: peers/loader.py.
//
//     loader [--workers 2] [--batch 256] [--epochs 9] [--data DIR]
//
// Prints one JSON object with rates for each output: the rate of the first epoch, which starts the workers and touches
// all memory for the first time, and the median and the lowest rate of the later epochs. An untimed epoch before them
// compares every batch with libtorch's own operations; if a batch differs, the program exits with 1.
#include "yoke/train/data/loader.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/train/data/idx.h"
#include "yoke/train/data/sampler.h"

namespace {

using yoke::train::Loader;
using yoke::train::LoaderOptions;
using yoke::train::Samples;

constexpr double kMean = 0.2860, kStddev = 0.3530;

double samples_per_second(Loader<>& loader, std::vector<int64_t> indices) {
  int64_t num_samples = 0;
  const auto start = std::chrono::steady_clock::now();
  for (const auto& batch : loader.start(std::move(indices))) num_samples += batch.target.size(0);
  return static_cast<double>(num_samples) /
         std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

bool right(const Samples& samples, const LoaderOptions& options, const std::vector<int64_t>& indices) {
  Loader loader(samples, options);
  size_t first = 0;
  for (const auto& batch : loader.start(indices)) {
    const auto count = static_cast<size_t>(batch.target.size(0));
    const auto rows = at::from_blob(const_cast<int64_t*>(indices.data()) + first, {batch.target.size(0)}, at::kLong);
    auto expected = at::index_select(samples.data, 0, rows);
    if (options.normalization) expected = expected.to(at::kFloat).div(255).sub_(kMean).div_(kStddev).to(options.dtype);
    if (!at::equal(batch.data, expected)) return false;
    if (!at::equal(batch.target, at::index_select(samples.target, 0, rows))) return false;
    first += count;
  }
  return first == indices.size();
}

/// Returns the median time from constructing a loader to its first batch, which includes the start of the workers.
double first_batch_ms(const Samples& samples, const LoaderOptions& options) {
  std::vector<double> times;
  for (int64_t epoch = 0; epoch < 9; ++epoch) {
    const auto start = std::chrono::steady_clock::now();
    Loader loader(samples, options);
    loader.epoch(epoch);
    loader.next();
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

nlohmann::json measure(const Samples& samples, const LoaderOptions& options, int64_t num_epochs) {
  const yoke::train::DistributedSampler sampler({.num_samples = samples.data.size(0)});
  const bool checked = right(samples, options, sampler.indices(0));
  Loader loader(samples, options);
  const double first = samples_per_second(loader, sampler.indices(0));
  std::vector<double> rates;
  for (int64_t epoch = 1; epoch <= num_epochs; ++epoch) {
    rates.push_back(samples_per_second(loader, sampler.indices(epoch)));
  }
  std::sort(rates.begin(), rates.end());
  return {{"checked", checked},
          {"first_epoch", std::llround(first)},
          {"median", std::llround(rates[rates.size() / 2])},
          {"slowest", std::llround(rates.front())}};
}

}  // namespace

int main(int argc, char** argv) try {
  std::map<std::string, std::string> given{{"--workers", "2"},
                                           {"--batch", "256"},
                                           {"--epochs", "9"},
                                           {"--data", std::string(yoke::train::kFashionMnistDir)}};
  for (int i = 1; i < argc; i += 2) {
    if (!given.contains(argv[i]) || i + 1 == argc) {
      std::cerr << "usage: loader [--workers 2] [--batch 256] [--epochs 9] [--data DIR]\n";
      return 2;
    }
    given[argv[i]] = argv[i + 1];
  }
  const auto number = [&](const char* name, int64_t least) {
    const auto value = yoke::parse_int(given[name]);
    if (!value || *value < least) {
      throw yoke::Error(yoke::ErrorCode::kInvalidArgument, "{} {}: expected a number from {}", name, given[name],
                        least);
    }
    return *value;
  };
  const int64_t workers = number("--workers", 0), batch = number("--batch", 1), epochs = number("--epochs", 1);
  const auto samples = yoke::train::read_fashion_mnist(given["--data"]).train;

  LoaderOptions options{.batch_size = batch, .num_workers = workers};
  nlohmann::ordered_json result{{"workers", workers}, {"batch", batch}, {"epochs", epochs}, {"unit", "samples/s"}};
  result["uint8"] = measure(samples, options, epochs);
  options.normalization = yoke::train::Normalization{{kMean}, {kStddev}};
  result["float32"] = measure(samples, options, epochs);
  options.dtype = at::kBFloat16;
  result["bfloat16"] = measure(samples, options, epochs);
  options.dtype = at::kFloat;
  result["first_batch_ms"] = first_batch_ms(samples, options);
  std::cout << result << '\n';
  for (const char* output : {"uint8", "float32", "bfloat16"}) {
    if (!result[output]["checked"]) return 1;
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << "loader: " << error.what() << '\n';
  return 1;
}
