#include "yoke/infer/run.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <utility>

#include "yoke/base/affinity.h"
#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/json.h"
#include "yoke/base/text.h"
#include "yoke/contract/program.h"
#include "yoke/dist/on_all_ranks.h"
#include "yoke/dist/world.h"
#include "yoke/infer/batch_size.h"
#include "yoke/infer/report.h"
#include "yoke/infer/source.h"
#include "yoke/train/cpu_speed.h"
#include "yoke/train/precision/autocast.h"
#include "yoke/train/predict/predict.h"
#include "yoke/train/predict/prediction_file.h"

namespace yoke::infer {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBatchSizeIs = "batches of ";
constexpr std::string_view kFilesAre = "; files of the input: ";

std::string describe_inputs(const Inputs& inputs) {
  std::string text;
  for (const auto& [name, tensor] : inputs) {
    text += fmt::format("{}{} [{}] {}", text.empty() ? "" : ", ", name, fmt::join(tensor.sizes(), ", "),
                        c10::toString(tensor.scalar_type()));
  }
  return text;
}

/// Fills a batch up to `size` rows with copies of its last one.
Inputs filled_up(const Inputs& inputs, int64_t size) {
  Inputs result;
  for (const auto& [name, tensor] : inputs) {
    auto sizes = tensor.sizes().vec();
    sizes[0] = size - tensor.size(0);
    result.emplace_back(name, at::cat({tensor, tensor.slice(0, -1).expand(sizes)}));
  }
  return result;
}

train::NamedTensors top_classes(const train::NamedTensors& outputs, int64_t count) {
  if (outputs.size() != 1 || outputs[0].second.dim() != 2 || outputs[0].second.size(1) < count) {
    throw Error(ErrorCode::kInvalidArgument,
                "--top {} needs one output [batch, classes] with as many classes, and "
                "the model gives {}",
                count, describe_inputs(outputs));
  }
  const auto [probabilities, classes] = outputs[0].second.to(at::kFloat).softmax(1).topk(count, 1);
  return {{"class", classes}, {"probability", probabilities}};
}

/// The model as predict() calls it.
class Network {
 public:
  Network(const Request& request, Model model, c10::Device device)
      : request_(request), model_(std::move(model)), device_(device) {
    if (model_.is_compiled && !request.precision.empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "--precision {}: AOTInductor has compiled {} for one precision; leave the option out, or export the "
                  "network in that precision",
                  request.precision, printable(request.model.string()));
    }
  }

  /// REQUIRES: gradients are disabled. Errors  kInvalidArgument: the model refuses the batch; `samples` names it.
  template <class SamplesText>
  train::NamedTensors operator()(const Inputs& inputs, int64_t batch_size, const SamplesText& samples) const {
    try {
      const train::Autocast autocast({.device_type = device_.type(), .enabled = !request_.precision.empty()});
      const auto num_rows = inputs.front().second.size(0);
      const bool is_filled = model_.is_compiled && num_rows < batch_size;
      auto outputs = model_.run(is_filled ? filled_up(inputs, batch_size) : inputs);
      for (auto& [_, output] : outputs) {
        if (is_filled && output.dim() > 0 && output.size(0) == batch_size) output = output.narrow(0, 0, num_rows);
      }
      return request_.top > 0 ? top_classes(outputs, request_.top) : outputs;
    } catch (const c10::OutOfMemoryError&) {
      throw;
    } catch (const std::exception& error) {
      throw Error(ErrorCode::kInvalidArgument, "{} refuses {}, {}: {}", printable(request_.model.string()), samples(),
                  describe_inputs(inputs), reason_of(error));
    }
  }

  const Model& model() const { return model_; }

 private:
  const Request& request_;
  Model model_;
  c10::Device device_;
};

/// Differs for another model: sizes and checksums of the files' first and last MiB. The last ones have the checksums of
/// all entries in an archive.
std::string fingerprint(const fs::path& path) {
  std::vector<fs::path> files;
  if (fs::is_directory(path)) {
    for (const auto& entry : fs::recursive_directory_iterator(path)) {
      const auto extension = entry.path().extension();
      if (entry.is_regular_file() && (extension == ".safetensors" || extension == ".json")) files.push_back(entry);
    }
  } else {
    files.push_back(path);
  }
  std::ranges::sort(files);
  uint64_t result = 0;
  int64_t num_bytes = 0;
  for (const auto& file : files) {
    constexpr size_t kPart = 1 << 20;
    const MappedFile mapped(file);
    const auto bytes = mapped.bytes();
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    for (const auto part : {text.substr(0, kPart), text.substr(text.size() - std::min(kPart, text.size()))}) {
      result = result * 31 + std::hash<std::string_view>()(part);
    }
    num_bytes += std::ssize(text);
  }
  return fmt::format("{} bytes, {:016x}", num_bytes, result);
}

/// Differs for other files: a checksum of their names, sizes and times of change in their order, and of one file alone
/// its first and last MiB. Other contents may be of any size, and are not read.
std::string fingerprint_of_input(const fs::path& input, const Reader& reader) {
  auto files = reader.files();
  std::string text = fs::is_directory(input) ? "" : fingerprint(input);
  if (files.empty()) files.push_back(input);
  uint64_t result = 0;
  for (const auto& file : files) {
    struct stat status {};
    if (stat(file.c_str(), &status) != 0) throw system_error(errno, "reading " + printable(file.string()));
    text += fmt::format("\n{} {} {}.{:09}", file.lexically_relative(input).string(), status.st_size,
                        status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
    result = result * 31 + std::hash<std::string>()(text);
    text.clear();
  }
  return fmt::format("{}, {:016x}", files.size(), result);
}

/// What determines the predictions.
std::string identity_of(const Request& request, const Reader& reader, int64_t batch_size) {
  auto text = fmt::format("{} ({}), {} of {}, {}{}", request.model.filename().string(), fingerprint(request.model),
                          reader.describe(), request.input.filename().string(), kBatchSizeIs, batch_size);
  for (const auto& [name, value] :
       {std::pair("precision", request.precision), std::pair("normalize", request.normalize),
        std::pair("tokenizer", request.tokenizer.filename().string()),
        std::pair("top", request.top > 0 ? std::to_string(request.top) : ""),
        std::pair("max-length", request.max_length > 0 ? std::to_string(request.max_length) : "")}) {
    if (!value.empty()) text += fmt::format(", {} {}", name, value);
  }
  return printable(fmt::format("{}{}{}", text, kFilesAre, fingerprint_of_input(request.input, reader)));
}

/// The identity of a run to resume; empty if there is none, or its file is damaged, which PredictionFile reports.
std::string identity_before(const Request& request) {
  const auto path = request.out.string() + ".progress";
  std::error_code ignored;
  if (!request.resume || !fs::exists(path, ignored)) return "";
  const auto json = SortedJson::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? text_member(json, "identity") : "";
}

/// Throws if a run to resume was of another model, input or option.
void check_same(const Request& request, const std::string& identity) {
  const auto before = identity_before(request);
  if (before.empty() || before == identity) return;
  const auto without_files = [](const std::string& text) { return text.substr(0, text.rfind(kFilesAre)); };
  const auto why =
      without_files(before) == without_files(identity)
          ? fmt::format("the input {} has changed since the run to resume: names, sizes or times of its files differ",
                        printable(request.input.string()))
          : fmt::format("the run to resume was of '{}', and this one is of '{}'", before, identity);
  throw Error(ErrorCode::kInvalidArgument, "{}; give --force instead of --resume to begin again, or another --out",
              why);
}

/// The batch size of a run to resume; 0 if there is none.
int64_t batch_size_before(const Request& request) {
  const auto identity = identity_before(request);
  const auto place = identity.rfind(kBatchSizeIs);
  if (place == identity.npos) return 0;
  const auto digits = identity.substr(place + kBatchSizeIs.size());
  return parse_int(digits.substr(0, digits.find_first_not_of("0123456789"))).value_or(0);
}

/// Rank 0's number on all ranks.
int64_t shared(dist::World& world, int64_t number) {
  return parse_int(world.all_gather_text(std::to_string(number)).front()).value_or(0);
}

train::LoaderOptions loader_options(const Request& request, const dist::World& world, int64_t batch_size,
                                    int64_t num_samples) {
  const auto num_cpus = static_cast<int64_t>(allowed_cpus().size());
  const int64_t beside_gpu = std::clamp<int64_t>(num_cpus - 1, 1, 8);
  return {.batch_size = batch_size,
          .shuffle = false,
          .num_workers = request.workers >= 0      ? request.workers
                         : world.device().is_cpu() ? 1
                                                   : beside_gpu,
          .num_prefetch = std::max<int64_t>(4, 2 * request.workers),
          .max_bad_samples = num_samples,
          .device = world.device()};
}

class Job {
 public:
  Job(const Request& request, dist::World& world, Network network, std::shared_ptr<const Reader> reader)
      : request_(request), world_(world), network_(std::move(network)), reader_(std::move(reader)) {}

  /// Collective. Returns how many samples were bad.
  template <bool kNamed>
  int64_t run() {
    const auto batch_size = choose_batch_size();
    train::Loader<Source<kNamed>> loader(Source<kNamed>(reader_),
                                         loader_options(request_, world_, batch_size, reader_->size()));
    std::string identity;
    dist::on_all_ranks(world_, "comparing the run with the one to resume", [&] {
      if (world_.rank() != 0) return;
      identity = identity_of(request_, *reader_, batch_size);
      if (!is_complete_) check_same(request_, identity);
    });
    train::PredictionFile file(request_.out, {.resume = request_.resume, .identity = identity});
    const auto samples = [&] {
      const auto& numbers = loader.samples();
      return fmt::format("samples {} to {}{}", numbers.front(), numbers.back(),
                         kNamed ? fmt::format(" ({}, ...)", printable(loader.name_of(numbers.front()))) : "");
    };
    Report report(request_,
                  {.kind = network_.model().kind,
                   .input = reader_->describe(),
                   .left_out = reader_->left_out(),
                   .device = world_.device().str(),
                   .num_ranks = world_.size(),
                   .batch_size = batch_size,
                   .is_found = is_found_,
                   .is_complete = is_complete_},
                  world_.rank() == 0);
    const auto forward = [&](const Inputs& inputs) { return network_(inputs, batch_size, samples); };
    const auto result =
        train::predict(forward, loader, world_, file,
                       {.should_stop = [&] { return world_.should_stop(); },
                        .on_progress = [&](const train::PredictProgress& progress) { report.show(progress); }});
    report.finish(result);
    return result.stopped ? 0 : result.progress.num_bad;
  }

 private:
  /// Collective.
  int64_t choose_batch_size() {
    std::error_code ignored;
    const bool is_there = request_.resume && fs::exists(request_.out, ignored) &&
                          !fs::exists(request_.out.string() + ".partial", ignored);
    is_complete_ = shared(world_, is_there ? 1 : 0) == 1;
    if (is_complete_) return 1;
    if (request_.batch_size > 0) return request_.batch_size;
    if (const auto before = shared(world_, world_.rank() == 0 ? batch_size_before(request_) : 0)) return before;
    const auto share = (reader_->size() + world_.size() - 1) / world_.size();
    const int64_t most = std::min<int64_t>(share, world_.device().is_cpu() ? 256 : 1024);
    // A few samples are read, and repeated for larger batches.
    constexpr int64_t kMostRead = 16;
    train::Loader<Source<false>> loader(Source<false>(reader_),
                                        loader_options(request_, world_, std::min(most, kMostRead), reader_->size()));
    Inputs read;
    dist::on_all_ranks(world_, "reading the first samples", [&] {
      loader.in_order({});
      if (auto batch = loader.next()) read = std::move(*batch);
    });
    if (read.empty()) return most;  // no sample can be read: predict() says so
    const auto run = [&](int64_t size) {
      const at::NoGradGuard no_grad;
      Inputs inputs;
      for (const auto& [name, tensor] : read) {
        const auto rows = at::arange(size, at::TensorOptions(at::kLong).device(tensor.device())) % tensor.size(0);
        inputs.emplace_back(name, tensor.index_select(0, rows));
      }
      for (const auto& [_, output] : network_(inputs, size, [] { return "the first samples"; })) output.cpu();
    };
    is_found_ = true;
    // A batch of one sample is often not in the range for which a program was exported.
    const int64_t least = network_.model().is_compiled ? 2 : 1;
    return find_batch_size(world_, {.least = least, .most = std::max(least, most), .run = run});
  }

  const Request& request_;
  dist::World& world_;
  Network network_;
  std::shared_ptr<const Reader> reader_;
  bool is_found_ = false;     ///< The batch size was found by trying.
  bool is_complete_ = false;  ///< An earlier run has written the file.
};

void infer_all(const Request& request, const OpenModel& open) {
  train::keep_freed_memory();
  dist::World world;
  std::optional<Network> network;
  std::shared_ptr<const Reader> reader;
  dist::on_all_ranks(world, "opening the model and the input", [&] {
    network.emplace(request, open(request, world.device()), world.device());
    reader = open_reader(request, network->model());
  });
  Job job(request, world, std::move(*network), reader);
  const auto num_bad = reader->has_names() ? job.run<true>() : job.run<false>();
  const bool is_first = world.rank() == 0;
  world.shutdown();
  if (num_bad == 0 || !is_first) return;
  throw Error(ErrorCode::kDataLoss, "{} of {} samples could not be read; {} says so in their places", num_bad,
              reader->size(), printable(request.out.string()));
}

}  // namespace

int main_of(const std::vector<std::string>& words, const OpenModel& open) {
  return run_program("yoke infer", [&] {
    const auto request = request_of(words);
    infer_all(request, open);
  });
}

std::optional<int> main_of_recipe(int argc, char** argv, const NetworkOfCheckpoint& network) {
  if (argc < 2 || std::string_view(argv[1]) != kInferWord) return std::nullopt;
  return main_of({argv + 2, argv + argc}, [&](const Request& request, c10::Device device) {
    return network(open_checkpoint(request.model), device);
  });
}

}  // namespace yoke::infer
