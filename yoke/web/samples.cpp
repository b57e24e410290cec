#include "yoke/web/samples.h"

#include <utility>

#include "yoke/base/json_text.h"
#include "yoke/device/json.h"
#include "yoke/web/prometheus.h"

namespace yoke::web {
namespace {

constexpr std::string_view kHtml = "text/html; charset=utf-8", kJson = "application/json";

std::string to_text(const nlohmann::ordered_json& json) { return json_line(json) + "\n"; }

}  // namespace

const std::array<Resource, 7> kResources = {{
    {"/", kHtml, page},
    {"/live.html", kHtml, live_part},
    {"/day.html", kHtml, day_part},
    {"/api/state.json", kJson, [](const Machine& state, const History&) { return to_text(state_json(state)); }},
    {"/api/history.json", kJson,
     [](const Machine& state, const History& history) { return to_text(history.to_json(state.snapshot.time)); }},
    {"/devices.json", kJson,
     [](const Machine& state, const History&) { return to_text(device::to_json(state.snapshot)); }},
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8",
     [](const Machine& state, const History&) { return to_prometheus(state.snapshot, state.claims); }},
}};

std::optional<size_t> find_resource(std::string_view path) {
  for (size_t i = 0; i < kResources.size(); ++i) {
    if (kResources[i].path == path) return i;
  }
  return std::nullopt;
}

std::shared_ptr<const std::string> Sample::text(size_t resource, const History& history) {
  auto& text = texts[resource];
  if (!text) text = std::make_shared<std::string>(kResources[resource].make(state, history));
  return text;
}

Samples::Samples(std::function<Machine()> sample, std::chrono::milliseconds max_age,
                 std::function<void(std::function<void()>)> post)
    : sample_(std::move(sample)), max_age_(max_age), post_(std::move(post)), thread_([this] { work(); }) {}

void Samples::get(Callback callback) {
  if (waiting_.empty() && last_ && Sample::Clock::now() - last_->begun <= max_age_) return callback(last_.get());
  waiting_.push_back(std::move(callback));
  if (waiting_.size() > 1) return;
  const std::lock_guard lock(mutex_);
  is_wanted_ = true;
  changed_.notify_one();
}

void Samples::deliver(std::shared_ptr<Sample> sample) {
  last_ = std::move(sample);
  if (last_) history_.add(last_->state.snapshot);
  for (const auto& callback : std::exchange(waiting_, {})) callback(last_.get());
}

void Samples::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return is_wanted_ || is_stopped_; });
    if (is_stopped_) return;
    is_wanted_ = false;
    lock.unlock();
    std::shared_ptr<Sample> sample;
    try {
      const auto begun = Sample::Clock::now();
      sample = std::make_shared<Sample>(Sample{.state = sample_(), .begun = begun});
    } catch (const std::exception&) {  // waiting requests get an error, and the next request tries again
    }
    post_([this, sample] { deliver(sample); });
    lock.lock();
  }
}

void Samples::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  waiting_.clear();
}

}  // namespace yoke::web
