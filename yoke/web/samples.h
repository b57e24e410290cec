// yoke/web/samples.h -- what the server has, by path, and one sample of the machine for all requests that are waiting.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "yoke/web/page.h"

namespace yoke::web {

struct Resource {
  std::string_view path, type;
  std::string (*make)(const Machine&, const History&);  ///< Pure.
};
extern const std::array<Resource, 7> kResources;

/// The position in kResources; nullopt if there is no such path.
std::optional<size_t> find_resource(std::string_view path);

/// The state of the machine and the texts made from it. Each text is made when it is first used, and all responses
/// share it.
struct Sample {
  using Clock = std::chrono::steady_clock;

  Machine state;
  Clock::time_point begun;
  std::array<std::shared_ptr<const std::string>, kResources.size()> texts = {};

  /// `resource` is a position in kResources. `history` ends with this sample.
  std::shared_ptr<const std::string> text(size_t resource, const History& history);
};

/// Its members are called on one thread, the owner's. A second thread takes the samples.
class Samples {
 public:
  /// Called with a sample that is not older than `max_age`, or with null if none could be taken.
  using Callback = std::function<void(Sample*)>;

  /// `post` can be called on any thread, and runs a function on the owner's thread.
  Samples(std::function<Machine()> sample, std::chrono::milliseconds max_age,
          std::function<void(std::function<void()>)> post);
  Samples(const Samples&) = delete;
  Samples& operator=(const Samples&) = delete;
  ~Samples() { stop(); }

  /// Calls `callback` one time: immediately if the last sample is recent enough, else when the next one is ready.
  void get(Callback callback);

  /// Every sample that was taken.
  const History& history() const { return history_; }

  /// Waits for the sample that is being taken, if any, and starts no other one. Drops waiting callbacks.
  void stop();

 private:
  void work();
  void deliver(std::shared_ptr<Sample> sample);

  const std::function<Machine()> sample_;
  const std::chrono::milliseconds max_age_;
  const std::function<void(std::function<void()>)> post_;
  std::shared_ptr<Sample> last_;
  History history_;
  std::vector<Callback> waiting_;  ///< Not empty while a sample is being taken.

  std::mutex mutex_;  ///< Protects the members below.
  std::condition_variable changed_;
  bool is_wanted_ = false;
  bool is_stopped_ = false;
  std::thread thread_;
};

}  // namespace yoke::web
