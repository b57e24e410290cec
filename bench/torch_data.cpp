// Peer of bench/loader: how many shuffled samples per second does libtorch's C++ loader, torch::data, give?
//
//     torch_data [--workers 2] [--batch 256] [--epochs 3]
//
// The data set's get() returns one sample of Fashion-MNIST, and Normalize and Stack follow, as in libtorch's MNIST data
// set and its examples. The images are floats in memory. Prints one JSON object with the rates of the output that
// bench/loader calls float32.
#include <torch/data.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "yoke/train/data/idx.h"

namespace {

class Images : public torch::data::datasets::Dataset<Images> {
 public:
  explicit Images(const yoke::train::Samples& samples)
      : images_(samples.data.to(torch::kFloat).div_(255)), targets_(samples.target) {}
  torch::data::Example<> get(size_t i) override {
    return {images_[static_cast<int64_t>(i)], targets_[static_cast<int64_t>(i)]};
  }
  std::optional<size_t> size() const override { return static_cast<size_t>(images_.size(0)); }

 private:
  torch::Tensor images_, targets_;
};

}  // namespace

int main(int argc, char** argv) try {
  std::map<std::string, int64_t> given{{"--workers", 2}, {"--batch", 256}, {"--epochs", 3}};
  for (int i = 1; i < argc; i += 2) {
    if (!given.contains(argv[i]) || i + 1 == argc) {
      std::cerr << "usage: torch_data [--workers 2] [--batch 256] [--epochs 3]\n";
      return 2;
    }
    given[argv[i]] = std::stoll(argv[i + 1]);
  }
  const auto samples = yoke::train::read_fashion_mnist().train;
  auto loader = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
      Images(samples).map(torch::data::transforms::Normalize<>(0.2860, 0.3530)).map(torch::data::transforms::Stack<>()),
      torch::data::DataLoaderOptions()
          .batch_size(static_cast<size_t>(given["--batch"]))
          .workers(static_cast<size_t>(given["--workers"])));
  std::vector<double> rates;
  for (int64_t epoch = 0; epoch < given["--epochs"]; ++epoch) {
    int64_t num_samples = 0;
    const auto start = std::chrono::steady_clock::now();
    for (const auto& batch : *loader) num_samples += batch.target.size(0);
    if (num_samples != samples.data.size(0)) throw std::runtime_error("an epoch does not have all samples");
    rates.push_back(static_cast<double>(num_samples) /
                    std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(rates.begin(), rates.end());
  std::cout << nlohmann::ordered_json{{"workers", given["--workers"]},
                                      {"batch", given["--batch"]},
                                      {"unit", "samples/s"},
                                      {"float32",
                                       {{"median", std::llround(rates[rates.size() / 2])},
                                        {"slowest", std::llround(rates.front())}}}}
            << '\n';
  return 0;
} catch (const std::exception& error) {
  std::cerr << "torch_data: " << error.what() << '\n';
  return 1;
}
