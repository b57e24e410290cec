#include <algorithm>
#include <fstream>

#include "yoke/base/error.h"
#include "yoke/device/json.h"
#include "yoke/device/source.h"

namespace yoke::device {
namespace {

class ReplaySource : public Source {
 public:
  explicit ReplaySource(std::vector<Snapshot> snapshots) : snapshots_(std::move(snapshots)) {}

  Snapshot sample(const Want& /*want*/) override {
    const auto number = std::min(next_++, snapshots_.size() - 1);
    return snapshots_[number];
  }

 private:
  const std::vector<Snapshot> snapshots_;
  size_t next_ = 0;
};

}  // namespace

std::unique_ptr<Source> make_replay_source(const std::filesystem::path& file) {
  if (std::filesystem::is_directory(file)) {
    throw Error(ErrorCode::kNotFound, "recording {}: it is a folder; give a file", file.string());
  }
  std::ifstream stream(file);
  if (!stream) throw Error(ErrorCode::kNotFound, "recording {}: cannot be read", file.string());
  std::vector<Snapshot> snapshots;
  std::string line;
  for (int64_t number = 1; std::getline(stream, line); ++number) {
    if (line.empty()) continue;
    try {
      snapshots.push_back(snapshot_from_json(line));
    } catch (const Error& error) {
      throw Error(error.code(), "recording {}, line {}: {}", file.string(), number, error.what());
    }
  }
  if (snapshots.empty()) {
    throw Error(ErrorCode::kDataLoss, "recording {} is empty; make one with `yoke devices --record FILE`",
                file.string());
  }
  return std::make_unique<ReplaySource>(std::move(snapshots));
}

}  // namespace yoke::device
