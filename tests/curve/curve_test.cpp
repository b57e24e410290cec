// Tests the charts and files that `yoke curve` makes of runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/command.h"
#include "tests/support/lines.h"
#include "tests/support/paths.h"
#include "yoke/base/file.h"
#include "yoke/base/text.h"

namespace yoke::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using Json = nlohmann::json;

struct Runs {
  TemporaryFolder folder;

  Result curve(std::vector<std::string> words, const std::string& locale = "C.UTF-8", bool on_terminal = false) const {
    return run(options(std::move(words), locale, on_terminal));
  }
  CommandOptions options(std::vector<std::string> words, const std::string& locale = "C.UTF-8",
                         bool on_terminal = false) const {
    words.insert(words.begin(), {YOKE_COMMAND, "curve"});
    return {.argv = std::move(words),
            .environment = {{"COLUMNS", "60"}, {"LC_ALL", locale}},
            .without = {"NO_COLOR"},
            .folder = folder.path(),
            .on_terminal = on_terminal};
  }
  void write_steps(const std::string& name, int64_t count, double scale = 1) const {
    std::string text;
    for (int64_t step = 0; step < count; ++step) {
      text += "{\"step\": " + std::to_string(step) + ", \"time\": " + std::to_string(1790000000 + 2 * step) +
              ", \"loss\": " + std::to_string(scale / static_cast<double>(step + 1)) + "}\n";
    }
    folder.write("runs/" + name + "/steps.jsonl", text);
  }
  /// Runs a Python program in the test's folder, and returns its exit status.
  int python(const std::string& program) const {
    const auto result = run({.argv = {"python3", "-c", program}, .folder = folder.path()});
    EXPECT_THAT(result.err, IsEmpty());
    return result.exit_code;
  }
};

TEST(Curve, ReplacesNothingButDrawings) {
  const Runs runs;
  runs.write_steps("a", 20);
  const auto before = read_file(runs.folder.path("runs/a/steps.jsonl"));
  for (const std::string option : {"--svg", "--png"}) {
    const auto result = runs.curve({"runs/a", option, "runs/a/steps.jsonl"});
    EXPECT_NE(result.exit_code, 0);
    EXPECT_THAT(result.err, HasSubstr("runs/a/steps.jsonl exists and is not"));
    EXPECT_EQ(read_file(runs.folder.path("runs/a/steps.jsonl")), before);
    const auto file = "a." + option.substr(2);
    EXPECT_EQ(runs.curve({"runs/a", option, file}).exit_code, 0);
    EXPECT_EQ(runs.curve({"runs/a", option, file}).exit_code, 0) << "a drawing is replaced";
  }
}

TEST(Curve, PrintsAllMetricsAsData) {
  const Runs runs;
  runs.folder.write("runs/a/metrics.csv", "\xef\xbb\xbfstep,a,b,c,d,e,f\n0,1,2,3,4,5,6\n1,1,2,3,4,5,6\n");
  const auto result = runs.curve({"runs/a", "--json"});
  EXPECT_EQ(Json::parse(result.out)["curves"].size(), 6u) << result.out;
  EXPECT_EQ(Json::parse(result.out)["curves"][0]["x"], "step") << "a byte order mark is no part of a name";
}

TEST(Curve, DrawsTheNewestRun) {
  const Runs runs;
  runs.folder.write("runs/old/metrics.csv", "epoch,loss\n1,2\n");
  runs.write_steps("new", 50);
  fs::last_write_time(runs.folder.path("runs/old/metrics.csv"),
                      fs::file_time_type::clock::now() - std::chrono::hours(1));
  const auto result = runs.curve({});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, IsEmpty());
  EXPECT_THAT(result.out, StartsWith("loss by step\n━━ new  last 0.02, 0.02 to 1\n"));
  for (const auto& line : lines_of(result.out)) EXPECT_LE(display_width(line), 60) << line;
  const auto ascii = runs.curve({}, "C");
  EXPECT_THAT(ascii.out, StartsWith("loss by step\n** new"));
  EXPECT_TRUE(std::ranges::all_of(ascii.out, [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
}

TEST(Curve, OverlaysRunsInColoursOfTheTerminal) {
  const Runs runs;
  runs.write_steps("a", 50);
  runs.write_steps("b", 50, 2);
  runs.folder.write("runs/c/metrics.csv", "epoch,accuracy\n1,0.5\n");
  const auto colored = runs.curve({"runs/a", "runs/b"}, "C.UTF-8", /*on_terminal=*/true);
  EXPECT_THAT(colored.out, AllOf(HasSubstr("\x1b[36m━━\x1b[0m a"), HasSubstr("\x1b[33m━━\x1b[0m b")));
  const auto plain = runs.curve({"runs/a", "runs/b", "runs/c", "--metric", "loss"});
  EXPECT_THAT(plain.out, AllOf(HasSubstr("** a"), HasSubstr("oo b"), Not(HasSubstr("\x1b"))));
  EXPECT_EQ(plain.err, "yoke curve: no metric 'loss' in runs/c\n");
  EXPECT_EQ(plain.exit_code, 66) << "a run that was named lacks a metric that was named";
}

TEST(Curve, PrintsTheValues) {
  const Runs runs;
  runs.folder.write("a.jsonl",
                    "{\"step\": 0, \"time\": 1790000000, \"loss\": 1}\n{\"step\": 5, \"time\": 1790000003, \"loss\": "
                    "null}\n{\"step\": 9, \"time\": 1790000004, \"loss\": 0.1}\n");
  EXPECT_EQ(runs.curve({"a.jsonl", "--csv", "--x", "time"}).out,
            "metric,run,axis,x,value\nloss,a.jsonl,time,0,1\nloss,a.jsonl,time,3,nan\nloss,a.jsonl,time,4,0.1\n");
  EXPECT_EQ(Json::parse(runs.curve({"a.jsonl", "--json"}).out),
            Json::parse(R"({"curves": [{"metric": "loss", "run": "a.jsonl", "x": "step",
                                        "points": [[0, 1], [5, null], [9, 0.1]]}]})"));
  const auto events = Json::parse(
      runs.curve({reference("events/events.out.tfevents.pytorch"), "--json", "--metric", "double,new style"}).out);
  EXPECT_EQ(events["curves"][0]["points"].size(), 5u);
  EXPECT_EQ(events["curves"][0]["points"][1][1], 1 / 3.);
  EXPECT_EQ(events["curves"][1]["metric"], "new style");
}

TEST(Curve, SvgIsXmlAndPngHasTheLines) {
  const Runs runs;
  runs.write_steps("a<b>&\"", 2000);
  ASSERT_EQ(runs.curve({"--svg", "a.svg", "--png", "a.png", "--width", "600", "--height", "200"}).exit_code, 0);
  // Oracles: Python's XML parser checks the SVG, and Python's zlib the PNG.
  EXPECT_EQ(runs.python(R"(
import struct, xml.dom.minidom, zlib
svg = xml.dom.minidom.parse("a.svg").documentElement
assert svg.getAttribute("width") == "600"
assert any("a<b>&" in node.firstChild.data for node in svg.getElementsByTagName("text"))
data = open("a.png", "rb").read()
assert data[:8] == b"\x89PNG\r\n\x1a\n"
place, chunks = 8, []
while place < len(data):
    size, kind = struct.unpack(">I4s", data[place:place + 8])
    content = data[place + 8:place + 8 + size]
    assert zlib.crc32(kind + content) == struct.unpack(">I", data[place + 8 + size:place + 12 + size])[0]
    chunks.append((kind, content))
    place += 12 + size
assert [kind for kind, _ in chunks] == [b"IHDR", b"IDAT", b"IEND"]
width, height = struct.unpack(">II", chunks[0][1][:8])
rows = zlib.decompress(chunks[1][1])
assert width == 600 and len(rows) == height * (1 + 3 * width)
pixels = [rows[y * (1 + 3 * width):][1:1 + 3 * width] for y in range(height)]
blue = {(x, y) for y in range(height) for x in range(width) if pixels[y][3 * x:3 * x + 3] == b"\x09\x69\xda"}
columns = {x for x, y in blue}
assert len(columns) > 500, len(columns)
assert all({(x + 1, y), (x - 1, y)} & blue and {(x, y + 1), (x, y - 1)} & blue for x, y in blue)
)"),
            0);
  EXPECT_THAT(runs.curve({"--svg", "-"}).out, StartsWith("<svg "));
}

TEST(Curve, ErrorsSayWhatToDo) {
  const Runs runs;
  const auto refused = [&](std::vector<std::string> words, int code, const std::string& message) {
    const auto result = runs.curve(words);
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_EQ(result.err, "yoke curve: " + message + "\n");
  };
  refused({}, 66, "there is no folder runs; give the folder of a run, as in `yoke curve FOLDER`");
  runs.write_steps("a", 3);
  runs.folder.write("runs/b/metrics.csv", "epoch,loss\n1,2\n");
  runs.folder.write("runs/new/metrics.csv", "");
  runs.folder.write("\x1b[2J\n.csv", "epoch,loss\n1,2,3\n");
  refused({"runs"}, 66,
          "runs holds neither steps.jsonl nor metrics.csv nor event files of TensorBoard; give the folders of runs in "
          "it, such as runs/a runs/b runs/new");
  refused({"runs/c"}, 66, "there is no run runs/c: no such file or folder");
  refused({"runs/a", "--metric", "los"}, 66, "runs/a has no metric 'los' (did you mean `loss`?); there is loss");
  refused({"runs/a", "--x", "epoch"}, 64,
          "the metric 'loss' of runs/a has no epochs; give another --x, or other metrics with --metric");
  refused({"runs/a", "runs/b"}, 64,
          "the runs have no common axis for the metric 'loss': one has only steps and another only epochs; draw them "
          "apart, or choose other metrics with --metric");
  refused({"runs/new"}, 66,
          "runs/new has no values yet: yoke curve reads CSV with a header of names, JSON lines and TensorBoard's event "
          "files; "
          "if a training has just begun, --watch waits for its first values");
  refused({"runs/a", "--svg", "x", "--png", "x"}, 64, "--svg and --png name one file; give two");
  const auto hostile = runs.curve({"\x1b[2J\n.csv"});
  EXPECT_THAT(hostile.err,
              AllOf(Not(HasSubstr("\x1b")), StartsWith("yoke curve: ?[2J .csv: 1 record could not be read: "
                                                       "line 2 has 3 cells, and the header 2\n")));
  const auto full = runs.curve({"runs/a", "--svg", "/no/such/folder/x.svg"});
  EXPECT_THAT(full.err, HasSubstr("/no/such/folder/x.svg"));
  EXPECT_NE(full.exit_code, 0);
}

TEST(Curve, WatchingARunShowsItsNewValues) {
  const Runs runs;
  runs.folder.write("runs/a/steps.jsonl", "");
  Command command(runs.options({"--watch", "0.05", "runs/a"}));
  EXPECT_TRUE(command.wait_for_output("runs/a has no values yet"));
  runs.folder.write("runs/a/steps.jsonl", "{\"step\": 1, \"loss\": 7}\n{\"step\": 2, \"lo");
  EXPECT_TRUE(command.wait_for_output("last 7, 7 to 7"));
  runs.folder.write("runs/a/steps.jsonl", "{\"step\": 1, \"loss\": 7}\n{\"step\": 2, \"loss\": 5}\n");
  EXPECT_TRUE(command.wait_for_output("last 5, 5 to 7"));
}

TEST(Curve, ManyMetricsAreNamed) {
  const Runs runs;
  runs.folder.write("a.csv", "step,a,b,c,d,e,f,seconds\n1,1,1,1,1,1,1,1\n");
  const auto result = runs.curve({"a.csv"});
  EXPECT_THAT(result.out, AllOf(HasSubstr("d by step"), Not(HasSubstr("e by step"))));
  EXPECT_EQ(result.err, "yoke curve: not drawn, choose with --metric: e, f\n");
}

}  // namespace
}  // namespace yoke::test
