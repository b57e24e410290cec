// yoke/tui/view.h -- the page of a model. Pure.
#pragma once

#include <string>

#include "yoke/tui/canvas.h"
#include "yoke/tui/layout.h"
#include "yoke/tui/model.h"

namespace yoke::tui {

/// Returns the page that the terminal shows, with the size model.size.
Canvas view(const Model& model);

/// Everything on one page that is high enough, without keys and graphs, for `--once` and pipes.
std::string plain_page(Model model);

// The parts of a page.
void draw_devices(Canvas& canvas, const Model& model, const Layout& layout);
void draw_processes(Canvas& canvas, const Model& model, const Layout& layout);
void draw_help(Canvas& canvas, const Model& model);

/// The number of lines of the help page, which may be higher than the terminal.
int64_t num_help_lines();

}  // namespace yoke::tui
