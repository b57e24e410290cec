#include "yoke/launch/node/wire.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "yoke/base/error.h"

namespace yoke::launch {
namespace {

NodeEvent event_at(std::chrono::system_clock::time_point time) {
  return {.kind = NodeEvent::Kind::kReport,
          .rank = 3,
          .report = ErrorReport{
              .message = "Error: no", .time = time, .cause = {{1, 2}, "had not come", FailureCause::Kind::kEnded}}};
}

TEST(Wire, ReportsArriveAsTheyWereSent) {
  const auto time = std::chrono::system_clock::time_point(std::chrono::seconds(1'790'000'000));
  const auto event = to_event(to_json(event_at(time)));
  EXPECT_EQ(event.rank, 3);
  EXPECT_EQ(event.report->message, "Error: no");
  EXPECT_EQ(event.report->time, time);
  EXPECT_EQ(event.report->cause, (FailureCause{{1, 2}, "had not come", FailureCause::Kind::kEnded}));
}

// Otherwise the ranks of a host whose clock is late would seem to have failed first.
TEST(Wire, TimesAreThoseOfTheReceiversClock) {
  const auto time = std::chrono::system_clock::time_point(std::chrono::seconds(1'790'000'000));
  for (const int64_t ahead : {-7200, 7200}) {
    auto message = to_json(event_at(time + std::chrono::seconds(ahead)));
    message["report"]["sent_at"] = message["report"]["sent_at"].get<int64_t>() + ahead;
    const auto error = to_event(message).report->time - time;
    EXPECT_LE(std::chrono::abs(error), std::chrono::seconds(60)) << ahead;
  }
  auto message = to_json(event_at({}));
  message["report"]["sent_at"] = 0;
  EXPECT_EQ(to_event(message).report->time, std::chrono::system_clock::time_point()) << "a report without a time";
}

TEST(Wire, TheStepThatALostRankHasKeptArrives) {
  NodeEvent event{.kind = NodeEvent::Kind::kExited, .rank = 3, .value = 9};
  EXPECT_EQ(to_event(to_json(event)).kept_step, std::nullopt);
  for (const int64_t step : {0, 7}) {
    event.kept_step = step;
    EXPECT_EQ(to_event(to_json(event)).kept_step, step);
  }
}

TEST(Wire, ANodeThatTakesALostOnesPlaceIsToldSo) {
  NodePlace place{.node_rank = 1, .has_spares = true, .first_replacement = 4};
  place = to_place(to_json(place));
  EXPECT_TRUE(place.has_spares);
  EXPECT_EQ(place.first_replacement, 4);
}

TEST(Wire, ANodeSaysHowManyRanksMayBeReplacedAndHowManySparesThereAre) {
  const NodeEvent event{.kind = NodeEvent::Kind::kReady,
                        .info = NodeInfo{.host = "b", .replacements = 3, .num_spares = 2}};
  auto message = to_json(event);
  EXPECT_EQ(to_event(message).info->replacements, 3);
  EXPECT_EQ(to_event(message).info->num_spares, 2);
  message["info"]["protocol"] = kProtocol - 1;
  EXPECT_THROW(to_event(message), Error) << "an agent that replaces no ranks";
}

}  // namespace
}  // namespace yoke::launch
