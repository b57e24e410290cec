#include "yoke/tui/terminal.h"

#include <fcntl.h>
#include <langinfo.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#define NCURSES_WIDECHAR 1
#define NCURSES_NOMACROS 1
#include <curses.h>
#include <term.h>
#undef lines  // term.h defines names of capabilities as macros
#undef columns
#undef tab

#include "yoke/base/file.h"
#include "yoke/base/text.h"
#include "yoke/base/utf8.h"

namespace yoke::tui {
namespace {

// State for signal handlers, which cannot be passed an object. There is only one terminal.
int signal_pipe = -1;
termios modes_before = {};
std::array<char, 512> reset_text = {};
volatile sig_atomic_t reset_length = 0;

constexpr std::array kEnding = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr std::array kNoted = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP, SIGCONT};
constexpr std::array kCrashes = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
std::array<struct sigaction, kCrashes.size()> crash_actions_before = {};

void note_signal(int number) {
  const int saved = errno;
  const auto byte = static_cast<char>(number);
  [[maybe_unused]] const auto size = write(signal_pipe, &byte, 1);
  errno = saved;
}

/// Restores the terminal, then gives the signal its usual effect.
void leave_in_crash(int number) {
  [[maybe_unused]] const auto size = write(STDOUT_FILENO, reset_text.data(), static_cast<size_t>(reset_length));
  tcsetattr(STDIN_FILENO, TCSANOW, &modes_before);
  for (size_t i = 0; i < kCrashes.size(); ++i) {
    if (kCrashes[i] == number) sigaction(number, &crash_actions_before[i], nullptr);
  }
  raise(number);
}

void set_handler(int number, void (*handler)(int), struct sigaction* before) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(number, &action, before);
}

/// Returns a terminfo string without its "$<5>" pauses.
std::string capability(const char* name) {
  const char* text = tigetstr(name);
  if (text == nullptr || reinterpret_cast<intptr_t>(text) == -1) return "";  // -1: no capability of this name
  std::string result;
  for (std::string_view rest = text; !rest.empty();) {
    const auto pause = rest.starts_with("$<") ? rest.find('>') : rest.npos;
    if (pause != rest.npos) {
      rest.remove_prefix(pause + 1);
    } else {
      result += rest.front();
      rest.remove_prefix(1);
    }
  }
  return result;
}

void prepare_reset() {
  std::string text = "\x1b[?1000l\x1b[?1006l";  // ends mouse reports; sent only to terminals with a mouse
  if (capability("kmous").empty()) text.clear();
  for (const char* name : {"sgr0", "cnorm", "rmkx", "rmcup"}) text += capability(name);
  text.resize(std::min(text.size(), reset_text.size()));
  std::ranges::copy(text, reset_text.begin());
  reset_length = static_cast<sig_atomic_t>(text.size());
}

// Styles.

struct Look {
  Style style;
  short color;  ///< -1 is the terminal's default.
  attr_t attributes;
  attr_t without_colors;
};
constexpr short kGrey = -2;  ///< Grey if the terminal has it.
constexpr std::array kLooks = {
    Look{Style::kNormal, -1, A_NORMAL, A_NORMAL},
    Look{Style::kDim, kGrey, A_NORMAL, A_DIM},
    Look{Style::kStrong, -1, A_BOLD, A_BOLD},
    Look{Style::kTitle, -1, A_BOLD, A_BOLD},
    Look{Style::kUtilization, COLOR_CYAN, A_NORMAL, A_NORMAL},
    Look{Style::kMemory, COLOR_MAGENTA, A_NORMAL, A_NORMAL},
    Look{Style::kGood, COLOR_GREEN, A_NORMAL, A_NORMAL},
    Look{Style::kWarning, COLOR_YELLOW, A_NORMAL, A_BOLD},
    Look{Style::kBad, COLOR_RED, A_BOLD, A_BOLD},
    Look{Style::kHeading, kGrey, A_UNDERLINE, A_UNDERLINE},
    Look{Style::kChosenHeading, -1, A_BOLD | A_UNDERLINE, A_BOLD | A_UNDERLINE},
    Look{Style::kSelected, -1, A_REVERSE, A_REVERSE},
    Look{Style::kKey, -1, A_BOLD, A_BOLD},
};
static_assert(kLooks.size() == kNumStyles);

struct Attributes {
  attr_t attributes = A_NORMAL;
  short pair = 0;
};

using Palette = std::array<Attributes, kNumStyles>;

Palette make_palette(bool has_colors) {
  Palette palette = {};
  if (has_colors) {
    start_color();
    use_default_colors();
  }
  short next_pair = 1;
  for (const auto& look : kLooks) {
    auto& target = palette[static_cast<size_t>(look.style)];
    target.attributes = has_colors ? look.attributes : look.without_colors;
    if (!has_colors || look.color == -1) continue;
    auto color = look.color;
    if (color == kGrey) {
      constexpr short kMiddleGrey = 244, kBrightBlack = 8;
      if (COLORS < 16) {
        target.attributes |= A_DIM;
        continue;
      }
      color = COLORS >= 256 ? kMiddleGrey : kBrightBlack;  // palettes may make bright black invisible
    }
    init_pair(next_pair, color, -1);
    target.pair = next_pair++;
  }
  return palette;
}

// Input.

std::optional<Event> event_of_key(wint_t code) {
  switch (code) {
    case KEY_UP: return KeyEvent{Key::kUp};
    case KEY_DOWN: return KeyEvent{Key::kDown};
    case KEY_LEFT: return KeyEvent{Key::kLeft};
    case KEY_RIGHT: return KeyEvent{Key::kRight};
    case KEY_PPAGE: return KeyEvent{Key::kPageUp};
    case KEY_NPAGE: return KeyEvent{Key::kPageDown};
    case KEY_HOME: return KeyEvent{Key::kHome};
    case KEY_END: return KeyEvent{Key::kEnd};
    case KEY_ENTER: return KeyEvent{Key::kEnter};
    case KEY_BACKSPACE: return KeyEvent{Key::kBackspace};
    case KEY_F(1): return KeyEvent{Key::kCharacter, "?"};
    case KEY_F(9): return KeyEvent{Key::kCharacter, "k"};
    case KEY_F(10): return KeyEvent{Key::kCharacter, "q"};
    default: return std::nullopt;
  }
}

std::optional<Event> event_of_character(wint_t code) {
  switch (code) {
    case '\r':
    case '\n': return KeyEvent{Key::kEnter};
    case 0x1B: return KeyEvent{Key::kEscape};
    case 0x7F:
    case '\b': return KeyEvent{Key::kBackspace};
    default: break;
  }
  if (code < 0x20) return std::nullopt;
  return KeyEvent{Key::kCharacter, to_utf8(static_cast<char32_t>(code))};
}

std::optional<Event> event_of_mouse(const MEVENT& mouse) {
  MouseEvent event{.at = {mouse.x, mouse.y}};
  if ((mouse.bstate & BUTTON4_PRESSED) != 0) {
    event.what = MouseEvent::What::kWheelUp;
  } else if ((mouse.bstate & BUTTON5_PRESSED) != 0) {
    event.what = MouseEvent::What::kWheelDown;
  } else if ((mouse.bstate & BUTTON1_PRESSED) == 0) {
    return std::nullopt;
  }
  return event;
}

/// All reports of the mouse that ncurses has read, the oldest last. It gives the newest one first, and says KEY_MOUSE
/// once for several that arrived together.
std::vector<Event> take_mouse_events() {
  std::vector<Event> result;
  for (MEVENT mouse = {}; getmouse(&mouse) == OK;) {
    if (const auto event = event_of_mouse(mouse)) result.push_back(*event);
  }
  return result;
}

bool has_cursor_addressing() {
  int error = 0;
  if (setupterm(nullptr, STDOUT_FILENO, &error) != OK) return false;
  const bool has = !capability("cup").empty();
  del_curterm(cur_term);
  return has;
}

}  // namespace

Glyphs prepare_locale(const Environment& environment) {
  const char* chosen = setlocale(LC_CTYPE, "");
  if (chosen == nullptr) {
    auto name = environment.value_or("LC_ALL", "");
    if (name.empty()) name = environment.value_or("LC_CTYPE", "");
    if (name.empty()) name = environment.value_or("LANG", "");
    name = upper_case(name);
    const bool means_utf8 = name.ends_with("UTF-8") || name.ends_with("UTF8");
    if (!means_utf8 || setlocale(LC_CTYPE, "C.UTF-8") == nullptr) return Glyphs::kAscii;
  }
  if (environment.value_or("TERM", "") == "linux") return Glyphs::kAscii;  // the Linux console's font has no Braille
  return std::strcmp(nl_langinfo(CODESET), "UTF-8") == 0 ? Glyphs::kUnicode : Glyphs::kAscii;
}

struct Terminal::Impl {
  SCREEN* screen = nullptr;
  Palette palette = {};
  Pipe signals;
  std::vector<Event> mouse_events;  ///< That were read and not given yet, the oldest last.
  std::array<struct sigaction, kNoted.size()> actions_before = {};

  void handle_signals() {
    for (size_t i = 0; i < kNoted.size(); ++i) set_handler(kNoted[i], note_signal, &actions_before[i]);
    for (size_t i = 0; i < kCrashes.size(); ++i) set_handler(kCrashes[i], leave_in_crash, &crash_actions_before[i]);
  }

  void restore_signals() {
    for (size_t i = 0; i < kNoted.size(); ++i) sigaction(kNoted[i], &actions_before[i], nullptr);
    for (size_t i = 0; i < kCrashes.size(); ++i) sigaction(kCrashes[i], &crash_actions_before[i], nullptr);
  }

  /// Stops the whole job, as Ctrl-Z does to any program. Until the job continues, the shell uses the terminal.
  void stop() {
    endwin();
    struct sigaction before = {};
    set_handler(SIGTSTP, SIG_DFL, &before);
    kill(0, SIGTSTP);  // returns when the job continues, or at once if no shell could continue the job
    sigaction(SIGTSTP, &before, nullptr);
    enter_again();
  }

  /// Called after a different program has used the terminal. The next draw() sets it up again.
  void enter_again() {
    endwin();
    resize();
    clearok(curscr, TRUE);
  }

  void resize() {
    winsize size = {};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0) {
      resizeterm(size.ws_row, size.ws_col);
    }
  }
};

Terminal::Terminal(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

std::unique_ptr<Terminal> Terminal::open(bool wants_color) {
  if (!has_cursor_addressing()) return nullptr;
  auto impl = std::make_unique<Impl>();
  impl->signals = make_pipe();
  for (const int fd : {impl->signals.read_end.value(), impl->signals.write_end.value()}) fcntl(fd, F_SETFL, O_NONBLOCK);
  signal_pipe = impl->signals.write_end.value();
  tcgetattr(STDIN_FILENO, &modes_before);
  impl->screen = newterm(nullptr, stdout, stdin);
  if (impl->screen == nullptr) return nullptr;
  prepare_reset();
  impl->handle_signals();  // after newterm, which has handlers of its own
  raw();  // Ctrl-C and Ctrl-Z arrive as characters, so that the terminal is restored before the process stops
  noecho();
  nonl();
  curs_set(0);
  keypad(stdscr, TRUE);
  nodelay(stdscr, TRUE);
  set_escdelay(25);
  mousemask(BUTTON1_PRESSED | BUTTON4_PRESSED | BUTTON5_PRESSED, nullptr);
  mouseinterval(0);
  impl->palette = make_palette(wants_color && has_colors());
  return std::unique_ptr<Terminal>(new Terminal(std::move(impl)));
}

Terminal::~Terminal() {
  endwin();
  impl_->restore_signals();
  delscreen(impl_->screen);
  signal_pipe = -1;
}

Size Terminal::size() const { return {getmaxx(stdscr), getmaxy(stdscr)}; }

int Terminal::signal_fd() const { return impl_->signals.read_end.value(); }

void Terminal::draw(const Canvas& canvas) {
  erase();
  const auto shown = size();
  const auto width = std::min(canvas.size().width, shown.width), height = std::min(canvas.size().height, shown.height);
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width;) {
      const auto style = canvas.cell({x, y}).style;
      std::string run;
      auto end = x;
      // After each character that is not ASCII the cursor is placed again: ncurses may assume a different width.
      for (bool is_plain = true; end < width && is_plain && canvas.cell({end, y}).style == style; ++end) {
        const auto& text = canvas.cell({end, y}).text;
        is_plain = text.size() == 1;
        run += text;
      }
      const auto& attributes = impl_->palette[static_cast<size_t>(style)];
      attr_set(attributes.attributes, attributes.pair, nullptr);
      mvaddnstr(static_cast<int>(y), static_cast<int>(x), run.data(), static_cast<int>(run.size()));
      x = end;
    }
  }
  attr_set(A_NORMAL, 0, nullptr);
  refresh();
}

std::optional<Terminal::Input> Terminal::next() {
  char number = 0;
  if (read(impl_->signals.read_end.value(), &number, 1) == 1) {
    if (std::ranges::find(kEnding, number) != kEnding.end()) return Input{.ending_signal = number};
    if (number == SIGTSTP) {
      impl_->stop();
    } else if (number == SIGCONT) {
      impl_->enter_again();
    } else {
      impl_->resize();
    }
    return Input{.event = ResizeEvent{size()}, .must_draw = true};
  }
  if (!impl_->mouse_events.empty()) {
    const auto event = impl_->mouse_events.back();
    impl_->mouse_events.pop_back();
    return Input{.event = event};
  }
  wint_t code = 0;
  constexpr wint_t kCtrlC = 3, kCtrlL = 12, kCtrlZ = 26, kCtrlBackslash = 28;
  switch (get_wch(&code)) {
    case KEY_CODE_YES:
      if (code == KEY_MOUSE) {
        impl_->mouse_events = take_mouse_events();
        return Input{};
      }
      if (code == KEY_RESIZE) return Input{.event = ResizeEvent{size()}};
      return Input{.event = event_of_key(code)};
    case OK:
      if (code == kCtrlC) return Input{.ending_signal = SIGINT};
      if (code == kCtrlBackslash) return Input{.ending_signal = SIGQUIT};
      if (code == kCtrlL) {
        clearok(curscr, TRUE);
        return Input{.must_draw = true};
      }
      if (code == kCtrlZ) {
        impl_->stop();
        return Input{.event = ResizeEvent{size()}, .must_draw = true};
      }
      return Input{.event = event_of_character(code)};
    default: return std::nullopt;
  }
}

}  // namespace yoke::tui
