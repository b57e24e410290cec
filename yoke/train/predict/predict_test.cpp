#include "yoke/train/predict/predict.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>

#include "fakes/run_ranks.h"
#include "tests/support/command.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/dist/world.h"
#include "yoke/train/format/safetensors.h"
#include "yoke/train/parallel/distributed_data_parallel.h"
#include "yoke/train/predict/gather_in_order.h"
#include "yoke/train/predict/prediction_file.h"
#include "yoke/train/shard/fully_sharded_data_parallel.h"
#include "yoke/train/shard/unit.h"

namespace yoke::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Classifier : torch::nn::Module {
  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Dropout dropout{nullptr};
  Unit<torch::nn::LinearImpl> head{nullptr};

  Classifier() {
    conv = register_module("conv", torch::nn::Conv2d(3, 4, 3));
    norm = register_module("norm", torch::nn::BatchNorm2d(4));
    dropout = register_module("dropout", torch::nn::Dropout(0.5));
    head = register_module("head", Unit<torch::nn::LinearImpl>(4, 5));
  }
  at::Tensor forward(const at::Tensor& x) { return head(dropout(norm(conv(x)).relu().mean({2, 3}))); }
};

/// Images that a file would have: sample i is a function of i. Some cannot be read.
struct Images {
  int64_t count = 1000;
  std::vector<int64_t> damaged = {};
  int64_t size() const { return count; }
  std::string name(int64_t i) const { return fmt::format("photos/{:04}.png", i); }
  Sample sample(int64_t i) const {
    if (std::ranges::find(damaged, i) != damaged.end()) throw std::runtime_error("it is truncated");
    return {at::full({3, 6, 5}, 0.01 * static_cast<double>(i)).index_put_({i % 3}, 0.5),
            at::full({}, i % 5, at::kLong)};
  }
};

Classifier make_classifier() {
  return fakes::make_seeded(1, [] { return Classifier(); });
}

/// The oracle: one process, batch by batch, in evaluation mode.
at::Tensor by_hand(const Images& images, int64_t batch_size) {
  auto network = make_classifier();
  network.eval();
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> outputs;
  for (int64_t first = 0; first < images.size(); first += batch_size) {
    std::vector<at::Tensor> batch;
    for (int64_t i = first; i < std::min(first + batch_size, images.size()); ++i)
      batch.push_back(images.sample(i).data);
    outputs.push_back(network.forward(at::stack(batch)));
  }
  return at::cat(outputs);
}

template <class Function>
std::string message_of(const Function& function) {
  try {
    function();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

// The story: a thousand images on two ranks, in order, in a few lines.
TEST(Predict, AThousandImagesOnTwoRanksAreThoseOfOneProcessInOrder) {
  const auto expected = by_hand(Images(), 64);
  fakes::run_ranks(2, [&](dist::World& world) {
    auto network = make_classifier();
    DistributedDataParallel net(network, world);
    Loader loader(Images(), world, {.batch_size = 64});

    const auto all = predict(net, loader, world);

    if (world.rank() != 0) {
      EXPECT_TRUE(all.outputs.empty());
      return;
    }
    ASSERT_EQ(all.outputs.size(), 1u);
    EXPECT_EQ(all.outputs[0].first, "output");
    EXPECT_TRUE(at::equal(all.outputs[0].second, expected));
    ASSERT_EQ(all.samples.size(), 1000u);
    EXPECT_TRUE(std::ranges::is_sorted(all.samples));
    EXPECT_EQ(all.names[999], "photos/0999.png");
  });
}

// Uneven counts, ranks without any batch, and three ways to hold the network.
TEST(Predict, AnyNumberOfRanksAndAnyWrapperGiveTheSameBits) {
  for (const int64_t count : {1, 7, 37}) {
    const auto expected = by_hand({count}, 4);
    for (const int64_t num_ranks : {1, 2, 3}) {
      for (const auto* wrapper : {"none", "ddp", "fsdp", "function"}) {
        fakes::run_ranks(num_ranks, [&](dist::World& world) {
          auto network = make_classifier();
          network.conv->eval();  // the others are in training mode
          // The loader's own order is shuffled, and has no world: neither matters.
          Loader loader(Images{count}, {.batch_size = 4, .num_workers = 2});
          Predictions all;
          if (wrapper == std::string("ddp")) {
            DistributedDataParallel net(network, world);
            all = predict(net, loader, world);
          } else if (wrapper == std::string("fsdp")) {
            FullyShardedDataParallel net(network, world, {.units = {"head"}});
            all = predict(net, loader, world);
          } else if (wrapper == std::string("none")) {
            all = predict(network, loader, world);
          } else {
            const auto evaluating = evaluate(network);
            all = predict([&](const Batch& batch) { return network.forward(batch.data); }, loader, world);
          }
          EXPECT_TRUE(network.dropout->is_training() && network.is_training() && !network.conv->is_training());
          if (world.rank() != 0) return;
          ASSERT_EQ(all.outputs.size(), 1u);
          EXPECT_TRUE(at::equal(all.outputs[0].second, expected)) << wrapper << " on " << num_ranks << " of " << count;
          EXPECT_FALSE(all.outputs[0].second.requires_grad());
        });
      }
    }
  }
}

struct Named {
  at::Tensor a, b;
  template <class Take>
  void each_tensor(const Take& take) const {
    take(a);
    take(b);
  }
};

TEST(Predict, AnyStructureOfOutputsHasNames) {
  const auto names = [](const auto& output) {
    std::vector<std::string> result;
    for (const auto& [name, _] : named_outputs(output)) result.push_back(name);
    return result;
  };
  const auto t = at::zeros({2});
  EXPECT_THAT(names(t), ElementsAre("output"));
  EXPECT_THAT(names(std::tuple(t, std::pair(t, t))), ElementsAre("output.0", "output.1.0", "output.1.1"));
  EXPECT_THAT(names(std::vector{t, t}), ElementsAre("output.0", "output.1"));
  EXPECT_THAT(names(std::map<std::string, at::Tensor>{{"logits", t}, {"mask", t}}), ElementsAre("logits", "mask"));
  EXPECT_THAT(names(NamedTensors{{"z", t}, {"a", t}}), ElementsAre("z", "a"));
  EXPECT_THAT(names(std::map<std::string, std::vector<at::Tensor>>{{"hidden", {t, t}}}),
              ElementsAre("hidden.0", "hidden.1"));
  EXPECT_THAT(names(std::optional<at::Tensor>()), IsEmpty());
  EXPECT_THAT(names(Named{t, t}), ElementsAre("output.0", "output.1"));
}

/// Sample i is the numbers i, i, ...; its length is free.
struct Numbers {
  int64_t count = 10;
  int64_t size() const { return count; }
  at::Tensor sample(int64_t i) const { return at::full({2}, i, at::kLong); }
};

TEST(Predict, StreamsPartsToAFunctionAndReportsProgress) {
  fakes::run_ranks(2, [](dist::World& world) {
    Loader loader(Numbers{10}, {.batch_size = 3});
    std::vector<int64_t> firsts, done;
    const auto result = predict(
        [](const at::Tensor& x) {
          // The lengths of rows differ between batches, which a stream of parts allows.
          return std::pair(x.select(1, 0), x.select(1, 0).unsqueeze(1).expand({-1, x.size(0)}));
        },
        loader, world,
        [&](const Predictions& part) {
          EXPECT_EQ(part.samples.front(), part.first_sample);
          EXPECT_EQ(part.outputs[0].second[0].item<int64_t>(), part.first_sample);
          EXPECT_EQ(part.outputs[1].second.size(1), part.num_samples);
          EXPECT_EQ(part.names.back(), std::to_string(part.first_sample + part.num_samples - 1));
          firsts.push_back(part.first_sample);
        },
        {.on_progress = [&](const PredictProgress& progress) { done.push_back(progress.num_done); }});
    EXPECT_EQ(result.progress.num_done, 10);
    if (world.rank() != 0) {
      EXPECT_THAT(firsts, IsEmpty());
      return;
    }
    EXPECT_THAT(firsts, ElementsAre(0, 3, 6, 9));
    EXPECT_THAT(done, ElementsAre(3, 6, 9, 10));
  });
}

// An exact, shuffled epoch by hand: the loader says which samples a batch has.
TEST(Predict, GatherInOrderSortsTheRowsOfAnExactEpoch) {
  for (const int64_t num_ranks : {1, 2, 3}) {
    fakes::run_ranks(num_ranks, [&](dist::World& world) {
      Loader loader(Images{23, {5, 6}}, world, {.batch_size = 4, .seed = 3, .exact = true, .max_bad_samples = 2});
      std::vector<SampleRows> own;
      for (const auto& [data, target] : loader.epoch(0)) {
        EXPECT_EQ(static_cast<int64_t>(loader.samples().size()), data.size(0));
        EXPECT_EQ(loader.name_of(7), "photos/0007.png");
        own.push_back({loader.samples(), named_outputs(target)});
      }
      const auto all = gather_in_order(world, own);
      if (world.rank() != 0) {
        EXPECT_THAT(all.samples, IsEmpty());
        return;
      }
      std::vector<int64_t> samples, targets;
      for (int64_t i = 0; i < 23; ++i) {
        if (i == 5 || i == 6) continue;
        samples.push_back(i);
        targets.push_back(i % 5);
      }
      EXPECT_EQ(all.samples, samples);
      EXPECT_TRUE(at::equal(all.outputs[0].second, at::tensor(targets)));
    });
  }
}

class PredictionFiles : public ::testing::Test {
 protected:
  test::TemporaryFolder folder_;
  std::filesystem::path path(const std::string& name) const { return std::filesystem::path(folder_.path()) / name; }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      names.push_back(entry.path().filename());
    return names;
  }
};

/// Of a row [i, i]: an integer, and a vector of floats.
std::map<std::string, at::Tensor> two_outputs(const at::Tensor& x) {
  return {{"id", x.select(1, 0)}, {"half", x.to(at::kFloat).div(2)}};
}

void predict_numbers(const std::filesystem::path& to, int64_t num_ranks, const Images& images,
                     const PredictionFileOptions& options = {}) {
  fakes::run_ranks(num_ranks, [&](dist::World& world) {
    Loader loader(images, {.batch_size = 2, .max_bad_samples = 9});
    PredictionFile file(to, options);
    predict(
        [](const Batch& batch) {
          return batch.target.to(at::kFloat).div(4).unsqueeze(1).expand({-1, 2});
        },
        loader, world, file);
  });
}

TEST_F(PredictionFiles, TextHasALineForEachSampleAndNamesBadOnes) {
  for (const int64_t num_ranks : {1, 2, 3}) {
    const Images images{6, {0, 1, 4}};  // nothing of the first batch can be read
    predict_numbers(path("a.jsonl"), num_ranks, images);
    EXPECT_EQ(read_file(path("a.jsonl")),
              "{\"sample\": 0, \"name\": \"photos/0000.png\", \"error\": \"it is truncated\"}\n"
              "{\"sample\": 1, \"name\": \"photos/0001.png\", \"error\": \"it is truncated\"}\n"
              "{\"sample\": 2, \"name\": \"photos/0002.png\", \"output\": [0.5, 0.5]}\n"
              "{\"sample\": 3, \"name\": \"photos/0003.png\", \"output\": [0.75, 0.75]}\n"
              "{\"sample\": 4, \"name\": \"photos/0004.png\", \"error\": \"it is truncated\"}\n"
              "{\"sample\": 5, \"name\": \"photos/0005.png\", \"output\": [0.0, 0.0]}\n");
    predict_numbers(path("a.csv"), num_ranks, images);
    EXPECT_EQ(read_file(path("a.csv")),
              "sample,name,output.0,output.1\n0,photos/0000.png,,\n1,photos/0001.png,,\n2,photos/0002.png,0.5,0.5\n"
              "3,photos/0003.png,0.75,0.75\n4,photos/0004.png,,\n5,photos/0005.png,0.0,0.0\n");
  }
}

TEST_F(PredictionFiles, TextHasValuesThatReadBackExactly) {
  fakes::run_ranks(1, [&](dist::World& world) {
    const auto values = at::tensor({0.1, 1e-30, -3.0, INFINITY, NAN}, at::kFloat).view({1, 5});
    const auto outputs = [&](const at::Tensor&) {
      return NamedTensors{{"f", values},
                          {"d", values.slice(1, 0, 2).to(at::kDouble)},
                          {"b", values.slice(1, 0, 2).to(at::kBFloat16)},
                          {"yes", values.select(1, 0).gt(0)},
                          {"c", at::complex(values.slice(1, 0, 1), values.slice(1, 2, 3))},
                          {"u", at::full({1}, 200, at::kByte)}};
    };
    Loader loader(Numbers{1}, {.batch_size = 1});
    PredictionFile lines(path("v.jsonl")), table(path("v.csv"));
    predict(outputs, loader, world, lines);
    predict(outputs, loader, world, table);
  });
  EXPECT_EQ(
      read_file(path("v.jsonl")),
      "{\"sample\": 0, \"f\": [0.1, 1e-30, -3.0, null, null], \"d\": [0.10000000149011612, 1.0000000031710769e-30], "
      "\"b\": [0.100097656, 9.984021e-31], \"yes\": true, \"c\": [[0.1, -3.0]], \"u\": 200}\n");
  EXPECT_EQ(
      read_file(path("v.csv")),
      "sample,f.0,f.1,f.2,f.3,f.4,d.0,d.1,b.0,b.1,yes,c.0.0,c.0.1,u\n"
      "0,0.1,1e-30,-3.0,inf,nan,0.10000000149011612,1.0000000031710769e-30,0.100097656,9.984021e-31,true,0.1,-3.0,"
      "200\n");
}

TEST_F(PredictionFiles, NpyIsWhatNumPyWrites) {
  for (const int64_t num_ranks : {1, 2}) {
    predict_numbers(path("a.npy"), num_ranks, {6, {0, 1, 4}});
    const auto bytes = read_file(path("a.npy"));
    // Of numpy.save, NumPy 2.4: a head of 128 bytes.
    const std::string head = "{'descr': '<f4', 'fortran_order': False, 'shape': (6, 2), }";
    ASSERT_EQ(bytes.size(), 128u + 6 * 2 * 4);
    EXPECT_EQ(bytes.substr(0, 10), std::string("\x93NUMPY\x01\x00v\x00", 10));
    EXPECT_EQ(bytes.substr(10, 118), head + std::string(117 - head.size(), ' ') + '\n');
    const auto* values = reinterpret_cast<const float*>(bytes.data() + 128);
    EXPECT_TRUE(std::isnan(values[0]) && std::isnan(values[3]) && std::isnan(values[9]));
    EXPECT_EQ(std::vector(values + 4, values + 8), (std::vector{0.5f, 0.5f, 0.75f, 0.75f}));
    EXPECT_EQ(values[11], 0.0f);
  }
}

TEST_F(PredictionFiles, SafetensorsHasAllOutputs) {
  fakes::run_ranks(3, [&](dist::World& world) {
    Loader loader(Numbers{11}, {.batch_size = 2});
    PredictionFile file(path("a.safetensors"));
    predict(two_outputs, loader, world, file);
  });
  const auto tensors = read_safetensors(path("a.safetensors")).tensors;
  EXPECT_TRUE(at::equal(tensors.at("id"), at::arange(11, at::kLong)));
  EXPECT_TRUE(at::equal(tensors.at("half"), at::arange(11).to(at::kFloat).div(2).view({11, 1}).expand({11, 2})));
}

/// Ends the process at sample 600 of 1,000, in the middle of the loop, as a power cut would.
void predict_until_killed(const std::filesystem::path& to) {
  const pid_t child = fork();
  if (child == 0) {
    at::set_num_threads(1);
    fakes::run_ranks(2, [&](dist::World& world) {
      auto network = make_classifier();
      Loader loader(Images{1000, {3, 700}}, {.batch_size = 16, .num_workers = 0, .max_bad_samples = 2});
      PredictionFile file(to, {.resume = true, .save_every = std::chrono::milliseconds(0)});
      predict(network, loader, world, file, {.on_progress = [](const PredictProgress& progress) {
                if (progress.num_done >= 600) kill(getpid(), SIGKILL);
              }});
    });
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
}

// Oracle: the file of an undisturbed run. The kill comes on two ranks, and the rest is done by one or three.
TEST_F(PredictionFiles, AKilledRunGoesOnAndTheFileIsThatOfAnUndisturbedOne) {
  at::set_num_threads(1);
  for (const std::string extension : {".jsonl", ".csv", ".npy", ".safetensors"}) {
    const auto run = [&](const std::filesystem::path& to, int64_t num_ranks, std::vector<int64_t>& computed) {
      std::mutex mutex;
      PredictProgress progress;
      fakes::run_ranks(num_ranks, [&](dist::World& world) {
        auto network = make_classifier();
        Loader loader(Images{1000, {3, 700}}, {.batch_size = 16, .max_bad_samples = 2});
        PredictionFile file(to, {.resume = true});
        network.eval();
        const auto result = predict(
            [&](const Batch& batch) {
              const std::lock_guard lock(mutex);
              computed.push_back(loader.samples().front());
              return network.forward(batch.data);
            },
            loader, world, file);
        EXPECT_EQ(result.progress.num_done, 1000);
        if (world.rank() != 0) return;
        progress = result.progress;
        ASSERT_EQ(result.bad.size(), 2u) << "one of the first run, one of this one";
        EXPECT_EQ(result.bad[0].name, "photos/0003.png");
        EXPECT_EQ(result.bad[1].sample, 700);
      });
      return progress;
    };
    std::vector<int64_t> all, rest;
    run(path("whole" + extension), 2, all);
    const auto to = path("killed" + extension);
    predict_until_killed(to);
    // What is written after the last save counts for nothing.
    std::ofstream(to.string() + ".partial", std::ios::app) << "{\"sample\": 608, \"na";
    ASSERT_FALSE(std::filesystem::exists(to));
    EXPECT_THAT(files(),
                ::testing::IsSupersetOf({"killed" + extension + ".partial", "killed" + extension + ".progress"}));
    const auto progress = run(to, extension == ".csv" ? 3 : 1, rest);
    EXPECT_EQ(progress.num_resumed, 608) << "it was killed after 38 parts of 16";
    EXPECT_EQ(*std::ranges::min_element(rest), 608) << "no sample that was finished is computed again";
    EXPECT_TRUE(read_file(to) == read_file(path("whole" + extension))) << extension;
    EXPECT_THAT(files(), ::testing::UnorderedElementsAre("whole" + extension, "killed" + extension));
    rest.clear();
    std::filesystem::remove(path("whole" + extension));
    std::filesystem::remove(to);
  }
}

TEST_F(PredictionFiles, AStopIsResumedAndACompleteFileIsLeftAlone) {
  const auto to = path("a.jsonl");
  const auto run = [&](int64_t stop_at, const PredictionFileOptions& options = {.resume = true}) {
    PredictResult result;
    fakes::run_ranks(2, [&](dist::World& world) {
      Loader loader(Numbers{20}, {.batch_size = 2});
      PredictionFile file(to, options);
      int64_t rounds = 0;
      const auto mine = predict(two_outputs, loader, world, file, {.should_stop = [&] { return ++rounds == stop_at; }});
      if (world.rank() == 0) result = mine;
    });
    return result;
  };
  auto result = run(2);
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.progress.num_done, 8);
  EXPECT_FALSE(std::filesystem::exists(to));
  EXPECT_THAT(message_of([&] { run(0, {.resume = true, .identity = "another model"}); }),
              AllOf(HasSubstr("of 'another model'"), HasSubstr("a.jsonl.progress")));
  result = run(0);
  EXPECT_FALSE(result.stopped);
  EXPECT_EQ(result.progress.num_resumed, 8);
  const auto text = read_file(to);
  EXPECT_EQ(std::ranges::count(text, '\n'), 20);
  result = run(0);
  EXPECT_EQ(result.progress.num_resumed, 20) << "it was complete";
  run(2, {.resume = false});
  EXPECT_EQ(read_file(to), text) << "a new run replaces the file when it is complete, and was stopped before";
  EXPECT_EQ(run(0, {.resume = false}).progress.num_resumed, 0);
  EXPECT_THAT(files(), ElementsAre("a.jsonl"));
}

TEST_F(PredictionFiles, ADamagedProgressIsRefused) {
  const auto to = path("a.csv");
  std::ofstream(to.string() + ".partial") << "sample\n";
  const auto run = [&] { predict_numbers(to, 1, {6}, {.resume = true}); };
  std::ofstream(to.string() + ".progress") << "{";
  EXPECT_THAT(message_of(run), AllOf(HasSubstr("a.csv.progress: it does not say"), HasSubstr("remove it")));
  std::ofstream(to.string() + ".progress") << R"({"format": "yoke-predictions", "version": 1, "num_samples": 6,
    "samples": 4, "bytes": 4000, "identity": "", "bad": []})";
  EXPECT_THAT(message_of(run), HasSubstr("4000 bytes are written, and a.csv.partial has 7"));
  std::ofstream(to.string() + ".progress") << R"({"format": "yoke-predictions", "version": 1, "num_samples": 7,
    "samples": 4, "bytes": 4, "identity": "", "bad": []})";
  EXPECT_THAT(message_of(run), HasSubstr("had 7 samples, and this one has 6"));
}

TEST_F(PredictionFiles, WhatDoesNotFitIsAnErrorThatNamesTheForm) {
  const auto error = [&](const std::string& name, const auto& outputs, int64_t count = 4) {
    return message_of([&] {
      fakes::run_ranks(1, [&](dist::World& world) {
        Loader loader(Numbers{count}, {.batch_size = 3});
        PredictionFile file(path(name));
        predict(outputs, loader, world, file);
      });
    });
  };
  EXPECT_THAT(error("a.npy", two_outputs), AllOf(HasSubstr("2 outputs"), HasSubstr(".safetensors")));
  const auto ragged = [](const at::Tensor& x) { return x.select(1, 0).unsqueeze(1).expand({-1, x.size(0)}); };
  EXPECT_THAT(error("a.csv", ragged),
              AllOf(HasSubstr("sample 3"), HasSubstr("[1]"), HasSubstr("[3]"), HasSubstr(".jsonl")));
  EXPECT_EQ(error("a.jsonl", ragged), "no error");
  EXPECT_THAT(error("a.txt", two_outputs), HasSubstr("'.txt' is none of"));
  EXPECT_THAT(error("a.csv", [](const at::Tensor& x) { return x.sum(); }),
              AllOf(HasSubstr("'output' of a batch of 3 samples is []"), HasSubstr("a row for each sample")));
  EXPECT_THAT(error("a.npy", ragged, 0), HasSubstr("no samples"));
  EXPECT_EQ(error("none.csv", two_outputs, 0), "no error");
  EXPECT_EQ(read_file(path("none.csv")), "sample\n");
}

TEST_F(PredictionFiles, OneRanksErrorIsToldToTheOthers) {
  const auto message = message_of([&] {
    fakes::run_ranks(2, [&](dist::World& world) {
      Loader loader(Numbers{40}, {.batch_size = 2});
      PredictionFile file(path("a.csv"));
      predict(
          [&](const at::Tensor& x) {
            if (x[0][0].item<int64_t>() == 6) throw std::runtime_error("no memory for sample 6");
            return x;
          },
          loader, world, file);
    });
  });
  // run_ranks() gives the error of rank 0, and rank 1 had that batch.
  EXPECT_THAT(message, AllOf(HasSubstr("no memory for sample 6"), HasSubstr("rank 1")));
}

TEST_F(PredictionFiles, WithoutASampleAreRemovedAndThoseOfOthersAreKept) {
  { PredictionFile(path("a.csv")).begin({.num_samples = 3}); }
  EXPECT_FALSE(std::filesystem::exists(path("a.csv.partial")));
  std::ofstream(path("a.csv.partial")) << "sample\n";
  std::ofstream(path("a.csv.progress")) << "{}";
  EXPECT_THROW(PredictionFile(path("a.csv"), {.resume = true}).begin({.num_samples = 3}), Error);
  EXPECT_EQ(read_file(path("a.csv.partial")), "sample\n");
}

TEST_F(PredictionFiles, TwoProcessesDoNotWriteOneFile) {
  PredictionFile first(path("a.csv")), second(path("a.csv"));
  first.begin({.num_samples = 3});
  EXPECT_THAT(message_of([&] { second.begin({.num_samples = 3}); }), HasSubstr("another process writes"));
}

TEST(Evaluate, GivesEachModuleItsModeBack) {
  struct Inner : torch::nn::Module {
    torch::nn::BatchNorm1d norm;
    Inner() : norm(register_module("norm", torch::nn::BatchNorm1d(2))) {}
    at::Tensor forward(const at::Tensor& x) { return x; }
  };
  torch::nn::Sequential model(torch::nn::Linear(2, 2), Inner());
  auto& norm = *model->ptr(1)->children().front();
  norm.eval();
  {
    const auto evaluating = evaluate(model);
    EXPECT_FALSE(model->is_training() || model->ptr(0)->is_training() || norm.is_training());
    {
      auto guard = training(*model);
      const auto moved = std::move(guard);
      EXPECT_TRUE(model->is_training() && model->ptr(0)->is_training() && norm.is_training());
    }
    EXPECT_FALSE(model->is_training() || model->ptr(0)->is_training() || norm.is_training());
  }
  EXPECT_TRUE(model->is_training() && model->ptr(0)->is_training() && model->ptr(1)->is_training());
  EXPECT_FALSE(norm.is_training()) << "it was in evaluation mode before";
}

}  // namespace
}  // namespace yoke::train
