// recipes/fashion_mnist/main.cpp -- trains the network on every rank; the loop is all here.
#include <ATen/Parallel.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>
#include <iostream>

#include "recipes/fashion_mnist/model.h"
#include "recipes/fashion_mnist/report.h"
#include "recipes/fashion_mnist/run_folder.h"
#include "yoke/base/error.h"
#include "yoke/base/error_file.h"
#include "yoke/base/format.h"
#include "yoke/dist/world.h"
#include "yoke/train/checkpoint/checkpoint.h"
#include "yoke/train/checkpoint/train_state.h"
#include "yoke/train/cpu_speed.h"
#include "yoke/train/data/idx.h"
#include "yoke/train/data/loader.h"
#include "yoke/train/data/sampler.h"
#include "yoke/train/meter.h"
#include "yoke/train/optim/one_cycle.h"
#include "yoke/train/optim/sgd.h"
#include "yoke/train/parallel/distributed_data_parallel.h"
#include "yoke/train/precision/autocast.h"
#include "yoke/train/seed.h"

namespace fashion_mnist {
namespace {

using namespace yoke;
using std::chrono::steady_clock;

/// What the command line can change.
struct Options {
  int64_t num_epochs = 5;
  uint64_t seed = 0;
  bool resume = false;
  std::string out;
  std::string data{train::kFashionMnistDir};
  std::string precision = "auto";
  bool deterministic = false;
  int64_t checkpoint_every = 0;  ///< Steps; 0: at the end of each epoch only.
};

/// What it cannot: found by search, see README.md.
struct Preset {
  int64_t global_batch = 256;
  double max_lr = 0.2;
  double momentum = 0.9;
  double weight_decay = 5e-4;
  double label_smoothing = 0.1;
  double warm_up = 0.2;  ///< Share of all steps.
};

/// The global batch does not depend on the number of ranks, so neither does the accuracy.
int64_t batch_of_rank(const Preset& preset, const dist::World& world) {
  return std::max<int64_t>(1, (preset.global_batch + world.size() / 2) / world.size());
}

train::LoaderOptions loader_options(int64_t batch_size, c10::Device device) {
  return {.batch_size = batch_size,
          .num_workers = device.is_cpu() ? 0 : 2,  // on the CPU a thread more would only take turns with the training
          .normalization = train::Normalization{{0.2860}, {0.3530}},
          .memory_format = at::MemoryFormat::ChannelsLast,
          .device = device};
}

struct Figures {
  double loss = 0;
  double accuracy = 0;
};

/// Collective. Each rank tests its share.
Figures evaluate(Network& network, const train::Samples& samples, dist::World& world,
                 const train::AutocastOptions& precision) {
  const c10::InferenceMode no_autograd;
  network.eval();
  train::Mean loss;
  train::Accuracy accuracy;
  train::Loader loader(samples, loader_options(500, world.device()));
  const train::DistributedSampler sampler(world,
                                          {.num_samples = samples.target.size(0), .shuffle = false, .exact = true});
  loader.start(sampler.indices(0));
  while (const auto batch = loader.next()) {
    const train::Autocast autocast(precision);
    const auto logits = network.forward(batch->data);
    loss.add(at::cross_entropy_loss(logits, batch->target), batch->target.size(0));
    accuracy.add(logits, batch->target);
  }
  network.train();
  const auto means = train::read_all(world, {&loss, &accuracy});
  return {means[0], means[1]};
}

/// What must not change between a run and its resumption, with the value that was used.
void check_or_adopt(const train::CheckpointState& state, const char* name, std::string& value, bool given) {
  const auto found = state.metadata.find(name);
  if (found == state.metadata.end()) throw Error(ErrorCode::kDataLoss, "the checkpoint does not say its '{}'", name);
  if (given && found->second != value) {
    throw Error(ErrorCode::kInvalidArgument, "--{} {} was given, but the run to resume was started with {}", name,
                value, found->second);
  }
  value = found->second;
}

void train_network(Options options, const CLI::App& app) {
  train::flush_denormals();
  train::keep_freed_memory();
  dist::World world;
  const bool is_first = world.rank() == 0;
  const auto say = [is_first](const std::string& text) {
    if (is_first) std::cout << text << std::endl;
  };
  const train::Warn warn = [](const std::string& message) { std::cerr << "warning: " << message << std::endl; };

  // Rank 0 decides where the run lives; what it cannot decide ends all ranks.
  const std::filesystem::path out =
      world.all_gather_text(is_first ? choose_run_folder(options.out, options.resume).string() : "").front();
  std::optional<train::FolderLock> lock;
  if (is_first) lock.emplace(out);
  world.barrier();  // the folder is there
  const train::CheckpointFolder checkpoints(out);
  std::optional<train::Checkpoint> resumed;
  if (options.resume) {
    resumed = checkpoints.load_latest(world, warn);
    if (!resumed) say(fmt::format("no checkpoint in {} yet: starting from the beginning", out.string()));
  }

  const bool auto_bfloat16 = options.precision == "auto" && train::has_fast_bfloat16(world.device());
  if (options.precision == "auto") options.precision = auto_bfloat16 ? "bf16" : "fp32";
  std::map<std::string, std::string> fixed = {{"epochs", std::to_string(options.num_epochs)},
                                              {"seed", std::to_string(options.seed)},
                                              {"precision", options.precision},
                                              {"deterministic", options.deterministic ? "yes" : "no"}};
  if (resumed) {
    for (auto& [name, value] : fixed) check_or_adopt(resumed->state, name.c_str(), value, app.count("--" + name) > 0);
    options.num_epochs = std::stoll(fixed["epochs"]);
    options.seed = std::stoull(fixed["seed"]);
    options.precision = fixed["precision"];
    options.deterministic = fixed["deterministic"] == "yes";
  }
  if (options.deterministic) at::set_num_threads(1);

  const Preset preset;
  const auto data = train::read_fashion_mnist(options.data);
  const int64_t batch_size = batch_of_rank(preset, world);
  const int64_t samples_per_step = batch_size * world.size();
  const train::DistributedSampler sampler(world, {.num_samples = data.train.target.size(0), .seed = options.seed});
  auto loading = loader_options(batch_size, world.device());
  loading.drop_last = true;
  train::Loader loader(data.train, loading);
  const int64_t steps_per_epoch = loader.num_batches(sampler.size());
  if (steps_per_epoch == 0) {
    throw Error(ErrorCode::kInvalidArgument, "{} has fewer samples than one step of {} takes", options.data,
                samples_per_step);
  }
  const int64_t total_steps = options.num_epochs * steps_per_epoch;

  train::seed({.seed = options.seed, .deterministic = options.deterministic});  // the same weights on all ranks
  Network network;
  network.to(world.device());
  to_channels_last(network);
  train::DistributedDataParallel net(network, world, {.broadcast_buffers = false, .gradient_as_bucket_view = true});
  train::Sgd optimizer(network, {.momentum = preset.momentum, .weight_decay = preset.weight_decay, .nesterov = true});
  const train::OneCycleOptions schedule{.total_steps = total_steps,
                                        .max_lr = preset.max_lr,
                                        .pct_start = preset.warm_up,
                                        .anneal = train::Anneal::kLinear};
  const train::AutocastOptions precision{.device_type = world.device().type(), .enabled = options.precision == "bf16"};
  train::seed({.seed = options.seed, .rank = world.rank(), .deterministic = options.deterministic});

  train::Mean train_loss;
  int64_t step = 0;  // of all epochs
  if (resumed) {
    train::load_module(resumed->state, "model", network);
    optimizer.load_state_dict(train::tensors_in(resumed->state, "optimizer"));
    train::restore_generators(resumed->state, world, warn);
    train::restore_num_threads(resumed->state, world,
                               options.deterministic ? train::ThreadRule::kAdopt : train::ThreadRule::kWarn, warn);
    train::restore_meters(world, {&train_loss}, resumed->state.tensors.at("meters"));
    step = resumed->step;
    if (train::metadata_int(resumed->state, "samples_per_step") != samples_per_step) {
      throw Error(ErrorCode::kInvalidArgument,
                  "the run to resume took {} samples a step, and {} ranks take {}; resume on "
                  "a number of ranks that divides {}",
                  train::metadata_int(resumed->state, "samples_per_step"), world.size(), samples_per_step,
                  preset.global_batch);
    }
  }
  const auto save = [&] {
    train::CheckpointState state;
    train::add_module(state, "model", network);
    train::add_tensors(state, "optimizer", optimizer.state_dict());
    train::add_generators(state, world);
    train::add_num_threads(state, world);
    state.tensors["meters"] = train::gather_meters(world, {&train_loss});
    for (const auto& [name, value] : fixed) state.metadata[name] = value;
    state.metadata["samples_per_step"] = std::to_string(samples_per_step);
    if (is_first) checkpoints.save(step, state);
  };

  say(fmt::format("fashion-mnist: {} rank{} on {}, {} x {} samples a step, {}{}, into {}", world.size(),
                  world.size() == 1 ? "" : "s", world.device().is_cpu() ? "the CPU" : "GPUs", world.size(), batch_size,
                  options.precision, options.deterministic ? ", deterministic" : "", out.string()));
  const bool is_finished = step == total_steps;
  if (resumed) {
    say(is_finished ? fmt::format("{} is the end of that run: testing it again", resumed->path.string())
                    : fmt::format("resumed from {} at epoch {}, step {}", resumed->path.string(),
                                  step / steps_per_epoch + 1, step % steps_per_epoch));
  }
  std::optional<Report> report;
  if (is_first && !is_finished) report.emplace(out, step / steps_per_epoch);
  const bool watched = isatty(STDOUT_FILENO) == 1 || std::getenv("YOKE_TERMINAL") != nullptr;
  Progress progress(is_first && watched, options.num_epochs, steps_per_epoch, samples_per_step, step);
  Figures test;
  bool is_stopping = false;  // told so by a signal; the same on all ranks at the same step
  if (is_finished) test = evaluate(network, data.test, world, precision);

  for (int64_t epoch = step / steps_per_epoch; epoch < options.num_epochs && !is_stopping; ++epoch) {
    const auto start = steady_clock::now();
    const int64_t first_step = step;
    loader.start(sampler.indices(epoch), step % steps_per_epoch);
    while (const auto batch = loader.next()) {
      const auto &x = batch->data, &y = batch->target;
      const auto loss = [&] {
        const train::Autocast autocast(precision);
        return at::cross_entropy_loss(net(x), y, {}, at::Reduction::Mean, -100, preset.label_smoothing);
      }();
      loss.backward();
      optimizer.step(train::one_cycle_lr(step, schedule));
      optimizer.zero_grad();
      train_loss.add(loss.detach(), y.size(0));
      ++step;
      if (progress.due()) progress.show(step, train_loss.read());
      is_stopping = world.should_stop();
      if (is_stopping) break;
      if (options.checkpoint_every > 0 && step % options.checkpoint_every == 0 && step % steps_per_epoch != 0) save();
    }
    if (step % steps_per_epoch != 0) {  // told to stop; there is time for a checkpoint, not for the rest of an epoch
      save();
      break;
    }
    const std::chrono::duration<double> training = steady_clock::now() - start;

    net.sync_buffers();
    test = evaluate(network, data.test, world, precision);
    const double mean_loss = train_loss.read(world);
    const std::chrono::duration<double> whole = steady_clock::now() - start;
    if (report) {
      report->add({.number = epoch + 1,
                   .train_loss = mean_loss,
                   .test_loss = test.loss,
                   .test_accuracy = test.accuracy,
                   .samples_per_second = static_cast<double>((step - first_step) * samples_per_step) / training.count(),
                   .seconds = whole.count()});
    }
    train_loss.reset();
    save();
  }

  if (step < total_steps) {
    say(fmt::format("told to stop at epoch {}, step {}", step / steps_per_epoch + 1, step % steps_per_epoch));
  } else {
    say(fmt::format("test accuracy {:.4f}", test.accuracy));
  }
  say(fmt::format("checkpoint    {}", checkpoints.path_of(step).string()));
  say(fmt::format("to resume     yoke train fashion-mnist --resume --out {} -n {}", out.string(), world.size()));
  world.shutdown();
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Trains a small CNN on Fashion-MNIST, on all ranks of the job that this process belongs to.\n"
      "Usually started by: yoke train fashion-mnist [-n N] [options]",
      "fashion-mnist");
  app.option_defaults()->take_last();  // as the command's own options: the last of a repeated one counts
  app.add_option("--epochs", options.num_epochs, "How often all samples are seen")
      ->check(CLI::Range(int64_t{1}, int64_t{100'000}))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Of weights and order")->capture_default_str();
  app.add_flag("--resume", options.resume, "Go on from the newest checkpoint of the run folder");
  app.add_option("--out", options.out,
                 "The run folder; otherwise runs/fashion-mnist, or that with the next free number");
  app.add_option("--data", options.data, "Folder of the gzipped IDX files (Debian: dataset-fashion-mnist)")
      ->capture_default_str();
  app.add_option("--precision", options.precision, "auto: bf16 where the hardware has it")
      ->check(CLI::IsMember({"auto", "bf16", "fp32"}))
      ->capture_default_str();
  app.add_flag("--deterministic", options.deterministic, "The same bits every time: one thread, deterministic kernels");
  app.add_option("--checkpoint-every", options.checkpoint_every, "Also each N steps; 0: each epoch only")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.footer(
      "Examples:\n"
      "  yoke train fashion-mnist                                  on every device, five epochs\n"
      "  yoke train fashion-mnist -n 2 --epochs 1 --seed 7\n"
      "  yoke train fashion-mnist --resume --out runs/fashion-mnist\n"
      "  yoke train fashion-mnist --precision fp32 --deterministic");
  CLI11_PARSE(app, argc, argv);
  try {
    train_network(options, app);
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "fashion-mnist: {}\n", error.what());
    record_failure(error);
    return exit_status(error.code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "fashion-mnist: unexpected error: {}\n", error.what());
    record_failure(error);
    return exit_status(ErrorCode::kInternal);
  }
}

}  // namespace
}  // namespace fashion_mnist

int main(int argc, char** argv) { return fashion_mnist::run(argc, argv); }
