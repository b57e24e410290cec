// Draws the help page.
#include <array>

#include "yoke/tui/view.h"

namespace yoke::tui {
namespace {

struct HelpLine {
  const char* keys;
  const char* meaning;
};
constexpr std::array kLines = {
    HelpLine{"", "Keys"},
    HelpLine{"Up Down PgUp PgDn", "choose a process; Home and End: the first, the last"},
    HelpLine{"Left Right", "see more of long command lines"},
    HelpLine{"/", "show processes with a text in user, origin or command"},
    HelpLine{"u", "show processes of a user; m: mine, and everybody's again"},
    HelpLine{"t", "tree: processes below their parents, devices together"},
    HelpLine{"< >", "sort by the column to the left, to the right"},
    HelpLine{"N U D M P A", "sort by number, user, device, memory, percent, age"},
    HelpLine{"r", "reverse the order"},
    HelpLine{"k", "end the process: SIGTERM, the second time SIGKILL"},
    HelpLine{"o", "origins: container, Slurm job, notebook, tmux"},
    HelpLine{"c", "devices in one line each, or with graphs"},
    HelpLine{"p", "hide processes; they are not read then"},
    HelpLine{"[ ]", "other devices, where not all fit"},
    HelpLine{"Esc", "take back: question, selection, filters"},
    HelpLine{"? q", "this page; quit"},
    HelpLine{"", ""},
    HelpLine{"", "Mouse"},
    HelpLine{"click", "a title sorts, again reverses; a process is chosen"},
    HelpLine{"wheel", "scrolls processes, or devices where not all fit"},
    HelpLine{"", ""},
    HelpLine{"", "Numbers"},
    HelpLine{"UTILIZATION", "share of the last second in which a kernel ran"},
    HelpLine{"MEMORY", "used of total, without what the driver reserves"},
    HelpLine{"POWER", "used of what it is limited to; -: not known"},
    HelpLine{"dim, in brackets", "a process that this machine's /proc does not show"},
};

}  // namespace

int64_t num_help_lines() { return static_cast<int64_t>(kLines.size()); }

void draw_help(Canvas& canvas, const Model& model) {
  constexpr int64_t kMeaning = 21;
  for (int64_t y = 0; y < model.size.height - 1; ++y) {
    const auto number = model.first_help_line + y;
    if (number >= num_help_lines()) break;
    const auto& line = kLines[static_cast<size_t>(number)];
    if (line.keys[0] == '\0') {
      canvas.put({1, y}, line.meaning, Style::kTitle);
    } else {
      canvas.put({2, y}, line.keys, Style::kKey);
      canvas.put({kMeaning, y}, line.meaning);
    }
  }
  const auto left = num_help_lines() - (model.first_help_line + model.size.height - 1);
  canvas.put({1, model.size.height - 1}, left > 0 ? "Down: more   any other key: back" : "any key: back", Style::kDim);
}

}  // namespace yoke::tui
