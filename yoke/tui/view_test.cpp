#include "yoke/tui/view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/lines.h"
#include "tests/support/sanitized.h"
#include "yoke/tui/machine_test.h"
#include "yoke/tui/processes.h"

namespace yoke::tui {
namespace {

using test::lines_of;
using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::vector<std::string> lines_of(const Model& model) { return lines_of(view(model).to_text()); }

/// Returns the line that contains `text`, or an empty text if none does.
std::string line_with(const Model& model, const std::string& text) {
  for (const auto& line : lines_of(model)) {
    if (line.find(text) != line.npos) return line;
  }
  return "";
}

Style style_of(const Model& model, const std::string& text) {
  const auto canvas = view(model);
  const auto lines = lines_of(canvas.to_text());
  for (size_t y = 0; y < lines.size(); ++y) {
    const auto at = lines[y].find(text);
    if (at != std::string::npos) {
      return canvas.cell({display_width(lines[y].substr(0, at)), static_cast<int64_t>(y)}).style;
    }
  }
  ADD_FAILURE() << text << " is not on the page";
  return Style::kNormal;
}

TEST(View, OneLineForEachDeviceOnASmallTerminal) {
  const auto model = make_model({80, 24}, make_sample(8, 12));
  const auto lines = lines_of(model);
  ASSERT_EQ(lines.size(), 24u);
  EXPECT_THAT(lines[0], StartsWith(" gpu01   load 12.10 11.84 10.26   swap 512.0 MiB"));
  EXPECT_THAT(lines[2], StartsWith(" cpu EPYC 7763"));
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_THAT(lines[3 + i], StartsWith(fmt::format("   {} A100-SXM4-80GB ", i)));
    EXPECT_THAT(lines[3 + i], HasSubstr(fmt::format("{:>3}%", i * 10)));
    EXPECT_THAT(lines[3 + i], HasSubstr(fmt::format("{}.0/80.0 {}°C", i * 5, 40 + i)));
    EXPECT_THAT(lines[3 + i], HasSubstr(fmt::format("{}/400W {}", 60 + i * 20, i % 2 == 0 ? "ada" : "grace")));
  }
  EXPECT_THAT(lines[23], HasSubstr("12 processes"));
}

TEST(View, GraphsWhereThereIsRoom) {
  auto model = make_model({80, 24}, make_sample(2, 2));
  const auto layout = layout_of(model);
  ASSERT_EQ(layout.devices.size(), 3u);
  EXPECT_GE(layout.devices[1].rect.height, 4);
  EXPECT_THAT(lines_of(model), Contains(HasSubstr("⢀")));
  model = press(model, "c");
  EXPECT_EQ(layout_of(model).devices[1].rect.height, 1) << "unless the user wants lines";
}

TEST(View, TwoColumnsOnAWideTerminal) {
  const auto layout = layout_of(make_model({180, 50}, make_sample(8, 2)));
  ASSERT_EQ(layout.devices.size(), 9u);
  EXPECT_EQ(layout.devices[1].rect.x, 0);
  EXPECT_EQ(layout.devices[5].rect.x, 91);
  EXPECT_EQ(layout.devices[5].rect.y, layout.devices[1].rect.y);
}

TEST(View, DevicesNeverOverlapAndStayAboveTheProcesses) {
  for (const int64_t gpus : {0, 1, 2, 3, 5, 8, 16, 64}) {
    for (const Size size : {Size{40, 10}, Size{80, 24}, Size{120, 40}, Size{150, 30}, Size{200, 60}}) {
      auto sample = make_sample(gpus, 4);
      if (gpus > 1) sample.snapshot.devices[1].instances = {make_gpu(0), make_gpu(1), make_gpu(2)};
      const auto model = make_model(size, sample);
      const auto layout = layout_of(model);
      ASSERT_TRUE(layout.process_heading);
      for (size_t i = 0; i < layout.devices.size(); ++i) {
        const auto& rect = layout.devices[i].rect;
        EXPECT_GE(rect.y, 1);
        EXPECT_LE(rect.y + rect.height, *layout.process_heading)
            << gpus << " GPUs, " << size.width << "x" << size.height;
        EXPECT_LE(rect.x + rect.width, size.width);
        for (size_t j = 0; j < i; ++j) {
          const auto& other = layout.devices[j].rect;
          EXPECT_TRUE(rect.x >= other.x + other.width || other.x >= rect.x + rect.width ||
                      rect.y >= other.y + other.height || other.y >= rect.y + rect.height)
              << layout.devices[i].id << " over " << layout.devices[j].id;
        }
      }
      EXPECT_GE(layout.processes.height, 2);
    }
  }
}

/// For every size, view() returns a page of that size and does not crash.
TEST(View, OfAnySize) {
  auto sample = make_sample(9, 40);
  sample.snapshot.devices[2].state = device::State::kLost;
  sample.snapshot.devices[2].reason = "fallen off the bus";
  sample.snapshot.devices[3].instances = {make_gpu(0), make_gpu(1)};
  const auto model = make_model({80, 24}, sample);
  const int64_t step = test::kIsSanitized ? 19 : 1, large_step = test::kIsSanitized ? 30 : 13;  // for a shorter test
  for (const std::string keys : {"", "t", "?", "c", "p", "po", "/x", "u", "]]"}) {
    for (int64_t width = 0; width <= 170; width += width < 20 ? step : large_step) {
      for (int64_t height = 0; height <= 50; height += height < 14 ? step : large_step - 4) {
        auto resized = press(update(model, ResizeEvent{{width, height}}), keys);
        resized = press(press(resized, Key::kDown), "k");
        const auto canvas = view(resized);
        ASSERT_EQ(canvas.size(), (Size{width, height}));
        for (const auto& line : lines_of(canvas.to_text())) ASSERT_LE(display_width(line), width);
      }
    }
  }
}

TEST(View, SmallTerminalsShowTheMostImportant) {
  const auto lines = lines_of(make_model({40, 10}, make_sample(2, 4)));
  EXPECT_THAT(lines, Contains(StartsWith("   0 ")));
  EXPECT_THAT(lines, Contains(StartsWith("   1 ")));
  EXPECT_THAT(lines, Contains(HasSubstr(" 1002 ada")));
}

TEST(View, ADeviceThatDoesNotAnswerIsALineThatSaysSo) {
  auto sample = make_sample(8);
  sample.snapshot.devices[2].state = device::State::kLost;
  sample.snapshot.devices[2].reason = "fallen off the bus";
  sample.snapshot.devices[3].state = device::State::kNoAnswer;
  sample.snapshot.devices[3].reason = "the driver has not answered for 3.0 s";
  for (const Size size : {Size{80, 24}, Size{180, 60}}) {
    const auto model = make_model(size, sample);
    EXPECT_EQ(style_of(model, "lost: fallen off the bus"), Style::kBad);
    EXPECT_EQ(style_of(model, "no answer: the driver has not answered for 3.0 s"), Style::kWarning);
  }
}

TEST(View, InstancesStandUnderTheirParent) {
  auto sample = make_sample(2);
  auto& parent = sample.snapshot.devices[0];
  parent.instances = {make_gpu(0), make_gpu(1)};
  for (auto& instance : parent.instances) {
    instance.facts.name = "NVIDIA A100-SXM4-80GB MIG 3g.40gb";
    instance.readings.utilization_percent.reset();
  }
  for (const Size size : {Size{80, 24}, Size{80, 14}}) {
    const auto lines = lines_of(make_model(size, sample));
    const auto first =
        std::find_if(lines.begin(), lines.end(), [](const auto& line) { return line.starts_with(" 0:0 3g.40gb "); });
    ASSERT_NE(first, lines.end());
    EXPECT_THAT(*(first + 1), StartsWith(" 0:1 3g.40gb "));
    EXPECT_THAT(*first, HasSubstr("───    - ")) << "not known is not zero";
  }
}

TEST(View, WhatIsNotKnownIsNotZero) {
  auto sample = make_sample(8);
  sample.snapshot.devices[1].readings = {};
  const auto line = line_with(make_model({80, 24}, sample), "   1 A100");
  EXPECT_THAT(line, Not(HasSubstr("0%")));
  EXPECT_THAT(line, Not(HasSubstr("0.0")));
}

TEST(View, WithoutAGpuItSaysWhy) {
  auto sample = make_sample(0);
  sample.snapshot.backends = {{"nvml", false, true, "libnvidia-ml.so.1 is not installed", "", ""}};
  EXPECT_THAT(lines_of(make_model({80, 24}, sample)), Contains(" no GPU: libnvidia-ml.so.1 is not installed"));
  sample.snapshot.devices.clear();
  EXPECT_THAT(lines_of(make_model({80, 24}, sample)), Contains(HasSubstr("no GPU")));
}

TEST(View, SixteenDevicesAndAHundredProcessesFitInto80Columns) {
  const auto model = make_model({80, 24}, make_sample(16, 100));
  for (int64_t i = 0; i < 16; ++i) EXPECT_NE(line_with(model, fmt::format(" {:>3} A100", i)), "") << i;
  EXPECT_THAT(lines_of(model), Contains(HasSubstr("100 processes")));
  EXPECT_THAT(lines_of(model), Contains(HasSubstr("python train.py --run")));
}

TEST(View, WhatDoesNotFitCanBeReached) {
  auto model = make_model({80, 24}, make_sample(64, 3));
  EXPECT_THAT(lines_of(model)[0], HasSubstr("GPU 1-"));
  EXPECT_EQ(line_with(model, "  63 A100"), "");
  for (int i = 0; i < 20; ++i) model = press(std::move(model), "]");
  EXPECT_NE(line_with(model, "  63 A100"), "");
  EXPECT_THAT(lines_of(model)[0], HasSubstr("-64 of 64"));
  EXPECT_THAT(lines_of(model), Contains(StartsWith(" cpu "))) << "the machine stays";
}

TEST(View, NastyNamesAreHarmless) {
  auto sample = make_sample(1);
  auto& gpu = sample.snapshot.devices[0];
  gpu.facts.name = "NVIDIA \x1b[31mRED\x1b[0m";
  sample.snapshot.host = "host\x1b]0;owned\a\r\n";
  gpu.processes.push_back(
      make_process(7, "\x1b[2Jada", "\x1b]52;c;cm0gLXJm\a\xff\xfe 学習\u202e" + std::string(100'000, 'A')));
  gpu.processes.back().origin.systemd_unit = "\x1b[5mblink";
  for (const Size size : {Size{80, 24}, Size{160, 50}}) {
    for (const std::string keys : {"", "t", "/A", "u\x1b"}) {
      const auto text = view(press(make_model(size, sample), keys)).to_text();
      for (const char c : text) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20) << int{c};
      EXPECT_EQ(text.find("\u202e"), text.npos);
      EXPECT_EQ(text.find('\xff'), text.npos);
      EXPECT_THAT(text, HasSubstr("?[31mRED"));
      EXPECT_THAT(lines_of(text),
                  Each(testing::Truly([&](const auto& line) { return display_width(line) <= size.width; })));
    }
  }
}

/// At each of these widths, the lines and blocks of devices show memory and users.
TEST(View, NarrowTerminalsKeepMemoryAndUsers) {
  for (const int64_t width : {40, 60, 80}) {
    for (const bool is_compact : {false, true}) {
      auto model = make_model({width, 40}, make_sample(2, 2));
      model.is_compact = is_compact;
      const auto text = view(model).to_text();
      const auto place = "at " + std::to_string(width) + (is_compact ? ", lines\n" : ", blocks\n") + text;
      // Only the lines above the list of processes are checked, because the list has users too.
      const auto devices = text.substr(0, text.find("PID"));
      EXPECT_THAT(devices, HasSubstr("ada")) << place;
      EXPECT_THAT(devices, HasSubstr("grace")) << place;
      EXPECT_THAT(devices, HasSubstr("5.0/80.0")) << place;
    }
  }
}

TEST(View, ADeviceThatDoesNotAnswerMayHaveProcesses) {
  auto sample = make_sample(2);
  auto model = make_model({80, 24}, sample);
  EXPECT_THAT(view(model).to_text(), HasSubstr("no process uses a device"));
  sample.snapshot.devices[1].state = device::State::kNoAnswer;
  sample.snapshot.devices[1].has_process_list = false;
  model = make_model({80, 24}, sample);
  EXPECT_THAT(view(model).to_text(),
              AllOf(HasSubstr("no process is known; not known who uses device 1"), HasSubstr("others not known")));
}

TEST(View, DoubleWidthNamesKeepTheColumns) {
  auto sample = make_sample(1);
  sample.snapshot.devices[0].processes = {make_process(1, "学習する人々", "訓練 --a"), make_process(2, "ada", "b")};
  const auto model = make_model({80, 24}, sample);
  const auto column_of = [](const std::string& line, const std::string& text) {
    return display_width(line.substr(0, line.find(text)));
  };
  EXPECT_EQ(column_of(line_with(model, "訓練"), "訓練"), column_of(line_with(model, "      2 ada"), " b") + 1);
}

TEST(View, CommandsScrollSideways) {
  auto sample = make_sample(1);
  sample.snapshot.devices[0].processes = {make_process(1, "ada", "学学学学学学学学 the end of it")};
  auto model = press(make_model({80, 24}, sample), Key::kRight);
  EXPECT_THAT(line_with(model, "      1 ada"), testing::EndsWith(" 学学学学 the end of it"));
  EXPECT_THAT(line_with(press(model, Key::kRight), "      1 ada"), testing::EndsWith("  the end of it"));
  EXPECT_EQ(press(press(model, Key::kLeft), Key::kLeft).command_offset, 0);
}

TEST(View, SelectionMineAndOthers) {
  auto model = make_model({80, 24}, make_sample(8, 2));
  // The rows of processes are checked. The lines of devices contain users too.
  EXPECT_EQ(style_of(model, "ada      0"), Style::kStrong);
  EXPECT_EQ(style_of(model, "grace    1"), Style::kNormal);
  model = press(press(std::move(model), Key::kDown), Key::kDown);
  EXPECT_EQ(style_of(model, "ada      0"), Style::kStrong);
  EXPECT_EQ(style_of(model, "grace    1"), Style::kSelected);
}

TEST(View, TemperaturesNearTheLimitStandOut) {
  auto sample = make_sample(8);
  sample.snapshot.devices[0].readings.temperature_celsius = 88;  // GPUs slow down at 92 °C
  sample.snapshot.devices[1].readings.temperature_celsius = 93;
  const auto model = make_model({80, 24}, sample);
  EXPECT_EQ(style_of(model, "88°C"), Style::kWarning);
  EXPECT_EQ(style_of(model, "93°C"), Style::kBad);
  EXPECT_EQ(style_of(model, "42°C"), Style::kNormal);
}

TEST(View, WhatSlowsTheClocksIsSaidWhereThereIsRoom) {
  auto sample = make_sample(1);
  sample.snapshot.devices[0].readings.throttle_reasons = {"idle", "hardware thermal slowdown"};
  const auto model = make_model({160, 40}, sample);
  EXPECT_EQ(style_of(model, "hardware thermal slowdown"), Style::kBad);
  EXPECT_EQ(line_with(model, "idle"), "");
}

TEST(View, AsciiTerminalsGetAscii) {
  auto model = make_model({160, 40}, make_sample(2, 4));
  model.glyphs = Glyphs::kAscii;
  for (const std::string keys : {"", "t", "?"}) {
    for (const char c : view(press(model, keys)).to_text()) EXPECT_LT(static_cast<unsigned char>(c), 0x80);
  }
}

TEST(View, BeforeTheFirstSample) {
  Model model{.size = {80, 24}};
  EXPECT_THAT(view(model).to_text(), StartsWith(" reading the devices..."));
  EXPECT_THAT(view(press(press(model, "tokMr[]c/x"), Key::kDown)).to_text(), HasSubstr("find: x"));
  EXPECT_THAT(view(press(std::move(model), "?")).to_text(), HasSubstr("Keys"));
}

TEST(View, HelpCanBeReadOnASmallTerminal) {
  auto model = press(make_model({40, 10}, make_sample(1)), "?");
  std::string seen;
  for (int i = 0; i < 60; ++i) {
    seen += view(model).to_text();
    model = press(std::move(model), Key::kDown);
    ASSERT_TRUE(model.shows_help);
  }
  for (const char* text : {"Keys", "Esc", "Mouse", "POWER", "dim, in brackets"}) EXPECT_THAT(seen, HasSubstr(text));
  EXPECT_FALSE(press(std::move(model), "x").shows_help);
}

TEST(View, QuestionsAndWhatIsTypedStandAtTheBottom) {
  auto model = press(make_model({80, 24}, make_sample(1, 2)), "/run 1");
  EXPECT_THAT(lines_of(model).back(), StartsWith(" find: run 1"));
  model = press(press(press(std::move(model), Key::kEnter), Key::kDown), "k");
  EXPECT_THAT(lines_of(model).back(), " send SIGTERM to 1001 python (grace)?   y yes  n no");
  model = press(std::move(model), "n");
  EXPECT_EQ(lines_of(model).back(), " nothing was sent");
}

TEST(PlainPage, HasEverythingAndNoKeys) {
  const auto text = plain_page(make_model({80, 5}, make_sample(16, 100)));
  const auto lines = lines_of(text);
  EXPECT_THAT(lines, Each(testing::Truly([](const auto& line) { return display_width(line) <= 80; })));
  for (int64_t i = 0; i < 16; ++i) EXPECT_THAT(lines, Contains(StartsWith(fmt::format(" {:>3} A100", i))));
  for (int64_t i = 0; i < 100; ++i) EXPECT_THAT(lines, Contains(StartsWith(fmt::format("{:>7} ", 1000 + i))));
  EXPECT_THAT(text, Not(HasSubstr("help")));
  EXPECT_THAT(text, Not(HasSubstr("\n\n\n")));
  EXPECT_FALSE(lines.back().empty());
}

view::ClaimRow claim_of(const std::string& id, const std::string& user, int64_t idle_minutes) {
  return {.id = id, .user = user, .idle = std::chrono::minutes(idle_minutes)};
}

TEST(View, ClaimsAreAColumnOnceThereAreSome) {
  auto sample = make_sample(8, 12);
  const auto compact = [](Model model) {
    model.is_compact = true;
    return model;
  };
  EXPECT_EQ(line_with(compact(make_model({140, 40}, sample)), "CLAIM"), "");
  sample.claims = {claim_of("1", "bob", 0), claim_of("2", "eve\x1b[31m", 40), claim_of("3", "ada", 0),
                   claim_of("3", "bob", 0)};
  const auto model = compact(make_model({140, 40}, sample));
  EXPECT_THAT(line_with(model, "CLAIM"), HasSubstr("USERS"));
  EXPECT_THAT(line_with(model, " 1 A100"), HasSubstr(" bob "));
  EXPECT_THAT(line_with(model, " 2 A100"), HasSubstr(" eve?[31m, idle 40 m"));
  EXPECT_THAT(line_with(model, " 3 A100"), HasSubstr(" ada, bob "));
  EXPECT_EQ(style_of(model, "eve?"), Style::kWarning) << "a claim that nobody uses stands out";
  EXPECT_EQ(style_of(model, "ada, bob"), Style::kNormal);
  EXPECT_THAT(line_with(make_model({80, 24}, sample), " 1 A100"), HasSubstr(" bob"));
}

TEST(View, ABlockSaysWhoHasClaimedTheDevice) {
  auto sample = make_sample(1, 2);
  sample.claims = {claim_of("0", "bob", 40)};
  EXPECT_THAT(line_with(make_model({120, 30}, sample), "A100"), HasSubstr("claim: bob, idle 40 min"));
}

}  // namespace
}  // namespace yoke::tui
