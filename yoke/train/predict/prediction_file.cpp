#include "yoke/train/predict/prediction_file.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/json_text.h"
#include "yoke/train/predict/detail/prediction_format.h"

namespace yoke::train {
namespace {

namespace fs = std::filesystem;

constexpr auto kProgressFormat = "yoke-predictions";
constexpr int kProgressVersion = 1;

std::unique_ptr<detail::PredictionFormat> format_for(const fs::path& path) {
  const auto extension = path.extension().string();
  if (extension == ".jsonl") return detail::json_lines_format();
  if (extension == ".csv") return detail::csv_format();
  if (extension == ".npy") return detail::npy_format();
  if (extension == ".safetensors") return detail::safetensors_format();
  throw Error(ErrorCode::kInvalidArgument,
              "predictions in {}: the extension '{}' is none of .jsonl, .csv, .npy and .safetensors", path.string(),
              extension);
}

/// What of the file is finished.
struct Finished {
  int64_t num_samples = 0;
  int64_t num_bytes = 0;
  std::optional<std::vector<detail::OutputForm>> forms;  // unknown until a sample could be read
  std::vector<BadSample> bad;
};

nlohmann::ordered_json to_json(const Finished& finished, const PredictedSource& source, const std::string& identity) {
  nlohmann::ordered_json json = {{"format", kProgressFormat},         {"version", kProgressVersion},
                                 {"num_samples", source.num_samples}, {"samples", finished.num_samples},
                                 {"bytes", finished.num_bytes},       {"identity", identity}};
  if (finished.forms) {
    json["outputs"] = nlohmann::ordered_json::array();
    for (const auto& form : *finished.forms) {
      json["outputs"].push_back({{"name", form.name}, {"dtype", c10::toString(form.dtype)}, {"shape", form.shape}});
    }
  }
  json["bad"] = nlohmann::ordered_json::array();
  for (const auto& bad : finished.bad) {
    json["bad"].push_back({{"sample", bad.sample}, {"name", bad.name}, {"error", bad.error}});
  }
  return json;
}

at::ScalarType dtype_named(const std::string& name) {
  for (int8_t i = 0; i < static_cast<int8_t>(at::ScalarType::NumOptions); ++i) {
    if (name == c10::toString(static_cast<at::ScalarType>(i))) return static_cast<at::ScalarType>(i);
  }
  throw std::runtime_error("the dtype " + name + " is unknown");
}

/// Throws any exception if `json` is not one of to_json().
Finished finished_of(const nlohmann::ordered_json& json) {
  if (json.at("format") != kProgressFormat || json.at("version") != kProgressVersion) {
    throw std::runtime_error("its format is another one");
  }
  Finished finished{.num_samples = json.at("samples"), .num_bytes = json.at("bytes"), .forms = {}, .bad = {}};
  if (json.contains("outputs")) {
    finished.forms.emplace();
    for (const auto& form : json["outputs"]) {
      finished.forms->push_back({form.at("name"), dtype_named(form.at("dtype")), form.at("shape")});
    }
  }
  for (const auto& bad : json.at("bad")) finished.bad.push_back({bad.at("sample"), bad.at("error"), bad.at("name")});
  return finished;
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// Opens the file that is being written. Another process may finish it at this moment, and give it its other name.
UniqueFd open_locked(const fs::path& path) {
  while (true) {
    UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (!fd) throw system_error(errno, "opening " + path.string());
    if (flock(fd.value(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) throw system_error(errno, "locking " + path.string());
      throw Error(ErrorCode::kUnavailable, "another process writes {}; wait for it, or choose another file",
                  path.string());
    }
    struct stat opened {
    }, named{};
    if (fstat(fd.value(), &opened) == 0 && stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino) return fd;
  }
}

}  // namespace

struct PredictionFile::Impl {
  const fs::path path, partial, progress;
  const PredictionFileOptions options;
  const std::unique_ptr<detail::PredictionFormat> format;

  PredictedSource source;
  UniqueFd fd;  // open from begin() to finish()
  detail::PredictionBytes file;
  Finished finished;
  int64_t num_saved = 0;  // of finished.num_samples
  Clock::time_point last_save;
  bool is_begun = false;  // begin() has read what an earlier run has left

  Impl(const fs::path& to, const PredictionFileOptions& given)
      : path(to),
        partial(to.string() + ".partial"),
        progress(to.string() + ".progress"),
        options(given),
        format(format_for(to)) {}

  void remove_progress() const {
    std::error_code error;
    fs::remove(progress, error);
    if (error) throw system_error(error.value(), "removing " + progress.string());
  }

  Finished read_progress() const {
    const auto text = read_file(progress);
    const auto refuse = [&](ErrorCode code, const std::string& why) {
      throw Error(code, "{}: {}; remove it and {} to begin again", progress.string(), why, partial.string());
    };
    Finished result;
    nlohmann::ordered_json json;
    try {
      json = nlohmann::ordered_json::parse(text);
      result = finished_of(json);
    } catch (const std::exception& error) {
      refuse(ErrorCode::kDataLoss, fmt::format("it does not say how far the predictions are ({})", error.what()));
    }
    if (const int64_t before = json.value("num_samples", int64_t{-1}); before != source.num_samples) {
      refuse(ErrorCode::kInvalidArgument,
             fmt::format("the run to resume had {} samples, and this one has {}", before, source.num_samples));
    }
    if (const auto before = json.value("identity", std::string()); before != options.identity) {
      refuse(ErrorCode::kInvalidArgument,
             fmt::format("the run to resume was of '{}', and this one is of '{}'", before, options.identity));
    }
    struct stat status {};
    if (fstat(fd.value(), &status) != 0) throw system_error(errno, "reading " + partial.string());
    if (result.num_samples < 0 || result.num_samples > source.num_samples || status.st_size < result.num_bytes) {
      refuse(
          ErrorCode::kDataLoss,
          fmt::format("it says that {} of {} samples and {} bytes are written, and {} has {} bytes", result.num_samples,
                      source.num_samples, result.num_bytes, partial.filename().string(), status.st_size));
    }
    return result;
  }

  void begin() {
    std::error_code ignored;
    if (path.has_parent_path()) fs::create_directories(path.parent_path(), ignored);  // opening reports what is wrong
    if (options.resume && is_there(path) && !is_there(partial)) {
      remove_progress();  // a run was killed between its last two steps
      finished.num_samples = source.num_samples;
      return;
    }
    fd = open_locked(partial);
    file = {.fd = fd.value(), .path = partial.string()};
    if (options.resume && is_there(progress)) {
      finished = read_progress();
    } else {
      remove_progress();
    }
    if (ftruncate(fd.value(), finished.num_bytes) != 0) throw system_error(errno, "writing " + partial.string());
    file.num_appended = finished.num_bytes;
    num_saved = finished.num_samples;
    if (finished.forms || !format->is_fixed())
      format->lay_out(source, finished.forms.value_or(std::vector<detail::OutputForm>()));
    last_save = Clock::now();
    is_begun = true;
  }

  /// Removes a file without a sample, which would only stand in the way of the next run.
  void remove_if_empty() const {
    std::error_code ignored;
    if (fd && is_begun && finished.num_samples == 0) fs::remove(partial, ignored);
  }

  /// Learns what the outputs are. Errors  kInvalidArgument: they do not fit.
  void lay_out(Finished& next, const std::vector<detail::OutputForm>& forms) {
    try {
      format->lay_out(source, forms);
    } catch (const Error& error) {
      throw Error(error.code(), "predictions in {}: {}", path.string(), error.what());
    }
    format->write_head(file);
    format->write_bad(file, next.bad);
    next.forms = forms;
  }

  void take(const Predictions& part) {
    auto next = finished;
    auto written = part;
    written.outputs = format->converted(part.outputs);
    if (format->is_fixed() && !part.samples.empty()) {
      const auto forms = detail::forms_of(written.outputs);
      if (!next.forms) lay_out(next, forms);
      if (*next.forms != forms) {
        throw Error(
            ErrorCode::kInvalidArgument,
            "predictions in {}: the outputs for sample {} are {}, and those before {}: a {} file has the same for "
            "all samples; a .jsonl file takes these",
            path.string(), part.first_sample, detail::describe_forms(forms), detail::describe_forms(*next.forms),
            path.extension().string());
      }
    }
    if (next.forms || !format->is_fixed()) format->write(file, written);
    next.bad.insert(next.bad.end(), part.bad.begin(), part.bad.end());
    next.num_samples = part.first_sample + part.num_samples;
    next.num_bytes = file.num_appended;
    finished = std::move(next);
    if (Clock::now() - last_save >= options.save_every) save();
  }

  void save() {
    if (!fd || num_saved == finished.num_samples) return;
    if (fdatasync(fd.value()) != 0) throw system_error(errno, "writing " + partial.string());
    replace_file(progress, json_page(to_json(finished, source, options.identity)));
    num_saved = finished.num_samples;
    last_save = Clock::now();
  }

  void finish() {
    if (!fd) return;
    if (format->is_fixed() && !finished.forms) {
      if (!format->allows_no_forms()) {
        if (finished.bad.empty()) {
          throw Error(ErrorCode::kInvalidArgument, "predictions in {}: the source has no samples", path.string());
        }
        throw Error(ErrorCode::kDataLoss, "predictions in {}: none of the {} samples can be read; sample {} ({}): {}",
                    path.string(), source.num_samples, finished.bad[0].sample, finished.bad[0].name,
                    finished.bad[0].error);
      }
      lay_out(finished, {});
    }
    if (fsync(fd.value()) != 0 || rename(partial.c_str(), path.c_str()) != 0) {
      throw system_error(errno, "writing " + path.string());
    }
    const auto folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    if (const UniqueFd directory(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)); directory) {
      fsync(directory.value());  // otherwise a power failure might undo the rename
    }
    remove_progress();
    fd.reset();
  }
};

PredictionFile::PredictionFile(fs::path path, const PredictionFileOptions& options)
    : impl_(std::make_unique<Impl>(path, options)) {}

PredictionFile::~PredictionFile() {
  impl_->remove_if_empty();
  try {
    impl_->save();
  } catch (...) {  // a destructor cannot report this; a resumed run computes more again
  }
}

int64_t PredictionFile::begin(const PredictedSource& source) {
  if (impl_->fd) {
    throw Error(ErrorCode::kFailedPrecondition,
                "predictions in {}: they were begun already; make a PredictionFile for each", impl_->path.string());
  }
  impl_->source = source;
  impl_->finished = {};
  impl_->begin();
  return impl_->finished.num_samples;
}

void PredictionFile::take(const Predictions& part) { impl_->take(part); }
void PredictionFile::stop() { impl_->save(); }
void PredictionFile::finish() { impl_->finish(); }
std::vector<BadSample> PredictionFile::bad_before() const { return impl_->finished.bad; }

}  // namespace yoke::train
