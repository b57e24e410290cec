#include "yoke/curve/recording.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <optional>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/format.h"
#include "yoke/base/sysfs.h"
#include "yoke/base/text.h"

namespace yoke::curve {
namespace {

namespace fs = std::filesystem;

/// The files in a run's folder that contain values.
struct Sources {
  std::vector<fs::path> steps, events, epochs;  ///< `steps` and `epochs` have at most one element.
  /// Event files in subfolders, by the subfolder's name. SummaryWriter.add_scalars("loss", {"train": x, "val": y})
  /// writes the tag `loss` into the subfolders `loss_train` and `loss_val`.
  std::map<std::string, std::vector<fs::path>> parts;

  std::vector<fs::path> all() const {
    auto files = steps;
    files.insert(files.end(), events.begin(), events.end());
    files.insert(files.end(), epochs.begin(), epochs.end());
    for (const auto& [_, more] : parts) files.insert(files.end(), more.begin(), more.end());
    return files;
  }
};

bool has_event_name(const fs::path& path) { return path.filename().string().find("tfevents") != std::string::npos; }

std::vector<fs::path> event_files_of(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code ignored;
  for (auto& path : entries_of(folder)) {
    if (has_event_name(path) && fs::is_regular_file(path, ignored)) files.push_back(std::move(path));
  }
  return files;
}

Sources sources_of(const fs::path& run) {
  Sources sources;
  std::error_code ignored;
  for (const auto* name : {"steps.jsonl", "trainer_state.json"}) {
    if (sources.steps.empty() && fs::is_regular_file(run / name, ignored)) sources.steps = {run / name};
  }
  if (fs::is_regular_file(run / "metrics.csv", ignored)) sources.epochs = {run / "metrics.csv"};
  for (const auto& folder : {run, run / "events"}) {
    const auto files = event_files_of(folder);
    if (files.empty()) continue;
    sources.events.insert(sources.events.end(), files.begin(), files.end());
    for (const auto& path : entries_of(folder)) {
      if (path == run / "events" || !fs::is_directory(path, ignored)) continue;
      if (auto more = event_files_of(path); !more.empty()) sources.parts[path.filename().string()] = std::move(more);
    }
  }
  return sources;
}

/// Returns whether `folder` is one that add_scalars makes for the metric.
bool is_part_of(const std::string& folder, std::string metric) {
  std::ranges::replace(metric, '/', '_');
  return folder.starts_with(metric + "_");
}

/// Chooses the parser of a file by the file's name and first bytes.
std::unique_ptr<Parser> parser_for(const fs::path& file, std::string_view bytes, Log& log) {
  if (has_event_name(file) || EventParser::is_event_file(bytes)) return std::make_unique<EventParser>(log);
  if (bytes.starts_with("\xff\xfe") || bytes.starts_with("\xfe\xff")) {
    throw Error(ErrorCode::kDataLoss, "{} is text in UTF-16; save it as UTF-8", printable(file.string()));
  }
  if (bytes.find('\0') != bytes.npos) {
    throw Error(ErrorCode::kDataLoss,
                "{} holds none of what `yoke curve` reads: CSV with a header, JSON lines, or TensorBoard's events",
                printable(file.string()));
  }
  bytes.remove_prefix(
      std::min(bytes.find_first_not_of(" \t\r\n\xef\xbb\xbf"), bytes.size()));  // a byte order mark, too
  if (bytes.starts_with('{') || bytes.starts_with('[')) {
    const auto rest = bytes.substr(std::min(bytes.find_first_not_of(" \t\r", 1), bytes.size()));
    const auto next = rest.find_first_not_of(" \t\r\n");
    const bool is_array = bytes[0] == '[', begins_object = next != rest.npos && rest[next] == '{';
    if (is_array ? begins_object : rest.starts_with('\n')) return std::make_unique<JsonDocumentParser>(log);
    if (!is_array) return std::make_unique<JsonLinesParser>(log);
  }
  return std::make_unique<CsvParser>(log);
}

/// Adds the values of `file` to `log`. If records cannot be read, adds a note about them to `notes`.
void read_values(const fs::path& file, Log& log, std::vector<std::string>& notes) {
  constexpr size_t kPieceBytes = size_t{4} << 20;
  const UniqueFd fd(open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) throw system_error(errno, "reading " + printable(file.string()));
  std::unique_ptr<Parser> parser;
  std::string bytes;
  for (bool is_end = false; !is_end;) {
    const auto length = bytes.size();
    bytes.resize(length + kPieceBytes);
    const auto count = read(fd.value(), bytes.data() + length, kPieceBytes);
    if (count < 0 && errno != EINTR) throw system_error(errno, "reading " + printable(file.string()));
    bytes.resize(length + static_cast<size_t>(std::max<ssize_t>(count, 0)));
    if (count < 0) continue;
    is_end = count == 0;
    if (!parser) parser = parser_for(file, bytes, log);
    bytes.erase(0, parser->take(bytes, is_end));
  }
  if (!parser->first_doubt().empty()) {
    notes.push_back(fmt::format("{}: {}", printable(file.string()), parser->first_doubt()));
  }
  if (parser->num_damaged() == 0) return;
  notes.push_back(fmt::format("{}: {} could not be read{}{}", printable(file.string()),
                              counted(parser->num_damaged(), "record"),
                              parser->num_damaged() == 1 ? ": " : "; the first: ", parser->first_damage()));
}

std::vector<Curve> read_all(const std::vector<fs::path>& files, std::vector<std::string>& notes) {
  Log log;
  for (const auto& file : files) read_values(file, log, notes);
  log.finish();
  return std::move(log.curves());
}

[[noreturn]] void refuse_folder(const fs::path& folder) {
  std::vector<std::string> runs;
  for (const auto& path : entries_of(folder)) {
    if (runs.size() < 3 && !sources_of(path).all().empty()) runs.push_back(printable(path.string()));
  }
  throw Error(ErrorCode::kNotFound, "{} holds neither steps.jsonl nor metrics.csv nor event files of TensorBoard; {}",
              printable(folder.string()),
              runs.empty() ? "give the folder of a run, or a file"
                           : fmt::format("give the folders of runs in it, such as {}", fmt::join(runs, " ")));
}

}  // namespace

Recording read_run(const fs::path& run) {
  std::error_code error;
  const auto status = fs::status(run, error);
  if (status.type() == fs::file_type::not_found) {
    throw Error(ErrorCode::kNotFound, "there is no run {}: no such file or folder", printable(run.string()));
  }
  Recording recording{.run = run.string()};
  if (status.type() != fs::file_type::directory) {
    recording.curves = read_all({run}, recording.notes);
    return recording;
  }
  const auto sources = sources_of(run);
  if (sources.all().empty()) refuse_folder(run);
  const auto has = [&](std::string_view metric) {
    return std::ranges::any_of(recording.curves, [&](const Curve& curve) { return curve.metric == metric; });
  };
  const auto add = [&](Curve curve) {
    if (!has(curve.metric)) recording.curves.push_back(std::move(curve));
  };
  for (auto& curve : read_all(sources.steps, recording.notes)) add(std::move(curve));
  for (auto& curve : read_all(sources.events, recording.notes)) add(std::move(curve));
  for (const auto& [folder, files] : sources.parts) {
    for (auto& curve : read_all(files, recording.notes)) {
      if (!is_part_of(folder, curve.metric)) continue;  // another run, or hyperparameters
      curve.metric = folder;
      add(std::move(curve));
    }
  }
  for (auto& curve : read_all(sources.epochs, recording.notes)) {
    const auto mean = "epoch/" + curve.metric;
    // The means in metrics.csv replace those of event files, because only metrics.csv contains the epoch of each mean.
    std::erase_if(recording.curves, [&](const Curve& other) { return other.metric == mean; });
    if (has(curve.metric)) curve.metric = mean;
    add(std::move(curve));
  }
  return recording;
}

fs::path newest_run(const fs::path& folder) {
  std::optional<fs::file_time_type> newest;
  fs::path result;
  for (const auto& path : entries_of(folder)) {
    for (const auto& file : sources_of(path).all()) {
      std::error_code error;
      const auto time = fs::last_write_time(file, error);
      if (error || (newest && time <= *newest)) continue;
      newest = time;
      result = path;
    }
  }
  if (newest) return result;
  std::error_code ignored;
  throw Error(ErrorCode::kNotFound, "there is no {} {}; give the folder of a run, as in `yoke curve FOLDER`",
              fs::is_directory(folder, ignored) ? "run in the folder" : "folder", printable(folder.string()));
}

}  // namespace yoke::curve
