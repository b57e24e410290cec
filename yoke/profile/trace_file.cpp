#include "yoke/profile/trace_file.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/text.h"
#include "yoke/profile/trace_reader.h"

namespace yoke::profile {
namespace {

/// Returns 7 for `rank7.json` and for `rank-7.Jul_15.pt.trace.json`. Traces without distributedInfo often have such
/// names.
std::optional<int64_t> rank_of_name(const std::filesystem::path& path) {
  const auto name = path.filename().string();
  for (auto at = name.find("rank"); at != name.npos; at = name.find("rank", at)) {  // "frankfurt-1_rank7.json" has two
    at += 4;
    if (at < name.size() && (name[at] == '-' || name[at] == '_')) ++at;
    const auto digits = std::string_view(name).substr(at, name.find_first_not_of("0123456789", at) - at);
    if (const auto rank = parse_int(digits)) return rank;
  }
  return std::nullopt;
}

}  // namespace

Trace read_trace_file(const std::filesystem::path& path, const std::function<void(int64_t)>& progress) {
  const auto name = printable(path.string());
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) throw system_error(errno, name);
  const std::unique_ptr<gzFile_s, decltype(&gzclose)> file(gzdopen(fd.value(), "rb"), &gzclose);  // plain files too
  if (!file) throw Error(ErrorCode::kUnavailable, "{}: out of memory", name);
  fd.release();
  gzbuffer(file.get(), 64 << 10);
  const auto read = [&](std::span<char> buffer) -> size_t {
    const auto length = static_cast<unsigned>(std::min<size_t>(buffer.size(), 1 << 30));
    const int num_read = gzread(file.get(), buffer.data(), length);
    int error = Z_OK;
    const char* const why = gzerror(file.get(), &error);
    if (error == Z_ERRNO) throw system_error(errno, name);
    if (error != Z_OK && error != Z_BUF_ERROR && error != Z_STREAM_END) {  // Z_BUF_ERROR: the file is truncated
      throw Error(ErrorCode::kDataLoss, "{}: the compressed data are damaged ({}); copy or record it again", name, why);
    }
    const auto offset = gzoffset(file.get());  // -1 for a pipe
    if (progress) progress(offset >= 0 ? offset : gztell(file.get()));
    return num_read > 0 ? static_cast<size_t>(num_read) : 0;
  };
  auto trace = read_trace(read, name);
  if (!trace.rank || *trace.rank < 0) trace.rank = rank_of_name(path);
  return trace;
}

std::vector<std::filesystem::path> traces_in(const std::filesystem::path& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> traces;
  for (auto entry = std::filesystem::directory_iterator(folder, error); !error && entry != end(entry);
       entry.increment(error)) {
    const auto name = entry->path().filename().string();
    std::error_code is_gone;
    const bool has_ending = name.ends_with(".json") || name.ends_with(".json.gz");
    if (has_ending && name != kRunReport && entry->is_regular_file(is_gone)) traces.push_back(entry->path());
  }
  if (error) throw system_error(error.value(), printable(folder.string()));
  std::ranges::sort(traces);
  return traces;
}

std::vector<std::filesystem::path> find_traces(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return {path};
  auto traces = traces_in(path);
  if (!traces.empty()) return traces;
  if (std::filesystem::exists(path / "metrics.csv", error)) {
    throw Error(
        ErrorCode::kNotFound,
        "{}: there is no trace in this folder of a train::Run, and no {}, because the Run was not watched or no "
        "epoch had 65 steps",
        printable(path.string()), kRunReport);
  }
  throw Error(ErrorCode::kNotFound,
              "{}: there is no trace in this folder (*.json, *.json.gz); record one with `yoke profile --out`, or with "
              "torch.profiler",
              printable(path.string()));
}

}  // namespace yoke::profile
