// yoke/tui/view.h -- the page of a model. Pure.
#pragma once

#include <string>

#include "yoke/tui/canvas.h"
#include "yoke/tui/layout.h"
#include "yoke/tui/model.h"

namespace yoke::tui {

/// What the terminal shows: of model.size, whatever that is.
Canvas view(const Model& model);

/// Everything on one page as high as it must be, without keys and graphs: for `--once` and for pipes.
std::string plain_page(Model model);

// Its parts.
void draw_devices(Canvas& canvas, const Model& model, const Layout& layout);
void draw_processes(Canvas& canvas, const Model& model, const Layout& layout);
void draw_help(Canvas& canvas, const Model& model);

/// Lines of the help page, which may be more than the terminal has.
int64_t num_help_lines();

}  // namespace yoke::tui
