#include "yoke/launch/job/job.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "yoke/base/error.h"
#include "yoke/base/host.h"
#include "yoke/base/json.h"

namespace yoke::launch {
namespace {

JobRank* find_rank(std::vector<JobRank>& ranks, int64_t rank) {
  const auto found = std::ranges::find_if(ranks, [&](const JobRank& one) { return one.rank == rank; });
  return found == ranks.end() ? nullptr : &*found;
}

Json to_json(const StreamPlan& stream) {
  const auto* where = stream.is_piped() ? "screen" : stream.is_own ? "launcher" : "nowhere";
  return {{"to", where}, {"file", stream.file.empty() ? Json() : Json(stream.file)}};
}

StreamPlan parse_stream(const Json& object) {
  StreamPlan stream;
  const auto to = object.at("to").get<std::string>();
  stream.to = to == "nowhere" ? StreamPlan::To::kNowhere : StreamPlan::To::kLauncher;
  stream.is_own = to == "launcher";
  if (!object.at("file").is_null()) stream.file = object["file"];
  return stream;
}

Json to_json(const JobRank& rank) {
  const bool has_ended = rank.wait_status.has_value();
  const bool by_signal = has_ended && WIFSIGNALED(*rank.wait_status);
  const auto* state = rank.pid == 0 ? "starting" : !has_ended ? "running" : by_signal ? "killed" : "exited";
  return {{"rank", rank.rank},
          {"local_rank", rank.local_rank},
          {"host", rank.host},
          {"pid", rank.pid == 0 ? Json() : Json(rank.pid)},
          {"state", state},
          {"exit_code", has_ended && !by_signal ? Json(WEXITSTATUS(*rank.wait_status)) : Json()},
          {"signal", by_signal ? Json(WTERMSIG(*rank.wait_status)) : Json()},
          {"stdout", to_json(rank.out)},
          {"stderr", to_json(rank.err)},
          {"prefix", rank.prefix}};
}

/// Returns a member that counts something. Errors  kDataLoss: no job has such a number.
int64_t count_of(const Json& object, const char* key, int64_t least = 0) {
  constexpr int64_t kMost = 1'000'000'000'000;
  const auto& value = object.at(key);
  if (value.is_number_integer() && value.get<int64_t>() >= least && value.get<int64_t>() <= kMost) return value;
  throw Error(ErrorCode::kDataLoss, "{} is {}, which no job has", key, value.dump());
}

JobRank parse_rank(const Json& object) {
  JobRank rank{
      .rank = count_of(object, "rank"), .local_rank = count_of(object, "local_rank"), .host = object.at("host")};
  if (!object.at("pid").is_null()) rank.pid = count_of(object, "pid", 1);
  if (!object.at("exit_code").is_null()) rank.wait_status = W_EXITCODE(object["exit_code"].get<int>(), 0);
  if (!object.at("signal").is_null()) rank.wait_status = W_EXITCODE(0, object["signal"].get<int>());
  rank.out = parse_stream(object.at("stdout"));
  rank.err = parse_stream(object.at("stderr"));
  rank.prefix = object.at("prefix");
  return rank;
}

}  // namespace

void Job::begin_attempt(const std::vector<RankPlan>& plans, int64_t restart_count) {
  num_restarts = restart_count;
  ranks.clear();
  for (const auto& plan : plans) {
    ranks.push_back({.rank = plan.rank,
                     .local_rank = plan.local_rank,
                     .host = host,
                     .out = plan.out,
                     .err = plan.err,
                     .prefix = plan.prefix});
  }
}

void Job::on_started(int64_t rank, int64_t rank_pid) {
  if (auto* found = find_rank(ranks, rank)) found->pid = rank_pid, found->wait_status.reset();
}

void Job::on_exited(int64_t rank, int wait_status) {
  if (auto* found = find_rank(ranks, rank)) found->wait_status = wait_status;
}

int64_t Job::num_up() const {
  return std::ranges::count_if(ranks, [](const JobRank& rank) { return rank.is_up(); });
}

Job describe_job(const LaunchSpec& spec) {
  std::error_code no_folder;  // the folder may have been removed
  return {.pid = getpid(),
          .name = spec.name,
          .run_id = spec.run_id,
          .has_random_id = spec.has_random_id,
          .argv = spec.argv,
          .folder = std::filesystem::current_path(no_folder).native(),
          .host = host_name(),
          .started_at = std::chrono::system_clock::now(),
          .num_ranks = spec.num_ranks,
          .restarts = spec.restarts};
}

Json to_json(const Job& job) {
  Json object = {{"pid", job.pid},
                 {"name", job.name},
                 {"run_id", job.run_id},
                 {"has_random_id", job.has_random_id},
                 {"argv", job.argv},
                 {"folder", job.folder},
                 {"host", job.host},
                 {"started_at_seconds", std::chrono::duration<double>(job.started_at.time_since_epoch()).count()},
                 {"num_ranks", job.num_ranks},
                 {"world_size", job.world_size > 0 ? job.world_size : job.num_ranks},
                 {"num_up", job.num_up()},
                 {"num_restarts", job.num_restarts},
                 {"max_restarts", job.restarts.num},
                 {"restart_steps", job.restarts.num_steps},
                 {"is_stopping", job.is_stopping},
                 {"ranks", Json::array()}};
  for (const auto& rank : job.ranks) object["ranks"].push_back(to_json(rank));
  return object;
}

Job parse_job(const Json& object) {
  const std::chrono::duration<double> started(
      std::clamp(object.at("started_at_seconds").get<double>(), 0.0, 9e9));  // the range of system_clock
  Job job{.pid = object.at("pid"),
          .name = object.at("name"),
          .run_id = object.at("run_id"),
          .has_random_id = object.value("has_random_id", false),  // a launcher of an older yoke may answer
          .argv = object.at("argv"),
          .folder = object.at("folder"),
          .host = object.at("host"),
          .started_at = std::chrono::system_clock::time_point(
              std::chrono::duration_cast<std::chrono::system_clock::duration>(started)),
          .num_ranks = count_of(object, "num_ranks"),
          .num_restarts = count_of(object, "num_restarts"),
          .restarts = {count_of(object, "max_restarts"),
                       object.contains("restart_steps") ? count_of(object, "restart_steps") : 0},
          .is_stopping = object.at("is_stopping")};
  // A launcher of an older yoke has no world_size.
  const auto size = object.contains("world_size") ? count_of(object, "world_size", job.num_ranks) : job.num_ranks;
  if (size != job.num_ranks) job.world_size = size;
  for (const auto& rank : object.at("ranks")) job.ranks.push_back(parse_rank(rank));
  return job;
}

}  // namespace yoke::launch
