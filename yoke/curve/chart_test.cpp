// Which metrics and axes a chart of recordings has.
#include "yoke/curve/chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/support/message_of.h"
#include "yoke/base/error.h"

namespace yoke::curve {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Curve of_steps(const std::string& metric) {
  Curve curve;
  curve.metric = metric;
  curve.steps = {1, 2};
  curve.values = {0.5, 0.25};
  return curve;
}

Curve of_times(const std::string& metric, double begin) {
  Curve curve = of_steps(metric);
  curve.steps.clear();
  curve.times = {begin, begin + 60};
  return curve;
}

Recording run(const std::string& name, std::vector<Curve> curves) { return {name, std::move(curves), {}}; }

std::vector<std::string> titles(const view::Chart& chart) {
  std::vector<std::string> result;
  for (const auto& panel : chart.panels) result.push_back(panel.title);
  return result;
}

TEST(CurveChart, DrawsTheFirstFourThatTellOfLearningUnlessMetricsAreNamed) {
  std::vector<Curve> curves;
  for (const char* name : {"seconds", "loss", "epoch/loss", "a", "b", "c", "d"}) curves.push_back(of_steps(name));
  const std::vector recordings = {run("runs/one", curves)};
  std::vector<std::string> notes;
  EXPECT_THAT(titles(chart_of({}, recordings, notes)), ElementsAre("loss", "a", "b", "c"));
  EXPECT_THAT(notes, ElementsAre("not drawn, choose with --metric: d"));
  notes.clear();
  EXPECT_EQ(chart_of({.all = true}, recordings, notes).panels.size(), 7U);
  EXPECT_THAT(titles(chart_of({.metrics = {"seconds"}}, recordings, notes)), ElementsAre("seconds"));
  EXPECT_THAT(notes, IsEmpty());
  EXPECT_THAT(test::message_of([&] { chart_of({.metrics = {"los"}}, recordings, notes); }, ErrorCode::kNotFound),
              HasSubstr("runs/one has no metric 'los' (did you mean `loss`?)"));
}

TEST(CurveChart, NamesRunsByTheirFoldersUnlessTwoAreEqual) {
  std::vector<std::string> notes;
  const auto names = [&](const std::string& one, const std::string& other) {
    const auto chart = chart_of({}, {run(one, {of_steps("loss")}), run(other, {of_steps("loss")})}, notes);
    return chart.panels[0].lines[0].name + " " + chart.panels[0].lines[1].name;
  };
  EXPECT_EQ(names("runs/a/", "runs/b"), "a b");
  EXPECT_EQ(names("x/a", "y/a"), "x/a y/a");
}

TEST(CurveChart, TakesTheFirstAxisThatAllHave) {
  std::vector<std::string> notes;
  auto both = of_steps("loss");
  both.times = {1.7e9, 1.7e9 + 30};
  const std::vector recordings = {run("a", {both}), run("b", {of_times("loss", 1.8e9)})};
  const auto panel = chart_of({}, recordings, notes).panels.at(0);
  EXPECT_EQ(panel.x_title, kTime);
  EXPECT_EQ(panel.lines[0].points.back().x, 30) << "since the first time of the run";
  EXPECT_EQ(panel.lines[1].points.back().x, 60);
  EXPECT_THAT(test::message_of([&] { chart_of({.x = "step"}, recordings, notes); }, ErrorCode::kInvalidArgument),
              HasSubstr("the metric 'loss' of b has no steps"));
  EXPECT_THAT(test::message_of(
                  [&] {
                    chart_of({}, {run("a", {of_steps("loss")}), recordings[1]}, notes);
                  },
                  ErrorCode::kInvalidArgument),
              HasSubstr("the runs have no common axis for the metric 'loss'"));
}

TEST(CurveChart, PrintsEveryValue) {
  std::vector<std::string> notes;
  const auto chart = chart_of({}, {run("a,b", {of_steps("loss")})}, notes);
  std::ostringstream csv, json;
  print_csv(chart, csv);
  EXPECT_EQ(csv.str(), "metric,run,axis,x,value\nloss,\"a,b\",step,1,0.5\nloss,\"a,b\",step,2,0.25\n");
  print_json(chart, json);
  EXPECT_THAT(json.str(), HasSubstr(R"("points": [[1, 0.5], [2, 0.25]])"));
}

}  // namespace
}  // namespace yoke::curve
