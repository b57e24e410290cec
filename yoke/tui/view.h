// yoke/tui/view.h -- converts a model to a page. Pure.
#pragma once

#include <string>

#include "yoke/tui/canvas.h"
#include "yoke/tui/layout.h"
#include "yoke/tui/model.h"

namespace yoke::tui {

/// Returns the page for the terminal, with the size model.size.
Canvas view(const Model& model);

/// Returns a page high enough for everything, without keys and graphs, for `--once` and pipes.
std::string plain_page(Model model);

// The parts of a page.
void draw_devices(Canvas& canvas, const Model& model, const Layout& layout);
void draw_processes(Canvas& canvas, const Model& model, const Layout& layout);
void draw_help(Canvas& canvas, const Model& model);

/// Returns the number of lines of the help page, which may be more than the terminal has.
int64_t num_help_lines();

}  // namespace yoke::tui
