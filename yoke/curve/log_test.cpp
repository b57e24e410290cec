#include "yoke/curve/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "yoke/base/file.h"

namespace yoke::curve {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::NanSensitiveDoubleEq;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Parsed {
  std::vector<Curve> curves;
  int64_t num_damaged = 0;
  std::string damage, doubt;

  const Curve& at(const std::string& metric) const {
    for (const auto& curve : curves) {
      if (curve.metric == metric) return curve;
    }
    throw std::out_of_range(metric);
  }
};

/// Passes the bytes to the parser in pieces of `size`, as a reader of a large file does.
template <class SomeParser>
Parsed parse(std::string_view bytes, size_t size = std::string_view::npos) {
  Log log;
  SomeParser parser(log);
  std::string rest;
  for (bool is_end = false; !is_end;) {
    is_end = bytes.empty();
    rest += bytes.substr(0, size);
    bytes.remove_prefix(std::min(size, bytes.size()));
    rest.erase(0, parser.take(rest, is_end));
  }
  log.finish();
  return {log.curves(), parser.num_damaged(), parser.first_damage(), parser.first_doubt()};
}

auto same(const std::vector<double>& values) { return testing::Pointwise(testing::NanSensitiveDoubleEq(), values); }

TEST(Csv, ReadsTheRowsOfARun) {
  const auto parsed = parse<CsvParser>(
      "epoch,loss,accuracy,samples_per_second,seconds\n"
      "1,0.750000,0.500000,1000,2.000\n"
      "2,nan,0.625000,1100,1.500\n"
      "3,0.25");  // a line that is still being written
  EXPECT_EQ(parsed.curves.size(), 4u);
  EXPECT_THAT(parsed.at("loss").values, same({0.75, kNaN}));
  EXPECT_THAT(parsed.at("loss").epochs, ElementsAre(1, 2));
  EXPECT_THAT(parsed.at("loss").times, ElementsAre(2, 3.5)) << "the time is the sum of the epochs' seconds";
  EXPECT_THAT(parsed.at("loss").steps, IsEmpty());
  EXPECT_THAT(parsed.at("seconds").values, ElementsAre(2, 1.5));
  EXPECT_EQ(parsed.num_damaged, 0);
}

TEST(Csv, ReadsWhatOthersWrite) {
  const auto parsed = parse<CsvParser>(
      "step,\"a \"\"b\"\", c\",time,val\r\n"
      "0,1e-3,10.5,\r\n"
      "\r\n"
      "10,-Infinity,11,+4\r\n"
      "20,x,12,5\r\n"
      "30,1\r\n"
      "40,1e999,13,1e-999\r\n");
  EXPECT_THAT(parsed.at("a \"b\", c").values, ElementsAre(1e-3, -HUGE_VAL, HUGE_VAL));
  EXPECT_THAT(parsed.at("a \"b\", c").steps, ElementsAre(0, 10, 40));
  EXPECT_THAT(parsed.at("val").values, ElementsAre(4, 5, 0)) << "an empty cell has no value";
  EXPECT_EQ(parsed.num_damaged, 2);
  EXPECT_EQ(parsed.damage, "line 5 has a cell that is not a number");
  EXPECT_THAT(parse<CsvParser>("loss\n3\n2\n").at("loss").steps, ElementsAre(0, 1)) << "rows are steps then";
}

TEST(Csv, ALastRowWithoutLineFeedCounts) {
  for (const size_t size : {std::string::npos, size_t{1}, size_t{7}}) {
    const auto parsed = parse<CsvParser>("epoch,accuracy,lr\n0,0.5,0.001\n1,0.6,0.002", size);
    EXPECT_THAT(parsed.at("accuracy").values, ElementsAre(0.5, 0.6));
    EXPECT_THAT(parsed.at("lr").values, ElementsAre(0.001, 0.002));
    EXPECT_THAT(parsed.doubt, HasSubstr("its last number may be incomplete"));
  }
  for (const std::string last :
       {"1,0.6", "1,0.6,", "1,0.6,1e-", "1,0.6,-"}) {  // a program is in the middle of writing it
    const auto parsed = parse<CsvParser>("epoch,accuracy,lr\n0,0.5,0.001\n" + last);
    EXPECT_THAT(parsed.at("lr").values, ElementsAre(0.001)) << last;
    EXPECT_EQ(parsed.num_damaged, 0) << last;
    EXPECT_EQ(parsed.doubt, "") << last;
  }
}

// A program that is started again appends to its file, and may have other columns then.
TEST(Csv, ASecondHeaderBeginsNewColumns) {
  const auto parsed =
      parse<CsvParser>("step,loss\n1,0.5\n2,0.4\nstep,acc,loss\n3,0.9,0.3\n4,0.95,0.2\nstep,loss\n5,0.1\n");
  EXPECT_THAT(parsed.at("loss").values, ElementsAre(0.5, 0.4, 0.3, 0.2, 0.1));
  EXPECT_THAT(parsed.at("loss").steps, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(parsed.at("acc").steps, ElementsAre(3, 4));
  EXPECT_EQ(parsed.num_damaged, 0) << parsed.damage;
  EXPECT_EQ(parse<CsvParser>("step,loss\n1,2\nx,y\n").num_damaged, 1) << "no known name";
}

TEST(Csv, KnowsOtherNamesOfPlaces) {
  const auto parsed = parse<CsvParser>("step,Global_Step,Epoch,_timestamp,loss\n0,10,1,1.7e9,0.5\n1,20,1,1.8e9,0.4\n");
  ASSERT_EQ(parsed.curves.size(), 1u) << "the step within an epoch is no metric";
  EXPECT_THAT(parsed.at("loss").steps, ElementsAre(10, 20));
  EXPECT_THAT(parsed.at("loss").epochs, ElementsAre(1, 1));
  EXPECT_THAT(parsed.at("loss").times, ElementsAre(1.7e9, 1.8e9));
}

TEST(Csv, ReadsCommentsAndOtherSeparators) {
  // stable-baselines3's Monitor writes monitor.csv in this way.
  const auto monitor =
      parse<CsvParser>("#{\"t_start\": 1700000000.5, \"env_id\": \"CartPole-v1\"}\nr,l,t\n20.0,20,1.5\n");
  EXPECT_THAT(monitor.at("r").values, ElementsAre(20));
  EXPECT_EQ(monitor.curves.size(), 3u);
  const auto numpy = parse<CsvParser>("# epoch,loss\n1,0.5\n2,0.25\n");  // numpy.savetxt(..., header="epoch,loss")
  EXPECT_THAT(numpy.at("loss").values, ElementsAre(0.5, 0.25));
  EXPECT_THAT(numpy.at("loss").epochs, ElementsAre(1, 2));
  EXPECT_THAT(parse<CsvParser>("epoch\tloss\n1\t0.5\n").at("loss").values, ElementsAre(0.5));
  EXPECT_THAT(parse<CsvParser>("epoch;loss\n1;0,5\n").at("loss").values, ElementsAre(0.5));
  EXPECT_THAT(parse<CsvParser>("epoch,loss\r1,0.5\r2,0.4\r").at("loss").epochs, ElementsAre(1, 2));
  const auto pandas = parse<CsvParser>(",epoch,loss\n0,1,0.5\n");
  EXPECT_EQ(pandas.curves.size(), 1u) << "the index has no name";
  const auto nameless = parse<CsvParser>("1,0.5\n2,0.25\n");
  EXPECT_THAT(nameless.at("column 2").values, ElementsAre(0.5, 0.25));
  EXPECT_THAT(nameless.doubt, HasSubstr("no header"));
}

TEST(Csv, ATextIsDamageOnlyAmongNumbers) {
  const auto parsed = parse<CsvParser>("epoch,note,loss\n1,good,0.5\n2,bad,tensor(0.4)\n3,x,0.3\n");
  EXPECT_THAT(parsed.at("loss").values, ElementsAre(0.5, 0.3));
  EXPECT_EQ(parsed.curves.size(), 1u);
  EXPECT_EQ(parsed.num_damaged, 1);
  EXPECT_EQ(parsed.damage, "line 3 has a cell that is not a number");
}

TEST(JsonDocument, HoldsTheObjects) {
  // What transformers' Trainer saves. Python writes NaN, which is not JSON.
  const std::string trainer = R"({
  "best_metric": null, "epoch": 1.0, "global_step": 20, "log_history": [
    {"epoch": 0.5, "loss": 1.25, "step": 10, "text": "NaN \" , NaN"},
    {"epoch": 1.0, "loss": NaN, "step": 20},
    {"epoch": 1.0, "eval_loss": 0.5, "step": 20}
  ]
})";
  for (const size_t size : {std::string::npos, size_t{7}}) {
    const auto parsed = parse<JsonDocumentParser>(trainer, size);
    ASSERT_EQ(parsed.curves.size(), 2u);
    EXPECT_THAT(parsed.at("loss").values, same({1.25, kNaN}));
    EXPECT_THAT(parsed.at("loss").steps, ElementsAre(10, 20));
    EXPECT_THAT(parsed.at("eval_loss").epochs, ElementsAre(1));
  }
  EXPECT_THAT(parse<JsonDocumentParser>(R"([{"_step": 3, "loss": 1}, {"_step": 4, "loss": 2}])").at("loss").steps,
              ElementsAre(3, 4));
  EXPECT_EQ(parse<JsonDocumentParser>(trainer.substr(0, 200)).damage, "it is not JSON, or not all of it");
  std::string deep = R"({"loss": 1, "step": 2)";
  constexpr int kDepth = 100'000;  // without a limit, this takes more than the stack
  for (int i = 0; i < kDepth; ++i) deep += R"(, "a": {"b": 1)";
  EXPECT_THAT(parse<JsonDocumentParser>(deep + std::string(kDepth + 1, '}')).at("loss").values, ElementsAre(1));
  EXPECT_THAT(parse<JsonLinesParser>("{\"log_history\": [{\"step\": 1, \"loss\": 2}]}\n").at("loss").values,
              ElementsAre(2));
}

TEST(JsonLines, ReadsNumbersAndNothingElse) {
  const std::string text = R"({"step": 0, "epoch": 1, "time": 10.5, "loss": 0.5, "phase": "train", "ok": true})"
                           "\n"
                           R"({"step":1,"epoch":1,"time":11,"loss":"NaN"})"
                           "\n\n"
                           R"({ "step" : 2 , "loss" : -Infinity , "lr" : null })"
                           "\n"
                           R"({"step": 3, "l\u006fss": 7, "nested": {"loss": 1}})"
                           "\n"
                           "not json\n"
                           R"({"step": 4, "loss": 1,})"
                           "\n"
                           R"({"step": 5, "loss": 0.25})"  // a complete object without a line feed
                           "";
  for (const size_t size : {std::string::npos, size_t{1}, size_t{7}, size_t{50}}) {
    const auto parsed = parse<JsonLinesParser>(text, size);
    ASSERT_EQ(parsed.curves.size(), 3u);
    EXPECT_THAT(parsed.at("nested/loss").values, ElementsAre(1));
    EXPECT_THAT(parsed.at("loss").values, same({0.5, kNaN, -HUGE_VAL, 7, 0.25}));
    EXPECT_THAT(parsed.at("loss").steps, ElementsAre(0, 1, 2, 3, 5));
    EXPECT_THAT(parsed.at("loss").times, same({10.5, 11, kNaN, kNaN, kNaN}));
    EXPECT_THAT(parsed.at("lr").values, same({kNaN}));
    EXPECT_THAT(parsed.at("lr").times, IsEmpty());
    EXPECT_EQ(parsed.num_damaged, 2);
    EXPECT_EQ(parsed.damage, "line 6 is not a JSON object");
  }
}

TEST(JsonLines, APartOfALineIsNoValue) {
  const std::string line = R"({"step": 12, "loss": 0.125})";
  for (size_t length = 0; length < line.size(); ++length) {
    const auto parsed = parse<JsonLinesParser>(line.substr(0, length));
    EXPECT_THAT(parsed.curves, IsEmpty()) << length;
    EXPECT_EQ(parsed.num_damaged, 0) << length;
  }
}

std::string events(const std::string& name) { return read_file(test::reference("events/" + name)); }

// Oracle: the values that TensorBoard 2.21 reads from files written by PyTorch 2.11 and by TensorBoard.
TEST(Events, AreWhatTensorBoardReads) {
  const auto expected = nlohmann::json::parse(events("scalars.json"));
  for (const auto& [writer, tags] : expected.items()) {
    for (const size_t size : {std::string::npos, size_t{5}}) {
      const auto parsed = parse<EventParser>(events("events.out.tfevents." + writer), size);
      EXPECT_EQ(parsed.num_damaged, 0) << parsed.damage;
      EXPECT_EQ(parsed.curves.size(), tags.size()) << "histograms, images and texts are no curves";
      for (const auto& [tag, points] : tags.items()) {
        const auto& curve = parsed.at(tag);
        ASSERT_EQ(curve.values.size(), points.size()) << tag;
        for (size_t i = 0; i < points.size(); ++i) {
          const auto& value = points[i][2];
          const double number = value == "NaN" ? kNaN : value == "Infinity" ? HUGE_VAL : value.get<double>();
          EXPECT_THAT(curve.values[i], NanSensitiveDoubleEq(number)) << tag;
          EXPECT_EQ(curve.steps[i], points[i][0].get<double>()) << tag;
          EXPECT_EQ(curve.times[i], points[i][1].get<double>()) << tag;
        }
      }
    }
  }
}

TEST(Events, AnIncompleteRecordIsLeftAndADamagedOneIsCounted) {
  const auto whole = events("events.out.tfevents.pytorch");
  const auto num_values = [](const Parsed& parsed) {
    size_t count = 0;
    for (const auto& curve : parsed.curves) count += curve.values.size();
    return count;
  };
  size_t before = 0;
  for (size_t length = 0; length <= whole.size(); length += 3) {
    const auto parsed = parse<EventParser>(whole.substr(0, length));
    EXPECT_EQ(parsed.num_damaged, 0) << length;
    EXPECT_GE(num_values(parsed), before);
    before = num_values(parsed);
  }
  EXPECT_EQ(num_values(parse<EventParser>(whole)), 20u);
  const auto place = whole.find("loss");
  auto content = whole, length = whole;
  content[place] ^= 1;
  const auto one_lost = parse<EventParser>(content);
  EXPECT_EQ(one_lost.num_damaged, 1);
  EXPECT_THAT(one_lost.damage, HasSubstr("the checksum of the record at byte "));
  EXPECT_EQ(num_values(one_lost), 19u);
  const auto first_bytes = 12 + static_cast<size_t>(whole[0]) + 4;
  length[first_bytes] ^= 1;
  const auto all_lost = parse<EventParser>(length);
  EXPECT_EQ(all_lost.num_damaged, 1);
  EXPECT_EQ(all_lost.damage, "the record at byte " + std::to_string(first_bytes) +
                                 " has a damaged length; nothing behind it can be read");
  EXPECT_THAT(all_lost.curves, IsEmpty());
}

TEST(Log, AResumedTrainingReplacesItsLaterSteps) {
  Log log;
  for (const double step : {1., 2., 3., 4.}) log.add("loss", {step, kNaN, kNaN}, -step);
  log.add("late", {4, kNaN, kNaN}, 1);
  log.forget_from(3);
  log.add("loss", {3, kNaN, kNaN}, 30);
  log.finish();
  ASSERT_EQ(log.curves().size(), 1u);
  EXPECT_THAT(log.curves()[0].values, ElementsAre(-1, -2, 30));
  EXPECT_THAT(log.curves()[0].steps, ElementsAre(1, 2, 3));
}

}  // namespace
}  // namespace yoke::curve
