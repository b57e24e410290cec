
#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "yoke/base/command_output.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/container/helper.h"
#include "yoke/container/image.h"
#include "yoke/container/packages.h"

namespace yoke::container {
namespace {

constexpr const char* kReaderInside = "/opt/yoke/packages";
constexpr size_t kMaxReadAtOnce = 8;  // a container needs few processor-seconds and waits for disks

/// Finds each engine once, because that starts several programs.
class Engines {
 public:
  Engines(EngineWish wish, const Environment& environment) : wish_(std::move(wish)), environment_(environment) {}

  /// Errors  those of choose_engine().
  const Engine& for_image(const std::string& image) {
    const std::lock_guard lock(mutex_);
    auto& engine = engines_[names_file(image)];
    wish_.image = image;
    if (!engine) engine = choose_engine(wish_, environment_);
    return *engine;
  }

 private:
  EngineWish wish_;
  const Environment& environment_;
  std::mutex mutex_;
  std::map<bool, std::optional<Engine>> engines_;
};

ImagePackages read_image(const std::string& given, Engines& engines, const ReadOptions& options,
                         const Environment& environment) {
  const auto full = full_image_name(given);
  const auto& engine = engines.for_image(full);
  const auto image = image_for(engine.kind, full);
  const bool is_local = engine.kind == EngineKind::kApptainer ? image.find("://") == image.npos
                                                              : find_image(engine, image, environment).has_value();
  if (!is_local) {
    throw Error(ErrorCode::kNotFound, "it is not on this machine; `{} pull {}` downloads it", name(engine.kind),
                printable(image));
  }
  const auto client = plan_helper(engine, {.image = image,
                                           .program = {kReaderInside},
                                           .mounts = {{options.reader, kReaderInside, true}},
                                           .network = "none",
                                           .only_reads = true});
  const auto output = run_quietly(client.argv, client.environment(environment));
  if (output.status == 0) return parse_packages(given, output.out);
  const auto reason = reason_in(output.err);
  throw Error(ErrorCode::kUnavailable, "{} ended with status {}: {}", name(engine.kind), output.status,
              reason.empty() ? "it printed nothing" : printable(reason));
}

}  // namespace

std::vector<ImagePackages> read_packages(const std::vector<std::string>& images, const ReadOptions& options,
                                         const Environment& environment) {
  Engines engines(options.engine, environment);
  std::vector<ImagePackages> results(images.size());
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  size_t num_read = 0;
  const auto work = [&] {
    for (auto i = next++; i < images.size(); i = next++) {
      try {
        results[i] = read_image(images[i], engines, options, environment);
      } catch (const std::exception& error) {
        results[i] = {.image = images[i], .error = error.what(), .pythons = {}, .packages = {}};
      }
      const std::lock_guard lock(mutex);
      ++num_read;
      if (options.on_read) options.on_read(num_read);
    }
  };
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < std::min(images.size(), kMaxReadAtOnce); ++i) threads.emplace_back(work);
  threads.clear();  // waits for their end
  return results;
}

}  // namespace yoke::container
